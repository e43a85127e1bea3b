"""Summaries of data: quantiles, histograms, modes, covariances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import int64
from ..errors import ArgumentValueError, ShapeError
from ..op import REGISTRY, composite, define
from ..sample import Operand, Sample
from ..shapes import dim_of
from ..types import Type
from .cast import cast, dtype_of
from .compare import eq, ge, isnan, le, logical_and, logical_not, where
from .complex import conj, imag, is_complex_valued, real
from .create import new_full, new_zeros, ones_like
from .extremes import clamp, clamp_min
from .extremum import amax, amin
from .gather import gather, scatter_add
from .matmul import matmul
from .powers import sqrt
from .reduce import any, not_empty, reduced, sum
from .rounding import ceil, floor, round
from .sort import EXTERN, grad_picked, picked_one, sort
from .view import expand, movedim, reshape, unsqueeze
from .windows import diagonal


def _need_float(op: str, x: Any) -> None:
    if not dtype_of(x).is_floating_point:
        raise dtype_of(x).refused(op, "convert first: x.float()")


# ---- quantiles

_BETWEEN = ("linear", "lower", "higher", "midpoint", "nearest")


@composite()
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """Find the value that a fraction `q` of the elements along `dim` (None: of all) lies below.

    q: a number, or a tensor of several, which come first in the result.  interpolation, between two elements:
    "linear", "lower", "higher", "midpoint" or "nearest".  A NaN wins.  Shapes: [..., n, ...] -> [*q, ...].
    Raises ArgumentValueError, DTypeError for integers, ShapeError where there are no elements.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, skip=False)


