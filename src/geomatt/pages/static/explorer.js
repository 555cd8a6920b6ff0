// The attention explorer: a molecule with lines, matrices beside it, and panels below, all of one state.

const STEP_MS = 120; // between frames while playing

class Explorer {
  constructor(meta, data) {
    this.meta = meta;
    this.data = data;
    this.state = { frame: 0, record: 0, member: 0, threshold: null, pair: null, hover: null, atom: null, path: null,
      set: [], off: null }; // set: pairs collected by the reader; off: null, "pair", "set", or the label of a set of the page
    this.view = new MoleculeView(() => this.scene(), {
      view: meta.view, label: "Molecule with attention",
      picked: (atom) => this.set({ atom: atom === this.state.atom ? null : atom, pair: null, path: null }),
      pointed: (pair) => this.point(pair),
    });
    const events = { pointed: (pair) => this.point(pair), chosen: (pair, more) => this.choose(pair, more) };
    this.matrices = {
      attention: new MatrixView(() => this.matrix("attention"), { label: "Attention", ...events }),
      distance: new MatrixView(() => this.matrix("distance"), { label: "Distances", ...events }),
      bonds: new MatrixView(() => this.matrix("bonds"), { label: "Bonds", ...events }),
    };
    this.reading = element("div", { class: "reading", "aria-live": "polite" });
    this.panels = element("div", { class: "panels" });
    this.caption = element("figcaption");
  }

