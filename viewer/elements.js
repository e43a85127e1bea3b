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

// What is shown: parts, each of graphs whose nodes have an id, modules, and what they read.
const common = (a, b) => {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return a.slice(0, n);
};
const split = within => (within ? within.split(".") : []);
function graphOf(nodes) {
  const byId = new Map(nodes.map(node => [node.id, node])),
    readers = new Map(nodes.map(node => [node.id, []]));
  for (const node of nodes) for (const from of new Set(node.from)) if (byId.has(from)) readers.get(from).push(node.id);
  nodes.forEach((node, order) => {
    node.order = order;
  });
  return { nodes, byId, readers };
}
function partOf(raw, name) {
  const ops = raw.nodes.map(node => ({
    ...node,
    label: node.op,
    sub: node.type,
    source: node.path,
    path: split(node.within),
    kernels: [],
    from: node.in.map(pair => pair[1]).filter(Number.isInteger),
  }));
  const byId = new Map(ops.map(node => [node.id, node]));
  const calls = (raw.kernels || []).map((kernel, id) => ({
    ...kernel,
    id,
    label: kernel.name,
    sub: kernel.out.map(out => out.replace(/^.*?: /, "")).join(", "),
    members: kernel.nodes,
    kind: kernel.kind === "host" ? "host" : "call",
    from: kernel.in.map(pair => pair[0]).filter(n => n >= 0),
  }));
  for (const call of calls) {
    const members = call.members.map(id => byId.get(id));
    for (const node of members) node.kernels.push(call.id);
    call.path = members.length ? members.map(node => node.path).reduce(common) : null;
  }
  for (const call of calls) {
    // what lays arrays out is where they are read
    const reader = calls.find(other => other.path && other.from.includes(call.id));
    call.path = call.path || (reader ? reader.path : []);
  }
  const calledOften = calls.filter(call => !call.once);
  const part = {
    name,
    raw,
    ops: graphOf(ops),
    calls: graphOf(calledOften),
    kernels: calls,
    open: new Set(),
    view: "ops",
    tree: treeOf(ops),
  };
  unfold(part, 70);
  return part;
}
function treeOf(nodes) {
  const root = { path: "", name: "", below: new Map(), count: 0, depth: 0 };
  for (const node of nodes) {
    let at = root;
    at.count++;
    node.path.forEach((name, n) => {
      if (!at.below.has(name))
        at.below.set(name, {
          path: node.path.slice(0, n + 1).join("."),
          name,
          below: new Map(),
          count: 0,
          depth: n + 1,
        });
      at = at.below.get(name);
      at.count++;
    });
  }
  return root;
}
function unfold(part, most) {
  // modules, the outermost first, as long as a reader can overlook what is drawn
  part.open = new Set();
  const folded = groups => groups.reduce((sum, group) => sum + group.count - 1, 0);
  for (let level = [...part.tree.below.values()], depth = 1; level.length; depth++) {
    const below = level.flatMap(group => [...group.below.values()]).filter(group => group.count > 1);
    if (depth > 1 && part.tree.count - folded(below) > most) return;
    for (const group of level) part.open.add(group.path);
    level = below;
  }
}
const parts = [
  ...data.parts.map(raw => partOf(raw, raw.name)),
  ...Object.entries(data.declared).map(([name, nodes]) => partOf({ nodes, notes: [] }, name)),
];
let part = parts[0],
  chosen = null;
