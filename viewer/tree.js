// The modules, at the left: unfolded as they are in the drawing, with what their kernels take.
function tree() {
  const spent = new Map();
  for (const call of part.kernels)
    if (call.us)
      call.path.forEach((_, n) => {
        const path = call.path.slice(0, n + 1).join(".");
        spent.set(path, (spent.get(path) || 0) + call.us);
      });
  const list = group =>
    [...group.below.values()].map(each => {
      const open = part.open.has(each.path),
        us = spent.get(each.path),
        hasMore = each.below.size > 0,
        isOne = each.count === 1;
      const row = element(
        "div",
        {
          class: "row",
          tabindex: 0,
          "data-path": each.path,
          onclick: () => choose({ kind: "module", id: each.path }, true),
          onmouseenter: () => hover({ kind: "module", id: each.path }),
          onmouseleave: () => hover(null),
          onkeydown: event => {
            if (event.target !== row) return;
            if (event.key === "Enter") choose({ kind: "module", id: each.path }, true);
            else if (event.key === (open ? "ArrowLeft" : "ArrowRight")) {
              toggle(each.path);
              focusRow(each.path);
            } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
              const all = [...document.querySelectorAll(".tree .row")],
                next = all[all.indexOf(row) + (event.key === "ArrowDown" ? 1 : -1)];
              if (next) next.focus();
            } else return;
            event.preventDefault();
          },
        },
        element(
          "button",
          {
            class: "fold",
            tabindex: -1,
            disabled: isOne,
            "aria-label": open ? "Fold" : "Unfold",
            onclick: event => {
              event.stopPropagation();
              toggle(each.path);
            },
          },
          isOne ? "" : open ? "▾" : "▸",
        ),
        element("b", { title: each.path }, each.name),
        element("small", null, us ? time(us) : `${each.count}`),
      );
      row.style.paddingLeft = `${4 + 12 * (each.depth - 1)}px`;
      return element(
        "li",
        { role: "treeitem", "aria-expanded": String(open) },
        row,
        open && hasMore ? element("ul", { class: "tree", role: "group" }, list(each)) : null,
      );
    });
  one("nav .tree").replaceChildren(...list(part.tree));
  if (!part.tree.below.size) one("nav .tree").append(element("li", { class: "note" }, "No modules are known."));
}
const focusRow = path => {
  for (const row of document.querySelectorAll(".tree .row")) if (row.dataset.path === path) row.focus();
};
