"""LLVM text in the making: values, names, loops, and the memo tables that make register tiles."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.kernel.affine import Affine
from ...ir.kernel.types import bits, kind
from ..schedules.target import Target
from .ranges import Ranges

ELEMENTS = {
    "f64": "double",
    "f32": "float",
    "f16": "half",
    "bf16": "i16",
    "bool": "i1",
    "u32": "i32",
    "u64": "i64",
}
ELEMENTS |= {"i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "i8"}

Point = dict[str, tuple[str, int]]  # axis -> (SSA base, constant offset): where an expression is computed


@dataclass(frozen=True)
class Value:
    """An SSA value or a constant: its text, its kernel dtype, and its lanes, 0 for a scalar."""

    text: str
    dtype: str
    lanes: int = 0

    @property
    def type(self) -> str:
        element = ELEMENTS[self.dtype]
        return f"<{self.lanes} x {element}>" if self.lanes else element

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def literal(value: bool | int | float, dtype: str) -> str:
    """A number as LLVM writes it: floats by their bits, of NaNs those of one: `is_nan` knows no other."""
    if dtype == "bool":
        return str(bool(value)).lower()
    if kind(dtype) == "f" and math.isnan(value):
        value = math.nan
    if dtype in ("f16", "bf16"):
        pattern = _half_bits(float(value), dtype)
        return f"0xH{pattern:04X}" if dtype == "f16" else str(pattern)
    if kind(dtype) != "f":
        return str(int(value))
    number = float(value)
    if dtype == "f32" and math.isfinite(number):
        number = float(np.float32(number))
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def _half_bits(value: float, dtype: str) -> int:
    if dtype == "f16":
        return int(np.float16(value).view(np.uint16))
    wide = int(np.float32(value).view(np.uint32))
    if math.isnan(value):
        return 0x7FC0
    return (wide + 0x7FFF + (wide >> 16 & 1)) >> 16  # to nearest, ties to even


_NAN = re.compile(r"\b0x7FF8000000000000\b|\b0xH7E00\b|\b32704\)?$")


def is_nan(text: str) -> bool:
    """Whether a floating constant is NaN, as `literal` spells it."""
    return _NAN.search(text) is not None


class Writer:
    """Writes the lines of one function.

    `scopes` are memo tables, one for each open loop: a value made outside a loop serves inside.
    """

    def __init__(self, target: Target):
        self.lanes = target.lanes
        self.attributes = f"nounwind {target.attributes}".rstrip()  # of the function
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.count = 0
        self.label = "entry"
        self.scopes: list[dict] = [{}]
        self.slots: dict[tuple[str, int], str] = {}  # (type, number) -> a place on the stack
        self.ranges = Ranges()

    # ---- text
    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def name(self, text: str) -> str:
        """A new SSA name for an instruction."""
        self.count += 1
        name = f"%v{self.count}"
        self.line(f"{name} = {text}")
        self.ranges.texts[name] = text
        return name

    def ssa(self, text: str, dtype: str, lanes: int = 0) -> Value:
        return Value(self.name(text), dtype, lanes)

    def integer(self, text: str) -> str:
        """An i64 (or a scalar i1) instruction, once for each text and scope."""
        return self.memo(("integer", text), lambda: self.name(text))

    def memo(self, key: object, make: Callable):
        for scope in self.scopes:
            if key in scope:
                return scope[key]
        value = make()
        self.scopes[-1][key] = value
        return value

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        self.declared[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def call(self, name: str, result: str, arguments: Sequence[tuple[str, str]], flags: str = "") -> str:
        """A call of a declared function, as instruction text; arguments are (type, text)."""
        self.declare(name, result, [type for type, _ in arguments])
        operands = ", ".join(f"{type} {text}" for type, text in arguments)
        return f"call {flags}{result} @{name}({operands})"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def loop(
        self,
        low: str,
        high: str,
        step: int,
        carried: list[Value],
        body: Callable[[str, list[Value]], list[Value]],
        nonempty: bool = True,
        last: int | None = None,
    ) -> list[Value]:
        """for (index = low; index < high; index += step) carried = body(index, carried)

        last: the greatest index, where that follows from more than `low` and `high`.
        """
        self.count += 1
        n, before = self.count, self.label
        (first, latest), (_, end) = self.ranges.of(low), self.ranges.of(high)
        if last is None:
            last = end - 1 if first != latest else first + (end - 1 - first) // step * step
        if nonempty:
            last = max(last, latest)
        self.ranges.declare(f"%i{n}", first, last)
        entry, after = f"body{n}", f"exit{n}"
        if nonempty:
            self.line(f"br label %{entry}")
        else:
            some = self.name(f"icmp slt i64 {low}, {high}")
            self.line(f"br i1 {some}, label %{entry}, label %{after}")
        self.start(entry)
        head = len(self.lines)
        inner = [Value(f"%c{n}_{k}", v.dtype, v.lanes) for k, v in enumerate(carried)]
        self.scopes.append({})
        results = body(f"%i{n}", inner)
        self.scopes.pop()
        following = self.name(f"add nsw i64 %i{n}, {step}")
        again = self.name(f"icmp slt i64 {following}, {high}")
        self.line(f"br i1 {again}, label %{entry}, label %{after}")
        phis = [f"  %i{n} = phi i64 [{low}, %{before}], [{following}, %{self.label}]"]
        phis += [
            f"  {i.text} = phi {i.type} [{c.text}, %{before}], [{r.text}, %{self.label}]"
            for i, c, r in zip(inner, carried, results, strict=True)
        ]
        self.lines[head:head] = phis
        last = self.label
        self.start(after)
        if nonempty:
            return results
        return [
            self.ssa(f"phi {c.type} [{c.text}, %{before}], [{r.text}, %{last}]", c.dtype, c.lanes)
            for c, r in zip(carried, results, strict=True)
        ]

    def unless(self, test: str, usual: Value, make: Callable[[], Value]) -> Value:
        """`usual`, or what `make` writes where the i1 `test` is true: a branch seldom taken."""
        self.count += 1
        rare, after, before = f"rare{self.count}", f"met{self.count}", self.label
        self.line(f"br i1 {test}, label %{rare}, label %{after}")
        self.start(rare)
        self.scopes.append({})
        other = make()
        self.scopes.pop()
        last = self.label
        self.line(f"br label %{after}")
        self.start(after)
        text = f"phi {usual.type} [{usual.text}, %{before}], [{other.text}, %{last}]"
        return self.ssa(text, usual.dtype, usual.lanes)

    def slot(self, kind: str, number: int) -> str:
        """A place on the stack for a value of an LLVM type; the function's start reserves it."""
        return self.slots.setdefault((kind, number), f"%slot{len(self.slots)}")

    # ---- integers, addresses, lanes
    def linear(self, index: Affine, point: Point) -> tuple[str, int]:
        """An affine index at a point, as an SSA value plus a constant that can fold into an address."""
        total, constant = "0", index.constant
        for axis, coefficient in index.terms:
            base, offset = point[axis]
            constant += coefficient * offset
            if not base.startswith("%"):
                constant += coefficient * int(base)
            else:
                total = self.sum(total, self.times(base, coefficient))
        return total, constant

    def whole(self, index: Affine, point: Point) -> str:
        base, constant = self.linear(index, point)
        return self.sum(base, str(constant))

    def times(self, base: str, factor: int) -> str:
        return base if factor == 1 else self.integer(f"mul nsw i64 {base}, {factor}")

    def sum(self, left: str, right: str) -> str:
        if left == "0" or right == "0":
            return right if left == "0" else left
        return self.integer(f"add nsw i64 {left}, {right}")

    def vector(self, element: str) -> str:
        return f"<{self.lanes} x {element}>"

    def constant(self, value: bool | int | float, dtype: str, wide: bool = False) -> Value:
        text = literal(value, dtype)
        return Value(f"splat ({ELEMENTS[dtype]} {text})", dtype, self.lanes) if wide else Value(text, dtype)

    def splat(self, value: Value) -> Value:
        if value.lanes:
            return value
        if not value.text.startswith("%"):
            return Value(f"splat ({value})", value.dtype, self.lanes)
        return self.memo(("splat", value.text), lambda: self.broadcast(value))

    def broadcast(self, value: Value) -> Value:
        wide = self.vector(ELEMENTS[value.dtype])
        first = self.name(f"insertelement {wide} poison, {value}, i32 0")
        text = f"shufflevector {wide} {first}, {wide} poison, {self.vector('i32')} zeroinitializer"
        return self.ssa(text, value.dtype, self.lanes)

    def ramp(self, dtype: str, step: int) -> str:
        """0, step, 2 step, ... one for each lane."""
        return f"<{', '.join(f'{ELEMENTS[dtype]} {lane * step}' for lane in range(self.lanes))}>"

    def both(self, left: str | None, right: str | None) -> str | None:
        """The conjunction of two masks of all lanes; None is all true."""
        if left is None or right is None:
            return left or right
        return self.name(f"and {self.vector('i1')} {left}, {right}")

    def lanes_below(self, bound: str) -> str:
        """The lanes whose number is less than `bound`, an i64."""
        if bound.lstrip("-").isdigit():
            return f"<{', '.join(f'i1 {int(lane < int(bound))}' for lane in range(self.lanes))}>"
        narrow = self.ssa(f"trunc i64 {bound} to i32", "i32")
        return self.name(f"icmp slt {self.vector('i32')} {self.ramp('i32', 1)}, {self.splat(narrow).text}")

    def lane(self, value: Value, number: int) -> Value:
        """One lane of a vector; a scalar is every lane of itself."""
        if not value.lanes:
            return value
        return self.ssa(f"extractelement {value}, i32 {number}", value.dtype)

    def address(self, element: str, start: str, base: str, constant: int) -> str:
        """start + base + constant, in elements.

        Not `inbounds`: under a mask it may lie outside the buffer.
        """
        if base != "0":
            start = self.integer(f"getelementptr {element}, ptr {start}, i64 {base}")
        return self.integer(f"getelementptr {element}, ptr {start}, i64 {constant}") if constant else start


def suffix(dtype: str, lanes: int) -> str:
    """How an intrinsic's name spells the type."""
    letter = "f" if kind(dtype) == "f" or dtype == "f16" else "i"
    width = 1 if dtype == "bool" else bits(dtype)
    return f"v{lanes}{letter}{width}" if lanes else f"{letter}{width}"
