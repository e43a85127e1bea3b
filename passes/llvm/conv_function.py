"""Write functions on vectors of float32, and Winograd's transforms of one dimension in them."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

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
            total = np.polynomial.polynomial.polymul(total, [-b * b, 1.0])
        return [float(c) for c in total]

    return [product([b for b in pairs if b != a]) for a in pairs], product(list(pairs))


class Function(Writer):
    """Writes one internal function on vectors of f32."""

    def __init__(self, target: Target):
        super().__init__(target.lanes)
        self.wide, self.fused = f"<{target.lanes} x float>", target.has_fma

    def text(self, name: str, parameters: str, linkage: str = "internal ") -> str:
        width = 512 if self.lanes == 16 else 256
        inline = " noinline" if linkage else ""
        head = (
            f'define {linkage}void @{name}({parameters}){inline} nounwind "prefer-vector-width"="{width}" {{'
        )
        return "\n".join([head, "entry:", *self.lines, "  ret void", "}", ""])

    def at(self, start: str, *offsets: str | int) -> str:
        """start + offsets, in floats."""
        for offset in offsets:
            if offset not in (0, "0"):
                start = self.name(f"getelementptr float, ptr {start}, i64 {offset}")
        return start

    def load(self, pointer: str) -> str:
        return self.name(f"load {self.wide}, ptr {pointer}, align 4")

    def store(self, value: str, pointer: str) -> None:
        self.line(f"store {self.wide} {value}, ptr {pointer}, align 4")

    def prefetch(self, pointer: str) -> None:
        """Ask for a cache line, to be read, into the nearest cache."""
        hints = [("i32", "0"), ("i32", "3"), ("i32", "1")]
        self.line(self.call("llvm.prefetch.p0", "void", [("ptr", pointer), *hints]))

    def pointer(self, number: int) -> str:
        """The pointer that %args holds at `number`."""
        place = self.name(f"getelementptr ptr, ptr %args, i64 {number}")
        return self.name(f"load ptr, ptr {place}, align 8")

    def floats(self, name: str, count: int) -> str:
        self.line(f"%{name} = alloca [{count} x float], align 64")
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
