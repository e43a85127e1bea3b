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
