"""How a program of symbols learns its sizes, as LLVM text: a function that reads them of a call's arrays.

    i64 @lamina_sizes(ptr %arrays, ptr %table) -> -1 the code does not serve these arrays, else whether the
                                                  program takes long, 1 or 0

%arrays: NumPy arrays, of which is known what kind they are and how many dims they have (enter.py).  Each
symbol is read where an array has it for a dim; every other dim is compared with its formula, so that no array
is shorter than the proof of the code presumes.  The numbers that the main function reads of the table are
evaluated into it; behind them stand the bytes of the arena, which must be enough.  A formula that goes beyond
64 bits, or divides by what is no size, serves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.dims import Atom, Condition, Dim
from ...ir.errors import Unsayable
from ...ir.kernel.affine import Extent
from .enter import DIMS_AT
from .native_manifest import NativeManifest

SYMBOL = "lamina_sizes"


def text(
    manifest: NativeManifest,
    offsets: Mapping[str, Sequence[Extent]],
    sizes: Mapping[str, tuple[int, int]],
    least: Sequence[tuple[Extent, int]],
    needs: Sequence[Condition],
    head: int,
    long: int,
) -> str:
    """The module.

    manifest, offsets: of the program, in formulas.  sizes: its symbols, and between what they lie.  least:
    extents and what they must at least be; needs: what else must hold.  head: bytes of a Python object's
    head.  long: nanoseconds from which a program takes long.  Raises Unsayable where no array has a symbol
    for a dim.
    """
    shapes = [shape for _, shape in (*manifest.params, *manifest.results)]
    said = _Formulas()
    found = [said.dims(at, len(shape), head) for at, shape in enumerate(shapes)]
    for shape, values in zip(shapes, found, strict=True):
        for dim, value in zip(shape, values, strict=True):
            if str(dim) in sizes:
                said.known.setdefault(str(dim), value)
    if missing := sizes.keys() - said.known.keys():
        raise Unsayable(f"{manifest.name}: no array is {', '.join(sorted(missing))} long")
    for name, (low, high) in sizes.items():
        said.require("sge", said.known[name], str(low))
        said.require("sle", said.known[name], str(high))
    for shape, values in zip(shapes, found, strict=True):
        for dim, value in zip(shape, values, strict=True):
            if said.of(dim) != value:
                said.require("eq", said.of(dim), value)
    for extent, number in least:
        said.require("sge", said.of(extent), str(number))
    for need in needs:
        relation = {"==": "eq", "!=": "ne", ">=": "sge"}[need.relation]
        said.require(relation, said.of(need.left), said.of(need.right))
    for name, ends in offsets.items():
        first, *others = map(said.of, ends)
        for other in others:
            first = said.extreme("max", first, other)
        said.known[name] = first
    said.require("sle", said.of(manifest.arena), said.word("%table", manifest.slots))
    for n, number in enumerate(manifest.numbers, manifest.first_number):
        said.lines.append(f"  store i64 {said.of(number)}, ptr {said.pointer('%table', n)}, align 8")
    takes = said.of(
        manifest.nanoseconds if isinstance(manifest.nanoseconds, Dim) else round(manifest.nanoseconds)
    )
    is_long = said.name(f"zext i1 {said.name(f'icmp sge i64 {takes}, {long}')} to i64")
    answer = said.name(f"select i1 {said.fits}, i64 {is_long}, i64 -1")
    return "\n".join(
        [
            *(f"declare {{i64, i1}} @llvm.{word}.with.overflow.i64(i64, i64)" for word in ("sadd", "smul")),
            *(f"declare i64 @llvm.s{word}.i64(i64, i64)" for word in ("min", "max")),
            f"define i64 @{SYMBOL}(ptr %arrays, ptr %table) nounwind {{",
            *said.lines,
            f"  ret i64 {answer}",
            "}",
            "",
        ]
    )


class _Formulas:
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

    def dims(self, at: int, count: int, head: int) -> list[str]:
        """The sizes of an array."""
        array = self.name(f"load ptr, ptr {self.name(f'getelementptr ptr, ptr %arrays, i64 {at}')}, align 8")
        field = self.name(f"getelementptr i8, ptr {array}, i64 {head + DIMS_AT}")
        dims = self.name(f"load ptr, ptr {field}, align 8")
        return [self.word(dims, d) for d in range(count)]

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
