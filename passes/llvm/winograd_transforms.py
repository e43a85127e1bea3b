"""Winograd's transforms of one dimension, as code on vectors: see `kernels/winograd.py`."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.winograd import PAIRS, pair_polynomials
from .conv_function import Function
from .writer import Value


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


def input_transform(f: Function, d: list[Value]) -> list[Value]:
    """Bt d"""
    n, pairs = len(d), PAIRS[len(d)]
    parts, whole = pair_polynomials(pairs)
    out = [_polynomial(f, whole, d[0 : n - 1 : 2])]
    for a, part in zip(pairs, parts, strict=True):
        even, odd = _polynomial(f, part, d[2 : n - 1 : 2]), _polynomial(f, part, d[1 : n - 2 : 2])
        out += [f.axpy(a, odd, even), f.axpy(-a, odd, even)]
    return [*out, _polynomial(f, whole, d[1::2])]


def output_transform(f: Function, x: list[Value], tile: int) -> list[Value]:
    """At x, of `tile` outputs"""
    pairs = PAIRS[len(x)]
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
