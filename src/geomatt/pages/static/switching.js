// Pairs that are switched off: one, a set collected by the reader, or a set of the page.

function sorted([i, j]) {
  return i < j ? [i, j] : [j, i];
}

// What is off now: { label, pairs, energy, force, forces, added }; null if nothing is, or it was not computed.
function switchedOff(explorer) {
  const { off, pair, set } = explorer.state;
  if (off === null) return null;
  if (off === "pair") {
    const found = pair && explorer.effectOf(pair);
    return found && { ...found, label: pairName(explorer, ...found.pairs[0]) };
  }
  if (off === "set") return set.length ? together(explorer, set) : null;
  return explorer.sets.find((s) => s.label === off) || null;
}

// A set of pairs off together: as computed, or else the sum of what each pair does alone (`added`).
function together(explorer, pairs) {
  const same = (other) => other.length === pairs.length && pairs.every(([i, j]) => other.some(([a, b]) => a === i && b === j));
  const label = `${pairs.length} pairs`;
  const computed = explorer.sets.find((s) => same(s.pairs));
  if (computed) return { ...computed, label };
  const single = pairs.map((pair) => explorer.effectOf(pair));
  if (single.some((e) => !e)) return null;
  const forces = new Float32Array(3 * explorer.structure.count);
  for (const e of single) e.forces.forEach((v, k) => (forces[k] += v));
  const energy = single.reduce((sum, e) => sum + e.energy, 0);
  return { label, pairs, energy, forces, force: rootMeanSquare(forces), added: pairs.length > 1 };
}

// A pair goes into the reader's set, or out of it; nothing is off afterwards.
function toggleInSet({ state }, pair) {
  const others = state.set.filter((other) => String(other) !== String(sorted(pair)));
  state.set = others.length < state.set.length ? others : [...others, sorted(pair)];
  state.off = null;
}

function describeEnergy(explorer) {
  const { meta, state } = explorer;
  const energy = meta.frames[state.frame].energy;
  const off = switchedOff(explorer);
  const total = element("div", { class: "energy" }, `energy ${fixed(energy)} ${meta.unit}`);
  if (!off) return [total];
  total.append(` → `, element("strong", {}, `${fixed(energy + off.energy)} ${meta.unit}`),
    ` with ${off.label} off (change ${digits(off.energy)} ${meta.unit}; forces change by ` +
    `${digits(off.force)} ${meta.unit}/Å root mean square, arrows)`);
  if (!off.added) return [total];
  const text = state.set.map((pair) => pair.join("-")).join(",");
  return [total, element("p", { class: "soft" }, "An estimate: the sum of what each pair does alone. For the exact change make the page with ",
    element("code", {}, `--off ${text}`), ".")];
}

function switchButtons(explorer) {
  const { meta, state, structure } = explorer;
  const button = (text, pressed, onclick) => element("button", { type: "button", "aria-pressed": pressed, onclick }, text);
  const toggle = (what) => explorer.set({ off: state.off === what ? null : what });
  const chosen = state.pair && state.pair[0] !== state.pair[1] ? sorted(state.pair) : null;
  if (!meta.effects.computed) return chosen ? [element("p", { class: "soft" }, meta.effects.note)] : [];
  if (!explorer.effects.length && !explorer.sets.length) {
    const frames = meta.effects.frames.map((f) => f + 1).join(", ");
    return chosen ? [element("p", { class: "soft" }, `No pair was switched off in this frame; in frame ${frames}.`)] : [];
  }
  const parts = [];
  if (chosen && explorer.effectOf(chosen)) {
    parts.push(button(state.off === "pair" ? "Switch the pair on again" : "Switch this pair off", state.off === "pair", () => toggle("pair")));
    const inside = state.set.some((pair) => String(pair) === String(chosen));
    parts.push(button(inside ? "Take it out of the set" : "Add it to a set", null, () => {
      toggleInSet(explorer, chosen);
      explorer.set({});
    }));
  } else if (chosen) {
    parts.push(element("span", { class: "soft" }, "This pair was not switched off: only the strongest were."));
  }
  if (state.set.length) {
    const names = state.set.map(([i, j]) => `${structure.labels[i]}–${structure.labels[j]}`).join(", ");
    parts.push(button(state.off === "set" ? "Switch the set on again" : `Switch the set off (${state.set.length})`, state.off === "set",
      () => toggle("set")),
    button("Empty the set", null, () => explorer.set({ set: [], off: state.off === "set" ? null : state.off })),
    element("span", { class: "soft" }, `set: ${names}`));
  }
  if (state.off !== null && state.off !== "pair" && state.off !== "set") {
    parts.push(button("Switch all on again", null, () => explorer.set({ off: null })));
  }
  return parts.length ? [element("div", { class: "buttons" }, ...parts)] : [];
}

// Sets of the page, with their effect; a row switches its set off.
function setsPanel(explorer) {
  const { meta, sets, state } = explorer;
  if (!sets.length) return null;
  const rows = sets.map((s) => [s.label, String(s.pairs.length), digits(s.energy), digits(s.force)]);
  const made = table(["off together", "pairs", `ΔE (${meta.unit})`, `ΔF (${meta.unit}/Å)`], rows,
    (k) => explorer.set({ off: state.off === sets[k].label ? null : sets[k].label }));
  made.classList.add("tall");
  made.querySelectorAll("tbody tr").forEach((row, k) => row.classList.toggle("chosen", sets[k].label === state.off));
  return panel("Sets of pairs switched off", made,
    element("p", { class: "soft" }, `Choose a row to see it. ΔF: root mean square over all components. ${meta.effects.note}`));
}
