"""Gives tensors their histories: the node of a call, what it saves, and how a view hangs on its base."""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import Any

import numpy as np

from ..ir.op import Op
from . import modes
from .graph import Light, Node, Port, Saving
from .packing import packed
from .places import USERS, here
from .plan import NOTHING, OPERAND, REST, Plan
from .storage import Storage
from .tensor import Tensor

new = object.__new__


def storage_of(x: Tensor) -> Storage:
    found = x._storage
    if found is None:
        found = x._storage = Storage()
    return found


def record(plan: Plan, operands: tuple, outputs: tuple, arrays: tuple) -> None:
    """Give the outputs of a differentiable op their history.  `arrays` holds hidden outputs as well."""
    if modes.CHANGED and (modes.local.anomaly or modes.local.packing is not None):
        n = node_of(plan, operands, outputs, arrays)
    else:
        note = plan.note
        if note is None:
            note = plan.note = writing(plan)
        n = note(plan, operands, outputs, arrays)
    if n is None:
        return
    if len(outputs) == 1:
        outputs[0]._edge = n  # an edge to a node itself leads to its first output
    else:
        for k, out in enumerate(outputs):
            if out._meta.dtype.inexact:
                out._edge = Port(n, k)


def node_of(
    plan: Plan, operands: tuple, outputs: tuple, arrays: tuple | None, replaced: np.ndarray | None = None
) -> Node | None:
    """The node of one call, holding what its gradients look at.  None where nothing wants a gradient.

    For an op that is about to be written over its first operand, `replaced` is a copy of that operand's value
    and `arrays` is None: what is saved of the outputs is filled in after the write.
    """
    if plan.flows is None:
        plan.plan_gradients()
    edges = tuple(
        [
            None if x is None or not f else x._edge if x._view is None else x._node
            for x, f in zip(operands, plan.floats)
        ]
    )
    needs = tuple(map(bool, edges))
    recipe = plan.recipes.get(needs)
    if recipe is None:
        recipe = plan.recipe(needs)
    if recipe is False:
        return None
    if not recipe:
        if modes.CHANGED and modes.local.anomaly:
            n = new(Saving)
            n.plan, n.edges = plan, edges
            n.saved, n.guards, n.place = (), (), here()
            return n
        n = new(Light)
        n.plan, n.edges = plan, edges
        return n
    saved: list[Any] = []
    guards: list[Any] = []
    for what, at in recipe:
        if what == OPERAND:
            x = operands[at]
            if x is None:
                saved.append(None)
            elif replaced is not None and not at:
                saved.append(replaced)
                guards += (Storage(), 0)  # nobody else has it
            else:
                store = x._storage
                if store is None:
                    store = x._storage = Storage()
                saved.append(x._data)
                guards += (store, store.version)
        elif what == NOTHING:
            saved.append(None)
        elif what == REST:
            rest = operands[at:]
            saved.append(tuple([None if x is None else x._data for x in rest]))
            for x in rest:
                if x is not None:
                    guards += (storage_of(x), storage_of(x).version)
        elif arrays is None:  # of an output, which is still to be written
            saved.append(None)
        else:
            saved.append(arrays[at])
            if at < len(outputs):
                store = outputs[at]._storage
                if store is None:
                    store = outputs[at]._storage = Storage()
                guards += (store, store.version)
    n = new(Saving)
    n.plan, n.edges = plan, edges
    n.saved, n.guards = tuple(saved), tuple(guards)
    frame = _getframe(2)
    code = frame.f_code
    n.place = (code, frame.f_lasti) if code.co_filename in USERS else here(frame)
    if modes.CHANGED and modes.local.packing is not None:
        return packed(n, recipe, operands, plan.outs)
    return n


# ---- the same, written out ---------------------------------------------------------------------------------
MOST = 8  # operands, up to which it is
_written: dict[tuple, Callable] = {}


