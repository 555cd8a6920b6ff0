// Displacements, with the nearest image where a structure is periodic.

// `cell` holds three lattice vectors in nine numbers, `pbc` three flags; both null for a molecule.
function nearestImage(vector, cell, pbc) {
  if (!cell) return vector;
  const [a, b, c] = [cell.slice(0, 3), cell.slice(3, 6), cell.slice(6, 9)];
  const normals = [cross(b, c), cross(c, a), cross(a, b)];
  let found = vector;
  [a, b, c].forEach((edge, k) => {
    const height = dot(edge, normals[k]);
    if (!pbc[k] || !height) return;
    const turns = Math.round(dot(found, normals[k]) / height);
    found = found.map((x, axis) => x - turns * edge[axis]);
  });
  // In skewed cells the nearest image may be a neighbour of the one that rounding finds.
  if (!dot(a, b) && !dot(b, c) && !dot(c, a)) return found;
  const steps = pbc.map((periodic) => (periodic ? [-1, 0, 1] : [0]));
  let nearest = found;
  for (const u of steps[0]) for (const v of steps[1]) for (const w of steps[2]) {
    const image = found.map((x, axis) => x + u * a[axis] + v * b[axis] + w * c[axis]);
    if (dot(image, image) < dot(nearest, nearest) - 1e-9) nearest = image;
  }
  return nearest;
}

function displacement(structure, i, j) {
  const p = structure.positions;
  const direct = [0, 1, 2].map((k) => p[3 * j + k] - p[3 * i + k]);
  return nearestImage(direct, structure.cell, structure.pbc);
}

function distance(structure, i, j) {
  return Math.hypot(...displacement(structure, i, j));
}

function dot(a, b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

function cross(a, b) {
  return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
}

// Row-major 3×3 matrices.
function turned(matrix, v) {
  return [0, 3, 6].map((k) => matrix[k] * v[0] + matrix[k + 1] * v[1] + matrix[k + 2] * v[2]);
}

function product(a, b) {
  return [0, 3, 6].flatMap((r) => [0, 1, 2].map((c) => a[r] * b[c] + a[r + 1] * b[c + 3] + a[r + 2] * b[c + 6]));
}

function rotation(aboutX, aboutY) {
  const [cx, sx, cy, sy] = [Math.cos(aboutX), Math.sin(aboutX), Math.cos(aboutY), Math.sin(aboutY)];
  return product([1, 0, 0, 0, cx, -sx, 0, sx, cx], [cy, 0, sy, 0, 1, 0, -sy, 0, cy]);
}
