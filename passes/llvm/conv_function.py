"""Write functions on vectors of float32 that count floats.

Every pointer is known by the array that it points into and the floats between their starts, so that no load
or store is written which may leave its array; what a function does with the pointers and integers it is given
is its contract, which each call of it is held to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from ...ir.errors import KernelError
from ..kernels.winograd import PAIRS, pair_polynomials
from ..schedules.target import Target
from .ranges import Int, Name, Range
from .writer import Value, Writer, effect


@dataclass(frozen=True)
class Contract:
    """What a function is given, in order: floats behind each pointer, the range of each integer.

    buffers: the kernel's, which come first, as they are.
    """

    floats: Mapping[str, int] = field(default_factory=dict)
    integers: Mapping[Name, Range] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()

    @property
    def parameters(self) -> str:
        pointers = [f"ptr {name}" for name in self.buffers] + [f"ptr noalias {name}" for name in self.floats]
        return ", ".join([*pointers, *(f"i64 {name}" for name in self.integers)])

    def holds(
        self, caller: Function, name: str, pointers: Mapping[str, str], integers: Mapping[Name, Int]
    ) -> None:
        """Raises KernelError where a call with these arguments may break it."""
        for pointer, count in self.floats.items():
            caller.holds(pointers[pointer], count)
        for parameter, (least, most) in self.integers.items():
            low, high = caller.ranges.of(integers[parameter])
            if low <= high and (low < least or high > most):
                raise KernelError(
                    f"the code may call {name} with {parameter} beyond {least} to {most}",
                    f"it is {low} to {high}",
                )


NOTHING = Contract()


class Function:
    """Writes one function on vectors of f32.

    writer: what it is written in; where that is a kernel's emitter, the kernel's stages can be as well.
    arrays: of each pointer the array it points into, that array's floats, and how many are before it.
    """

    def __init__(self, writer: Writer, target: Target, contract: Contract = NOTHING):
        self.writer, self.contract = writer, contract
        self.line, self.name, self.loop, self.i = writer.line, writer.name, writer.loop, writer.new_integer
        self.prefetch, self.ranges, self.lanes = writer.prefetch, writer.ranges, writer.lanes
        self.fused = target.has_fma
        self.add, self.sub, self.mul = (partial(writer.binary, word) for word in ("fadd", "fsub", "fmul"))
        self.arrays: dict[str, tuple[str, int, Range]] = {}
        for name, count in contract.floats.items():
            self.arrays[name] = name, count, (0, 0)
        for integer, (low, high) in contract.integers.items():
            self.ranges.declare(integer, low, high)

    def text(self, name: str, entry: bool = False) -> str:
        """The whole function: internal, or the entry of a phase, which is given %args as well."""
        inline, linkage = ("", "") if entry else (" noinline", "internal ")
        given = f"ptr %args, {self.contract.parameters}" if entry else self.contract.parameters
        head = f"define {linkage}void @{name}({given}){inline} {self.writer.attributes} {{"
        return "\n".join(
            [head, "entry:", *self.writer.on_the_stack(), *self.writer.written, "  ret void", "}", ""]
        )

    def at(self, start: str, *offsets: Int) -> str:
        """start + offsets, in floats."""
        for offset in offsets:
            if offset != 0:
                array, count, before = self.arrays[start]
                start = self.name(f"getelementptr float, ptr {start}, i64 {offset}")
                by = self.ranges.of(offset)
                self.arrays[start] = array, count, (before[0] + by[0], before[1] + by[1])
        return start

    def load(self, pointer: str) -> Value:
        self.holds(pointer, self.lanes)
        return self.writer.read(pointer, "f32", self.lanes)

    def splat(self, pointer: str) -> Value:
        """The number at a pointer in all lanes."""
        self.holds(pointer, 1)
        return self.writer.broadcast(self.writer.read(pointer, "f32"))

    def store(self, value: Value, pointer: str) -> None:
        self.holds(pointer, self.lanes)
        self.line(f"store {value}, ptr {pointer}, align 4")

    def holds(self, pointer: str, count: int) -> None:
        """Raises KernelError unless the array has so many floats behind a pointer, wherever it may point."""
        array, size, (low, high) = self.arrays[pointer]
        if low <= high and (low < 0 or high + count > size):
            raise KernelError(
                f"the code may leave the {size} floats of {array}",
                f"it takes {low} to {high + count - 1}",
            )

    def invoke(self, name: str, contract: Contract, pointers: Sequence[str], *integers: Int) -> None:
        """Call a function that was written before.  Raises KernelError where that may break its contract."""
        parameters = zip([*contract.buffers, *contract.floats], pointers, strict=True)
        contract.holds(self, name, dict(parameters), dict(zip(contract.integers, integers, strict=True)))
        given = [*(f"ptr {pointer}" for pointer in pointers), *(f"i64 {integer}" for integer in integers)]
        self.line(f"call void @{name}({', '.join(given)})")

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
    def each(self, low: Int, high: Int, body: Callable[[Int], None], step: int = 1) -> None:
        """body(index) for each index from low below high; without a loop where that is one."""
        count = high - low if isinstance(low, int) and isinstance(high, int) else 0
        if 0 < count <= step:
            body(low)
        else:
            self.loop(low, high, step, [], effect(body), count > 0)

    def span(self, start: Int, size: int, most: int, body: Callable[[Int, Int], None]) -> None:
        """body(index, place) for each place, start + index, that is 0 to size - 1; index is below `most`."""
        before = self.ranges.of(start)[0] < 0
        low = self.i("smax", self.i("sub", 0, start), 0) if before else 0

        def at(index: Int) -> None:
            place = self.i("add", start, index)
            self.ranges.declare(place, 0, size - 1)
            body(index, place)

        self.each(low, self.i("smin", self.i("sub", size, start), most), at)

    def if_inside(
        self, most: Sequence[tuple[Int, int]], yes: Callable[[], None], no: Callable[[], None]
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
        self.writer.count += 1
        n = self.writer.count
        self.line(f"br i1 {condition}, label %yes{n}, label %no{n}")
        for label, act in ((f"yes{n}", yes), (f"no{n}", no)):
            self.writer.start(label)
            with self.writer.scope():
                act()
            self.line(f"br label %after{n}")
        self.writer.start(f"after{n}")

    # ---- vectors
    def axpy(self, factor: float, a: Value, b: Value) -> Value:
        """factor * a + b"""
        if factor in (1, -1):
            return self.add(b, a) if factor == 1 else self.sub(b, a)
        return self.fma(self.writer.like(a, factor), a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        if not self.fused:
            return self.add(self.mul(a, b), c)
        call = self.writer.call(f"llvm.fma.v{self.lanes}f32", a.type, [a, b, c])
        return self.writer.ssa(call, "f32", self.lanes)

    def scaled(self, factor: float, a: Value) -> Value:
        return a if factor == 1 else self.mul(a, factor)


# ---- Winograd's transforms of one dimension: see kernels/winograd.py
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
