// What the explorer says about the chosen pair, and the panels below.

const ROWS = 12; // of a ranking

function pairName(explorer, i, j) {
  return `${explorer.structure.labels[i]}–${explorer.structure.labels[j]}`;
}

// The lines of numbers under the matrices: energy, pair, and what is switched off.
function describePair(explorer) {
  const { state, structure, alpha } = explorer;
  if (!alpha) return [];
  const pair = explorer.current;
  const rest = [...describeEnergy(explorer), ...switchButtons(explorer)];
  if (!pair) {
    const hint = state.atom === null ? "Point at a cell or a line; click an atom for its row. Escape clears what is chosen." : `atom ${structure.labels[state.atom]}: lines of this atom only`;
    return [element("p", { class: "soft" }, hint), ...rest];
  }
  const [i, j] = pair;
  const at = (a, b) => digits(alpha.values[a * alpha.count + b], 4);
  const text = i === j
    ? `${structure.labels[i]} itself: α = ${at(i, i)}`
    : `${pairName(explorer, i, j)}: distance ${distance(structure, i, j).toFixed(3)} Å, α = ${at(i, j)}` +
      (at(i, j) === at(j, i) ? "" : ` (back: ${at(j, i)})`);
  return [element("div", {}, element("strong", {}, text)), ...rest];
}

function fixed(value) {
  return value.toFixed(3).replace("-", "−");
}

function makePanels(explorer) {
  const found = [rankings(explorer), setsPanel(explorer), curvePanel(explorer), pathsPanel(explorer), energyPanel(explorer), trajectoryPanel(explorer),
    scoresPanel(explorer)];
  return found.filter(Boolean);
}

