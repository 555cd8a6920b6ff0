// The page: blocks of text, tables, charts, molecules and explorers, in the order they are listed.

const BLOCKS = {
  heading: ({ text }) => element("h2", {}, text),
  prose: ({ text }) => prose(text),
  contents: ({ headings }) => element("ul", { class: "contents" }, ...headings.map((text) => element("li", {},
    element("button", { type: "button", onclick: () => [...document.querySelectorAll("h2")].find((h) => h.textContent === text).scrollIntoView() }, text)))),
  figures: ({ items }) => element("div", {}, ...items.map(({ source, caption }) =>
    element("figure", { class: "figure" }, element("img", { src: source, alt: caption }), element("figcaption", {}, caption)))),
  text: ({ text, note }) => element("p", { class: note ? "note" : "" }, text),
  links: ({ text, items }) => element("p", {}, `${text} `, ...Object.entries(items).flatMap(([name, target], k) =>
    [k ? ", " : "", element("a", { href: target }, name)])),
  command: ({ text }) => element("p", {}, element("code", {}, text)),
  facts: ({ rows }) => element("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
  table: ({ header, rows, title, note, strong = [] }) => {
    const made = table(header, rows);
    for (const k of strong) made.querySelectorAll("tbody tr")[k].classList.add("strong");
    return panel(title || "", made, ...(note ? [prose(note)] : []));
  },
  charts: ({ items }) => element("div", { class: "panels" }, ...items.map((item) =>
    panel(item.title, chart(item.series, item.options || {}), ...(item.note ? [element("p", { class: "soft" }, item.note)] : [])))),
  bars: ({ title, labels, values, yLabel }) => element("div", { class: "panels" }, panel(title, bars(labels, values, { yLabel }))),
  molecules: ({ items }) => element("div", { class: "molecules" }, ...items.map(staticMolecule)),
  explorer: (block) => {
    const place = element("div", { class: "explorer" });
    new ExplorerData(block).open().then((data) => new Explorer(block, data).mount(place)).then(() => {
      place.dataset.ready = "true";
      performance.mark("explorer-ready");
    });
    return place;
  },
};

// A molecule that can be turned, with arrows on its atoms.
function staticMolecule({ title, symbols, positions, bonds, radii, view, arrows, note }) {
  const structure = { count: symbols.length, symbols, radii, bonds, hydrogenBonds: [], cell: null, pbc: null, key: title,
    positions: Float32Array.from(positions) };
  const shown = forceArrows(Float32Array.from(arrows || []));
  const made = new MoleculeView(() => ({ structure, arrows: shown }), { view, label: title });
  return panel(title, made.canvas, element("p", { class: "soft" }, note || ""));
}

function startPage() {
  const page = JSON.parse(document.getElementById("page").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  const toggle = element("button", { type: "button", onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark") }, "Light / dark");
  document.getElementById("head").append(toggle);
  const main = document.getElementById("main");
  for (const block of page.blocks) main.append(BLOCKS[block.kind](block));
}

startPage();
