// The numbers of an explorer: structures, attention, effects and paths by frame.

class ExplorerData {
  constructor(meta) {
    this.meta = meta;
    this.starts = [0];
    this.squares = [0];
    for (const { atoms } of meta.frames) {
      this.starts.push(this.starts.at(-1) + atoms);
      this.squares.push(this.squares.at(-1) + atoms * atoms);
    }
  }

  array(name) {
    return loadArray(name);
  }

  async open() {
    const names = ["numbers", "positions", "atomic", "bonds", "bondOffsets", "hydrogenBonds", "hydrogenOffsets", "scales",
      "turns", "effectPairs", "effectPairOffsets", "effectOffsets", "effectEnergy", "effectForces", "effectScale"];
    const arrays = await Promise.all(names.map((name) => this.array(name)));
    names.forEach((name, k) => (this[name] = arrays[k]));
    this.effectStarts = [0]; // where the forces of each set that was switched off begin
    this.meta.frames.forEach(({ atoms }, frame) => {
      for (let p = this.effectOffsets[frame]; p < this.effectOffsets[frame + 1]; p++) {
        this.effectStarts.push(this.effectStarts.at(-1) + 3 * atoms);
      }
    });
    return this;
  }

  structure(frame) {
    const { atoms: count, cell = null, pbc = null, label } = this.meta.frames[frame];
    const start = this.starts[frame];
    const symbols = Array.from(this.numbers.slice(start, start + count), (z) => this.meta.symbols[z]);
    return {
      count, cell, pbc, label, symbols, key: symbols.join(""),
      labels: symbols.map((symbol, i) => `${symbol}${i}`),
      radii: this.meta.radii,
      turn: Array.from(this.turns.subarray(9 * frame, 9 * frame + 9)),
      positions: this.positions.slice(3 * start, 3 * (start + count)),
      atomic: this.atomic.slice(start, start + count),
      bonds: pairsOf(this.bonds, this.bondOffsets, frame),
      hydrogenBonds: pairsOf(this.hydrogenBonds, this.hydrogenOffsets, frame),
    };
  }

  // Coefficients (N, N) in row-major order, and the largest |α| beside the diagonal.
  async attention(member, record, frame) {
    const stored = await this.array(`attention-${member}-${record}`);
    const { frames, records } = this.meta;
    const scale = this.scales[(member * records.length + record) * frames.length + frame];
    const count = frames[frame].atoms;
    const values = Float32Array.from(stored.subarray(this.squares[frame], this.squares[frame + 1]), (v) => v * scale);
    let largest = 0;
    for (let i = 0; i < count; i++) {
      for (let j = 0; j < count; j++) if (i !== j) largest = Math.max(largest, Math.abs(values[i * count + j]));
    }
    return { values, count, largest };
  }

  // What switching off sets of pairs does in a frame: [{ label, pairs, energy, force, forces }], without a label
  // for single pairs; empty where not computed.
  effects(frame) {
    const count = this.meta.frames[frame].atoms;
    const found = [];
    for (let e = this.effectOffsets[frame]; e < this.effectOffsets[frame + 1]; e++) {
      const stored = this.effectForces.subarray(this.effectStarts[e], this.effectStarts[e] + 3 * count);
      const forces = Float32Array.from(stored, (v) => v * this.effectScale[e]);
      found.push({ label: this.meta.effects.labels[e] || "", pairs: pairsOf(this.effectPairs, this.effectPairOffsets, e),
        energy: this.effectEnergy[e], forces, force: rootMeanSquare(forces) });
    }
    return found;
  }

  // The strongest paths of a record in a frame: [{ i, j, paths: [{ atoms, value }] }].
  async paths(record, frame) {
    const described = this.meta.paths.find((p) => p.record === record);
    if (!described) return null;
    const [pairs, atoms, values] = await Promise.all(["Pairs", "Atoms", "Values"].map((n) => this.array(`path${n}-${record}`)));
    const { length, count } = described;
    const found = [];
    for (let p = 0; p < pairs.length / 3; p++) {
      if (pairs[3 * p] !== frame) continue;
      const paths = [];
      for (let k = p * count; k < (p + 1) * count; k++) {
        if (values[k] !== 0) paths.push({ atoms: Array.from(atoms.slice(k * length, (k + 1) * length)), value: values[k] });
      }
      found.push({ i: pairs[3 * p + 1], j: pairs[3 * p + 2], paths });
    }
    return found;
  }
}

function rootMeanSquare(values) {
  let sum = 0;
  for (const v of values) sum += v * v;
  return Math.sqrt(sum / values.length);
}

function pairsOf(flat, offsets, index) {
  const found = [];
  for (let p = offsets[index]; p < offsets[index + 1]; p++) found.push([flat[2 * p], flat[2 * p + 1]]);
  return found;
}
