// Typed arrays in the page: zlib-compressed, base64-encoded script elements, decoded at first use.

const ARRAY_TYPES = {
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int16: Int16Array, float32: Float32Array,
};
const decodedArrays = new Map();

function loadArray(name) {
  if (!decodedArrays.has(name)) decodedArrays.set(name, decodeArray(name));
  return decodedArrays.get(name);
}

async function decodeArray(name) {
  const source = document.getElementById(`array:${name}`);
  const text = atob(source.textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) packed[k] = text.charCodeAt(k);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  source.remove(); // the text is not needed any more
  return new ARRAY_TYPES[source.dataset.type](bytes);
}