function rankings(explorer) {
  const { meta, effects } = explorer;
  const pairs = [...explorer.pairStrengths()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const size = explorer.alpha.largest;
  const chooser = (list) => (k) => explorer.choose([list[k].i, list[k].j]);
  const single = effects.map(({ pairs: [[i, j]], force }) => ({ i, j, force }));
  const byAttention = pairs.slice(0, ROWS);
  const parts = [element("div", {}, element("h4", {}, "by attention"),
    ranked(explorer, ["pair", "α", "Å"], byAttention, (p) => digits(p.value * size), chooser(byAttention)))];
  if (effects.length) {
    const byEffect = [...single].sort((a, b) => b.force - a.force).slice(0, ROWS);
    parts.push(element("div", {}, element("h4", {}, "by effect on the forces"),
      ranked(explorer, ["pair", `${meta.unit}/Å`, "Å"], byEffect, (p) => digits(p.force), chooser(byEffect))));
  }
  const strength = new Map(pairs.map((p) => [`${p.i},${p.j}`, Math.abs(p.value)]));
  const agreement = effects.length > 2
    ? element("p", { class: "soft" }, `Rank correlation of |α| with the effect, over ${effects.length} pairs: ` +
      digits(rankCorrelation(single.map((e) => strength.get(`${e.i},${e.j}`)), single.map((e) => e.force)), 2))
    : element("p", { class: "soft" }, meta.effects.computed ? "No pair was switched off in this frame." : meta.effects.note);
  return panel("Strongest pairs", element("div", { class: "side" }, ...parts), agreement);
}

function ranked(explorer, header, list, value, choose) {
  const rows = list.map((p) => [pairName(explorer, p.i, p.j), value(p), distance(explorer.structure, p.i, p.j).toFixed(2)]);
  const made = table(header, rows, choose);
  const pair = explorer.state.pair && [...explorer.state.pair].sort((a, b) => a - b).join();
  made.querySelectorAll("tbody tr").forEach((row, k) => row.classList.toggle("chosen", `${list[k].i},${list[k].j}` === pair));
  return made;
}

function rankCorrelation(a, b) {
  const ranks = (values) => {
    const order = values.map((v, k) => [v, k]).sort((x, y) => x[0] - y[0]);
    const found = new Array(values.length);
    for (let k = 0; k < order.length;) {
      let end = k;
      while (end + 1 < order.length && order[end + 1][0] === order[k][0]) end++;
      for (let m = k; m <= end; m++) found[order[m][1]] = (k + end) / 2; // equal values share a rank
      k = end + 1;
    }
    return found;
  };
  const [ra, rb] = [ranks(a), ranks(b)];
  const mean = (a.length - 1) / 2;
  let [ab, aa, bb] = [0, 0, 0];
  ra.forEach((x, k) => {
    ab += (x - mean) * (rb[k] - mean);
    aa += (x - mean) ** 2;
    bb += (rb[k] - mean) ** 2;
  });
  return aa && bb ? ab / Math.sqrt(aa * bb) : NaN;
}

function curvePanel(explorer) {
  const { meta, state, structure, alpha } = explorer;
  const curves = meta.curves.lines.filter((c) => c.record === state.record);
  const [x, y] = [[], []];
  for (const { i, j } of explorer.pairStrengths()) {
    x.push(distance(structure, i, j));
    y.push(alpha.values[i * alpha.count + j]);
  }
  const stride = Math.ceil(x.length / 3000);
  const thin = (list) => list.filter((_, k) => k % stride === 0);
  const [nearest, furthest] = [x.reduce((a, b) => Math.min(a, b), Infinity), x.reduce((a, b) => Math.max(a, b), 1)];
  const inside = (_, k) => meta.curves.distance[k] >= nearest - 0.2 && meta.curves.distance[k] <= furthest + 0.2; // where pairs are
  const lines = curves.map((c) => ({ label: c.label, x: meta.curves.distance.filter(inside), y: c.alpha.filter(inside), colour: c.colour }));
  const series = [...lines, { label: "pairs of this frame", x: thin(x), y: thin(y), kind: "points", colour: lines.length ? "ink" : "positive" }];
  const text = curves.length ? "Lines: α of two atoms alone. Pairs off the line depend on their surroundings." : "Coefficients of this order depend on more than one distance.";
  return panel("α against distance", chart(series, { xLabel: "distance (Å)", yLabel: "α", zero: true }), element("p", { class: "soft" }, text));
}

function pathsPanel(explorer) {
  const { paths, state, structure, meta } = explorer;
  if (!paths) return null;
  const described = meta.paths.find((p) => p.record === state.record);
  const pair = state.pair;
  const own = pair ? paths.find((p) => p.i === pair[0] && p.j === pair[1]) || paths.find((p) => p.j === pair[0] && p.i === pair[1]) : null;
  const shown = own ? own.paths : paths.flatMap((p) => p.paths).sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, ROWS);
  const name = own ? `Largest paths ${pairName(explorer, own.i, own.j)}` : "Largest paths";
  const note = pair && !own ? "The chosen pair is not among those whose paths were stored; the largest of the frame:" : described.note;
  if (!shown.length) return panel(name, element("p", { class: "soft" }, "No paths were stored for this frame."));
  const rows = shown.map((p) => [p.atoms.map((a) => structure.labels[a]).join(" – "), digits(p.value)]);
  return panel(name, element("p", { class: "soft" }, note), table(["path", "contribution"], rows, (k) => explorer.set({ path: shown[k].atoms })));
}

function energyPanel(explorer) {
  const { structure, meta, state } = explorer;
  return panel("Energy of each atom",
    bars(structure.labels, structure.atomic, { yLabel: meta.unit, chosen: state.atom, choose: (atom) => explorer.set({ atom, pair: null }) }),
    element("p", { class: "soft" }, "What the network adds to the constant energies of the atoms."));
}

function trajectoryPanel({ meta }) {
  if (meta.frames.length < 3) return null;
  const x = meta.frames.map((_, k) => k + 1);
  const y = meta.frames.map((f) => f.energy - meta.frames[0].energy);
  return panel("Energy along the frames", chart([{ x, y }], { xLabel: "frame", yLabel: `E − E of the first (${meta.unit})` }));
}

function scoresPanel({ meta }) {
  if (!meta.scores.rows.length) return null;
  const made = table(meta.scores.header, meta.scores.rows);
  return panel("Does attention find bonds?", made, element("p", { class: "soft" }, meta.scores.note));
}
