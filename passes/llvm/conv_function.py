"""Write functions on vectors of float32 that count floats.

Every pointer is known by the array that it points into and the floats between their starts, so that no load
or store is written which may leave its array; what a function does with the pointers and integers it is given
is its contract, which each call of it is held to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from ...ir.errors import KernelError
from ..schedules.target import Target
from .ranges import Range
from .writer import Value, Writer

# Of integers that are not negative where it matters: LLVM's quotients are truncated.
FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "sdiv": operator.floordiv,
    "srem": operator.mod, "smin": min, "smax": max,
}  # fmt: skip


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


class Function:
    """Writes one function on vectors of f32.

    writer: what it is written in; where that is a kernel's emitter, the kernel's stages can be as well.
    arrays: of each pointer the array it points into, that array's floats, and how many are before it.
    """

    def __init__(self, writer: Writer, target: Target, contract: Contract = NOTHING):
        self.writer, self.contract = writer, contract
        self.name, self.line, self.loop, self.ranges = writer.name, writer.line, writer.loop, writer.ranges
        self.lanes, self.wide, self.fused = writer.lanes, writer.vector("float"), target.has_fma
        self.arrays: dict[str, tuple[str, int, Range]] = {}
        for name, count in contract.floats.items():
            self.arrays[name] = name, count, (0, 0)
        for name, (low, high) in contract.integers.items():
            self.ranges.declare(name, low, high)

    def text(self, name: str, entry: bool = False) -> str:
        """The whole function: internal, or the entry of a phase, which is given %args as well."""
        inline, linkage = ("", "") if entry else (" noinline", "internal ")
        given = f"ptr %args, {self.contract.parameters}" if entry else self.contract.parameters
        slots = [f"  {slot} = alloca {kind}, align 64" for (kind, _), slot in self.writer.slots.items()]
        if self.contract.buffers:  # a stage reads from there what is outside of its buffer
            slots.insert(0, "  %nowhere = alloca i64, align 8")
        head = f"define {linkage}void @{name}({given}){inline} {self.writer.attributes} {{"
        return "\n".join([head, "entry:", *slots, *self.writer.lines, "  ret void", "}", ""])

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

    def splat(self, pointer: str) -> str:
        """The number at a pointer in all lanes."""
        self.holds(pointer, 1)
        value = Value(self.name(f"load float, ptr {pointer}, align 4"), "f32")
        return self.writer.broadcast(value).text

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
        self.line(self.writer.call("llvm.prefetch.p0", "void", [("ptr", pointer), *hints]))

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
            return self.name(self.writer.call(f"llvm.{word}.i64", "i64", [("i64", a), ("i64", b)]))
        return self.name(f"{word} i64 {a}, {b}")

    def each(self, low: str | int, high: str | int, body: Callable[[str], None], step: int = 1) -> None:
        """body(index) for each index from low below high; without a loop where that is one."""
        nonempty = str(low).isdigit() and str(high).isdigit() and int(low) < int(high)
        if nonempty and int(high) - int(low) <= step:
            body(str(low))
            return

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
        self.writer.count += 1
        n = self.writer.count
        self.line(f"br i1 {condition}, label %yes{n}, label %no{n}")
        for label, act in ((f"yes{n}", yes), (f"no{n}", no)):
            self.writer.start(label)
            self.writer.scopes.append({})
            act()
            self.writer.scopes.pop()
            self.line(f"br label %after{n}")
        self.writer.start(f"after{n}")

    # ---- vectors
    def add(self, a: str, b: str) -> str:
        return self.name(f"fadd {self.wide} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.name(f"fsub {self.wide} {a}, {b}")

    def axpy(self, factor: float, a: str, b: str) -> str:
        """factor * a + b"""
        if factor in (1, -1):
            return self.add(b, a) if factor == 1 else self.sub(b, a)
        return self.fma(self.writer.constant(factor, "f32", True).text, a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        if not self.fused:
            return self.add(self.name(f"fmul {self.wide} {a}, {b}"), c)
        operands = [(self.wide, text) for text in (a, b, c)]
        return self.name(self.writer.call(f"llvm.fma.v{self.lanes}f32", self.wide, operands))

    def scaled(self, factor: float, a: str) -> str:
        return a if factor == 1 else self.name(
            f"fmul {self.wide} {a}, {self.writer.constant(factor, 'f32', True).text}"
        )  # fmt: skip
