// Charts as SVG elements: lines, points and bars with axes.

const SERIES = ["positive", "negative", "accent", "mark", "soft"];

function niceTicks(low, high, count = 5) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) ticks.push(Math.abs(v) < 1e-9 * step ? 0 : Number(v.toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    for (const m of high / low > 300 ? [1] : [1, 2, 5]) ticks.push(m * 10 ** p);
  }
  return ticks.filter((v) => v >= low && v <= high);
}

function addYAxis(svg, ticks, py, { left, right, top, bottom }, label) {
  for (const tick of ticks) {
    svg.append(element("svg:line", { class: "axis", x1: left, x2: right, y1: py(tick), y2: py(tick) }),
      element("svg:text", { x: left - 4, y: py(tick) + 4, "text-anchor": "end" }, digits(tick)));
  }
  const middle = (top + bottom) / 2;
  svg.append(element("svg:text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, label));
}

// `series`: [{ label, x, y, kind: "line" | "points" }]; `options`: xLabel, yLabel, logY, diagonal, zero, height.
function chart(series, options = {}) {
  const [width, height] = [440, options.height || 260];
  const area = { left: 58, right: width - 10, top: 22, bottom: height - 38 };
  const svg = element("svg:svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": options.label || `${options.yLabel} against ${options.xLabel}` });
  const usable = (y) => Number.isFinite(y) && (!options.logY || y > 0);
  const shown = series.map((s) => ({ ...s, points: Array.from(s.x, (x, k) => [x, s.y[k]]).filter(([, y]) => usable(y)) }));
  const all = shown.flatMap((s) => s.points);
  if (!all.length) {
    svg.append(element("svg:text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show"));
    return svg;
  }
  const range = (axis) => {
    let [low, high] = [Infinity, -Infinity];
    for (const point of all) {
      low = Math.min(low, point[axis]);
      high = Math.max(high, point[axis]);
    }
    return [low, high];
  };
  let [x0, x1] = range(0);
  let [y0, y1] = range(1);
  if (options.diagonal) [x0, x1] = [y0, y1] = [Math.min(x0, y0), Math.max(x1, y1)];
  if (options.zero) [y0, y1] = [Math.min(0, y0), Math.max(0, y1)];
  if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
  if (options.logY) [y0, y1] = [y0 / 1.15, y1 * 1.15];
  else {
    const margin = 0.05 * (y1 - y0) || Math.abs(y0) * 0.1 || 1;
    [y0, y1] = [y0 - margin, y1 + margin];
  }
  const fy = options.logY ? Math.log : (v) => v;
  const px = (x) => area.left + ((x - x0) / (x1 - x0)) * (area.right - area.left);
  const py = (y) => area.bottom - ((fy(y) - fy(y0)) / (fy(y1) - fy(y0))) * (area.bottom - area.top);
  for (const tick of niceTicks(x0, x1)) {
    svg.append(element("svg:line", { class: "axis", x1: px(tick), x2: px(tick), y1: area.top, y2: area.bottom }),
      element("svg:text", { x: px(tick), y: area.bottom + 14, "text-anchor": "middle" }, digits(tick)));
  }
  addYAxis(svg, options.logY ? logTicks(y0, y1) : niceTicks(y0, y1), py, area, options.yLabel || "");
  svg.append(element("svg:text", { x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, options.xLabel || ""));
  if (options.diagonal) {
    svg.append(element("svg:line", { x1: px(x0), y1: py(x0), x2: px(x1), y2: py(x1), stroke: "var(--soft)", "stroke-dasharray": "3 3" }));
  }
  let legend = area.left;
  shown.forEach((s, number) => {
    const stroke = `var(--${s.colour || SERIES[number % SERIES.length]})`;
    if (s.kind === "points") {
      const radius = s.points.length > 500 ? 1.4 : 2.2;
      const dots = s.points.map(([x, y]) => `M${px(x).toFixed(1)} ${py(y).toFixed(1)}h.01`).join("");
      svg.append(element("svg:path", { d: dots, stroke, "stroke-width": 2 * radius, "stroke-linecap": "round",
        opacity: s.points.length > 200 ? 0.45 : 0.85, fill: "none" }));
    } else {
      const dash = ["", "6 3", "2 3", "8 2 2 2"][number % 4];
      const d = s.points.map(([x, y], k) => `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
      svg.append(element("svg:path", { d, stroke, "stroke-width": 1.8, fill: "none", "stroke-dasharray": dash || null }));
    }
    if (s.label) {
      const text = element("svg:text", { x: legend + 12, y: 13 }, s.label);
      svg.append(element("svg:rect", { x: legend, y: 6, width: 9, height: 5, fill: stroke }), text);
      legend += 24 + 6.2 * s.label.length;
    }
  });
  return svg;
}

// Horizontal labels, vertical bars of either sign; `choose(k)` on a click.
function bars(labels, values, { yLabel = "", choose = null, chosen = null, height = 220 } = {}) {
  const [width, left, right, bottom, top] = [440, 58, 432, height - 30, 10];
  const svg = element("svg:svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": yLabel });
  const list = Array.from(values);
  let [low, high] = [Math.min(0, ...list), Math.max(0, ...list)];
  if (low === high) high = 1;
  const py = (v) => bottom - ((v - low) / (high - low)) * (bottom - top);
  const step = (right - left) / list.length;
  addYAxis(svg, niceTicks(low, high, 4), py, { left, right, top, bottom }, yLabel);
  const stride = list.length <= 14 ? 1 : Math.ceil(list.length / 14);
  list.forEach((value, k) => {
    const [a, b] = [py(Math.max(0, value)), py(Math.min(0, value))];
    const bar = element("svg:rect", { x: left + (k + 0.1) * step, y: a, width: step * 0.8, height: Math.max(0.5, b - a),
      fill: k === chosen ? "var(--mark)" : value < 0 ? "var(--negative)" : "var(--positive)" });
    bar.append(element("svg:title", {}, `${labels[k]}: ${digits(value, 4)}`));
    if (choose) bar.addEventListener("click", () => choose(k));
    svg.append(bar);
    if (k % stride === 0) {
      svg.append(element("svg:text", { x: left + (k + 0.5) * step, y: height - 12, "text-anchor": "middle",
        style: "font-size:9px" }, labels[k]));
    }
  });
  return svg;
}
