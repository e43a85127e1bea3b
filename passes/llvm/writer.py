"""LLVM text in the making: values, names, loops, and the memo tables that make register tiles."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...ir.dims import Dim, is_at_least
from ...ir.errors import Unsayable
from ...ir.kernel.affine import Affine
from ...ir.kernel.types import NUMPY, bits, is_floating, kind
from ..schedules.target import Target
from .ranges import OPEN, RULES, Int, Name, Ranges

ELEMENTS = {
    "f64": "double",
    "f32": "float",
    "f16": "half",
    "bf16": "i16",
    "bool": "i1",
    "u32": "i32",
    "u64": "i64",
}
ELEMENTS |= {"i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "i8", "ptr": "ptr"}

_ATOMS = {"//": "udiv", "min": "slt", "max": "sgt"}  # the words for what a size is made of
NEUTRAL = {"add": 0, "add nsw": 0, "sub": 0, "mul": 1, "mul nsw": 1, "udiv": 1}  # as second operands

# Loop metadata: the code begins at a line of the cache
LINE_OF_CODE = '!1 = distinct !{!1, !2}\n!2 = !{!"llvm.loop.align", i32 64}'

LOW, HIGH = Name("%lo"), Name("%hi")  # the units of work that an entry is given

SPLAT = "splat (float"
SPLATS = re.compile(rf"(<\d+ x float>) ({re.escape(SPLAT)} [^)]*\))")

Lines: TypeAlias = "list[str | Lines]"  # of text; those of a list stand where it stands
Point = dict[str, tuple[Int, int]]  # axis -> (base, constant offset): where an expression is computed


@cache
def type_of(dtype: str, lanes: int) -> str:
    """LLVM's type of a scalar (0 lanes) or a vector."""
    return f"<{lanes} x {ELEMENTS[dtype]}>" if lanes else ELEMENTS[dtype]


