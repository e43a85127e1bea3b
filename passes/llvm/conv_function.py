"""Write functions on vectors of float32, and Winograd's transforms of one dimension in them.

Every pointer is known by the array that it points into and the floats between their starts, so that no load
or store is written which may leave its array; what a function does with the pointers and integers it is given
is its contract, which each call of it is held to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from numpy.polynomial.polynomial import polymul

from ...ir.errors import KernelError
from .ranges import Range
from .target import Target
from .writer import Value, Writer

# By outputs of a tile: the points a > 0 of the pairs +-a.
PAIRS = {2: (1.0,), 4: (2**0.5, 0.5**0.5)}

# Of integers that are not negative where it matters: LLVM's quotients are truncated.
FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "sdiv": operator.floordiv,
    "srem": operator.mod, "smin": min, "smax": max,
}  # fmt: skip


def pair_polynomials(pairs: tuple[float, ...]) -> tuple[list[list[float]], list[float]]:
    """Coefficients in x * x, lowest first: for each pair the product of (x * x - b * b) over the others, and
    the product over all."""

    def product(roots: list[float]) -> list[float]:
        total = np.array([1.0])
        for b in roots:
            total = polymul(total, [-b * b, 1.0])
        return [float(c) for c in total]

    return [product([b for b in pairs if b != a]) for a in pairs], product(list(pairs))


@dataclass(frozen=True)
class Contract:
    """What a function is given, in order: floats behind each pointer, the range of each integer.

    buffers: the kernel's, which come first, as they are.
    """

    floats: Mapping[str, int] = field(default_factory=dict)
    integers: Mapping[str, Range] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()

    @property
    def parameters(self) -> str:
        pointers = [f"ptr {name}" for name in self.buffers] + [f"ptr noalias {name}" for name in self.floats]
        return ", ".join([*pointers, *(f"i64 {name}" for name in self.integers)])

    def holds(self, caller: Function, name: str, arguments: Mapping[str, str]) -> None:
        """Raises KernelError where a call with these arguments may break it."""
        for pointer, count in self.floats.items():
            caller.holds(arguments[pointer], count)
        for parameter, (least, most) in self.integers.items():
            low, high = caller.ranges.of(arguments[parameter])
            if low <= high and (low < least or high > most):
                raise KernelError(
                    f"the code may call {name} with {parameter} beyond {least} to {most}",
                    f"it is {low} to {high}",
                )


NOTHING = Contract()


class Function(Writer):
    """Writes one internal function on vectors of f32.

    arrays: of each pointer the array it points into, that array's floats, and how many are before it.
    """

    def __init__(self, target: Target, contract: Contract = NOTHING):
        super().__init__(target)
        self.wide, self.fused = f"<{target.lanes} x float>", target.has_fma
        self.arrays: dict[str, tuple[str, int, Range]] = {}
        for name, count in contract.floats.items():
            self.arrays[name] = name, count, (0, 0)
        for name, (low, high) in contract.integers.items():
            self.ranges.declare(name, low, high)

    def text(self, name: str, parameters: str, linkage: str = "internal ") -> str:
        inline = " noinline" if linkage else ""
        head = f"define {linkage}void @{name}({parameters}){inline} {self.attributes} {{"
        return "\n".join([head, "entry:", *self.lines, "  ret void", "}", ""])

    def at(self, start: str, *offsets: str | int) -> str:
        """start + offsets, in floats."""
        for offset in offsets:
            if offset not in (0, "0"):
                array, count, before = self.arrays[start]
                start = self.name(f"getelementptr float, ptr {start}, i64 {offset}")
                by = self.ranges.of(str(offset))
                self.arrays[start] = array, count, (before[0] + by[0], before[1] + by[1])
        return start

    def load(self, pointer: str) -> str:
        self.holds(pointer, self.lanes)
        return self.name(f"load {self.wide}, ptr {pointer}, align 4")

    def load_one(self, pointer: str) -> Value:
        self.holds(pointer, 1)
        return Value(self.name(f"load float, ptr {pointer}, align 4"), "f32")

    def store(self, value: str, pointer: str) -> None:
        self.holds(pointer, self.lanes)
        self.line(f"store {self.wide} {value}, ptr {pointer}, align 4")

    def holds(self, pointer: str, count: int) -> None:
        """Raises KernelError unless the array has so many floats behind a pointer, wherever it may point."""
        array, size, (low, high) = self.arrays[pointer]
        if low <= high and (low < 0 or high + count > size):
            raise KernelError(
                f"the code may leave the {size} floats of {array.lstrip('%')}",
                f"it takes {low} to {high + count - 1}",
            )

    def invoke(self, name: str, contract: Contract, *arguments: str) -> None:
        """Call a function that was written before.  Raises KernelError where that may break its contract."""
        parameters = [*contract.buffers, *contract.floats, *contract.integers]
        contract.holds(self, name, dict(zip(parameters, arguments, strict=True)))
        typed = [f"{'i64' if p in contract.integers else 'ptr'} {a}" for p, a in zip(parameters, arguments)]
        self.line(f"call void @{name}({', '.join(typed)})")

    def prefetch(self, pointer: str) -> None:
        """Ask for a cache line, to be read, into the nearest cache."""
        hints = [("i32", "0"), ("i32", "3"), ("i32", "1")]
        self.line(self.call("llvm.prefetch.p0", "void", [("ptr", pointer), *hints]))

    def pointer(self, number: int, array: str, count: int) -> str:
        """The pointer that %args holds at `number`: to an array of so many floats."""
        place = self.name(f"getelementptr ptr, ptr %args, i64 {number}")
        pointer = self.name(f"load ptr, ptr {place}, align 8")
        self.arrays[pointer] = array, count, (0, 0)
        return pointer

    def floats(self, name: str, count: int) -> str:
        self.line(f"%{name} = alloca [{count} x float], align 64")
        self.arrays[f"%{name}"] = name, count, (0, 0)
        return f"%{name}"

    # ---- integers
    def i(self, word: str, left: str | int, right: str | int) -> str:
        """An instruction or minimum or maximum of two 64-bit integers; of two constants, its value."""
        a, b = str(left), str(right)
        if a.lstrip("-").isdigit() and b.lstrip("-").isdigit():
            return str(FOLDED[word](int(a), int(b)))
        if (word, b) in (("mul", "1"), ("add", "0"), ("sub", "0")):
            return a
        if word in ("smin", "smax"):
            return self.name(self.call(f"llvm.{word}.i64", "i64", [("i64", a), ("i64", b)]))
        return self.name(f"{word} i64 {a}, {b}")

    def each(self, low: str | int, high: str | int, body: Callable[[str], None], step: int = 1) -> None:
        """body(index) for each index from low below high."""
        nonempty = str(low).isdigit() and str(high).isdigit() and int(low) < int(high)

        def once(index: str, _: list[Value]) -> list[Value]:
            body(index)
            return []

        self.loop(str(low), str(high), step, [], once, nonempty)

    def span(self, start: str, size: int, most: int, body: Callable[[str, str], None]) -> None:
        """body(index, place) for each place, start + index, that is 0 to size - 1; index is below `most`."""
        before = self.ranges.of(start)[0] < 0
        low = self.i("smax", self.i("sub", 0, start), 0) if before else "0"

        def at(index: str) -> None:
            place = self.i("add", start, index)
            self.ranges.declare(place, 0, size - 1)
            body(index, place)

        self.each(low, self.i("smin", self.i("sub", size, start), most), at)

    def if_inside(
        self, most: Sequence[tuple[str, int]], yes: Callable[[], None], no: Callable[[], None]
    ) -> None:
        """yes() where each integer is from 0 to its most, which then is known of it; else no()."""
        if min(end for _, end in most) < 0:
            no()
            return
        # unsigned: a negative one is beyond every end
        tests = [self.name(f"icmp ule i64 {at}, {end}") for at, end in most]
        both = tests[0]
        for test in tests[1:]:
            both = self.name(f"and i1 {both}, {test}")

        def known() -> None:
            with ExitStack() as stack:
                for at, end in most:
                    stack.enter_context(self.ranges.given(at, 0, end))
                yes()

        self.either(both, known, no)

    def either(self, condition: str, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """if condition: yes() else: no()"""
        self.count += 1
        n = self.count
        self.line(f"br i1 {condition}, label %yes{n}, label %no{n}")
        for label, act in ((f"yes{n}", yes), (f"no{n}", no)):
            self.start(label)
            self.scopes.append({})
            act()
            self.scopes.pop()
            self.line(f"br label %after{n}")
        self.start(f"after{n}")

    # ---- vectors
    def add(self, a: str, b: str) -> str:
        return self.name(f"fadd {self.wide} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.name(f"fsub {self.wide} {a}, {b}")

    def axpy(self, factor: float, a: str, b: str) -> str:
        """factor * a + b"""
        if factor in (1, -1):
            return self.add(b, a) if factor == 1 else self.sub(b, a)
        return self.fma(self.constant(factor, "f32", True).text, a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        if not self.fused:
            return self.add(self.name(f"fmul {self.wide} {a}, {b}"), c)
        operands = [(self.wide, text) for text in (a, b, c)]
        return self.name(self.call(f"llvm.fma.v{self.lanes}f32", self.wide, operands))

    def scaled(self, factor: float, a: str) -> str:
        return a if factor == 1 else self.name(
            f"fmul {self.wide} {a}, {self.constant(factor, 'f32', True).text}"
        )  # fmt: skip

    def polynomial(self, coefficients: list[float], values: list[str]) -> str:
        """The sum of coefficient * value; the last coefficient is 1."""
        total = values[-1]
        for c, x in zip(coefficients[:-1], values[:-1], strict=True):
            total = self.axpy(c, x, total)
        return total

    # ---- one dimension of a transform
    def input_transform(self, d: list[str], pairs: tuple[float, ...]) -> list[str]:
        """Bt d"""
        n, (parts, whole) = len(d), pair_polynomials(pairs)
        out = [self.polynomial(whole, d[0 : n - 1 : 2])]
        for a, part in zip(pairs, parts, strict=True):
            even, odd = self.polynomial(part, d[2 : n - 1 : 2]), self.polynomial(part, d[1 : n - 2 : 2])
            out += [self.axpy(a, odd, even), self.axpy(-a, odd, even)]
        return [*out, self.polynomial(whole, d[1::2])]

    def output_transform(self, x: list[str], pairs: tuple[float, ...], tile: int) -> list[str]:
        """At x"""
        sums = [self.add(x[1 + 2 * k], x[2 + 2 * k]) for k in range(len(pairs))]
        differences = [self.sub(x[1 + 2 * k], x[2 + 2 * k]) for k in range(len(pairs))]
        out = []
        for power in range(tile):
            terms = list(zip(pairs, differences if power % 2 else sums, strict=True))
            total = x[0] if power == 0 else x[-1] if power == tile - 1 else None
            for a, term in terms:
                total = self.scaled(a**power, term) if total is None else self.axpy(a**power, term, total)
            assert total is not None
            out.append(total)
        return out
