"""Elements sent to places: put, index_reduce; and sum_to_size, which takes broadcasting back."""

from __future__ import annotations

from math import prod
from typing import Any

from ..dtypes import int64
from ..errors import ArgumentValueError, ShapeError
from ..op import composite
from ..shapes import check_together, dim_of
from .along import along
from .cast import cast
from .index import index_put
from .reduce import sum
from .scatter_reduce import scatter_reduce
from .view import reshape


@composite(inplace=True)
def put(input, index, source, accumulate=False):
    """Write (accumulate: add) the elements of `source` to places of the flattened input; negative ones count
    from the end.  Raises DimError for a place outside of it, ShapeError, DTypeError.
    """
    if prod(index.shape) != prod(source.shape):
        raise ShapeError(f"put: {prod(index.shape)} places for {prod(source.shape)} elements of source")
    check_together("put", input, index)
    flat = reshape(input, (-1,))
    written = index_put(flat, (reshape(index, (-1,)),), reshape(source, (-1,)), accumulate)
    return reshape(written, input.shape)


_REDUCTIONS = ("prod", "mean", "amax", "amin")


@composite(inplace=True)
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """Reduce slices of `source` into those places of a dimension that `index` names: by "prod", "mean",
    "amax" or "amin".  include_self: what stands there takes part.  Raises DimError, ShapeError.
    """
    if reduce not in _REDUCTIONS:
        raise ArgumentValueError(f"index_reduce: reduce must be one of {list(_REDUCTIONS)}, not {reduce!r}")
    shape = input.shape or (1,)
    dim = dim_of("index_reduce", dim, input.ndim)
    places = along(index, dim, shape)
    if tuple(places.shape) != tuple(source.shape or (1,)):
        raise ShapeError(
            f"index_reduce: source must have shape {list(places.shape)}, not {list(source.shape)}"
        )
    found = scatter_reduce(
        reshape(input, shape), dim, cast_to_long(places), reshape(source, places.shape), reduce,
        include_self=include_self,
    )  # fmt: skip
    return reshape(found, input.shape)


def cast_to_long(index: Any) -> Any:
    """An index as int64, which all records take."""
    from_dtype = index.dtype.name
    return index if from_dtype == "int64" else cast(index, dtype=int64)


@composite(public=False)
def sum_to_size(input, *size):
    """Add up what broadcasting to this tensor's shape had repeated: the result has shape `size`.

    Raises ShapeError unless `size` broadcasts to the shape.
    """
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    extra = input.ndim - len(size)
    pairs = list(zip(input.shape[max(extra, 0) :], size))
    if extra < 0 or any(n != m and m != 1 for n, m in pairs):
        raise ShapeError(f"sum_to_size: {list(size)} does not broadcast to {list(input.shape)}")
    dims = tuple(range(extra)) + tuple(d + extra for d, (n, m) in enumerate(pairs) if m == 1 and n != 1)
    if size and tuple(input.shape) == tuple(size):
        return input
    return reshape(sum(input, dims), size)
