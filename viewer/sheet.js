// A drawing that can be moved and made larger.
class Sheet {
  constructor(kind, title) {
    this.kind = kind;
    this.graph = () => (kind === "ops" ? part.ops : part.calls);
    this.canvas = drawn("g");
    this.svg = drawn(
      "svg",
      { tabindex: 0, role: "group", "aria-label": `${title}: arrow keys go along edges, Enter folds` },
      drawn(
        "defs",
        null,
        drawn(
          "marker",
          { id: `tip-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" },
          drawn("path", { d: "M0 0L8 4L0 8z", fill: "currentColor", opacity: 0.6 }),
        ),
      ),
      this.canvas,
    );
    const tool = (label, text, action) =>
      element("button", { "aria-label": label, title: label, onclick: action }, text);
    this.box = element(
      "div",
      { class: "sheet", "data-kind": kind },
      this.svg,
      (this.label = element("div", { class: "name" }, title)),
      element(
        "div",
        { class: "tools" },
        tool("Larger", "+", () => this.zoom(1.25)),
        tool("Smaller", "−", () => this.zoom(0.8)),
        tool("The whole", "⤢", () => this.fit(true)),
      ),
    );
    this.at = { x: 0, y: 0, scale: 1 };
    this.clear();
    this.svg.addEventListener(
      "wheel",
      event => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 200), event.offsetX, event.offsetY);
        else {
          this.at.x -= event.deltaX;
          this.at.y -= event.deltaY;
          this.move();
        }
      },
      { passive: false },
    );
    this.svg.addEventListener("pointerdown", event => {
      const start = { x: event.clientX - this.at.x, y: event.clientY - this.at.y };
      const go = event => {
        this.at.x = event.clientX - start.x;
        this.at.y = event.clientY - start.y;
        this.move();
      };
      const stop = () => {
        removeEventListener("pointermove", go);
        removeEventListener("pointerup", stop);
      };
      addEventListener("pointermove", go);
      addEventListener("pointerup", stop);
    });
    this.svg.addEventListener("keydown", event => this.key(event));
  }
  name(text) {
    this.label.textContent = text;
  }
  clear() {
    this.laid = { visible: new Map(), ways: [], root: { w: 1, h: 1 } };
    this.shown = new Map();
    this.canvas.replaceChildren();
  }
  move() {
    this.canvas.setAttribute("transform", `translate(${this.at.x} ${this.at.y}) scale(${this.at.scale})`);
  }
  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.03, this.at.scale * factor)),
      real = scale / this.at.scale;
    this.at = { x: x - (x - this.at.x) * real, y: y - (y - this.at.y) * real, scale };
    this.move();
  }
  fit(whole) {
    const { w, h } = this.laid.root,
      width = this.svg.clientWidth || 800,
      height = this.svg.clientHeight || 600;
    const scale = Math.min(1.2, (width - 30) / w, whole ? (height - 30) / h : Math.max(0.75, (height - 30) / h));
    this.at = { scale, x: Math.max(15, (width - w * scale) / 2), y: 34 };
    this.move();
  }
  draw() {
    this.laid = layout(this.graph(), part.open);
    const boxes = [],
      lines = [],
      items = [],
      total = part.raw.totals ? part.raw.totals.us : 0;
    this.shown = new Map();
    for (const way of this.laid.ways) {
      way.line = drawn("path", { class: "edge", d: pathOf(way), "marker-end": `url(#tip-${this.kind})` });
      lines.push(way.line);
    }
    const visit = item => {
      if (item.isOpen) {
        boxes.push(
          (item.shape = drawn(
            "g",
            { class: "box", onclick: event => this.click(event, item) },
            drawn("rect", { x: item.left, y: item.top, width: item.w, height: item.h, rx: 8 }),
            drawn("text", { x: item.left + 9, y: item.top + 18 }, `▾ ${item.label}`),
          )),
        );
        item.items.forEach(visit);
      } else {
        const label = item.node ? item.label || item.node.label : `▸ ${item.label}`,
          sub = item.node ? item.node.sub : item.sub;
        const kind = item.node ? `node ${item.node.kind}` : "node group",
          x = item.x - item.w / 2;
        const text = drawn("text", { x: item.x, y: item.y + 16, "text-anchor": "middle" }, cut(label, 30));
        const under = sub
          ? drawn("text", { class: "type", x: item.x, y: item.y + 30, "text-anchor": "middle" }, cut(sub, 38))
          : null;
        const rect = drawn("rect", { x, y: item.y, width: item.w, height: item.h, rx: 5 });
        if (item.node && item.node.us && total)
          rect.style.fill = `rgba(var(--hot), ${(0.12 + 0.75 * Math.sqrt(item.node.us / total)).toFixed(3)})`;
        const full = item.node ? `${label} ${sub} ${item.node.path.join(".")}` : `module ${item.path}, ${sub}`;
        items.push(
          (item.shape = drawn(
            "g",
            {
              class: kind,
              role: "button",
              "aria-label": full,
              "data-key": item.key,
              onclick: event => this.click(event, item),
              onmouseenter: () => hover(refOf(this.kind, item)),
              onmouseleave: () => hover(null),
            },
            rect,
            text,
            under,
            drawn("title", null, full),
          )),
        );
      }
      this.shown.set(item.key, item);
    };
    this.laid.root.items.forEach(visit);
    this.canvas.replaceChildren(...boxes, ...lines, ...items);
  }
  click(event, item) {
    event.stopPropagation();
    if (item.node || event.detail === 0) choose(refOf(this.kind, item));
    else {
      toggle(item.path);
      choose({ kind: "module", id: item.path });
    }
  }
  items(refs) {
    // what stands for things in this drawing
    const found = new Set();
    for (const ref of refs) {
      if (ref.kind === "module") {
        for (const item of this.shown.values()) if (item.path === ref.id) found.add(item);
      } else if (ref.kind === this.kind) {
        const item = this.laid.visible.get(ref.id);
        if (item) found.add(item);
      }
    }
    return found;
  }
  mark(name, refs) {
    for (const item of this.shown.values()) item.shape.classList.remove(name);
    const found = this.items(refs);
    for (const item of found) item.shape.classList.add(name);
    if (name === "chosen")
      for (const way of this.laid.ways) way.line.classList.toggle("near", found.has(way.a) || found.has(way.b));
    return found;
  }
  reveal(found) {
    const [item] = found;
    if (!item || this.box.hidden) return;
    const x = this.at.x + item.x * this.at.scale,
      y = this.at.y + item.y * this.at.scale,
      { clientWidth: w, clientHeight: h } = this.svg;
    if (x < 40 || x > w - 40 || y < 40 || y > h - 60) {
      this.at.x += w / 2 - x;
      this.at.y += h / 2 - y;
      this.move();
    }
  }
  key(event) {
    const step = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    const leaves = [...this.shown.values()].filter(item => !item.isOpen);
    const [at] = chosen ? this.items([chosen]) : [];
    if (event.key === "Enter" && chosen && chosen.kind === "module") toggle(chosen.id);
    if (event.key === "Enter" && at && !at.node && chosen.kind !== "module") toggle(at.path);
    if (!step || !leaves.length) return;
    event.preventDefault();
    if (!at) {
      choose(refOf(this.kind, leaves[0]));
      return;
    }
    const near = this.laid.ways.flatMap(way =>
      step[1] < 0 && way.b === at ? [way.a] : step[1] > 0 && way.a === at ? [way.b] : [],
    );
    const others =
      step[1] && near.length
        ? near
        : leaves.filter(item => item !== at && (item.x - at.x) * step[0] + (item.y - at.y) * step[1] > 1);
    const far = item => Math.abs(item.x - at.x) * (step[0] ? 1 : 3) + Math.abs(item.y - at.y) * (step[1] ? 1 : 3);
    const next = others.sort((a, b) => far(a) - far(b))[0];
    if (next) choose(refOf(this.kind, next));
  }
}

// One thing is chosen, or pointed at, and what belongs to it is marked everywhere.
const refOf = (kind, item) => (item.node ? { kind, id: item.node.id } : { kind: "module", id: item.path });
const sheets = [new Sheet("ops", "Ops, before fusion"), new Sheet("calls", "Kernels, after fusion")];
one(".sheets").append(...sheets.map(sheet => sheet.box));

function thing(ref) {
  return ref.kind === "ops" ? part.ops.byId.get(ref.id) : ref.kind === "calls" ? part.kernels[ref.id] : null;
}
const isWithin = (path, outer) => path === outer || path.startsWith(outer + ".");
function belonging(ref) {
  if (!ref) return [];
  if (ref.kind === "ops") return thing(ref).kernels.map(id => ({ kind: "calls", id }));
  if (ref.kind === "calls") return thing(ref).members.map(id => ({ kind: "ops", id }));
  return part.kernels
    .filter(call => isWithin(call.path.join("."), ref.id))
    .map(call => ({ kind: "calls", id: call.id }));
}
function mark(name, refs) {
  for (const row of document.querySelectorAll(`#kernels tr.${name}`)) row.classList.remove(name);
  for (const ref of refs)
    if (ref.kind === "calls") {
      const row = rows.get(ref.id);
      if (row) row.classList.add(name);
    }
  return sheets.map(sheet => sheet.mark(name, refs));
}
function hover(ref) {
  mark("linked", ref ? [ref, ...belonging(ref)] : belonging(chosen));
}
function choose(ref, open) {
  chosen = ref;
  if (ref && open) {
    const path = ref.kind === "module" ? split(ref.id).slice(0, -1) : thing(ref).path;
    path.forEach((_, n) => part.open.add(path.slice(0, n + 1).join(".")));
    drawAll();
  }
  const found = mark("chosen", ref ? [ref] : []),
    linked = mark("linked", belonging(ref));
  sheets.forEach((sheet, n) => sheet.reveal(found[n].size ? found[n] : linked[n]));
  for (const row of document.querySelectorAll(".tree .row"))
    row.classList.toggle("at", !!ref && ref.kind === "module" && row.dataset.path === ref.id);
  const row = ref && ref.kind === "calls" && rows.get(ref.id);
  if (row) row.scrollIntoView({ block: "nearest" });
  details(ref);
  one(".quiet").textContent = ref
    ? ref.kind === "module"
      ? `module ${ref.id}`
      : `${thing(ref).label} ${thing(ref).sub}`
    : "";
}
function toggle(path) {
  if (!part.open.delete(path)) part.open.add(path);
  drawAll();
  choose(chosen);
}
function drawAll() {
  sheets.forEach(sheet => {
    if (!sheet.box.hidden) sheet.draw();
    else sheet.clear();
  });
  tree();
}
