"""One step of a backward: the cotangents of a node's operands, and what a leaf does with its own.

Cotangents are plain arrays where the operands of a step were small, on the CPU and of one floating dtype, and
tensors otherwise (and always under create_graph, where they have a history of their own).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from ..ir.dtypes import EVERY, float64
from ..ir.errors import ArgumentError, DeviceError, GradError, InplaceError, ShapeError
from ..ir.locks import fork_safe_lock
from ..ir.op import REGISTRY
from ..ir.shapes import fitting
from ..ir.types import CPU, Type, type_of
from . import modes
from .below import WRAPPED, outer, plain
from .compound import NoArray, dense_gradient
from .graph import Edge, Leaf, Node, Port
from .memory import is_alone
from .meta import NoValues
from .meta import array as nothing
from .on_device import OnDevice, on_host
from .on_device import eager as eager_on_device
from .packing import Opened, Packing, unpack_of
from .places import line_of, spell
from .plan import fit_array
from .storage import Storage
from .tensor import Retained, Tensor, wrap

ndarray, asarray, new = np.ndarray, np.asarray, object.__new__
accumulating = fork_safe_lock()  # held for one addition into a leaf's gradient


def counted(g: Any) -> tuple[int, int]:
    """How many references there are to the array of a cotangent, and to the cotangent."""
    array = g if type(g) is ndarray else g._data
    return getrefcount(array), getrefcount(g)


def _alone(g: Any) -> tuple[int, int]:
    return counted(g)


# What `counted` says where one variable of its caller's caller, and nothing else, holds the cotangent: an
# array, or a tensor.  Found out by counting, as it differs between versions of Python.
def _calibrated() -> tuple[tuple[int, int], tuple[int, int]]:
    array = np.zeros(1)
    tensor = wrap(np.zeros(1), type_of(float64, (1,)))
    return _alone(array), _alone(tensor)


ARRAY_ALONE, TENSOR_ALONE = _calibrated()


def _held() -> int:
    h = np.zeros(1)
    return getrefcount(h)


HELD = _held()  # the same for an array in a variable of the function that asks


# ---- checks ------------------------------------------------------------------------------------------------
def changed(node: Node) -> InplaceError | GradError:
    """Why the saved values of `node` can't be used."""
    if node.saved is None:
        name, saved_at = node.freed()
        return GradError(
            "backward through the same history a second time: what it saved was freed by the first",
            f"saved by      {name:<8} {saved_at}",
            "to go through twice: Specify retain_graph=True the first time",
        )
    guards = zip(node.guards[::2], node.guards[1::2], strict=True)
    number, store = next((i, s) for i, (s, v) in enumerate(guards) if s.version != v)
    name, saved_at = node.saver(number)
    writer, place = store.writer or ("an op", None)
    line = f"before line {line_of(place)[1]}" if place is not None else "before that"
    return InplaceError(
        "a tensor saved for backward was changed in place",
        f"saved by      {name:<8} {saved_at}",
        f"changed by    {writer:<8} {spell(place) if place is not None else 'an unknown line'}",
        f"to keep both: write y = {_out_of_place(writer)}, or clone() {line}",
        "(one of the variables needed for gradient computation has been modified by an inplace operation)",
    )


def check(node: Node) -> None:
    """Raise InplaceError where a saved tensor has been written since."""
    guards = node.guards
    for i in range(0, len(guards), 2):
        if guards[i].version != guards[i + 1]:
            raise changed(node)


def refuse_nan(node: Node, cotangents: Sequence[Any]) -> None:
    """Raise GradError where a gradient rule gave NaN."""
    for i, h in enumerate(cotangents):
        array = h._data if isinstance(h, Tensor) else h
        if array is not None and np.isnan(on_host(array)).any():
            raise GradError(
                f"the gradient of {node.op_name} to operand {i} is NaN",
                f"Function '{node.name()}' returned nan values in its {i}th output.",
            )


def noted(error: Exception, node: Node) -> Exception:
    """The error of a gradient rule, with the line whose gradient it was."""
    if not any("while differentiating" in n for n in getattr(error, "__notes__", ())):
        error.add_note(f"while differentiating {node.op_name}  {spell(node.place)}")
    return error


def _out_of_place(writer: str) -> str:
    plain = {"add_": "y + …", "sub_": "y - …", "mul_": "y * …", "div_": "y / …"}
    return plain.get(writer, f"y.{writer.rstrip('_')}(…)" if writer.endswith("_") else "a new tensor")


