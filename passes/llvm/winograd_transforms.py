"""Winograd's transforms of one dimension: as matrices of numbers, and as code on vectors.

    y = At [ (G w) * (Bt d) ]        m outputs, a window of n = m + 2 inputs, 3 taps

The points are {0, 1, -1, inf} for m = 2 and {0, +-sqrt(2), +-1/sqrt(2), inf} for m = 4: the latter's error is
half that of the usual {0, +-1, +-2, inf}, and the transforms cost the same.
Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.polynomial.polynomial import polymul

from .conv_function import Function
from .writer import Value

TAPS = 3
# By outputs of a tile: the points a > 0 of the pairs +-a.
PAIRS = {2: (1.0,), 4: (2**0.5, 0.5**0.5)}


# ---- numbers
def weight_transform(tile: int) -> np.ndarray:
    """G: [tile + 2, 3] in float64, a row for each of 0, a, -a, b, -b, ..., inf."""
    points = [0.0] + [sign * a for a in PAIRS[tile] for sign in (1, -1)]
    rows = []
    for k, p in enumerate(points):
        scale = float(np.prod([p - other for j, other in enumerate(points) if j != k]))
        rows.append([1 / scale, p / scale, p * p / scale])
    return np.array([*rows, [0, 0, 1]])


def weight_products(tile: int) -> np.ndarray:
    """G[a, r] * G[b, s], [n * n, 9] in float64: what takes the taps of a weight to U."""
    g = weight_transform(tile)
    return np.einsum("ar,bs->abrs", g, g).reshape(len(g) ** 2, TAPS**2)


def pair_polynomials(pairs: tuple[float, ...]) -> tuple[list[list[float]], list[float]]:
    """Coefficients in x * x, lowest first: for each pair the product of (x * x - b * b) over the others, and
    the product over all."""

    def product(roots: list[float]) -> list[float]:
        total = np.array([1.0])
        for b in roots:
            total = polymul(total, [-b * b, 1.0])
        return [float(c) for c in total]

    return [product([b for b in pairs if b != a]) for a in pairs], product(list(pairs))


# ---- code
def combination(f: Function, factors: Sequence[float], values: Sequence[Value]) -> Value:
    """The sum of factor * value."""
    (first, value), *rest = [pair for pair in zip(factors, values, strict=True) if pair[0]]
    total = f.scaled(first, value)
    for factor, value in rest:
        total = f.axpy(factor, value, total)
    return total


def _polynomial(f: Function, coefficients: list[float], values: list[Value]) -> Value:
    """The sum of coefficient * value; the last coefficient is 1."""
    total = values[-1]
    for c, x in zip(coefficients[:-1], values[:-1], strict=True):
        total = f.axpy(c, x, total)
    return total


def input_transform(f: Function, d: list[Value], tile: int) -> list[Value]:
    """Bt d"""
    n, pairs = len(d), PAIRS[tile]
    parts, whole = pair_polynomials(pairs)
    out = [_polynomial(f, whole, d[0 : n - 1 : 2])]
    for a, part in zip(pairs, parts, strict=True):
        even, odd = _polynomial(f, part, d[2 : n - 1 : 2]), _polynomial(f, part, d[1 : n - 2 : 2])
        out += [f.axpy(a, odd, even), f.axpy(-a, odd, even)]
    return [*out, _polynomial(f, whole, d[1::2])]


def output_transform(f: Function, x: list[Value], tile: int) -> list[Value]:
    """At x"""
    pairs = PAIRS[tile]
    sums = [f.add(x[1 + 2 * k], x[2 + 2 * k]) for k in range(len(pairs))]
    differences = [f.sub(x[1 + 2 * k], x[2 + 2 * k]) for k in range(len(pairs))]
    out = []
    for power in range(tile):
        terms = list(zip(pairs, differences if power % 2 else sums, strict=True))
        total = x[0] if power == 0 else x[-1] if power == tile - 1 else None
        for a, term in terms:
            total = f.scaled(a**power, term) if total is None else f.axpy(a**power, term, total)
        assert total is not None
        out.append(total)
    return out
