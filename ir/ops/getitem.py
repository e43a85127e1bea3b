"""x[index] and x[index] = value, in all of NumPy's forms.

An index falls into a basic part, which is a view, and tensors that pick places of that view's dimensions.
"""

from __future__ import annotations

from math import prod
from operator import index as as_int
from typing import Any

import numpy as np

from ..dims import Dim
from ..errors import DimError, ShapeError
from ..op import REGISTRY, composite
from ..types import Shape
from ..warned import warn
from .cast import type_as
from .index import index as pick
from .index import picked, result_shape, warn_of_bytes
from .view import basic_index, reshape

_WHOLE = ("slice", None, None, None)


@composite(method=False)
def getitem(input, index):
    """Take the part that ints, slices, None, Ellipsis, integer tensors and bool masks select: x[index].

    Without tensors and masks the result is a view.  A mask must have the sizes of the dimensions that it
    stands for, and is read by the host.  Raises DimError for what is out of range, ArgumentValueError for a
    step that is not positive, DTypeError for a tensor that is neither integer nor bool.
    """
    part, indices = split_index(input, index)
    return pick(part, indices) if indices else part


@composite(method=False)
def setitem_(input, index, value):
    """Write `value`, broadcast, to the part that `index` selects, in place: x[index] = value."""
    if hasattr(index, "dtype") and (is_mask(index) or index.dtype.name == "uint8"):
        if value.ndim and prod(value.shape) == 1:  # is a number, of whatever dtype
            value = reshape(value, ())
        if value.ndim == 0 and input.ndim and is_mask(index) and tuple(index.shape) == tuple(input.shape):
            input.masked_fill_(index, value)  # no need to know where the mask is true
            return
    part, indices = split_index(input, index)
    if indices and all(i is None or not i.ndim for i in indices):  # as of a view
        value = type_as(value, input)
    shape = result_shape(part.shape, *picked(indices)) if indices else part.shape
    surplus = max(value.ndim - len(shape), 0)
    if surplus and all(n == 1 for n in value.shape[:surplus]):  # x[0] = a value of shape [1, n]
        value = reshape(value, value.shape[surplus:])
    try:
        if indices:
            part.index_put_(indices, value)
        else:
            part.copy_(value)
    except ShapeError:
        raise ShapeError(
            f"x[index] = value: shape mismatch: a value of shape {list(value.shape)} cannot be broadcast to "
            f"what the index selects, {list(shape)}"
        ) from None


def as_tuple(index: list) -> Any:
    """A list that holds indices of several dimensions, as the tuple it is taken for; others as they are."""
    if len(index) < 32 and any(_is_index(item) for item in index):
        warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated: x[[a, b]] is taken as "
            "x[a, b]; write x[tuple(indices)]",
            UserWarning,
            stacklevel=3,
        )
        return tuple(index)
    return index


def _is_index(item: Any) -> bool:
    """Whether an item of a list is no number."""
    if item is None or item is Ellipsis or isinstance(item, (list, tuple, range, slice)):
        return True
    return hasattr(item, "dtype") and not isinstance(item, np.generic)


def split_index(input: Any, index: Any) -> tuple[Any, tuple]:
    """The view of the basic part, and for each of its leading dimensions the tensor that picks, or None."""
    if hasattr(index, "dtype"):
        index = _as_mask(index)
    if hasattr(index, "dtype") and 0 < index.ndim <= input.ndim:  # one tensor, as most are that hold any
        if not is_mask(index):
            return input, (index,)
        _check_mask(index, input.shape, 0)
        return input, _columns(index)
    basic: list[Any] = []
    picks: list[Any] = []  # along the view's dimensions
    for item in _spread(input, index):
        if item is None or isinstance(item, tuple):
            basic.append(item)
            picks.append(None)
        elif isinstance(item, (int, Dim)) and not isinstance(item, bool):
            basic.append(item)
        elif item is True or item is False:
            basic.append(None)
            picks.append(np.zeros(int(item), np.int64))
        elif not is_mask(item):
            basic.append(_WHOLE)
            picks.append(item)
        elif item.ndim == 0:
            basic.append(None)
            picks.append(REGISTRY["argwhere"](reshape(item, (1,)))[:, 0])
        else:
            _check_mask(item, input.shape, _used(basic))
            basic.extend([_WHOLE] * item.ndim)
            picks.extend(_columns(item))
    while picks and picks[-1] is None:
        picks.pop()
    plain = all(item == _WHOLE for item in basic)
    view = input if plain and picks else basic_index(input, tuple(basic))
    return view, tuple(picks)


def _columns(mask: Any) -> tuple:
    """The indices of where a mask is true, one for each of its dimensions."""
    places = REGISTRY["argwhere"](mask)
    return tuple([places[:, d] for d in range(mask.ndim)])


def _used(basic: list) -> int:
    """How many of the operand's dimensions the items so far stand for."""
    return sum(item is not None for item in basic)


def _spread(input: Any, index: Any) -> list:
    """The items of an index: Ellipsis written out, lists as arrays, slices as tuples that can be hashed."""
    items = []
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, slice):
            item = ("slice", *map(_bound, (item.start, item.stop, item.step)))
        elif isinstance(item, (list, range)) or _is_nested(item):
            item = np.asarray(item) if len(item) else np.zeros(0, np.int64)
        elif isinstance(item, (np.bool_, np.integer)):
            item = item.item()
        _width(item)  # the first that is none is told of
        items.append(_as_mask(item) if hasattr(item, "dtype") else item)
    if any(hasattr(item, "dtype") and item.ndim for item in items):
        # a 0-d index among others is an int: it doesn't count when the others' places are told to be
        # neighbours
        items = [as_int(item) if _is_point(item) else item for item in items]
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise DimError(f"x[index]: an index can hold one Ellipsis (...), not {len(dots)}")
    named = sum(_width(item) for item in items)
    if named > input.ndim:
        raise DimError(f"x[index]: too many indices for tensor of dimension {input.ndim}: {named}")
    if dots:
        items[dots[0] : dots[0] + 1] = [_WHOLE] * (input.ndim - named)
    return items


def _as_mask(item: Any) -> Any:
    """A tensor that picks; one of uint8 is a mask, of the time before there were bools."""
    if item.dtype.name != "uint8":
        return item
    warn_of_bytes()
    return item != 0


def _is_nested(item: Any) -> bool:
    """Whether an item is a tuple of places, and no slice spelled as one."""
    return isinstance(item, tuple) and not (item and isinstance(item[0], str))


def _bound(bound: Any) -> Any:
    return bound if bound is None or isinstance(bound, Dim) else as_int(bound)


def _width(item: Any) -> int:
    """How many dimensions an item stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, (int, Dim, tuple)):
        return 1
    if not hasattr(item, "dtype"):
        raise DimError(
            f"x[index]: an index can't be a {type(item).__name__}",
            "it takes ints, slices, None, Ellipsis, integer and bool tensors, lists, and tuples of these",
        )
    return item.ndim if is_mask(item) else 1


def _is_point(item: Any) -> bool:
    """Whether an item is a 0-d integer tensor."""
    return hasattr(item, "dtype") and item.ndim == 0 and not is_mask(item)


def is_mask(item: Any) -> bool:
    """Whether a tensor's elements, or an array's, are bools."""
    return item.dtype.name == "bool"


def _check_mask(mask: Any, shape: Shape, at: int) -> None:
    for d, n in enumerate(mask.shape):
        if n != shape[at + d]:
            raise DimError(
                f"x[mask]: the mask has size {n} where dimension {at + d} has size {shape[at + d]}",
                f"shapes: {list(mask.shape)} and {list(shape)}",
            )
