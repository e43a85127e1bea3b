"""Affine indices over the axes of a kernel, and what can be proved about their bounds.

Coefficients and constants are numbers or dimensions of the kernel's symbols (`ir/dims.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from ..dims import Dim, is_at_least, substitute
from ..locks import cached_property

Extent = int | Dim  # a number of points, or what it is in the symbols until the kernel is bound


@dataclass(frozen=True)
class Affine:
    """sum of coefficient * axis, plus a constant.

    Terms are sorted by name and no coefficient is zero, so that equal indices compare equal.
    """

    terms: tuple[tuple[str, Extent], ...] = ()
    constant: Extent = 0

    @staticmethod
    def of(terms: Mapping[str, Extent], constant: Extent = 0) -> Affine:
        found = [pair for pair in terms.items() if not vanishes(pair[1])]
        if len(found) > 1:
            found.sort()
        return Affine(tuple(found), constant)

    def __add__(self, other: Affine) -> Affine:
        if not other.terms:
            return self if vanishes(other.constant) else Affine(self.terms, self.constant + other.constant)
        if not self.terms and vanishes(self.constant):
            return other
        terms = dict(self.terms)
        for name, coefficient in other.terms:
            terms[name] = terms.get(name, 0) + coefficient
        return Affine.of(terms, self.constant + other.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def __mul__(self, factor: Extent) -> Affine:
        if factor == 1:
            return self
        if vanishes(factor):
            return ZERO
        return Affine(tuple([(name, c * factor) for name, c in self.terms]), self.constant * factor)

    def coefficient(self, name: str) -> Extent:
        return next((c for n, c in self.terms if n == name), 0)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms)

    def bind(self, symbols: Mapping[str, int]) -> Affine:
        """With a number in place of each symbol of `symbols`."""
        terms = {name: substitute(c, symbols) for name, c in self.terms}
        return Affine.of(terms, substitute(self.constant, symbols))

    def bounds(self, extents: Mapping[str, Extent]) -> tuple[Extent, Extent]:
        """The least and the greatest value, inclusive, over all points of the axes, which have some."""
        low = high = self.constant
        for name, coefficient in self.terms:
            span = (extents[name] - 1) * coefficient
            if coefficient > 0 if type(coefficient) is int else _is_positive(coefficient, extents):
                high = high + span
            else:
                low = low + span
        return low, high

    def __str__(self) -> str:
        parts = [_spelled(c, name) for name, c in self.terms]
        if not parts or not vanishes(self.constant):
            parts.append(str(self.constant))
        return "+".join(parts).replace("+-", "-")


def _is_positive(size: Extent, extents: Mapping[str, Extent]) -> bool:
    """Whether a size is not negative for all sizes, or is so many times the points of axes, which have some:
    with (n // 20) - 2 points along one, 64 * (n // 20) - 128 is 64 at least."""
    if is_at_least(size, 0):
        return True
    if not isinstance(size, Dim):
        return False
    (monomial, times), *_ = size.terms
    open_axes = [extent for extent in extents.values() if isinstance(extent, Dim)]
    for points in (*open_axes, *(a * b for a, b in combinations(open_axes, 2))):
        own = dict(points.terms).get(monomial, 0) if isinstance(points, Dim) else 0
        if own and times // own > 0 and vanishes(size - points * (times // own)):
            return True
    return False


ZERO = Affine()


def vanishes(number: Extent) -> bool:
    return type(number) is not Dim and not number


def _spelled(coefficient: Extent, name: str) -> str:
    if isinstance(coefficient, Dim):
        text = str(coefficient)
        return f"{text}*{name}" if text.isidentifier() else f"({text})*{name}"
    return name if coefficient == 1 else f"-{name}" if coefficient == -1 else f"{coefficient}*{name}"


def as_affine(value: Affine | Extent | str) -> Affine:
    """The Affine that a number, a dimension or an axis stands for."""
    if isinstance(value, Affine):
        return value
    return Affine(((value, 1),)) if isinstance(value, str) else Affine((), value)