# ---- one step ----------------------------------------------------------------------------------------------
def fit_tensor(h: Tensor, kind: Type) -> Tensor:
    """The same for a tensor, by ops, so that it has a history where gradients are on."""
    if h._meta is kind:
        return h
    if h._meta.shape != kind.shape:
        how = fitting(h._meta.shape, kind.shape)
        if how is not None:
            dims, shape = how
            if dims:
                h = REGISTRY["reshape"](REGISTRY["sum"](h, dim=dims), shape)
            else:
                h = REGISTRY["expand"](h, shape)
    if h._meta.dtype is not kind.dtype:
        h = REGISTRY["cast"](h, dtype=kind.dtype)
    if h._meta.device is not kind.device and "cuda" in (h._meta.device.type, kind.device.type):
        h = h.to(kind.device)  # of a number's tensor beside those of a GPU
    return h


def require_place(g: Tensor, kind: Type, whose: str) -> None:
    """Raise DeviceError for a gradient on another device than its tensor, where the user made it: a number's
    goes there by itself.
    """
    there = g._meta.device
    if there is not kind.device and there != kind.device and "cuda" in (there.type, kind.device.type):
        if g._meta.ndim:
            raise DeviceError(
                f"{whose} has an invalid gradient: expected device {kind.device} but got {there}",
                f"gradient: {g._meta}",
                f"g.to('{kind.device}') moves it",
            )


def unpack(n: Node, create: bool) -> tuple:
    """What `n` saved, as tensors; with their histories where `create`."""
    plan, found = n.plan, []
    origin = n.origin if type(n) is Opened else n
    owned = plan.foreign  # the user's own code asks for leaves by identity
    stores = iter(n.guards[::2])  # of what was saved, in that order, but of hidden outputs
    for value, (is_operand, at) in zip(n.saved or (None,) * len(plan.sources), plan.sources, strict=True):
        if value is None:
            found.append(None)
        elif isinstance(value, Tensor):
            next(stores)
            found.append(value)
        elif type(value) is tuple:
            found.append(
                tuple(
                    None
                    if v is None
                    else _rebuilt(v, plan.types[k], n.edges[k] if create else None, next(stores))
                    for k, v in enumerate(value, at)
                )
            )
        elif is_operand:
            edge = n.edges[at] if create else None
            x = edge.owner() if owned and type(edge) is Leaf else None
            store = next(stores)
            same = x is not None and x._data is value and x._storage is store
            found.append(x if same else _rebuilt(value, plan.types[at], edge, store))
        else:
            kind, hidden = plan.outs[at], at >= len(plan.op.outputs)
            edge = None
            if create and kind.dtype.inexact:
                edge = origin if at == 0 and len(plan.op.outputs) == 1 else Port(origin, at)
            found.append(_rebuilt(value, kind, edge, None if hidden else next(stores)))
    return tuple(found)


unpack_of.append(unpack)


def _rebuilt(data: np.ndarray, kind: Type, edge: Edge | None, store: Storage | None) -> Tensor:
    """A saved tensor again; of its old storage, so that what saves it once more sees a later write."""
    made = wrap(data, kind)
    made._edge, made._storage = edge, store
    return made


def as_tensor(g: Any) -> Any:
    """A cotangent as a tensor; None stays None."""
    if g is None or isinstance(g, Tensor):
        return g
    from_dtype = _kinds[g.dtype]
    return wrap(g, type_of(from_dtype, g.shape))


_kinds = {d.numpy: d for d in EVERY}