  mount(place) {
    this.controls = makeControls(this);
    const figure = (matrix, caption) => element("figure", {}, matrix.canvas, caption);
    const small = (text) => element("figcaption", {}, text);
    place.append(
      this.controls.root,
      element("div", { class: "columns" },
        element("div", { class: "panel" }, this.view.canvas, legend(this.meta)),
        element("div", { class: "panel" },
          element("div", { class: "matrices" },
            figure(this.matrices.attention, this.caption),
            figure(this.matrices.distance, small("distance: yellow is near")),
            figure(this.matrices.bonds, small("bonds: covalent, hydrogen"))),
          this.reading)),
      this.panels);
    document.addEventListener("theme", () => this.showPanels());
    place.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.set({ pair: null, atom: null, path: null, hover: null, off: null });
    });
    return this.set({});
  }

  // Change the state and show it.
  async set(changes) {
    Object.assign(this.state, changes);
    this.controls.showChoices();
    const { frame, record, member } = this.state;
    if ("frame" in changes || !this.structure) {
      this.structure = this.data.structure(frame);
      const { count } = this.structure;
      for (const name of ["pair", "hover"]) if (this.state[name] && Math.max(...this.state[name]) >= count) this.state[name] = null;
      if (this.state.atom >= count) this.state.atom = null;
      this.state.path = null;
      const computed = this.data.effects(frame);
      this.effects = computed.filter((e) => !e.label);
      this.sets = computed.filter((e) => e.label);
      this.state.set = this.state.set.filter((pair) => Math.max(...pair) < count);
    }
    if ("record" in changes) this.state.path = null;
    const alpha = await this.data.attention(member, record, frame);
    const paths = await this.data.paths(record, frame);
    if (frame !== this.state.frame || record !== this.state.record || member !== this.state.member) return; // overtaken
    this.alpha = alpha;
    this.paths = paths;
    this.lines = this.strongLines();
    this.show();
  }

  show() {
    this.controls.show();
    this.caption.textContent = `${this.meta.records[this.state.record].label}: ` +
      `largest |α| ${digits(this.alpha.largest)} beside the diagonal`;
    this.redraw();
    this.showReading();
    this.showPanels();
  }

  redraw() {
    this.view.redraw();
    for (const matrix of Object.values(this.matrices)) matrix.redraw();
  }

  // The pair under the pointer; only what depends on it is drawn again.
  point(pair) {
    if (String(pair) === String(this.state.hover)) return;
    this.state.hover = pair;
    this.redraw();
    this.showReading();
  }

  // `more`: the pair also goes into the reader's set, or out of it.
  choose([i, j], more = false) {
    if (more && i !== j) toggleInSet(this, [i, j]);
    if (i === j) this.set({ atom: i, pair: [i, j], path: null });
    else this.set({ pair: [i, j], atom: null, path: null });
  }

  // The pair that is shown: under the pointer, or else chosen.
  get current() {
    return this.state.hover || this.state.pair;
  }

  get threshold() {
    return this.state.threshold ?? this.usualThreshold();
  }

  // So that about one line for each atom is drawn.
  usualThreshold() {
    const sizes = Float32Array.from(this.pairStrengths(), (p) => -Math.abs(p.value)).sort();
    const last = -sizes[Math.min(sizes.length, this.structure.count) - 1] || 0;
    return Math.max(0.02, Math.floor(100 * last) / 100);
  }

  // Both directions of every pair averaged, divided by the largest coefficient.
  pairStrengths() {
    const { values, count, largest, strengths } = this.alpha;
    if (strengths) return strengths;
    const found = (this.alpha.strengths = []);
    for (let i = 0; i < count; i++) {
      for (let j = i + 1; j < count; j++) {
        found.push({ i, j, value: 0.5 * (values[i * count + j] + values[j * count + i]) / (largest || 1) });
      }
    }
    return found;
  }

  strongLines() {
    const threshold = this.threshold;
    const strong = this.pairStrengths().filter((p) => Math.abs(p.value) >= threshold && p.value !== 0);
    const own = this.state.atom === null ? strong : strong.filter((p) => p.i === this.state.atom || p.j === this.state.atom);
    return own.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_LINES);
  }

  // What switching a single pair off does, or null where it was not computed.
  effectOf(pair) {
    if (!pair) return null;
    const [i, j] = sorted(pair);
    return this.effects.find(({ pairs: [[a, b]] }) => a === i && b === j) || null;
  }

  scene() {
    if (!this.lines) return null;
    const { state, structure, lines } = this;
    const effect = switchedOff(this);
    return {
      structure, lines, highlight: this.current, atom: state.atom, path: state.path,
      off: effect ? effect.pairs : state.set, arrows: effect ? forceArrows(effect.forces) : [],
    };
  }

  matrix(kind) {
    if (!this.alpha) return null;
    const { structure, alpha, state } = this;
    const { frame, record, member } = state;
    const common = { count: structure.count, labels: structure.labels, highlight: this.current, atom: state.atom,
      off: switchedOff(this)?.pairs || state.set };
    if (kind === "attention") {
      const diverging = divergingColours();
      const at = (i, j) => alpha.values[i * alpha.count + j] / (alpha.largest || 1);
      return { ...common, key: `a${frame}-${record}-${member}`, cell: (i, j) => (i === j ? null : diverging(at(i, j))) };
    }
    if (kind === "distance") {
      const near = (i, j) => sequentialColour(1 - (distance(structure, i, j) - 0.8) / 5.2);
      return { ...common, key: `d${frame}`, cell: (i, j) => (i === j ? null : near(i, j)) };
    }
    const [ink, accent, neutral] = ["ink", "accent", "neutral"].map((name) => rgb(colour(name)));
    const marked = new Map();
    for (const [i, j] of structure.bonds) marked.set(`${i},${j}`, ink).set(`${j},${i}`, ink);
    for (const [i, j] of structure.hydrogenBonds) marked.set(`${i},${j}`, accent).set(`${j},${i}`, accent);
    return { ...common, key: `b${frame}`, cell: (i, j) => (i === j ? null : marked.get(`${i},${j}`) || neutral) };
  }

  showReading() {
    this.reading.replaceChildren(...describePair(this));
  }

  showPanels() {
    if (this.alpha && !this.playing) this.panels.replaceChildren(...makePanels(this));
  }

  play() {
    if (this.playing) {
      clearInterval(this.playing);
      this.playing = null;
      this.show();
      return;
    }
    this.playing = setInterval(() => this.set({ frame: (this.state.frame + 1) % this.meta.frames.length }), STEP_MS);
    this.controls.show();
  }
}

// Arrows in Å, the longest 1.5 Å.
function forceArrows(forces) {
  const vectors = [];
  for (let k = 0; k < forces.length; k += 3) vectors.push([...forces.slice(k, k + 3)]);
  const longest = Math.max(...vectors.map((v) => Math.hypot(...v))) || 1;
  return vectors.map((v, atom) => ({ atom, vector: v.map((x) => (1.5 * x) / longest) }));
}

function legend(meta) {
  const item = (name, text) => element("span", {}, element("i", { style: `background: var(--${name})` }), text);
  const items = [item("positive", "positive attention"), item("negative", "negative"), item("soft", "covalent bond"),
    item("accent", meta.effects.computed ? "hydrogen bond, change of force" : "hydrogen bond"),
    item("mark", meta.effects.computed ? "chosen, switched off" : "chosen")];
  return element("div", { class: "legend" }, ...items);
}
