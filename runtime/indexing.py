"""x[index], x[index] = value, and going over rows."""

from __future__ import annotations

from collections.abc import Iterator
from sys import getrefcount
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentError, DimError
from ..ir.op import COMPOSITES, REGISTRY
from ..ir.ops.create import fits
from ..ir.ops.getitem import as_tuple, split_index
from ..ir.types import CPU, type_of
from . import changes, modes, ops
from .calls import eager
from .changes import numbers
from .dispatch import known_plan, lift, run
from .history import record, storage_of
from .inplace import inplace, is_plain
from .meta import NoValues
from .modes import CHANGED
from .on_device import on_host
from .overriding import OPEN, UNSERVED, answered
from .places import here
from .plan import Plan, memo, remember
from .refusal import refusing
from .storage import ALONE, Inferred
from .tensor import Parameter, Tensor, tensor_of, wrap


class NotBasic(Exception):
    """An item that is no int, slice, None or Ellipsis."""


def _key(item: Any) -> Any:
    """An item of an index as something that can be hashed.  Raises NotBasic."""
    kind = type(item)
    if kind is slice:
        return ("slice", item.start, item.stop, item.step)
    if kind is int or item is None or item is Ellipsis:
        return item
    raise NotBasic


def _basic_key(index: Any) -> tuple:
    """An index of ints, slices, None and Ellipsis as something that can be hashed.  Raises NotBasic."""
    items = index if type(index) is tuple else (index,)
    return tuple([item if type(item) is int or item is None else _key(item) for item in items])


_copy_from = inplace(REGISTRY["copy"])
_basic_index = eager(REGISTRY["basic_index"])
_setitem_of_any = ops.FUNCTIONS["setitem_"]
_getitem_of_any = refusing(COMPOSITES["getitem"].function, "x[index]")


def _getitem(self: Tensor, index: Any) -> Tensor:
    """Part of the tensor: a view for ints, 0-d integer tensors, slices, None and Ellipsis, else a copy."""
    if OPEN and (found := answered(_getitem, (self, index), {})) is not UNSERVED:
        return found
    kind = type(index)
    if kind is slice:
        return _basic_index(self, (("slice", index.start, index.stop, index.step),))
    if kind is int:
        if not self._meta.ndim:
            raise DimError("invalid index of a 0-dim tensor", "x.item() gives its value as a number")
        return _basic_index(self, index)
    if kind is tuple:
        try:
            return _basic_index(self, _basic_key(index))
        except NotBasic:
            pass
    if kind is Tensor:
        found = (_at_mask if index._meta.dtype is dtypes.bool_ else _at_rows)(self, index)
        if found is not None:
            return found
    if kind is list:
        index = as_tuple(index)
    if (found := _at_points(self, index if type(index) is tuple else (index,))) is not None:
        return found
    return _getitem_of_any(self, index)


def _at_mask(self: Tensor, mask: Tensor) -> Tensor | None:
    """What a mask selects, without the ops that tell others how; None where somebody wants to know."""
    held, places = self._data, mask._data
    if modes.CHANGED and modes.local.watched or type(self) not in PLAIN or type(held) is not np.ndarray:
        return None
    if type(places) is not np.ndarray or not 0 < places.ndim <= held.ndim:
        return None
    if held.shape[: places.ndim] != places.shape:
        return None
    found = held[places]
    made = wrap(found, type_of(self._meta.dtype, found.shape, self._meta.device))
    if not modes.is_grad_enabled():
        if modes.local.inference:
            made._storage = Inferred()
    elif self._node is not None:  # the history is that of an index by places
        kept = places.nonzero()
        kind = type_of(dtypes.int64, kept[0].shape)
        operands = (self, *[wrap(each, kind) for each in kept])
        plan = _row_plans.get(key := (self._meta, kind, len(kept)))
        if plan is None:
            attrs = {"dims": tuple(range(len(kept))), "shape": self._meta.shape}
            plan = remember(_row_plans, key, known_plan(_INDEX, operands, attrs))
        record(plan, operands, (made,), (found,))
    return made


def _at_rows(self: Tensor, rows: Tensor) -> Tensor | None:
    """What one tensor of integers picks of the first dimension; None where somebody wants to know how."""
    kind, picks = self._meta, rows._meta
    if type(self) not in PLAIN or (modes.CHANGED and modes.local.watched) or not kind.ndim or not picks.ndim:
        return None
    plan = _row_plans.get((kind, picks))
    if plan is None:
        if picks.dtype is not dtypes.int64 or kind.device is not CPU or picks.device is not CPU:
            return None
        plan = known_plan(_INDEX, (self, rows), {"dims": (0,), "shape": kind.shape})
        remember(_row_plans, (kind, picks), plan)
    return run(_INDEX, plan, (self, rows))


_INDEX = REGISTRY["index"]
_row_plans: dict[tuple, Plan] = memo()


PLAIN = (Tensor, Parameter)


