"""Gives tensors their histories: the node of a call, what it saves, and how a view hangs on its base."""

from __future__ import annotations

from sys import _getframe
from typing import Any

import numpy as np

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
    n = node_of(plan, operands, outputs, arrays)
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


def make_view(out: Tensor, base: Tensor, link: tuple) -> None:
    """Tie a view to the tensor whose memory it shares: the same storage, and the way to get it from there."""
    store = out._storage = storage_of(base)
    root, chain = (base, link) if base._view is None else (base._view[0], base._view[1] + link)
    out._view = (root, chain, store.history)
