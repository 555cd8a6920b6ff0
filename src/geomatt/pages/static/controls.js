// Choices above the explorer: frame, stream, layer, member, threshold, and files to save.

function choice(label, options, change) {
  const select = element("select", { name: label, onchange: () => change(Number(select.value)) },
    ...options.map((text, k) => element("option", { value: k }, text)));
  return { root: element("label", {}, label, select), select };
}

function makeControls(explorer) {
  const { meta } = explorer;
  const streams = [...new Set(meta.records.map((r) => r.stream))];
  const layersOf = (stream) => meta.records.map((r, k) => ({ ...r, k })).filter((r) => r.stream === stream);
  const parts = [];

  const stream = choice("stream", streams, (k) => {
    const now = meta.records[explorer.state.record];
    const layers = layersOf(streams[k]);
    explorer.set({ record: (layers.find((r) => r.layer === now.layer) || layers[0]).k });
  });
  const layer = choice("layer", [], (k) => explorer.set({ record: k }));
  if (streams.length > 1) parts.push(stream.root);
  parts.push(layer.root);
  const member = choice("member", meta.members, (k) => explorer.set({ member: k }));
  if (meta.members.length > 1) parts.push(member.root);

  const shown = element("span");
  const threshold = element("input", { type: "range", min: 0, max: 1, step: 0.01, name: "threshold",
    oninput: () => explorer.set({ threshold: Number(threshold.value) }) });
  parts.push(element("label", {}, shown, threshold));

  const last = meta.frames.length - 1;
  const frame = element("input", { type: "range", min: 0, max: last, step: 1, name: "frame",
    oninput: () => explorer.set({ frame: Number(frame.value) }) });
  const title = element("span");
  const play = element("button", { type: "button", onclick: () => explorer.play() }, "Play");
  if (last > 0) parts.push(element("label", {}, title, frame), element("div", { class: "player" }, play));

  const saved = choice("save", ["save …", ...SAVES.map(([text]) => text)], (k) => {
    if (k > 0) SAVES[k - 1][1](explorer);
    saved.select.value = 0;
  });
  parts.push(saved.root);

  // What is chosen; shown at once, while the numbers may still be decoded.
  const showChoices = () => {
    const { state } = explorer;
    const now = meta.records[state.record];
    stream.select.value = streams.indexOf(now.stream);
    layer.select.replaceChildren(...layersOf(now.stream).map((r) => element("option", { value: r.k }, r.layerLabel)));
    layer.select.value = state.record;
    member.select.value = state.member;
    frame.value = state.frame;
    title.textContent = `frame ${state.frame + 1} of ${last + 1}: ${meta.frames[state.frame].label}`;
  };
  const show = () => {
    showChoices();
    threshold.value = explorer.threshold;
    shown.textContent = `threshold ${explorer.threshold.toFixed(2)} of the largest (${explorer.lines.length} lines)`;
    play.textContent = explorer.playing ? "Stop" : "Play";
    play.setAttribute("aria-pressed", Boolean(explorer.playing));
  };
  return { root: element("div", { class: "choices" }, ...parts), show, showChoices };
}

// What is shown, as files.
const SAVES = [
  ["picture of the molecule (PNG)", (e) => downloadPng(`${fileName(e)}.png`, e.view.canvas)],
  ["picture of the molecule (SVG)", (e) => download(`${fileName(e)}.svg`, e.view.svg(), "image/svg+xml")],
  ["attention matrix (PNG)", (e) => downloadPng(`${fileName(e)}_matrix.png`, e.matrices.attention.canvas)],
  ["attention matrix (SVG)", (e) => download(`${fileName(e)}_matrix.svg`, e.matrices.attention.svg(), "image/svg+xml")],
  ["pairs of this frame (CSV)", (e) => download(`${fileName(e)}.csv`, csvText(pairRows(e)), "text/csv")],
  ["sets switched off in this frame (CSV)", (e) => download(`${fileName(e)}_sets.csv`, csvText(setRows(e)), "text/csv")],
  ["all records of this frame (npz)", saveNpz],
];

function fileName({ meta, state }) {
  const parts = [meta.name, `frame${state.frame}`, meta.records[state.record].label];
  return parts.join("_").replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "");
}

function pairRows(explorer) {
  const { structure, alpha, meta } = explorer;
  const { count, symbols } = structure;
  const bond = new Map([...structure.bonds.map((p) => [String(p), "covalent"]), ...structure.hydrogenBonds.map((p) => [String(p), "hydrogen"])]);
  const rows = [["i", "j", "symbol_i", "symbol_j", "distance_Ang", "attention_ij", "attention_ji", "bond",
    `off_energy_${meta.unit}`, `off_force_rms_${meta.unit}_per_Ang`]];
  for (let i = 0; i < count; i++) {
    for (let j = i + 1; j < count; j++) {
      const effect = explorer.effectOf([i, j]);
      rows.push([i, j, symbols[i], symbols[j], distance(structure, i, j).toFixed(5), alpha.values[i * count + j],
        alpha.values[j * count + i], bond.get(`${i},${j}`), effect?.energy, effect?.force]);
    }
  }
  return rows;
}

function setRows({ sets, meta }) {
  const header = ["set", "pairs", `off_energy_${meta.unit}`, `off_force_rms_${meta.unit}_per_Ang`];
  return [header, ...sets.map((s) => [s.label, s.pairs.map((pair) => pair.join("-")).join(" "), s.energy, s.force])];
}

async function saveNpz(explorer) {
  const { data, meta, state, structure } = explorer;
  const { count, positions, symbols } = structure;
  const all = new Float32Array(meta.records.length * count * count);
  for (let r = 0; r < meta.records.length; r++) all.set((await data.attention(state.member, r, state.frame)).values, r * count * count);
  const numbers = data.numbers.slice(data.starts[state.frame], data.starts[state.frame] + count);
  const { effects } = explorer;
  const files = [
    ["alpha", all, [meta.records.length, count, count]],
    ["order", Uint8Array.from(meta.records, (r) => r.order), [meta.records.length]],
    ["layer", Uint8Array.from(meta.records, (r) => r.layer), [meta.records.length]],
    ["head", Uint8Array.from(meta.records, (r) => r.head), [meta.records.length]],
    ["numbers", numbers, [count]],
    ["positions", positions, [count, 3]],
    ["atomic_energies", structure.atomic, [count]],
    ["bonds", Uint16Array.from(structure.bonds.flat()), [structure.bonds.length, 2]],
    ["off_pairs", Uint16Array.from(effects.flatMap((e) => e.pairs[0])), [effects.length, 2]],
    ["off_energy", Float32Array.from(effects, (e) => e.energy), [effects.length]],
    ["off_forces", Float32Array.from(effects.flatMap((e) => [...e.forces])), [effects.length, symbols.length, 3]],
  ];
  download(`${fileName(explorer)}.npz`, zipBlob(files.map(([name, values, shape]) => ({ name: `${name}.npy`, bytes: npyBytes(values, shape) }))));
}
