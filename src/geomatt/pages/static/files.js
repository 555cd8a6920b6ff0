// Files made in the browser: text, pictures, and npz archives for NumPy.

function download(name, content, type) {
  const link = element("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function downloadPng(name, canvas) {
  const copy = element("canvas", { width: canvas.width, height: canvas.height });
  const context = copy.getContext("2d");
  context.fillStyle = colour("paper");
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => download(name, blob, "image/png"));
}

function csvText(rows) {
  const cell = (value) => (/[",\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : value);
  return rows.map((row) => row.map((value) => cell(value ?? "")).join(",")).join("\n") + "\n";
}

// Buttons that save the chart or the table of a panel.
function savers(made, title) {
  const name = title.replace(/[^A-Za-z0-9α]+/g, "-").replace(/^-|-$/g, "") || "table";
  const button = (kind, onclick) => element("button", { type: "button", class: "save", title: `Save as ${kind}`,
    "aria-label": `Save ${title} as ${kind}`, onclick }, kind);
  const [charts, tables] = [made.querySelectorAll("svg.chart"), made.querySelectorAll("table")];
  return [
    ...(charts.length === 1 ? [button("SVG", () => download(`${name}.svg`, chartText(charts[0]), "image/svg+xml"))] : []),
    ...(tables.length === 1 ? [button("CSV", () => download(`${name}.csv`, csvText(tableCells(tables[0])), "text/csv"))] : []),
  ];
}

// A chart as a file of its own: colours of the theme and the style of its text written out.
function chartText(svg) {
  const copy = svg.cloneNode(true);
  copy.prepend(element("svg:rect", { width: "100%", height: "100%", fill: "var(--paper)" }));
  copy.prepend(element("svg:style", {}, "text { fill: var(--soft); font: 11px sans-serif } .axis { stroke: var(--faint) }"));
  return new XMLSerializer().serializeToString(copy).replace(/var\(--(\w+)\)/g, (_, name) => colour(name)) + "\n";
}

function tableCells(made) {
  return [...made.rows].map((row) => [...row.cells].map((cell) => cell.textContent.replaceAll("−", "-")));
}

const NPY_TYPES = new Map([[Uint8Array, "|u1"], [Uint16Array, "<u2"], [Float32Array, "<f4"], [Float64Array, "<f8"]]);

// An array in NumPy's format: magic, length of the header, header, values.
function npyBytes(values, shape) {
  const dimensions = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  let header = `{'descr': '${NPY_TYPES.get(values.constructor)}', 'fortran_order': False, 'shape': (${dimensions}), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const body = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const bytes = new Uint8Array(10 + header.length + body.length);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  bytes.set(new TextEncoder().encode(header), 10);
  bytes.set(body, 10 + header.length);
  return bytes;
}

function crc32(bytes) {
  if (!crc32.table) {
    crc32.table = Uint32Array.from({ length: 256 }, (_, n) => {
      for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
      return n;
    });
  }
  let crc = ~0;
  for (const byte of bytes) crc = (crc >>> 8) ^ crc32.table[(crc ^ byte) & 255];
  return ~crc >>> 0;
}

// A zip archive without compression of [{ name, bytes }].
function zipBlob(files) {
  const [parts, directory] = [[], []];
  let offset = 0;
  for (const { name, bytes } of files) {
    const title = new TextEncoder().encode(name);
    const fields = [[20, 2], [0, 2], [0, 2], [0, 2], [0x21, 2], [crc32(bytes), 4], [bytes.length, 4], [bytes.length, 4], [title.length, 2], [0, 2]];
    const local = packed([[0x04034b50, 4], ...fields]);
    directory.push(packed([[0x02014b50, 4], [20, 2], ...fields, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]]), title);
    parts.push(local, title, bytes);
    offset += local.length + title.length + bytes.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = packed([[0x06054b50, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [size, 4], [offset, 4], [0, 2]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

// Numbers as little-endian bytes, from [value, bytes] pairs.
function packed(fields) {
  const bytes = [];
  for (const [value, count] of fields) for (let k = 0; k < count; k++) bytes.push(Math.floor(value / 256 ** k) & 255);
  return Uint8Array.from(bytes);
}
