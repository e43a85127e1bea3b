"""Writing into tensors: the name_ forms of ops, assignment by index, and what a write does to histories.

An in-place op is its functional op, written over its first operand: the history is that of the functional op, and
where memory is shared, the base becomes `view_scatter(base, new value)` and every view of it is derived from the base
anew.  So there is no second set of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dtypes import category_at_least
from ..ir.errors import DTypeError, InplaceError, ShapeError
from ..ir.op import REGISTRY, Op
from . import modes
from .dispatch import describe, lifted, node_of, plan_for, storage_of
from .graph import Leaf, Node, Port
from .places import Place, here
from .plan import OUTPUT
from .tensor import Tensor

new = object.__new__


def check_writable(x: Tensor, name: str, gradients: bool) -> None:
    """Refuse a write that would lose data or a gradient.  Raises InplaceError."""
    if gradients and type(x._node) is Leaf:
        raise InplaceError(
            f"{name}: a leaf that requires gradients can't be written in place",
            f"leaf: {x._meta}",
            "write under no_grad() to change its value, or make a new tensor to be differentiated",
        )
    if gradients and x._view is not None and type(x._view[0]._node) is Leaf:
        raise InplaceError(
            f"{name}: a view of a leaf that requires gradients can't be written in place",
            f"leaf: {x._view[0]._meta}",
            "write under no_grad() to change its value, or clone() the leaf first",
        )
    data = x._data
    if not data.flags.writeable or (data.size > 1 and 0 in data.strides and _overlaps(data)):
        raise InplaceError(
            f"{name}: several elements of the tensor share one place in memory, or its memory is read-only",
            f"tensor: {describe(x)}",
            "write into x.clone()",
        )


def _overlaps(data: np.ndarray) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(data.strides, data.shape, strict=True))


def write(op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
    """Run `op` and leave its result in its first operand.  Raises InplaceError, ShapeError, DTypeError."""
    operands = lifted(op, operands)
    x = operands[0]
    name = op.name + "_"
    gradients = not modes.CHANGED or modes.is_grad_enabled()
    needs = gradients and any(o is not None and o._node is not None for o in operands)
    check_writable(x, name, needs)
    plan = plan_for(op, operands, attrs)
    out, kind = plan.out, x._meta
    if out.shape != kind.shape:
        raise ShapeError(
            f"{name}: the result's shape {list(out.shape)} is not that of the tensor written, {list(kind.shape)}",
            *(f"operand: {describe(o)}" for o in operands if o is not None),
            f"write y = {op.name}(…) to get a new tensor",
        )
    if not category_at_least(kind.dtype, out.dtype.category):
        raise DTypeError(
            f"{name}: a result of {out.dtype} can't be written into {kind.dtype}",
            f"written: {describe(x)}",
            f"write y = {op.name}(…) to get a new tensor",
        )
    place = here(2)
    looked_at = needs and op.differentiable and op.operands[0] in op.saves
    node = None
    if needs and op.differentiable:
        node = node_of(plan, operands, (), None, place, x._data.copy() if looked_at else None)
    data = x._data
    arrays = None
    if op.write is not None:
        op.write(data, *[None if o is None else o._data for o in operands[1:]], **attrs)
    else:
        arrays = plan.kernel(*[None if o is None else o._data for o in operands])
        result = arrays[0] if type(arrays) is tuple else arrays
        np.copyto(data, result, casting="unsafe")
    store = storage_of(x)
    store.written((name, place))
    if node is not None:
        _save_outputs(node, x, arrays)
        _rebase(x, node, place)
    elif gradients and x._node is not None:
        _rebase(x, None, place)
    if modes.CHANGED and modes.local.hook is not None:
        modes.local.hook(op, plan.attrs | {"inplace": True}, operands, (x,))
    return x


def _save_outputs(node: Node, x: Tensor, arrays: Any) -> None:
    """Save what the gradient wants of the result, which now stands in `x`."""
    recipe = node.plan.recipes[tuple(e is not None for e in node.edges)]
    saved = list(node.saved or ())
    for i, (what, at) in enumerate(recipe):
        if what == OUTPUT:
            saved[i] = x._data if at == 0 else arrays[at]
            if at == 0:
                store = storage_of(x)
                node.guards += (store, store.version)
    if recipe:
        node.saved = tuple(saved)


def _rebase(x: Tensor, node: Node | None, place: Place) -> None:
    """Give the tensor written, its base, and all views of it their new histories."""
    edge: Any = node
    if node is not None and len(node.plan.outs) > 1:
        edge = Port(node, 0)
    base = x._view[0] if x._view is not None else x
    if base is x:
        x._node = edge
    else:
        scatter = REGISTRY["view_scatter"]
        value = new(Tensor)
        value._data, value._meta, value._node, value._storage, value._view = x._data, x._meta, edge, None, None
        plan = plan_for(scatter, (base, value), {"chain": x._view[1]})
        base._node = node_of(plan, (base, value), (), None, place)
    store = base._storage
    if store is None:
        return
    for view in store.live_views():
        parent, chain = view._view
        if parent is base and view is not base:
            view._node = _derived(base, chain, place)


def _derived(base: Tensor, chain: tuple, place: Place) -> Node | None:
    """The history of a view: its chain, applied to the base's history.  No data is touched."""
    edge, kind = base._node, base._meta
    if edge is None:
        return None
    for name, attrs in chain:
        step = new(Tensor)
        step._data, step._meta, step._node, step._storage, step._view = base._data, kind, edge, None, None
        plan = plan_for(REGISTRY[name], (step,), dict(attrs))
        made = node_of(plan, (step,), (), None, place)
        if made is None:
            return None
        edge, kind = made, plan.out
    return edge


def inplace(op: Op) -> Callable:
    """The method name_ of an op."""
    bind = op.bind

    def apply(self, *args, **kwargs):
        operands, attrs = bind(self, *args, **kwargs)
        return write(op, tuple(operands), attrs)

    apply.__name__ = apply.__qualname__ = op.name + "_"
    apply.__doc__ = f"Write the result of `{op.name}` into this tensor.\n\n{op.__doc__ or ''}"
    return apply