def writing(plan: Plan) -> Callable:
    """`node_of` for calls of one plan, as straight code: it takes a third of the time.

    The code differs by op, by which operands there are and by which of them a gradient can flow to.
    """
    if plan.flows is None:
        plan.plan_gradients()
    if len(plan.types) > MOST:
        return node_of
    op, there = plan.op, tuple([t is not None for t in plan.types])
    key = (op, plan.floats, there)
    made = _written.get(key)
    if made is None:
        scope: dict[str, Any] = {
            "new": new, "Light": Light, "Saving": Saving, "Storage": Storage, "USERS": USERS, "here": here,
            "_getframe": _getframe,
        }  # fmt: skip
        exec("\n    ".join(_lines(op, plan, there)), scope)
        made = _written[key] = scope["note"]
    return made


def _lines(op: Op, plan: Plan, there: tuple[bool, ...]) -> list[str]:
    """The lines of such a function: edges, what is saved and its guards, then the node."""
    wanting = [i for i, f in enumerate(plan.floats) if f]
    if not wanting or not op.differentiable:
        return ["def note(plan, operands, outputs, arrays):", "return None"]
    lines = ["def note(plan, operands, outputs, arrays):"]
    lines.append("".join(f"x{i}, " for i in range(len(there))) + "= operands")
    lines += [f"e{i} = x{i}._edge if x{i}._view is None else x{i}._node" for i in wanting]
    lines.append(f"if {' and '.join(f'e{i} is None' for i in wanting)}: return None")
    saved, always, sometimes = [], [], []  # names of values; guards of those saved always, and of others
    conditions = set()
    for name, (is_operand, at) in zip(op.saves, plan.sources, strict=True):
        by = wanting
        if op.vjp is None:  # each rule looks at what it names alone
            by = [i for i in wanting if op.rules[i] and name in op.rules[i].arrays]
        when = "" if by == wanting else " or ".join(f"e{i} is not None" for i in by) or "False"
        if not is_operand:
            value = f"arrays[{at}]"
            stores = [f"outputs[{at}]"] if at < len(op.outputs) else []
        elif name[0] == "*":
            rest = range(at, len(there))
            value = "(" + "".join(f"x{i}._data, " if there[i] else "None, " for i in rest) + ")"
            stores = [f"x{i}" for i in rest if there[i]]
        else:
            value, stores = (f"x{at}._data", [f"x{at}"]) if there[at] else ("None", [])
        conditions.add(when)
        saved.append(f"{value} if {when} else None" if when else value)
        for x in stores:
            n = len(always) + len(sometimes)
            if when:
                lines.append(f"s{n} = ()")
                lines.append(f"if {when}:")
                lines.append(f"    t = {x}._storage")
                lines.append(f"    if t is None: t = {x}._storage = Storage()")
                lines.append(f"    s{n} = (t, t.version)")
                sometimes.append((n, f"*s{n}"))
            else:
                lines.append(f"s{n} = {x}._storage")
                lines.append(f"if s{n} is None: s{n} = {x}._storage = Storage()")
                always.append((n, f"s{n}, s{n}.version"))
    light = ["n = new(Light)", "n.plan = plan", f"n.edges = {_edges(wanting, len(there))}", "return n"]
    if not saved or conditions == {"False"}:
        return lines + light
    if "" not in conditions:
        some = " or ".join(sorted(conditions - {"False"}))
        lines += [f"if not ({some}):", *[f"    {line}" for line in light]]
    guards = "".join(f"{text}, " for _, text in sorted(always + sometimes))
    return lines + [
        "n = new(Saving)",
        "n.plan = plan",
        f"n.edges = {_edges(wanting, len(there))}",
        f"n.saved = ({''.join(f'{value}, ' for value in saved)})",
        f"n.guards = ({guards})",
        "frame = _getframe(2)",  # of what was called; behind it nobody may be, as where C calls at exit
        "frame = frame.f_back or frame",
        "code = frame.f_code",
        "n.place = (code, frame.f_lasti) if code.co_filename in USERS else here(frame)",
        "return n",
    ]


def _edges(wanting: list[int], count: int) -> str:
    return "(" + "".join(f"e{i}, " if i in wanting else "None, " for i in range(count)) + ")"


def make_view(out: Tensor, base: Tensor, link: tuple) -> None:
    """Tie a view to the tensor whose memory it shares: the same storage, and the way to get it from there."""
    store = out._storage = storage_of(base)
    root, chain = (base, link) if base._view is None else (base._view[0], base._view[1] + link)
    out._view = (root, chain, store.history)