def step(n: Node, g: Any, create: bool) -> Sequence[Any]:
    """The cotangents of the operands of `n`, fitted; `g` is its cotangent, or a list of one per output."""
    if type(n) is Packing:
        n = n.opened()
    plan, edges = n.plan, n.edges
    if plan.foreign:
        user_code(create)
    types, needs = plan.types, [e is not None for e in edges]
    gs = g if type(g) is list else [g, *plan.unused]
    by_arrays = not create and not modes.is_recording() and (plan.small or plan.gradients is not None)
    if by_arrays:
        arrays = [x._data if isinstance(x, Tensor) else x for x in gs]
        by_arrays = not any([isinstance(a, NoValues) for a in arrays])
    if plan.gradients is not None and by_arrays:
        found = plan.gradients(n.saved or (None,) * len(plan.op.saves), arrays, needs)
        if found is not None:
            made = iter(found)
            if plan.small:
                return [next(made) if need else None for need in needs]
            return [wrap(next(made), t) if need else None for need, t in zip(needs, types, strict=True)]
    if plan.small and by_arrays:
        gs = arrays
        if plan.raw_vjp is not None and type(g) is not list:  # else of hidden outputs, too
            hs: Iterable = plan.raw_vjp(n.saved, tuple(gs), plan.attrs, tuple(needs))
        elif plan.rules is not None:
            hs = [
                rule(gs[0], n.saved) if need else None for rule, need in zip(plan.rules, needs, strict=True)
            ]
        else:
            hs = plan.op.vjp(n.saved, tuple(gs), plan.attrs, tuple(needs))
        return [
            fit_array(h._data if isinstance(h, Tensor) else h, t) if need and h is not None else None
            for h, t, need in zip(hs, types, needs, strict=True)
        ]
    gs = [as_tensor(x) for x in gs]
    saved = unpack(n, create or plan.foreign)
    if plan.rules is not None:
        hs = [rule(gs[0], saved) if need else None for rule, need in zip(plan.rules, needs, strict=True)]
    else:
        assert plan.vjp is not None, f"{plan.op.name} has no gradient"
        hs = plan.vjp(saved, tuple(gs), plan.attrs, tuple(needs))
        if plan.foreign:
            for i, (h, t) in enumerate(zip(hs, types, strict=True)):
                if isinstance(h, Tensor) and needs[i]:
                    require_place(h, t, f"Function {n.name()} returned at index {i} what")
    return [
        fit_tensor(as_tensor(h), t) if need and h is not None else None
        for h, t, need in zip(hs, types, needs, strict=True)
    ]


def without_parts(g: Any) -> Any:
    """A node's cotangent, or a list of one per output, as ordinary tensors: only leaves take a sparse one."""
    return [*map(dense_gradient, g)] if type(g) is list else dense_gradient(g)


BEFORE, AFTER = "before", "after"  # keys of a node's own hooks, beside those of its outputs


def _listed(given: Any, old: Sequence[Any], what: str) -> list:
    """What a node's hook returned in place of gradients, as a list as long as theirs."""
    found = [*given] if isinstance(given, (tuple, list)) else [given]
    if len(found) != len(old) or not all(x is None or isinstance(x, Tensor) for x in found):
        raise ArgumentError(f"a {what} of a node must return {len(old)} tensors or None, or None alone")
    return found


def run_prehooks(e: Node | Leaf, g: Any, create: bool) -> Any:
    """Hand the cotangents of a node to its own hooks; what they return takes their place."""
    user_code(create)
    for hook in tuple((e.hooks or {}).get(BEFORE, ())):
        gs = [as_tensor(x) for x in (g if type(g) is list else [g])]
        found = modes.call_user(hook, tuple(gs))
        if found is not None:
            gs = _listed(found, gs, "prehook")
            g = gs if type(g) is list else gs[0]
    return g


def run_posthooks(e: Node | Leaf, hs: Sequence[Any], g: Any, create: bool) -> Sequence[Any]:
    """Hand what a node's step gave to its own hooks; what they return takes its place."""
    user_code(create)
    gs = tuple([as_tensor(x) for x in (g if type(g) is list else [g])])
    for hook in tuple((e.hooks or {}).get(AFTER, ())):
        hs = [as_tensor(h) for h in hs]
        found = modes.call_user(hook, tuple(hs), gs)
        if found is not None and hs:
            hs = _listed(found, hs, "hook")
    return hs


def run_hooks(e: Edge, g: Any, create: bool) -> Any:
    """Hand a cotangent to the hooks of the value it belongs to; what they return takes its place."""
    user_code(create)
    index = e.index if type(e) is Port else 0
    hooks = (e.hooks or {}).get(index, ())
    x = as_tensor(g)  # one for all: a hook may leave attributes on it for the next
    for hook in sorted(hooks, key=lambda hook: type(hook) is Retained):  # what is retained is what goes on
        new = hook(x) if type(hook) is Retained else modes.call_user(hook, x)
        if new is not None:
            if not isinstance(new, Tensor):
                raise ArgumentError(f"a gradient hook must return a tensor or None, not {type(new).__name__}")
            if new._meta.shape != x._meta.shape:
                raise ShapeError(
                    "a gradient hook must keep the gradient's shape",
                    f"got: {x._meta}",
                    f"returned: {new._meta}",
                )
            require_place(new, x._meta, "a gradient hook")
            g = x = new
    return g


