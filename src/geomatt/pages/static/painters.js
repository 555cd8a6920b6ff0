// The same drawing on a canvas or as SVG text.

class CanvasPainter {
  constructor(context) {
    this.context = context;
  }

  line(x1, y1, x2, y2, { stroke, width, dash = [], opacity = 1 }) {
    const c = this.context;
    c.globalAlpha = opacity;
    c.strokeStyle = stroke;
    c.lineWidth = width;
    c.lineCap = dash.length ? "butt" : "round";
    c.setLineDash(dash);
    c.beginPath();
    c.moveTo(x1, y1);
    c.lineTo(x2, y2);
    c.stroke();
    c.globalAlpha = 1;
  }

  disc(x, y, radius, { fill, stroke, width = 1 }) {
    const c = this.context;
    c.setLineDash([]);
    c.beginPath();
    c.arc(x, y, radius, 0, 2 * Math.PI);
    c.fillStyle = fill;
    c.fill();
    c.lineWidth = width;
    c.strokeStyle = stroke;
    c.stroke();
  }

  text(x, y, content, { size, fill, halo = null, anchor = "middle", upward = false }) {
    const c = this.context;
    if (upward) {
      c.save();
      c.translate(x, y);
      c.rotate(-Math.PI / 2);
      this.text(0, 0, content, { size, fill, halo, anchor });
      c.restore();
      return;
    }
    c.font = `${size}px system-ui, sans-serif`;
    c.textAlign = anchor === "middle" ? "center" : anchor;
    c.textBaseline = "middle";
    if (halo) {
      c.lineWidth = 3;
      c.setLineDash([]);
      c.strokeStyle = halo;
      c.strokeText(content, x, y);
    }
    c.fillStyle = fill;
    c.fillText(content, x, y);
  }

  polygon(points, fill) {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], k) => (k ? c.lineTo(x, y) : c.moveTo(x, y)));
    c.closePath();
    c.fillStyle = fill;
    c.fill();
  }

  box(x, y, width, height, { fill = null, stroke = null, lineWidth = 1 }) {
    const c = this.context;
    if (fill) {
      c.fillStyle = fill;
      c.fillRect(x, y, width, height);
    }
    if (stroke) {
      c.setLineDash([]);
      c.lineWidth = lineWidth;
      c.strokeStyle = stroke;
      c.strokeRect(x, y, width, height);
    }
  }

  image(picture, x, y, width, height) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(picture, x, y, width, height);
  }
}

class SvgPainter {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.parts = [];
  }

  line(x1, y1, x2, y2, { stroke, width, dash = [], opacity = 1 }) {
    const cap = dash.length ? "butt" : "round";
    this.add("line", { x1, y1, x2, y2, stroke, "stroke-width": width, "stroke-linecap": cap,
      "stroke-dasharray": dash.join(" ") || null, opacity: opacity === 1 ? null : opacity });
  }

  disc(x, y, radius, { fill, stroke, width = 1 }) {
    this.add("circle", { cx: x, cy: y, r: radius, fill, stroke, "stroke-width": width });
  }

  text(x, y, content, { size, fill, halo = null, anchor = "middle", upward = false }) {
    const outline = halo ? { stroke: halo, "stroke-width": 3, "paint-order": "stroke" } : {};
    this.add("text", { x, y, "font-size": size, fill, "text-anchor": anchor, "dominant-baseline": "central",
      "font-family": "sans-serif", transform: upward ? `rotate(-90 ${x} ${y})` : null, ...outline }, content);
  }

  polygon(points, fill) {
    this.add("polygon", { points: points.map((p) => p.map((v) => v.toFixed(2)).join(",")).join(" "), fill });
  }

  box(x, y, width, height, { fill = null, stroke = null, lineWidth = 1 }) {
    this.add("rect", { x, y, width, height, fill: fill || "none", stroke, "stroke-width": lineWidth });
  }

  image(picture, x, y, width, height) {
    this.add("image", { x, y, width, height, href: picture.toDataURL(), style: "image-rendering:pixelated" });
  }

  add(tag, attributes, content = "") {
    const safe = (value) => String(value).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const given = Object.entries(attributes)
      .filter(([, value]) => value !== null)
      .map(([name, value]) => ` ${name}="${safe(typeof value === "number" ? Number(value.toFixed(3)) : value)}"`);
    this.parts.push(`<${tag}${given.join("")}>${safe(content)}</${tag}>`);
  }

  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${this.width} ${this.height}" ` +
      `width="${this.width}" height="${this.height}">${this.parts.join("\n")}</svg>\n`;
  }
}

// A canvas that keeps the resolution of the screen; classes that extend it have `draw(painter, width, height)`.
class Surface {
  constructor(attributes) {
    this.canvas = element("canvas", { tabindex: 0, role: "img", ...attributes });
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    document.addEventListener("theme", () => this.redraw());
  }

  get size() {
    return [this.canvas.clientWidth, this.canvas.clientHeight];
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const [width, height] = this.size;
      if (!width) return;
      const scale = window.devicePixelRatio || 1;
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      const context = this.canvas.getContext("2d");
      context.scale(scale, scale);
      context.clearRect(0, 0, width, height);
      this.draw(new CanvasPainter(context), width, height);
    });
  }

  svg() {
    const [width, height] = this.size;
    const painter = new SvgPainter(width, height);
    painter.box(0, 0, width, height, { fill: colour("paper") });
    this.draw(painter, width, height);
    return painter.toString();
  }

  // Position of the pointer in the units of the drawing.
  at(event) {
    const place = this.canvas.getBoundingClientRect();
    return [event.clientX - place.left, event.clientY - place.top];
  }
}
