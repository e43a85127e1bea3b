"""Differences and sums of samples along dimensions, and distances between rows."""

from __future__ import annotations

from typing import Any

from ..dtypes import promote
from ..errors import ArgumentError, ArgumentValueError, ShapeError
from ..op import composite
from ..shapes import dim_of, dims_of
from .arithmetic import mul
from .cast import cast, contiguous, dtype_of
from .compare import gt, where
from .create import ones_like
from .join import cat
from .scan import cumsum
from .spread import linalg_vector_norm
from .view import narrow, reshape


def _part(x: Any, dim: int, start: int, stop: int | None) -> Any:
    n = x.shape[dim]
    end = n if stop is None else stop + n if stop < 0 else stop
    return narrow(x, dim, start, end - start)


def _along(x: Any, dim: int, ndim: int) -> Any:
    """A line of numbers, beside the elements of a tensor of `ndim` dimensions."""
    return reshape(x, (1,) * dim + (-1,) + (1,) * (ndim - dim - 1))


def _slope(input: Any, dim: int, spacing: Any, edge_order: int) -> Any:
    """The derivative along `dim`: central differences inside, one-sided ones at both ends.

    spacing: the distance of samples, or their coordinates.  Source: Fornberg, Generation of finite difference
    formulas on arbitrarily spaced grids, 1988, for three points.
    """
    n, ndim = input.shape[dim], input.ndim
    if n <= edge_order:
        raise ShapeError(f"gradient: dimension {dim} needs more than {edge_order} places, it has {n}")
    if getattr(spacing, "ndim", 0):
        if tuple(spacing.shape) != (n,):
            raise ShapeError(
                f"gradient: {n} coordinates are needed in dimension {dim}, not {list(spacing.shape)}"
            )
        steps = _along(_part(spacing, 0, 1, None) - _part(spacing, 0, 0, -1), dim, ndim)
    else:
        steps = _along(ones_like(narrow(reshape(input, (-1,)), 0, 0, n - 1)) * spacing, dim, ndim)
    if dtype_of(input).inexact:  # a float32 rounds differences that small steps make large
        input = cast(input, dtype=promote(dtype_of(input), dtype_of(steps)))
    rises = (_part(input, dim, 1, None) - _part(input, dim, 0, -1)) / steps
    first, last = narrow(rises, dim, 0, 1), narrow(rises, dim, n - 2, 1)
    if n == 2:
        return cat((first, last), dim)
    before, after = _part(steps, dim, 0, -1), _part(steps, dim, 1, None)
    lower, upper = _part(rises, dim, 0, -1), _part(rises, dim, 1, None)
    if getattr(spacing, "ndim", 0):
        inside = (lower * after + upper * before) / (before + after)
    else:  # the sample between takes no part, be it NaN
        inside = (_part(input, dim, 2, None) - _part(input, dim, 0, -2)) / (2.0 * spacing)
    if edge_order == 2:
        bend = (upper - lower) / (before + after)
        first = first - narrow(bend, dim, 0, 1) * narrow(steps, dim, 0, 1)
        last = last + narrow(bend, dim, n - 3, 1) * narrow(steps, dim, n - 2, 1)
    return cat((first, inside, last), dim)


@composite(method=False)
def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Estimate the derivative along each of `dim` (None: all) from samples, by differences of second order.

    spacing: the distance of samples, or for each dimension a distance or a tensor of coordinates.
    edge_order: that of the differences at both ends, 1 or 2.
    Returns a tuple of tensors of the input's shape.
    Raises ShapeError, ArgumentError.
    """
    dims = [dim] if isinstance(dim, int) else list(range(input.ndim) if dim is None else dim)
    dims = [dim_of("gradient", d, input.ndim) for d in dims]
    spacing = 1 if spacing is None else spacing
    spaces = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(spaces) != len(dims):
        raise ArgumentError(
            f"gradient: expected spacing to be one number, or one for each of {len(dims)} dimensions, "
            f"not {len(spaces)}"
        )
    if edge_order not in (1, 2):
        raise ArgumentValueError(f"gradient: edge_order is 1 or 2, not {edge_order!r}")
    return tuple(_slope(input, d, s, edge_order) for d, s in zip(dims, spaces))


@composite(method=False)
def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """Integrate samples along `dim` by the trapezoidal rule, up to each but the first.

    x: the samples' places, [n] or of y's shape; without, they lie `dx` apart.
    """
    dim = dim_of("cumulative_trapezoid", dim, y.ndim)
    means = (_part(y, dim, 1, None) + _part(y, dim, 0, -1)) / 2.0
    if x is not None:
        if x.ndim == 1:
            x = _along(x, dim, y.ndim)
        else:
            x = reshape(x, (1,) * (y.ndim - x.ndim) + tuple(x.shape))
        return cumsum(means * (_part(x, dim, 1, None) - _part(x, dim, 0, -1)), dim)
    return cumsum(means, dim) * dx


@composite(method=False)
def pdist(input, p=2.0):
    """Compute the p-norm distance of every two of n rows.  Shapes: [n, m] -> [n(n-1)/2]."""
    if input.ndim != 2:
        raise ShapeError(f"pdist: takes [n, m], not {list(input.shape)}")
    n = input.shape[0]
    rows, columns = (
        [i for i in range(n) for _ in range(i + 1, n)],
        [j for i in range(n) for j in range(i + 1, n)],
    )
    return linalg_vector_norm(input[rows] - input[columns], p, 1)


@composite(inplace=True)
def renorm(input, p, dim, maxnorm):
    """Scale down the slices of a dimension whose p-norm exceeds `maxnorm`, to it.  Raises DimError."""
    dim = dim_of("renorm", dim, input.ndim)
    if input.ndim < 2:
        raise ShapeError(f"renorm: takes two dimensions or more, not {list(input.shape)}")
    others = tuple(d for d in dims_of("renorm", None, input.ndim) if d != dim)
    norms = linalg_vector_norm(input, p, others, True)
    return contiguous(mul(input, where(gt(norms, maxnorm), maxnorm / (norms + 1e-7), 1.0)))
