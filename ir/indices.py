"""Basic indices: the ints, slices, None and Ellipsis of x[...], in one canonical form that can be hashed.

A canonical index is a tuple with one item per dimension of the operand, and one for each new dimension:

    ("int", i)                    takes place i, 0 <= i < n, and drops the dimension
    ("slice", start, stop, step)  keeps places start, start + step, ... before stop;
                                  0 <= start <= stop <= n, step > 0
    ("new",)                      a new dimension of size 1

Slices may hold symbolic sizes.  ("slice", 0, n, 1) is the whole dimension.
"""

from __future__ import annotations

from functools import lru_cache
from operator import index as as_int
from typing import Any

from .dims import Dim, maximum, minimum
from .errors import ArgumentValueError, DimError
from .types import Shape

Index = tuple[tuple, ...]

NEW = ("new",)


def whole(n: int | Dim) -> tuple:
    """The item that keeps all of a dimension of size `n`."""
    return ("slice", 0, n, 1)


def canonical(op: str, index: Any, shape: Shape) -> Index:
    """The canonical form of a basic index as the user writes it; a canonical one passes through.

    Slices may be spelled as tuples ("slice", start, stop, step) with None and negative bounds, which can be
    hashed where Python's own can't.  Raises DimError for too many indices, an int out of range or what is no
    basic index, ArgumentValueError for a step that is not positive.
    """
    items = list(index) if isinstance(index, (tuple, list)) else [index]
    named = sum(item is not None and item is not Ellipsis and item != NEW for item in items)
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise DimError(f"{op}: an index can hold one Ellipsis (...), not {len(dots)}")
    if named > len(shape):
        raise DimError(f"{op}: too many indices for tensor of dimension {len(shape)}: {named}")
    missing = [slice(None)] * (len(shape) - named)
    at = dots[0] if dots else len(items)
    items[at : at + 1] = missing
    found, d = [], 0
    for item in items:
        if item is None or item == NEW:
            found.append(NEW)
            continue
        n = shape[d]
        if isinstance(item, slice):
            found.append(_slice(op, item.start, item.stop, item.step, n))
        elif not isinstance(item, tuple):
            found.append(("int", place(op, item, d, n)))
        elif item[0] == "slice":
            _, start, stop, step = item
            found.append(_slice(op, start, stop, step, n))
        else:
            found.append(("int", place(op, item[1], d, n)))
        d += 1
    return tuple(found)


def place(op: str, i: Any, dim: int, n: int | Dim) -> int | Dim:
    """The place that `i`, counted from the end where negative, names in a dimension.  Raises DimError."""
    if isinstance(i, bool):
        i = int(i)  # True would ask NumPy for a new dimension, and is 1 to whoever looks plans up
    if not isinstance(i, (int, Dim)):
        if not hasattr(i, "__index__"):
            raise DimError(
                f"{op}: an index can't be a {type(i).__name__}",
                "it takes ints, slices, None, Ellipsis, integer and bool tensors, and tuples of these",
            )
        i = as_int(i)
    if not -n <= i < n:
        raise DimError(f"{op}: index {i} is out of bounds for dimension {dim} with size {n}")
    return i + n if i < 0 else i


def _slice(op: str, start: Any, stop: Any, step: Any, n: int | Dim) -> tuple:
    step = 1 if step is None else as_int(step)
    if step <= 0:
        raise ArgumentValueError(
            f"{op}: the step of a slice must be greater than 0, not {step}",
            "flip(x, dims) gives a dimension backwards",
        )
    if isinstance(n, int) and not (isinstance(start, Dim) or isinstance(stop, Dim)):
        start, stop, _ = slice(start, stop, step).indices(n)
        return ("slice", start, max(start, stop), step)
    start, stop = _bound(start, 0, n), _bound(stop, n, n)
    return ("slice", start, maximum(start, stop), step)


def _bound(value: Any, default: int | Dim, n: int | Dim) -> int | Dim:
    """One bound of a slice in 0 ... n, as an expression where symbols leave open which is smaller."""
    if value is None:
        return default
    value = value if isinstance(value, Dim) else as_int(value)
    return maximum(value + n, 0) if value < 0 else minimum(value, n)


def indexed_shape(index: Index) -> Shape:
    """The shape that a canonical index gives."""
    sizes: list[int | Dim] = []
    for item in index:
        if item[0] == "slice":
            _, start, stop, step = item
            sizes.append((stop - start + step - 1) // step)
        elif item is NEW or item[0] == "new":
            sizes.append(1)
    return tuple(sizes)


@lru_cache(4096)
def numpy_index(index: Index) -> tuple:
    """The same as NumPy takes it; its last item is Ellipsis, so that even an index of ints gives a view."""
    spelled = [
        numpy_slice(item) if item[0] == "slice" else None if item[0] == "new" else item[1] for item in index
    ]
    return (*spelled, Ellipsis)


def numpy_slice(item: tuple) -> slice:
    """A slice of an index as NumPy takes it."""
    return slice(*item[1:])
