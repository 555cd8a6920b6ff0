// A molecule in three dimensions: balls, sticks, lines between pairs and arrows, sorted by depth.

const TURN = 0.15; // radians, of one press of an arrow key
const MOST_LINES = 1500;

class MoleculeView extends Surface {
  // `scene()` returns { structure, lines, arrows, highlight, atom, path, off }; `picked(atom)` is called on a click,
  // `pointed(pair or null)` when the pointer is over a line.
  constructor(scene, { view = null, picked = () => {}, pointed = () => {}, label = "Molecule" } = {}) {
    super({ class: "view", "aria-label": `${label}. Drag or use the arrow keys to turn, plus and minus to zoom.` });
    this.scene = scene;
    this.picked = picked;
    this.pointed = pointed;
    this.home = view || [1, 0, 0, 0, 1, 0, 0, 0, 1];
    this.reset();
    this.listen();
  }

  reset() {
    this.turn = this.home;
    this.zoom = 1.15;
  }

  listen() {
    const { canvas } = this;
    const pointers = new Map();
    let moved = 0;
    let spread = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) {
        this.point(this.at(event));
        return;
      }
      const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      moved += Math.abs(dx) + Math.abs(dy);
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()];
        const wide = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (spread) this.zoomBy(wide / spread);
        spread = wide;
      } else {
        this.rotate(dy * 0.008, dx * 0.008);
      }
    });
    const release = (event) => {
      pointers.delete(event.pointerId);
      spread = 0;
    };
    canvas.addEventListener("pointerup", (event) => {
      release(event);
      if (moved < 4) this.picked(this.atomAt(...this.at(event)));
    });
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => this.pointed(null));
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.002));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const turns = { ArrowUp: [-TURN, 0], ArrowDown: [TURN, 0], ArrowLeft: [0, -TURN], ArrowRight: [0, TURN] };
      if (turns[event.key]) this.rotate(...turns[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoomBy(1.15);
      else if (event.key === "-") this.zoomBy(1 / 1.15);
      else if (event.key === "0") {
        this.reset();
        this.redraw();
      } else return;
      event.preventDefault();
    });
  }

  rotate(aboutX, aboutY) {
    this.turn = product(rotation(aboutX, aboutY), this.turn);
    this.redraw();
  }

  zoomBy(factor) {
    this.zoom = Math.max(0.2, Math.min(20, this.zoom * factor));
    this.redraw();
  }

  // Positions on the screen: [x, y, depth] of each atom, and a function for any point in Å.
  project(structure, width, height) {
    const { positions, count } = structure;
    const centre = [0, 1, 2].map((k) => {
      let sum = 0;
      for (let i = 0; i < count; i++) sum += positions[3 * i + k];
      return sum / count;
    });
    let extent = 1.2;
    for (let i = 0; i < count; i++) {
      extent = Math.max(extent, Math.hypot(...centre.map((c, k) => positions[3 * i + k] - c)));
    }
    if (structure.cell) {
      const corner = [0, 1, 2].map((k) => structure.cell[k] + structure.cell[k + 3] + structure.cell[k + 6]);
      extent = Math.max(extent, 0.5 * Math.hypot(...corner));
    }
    // A structure that breathes in a trajectory must not change the scale from frame to frame.
    this.extent = structure.key === this.key ? Math.max(this.extent, extent) : extent;
    this.key = structure.key;
    const scale = this.zoom * 0.5 * Math.min(width, height) / (this.extent + 0.5);
    const turn = structure.turn ? product(this.turn, structure.turn) : this.turn; // frames lie on each other
    const place = (point) => {
      const [x, y, z] = turned(turn, point.map((v, k) => v - centre[k]));
      return [width / 2 + scale * x, height / 2 - scale * y, z];
    };
    const atoms = Array.from({ length: count }, (_, i) => place([...positions.slice(3 * i, 3 * i + 3)]));
    return { atoms, place, scale };
  }

  draw(painter, width, height) {
    const scene = this.scene();
    if (!scene) return;
    const { structure, lines = [], arrows = [], highlight = null, atom = null, path = null, off = [] } = scene;
    const screen = this.project(structure, width, height);
    this.screen = { ...screen, structure, lines };
    const items = [];
    const ink = colour("ink");
    if (structure.cell) this.addCell(items, structure, screen);
    for (const [i, j] of structure.bonds) {
      this.addSegment(items, structure, screen, i, j, { stroke: colour("soft"), width: 0.15 * screen.scale });
    }
    for (const [i, j] of structure.hydrogenBonds) {
      this.addSegment(items, structure, screen, i, j, { stroke: colour("accent"), width: 2, dash: [4, 4] });
    }
    const diverging = divergingColours();
    for (const { i, j, value } of lines) {
      const look = { stroke: css(diverging(value)), width: 1 + 0.11 * screen.scale * Math.abs(value), opacity: 0.9 };
      this.addSegment(items, structure, screen, i, j, look, 0.02);
    }
    for (const [i, j] of off.slice(0, MOST_LINES)) {
      this.addSegment(items, structure, screen, i, j, { stroke: colour("mark"), width: 2.5, dash: [3, 4] }, 0.03);
    }
    if (path) {
      path.slice(1).forEach((next, k) => {
        this.addSegment(items, structure, screen, path[k], next, { stroke: colour("mark"), width: 5, dash: [7, 4] }, 0.03);
      });
    }
    if (highlight && highlight[0] !== highlight[1]) {
      this.addSegment(items, structure, screen, ...highlight, { stroke: colour("mark"), width: 4 }, 0.04);
    }
    const marked = new Set([...(highlight || []), ...(path || []), ...(atom === null ? [] : [atom])]);
    screen.atoms.forEach(([x, y, z], i) => {
      const symbol = structure.symbols[i];
      const radius = (0.16 + 0.2 * structure.radii[symbol]) * screen.scale;
      const look = { fill: ELEMENT_FILL[symbol] || OTHER_FILL, stroke: marked.has(i) ? colour("mark") : "#22252b",
        width: marked.has(i) ? 3 : 1 };
      items.push([z, () => {
        painter.disc(x, y, radius, look);
        if (radius > 7) {
          const text = structure.count > 30 ? symbol : `${symbol}${i}`;
          const fill = LIGHT.has(symbol) ? "#22252b" : "#ffffff";
          painter.text(x, y, text, { size: Math.min(13, radius * (text.length > 2 ? 0.75 : 0.95)), fill });
        }
      }]);
    });
    items.sort((a, b) => a[0] - b[0]);
    for (const [, paint] of items) paint(painter);
    for (const { atom: i, vector } of arrows) this.arrow(painter, screen, structure, i, vector);
    for (const i of structure.count > 30 ? marked : []) {
      const [x, y] = screen.atoms[i];
      painter.text(x, y - 16, `${structure.symbols[i]}${i}`, { size: 13, fill: ink, halo: colour("paper") });
    }
  }

  // A line between two atoms in halves, each to the nearest image of the other end and covered by its own atom.
  addSegment(items, structure, screen, i, j, look, nearer = 0) {
    const there = displacement(structure, i, j);
    const p = structure.positions;
    const [from, to] = [i, j].map((atom, end) => {
      const start = [...p.slice(3 * atom, 3 * atom + 3)];
      const half = start.map((x, k) => x + (end ? -0.5 : 0.5) * there[k]);
      return [screen.atoms[atom], screen.place(half)];
    });
    for (const [[x1, y1, z], [x2, y2]] of [from, to]) {
      items.push([z - 0.05 + nearer, (painter) => painter.line(x1, y1, x2, y2, look)]);
    }
  }

  addCell(items, structure, screen) {
    const edges = [0, 3, 6].map((k) => structure.cell.slice(k, k + 3));
    const corner = (a, b, c) => [0, 1, 2].map((k) => a * edges[0][k] + b * edges[1][k] + c * edges[2][k]);
    const draw = (from, to) => {
      const [[x1, y1, z1], [x2, y2, z2]] = [screen.place(from), screen.place(to)];
      items.push([Math.min(z1, z2) - 50, (painter) => painter.line(x1, y1, x2, y2, { stroke: colour("faint"), width: 1 })]);
    };
    for (const a of [0, 1]) for (const b of [0, 1]) {
      draw(corner(0, a, b), corner(1, a, b));
      draw(corner(a, 0, b), corner(a, 1, b));
      draw(corner(a, b, 0), corner(a, b, 1));
    }
  }

  arrow(painter, screen, structure, i, vector) {
    const start = [...structure.positions.slice(3 * i, 3 * i + 3)];
    const [x1, y1] = screen.atoms[i];
    const [x2, y2] = screen.place(start.map((x, k) => x + vector[k]));
    const length = Math.hypot(x2 - x1, y2 - y1);
    if (length < 3) return;
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const head = Math.min(10, length * 0.5);
    const stroke = colour("accent");
    painter.line(x1, y1, x2 - head * ux, y2 - head * uy, { stroke, width: 2.5 });
    painter.polygon([[x2, y2], [x2 - head * ux - 0.45 * head * uy, y2 - head * uy + 0.45 * head * ux],
      [x2 - head * ux + 0.45 * head * uy, y2 - head * uy - 0.45 * head * ux]], stroke);
  }

  atomAt(x, y) {
    if (!this.screen) return null;
    const { atoms, scale, structure } = this.screen;
    let found = null;
    atoms.forEach(([ax, ay, z], i) => {
      const radius = Math.max(8, (0.16 + 0.2 * structure.radii[structure.symbols[i]]) * scale);
      if (Math.hypot(ax - x, ay - y) <= radius && (found === null || z > atoms[found][2])) found = i;
    });
    return found;
  }

  point([x, y]) {
    if (!this.screen || this.atomAt(x, y) !== null) {
      this.pointed(null);
      return;
    }
    let best = [7, null];
    for (const { i, j } of this.screen.lines) {
      const [[x1, y1], [x2, y2]] = [this.screen.atoms[i], this.screen.atoms[j]];
      const along = Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) /
        ((x2 - x1) ** 2 + (y2 - y1) ** 2 || 1)));
      const away = Math.hypot(x - x1 - along * (x2 - x1), y - y1 - along * (y2 - y1));
      if (away < best[0]) best = [away, [i, j]];
    }
    this.pointed(best[1]);
  }
}
