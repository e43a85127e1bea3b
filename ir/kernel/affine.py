"""Affine indices over the axes of a kernel and its symbols, and what can be proved about their bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

Extent = int | str  # a number of points, or the symbol that stands for it until the kernel is bound


@dataclass(frozen=True)
class Affine:
    """sum of coefficient * name, plus a constant, a name being an axis or a symbol.

    Terms are sorted by name and no coefficient is zero, so that equal indices compare equal.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(terms: Mapping[str, int], constant: int = 0) -> Affine:
        found = [pair for pair in terms.items() if pair[1]]
        if len(found) > 1:
            found.sort()
        return Affine(tuple(found), constant)

    def __add__(self, other: Affine) -> Affine:
        if not other.terms:
            return Affine(self.terms, self.constant + other.constant) if other.constant else self
        if not self.terms and not self.constant:
            return other
        terms = dict(self.terms)
        for name, coefficient in other.terms:
            terms[name] = terms.get(name, 0) + coefficient
        return Affine.of(terms, self.constant + other.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        terms = tuple([(name, c * factor) for name, c in self.terms]) if factor else ()
        return Affine(terms, self.constant * factor)

    def coefficient(self, name: str) -> int:
        return next((c for n, c in self.terms if n == name), 0)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms)

    def bind(self, symbols: Mapping[str, int]) -> Affine:
        """With each symbol of `symbols` replaced by its number."""
        known = sum(c * symbols[name] for name, c in self.terms if name in symbols)
        return Affine.of({n: c for n, c in self.terms if n not in symbols}, self.constant + known)

    def bounds(self, extents: Mapping[str, Extent]) -> tuple[Affine, Affine]:
        """The least and the greatest value, inclusive, over the axes of `extents`, affine in the symbols."""
        low = high = Affine((), self.constant)
        for name, coefficient in self.terms:
            if name not in extents:
                low, high = low + Affine(((name, coefficient),)), high + Affine(((name, coefficient),))
                continue
            span = (as_affine(extents[name]) - Affine((), 1)) * coefficient
            low, high = (low, high + span) if coefficient > 0 else (low + span, high)
        return low, high

    def is_nonnegative(self, positive: Collection[str] = ()) -> bool:
        """Whether this is provably >= 0 for symbols >= 0, those in `positive` being >= 1."""
        least = self.constant + sum(c for name, c in self.terms if name in positive)
        return least >= 0 and all(c > 0 for _, c in self.terms)

    def __str__(self) -> str:
        parts = [name if c == 1 else f"-{name}" if c == -1 else f"{c}*{name}" for name, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return "+".join(parts).replace("+-", "-")


ZERO = Affine()


def as_affine(value: Affine | int | str) -> Affine:
    """The Affine that an integer, an axis or a symbol stands for."""
    if isinstance(value, Affine):
        return value
    return Affine(((value, 1),)) if isinstance(value, str) else Affine((), int(value))
