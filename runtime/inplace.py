"""Writing into tensors: the name_ forms of ops, assignment by index, and what a write does to histories.

An in-place op is its functional op, written over its first operand: the history is that of the functional op,
and where memory is shared, the base becomes `view_scatter(base, new value)` and every view of it derives its
own from the base anew, when it is next read.  So there is no second set of gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import zip_longest
from sys import _getframe, getrefcount
from typing import Any, cast

import numpy as np

from ..ir.dtypes import category_at_least
from ..ir.errors import DTypeError, InplaceError, ShapeError
from ..ir.op import REGISTRY, Op
from ..ir.types import CPU, Type
from ..ir.views import MAPS
from . import below, changes, modes
from .below import Asked
from .calls import UNSAID, general
from .changes import advance_objects, numbers
from .compound import NoArray, written
from .dispatch import bound, describe, known_plan, lift, lifted, plan_for, refuse
from .graph import Edge, Leaf, Node, Port
from .history import node_of, storage_of
from .levels import level_of, write_through
from .meta import NoValues
from .modes import CHANGED, local
from .on_device import OnDevice, on_host, streamed
from .on_device import eager as eager_on_device
from .overriding import OPEN, of_foreign
from .places import here
from .plan import OUTPUT, Plan, memo, remember, writer_of
from .storage import ALONE, Literal, Storage
from .tensor import OPERANDS, Parameter, Tensor, derivation, keep_retained, wrap

multiply = np.multiply
# What writes here and there, and leaves the rest of the memory as it is.
PARTIAL = frozenset(("index_fill_", "index_put_", "masked_fill_"))
OWN = frozenset((Tensor, Parameter))  # the library's own classes of tensors


def check_writable(x: Tensor, name: str, gradients: bool, here_and_there: bool = False) -> None:
    """Refuse a write that would lose data or a gradient.  Raises InplaceError.

    here_and_there: only a part is written, so that elements may share a place; of this PyTorch warns.
    """
    if gradients and type(x._node) is Leaf:
        raise InplaceError(
            f"{name}: a leaf that requires gradients can't be written in place",
            f"leaf: {x._meta}",
            "(a leaf Variable that requires grad is being used in an in-place operation.)",
            "write under no_grad() to change its value, or make a new tensor to be differentiated",
        )
    if gradients and x._view is not None and type(root(x)._node) is Leaf:
        raise InplaceError(
            f"{name}: a view of a leaf that requires gradients can't be written in place",
            f"leaf: {root(x)._meta}",
            "(a view of a leaf Variable that requires grad is being used in an in-place operation.)",
            "write under no_grad() to change its value, or clone() the leaf first",
        )
    data = x._data
    if isinstance(data, NoValues):
        return
    windows = x._view is not None and any(MAPS[name].overlaps for name, _ in x._view[1])
    if x._view is not None and any([name == "expand" for name, _ in x._view[1]]):
        if not data.flags.writeable and root(x)._data.flags.writeable:
            data.flags.writeable = True  # NumPy guards these views
        if modes.CHANGED:
            modes.tell("refuse", "a part of an expanded tensor was written")
    shared = data.size > 1 and (windows or 0 in data.strides) and _overlaps(data)
    if shared and name == "fill_":  # one number goes wherever the elements lie
        if modes.CHANGED:
            modes.tell("refuse", "fill_ of a tensor several of whose elements share one place in memory")
    elif shared and here_and_there and data.flags.writeable:
        if modes.CHANGED:
            modes.tell("refuse", f"{name} of a tensor several of whose elements share one place in memory")
        warnings.warn(
            f"Use of {name} on expanded tensors is deprecated: what is written shows in all elements that "
            f"share its place; write into x.clone()",
            stacklevel=5,
        )
    elif shared or not data.flags.writeable:
        raise InplaceError(
            f"{name}: unsupported operation: "
            + (
                "several elements of the tensor share one place in memory "
                "(more than one element of the written-to tensor refers to a single memory location)"
                if shared
                else "the memory of the tensor is read-only"
            ),
            f"tensor: {describe(x)}",
            "write into x.clone()",
        )


def is_plain(x: Tensor) -> bool:
    """Whether to read or write a tensor's memory is all that there is to it here and now.

    It has no history that counts and is no view of what has one, nobody listens, and its array is one.
    """
    if type(x) not in OWN or type(x._data) is not np.ndarray:
        return False
    if modes.CHANGED:
        mine = modes.local
        if mine.watched:
            return False
        if not mine.records:
            return True
    return x._edge is x._view is None


def _overlaps(data: np.ndarray) -> bool:
    """Whether several elements stand at one place."""
    places = np.zeros(1, np.int64)
    for stride, size in zip(data.strides, data.shape, strict=True):
        if stride == 0 and size > 1:
            return True
        places = np.add.outer(places, stride * np.arange(size)).ravel()
    return np.unique(places).size < places.size


def write(op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
    """Run `op` and leave its result in its first operand.  Raises InplaceError, ShapeError, DTypeError."""
    if not all([isinstance(o, Tensor) for o in operands]):
        if modes.CHANGED and modes.local.values is not None:
            return modes.local.values.write(op, operands, attrs)
        operands = lifted(op, operands)
    return overwrite(op, known_plan(op, operands, attrs), operands)


def overwrite(op: Op, plan: Plan, operands: tuple) -> Tensor:
    """Run a plan and leave its result in its first operand."""
    try:
        x = operands[0]
        records = True
        if modes.CHANGED:
            mine = modes.local
            if mine.watched:
                return _overwrite_watched(op, plan, operands)
            records = mine.records
        if records:
            for o in operands:
                if o is not None and (o._edge if o._view is None else o._node) is not None:
                    return _overwrite_watched(op, plan, operands)
            if x._view is not None and root(x)._node is not None:
                return _overwrite_watched(op, plan, operands)
        data = x._data
        if plan.out is not x._meta or not data.flags.carray:
            return _overwrite_watched(op, plan, operands)
        writer = plan.writer = plan.writer or writer_of(plan)
        try:
            writer(data, *[None if o is None else o._data for o in operands[1:]])
        except Exception as error:
            refuse(error, op, operands, plan.attrs)
        store = storage_of(x)
        store.written((op.name + "_", here() if getrefcount(store) > ALONE else None))
        return x
    except NoArray:
        return written(op, operands, plan.attrs)


def _overwrite_watched(op: Op, plan: Plan, operands: tuple) -> Tensor:
    """`overwrite` where there are histories, transforms or recorders, or the result may not fit."""
    if modes.CHANGED and modes.local.levels:
        found = write_through(op, operands, plan.attrs)
        if found is not NotImplemented:
            return found
    if modes.CHANGED and modes.local.timing is not None:
        found = modes.local.timing.of_op(_overwritten, op, plan, operands, "_")
    else:
        found = _overwritten(op, plan, operands)
    if modes.CHANGED and modes.local.streams is not None:
        streamed().mark(found)
    return found


def _overwritten(op: Op, plan: Plan, operands: tuple) -> Tensor:
    x, attrs = operands[0], plan.attrs
    name = op.name + "_"
    gradients = not modes.CHANGED or modes.is_grad_enabled()
    needs = gradients and any(o is not None and o._node is not None for o in operands)
    check_writable(x, name, needs, name in PARTIAL and not needs and not attrs.get("accumulate"))
    if gradients and x._view is not None:
        _check_view(x, name)
    _check_fit(op, plan.out, operands)
    place = here()
    looked_at = needs and op.differentiable and op.operands[0] in op.saves
    node = None
    if needs and op.differentiable:
        before = None
        if looked_at:  # by the op, where somebody must know whose copy it is
            before = (
                REGISTRY["clone"](wrap(x._data, x._meta))._data if modes.is_recording() else x._data.copy()
            )
        node = node_of(plan, operands, (), None, before)
    data = x._data
    arrays = None
    try:
        if type(data) is Asked:
            below.overwrite(op, plan.types, attrs, tuple([None if o is None else o._data for o in operands]))
        elif type(data) is NoValues:
            arrays = plan.kernel()
        elif op.write is not None and x._meta.device is CPU and plan.out.device is CPU:
            op.write(data, *[None if o is None else o._data for o in operands[1:]], **attrs)
        else:
            arrays = plan.kernel(*[None if o is None else o._data for o in operands])
            result = arrays[0] if type(arrays) is tuple else arrays
            if type(data) is OnDevice:
                eager_on_device().write(data, result)
            else:
                np.copyto(data, on_host(result), casting="unsafe")
    except Exception as error:
        refuse(error, op, operands, attrs)
    store = storage_of(x)
    store.written((name, place))
    if node is not None:
        _save_outputs(node, x, arrays)
        rebase(x, Port(node, 0) if len(node.plan.outs) > 1 else node)
    elif gradients and x._node is not None:
        rebase(x, None)
    if modes.CHANGED and modes.local.hook is not None:
        every = arrays if type(arrays) is tuple else ()
        hidden = [wrap(a, t) for a, t in zip(every[1:], plan.outs[1:])]
        modes.local.hook(op, attrs | {"inplace": True}, operands, (x, *hidden))
    return x


def _check_view(x: Tensor, name: str) -> None:
    """Refuse to write a view without history of a tensor that has one, which would miss the write.

    Raises InplaceError.
    """
    base = root(x)
    if x._node is None and base._node is not None and x._meta.dtype.inexact:
        raise InplaceError(
            f"{name}: A view was created in no_grad mode and is being modified inplace with gradients on",
            "(or: A view was created in inference mode and is being modified inplace in normal mode)",
            "its base has a history, which would miss the write",
            f"view: {x._meta}",
            f"base: {describe(base)}",
            "make the view where gradients are on, write it under no_grad() too, or write into x.clone()",
        )


def _check_fit(op: Op, out: Type, operands: tuple) -> None:
    """Refuse to write a result of that type over the first operand.  Raises ShapeError, DTypeError."""
    kind, name = operands[0]._meta, op.name + "_"
    if out.shape != kind.shape:
        raise ShapeError(
            f"{name}: the result's shape {list(out.shape)} is not that of the tensor written, "
            f"{list(kind.shape)}",
            *(f"operand: {describe(o)}" for o in operands if o is not None),
            f"write y = {op.name}(…) to get a new tensor",
        )
    if not category_at_least(kind.dtype, out.dtype.category):
        raise DTypeError(
            f"{name}: a result of {out.dtype} can't be cast to {kind.dtype}, the dtype written",
            f"written: {describe(operands[0])}",
            f"write y = {op.name}(…) to get a new tensor",
        )


def _save_outputs(node: Node, x: Tensor, arrays: Any) -> None:
    """Save what the gradient wants of the result, which now stands in `x`."""
    recipe = node.plan.recipes[tuple(e is not None for e in node.edges)]
    saved = list(node.saved or ())
    for i, (what, at) in enumerate(recipe):
        if what == OUTPUT:
            saved[i] = x._data if at == 0 else arrays[at]
            if at == 0:  # guards stand in the order of what is saved
                store, before = storage_of(x), 2 * sum(_guarded(value) for value in saved[:i])
                node.guards = (*node.guards[:before], store, store.version, *node.guards[before:])
    if recipe:
        node.saved = tuple(saved)


def _guarded(saved: Any) -> int:
    """How many storages stand behind an entry of what an op saved."""
    return sum(v is not None for v in saved) if type(saved) is tuple else saved is not None


def rebase(x: Tensor, edge: Edge | None) -> None:
    """Give the tensor written and its base their new histories, and date those of all other views."""
    base, view = root(x), x._view
    before = base._edge
    if view is None:
        x._node = edge
    else:
        scatter = REGISTRY["view_scatter"]
        value = wrap(x._data, x._meta)
        value._edge = edge
        plan = plan_for(scatter, (base, value), {"chain": view[1]})
        base._node = node_of(plan, (base, value), (), None)
    keep_retained(base, before)
    storage_of(base).history += 1


def root(x: Tensor) -> Tensor:
    """The tensor whose chain of views leads to `x`.

    A base that became a view itself, by `reshaped_in_place`, left its place to the tensor that is its own
    base now.
    """
    while x._view is not None:
        x = x._view[0]
    return x


def reshaped_in_place(function: Callable, name: str) -> Callable:
    """The method name_ of an op that makes a view: the tensor becomes that view of what it was."""

    def apply(self, *args, **kwargs):
        level = level_of(self) if modes.CHANGED and modes.local.levels else None
        if level is not None:
            level.become(self, function(self, *args, **kwargs))
            return self
        node = self._node
        if type(node) is Leaf and modes.is_grad_enabled():
            check_writable(self, name, True)
        before = wrap(self._data, self._meta)
        before._edge, before._storage, before._view = node, storage_of(self), self._view
        with modes.enable_grad():  # under no_grad too, or the history would be that of another shape
            after = function(before, *args, **kwargs)
        strides = after._data.strides  # those of arrays without values say nothing
        if after._meta is not self._meta or strides != self._data.strides or isinstance(self._data, NoValues):
            self._data, self._meta = after._data, after._meta
            self._edge, self._view = after._edge, after._view
            advance_objects()
            self._storage.written((name, here()))
            if type(node) is Leaf:  # stays one, of another shape
                self._edge, node.kind = node, after._meta
                node.grad = None if node.grad is None else function(node.grad.detach(), *args, **kwargs)
        return self

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Turn this tensor into its own `{name[:-1]}`."
    return apply


def _derive_again(view: Tensor) -> None:
    """Give a view the history that its chain gives it now, from its base's.  No data is touched."""
    (_, chain, _), history = cast(tuple, view._view), view._storage.history
    base = root(view)
    edge, kind = base._node, base._meta
    for name, attrs in chain:
        step = wrap(base._data, kind)
        step._edge = edge
        plan = plan_for(REGISTRY[name], (step,), dict(attrs))
        edge, kind = node_of(plan, (step,), (), None), plan.out
    before, view._edge = view._edge, edge
    view._view = (base, chain, history)
    keep_retained(view, before)


