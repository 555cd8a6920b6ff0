// Building elements. Text from files is only ever set as text, never as HTML.

function element(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A table from a header and rows of strings; `choose` makes its rows selectable.
function table(header, rows, choose = null) {
  const body = rows.map((cells, number) => {
    const row = element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
    if (choose) {
      row.tabIndex = 0;
      row.addEventListener("click", () => choose(number));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter") choose(number);
      });
    }
    return row;
  });
  return element("div", { class: "scroll" },
    element("table", {},
      element("thead", {}, element("tr", {}, ...header.map((cell) => element("th", { scope: "col" }, cell)))),
      element("tbody", {}, ...body)));
}

// A little Markdown: paragraphs, lists with "- ", **bold** and `code`.
function prose(text) {
  const inline = (line) => line.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (/^`.+`$/.test(part)) return element("code", {}, part.slice(1, -1));
    return /^\*\*.+\*\*$/.test(part) ? element("strong", {}, part.slice(2, -2)) : part;
  });
  const parts = text.split(/\n\s*\n/).flatMap((paragraph) => {
    const items = paragraph.split(/^- /m).slice(1);
    const before = paragraph.split(/^- /m)[0].trim();
    return [...(before ? [element("p", {}, ...inline(before))] : []),
      ...(items.length ? [element("ul", {}, ...items.map((item) => element("li", {}, ...inline(item.trim()))))] : [])];
  });
  return element("div", { class: "prose" }, ...parts);
}

function panel(title, ...content) {
  const made = element("section", { class: "panel" }, ...content);
  made.prepend(element("h3", {}, title, ...savers(made, title)));
  return made;
}

// A few significant digits, with a real minus sign.
function digits(value, count = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(count - 1) : String(Number(value.toPrecision(count)));
  return text.replaceAll("-", "−");
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("theme"));
}
