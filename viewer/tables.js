// The kernels in a table, and memory over the steps.
let rows = new Map(),
  sorting = { by: "us", down: true },
  grouped = false,
  wanted = "";
const columns = [
  ["name", "kernel", call => call.name],
  ["path", "module", call => call.path.join(".")],
  ["calls", "calls", call => call.calls],
  [
    "us",
    "time",
    call => call.us,
    (call, sum, most) => {
      const bar = element("span", { class: "bar" });
      bar.style.width = `${call.us ? (60 * call.us) / most : 0}px`;
      return [bar, call.once ? "once" : time(call.us)];
    },
  ],
  ["share", "of all", call => call.us, (call, sum) => percent(call.us, sum)],
  [
    "limit",
    "of the limit",
    call => (call.us && call.least ? call.least / call.us : undefined),
    call => percent(call.least, call.us),
  ],
  ["flops", "FLOPs", call => call.flops, call => (call.flops ? work(call.flops) : "–")],
  [
    "rate",
    "GFLOP/s",
    call => (call.us && call.flops ? call.flops / call.us / 1e3 : undefined),
    call => (call.us && call.flops ? digits(call.flops / call.us / 1e3) : "–"),
  ],
  ["bytes", "bytes", call => call.bytes, call => bytes(call.bytes)],
  ["schedule", "schedule", call => call.schedule],
];
function table() {
  let list = part.kernels.map(call => ({ ...call, calls: 1, ids: [call.id] }));
  if (grouped) {
    const by = new Map();
    for (const call of list) {
      const known = by.get(call.same);
      if (!known) {
        by.set(call.same, call);
        continue;
      }
      known.calls++;
      known.ids.push(call.id);
      known.path = common(known.path, call.path);
      for (const key of ["us", "least", "flops", "bytes"])
        if (call[key] !== undefined) known[key] = (known[key] || 0) + call[key];
    }
    list = [...by.values()];
  }
  const column = columns.find(each => each[0] === sorting.by),
    value = call => {
      const x = column[2](call);
      return x === undefined ? (sorting.down ? -Infinity : Infinity) : x;
    };
  list = list.filter(
    call => !wanted || `${call.name} ${call.path.join(".")} ${call.schedule}`.toLowerCase().includes(wanted),
  );
  list.sort(
    (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (sorting.down ? -1 : 1) || a.id - b.id,
  );
  const sum = part.raw.totals ? part.raw.totals.us : 0,
    most = Math.max(...list.map(call => call.us || 0), 1e-9);
  rows = new Map();
  const body = list.map(call => {
    const ref = { kind: "calls", id: call.id };
    const row = element(
      "tr",
      {
        tabindex: 0,
        onclick: () => choose(ref, true),
        onmouseenter: () => hover(ref),
        onmouseleave: () => hover(null),
        onkeydown: event => {
          if (event.key === "Enter") choose(ref, true);
          const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
          if (next) {
            event.preventDefault();
            next.focus();
          }
        },
      },
      columns.map(([key, , plain, shown]) =>
        element(
          "td",
          {
            class: ["name", "path", "schedule"].includes(key) ? "text" : null,
            title: key === "schedule" ? call.schedule : null,
          },
          shown ? shown(call, sum, most) : String(plain(call)),
        ),
      ),
    );
    for (const id of call.ids) rows.set(id, row);
    return row;
  });
  const head = columns.map(([key, name]) =>
    element(
      "th",
      {
        class: key === "schedule" ? "text" : null,
        "aria-sort": sorting.by === key ? (sorting.down ? "descending" : "ascending") : "none",
      },
      element(
        "button",
        {
          onclick: () => {
            sorting = {
              by: key,
              down: sorting.by === key ? !sorting.down : !["name", "path", "schedule"].includes(key),
            };
            table();
          },
        },
        name + (sorting.by === key ? (sorting.down ? " ▾" : " ▴") : ""),
      ),
    ),
  );
  one("#kernels").replaceChildren(
    part.raw.kernels
      ? element("table", null, element("thead", null, element("tr", null, head)), element("tbody", null, body))
      : element("p", { class: "note" }, "This graph is as the file has it: no kernels were made of it."),
  );
  mark("chosen", chosen ? [chosen] : []);
}
function memory() {
  const about = part.raw.memory,
    pane = one("#memory");
  if (!about) {
    pane.replaceChildren(element("p", { class: "note" }, "Nothing was compiled of this graph."));
    return;
  }
  const most = Math.max(1, ...about.use),
    w = Math.max(1, Math.min(14, 900 / Math.max(1, about.use.length)));
  const bars = about.use.map((n, step) =>
    drawn(
      "rect",
      {
        class: step === about.peak[0] ? "peak" : null,
        x: step * w,
        y: 90 - (88 * n) / most,
        width: Math.max(0.5, w - (w > 3 ? 1 : 0)),
        height: (88 * n) / most,
      },
      drawn("title", null, `step ${step + 1}: ${bytes(n)}`),
    ),
  );
  pane.replaceChildren(
    pairs([
      ["arena", bytes(about.arena)],
      ["inputs", bytes(about.inputs)],
      ["packed weights", bytes(about.packed)],
      ["results", bytes(about.results)],
      ["constants", bytes(about.constants)],
      [
        "fullest",
        about.use.length
          ? `${bytes(most)} at step ${about.peak[0] + 1} of ${about.use.length}, ${about.peak[1]} ${about.peak[2]}`
          : "–",
      ],
    ]),
    drawn(
      "svg",
      {
        class: "memory",
        width: about.use.length * w,
        height: 92,
        role: "img",
        "aria-label": "Bytes of the arena in use at each step",
      },
      bars,
    ),
    element("h3", null, "In use there"),
    element(
      "table",
      null,
      element(
        "tbody",
        null,
        about.held.map(held =>
          element(
            "tr",
            null,
            element("td", null, `%${held.name}`),
            element("td", null, held.type),
            element("td", null, bytes(held.bytes)),
            element("td", null, `steps ${held.first + 1} to ${held.last + 1}`),
            element("td", { class: "text" }, held.line),
          ),
        ),
      ),
    ),
  );
}
