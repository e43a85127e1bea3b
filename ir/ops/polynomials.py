"""Orthogonal polynomials of degree n at x, by their recurrences; PyTorch keeps them under `torch.special`.

Every family is p[k + 1] = a(k) p[k] + b(k) p[k - 1] from p[0] = 1 and its p[1].
Source: Abramowitz and Stegun, chapter 22.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import lowering
from ..elementwise import elementwise
from ..errors import ArgumentValueError
from ..op import Op
from ..sample import binary_samples

MOST = 1 << 16  # the highest degree: a step over all elements for each


@dataclass(frozen=True)
class Family:
    """first(x): p[1].  step(k, x, p, q): p[k + 1] of p = p[k] and q = p[k - 1]."""

    words: str
    first: Callable[[Any], Any]
    step: Callable[[int, Any, Any, Any], Any]


def _chebyshev(words: str, first: Callable[[Any], Any], shifted: bool) -> Family:
    """Of an argument z, which is x, or 2 x - 1 for the shifted kinds: p[k + 1] = 2 z p[k] - p[k - 1]."""
    if not shifted:
        return Family(f"Chebyshev polynomial of the {words} kind", first, lambda k, x, p, q: 2 * x * p - q)
    return Family(
        f"shifted Chebyshev polynomial of the {words} kind",
        lambda x: first(2 * x - 1),
        lambda k, x, p, q: 2 * (2 * x - 1) * p - q,
    )


KINDS = {
    "t": ("first", lambda z: z),
    "u": ("second", lambda z: 2 * z),
    "v": ("third", lambda z: 2 * z - 1),
    "w": ("fourth", lambda z: 2 * z + 1),
}
FAMILIES = {
    **{f"chebyshev_polynomial_{k}": _chebyshev(*kind, False) for k, kind in KINDS.items()},
    **{f"shifted_chebyshev_polynomial_{k}": _chebyshev(*kind, True) for k, kind in KINDS.items()},
    "hermite_polynomial_h": Family(
        "physicist's Hermite polynomial", lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q
    ),
    "hermite_polynomial_he": Family(
        "probabilist's Hermite polynomial", lambda x: x, lambda k, x, p, q: x * p - k * q
    ),
    "laguerre_polynomial_l": Family(
        "Laguerre polynomial", lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
    ),
    "legendre_polynomial_p": Family(
        "Legendre polynomial", lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
    ),
}


def _evaluated(name: str, family: Family, input: Any, n: Any) -> Any:
    """The polynomials at `input`, of the degrees `n` without their fractions; 0 below degree 0."""
    x, degree = np.broadcast_arrays(input, np.trunc(n))
    highest = np.max(degree[np.isfinite(degree)], initial=-1.0)
    if highest > MOST:
        raise ArgumentValueError(f"special_{name}: a degree of at most {MOST} is needed, not {highest:.0f}")
    one = np.ones_like(x)
    out = np.where(degree < 0, x.dtype.type(0), np.where(degree == 0, one, x.dtype.type(np.nan)))
    before, now = one, np.asarray(family.first(x)).astype(x.dtype)
    for k in range(1, int(highest) + 1):
        out = np.where(degree == k, now, out)
        before, now = now, np.asarray(family.step(k, x, now, before)).astype(x.dtype)
    return out


def _polynomial(name: str, family: Family) -> Op:
    def reference(input: Any, n: Any) -> Any:
        return _evaluated(name, family, input, n)

    return elementwise(
        f"special_{name}",
        reference,
        reference=reference,
        operands=("input", "n"),
        result="float",
        grad=None,
        lower=lowering.extern("as many steps as the largest value of an operand says"),
        samples=binary_samples({"low": -1.0, "high": 1.0}, {"low": 0.0, "high": 5.0}),
        inplace=False,
        refuses=True,
        method=False,
        doc=f"Evaluate the {family.words} of degree n (without its fraction), 0 for a negative n.",
    )


for _name, _family in FAMILIES.items():
    _polynomial(_name, _family)