def accumulate(e: Leaf, g: Any, create: bool) -> None:
    """Add a cotangent into a leaf's gradient, whose memory no other leaf and nothing else shares."""
    if e.kind is None:  # its tensor stopped asking
        return
    if modes.CHANGED:
        modes.tell("gradients", e)
    if type(g) is not ndarray and g._meta.device is not e.kind.device and "cuda" in _kinds_of(e, g):
        g = g.to(e.kind.device)
    if e.kind.device.type == "cuda":
        g = as_tensor(g)
        with accumulating:
            if e.grad is None:  # PyTorch's rule, too: what nobody else holds is taken over
                alone = counted(g)[1] <= TENSOR_ALONE[1] and not create and g._data.flags.c_contiguous
                e.grad = g if alone and g._view is None else REGISTRY["clone"](g)
            elif create or e.grad._edge is not None:
                e.grad = e.grad + g
            else:
                e.grad.add_(g)
    elif e.kind.device is not CPU or (type(g) is not ndarray and g._meta.device is WRAPPED):
        if e.kind.device is WRAPPED:
            g = as_tensor(g)
            e.grad = g if e.grad is None else e.grad + g
        elif e.kind.device is CPU:  # a plain leaf, whose gradient came through one that wraps others
            e.grad = outer(g if e.grad is None else plain(e.grad, []) + g)
        else:
            e.grad = wrap(nothing(e.kind), e.kind)
    elif create:
        g = as_tensor(g)
        with accumulating:
            e.grad = REGISTRY["clone"](g) if e.grad is None else e.grad + g
    elif modes.is_recording():  # what follows, by ops
        g, old = as_tensor(g), e.grad
        if old is None:
            e.grad = REGISTRY["clone"](g) if g.is_contiguous() else g.contiguous()
        elif old._edge is not None or not old._data.flags.writeable:
            e.grad = old.detach() + g
        else:
            old.add_(g)
    else:
        try:
            # Ours alone: one reference from our caller's variable, and no other array over the same memory.
            references = counted(g)
            if type(g) is ndarray:
                array, alone = g, references <= ARRAY_ALONE
            else:
                array, alone = g._data, references[0] <= TENSOR_ALONE[0] and references[1] <= TENSOR_ALONE[1]
            alone = (
                alone
                and array.flags.writeable
                and array.flags.c_contiguous
                and (array.base is None or is_alone(array))
            )
            with accumulating:
                old = e.grad
                if old is None:
                    made = e.grad = new(Tensor)
                    made._data, made._meta = array if alone else array.copy(), e.kind
                    made._edge = made._storage = made._view = None
                elif old._edge is not None or not old._data.flags.writeable:
                    e.grad = wrap(asarray(old._data + array), e.kind)
                else:
                    np.add(old._data, array, out=old._data)
                    if old._storage is not None:
                        old._storage.written(("backward", None))
        except NoArray:  # a gradient of some rows, or beside one
            with accumulating:
                e.grad = g if e.grad is None else e.grad.detach() + as_tensor(g)
    if e.after:
        user_code(create)
        for hook in tuple(e.after):
            owner = e.owner()
            if owner is not None and modes.call_user(hook, owner) is not None:
                raise GradError("post accumulate grad hooks should return None.", "write x.grad instead")


def _kinds_of(e: Leaf, g: Tensor) -> tuple[str, str]:
    return e.kind.device.type, g._meta.device.type


def user_code(create: bool) -> None:
    """Turn gradients off for what is left of this run, as hooks and custom functions expect."""
    if not create and modes.local.grad:
        modes.update(grad=False)


def plus(a: Any, b: Any) -> Any:
    """The sum of two cotangents of a value; where `a` is a list, one per output, `b` is for the first."""
    if type(a) is list:
        a[0] = b if a[0] is None else plus(a[0], b)
        return a
    if type(a) is ndarray and type(b) is ndarray:
        return asarray(a + b)
    return as_tensor(a) + as_tensor(b)


def add_into(total: Any, h: Any) -> None:
    """Add a cotangent into a sum of cotangents."""
    array = total if type(total) is ndarray else total._data
    if type(array) is NoValues:
        return
    if type(array) is OnDevice:
        eager_on_device().write(array, REGISTRY["add"](total, as_tensor(h))._data)
        return
    np.add(array, h if type(h) is ndarray else dense_gradient(h)._data, out=array)