class Value(NamedTuple):
    """An SSA value or a constant: its text, its kernel dtype, and its lanes, 0 for a scalar.

    constant: its number, or that of each lane where they differ; None of what code computes.
    """

    text: str
    dtype: str
    lanes: int = 0
    constant: float | tuple[int, ...] | None = None

    @property
    def type(self) -> str:
        return type_of(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{type_of(self.dtype, self.lanes)} {self.text}"


def held(number: float, dtype: str) -> float:
    """A number as a dtype holds it."""
    if dtype == "bool":
        return bool(number)
    if not is_floating(dtype):
        return int(number)
    number = float(number)
    if dtype == "f64" or not math.isfinite(number):
        return number
    if dtype == "f16":
        return float(np.float16(number))
    if dtype == "f32":
        return float(np.float32(number))
    wide = int(np.float32(number).view(np.uint32))
    rounded = (wide + 0x7FFF + (wide >> 16 & 1)) & 0xFFFF0000  # to nearest, ties to even
    return float(np.uint32(rounded).view(np.float32))


def literal(number: float, dtype: str) -> str:
    """What a dtype holds as LLVM writes it: floats by their bits, of NaNs those of one."""
    if dtype == "bool":
        return "true" if number else "false"
    if not is_floating(dtype):
        return str(number)
    if math.isnan(number):
        number = math.nan
    if dtype == "f16":
        return f"0xH{int(np.float16(number).view(np.uint16)):04X}"
    if dtype == "bf16":
        return str(int(np.float32(number).view(np.uint32)) >> 16)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


class Writer:
    """Writes the lines of one function.

    `scopes` are memo tables, one for each open loop: a value made outside a loop serves inside.  ahead: what
    is written before each of these loops, None for a scope that is none.  hoists: whether integers are made
    before all loops that don't change them, as LLVM does itself where strides are numbers.
    """

    def __init__(self, target: Target):
        self.lanes = target.lanes
        tune = f'"tune-cpu"="{target.tune}"' if target.tune else ""
        self.attributes = " ".join(filter(None, ("nounwind", target.attributes, tune)))  # of the function
        self.lines: Lines = []
        self.declared: dict[str, str] = {}
        self.count = 0
        self.label = "entry"
        self.scopes: list[dict] = [{}]
        self.ahead: list[Lines | None] = [None]
        self.hoists = False
        self.depths: dict[str | int, int] = {
            LOW: 0,
            HIGH: 0,
        }  # the scope of what was made, where that is known
        self.slots: dict[tuple[str, int | str], str] = {}  # (type, number or constant) -> a stack's place
        self.ranges = Ranges()
        self._extents: dict[Dim, Name] = {}

    # ---- text
    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    @property
    def written(self) -> list[str]:
        """The lines, those before loops where they belong."""
        return [*_in_turn(self.lines)]

    def name(self, text: str) -> str:
        """A new SSA name for an instruction."""
        self.count += 1
        name = f"%v{self.count}"
        self.line(f"{name} = {text}")
        return name

    def ssa(self, text: str, dtype: str, lanes: int = 0) -> Value:
        return Value(self.name(text), dtype, lanes)

    def once(self, text: str) -> str:
        """An instruction, once for each text and scope."""
        return self.memo(text, lambda: self.name(text))

    def memo(self, key: object, make: Callable, scope: int = -1):
        """What was made for a key, or is made now, for one of the scopes."""
        for known in self.scopes:
            if key in known:
                return known[key]
        value = make()
        self.scopes[scope][key] = value
        return value

    @contextmanager
    def scope(self, ahead: Lines | None = None) -> Iterator[None]:
        """What is made inside serves there alone."""
        self.scopes.append({})
        self.ahead.append(ahead)
        yield
        self.scopes.pop()
        self.ahead.pop()

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        if name not in self.declared:
            self.declared[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def call(self, name: str, result: str, arguments: Sequence[Value], flags: str = "") -> str:
        """A call of a declared function, as instruction text."""
        self.declare(name, result, [argument.type for argument in arguments])
        return f"call {flags}{result} @{name}({', '.join(map(str, arguments))})"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def loop(
        self,
        low: Int,
        high: Int,
        step: int,
        carried: list[Value],
        body: Callable[[Name, list[Value]], list[Value]],
        nonempty: bool = True,
        last: int | None = None,
        aligned: bool = False,
    ) -> list[Value]:
        """for (index = low; index < high; index += step) carried = body(index, carried)

        last: the greatest index, where that follows from more than `low` and `high`.
        aligned: whether its code begins at a line of the cache.
        """
        self.count += 1
        n, before = self.count, self.label
        index = Name(f"%i{n}")
        (first, latest), (_, end) = self.ranges.of(low), self.ranges.of(high)
        if last is None:
            last = end - 1 if first != latest else first + (end - 1 - first) // step * step
        if nonempty:
            last = max(last, latest)
        self.ranges.declare(index, first, last)
        self.depths[index] = len(self.scopes)
        ahead: Lines = []
        self.lines.append(ahead)
        entry, after = f"body{n}", f"exit{n}"
        if nonempty:
            self.line(f"br label %{entry}")
        else:
            some = self.name(f"icmp slt i64 {low}, {high}")
            self.line(f"br i1 {some}, label %{entry}, label %{after}")
        self.start(entry)
        head = len(self.lines)
        inner = [Value(f"%c{n}_{k}", v.dtype, v.lanes) for k, v in enumerate(carried)]
        with self.scope(ahead):
            results = body(index, inner)
        following = self.name(f"add nsw i64 {index}, {step}")
        again = self.name(f"icmp slt i64 {following}, {high}")
        told = ", !llvm.loop !1" if aligned else ""
        if aligned:
            self.declared["!1"] = LINE_OF_CODE
        self.line(f"br i1 {again}, label %{entry}, label %{after}{told}")
        phis = [f"  {index} = phi i64 [{low}, %{before}], [{following}, %{self.label}]"]
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

    def unless(self, test: Value, usual: Value, make: Callable[[], Value]) -> Value:
        """`usual`, or what `make` writes where the i1 `test` is true: a branch seldom taken."""
        self.count += 1
        rare, after, before = f"rare{self.count}", f"met{self.count}", self.label
        self.line(f"br {test}, label %{rare}, label %{after}")
        self.start(rare)
        with self.scope():
            other = make()
        last = self.label
        self.line(f"br label %{after}")
        self.start(after)
        text = f"phi {usual.type} [{usual.text}, %{before}], [{other.text}, %{last}]"
        return self.ssa(text, usual.dtype, usual.lanes)

    def either(self, test: str, make: Callable[[], object], other: Callable[[], object]) -> None:
        """What `make` writes where the i1 `test` is true, and what `other` does where it is not."""
        self.count += 1
        after, arms = f"met{self.count}", {f"so{self.count}": make, f"else{self.count}": other}
        self.line("br i1 " + ", label %".join([test, *arms]))
        for label, act in arms.items():
            self.start(label)
            with self.scope():
                act()
            self.line(f"br label %{after}")
        self.start(after)

    def slot(self, kind: str, number: int) -> str:
        """A place on the stack for a value of an LLVM type; the function's start reserves it."""
        return self.slots.setdefault((kind, number), f"%slot{len(self.slots)}")

    def place_of(self, constant: Value) -> Value:
        """A place on the stack that holds a constant."""
        name = self.slots.setdefault((constant.type, constant.text), f"%slot{len(self.slots)}")
        return Value(name, "ptr")

    def on_the_stack(self) -> list[str]:
        """With what the function begins: its places on the stack, and the constants that some hold."""
        places = [f"  {slot} = alloca {kind}, align 64" for (kind, _), slot in self.slots.items()]
        held = [(slot, f"{kind} {n}") for (kind, n), slot in self.slots.items() if isinstance(n, str)]
        return [*places, *(f"  store {value}, ptr {slot}, align 64" for slot, value in held)]

    def constants_in_memory(self, lines: list[str], registers: int) -> list[str]:
        """The lines, in which fused multiplications read constants from the stack, if all are more than so
        many registers hold.

        LLVM broadcasts each again before its use, into registers that other vectors are computed in
        meanwhile: gelu of 65,536 takes 94 us in place of 79, erfinv 149 in place of 122; of what needs fewer
        constants softmax is quicker as it is (AVX2, EPYC "Zen 4", one thread, 2026-11-30).
        """
        every = {at for line in lines if SPLAT in line for at in SPLATS.findall(line)}
        if len(every) <= registers - 2:  # two are for what is computed
            return lines
        made: list[str] = []
        for line in lines:
            for type, text in SPLATS.findall(line) if "@llvm.fma." in line else ():
                self.count += 1
                slot = self.slots.setdefault((type, text), f"%slot{len(self.slots)}")
                made.append(f"  %c{self.count} = load {type}, ptr {slot}, align 32")
                line = line.replace(f"{type} {text}", f"{type} %c{self.count}", 1)
            made.append(line)
        return made

    # ---- integers
    def new_integer(self, word: str, left: Int, right: Int) -> Int:
        """An instruction on two integers, by a word of `RULES`; of constants, its value."""
        rule = RULES[word]
        if isinstance(left, int) and isinstance(right, int):
            least, most = rule((left, left), (right, right))
            if least == most:
                return least
        elif right == NEUTRAL.get(word):
            return left
        if word in ("smin", "smax"):
            text = self.call(f"llvm.{word}.i64", "i64", [self.value(left), self.value(right)])
        elif word in ("slt", "sgt"):
            test = self.name(f"icmp {word} i64 {left}, {right}")
            text = f"select i1 {test}, i64 {left}, i64 {right}"
        else:
            text = f"{word} i64 {left}, {right}"
        name = Name(self.name(text))
        self.ranges.computed[name] = rule, left, right
        self.depths[name] = len(self.scopes) - 1
        return name

    def integer(self, word: str, left: Int, right: Int) -> Int:
        """`new_integer`, once for each scope."""
        return self.memo((word, left, right), lambda: self.new_integer(word, left, right))

    def hoisted(self, word: str, left: Int, right: Int) -> Int:
        """`integer`, before all loops that change neither operand."""
        depth = max(self.depth_of(left), self.depth_of(right))
        return self.before(depth, (word, left, right), lambda: self.new_integer(word, left, right))

    def before(self, depth: int, key: object, make: Callable[[], Any]) -> Any:
        """What is made of operands known from a scope: before all loops further in, if it `hoists`."""
        loops = [(n, ahead) for n, ahead in enumerate(self.ahead) if n > depth and ahead is not None]
        if not self.hoists or not loops:
            return self.memo(key, make)
        at, ahead = loops[0]

        def made_ahead() -> Any:
            lines, self.lines = self.lines, ahead
            made = make()
            self.lines = lines
            self.depths[made] = at - 1
            return made

        return self.memo(key, made_ahead, at - 1)

    def depth_of(self, made: str | int) -> int:
        """The scope that an integer or an address is known from."""
        return 0 if isinstance(made, int) else self.depths.get(made, len(self.scopes) - 1)

    def sum(self, left: Int, right: Int) -> Int:
        if left == 0 or right == 0:
            return right if left == 0 else left
        return self.hoisted("add nsw", left, right)

    def minus(self, left: Int, right: Int) -> Int:
        return self.hoisted("sub nsw", left, right)

    def times(self, base: Int, factor: Int) -> Int:
        return base if factor == 1 else self.hoisted("mul nsw", base, factor)

    def quotient(self, number: Int, factor: int) -> Int:
        """The number over the factor, rounded down; 0 for negative ones."""
        return self.integer("udiv", self.maximum(number, 0), factor)

    def minimum(self, left: Int, right: Int) -> Int:
        return self.integer("slt", left, right)

    def maximum(self, left: Int, right: Int) -> Int:
        return self.integer("sgt", left, right)

    def linear(self, index: Affine, point: Point) -> tuple[Int, int]:
        """An affine index at a point, as an integer plus a constant that can fold into an address."""
        total: Int = 0
        constant, terms = index.constant, index.terms
        if self.hoists:  # what outer loops count with first
            terms = tuple(sorted(terms, key=lambda term: self.depth_of(point[term[0]][0])))
        for axis, coefficient in terms:
            base, offset = point[axis]
            constant += coefficient * offset
            if isinstance(base, int):
                constant += coefficient * base
            else:
                total = self.sum(total, self.times(base, self.size(coefficient)))
        if isinstance(constant, Dim):
            total, constant = self.sum(total, self.size(constant)), 0
        return total, constant

    def size(self, size: int | Dim) -> Int:
        """A size, computed of the symbols that the function is given."""
        if not isinstance(size, Dim):
            return size
        total: Int = 0
        for monomial, factor in size.terms:
            product: Int = factor
            for atom in monomial:
                if atom.kind == "//" and not all(is_at_least(operand, 0) for operand in atom.operands):
                    raise Unsayable(f"no code divides {atom}, which may be negative", f"size: {size}")
                operands = [self.size(operand) for operand in atom.operands]
                value = self.integer(_ATOMS[atom.kind], *operands) if operands else Name(f"%{atom.kind}")
                product = value if product == 1 else self.times(value, product)
            total = self.sum(total, product)
        return total

    def extent(self, extent: int | Dim) -> Int:
        """The points of an axis; one that is left open counts as if it had `OPEN` of them."""
        if not isinstance(extent, Dim):
            return extent
        if extent not in self._extents:
            size = self.size(extent)
            plain = str(extent).isidentifier()  # else it has a range that what it is made of has not
            self._extents[extent] = Name(str(size) if plain else self.name(f"add i64 {size}, 0"))
            self.ranges.declare(self._extents[extent], OPEN, OPEN)
            self.depths[self._extents[extent]] = 0
        return self._extents[extent]

    def whole(self, index: Affine, point: Point) -> Int:
        return self.sum(*self.linear(index, point))

    def value(self, integer: Int) -> Value:
        return Value(str(integer), "i64", 0, integer if isinstance(integer, int) else None)

    # ---- values
    def binary(self, instruction: str, left: Value, right: Value | float) -> Value:
        """An instruction on two values, or on one and a number of its type."""
        other = right if isinstance(right, Value) else self.like(left, right)
        return self.ssa(f"{instruction} {left}, {other.text}", left.dtype, left.lanes)

    def test(self, comparison: str, left: Value, right: Value | float) -> Value:
        return self.binary(comparison, left, right)._replace(dtype="bool")

    def select(self, test: Value, yes: Value, no: Value) -> Value:
        return self.ssa(f"select {test}, {yes}, {no}", yes.dtype, yes.lanes)

    def shuffle(self, x: Value, y: Value | None, picks: Sequence[int]) -> Value:
        """Some lanes of two vectors, the second's being counted after the first's."""
        order = ", ".join(f"i32 {pick}" for pick in picks)
        text = f"shufflevector {x}, {y or f'{x.type} poison'}, <{len(picks)} x i32> <{order}>"
        return self.ssa(text, x.dtype, len(picks))

    def like(self, value: Value, number: float) -> Value:
        """A number of a value's type."""
        return self.constant(number, value.dtype, bool(value.lanes))

    def vector(self, element: str) -> str:
        return f"<{self.lanes} x {element}>"

    def constant(self, number: float, dtype: str, wide: bool = False) -> Value:
        number = held(number, dtype)
        value = Value(literal(number, dtype), dtype, 0, number)
        return self.splat(value) if wide else value

    def splat(self, value: Value) -> Value:
        if value.lanes:
            return value
        if value.constant is not None:
            return Value(f"splat ({value})", value.dtype, self.lanes, value.constant)
        return self.memo(("splat", value.text, self.lanes), lambda: self.broadcast(value))

    def broadcast(self, value: Value) -> Value:
        wide = self.vector(ELEMENTS[value.dtype])
        first = self.name(f"insertelement {wide} poison, {value}, i32 0")
        text = f"shufflevector {wide} {first}, {wide} poison, {self.vector('i32')} zeroinitializer"
        return self.ssa(text, value.dtype, self.lanes)

    def ramp(self, dtype: str, step: int) -> Value:
        """0, step, 2 step, ... one for each lane."""
        return self.each_lane([lane * step for lane in range(self.lanes)], dtype)

    def each_lane(self, numbers: Sequence[int], dtype: str) -> Value:
        """A vector of constants."""
        text = ", ".join(f"{ELEMENTS[dtype]} {number:d}" for number in numbers)
        return Value(f"<{text}>", dtype, self.lanes, tuple(numbers))

    def both(self, left: Value | None, right: Value | None) -> Value | None:
        """The conjunction of two masks of all lanes; None is all true."""
        if left is None or right is None:
            return left or right
        return self.binary("and", left, right)

    def lanes_below(self, bound: Int) -> Value:
        """The lanes whose number is less than `bound`."""
        if isinstance(bound, int):
            return self.each_lane([lane < bound for lane in range(self.lanes)], "bool")
        narrow = self.ssa(f"trunc i64 {bound} to i32", "i32")
        return self.test("icmp slt", self.ramp("i32", 1), self.splat(narrow))

    def lane(self, value: Value, number: int) -> Value:
        """One lane of a vector; a scalar is every lane of itself."""
        if not value.lanes:
            return value
        return self.ssa(f"extractelement {value}, i32 {number}", value.dtype)

    def address(self, element: str, start: str, base: Int, constant: int) -> str:
        """start + base + constant, in elements; what outer loops count is added before the inner ones.

        Not `inbounds`: under a mask it may lie outside the buffer.
        """
        if self.hoists:
            rule, outer, inner = self.ranges.computed.get(base, (None, 0, base))
            depth = max(self.depth_of(start), self.depth_of(outer))
            if rule is RULES["add nsw"] and depth < self.depth_of(inner):
                text, base = f"getelementptr {element}, ptr {start}, i64 {outer}", inner
                start = self.before(depth, text, lambda: self.name(text))
        if base != 0:
            start = self.once(f"getelementptr {element}, ptr {start}, i64 {base}")
        return self.once(f"getelementptr {element}, ptr {start}, i64 {constant}") if constant else start

    def read(self, address: str, dtype: str, lanes: int = 0, align: int = 0) -> Value:
        """What lies at an address, which is aligned as its elements are, or better."""
        align = align or NUMPY[dtype].itemsize
        return self.ssa(f"load {type_of(dtype, lanes)}, ptr {address}, align {align}", dtype, lanes)

    def prefetch(self, address: str, level: int = 1) -> None:
        """Ask for a cache line, to be read, into the nearest cache or that of a further level."""
        hints = [self.constant(n, "i32") for n in (0, 4 - level, 1)]
        self.line(self.call("llvm.prefetch.p0", "void", [Value(address, "ptr"), *hints]))


def _in_turn(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _in_turn(line)


@cache
def suffix(dtype: str, lanes: int) -> str:
    """How an intrinsic's name spells the type."""
    letter = "f" if kind(dtype) == "f" or dtype == "f16" else "i"
    width = 1 if dtype == "bool" else bits(dtype)
    return f"v{lanes}{letter}{width}" if lanes else f"{letter}{width}"


def effect(act: Callable[[Any], None]) -> Callable[[Any, list[Value]], list[Value]]:
    """A loop body that only acts and carries nothing along."""

    def body(where: Any, carried: list[Value]) -> list[Value]:
        act(where)
        return carried

    return body
