// Elements and numbers.  Texts of a model are text nodes, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const one = (selector, root = document) => root.querySelector(selector);

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  made.append(...children.flat().filter(child => child !== null && child !== undefined));
  return made;
}
const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const digits = x => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));
function scaled(x, units) {
  let at = 0;
  while (x >= 1000 && at < units.length - 1) {
    x /= 1000;
    at++;
  }
  return `${at ? digits(x) : Number.isInteger(x) ? x : digits(x)} ${units[at]}`;
}
const time = us => (us === undefined || us === null ? "–" : scaled(us, ["µs", "ms", "s"]));
const bytes = n => (n === undefined ? "–" : scaled(n, ["B", "kB", "MB", "GB"]));
const work = n => (n === undefined ? "–" : scaled(n, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]));
const percent = (a, b) => (a && b ? `${((100 * a) / b).toFixed(a / b < 0.1 ? 1 : 0)}%` : "–");
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
let inflated = null;
function texts() {
  // of kernels and their code: packed, until one is asked for
  const packed = Uint8Array.from(atob(data.texts), c => c.charCodeAt(0));
  const stream = () => new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return (inflated = inflated || new Response(stream()).text().then(JSON.parse));
}
