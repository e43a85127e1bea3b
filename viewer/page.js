// Searching, and what the page begins with.
const search = one("#search"),
  list = one("#found");
let hits = [],
  at = 0;
function look() {
  const text = search.value.trim().toLowerCase(),
    has = x => x.toLowerCase().includes(text);
  wanted = text;
  table();
  hits = [];
  if (text) {
    (function walk(group) {
      for (const each of group.below.values()) {
        if (has(each.path)) hits.push([{ kind: "module", id: each.path }, each.path, "module"]);
        walk(each);
      }
    })(part.tree);
    for (const node of part.ops.nodes)
      if (
        has(
          `${node.label} ${node.sub} ${node.where} ${node.path.join(".")} ${node.attrs.map(pair => pair.join("=")).join(" ")}`,
        )
      )
        hits.push([{ kind: "ops", id: node.id }, `${node.label} ${node.sub}`, node.path.join(".")]);
    for (const call of part.kernels)
      if (has(`${call.name} ${call.schedule} ${call.path.join(".")}`))
        hits.push([{ kind: "calls", id: call.id }, call.name, call.once ? "kernel, once" : `kernel, ${time(call.us)}`]);
  }
  at = 0;
  offer();
}
function offer() {
  list.replaceChildren(
    ...hits.slice(0, 60).map(([ref, text, what], n) =>
      element(
        "li",
        {
          role: "option",
          id: `hit${n}`,
          "aria-selected": String(n === at),
          onmousedown: event => {
            event.preventDefault();
            at = n;
            take();
          },
        },
        element("span", null, cut(text, 60)),
        element("small", null, cut(what, 40)),
      ),
    ),
  );
  if (search.value && !hits.length) list.append(element("li", { class: "note" }, "Nothing is called that."));
  list.hidden = !search.value;
  search.setAttribute("aria-expanded", String(!list.hidden));
  search.setAttribute("aria-activedescendant", hits.length ? `hit${at}` : "");
  mark(
    "linked",
    hits.map(hit => hit[0]).filter(ref => ref.kind !== "module"),
  );
}
function take() {
  if (hits[at]) {
    const [ref] = hits[at];
    list.hidden = true;
    choose(ref, true);
  }
}
search.addEventListener("input", look);
search.addEventListener("keydown", event => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const count = Math.min(60, hits.length);
    if (count) {
      at = (at + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      offer();
      one(`#hit${at}`).scrollIntoView({ block: "nearest" });
    }
  } else if (event.key === "Enter") take();
});
search.addEventListener("blur", () => {
  list.hidden = true;
});

// ---- the page
function turnTo(number) {
  part = parts[number];
  chosen = null;
  wanted = search.value = "";
  one("#part").value = String(number);
  document.body.classList.toggle("plain", !part.raw.kernels);
  sheets[0].name(part.raw.kernels ? "Ops, before fusion" : "As the file has it");
  one(".sum").textContent = summary();
  table();
  memory();
  show();
  details(null);
}
function summary() {
  const sums = part.raw.totals,
    told = [],
    rate = sums && `${work(sums.flops)}, ${bytes(sums.bytes)}`;
  if (sums) told.push(`${part.calls.nodes.length} kernels`, rate);
  if (sums && sums.us) told.push(`${time(sums.us)} in their sum`, `${percent(sums.least, sums.us)} of the limit`);
  else if (sums) told.push("not timed");
  if (part.raw.whole) told.push(`a call ${time(part.raw.whole)}`);
  if (data.whole) told.push(`by the file's own code ${time(data.whole)}`);
  return told.join(" · ");
}
function show() {
  sheets[0].box.hidden = part.view === "calls";
  sheets[1].box.hidden = part.view === "ops";
  for (const button of document.querySelectorAll("#views button"))
    button.setAttribute("aria-pressed", String(button.dataset.view === part.view));
  drawAll();
  sheets.forEach(sheet => sheet.box.hidden || sheet.fit(false));
  if (chosen) choose(chosen);
}
function unfoldTo(most) {
  unfold(part, most);
  drawAll();
  sheets.forEach(sheet => sheet.box.hidden || sheet.fit(false));
  choose(chosen);
}
function turnTab(chosenTab) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", String(tab === chosenTab));
    one(`#${tab.getAttribute("aria-controls")}`).hidden = tab !== chosenTab;
  }
}
function turnTheme() {
  const root = document.documentElement,
    theme = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = theme === "dark" ? "light" : "dark";
}
one("h1").textContent = data.title;
one("#part").append(...parts.map((each, n) => element("option", { value: n }, each.name)));
one("#part").hidden = parts.length < 2;
one("#part").addEventListener("change", event => turnTo(Number(event.target.value)));
one("#all").addEventListener("click", () => unfoldTo(Infinity));
one("#none").addEventListener("click", () => unfoldTo(0));
one("#theme").addEventListener("click", turnTheme);
one("#equal").addEventListener("change", event => {
  grouped = event.target.checked;
  table();
});
for (const button of document.querySelectorAll("#views button"))
  button.addEventListener("click", () => {
    part.view = button.dataset.view;
    show();
  });
for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => turnTab(tab));
one("#about").prepend(pairs(data.about), ...data.parts.flatMap(raw => raw.notes).map(note));
addEventListener("keydown", event => {
  if (event.key === "/" && event.target !== search) {
    event.preventDefault();
    search.focus();
    search.select();
  }
  if (event.key === "Escape") {
    search.value = "";
    look();
    search.blur();
    choose(null);
  }
});
addEventListener("beforeprint", () => {
  const root = document.documentElement,
    theme = root.dataset.theme || "";
  root.dataset.theme = "light";
  sheets.forEach(sheet => sheet.box.hidden || sheet.fit(true));
  addEventListener(
    "afterprint",
    () => {
      root.dataset.theme = theme;
    },
    { once: true },
  );
});
turnTo(0);
