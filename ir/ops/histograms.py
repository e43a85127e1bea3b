"""Counts of values in bins of one and more dimensions, and the coordinates of flat places."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ..dims import Dim
from ..dtypes import float64
from ..errors import ArgumentError, ArgumentValueError, DTypeError
from ..op import composite
from ..shapes import at_least
from .arithmetic import floor_divide, remainder
from .cast import cast, clone, dtype_of
from .compare import eq, ge, le, logical_and, lt, where
from .create import new_ones
from .extremum import amax, amin
from .index import unindex
from .masked import searchsorted
from .reduce import sum
from .scan import cumsum
from .split import unbind
from .view import reshape


class Histogram(NamedTuple):
    """What `histogram` returns."""

    hist: Any
    bin_edges: Any


class HistogramDD(NamedTuple):
    """What `histogramdd` returns."""

    hist: Any
    bin_edges: Any


def _edges(op: str, values: Any, bins: Any, span: Any) -> Any:
    """The borders of bins: those given, or so many equal ones between `span`, else the least and greatest."""
    if not isinstance(bins, int):
        if getattr(bins, "ndim", 0) != 1:
            raise ArgumentError(f"{op}: bins is an int, or edges in one dimension, not {type(bins).__name__}")
        return clone(bins)
    if bins < 1:
        raise ArgumentValueError(f"{op}: bins must be positive, not {bins}")
    if span is not None:
        low, high = span
    elif prod(values.shape):
        low, high = amin(values).item(), amax(values).item()
    else:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    if not low < high or abs(low) == float("inf") or abs(high) == float("inf"):
        raise ArgumentValueError(f"{op}: the range must be finite and ascend, not {low}, {high}")
    count, step = cumsum(new_ones(values, (bins + 1,)), 0) - 1.0, (high - low) / bins
    return where(lt(count, (bins + 1) // 2), count * step + low, high - (bins - count) * step)


def _counted(op: str, columns: list, edges: list, weight: Any, density: bool, dtype: Any) -> Any:
    """How many points fall into each cell; of the last bin the upper border counts."""
    places, inside, cells = None, None, 1
    for values, edge in zip(columns, edges):
        last = edge.shape[0] - 1
        found = searchsorted(edge, values, right=True) - 1
        found = where(eq(values, edge[-1]), last - 1, found)
        within = logical_and(ge(values, edge[0]), le(values, edge[-1]))
        found = where(within, found, 0)
        places = found if places is None else places * last + found
        inside = within if inside is None else logical_and(inside, within)
        cells *= last
    one = cast(inside, dtype=dtype)
    weights = one if weight is None else one * reshape(weight, one.shape)
    counts = unindex(cast(weights, dtype=float64), (cells,), (places,))  # unlike bincount with a gradient
    hist = reshape(cast(counts, dtype=dtype), [e.shape[0] - 1 for e in edges])
    if density:
        hist = hist / sum(hist)
        for d, edge in enumerate(edges):
            hist = hist / reshape(edge[1:] - edge[:-1], [-1 if k == d else 1 for k in range(len(edges))])
    return hist


@composite()
def histogram(input, bins=100, *, range=None, weight=None, density=False):
    """Count the values in `bins` equal intervals of `range`, or between the borders that `bins` lists.

    Of the last interval the upper border counts.  weight: added up in place of ones.  density: so that the
    integral is 1.  Returns (hist, bin_edges).  Raises DTypeError, ArgumentError, ArgumentValueError.
    """
    if not dtype_of(input).is_floating_point:
        raise dtype_of(input).refused("histogram", "convert it: x.float()")
    values = reshape(input, (-1,))
    edges = _edges("histogram", values, bins, range)
    return Histogram(_counted("histogram", [values], [edges], weight, density, dtype_of(input)), edges)


@composite(method=False)
def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """Count the points, which stand along the last dimension, in each cell of a grid: see `histogram`.

    bins: an int, an int for each dimension, or borders for each.
    range: least and greatest of each dimension, one after the other.  Returns (hist, a tuple of bin_edges).
    """
    if not dtype_of(input).is_floating_point:
        raise dtype_of(input).refused("histogramdd", "convert it: x.float()")
    size = input.shape[-1]
    points = reshape(input, (-1, size))
    columns = list(unbind(points, 1))
    each = [bins] * size if isinstance(bins, int) else list(bins)
    spans = [None] * size if range is None else [tuple(range[2 * d : 2 * d + 2]) for d, _ in enumerate(each)]
    if len(each) != size or any(s is not None and len(s) != 2 for s in spans):
        raise ArgumentError(f"histogramdd: takes bins and ranges for {size} dimensions")
    edges = [_edges("histogramdd", c, b, s) for c, b, s in zip(columns, each, spans)]
    hist = _counted("histogramdd", columns, edges, weight, density, dtype_of(input))
    return HistogramDD(hist, tuple(edges))


@composite(method=False)
def unravel_index(indices, shape):
    """Give the coordinates in a tensor of `shape` of places counted in its flat form, as a tuple of tensors.

    Raises DTypeError for indices that are no integers, ArgumentError and ArgumentValueError for what is no
    shape.
    """
    if dtype_of(indices).category != "int":
        raise DTypeError(f"unravel_index: expected 'indices' to be integer, not {dtype_of(indices).name}")
    if not isinstance(shape, (int, tuple, list)):
        raise ArgumentError(
            f"unravel_index: expected 'shape' to be int or sequence of ints, not {type(shape).__name__}"
        )
    found = []
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    odd = [n for n in shape if not isinstance(n, (int, Dim))]
    if odd:
        raise ArgumentError(
            f"unravel_index: expected 'shape' sequence to only contain ints, not {type(odd[0]).__name__}"
        )
    if not all(at_least(n, 0) for n in shape):
        raise ArgumentValueError(f"unravel_index: 'shape' cannot have negative values, but got {shape}")
    for n in reversed(shape):
        found.append(remainder(indices, n))
        indices = floor_divide(indices, n)
    return tuple(reversed(found))
