// Colours of elements and of numbers.

const ELEMENT_FILL = {
  H: "#f4f4f2", C: "#4b5058", N: "#3f6fd0", O: "#d0413f", F: "#6fbf73", P: "#e0892f", S: "#d9b82f", Cl: "#3fae5a",
  Br: "#9c4a2b", I: "#7c3f98", Si: "#c9a37a",
};
const OTHER_FILL = "#9a78b8";
const LIGHT = new Set(["H", "F", "S", "Si"]);
// Seven colours of the map "cividis", dark to light.
const CIVIDIS = ["#00224e", "#2a3f6d", "#575c6d", "#7d7c78", "#a59c74", "#d2c060", "#fee838"].map(rgb);

function rgb(hex) {
  return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
}

function mix(a, b, t) {
  return a.map((x, k) => Math.round(x + (b[k] - x) * t));
}

// Of a value from −1 to 1: neutral at zero. Returns a function, because the theme is read once.
function divergingColours() {
  const [low, middle, high] = ["negative", "neutral", "positive"].map((name) => rgb(colour(name)));
  return (value) => mix(middle, value < 0 ? low : high, Math.min(1, Math.abs(value)) ** 0.75);
}

// Of a value from 0 to 1.
function sequentialColour(value) {
  const place = Math.max(0, Math.min(1, value)) * (CIVIDIS.length - 1);
  const below = Math.min(CIVIDIS.length - 2, Math.floor(place));
  return mix(CIVIDIS[below], CIVIDIS[below + 1], place - below);
}

function css(parts) {
  return `rgb(${parts.join(",")})`;
}
