// A matrix over pairs of atoms as an image with labels; cells can be pointed at, clicked and walked by keys.

class MatrixView extends Surface {
  // `content()` returns { count, labels, key, cell(i, j) → [r, g, b] or null, highlight, atom, off };
  // the image is made again when `key` changes.
  constructor(content, { label, pointed, chosen }) {
    super({ class: "matrix", "aria-label": `${label}. Arrow keys walk through the cells.` });
    this.content = content;
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => pointed(this.cellAt(...this.at(event))));
    canvas.addEventListener("pointerleave", () => pointed(null));
    canvas.addEventListener("click", (event) => {
      const cell = this.cellAt(...this.at(event));
      if (cell) chosen(cell, event.shiftKey);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const { count, highlight } = this.content();
      const [i, j] = highlight || [0, 0];
      chosen([(i + step[0] + count) % count, (j + step[1] + count) % count]);
    });
  }

  // Where the cells begin, and how large they are.
  frame(width, count) {
    const margin = count <= 40 ? 24 : 30;
    return [margin, (width - margin - 1) / count];
  }

  draw(painter, width) {
    const content = this.content();
    if (!content) return;
    const { count, labels, highlight, atom, off } = content;
    const [start, size] = this.frame(width, count);
    painter.image(this.picture(content), start, start, size * count, size * count);
    const stride = Math.max(Math.ceil(count / 36), Math.ceil(9 / size)); // labels do not touch
    const text = { size: Math.max(7, Math.min(10, size * stride * 0.8)), fill: colour("soft") };
    for (let i = 0; i < count; i += stride) {
      const middle = start + (i + 0.5) * size;
      painter.text(start - 3, middle, labels[i], { ...text, anchor: "end" });
      if (size * stride > 20) painter.text(middle, start - 8, labels[i], text);
      else painter.text(middle, start - 3, labels[i], { ...text, anchor: "start", upward: true });
    }
    const look = { stroke: colour("mark"), lineWidth: 2 };
    for (const [i, j] of size > 3 ? off : []) { // crossed out
      for (const [a, b] of [[i, j], [j, i]]) {
        const [x, y] = [start + b * size, start + a * size];
        const width = size > 12 ? 1.5 : 0.8;
        for (const line of [{ stroke: colour("paper"), width: 3 * width }, { stroke: colour("ink"), width }]) {
          painter.line(x + 0.25 * size, y + 0.25 * size, x + 0.75 * size, y + 0.75 * size, line);
          painter.line(x + 0.75 * size, y + 0.25 * size, x + 0.25 * size, y + 0.75 * size, line);
        }
      }
    }
    if (atom !== null) painter.box(start, start + atom * size, size * count, size, look);
    if (highlight) {
      const [i, j] = highlight;
      painter.box(start + j * size, start + i * size, size, size, { ...look, lineWidth: 3 });
    }
  }

  picture({ count, key, cell }) {
    const full = `${key}|${document.documentElement.dataset.theme}`;
    if (this.made !== full) {
      this.image = element("canvas", { width: count, height: count });
      const context = this.image.getContext("2d");
      const pixels = context.createImageData(count, count);
      for (let i = 0; i < count; i++) {
        for (let j = 0; j < count; j++) {
          const parts = cell(i, j);
          if (parts) pixels.data.set([...parts, 255], 4 * (i * count + j));
        }
      }
      context.putImageData(pixels, 0, 0);
      this.made = full;
    }
    return this.image;
  }

  cellAt(x, y) {
    const content = this.content();
    if (!content) return null;
    const [start, size] = this.frame(this.size[0], content.count);
    const [i, j] = [Math.floor((y - start) / size), Math.floor((x - start) / size)];
    return i >= 0 && j >= 0 && i < content.count && j < content.count ? [i, j] : null;
  }
}
