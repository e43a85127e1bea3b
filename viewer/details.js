// What is known of the chosen thing, at the right.
const link = (ref, text) =>
  element(
    "a",
    {
      tabindex: 0,
      role: "link",
      onclick: () => choose(ref, true),
      onmouseenter: () => hover(ref),
      onmouseleave: () => hover(null),
      onkeydown: event => {
        if (event.key === "Enter") choose(ref, true);
      },
    },
    text,
  );
const pairs = list =>
  element(
    "dl",
    null,
    list
      .filter(pair => pair[1] && pair[1].length !== 0)
      .flatMap(([name, value]) => [element("dt", null, name), element("dd", null, ...[value].flat())]),
  );
function folded(title, number) {
  const text = element("pre", null),
    box = element(
      "details",
      {
        ontoggle: async () => {
          if (box.open && !text.textContent) text.textContent = (await texts())[number];
        },
      },
      element("summary", null, title),
      text,
    );
  return number >= 0 ? box : null;
}
const joined = (items, between = ", ") => items.flatMap((item, n) => (n ? [between, item] : [item]));
const note = text => element("p", { class: "note" }, text);
const title = text => element("h3", null, text);
const toModule = path => (path.length ? link({ kind: "module", id: path.join(".") }, path.join(".")) : "");
const toOp = id => link({ kind: "ops", id }, part.ops.byId.get(id).label);
const toKernel = call => link({ kind: "calls", id: call.id }, `${call.name} (${call.once ? "once" : time(call.us)})`);
function details(ref) {
  const of = !ref
    ? ofPart()
    : ref.kind === "ops"
      ? ofOp(thing(ref))
      : ref.kind === "calls"
        ? ofKernel(thing(ref))
        : ofModule(ref);
  one("aside").replaceChildren(...of.filter(Boolean));
}
function ofPart() {
  const keys = [
    ["/", "search"],
    ["arrows", "go along edges"],
    ["Enter", "fold, unfold"],
    ["Esc", "let go"],
    ["wheel", "move; with Ctrl, zoom"],
  ];
  return [element("h2", null, part.name), pairs(data.about), title("Keys"), pairs(keys), ...part.raw.notes.map(note)];
}
function ofOp(node) {
  const operand = ([name, value]) => {
    const maker = Number.isInteger(value) ? part.ops.byId.get(value) : undefined;
    return [name || "operand", maker ? link({ kind: "ops", id: value }, `${maker.label} ${maker.sub}`) : String(value)];
  };
  const isCompiled = part.raw.kernels && node.kind !== "input" && node.kind !== "result";
  const kernels = node.kernels.map(id => toKernel(part.kernels[id]));
  return [
    element("h2", null, node.label),
    pairs([
      ["gives", node.type],
      ["module", toModule(node.path)],
      ["line", node.where],
      [
        "kernels",
        kernels.length || !isCompiled
          ? joined(kernels)
          : "none of its own: a view, computed with an equal op, or folded into others",
      ],
      ["read by", joined(part.ops.readers.get(node.id).map(toOp))],
    ]),
    node.in.length && title("Operands"),
    pairs(node.in.map(operand)),
    node.attrs.length && title("Attributes"),
    pairs(node.attrs),
    ...(node.source ? became(node) : []),
  ];
}
function became(node) {
  // of a file's node: what was recorded of it
  const found = parts.flatMap(each =>
    each.raw.kernels ? each.ops.nodes.filter(op => isWithin(op.within, node.source)).map(op => [each, op]) : [],
  );
  const go = (each, op) => () => {
    turnTo(parts.indexOf(each));
    choose({ kind: "ops", id: op.id }, true);
  };
  const links = found
    .slice(0, 100)
    .map(([each, op]) => element("div", null, element("button", { onclick: go(each, op) }, `${op.label} ${op.sub}`)));
  return [
    title("Became"),
    ...links,
    !found.length && note("nothing that was recorded: it was known, or is numbers of Python's"),
  ];
}
function ofKernel(call) {
  const rate = call.us
    ? `${digits(call.flops / call.us / 1e3)} GFLOP/s, ${digits(call.bytes / call.us / 1e3)} GB/s`
    : "";
  const maker = ([from, array]) => element("div", null, from >= 0 ? link({ kind: "calls", id: from }, array) : array);
  return [
    element("h2", null, call.name),
    pairs([
      ["time", call.once ? "when weights change" : time(call.us)],
      ["of all", call.us && percent(call.us, part.raw.totals.us)],
      ["at the least", call.least && time(call.least)],
      ["of the limit", call.us && percent(call.least, call.us)],
      ["computes", call.flops && work(call.flops)],
      ["moves", call.bytes && bytes(call.bytes)],
      ["rate", call.bytes && rate],
      ["module", toModule(call.path)],
      ["line", call.where],
      ["ops", call.members.length ? joined(call.members.map(toOp)) : "none: it lays arrays out"],
      ["schedule", call.schedule],
    ]),
    title("Reads"),
    ...call.in.map(maker),
    title("Writes"),
    ...call.out.map(array => element("div", null, array)),
    folded("Kernel", call.kernel),
    folded("Code", call.code),
  ];
}
function ofModule(ref) {
  const inside = part.ops.nodes.filter(node => isWithin(node.path.join("."), ref.id)),
    calls = belonging(ref).map(thing);
  const us = calls.reduce((sum, call) => sum + (call.us || 0), 0);
  return [
    element("h2", null, ref.id),
    pairs([
      ["ops", String(inside.length)],
      ["kernels", String(calls.length)],
      ["time", us && time(us)],
      ["of all", us && percent(us, part.raw.totals.us)],
    ]),
    calls.length && title("Kernels"),
    ...calls.map(call => element("div", null, toKernel(call))),
  ];
}