@composite()
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """Find the value that a fraction `q` of the elements lies below, leaving out NaN.  See quantile."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, skip=True)


def _quantile(op: str, input: Any, q: Any, dim: Any, keepdim: bool, between: str, skip: bool) -> Any:
    if between not in _BETWEEN:
        raise ArgumentValueError(f"{op}: interpolation is one of {', '.join(_BETWEEN)}, not {between!r}")
    alone = isinstance(q, (int, float))
    if alone and not 0 <= q <= 1:
        raise ArgumentValueError(f"{op}: q lies in [0, 1]: {q}")
    if not alone and q.ndim > 1:
        raise ShapeError(f"{op}: q is a number or has one dimension, not {q.ndim}")
    _need_float(op, input)
    last = -1 if dim is None else dim_of(op, dim, input.ndim)
    values = reshape(input, (-1,)) if dim is None or not input.ndim else movedim(input, last, -1)
    if values.shape[-1] == 0:
        raise ShapeError(f"{op}() input tensor must be non-empty: of no elements there is no {op}")
    values = sort(values, -1)[0]
    unknown = isnan(values)
    known = sum(logical_not(unknown), dim=-1, keepdim=True) if skip else values.shape[-1]
    wanted = new_full(values, (1,), q) if alone else reshape(q, (-1,))
    rank = wanted * (clamp_min(known - 1, 0) if skip else known - 1)
    if between in ("lower", "higher", "nearest"):
        rank = {"lower": floor, "higher": ceil, "nearest": round}[between](rank)
    rank = expand(rank, (*values.shape[:-1], wanted.shape[0]))
    start, stop = floor(rank), ceil(rank)
    low, high = (gather(values, -1, cast(place, dtype=int64)) for place in (start, stop))
    weight = 0.5 if between == "midpoint" else rank - start
    out = where(eq(start, stop), low, low + (high - low) * weight)
    if not skip:
        out = where(any(unknown, dim=-1, keepdim=True), float("nan"), out)
    if keepdim and dim is None:
        out = reshape(out, (*(1 for _ in input.shape), -1))
    elif keepdim and input.ndim:
        out = unsqueeze(out, last)
    return out[..., 0] if alone or not q.ndim else movedim(out, -1, 0)


# ---- counts


@composite()
def histc(input, bins=100, min=0, max=0):
    """Count the elements in `bins` intervals of one width from `min` to `max`; those outside don't count.

    Where min equals max, from the least element to the greatest.  The last interval has both its ends.
    Shapes: [...] -> [bins], in the dtype of the input.  Raises ArgumentValueError, DTypeError for integers.
    """
    if bins < 1:
        raise ArgumentValueError(f"histc: bins must be > 0, not {bins}")
    if min > max:
        raise ArgumentValueError(f"histc: max must be larger than min, not {min} and {max}")
    _need_float("histc", input)
    flat = reshape(input, (-1,))
    if flat.shape[0] == 0:
        return new_zeros(flat, (bins,))
    low, high = new_full(flat, (), min), new_full(flat, (), max)
    if min == max:
        low, high = amin(flat), amax(flat)
        one = eq(low, high)
        low, high = where(one, low - 1.0, low), where(one, high + 1.0, high)
    inside = logical_and(ge(flat, low), le(flat, high))
    place = floor((where(inside, flat, low) - low) * bins / (high - low))
    place = cast(clamp(place, 0, bins - 1), dtype=int64)
    return scatter_add(new_zeros(flat, (bins,)), 0, place, where(inside, ones_like(flat), 0.0))


def bind_mode(input, dim=-1, keepdim=False):
    """Find the most frequent element along `dim`, the least of several; returns (values, int64 indices).

    The index is that of the last such element.  Shapes: [..., n, ...] -> [...], or [..., 1, ...] with
    `keepdim`. The gradient goes to where the values came from.  Raises DimError.
    """
    return (input,), {"dim": dim_of("mode", dim, input.ndim), "keepdim": bool(keepdim)}


def _infer_mode(input: Type, *, dim: int, keepdim: bool) -> tuple[Type, Type]:
    dims = (dim,) if input.ndim else ()
    not_empty("mode", input.shape, dims)
    return reduced(input, dims, keepdim), reduced(input, dims, keepdim, int64)


def _last_mode(line: np.ndarray) -> int:
    values, counts = np.unique(line, return_counts=True)
    most = values[counts.argmax()]
    return int(np.flatnonzero((line == most) | ((line != line) & (most != most)))[-1])  # NaN != NaN


def _mode(input: Any, *, dim: int, keepdim: bool) -> tuple:
    if not input.ndim:
        return np.array(input), np.array(0)
    indices = np.empty(tuple(1 if d == dim else n for d, n in enumerate(input.shape)), np.int64)
    lines, found = np.moveaxis(input, dim, -1), np.moveaxis(indices, dim, -1)
    for place in np.ndindex(lines.shape[:-1]):
        found[place] = _last_mode(lines[place])
    return picked_one(input, indices, dim, keepdim)


mode = define(
    "mode",
    bind=bind_mode,
    infer=_infer_mode,
    reference=_mode,
    grad=grad_picked(False),
    outputs=("values", "indices"),
    lower=EXTERN,
    samples=lambda: [
        *(Sample((Operand(shape, distinct=True),)) for shape in ((), (0, 2), (1,), (17,), (3, 33))),
        Sample((Operand((4, 3), distinct=True),), {"dim": 0, "keepdim": True}),
    ],
)


# ---- covariances


@composite()
def cov(input, *, correction=1, fweights=None, aweights=None):
    """Compute the covariances of variables (rows) over observations (columns).

    The products of distances from the mean add up and are divided by n - `correction`.  fweights: how often
    each observation counts; aweights: how much.  Shapes: [m, n] -> [m, m]; [n] and [] count as one variable
    -> []. Raises ShapeError.
    """
    if input.ndim > 2:
        raise ShapeError(
            f"cov(input): takes at most two dimensions, not {input.ndim}", "one row per variable"
        )
    x = input if input.ndim == 2 else reshape(input, (1, -1))
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        left, total, weighed = x.shape[1] - correction, x.shape[1], 1.0
        left = left if left > 0 else 0.0
    else:
        total, weighed = sum(weights), weights
        lost = correction if aweights is None else correction * sum(weights * aweights) / total
        left = clamp_min(total - lost, 0)
    distance = x - sum(x * weighed, dim=1, keepdim=True) / total
    products = matmul(distance * weighed, conj(distance).mT) / left
    return products if input.ndim == 2 and input.shape[0] != 1 else reshape(products, ())


@composite()
def corrcoef(input):
    """Compute the correlations of variables (rows) over observations (columns), in [-1, 1].

    Shapes: [m, n] -> [m, m]; [n] and [] count as one variable -> [].  Raises ShapeError.
    """
    products = cov(input)
    if not products.ndim:
        return products / products
    length = sqrt(real(diagonal(products)))
    found = products / length[:, None] / length[None, :]
    if is_complex_valued(found):
        return REGISTRY["complex"](clamp(real(found), -1, 1), clamp(imag(found), -1, 1))
    return clamp(found, -1, 1)