def _at_points(self: Tensor, index: tuple) -> Tensor | None:
    """The view at places that 0-d integer tensors tell, beside basic items; None where other tensors stand.

    A graph can't take a view at a place that is known late: who hears of ops is told that it was picked, and
    that it is a view.
    """
    if modes.CHANGED and modes.local.levels:
        return None
    key, points = [], 0
    for item in index:
        if not isinstance(item, Tensor):
            try:
                key.append(_key(item))
            except NotBasic:
                return None
        elif item._meta.ndim or item._meta.dtype.category != "int" or item._meta.dtype is dtypes.uint8:
            return None
        elif type(item._data) is NoValues:
            return None
        else:
            points += 1
            key.append(int(on_host(item._data)))
    if not points:
        return None
    if not modes.CHANGED or modes.local.hook is None:
        return _basic_index(self, tuple(key))
    part, picks = split_index(self, index)
    places = tuple(
        [("slice", None, None, None) if pick is None else int(on_host(pick._data)) for pick in picks]
    )
    with modes.unheard():
        found = _basic_index(part, places)
    dims = tuple([d for d, pick in enumerate(picks) if pick is not None])
    op, attrs = REGISTRY["index"], {"dims": dims, "shape": part._meta.shape}
    operands = (part, *[picks[d] for d in dims])
    if found._edge is not None:  # its gradient must be told the places, too
        found._edge = None
        record(known_plan(op, operands, attrs), operands, (found,), (found._data,))
    modes.local.hook(op, attrs, operands, (found,))
    modes.tell("picked", part, found)
    return found


def _assigned(self: Tensor, index: Any, value: Tensor) -> bool:
    """Assign as NumPy does, which it does alike for what is tested here; say whether it was done."""
    data, given = self._data, value._data
    if not type(data) is type(given) is np.ndarray or not data.flags.carray:
        return False
    if value._meta.dtype is not self._meta.dtype or given.base is not None:
        return False
    if type(index) is Tensor:
        kind = index._meta
        if data.base is not None or given is data or type(index._data) is not np.ndarray:
            return False
        if (CHANGED or not index._edge is index._view is None) and not is_plain(index):
            return False
        if kind.dtype is dtypes.bool_:
            if kind.shape != self._meta.shape or value._meta.ndim:
                return False
        elif kind.dtype is not dtypes.int64 or value._meta.ndim > kind.ndim + self._meta.ndim - 1:
            return False
        try:
            data[index._data] = given
        except (IndexError, ValueError):  # before anything is written
            return False
    else:
        for item in index if type(index) is tuple else (index,):
            if type(item) is slice:
                if item.step is not None or type(item.start) not in _BOUNDS or type(item.stop) not in _BOUNDS:
                    return False
            elif type(item) is not int:
                return False
        try:
            part = data[(*index, ...) if type(index) is tuple else (index, ...)]
        except IndexError:
            return False
        if given.ndim and part.shape != given.shape:
            return False
        part[...] = given
    store = self._storage or storage_of(self)
    store.version += 1
    if getrefcount(store) > ALONE:
        store.writer = "copy_", here()
    changes.contents = next(numbers)
    return True


_BOUNDS = frozenset((int, type(None)))


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """Write `value`, broadcast and cast, into part of the tensor."""
    if OPEN and (found := answered(setitem, (self, index, value), {})) is not UNSERVED:
        return found
    if type(value) is not Tensor and not isinstance(value, Tensor):
        known = self._meta.scalars.get(value or repr(value)) if type(value) is float else None
        if known is not None:
            value = known
        elif isinstance(value, (int, float, complex)):
            if isinstance(value, complex) or not self._meta.dtype.inexact:
                fits("x[index] = value", value, self._meta.dtype)
            value = lift(self._meta, value)
        else:
            value = tensor_of(np.asarray(value, self._meta.dtype.numpy))
    kind = type(index)
    plain = not CHANGED and type(self) is type(value) is Tensor
    plain = plain and self._edge is self._view is value._edge is value._view is None
    if (plain or (is_plain(self) and is_plain(value))) and _assigned(self, index, value):
        return
    if (kind is int and self._meta.ndim) or kind is slice or kind is tuple:
        try:
            part = _basic_index(self, index if kind is int else _basic_key(index))
        except NotBasic:
            pass
        else:
            if value._meta.shape == part._meta.shape or not value._meta.ndim:  # others may not fit
                _copy_from(part, value)
                return
    _setitem_of_any(self, as_tuple(index) if kind is list else index, value)


def _delitem(self: Tensor, index: Any) -> None:
    raise ArgumentError("a tensor does not support deletion of items", "cat the parts that shall stay")


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if not self._meta.ndim:
        raise ArgumentError("a 0-d tensor can't be iterated over", "x.item() gives its value as a number")
    plain = type(self) is Tensor and type(self._data) is np.ndarray and not modes.CHANGED
    if plain and self._meta.shape[0] >= MANY and self._node is None:
        return _rows(self)
    return iter(ops.unbind(self, 0))


MANY = 32  # rows from which on a call of an op for each, with a plan of its own, is what iterating takes


def _rows(self: Tensor) -> Iterator[Tensor]:
    """What `unbind` gives, a row at a time, of a tensor without history: views by the first one's step."""
    yield (first := ops.select(self, 0, 0))
    base, (*before, (name, attrs)), history = first._view
    (_, *rest), kind, data, storage = dict(attrs)["index"], first._meta, self._data, first._storage
    for i in range(1, self._meta.shape[0]):
        row = wrap(data[i, ...], kind)
        row._storage, row._view = (
            storage,
            (base, (*before, (name, (("index", (("int", i), *rest)),))), history),
        )
        yield row


def _backwards(self: Tensor) -> Tensor:
    return ops.flip(self, 0) if self._meta.shape else self


def _contains(self: Tensor, value: Any) -> bool:
    if isinstance(value, (Tensor, int, float)):
        return bool((self == value).any())
    raise ArgumentError(f"Tensor.__contains__ only supports Tensor or scalar, not {type(value).__name__}")


METHODS: dict[str, Any] = {
    "__getitem__": _getitem, "__setitem__": setitem, "__delitem__": _delitem, "__iter__": _iterate,
    "__reversed__": _backwards, "__contains__": _contains,
}  # fmt: skip
