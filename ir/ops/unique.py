"""Distinct elements: their number depends on the values, so a host finds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dims import symbol
from ..dtypes import int64
from ..op import Traits, composite, define
from ..sample import Operand, Sample
from ..shapes import dim_of
from ..types import Type, type_of
from .create import new_ones
from .index import index, unindex
from .view import reshape

# A size that only the values tell.
_COUNT = symbol("count")


def bind_unique_parts(input, dim=None, consecutive=False):
    """Find the distinct elements (or slices along `dim`): what unique and unique_consecutive call.

    Returns the elements, in order; where each element of the input stands among them; how often each occurs.
    With `consecutive` only neighbours count as equal, and the order is the input's.  No NaN equals another.
    The gradient of an element is shared by all that are equal to it (PyTorch has none).
    Shapes: [...] -> [count], [...], [count]; with `dim` [..., n, ...] -> [..., count, ...], [n], [count].
    """
    dim = None if dim is None else dim_of("unique", dim, input.ndim)
    return (input,), {"dim": dim if input.ndim else None, "consecutive": bool(consecutive)}


def _infer(input: Type, *, dim: int | None, consecutive: bool) -> tuple[Type, Type, Type]:
    if dim is None:
        shape, places = (_COUNT,), input.shape
    else:
        shape = tuple(_COUNT if d == dim else n for d, n in enumerate(input.shape))
        places = (input.shape[dim],)
    counts = type_of(int64, (_COUNT,), input.device)
    return input.with_shape(shape), type_of(int64, places, input.device), counts


def _runs(input: Any, dim: int | None) -> tuple:
    """The first of each run of equal neighbours, the run that each belongs to, and how long the runs are."""
    line = input.reshape(-1) if dim is None else np.moveaxis(input, dim, 0)
    rows = line.reshape(len(line), -1) if line.size else line.reshape(len(line), 0)
    new = np.ones(len(line), np.bool_)
    new[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(new)
    found = line[starts] if dim is None else np.moveaxis(line[starts], 0, dim)
    return found, np.cumsum(new) - 1, np.diff(starts, append=len(line))


def _unique(input: Any, *, dim: int | None, consecutive: bool) -> tuple:
    if consecutive:
        found, places, counts = _runs(input, dim)
    else:
        found, places, counts = np.unique(
            input, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
        )
    return found, places.reshape(input.shape if dim is None else -1), counts


def _grad(g: Any, inverse: Any, dim: int | None) -> Any:
    """What goes to an element is shared by all that are equal to it."""
    at = dim or 0
    ones = new_ones(g, inverse.shape)
    counts = unindex(ones, (g.shape[at],), (inverse,))
    each = reshape(counts, [-1 if d == at else 1 for d in range(g.ndim)])
    return index(g / each, (*[None] * at, inverse))


unique_parts = define(
    "unique_parts",
    bind=bind_unique_parts,
    infer=_infer,
    reference=_unique,
    grad=_grad,
    outputs=("values", "inverse", "counts"),
    lower=lowering.host_only("the number of distinct elements depends on the values"),
    traits=Traits(host=True),
    samples=lambda: [
        *(Sample((Operand(shape, high=3.0),)) for shape in ((), (0,), (1,), (17,), (33,), (3, 4))),
        Sample((Operand((5, 2), low=0.0, category="int"),), {"dim": 0}),
        Sample((Operand((2, 9), low=0.0, category="int"),), {"dim": 1, "consecutive": True}),
        Sample((Operand((9,), low=0.0, category="int"),), {"consecutive": True}),
    ],
    method=False,
)


def _asked(parts: tuple, return_inverse: bool, return_counts: bool) -> Any:
    """The first part alone, or a tuple of the parts asked for."""
    found = [parts[0]]
    if return_inverse:
        found.append(parts[1])
    if return_counts:
        found.append(parts[2])
    return tuple(found) if len(found) > 1 else found[0]


@composite()
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """Find the distinct elements, or slices along `dim`, in ascending order (whatever `sorted` says).

    With `return_inverse`, `return_counts` also where each element of the input stands among them, and how
    often each occurs.  Raises DimError.
    """
    return _asked(unique_parts(input, dim), return_inverse, return_counts)


@composite()
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Leave one of each run of equal neighbours, of elements or of slices along `dim`.

    With `return_inverse`, `return_counts` also the run that each element of the input belongs to, and how
    long each run is.  Raises DimError.
    """
    return _asked(unique_parts(input, dim, True), return_inverse, return_counts)
