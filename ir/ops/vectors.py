"""Distances, differences and cross products: what geometry asks of tensors."""

from __future__ import annotations

from itertools import combinations as chosen
from itertools import combinations_with_replacement as chosen_again
from typing import Any, NamedTuple

from ..dtypes import bool_
from ..errors import ShapeError
from ..op import REGISTRY, composite
from ..shapes import broadcast_shapes, check_together, dim_of
from .along import take
from .cast import dtype_of
from .compare import eq, logical_not, ne
from .create import new_full, new_zeros
from .extremes import clamp_max
from .extremum import amax, amin
from .join import cat
from .masked import searchsorted
from .rearrange import roll
from .reduce import sum
from .sort import sort
from .spread import linalg_vector_norm
from .view import expand, narrow, reshape


@composite(method=False)
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """Compute the `p`-norm distance of each row of x1 to each row of x2.

    The gradient between equal rows is 0.  Computed from differences, whatever `compute_mode` says.
    Shapes: [..., m, k], [..., n, k] -> [..., m, n].  Raises ShapeError.
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"cdist(x1, x2): they are [..., m, k] and [..., n, k], not {list(x1.shape)} and {list(x2.shape)}"
        )
    return linalg_vector_norm(x1[..., :, None, :] - x2[..., None, :, :], p, -1)


@composite()
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Subtract from each element along `dim` the one before it, `n` times (bools: tell whether they differ).

    prepend, append: what is joined before and behind first.  Shapes: [..., k, ...] -> [..., k - n, ...].
    Raises DimError, ShapeError.
    """
    if not input.ndim:
        raise ShapeError("diff(input): a 0-d tensor has no differences", "it takes at least one dimension")
    dim = dim_of("diff", dim, input.ndim)
    if n < 0:
        raise ShapeError(f"diff(input, n): n can't be negative: {n}")
    parts = [x for x in (prepend, input, append) if x is not None] if n else [input]
    if any(x.ndim != input.ndim for x in parts):
        raise ShapeError("diff expects prepend or append to be the same dimension as input")
    x = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[dim])):  # then nothing is left
        size = x.shape[dim]
        later, before = narrow(x, dim, min(1, size), max(size - 1, 0)), narrow(x, dim, 0, max(size - 1, 0))
        x = ne(later, before) if dtype_of(x) is bool_ else later - before
    return REGISTRY["clone"](x) if x is input else x


@composite(method=False, aliases=("trapz",))
def trapezoid(y, x=None, *, dx=1, dim=-1):
    """Integrate along `dim` by trapezoids, between points `x` or at distance `dx`.

    Shapes: [..., n, ...] -> [...].  Raises DimError.
    """
    dim = dim_of("trapezoid", dim, y.ndim)
    size = y.shape[dim]
    heights = narrow(y, dim, min(1, size), max(size - 1, 0)) + narrow(y, dim, 0, max(size - 1, 0))
    if x is None:
        return sum(heights, dim=dim) * (dx / 2)
    width = diff(x, dim=dim if x.ndim == y.ndim else -1)
    if x.ndim == 1:
        width = reshape(width, tuple(-1 if d == dim else 1 for d in range(y.ndim)))
    return sum(heights * width, dim=dim) / 2


def _crossed(op: str, input: Any, other: Any, dim: int) -> Any:
    shape = broadcast_shapes(op, input.shape, other.shape)
    at = dim_of(op, dim, len(shape))
    if shape[at] != 3:
        raise ShapeError(f"{op}: dim {dim} must have size 3, not {shape[at]}")
    a, b = expand(input, shape), expand(other, shape)
    return roll(a, -1, at) * roll(b, -2, at) - roll(a, -2, at) * roll(b, -1, at)


@composite(method=False)
def linalg_cross(input, other, *, dim=-1):
    """Multiply vectors of three elements, which stand along `dim`, to one at right angles with both.

    Shapes: [..., 3, ...], the same (they broadcast) -> the same.  Raises ShapeError, DimError.
    """
    return _crossed("linalg_cross", input, other, dim)


@composite()
def cross(input, other, dim=None):
    """Multiply vectors of three elements: linalg_cross, by default along the first dimension of size 3."""
    if dim is None:
        found = [d for d, n in enumerate(input.shape) if n == 3]
        if not found:
            raise ShapeError(f"cross(input, other): no dimension of {list(input.shape)} has size 3")
        dim = found[0]
    return _crossed("cross", input, other, dim)


@composite(method=False, names={"element": "elements", "test_element": "test_elements"})
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Tell for each element whether it is among `test_elements` (invert: whether it is not).

    One of the two may be a number.  Shapes: [...], [...] -> bool, as elements.
    """
    if not hasattr(test_elements, "shape"):
        found = eq(elements, test_elements)
        return logical_not(found) if invert else found
    if not hasattr(elements, "shape"):
        elements = new_full(test_elements, (), elements)
    check_together("isin", elements, test_elements)
    known = sort(reshape(test_elements, (-1,)), 0)[0]
    if known.shape[0] == 0:
        found = eq(new_zeros(elements, elements.shape), 1)
    else:
        found = eq(take(known, clamp_max(searchsorted(known, elements), known.shape[0] - 1)), elements)
    return logical_not(found) if invert else found


@composite(method=False)
def combinations(input, r=2, with_replacement=False):
    """Give all choices of `r` elements of a 1-d tensor as rows, in the order of itertools.

    Shapes: [n] -> [n! / r! / (n - r)!, r].  Raises ShapeError.
    """
    if input.ndim != 1:
        raise ShapeError(f"combinations(input): takes one dimension, not {input.ndim}")
    rows = list((chosen_again if with_replacement else chosen)(range(input.shape[0]), r))
    if not r:
        return new_zeros(input, (0,))
    return reshape(input[[place for row in rows for place in row]], (len(rows), r))


class Aminmax(NamedTuple):
    """What `aminmax` returns."""

    min: Any
    max: Any


@composite()
def aminmax(input, *, dim=None, keepdim=False):
    """Find the smallest and the largest element over `dim` (None: of all), as (min, max).  A NaN wins."""
    dims = () if dim is None else dim
    return Aminmax(amin(input, dims, keepdim), amax(input, dims, keepdim))
