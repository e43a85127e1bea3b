"""Formulas of sizes as LLVM text: what goes beyond 64 bits, or divides by what is no size, does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.dims import Atom, Condition, Dim
from ...ir.kernel.affine import Extent

DECLARED = (
    *(f"declare {{i64, i1}} @llvm.{word}.with.overflow.i64(i64, i64)" for word in ("sadd", "smul")),
    *(f"declare i64 @llvm.s{word}.i64(i64, i64)" for word in ("min", "max")),
)


class Formulas:
    """Writes formulas.  known: their values by their texts; fits: whether all that was required holds."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[str, str] = {}
        self.fits = "true"
        self.count = 0

    def name(self, value: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {value}")
        return f"%v{self.count}"

    def pointer(self, base: str, at: int) -> str:
        return self.name(f"getelementptr i64, ptr {base}, i64 {at}")

    def word(self, base: str, at: int) -> str:
        return self.name(f"load i64, ptr {self.pointer(base, at)}, align 8")

    def holds(self, condition: str) -> None:
        self.fits = self.name(f"and i1 {self.fits}, {condition}")

    def require(self, relation: str, left: str, right: str) -> None:
        self.holds(self.name(f"icmp {relation} i64 {left}, {right}"))

    def exactly(self, word: str, left: str, right: str) -> str:
        """A sum or product, which must be one of 64 bits."""
        both = self.name(f"call {{i64, i1}} @llvm.{word}.with.overflow.i64(i64 {left}, i64 {right})")
        wrapped = self.name(f"extractvalue {{i64, i1}} {both}, 1")
        self.holds(self.name(f"xor i1 {wrapped}, true"))
        return self.name(f"extractvalue {{i64, i1}} {both}, 0")

    def extreme(self, word: str, left: str, right: str) -> str:
        return self.name(f"call i64 @llvm.s{word}.i64(i64 {left}, i64 {right})")

    def need(self, condition: Condition) -> None:
        """Require a condition."""
        relation = {"==": "eq", "!=": "ne", ">=": "sge"}[condition.relation]
        self.require(relation, self.of(condition.left), self.of(condition.right))

    def offsets(self, offsets: Mapping[str, Sequence[Extent]]) -> None:
        """Let names stand for the greatest of some formulas each, of those before it too."""
        for name, ends in offsets.items():
            first, *others = map(self.of, ends)
            for other in others:
                first = self.extreme("max", first, other)
            self.known[name] = first

    def of(self, extent: Extent) -> str:
        """A formula's value."""
        if not isinstance(extent, Dim):
            return str(extent)
        found = self.known.get(extent.text)
        if found is None:
            found = self.known[extent.text] = self._sum(extent)
        return found

    def _sum(self, dim: Dim) -> str:
        total = ""
        for monomial, factor in dim.terms:
            parts = [self._atom(atom) for atom in monomial]
            if factor != 1 or not parts:
                parts.append(str(factor))
            product = parts[0]
            for part in parts[1:]:
                product = self.exactly("smul", product, part)
            total = self.exactly("sadd", total, product) if total else product
        return total

    def _atom(self, atom: Atom) -> str:
        found = self.known.get(atom.text)
        if found is None:
            left, right = map(self.of, atom.operands)
            found = self._floor(left, right) if atom.kind == "//" else self.extreme(atom.kind, left, right)
            self.known[atom.text] = found
        return found

    def _floor(self, left: str, right: str) -> str:
        """The quotient, rounded down; what is divided by must be at least 1."""
        is_size = self.name(f"icmp sge i64 {right}, 1")
        self.holds(is_size)
        by = self.name(f"select i1 {is_size}, i64 {right}, i64 1")
        quotient, rest = self.name(f"sdiv i64 {left}, {by}"), self.name(f"srem i64 {left}, {by}")
        below = self.name(f"sext i1 {self.name(f'icmp slt i64 {rest}, 0')} to i64")
        return self.name(f"add i64 {quotient}, {below}")
