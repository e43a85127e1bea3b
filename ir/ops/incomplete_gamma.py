"""The regularised incomplete gamma function, lower."""

from __future__ import annotations

import numpy as np

from .. import lowering
from ..elementwise import elementwise
from ..kernel import special
from ..sample import binary_samples
from .gamma import lgamma
from .math import exp, xlogy

_LIMIT = 10_000  # terms: enough for a up to 1e7, as some 5 sqrt(a) of them count beside x = a
_TINY = 1e-300


def _series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 6.5.29, of positive terms; for x < a + 1."""
    term = 1.0 / a
    total = term.copy()
    for n in range(1, _LIMIT):
        term = term * (x / (a + n))
        total += term
        if (term <= 1e-17 * total).all():
            break
    return total


def _fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 6.5.31, by Lentz's method, of the upper function; for x > a + 1."""
    b = x + 1.0 - a
    c, d = np.full_like(x, 1.0 / _TINY), 1.0 / b
    found = d.copy()
    for n in range(1, _LIMIT):
        step = -n * (n - a)
        b = b + 2.0
        d = step * d + b
        d = 1.0 / np.where(np.abs(d) < _TINY, _TINY, d)
        c = b + step / c
        c = np.where(np.abs(c) < _TINY, _TINY, c)
        found *= c * d
        if (np.abs(c * d - 1.0) <= 5e-16).all():
            break
    return found


def _gammainc(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    dtype = np.result_type(input, other)
    a, x = (np.array(v, np.float64) for v in np.broadcast_arrays(input, other))
    out = np.full(a.shape, np.nan)
    out[(x == 0) & (a > 0)] = 0.0
    out[((a == 0) & (x > 0)) | ((a > 0) & np.isposinf(x))] = 1.0
    out[np.isposinf(a) & (x >= 0) & np.isfinite(x)] = 0.0
    known = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    with np.errstate(all="ignore"):
        front = np.exp(a * np.log(x) - x - special.lgamma(a))
        low, high = known & (x < a + 1), known & (x >= a + 1)
        if low.any():
            out[low] = front[low] * _series(a[low], x[low])
        if high.any():
            out[high] = 1.0 - front[high] * _fraction(a[high], x[high])
    return np.asarray(out, dtype)


gammainc = elementwise(
    "gammainc",
    _gammainc,
    operands=("input", "other"),
    result="float",
    grad=(None, lambda g, input, other: g * exp(xlogy(input - 1.0, other) - other - lgamma(input))),
    lower=lowering.extern("sums until it has converged"),
    samples=binary_samples({"low": 0.3, "high": 4.0}),
    inplace=False,
    method=False,
    doc="""Compute the regularised lower incomplete gamma function P(input, other).

    Shapes: broadcast.  There is no gradient to `input`, as in PyTorch.
    """,
)