derivation.append(_derive_again)
below.writes.append(write)


def inplace(op: Op, spelled: bool = False) -> Callable:
    """The method name_ of an op; spelled: Python's operator, which leaves foreign operands to their class."""
    short = 0 < len(op.operands) <= 3 and not op.variadic and not op.traits.mutates
    apply = _shortly(op, spelled) if short else general(op, overwrite)
    apply.__name__ = apply.__qualname__ = op.name + "_"
    apply.__doc__ = f"Write the result of `{op.name}` into this tensor.\n\n{op.__doc__ or ''}"
    return apply


_ABSENT = wrap(cast(Any, None), cast(Any, None))  # in the place of no operand
_TOLD = frozenset((float, int, str, type(None)))
_GIVEN = _TOLD | {Tensor, type(UNSAID)}


def _shortly(op: Op, spelled: bool) -> Callable:
    """The same for up to three operands, written out for those that have no history and are no views."""
    slow, name, number = general(op, overwrite, lambda: apply), op.name + "_", op.number
    count, compares, takes_alpha = len(op.operands), op.traits.compares, op.name in ("add", "sub")
    # By types and numbers: the plan; what of NumPy's computes in place, or what writes (without either what
    # the kernel makes is copied); and operands behind the first that are none of the call's.
    plans: dict[tuple, tuple] = memo()

    def miss(key, given, kwargs):
        x, scale = given[0], kwargs.get("alpha") if takes_alpha else None
        if scale is not None:  # by which bind multiplies
            d, kwargs = x._meta.dtype, {}
            if d.category != "float" or d.compute is not d or given[1]._meta.dtype is not d:
                return None
        operands, attrs = bound(op, given, kwargs)
        if operands[0] is not x:
            return None
        others = []
        if not all([o is None or isinstance(o, Tensor) for o in operands]):
            operands = lifted(op, operands)
        for o, own in zip_longest(operands, given):
            if o is not own and (type(own) is Tensor or (o is not None and type(o._storage) is not Literal)):
                return None  # computed of the arguments, or read from one
            others.append(_ABSENT if o is None else None if o is own else o)
        plan = known_plan(op, operands, attrs)
        if plan.out is not x._meta or any([t is not None and t.device is not CPU for t in plan.types]):
            return None
        kernel, writer = plan.kernel, op.write and writer_of(plan)
        named = kernel is np.maximum or kernel is np.minimum  # NumPy wants the written array by name
        ufunc = kernel if type(kernel) is np.ufunc and count < 3 and not named else None
        if scale is not None:
            whole, factor, ufunc = writer_of(plan), lift(x._meta, scale)._data, None
            writer = lambda first, other: whole(first, multiply(other, factor))  # noqa: E731
        return remember(plans, key, (plan, ufunc, writer, *[*others, _ABSENT, _ABSENT][1:3]))

    def apply(x=UNSAID, y=UNSAID, z=UNSAID, /, *rest, **kwargs):
        kind, a, b, key = type(x), y, z, None
        if OPEN or rest or (kind is not Tensor and kind is not Parameter) or (CHANGED and local.watched):
            pass
        elif z is UNSAID and count == 2 and not kwargs:
            if type(y) is Tensor:
                key = x._meta, y._meta
            elif type(y) is float or type(y) is int:
                m = x._meta
                if number is not None:
                    number(m, y)
                a = (m.compared if compares else m.scalars).get(y)
                if a is None:
                    a = lift(m, y, compares)
                key = m, a._meta
        elif takes_alpha:
            alpha = kwargs.get("alpha")
            if type(alpha) is float and len(kwargs) == 1 and type(y) is Tensor and z is UNSAID:
                key = x._meta, y._meta, alpha or repr(alpha)  # 0.0 == -0.0
        elif type(y) in _GIVEN and type(z) in _GIVEN and (count == 3 or z is UNSAID):
            s, t = type(y), type(z)  # 1 == 1.0
            p, q = y._meta if s is Tensor else y or repr(y), z._meta if t is Tensor else z or repr(z)
            key = x._meta, s, t, p, q
            for word, value in kwargs.items():
                if type(value) not in _TOLD:
                    key = None
                    break
                key += word, type(value), value or repr(value)
        found: Any = key and (plans.get(key) or miss(key, [o for o in (x, a, b) if o is not UNSAID], kwargs))
        if found is None:
            given = (*[o for o in (x, y, z) if o is not UNSAID], *rest)
            if spelled and not isinstance(y, OPERANDS):
                return of_foreign(apply, given)
            return slow(*given, **kwargs)
        plan, ufunc, writer, first, second = found
        if first is not None:
            a = first
        if second is not None:
            b = second
        data = x._data
        bare = x._edge is x._view is a._edge is a._view is b._edge is b._view is None
        if not (bare or (CHANGED and not local.records)) or not data.flags.carray:
            if takes_alpha and kwargs:
                return slow(x, y, **kwargs)
            return overwrite(op, plan, tuple([None if o is _ABSENT else o for o in (x, a, b)[:count]]))
        try:
            if ufunc is not None:
                ufunc(data, a._data, data) if count == 2 else ufunc(data, data)
            elif count == 2:
                if writer is not None:
                    writer(data, a._data)
                else:
                    data[...] = plan.kernel(data, a._data)
            elif writer is not None:
                writer(data, a._data, b._data) if count == 3 else writer(data)
            else:
                data[...] = plan.kernel(data, a._data, b._data) if count == 3 else plan.kernel(data)
        except Exception as error:
            refuse(error, op, (x, a, b)[:count], plan.attrs)
        store = x._storage
        if store is None:
            store = x._storage = Storage()
        store.version += 1
        if getrefcount(store) > ALONE:
            store.writer = name, here(_getframe())
        changes.contents = next(numbers)
        return x

    return apply
