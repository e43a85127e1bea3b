"""Scalar expressions in LLVM: words by their spelling, their expansion, or the C library lane by lane."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from ...ir.errors import KernelError
from ...ir.kernel.bounds import never_above_zero
from ...ir.kernel.expansions import TURNS
from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Cast, Const, Coordinate, Expr, Op, Read, Ref, Size, cast, in_order, op
from ...ir.kernel.types import bits, is_floating, kind
from ...ir.kernel.words import VOCABULARY
from ..kernels.nibbles import table_of
from ..kernels.rounded_bytes import RoundedByte, rounded_byte
from ..schedules.steps import Schedule
from ..schedules.target import Target
from .ranges import Name, Range
from .writer import ELEMENTS, Point, Value, Writer, literal, suffix, type_of

LEVELS = 40  # that are emitted by recursion, of six calls each
EXPANDED = 20  # levels that a word may have that is said in simpler ones


def _is_number(value: Value) -> bool:
    """Whether an operand is a floating constant, and not NaN."""
    return isinstance(value.constant, float) and not math.isnan(value.constant)


@cache
def _spelled(spelling: str, type: str, dtype: str, lanes: int) -> tuple[str, str, list[str]]:
    """An instruction of the vocabulary but for its operands, what it calls, and with which types."""
    ones = f"splat ({ELEMENTS[dtype]} -1)" if lanes else "-1"
    fields = {"t": type, "m": type_of("bool", lanes), "s": suffix(dtype, lanes)}
    fields["ones"] = ones if dtype != "bool" else "splat (i1 true)" if lanes else "true"
    text = spelling.format("{0}", "{1}", "{2}", **fields)
    name, _, arguments = text.partition("@")[2].removesuffix(")").partition("(")
    return text, name, [argument.rpartition(" ")[0] for argument in arguments.split(", ")]


class Expressions(Writer, ABC):
    """Emits an expression at a point, once for each coordinates of its free axes.

    That memo is register tiling: points that share coordinates share loads and whatever is computed from
    them.
    """

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        vectorised = schedule.vectorised
        if vectorised and vectorised.lanes:
            if not 0 < vectorised.lanes <= target.lanes or vectorised.lanes & (vectorised.lanes - 1):
                raise KernelError(
                    f"{kernel.name}: {vectorised} asks for vectors that {target.name} has not",
                    f"it has {target.lanes} lanes, and halves of them",
                )
            target = target.with_lanes(vectorised.lanes)
        super().__init__(target if vectorised else target.scalar)
        self.kernel, self.schedule, self.target = kernel, schedule, target
        self.lane_axis = vectorised.axis if vectorised else ""  # "": every value is a scalar
        self.mask: Value | None = None  # the lanes inside the vector axis; None: all of them
        self.end = 0  # where the vector axis is masked: it stays below
        self.rolled = ""  # the axis whose points are met one by one, in a loop, and not together
        self.streaming = False  # whether full vectors are stored past the caches
        self._order: dict[Expr, list[str]] = {}
        self._reaches: dict[tuple, Range] = {}
        self._unproved: dict[Read, list[int]] = {}
        self._landings: dict[Expr, list[Expr]] = {}
        self._emitting = False

    @contextmanager
    def vectors_along(self, axis: str, lanes: int) -> Iterator[None]:
        """What is emitted inside is in vectors of so many lanes, along another axis."""
        before = self.lane_axis, self.lanes, self.target, self._reaches
        self.lane_axis, self.lanes, self.target = axis, lanes, self.target.with_lanes(lanes)
        self._reaches = {}
        yield
        self.lane_axis, self.lanes, self.target, self._reaches = before

    def key(self, expr: Expr, point: Point, wanted: str | None = None) -> tuple:
        """What an emitted value is remembered by."""
        if expr not in self._order:
            self._order[expr] = sorted(self.kernel.free_axes(expr))
        return expr, wanted, self.lane_axis, tuple(point[axis] for axis in self._order[expr] if axis in point)

    def emit(self, expr: Expr, point: Point, wanted: str | None = None) -> Value:
        """The value of `expr`; `wanted` types it where it is made of untyped constants alone.

        What lies far below is emitted first: an expression may be taller than Python's stack.
        """
        if not self._emitting:
            self._emitting = True
            try:
                for part in self.landings(expr):
                    self.emit(part, point)
                return self.emit(expr, point, wanted)
            finally:
                self._emitting = False
        dtype = self.kernel.dtype_of(expr) or wanted
        if dtype is None:
            raise KernelError(f"{self.kernel.name}: {expr} has no element type", "write it as f32(...)")
        if isinstance(expr, Const):
            return self.constant(expr.value, dtype)
        if isinstance(expr, Size):
            return self.cast(self.value(self.size(expr.size)), dtype)
        own = None if self.kernel.dtype_of(expr) else wanted
        return self.memo(self.key(expr, point, own), lambda: self.compute(expr, point, dtype))

    def landings(self, root: Expr) -> list[Expr]:
        """The parts of an expression that are so far apart that recursion gets from one to the next."""
        found = self._landings.get(root)
        if found is None:
            found = self._landings[root] = []
            levels: dict[Expr, int] = {}
            for part in in_order(root):
                own = EXPANDED if isinstance(part, Op) and VOCABULARY[part.name].expand is not None else 1
                levels[part] = own + max([levels[e] for e in part.below], default=0)
                if levels[part] >= LEVELS and self.kernel.dtype_of(part) is not None:
                    found.append(part)
                    levels[part] = 0
        return found

    def compute(self, expr: Expr, point: Point, dtype: str) -> Value:
        match expr:
            case Read():
                return self.load(expr, point)
            case Ref():
                return self.reference(expr, point)
            case Coordinate():
                return self.coordinate(expr, point)
            case Cast("f32", arg, False) if self.target.permutes and (table := table_of(arg)):
                found = self.permuted(table[1], self.emit(table[0], point))
                return self.cast(self.emit(arg, point), "f32") if found is None else found
            case Cast() if self.target.rounds and (byte := rounded_byte(expr)):
                made = self.rounded(byte, self.emit(byte.value, point))
                return self.cast(self.emit(expr.arg, point), byte.dtype) if made is None else made
            case Cast(target, arg, as_bits):
                value = self.emit(arg, point)
                return self.bitcast(value, target) if as_bits else self.cast(value, target)
            case Op(name, args):
                return self.operation(name, args, point, dtype)
        raise TypeError(f"not a scalar expression: {expr!r}")

    @abstractmethod
    def load(self, access: Read, point: Point) -> Value:
        """buffer[index] at a point."""

    @abstractmethod
    def reference(self, expr: Ref, point: Point) -> Value:
        """The result of an earlier stage at a point."""

    def coordinate(self, expr: Coordinate, point: Point) -> Value:
        start = self.value(self.whole(expr.index, point))
        step = expr.index.coefficient(self.lane_axis)
        if not step:
            return start
        return self.binary("add", self.splat(start), self.ramp("i64", step))

    # ---- words
    def operation(self, name: str, args: tuple[Expr, ...], point: Point, dtype: str) -> Value:
        word = VOCABULARY[name]
        pairs = list(zip(word.pattern, args, strict=False))
        agreed = next((d for p, a in pairs if p == "t" and (d := self.kernel.dtype_of(a))), dtype)
        letter = kind(agreed)
        if name == "exp" and agreed == "f32" and never_above_zero(self.kernel, args[0]):
            return self.operation("exp_below", args, point, dtype)
        if letter == "h" and name != "select":  # comparing halves is comparing what they stand for
            return self.operation(name, tuple(cast(arg, "f32") for arg in args), point, dtype)
        special = self.special(name, agreed)
        spelled = word.spelling("llvm", letter)
        if special is None and spelled is None:
            simpler = word.expansion(agreed, args, scales=self.scales)
            if simpler is not None:
                value = self.emit(simpler, point, agreed)
                return self.checked(name, args, point, value) if name in ("sin", "cos") else value
            if name == "pow" and letter in "iu":
                special = self.whole_power
        operands = [self.emit(a, point, agreed if p == "t" else "bool") for p, a in pairs]
        if any(operand.lanes for operand in operands):
            operands = [self.splat(operand) for operand in operands]
        result = "bool" if word.pattern.endswith(":b") else agreed
        if special is not None:
            return special(operands)
        if spelled is not None:
            return self.instruction(spelled, operands, agreed, result)
        if word.libm is not None and letter == "f":
            return self.library(word.libm, operands)
        raise KernelError(
            f"{self.kernel.name}: {name} of {agreed} has no LLVM spelling",
            f"expression: {op(name, *args)}",
            "compute it in float32 or float64, or leave this op to its NumPy reference",
        )

    @property
    def scales(self) -> bool:
        """Whether one instruction scales a vector of f32 by powers of two."""
        return bool(self.target.scalef and self.schedule.vectorised)

    def special(self, name: str, dtype: str):
        """The words that are more than one instruction here, or None."""
        if name == "mulhi":
            return self.mulhi
        if name == "scale2" and dtype == "f32" and self.scales:
            return self.scalef
        if name in ("trunc_div", "fmod") and kind(dtype) in "iu":
            return lambda operands: self.integer_division(name, operands)
        if name == "fma" and not self.target.has_fma:
            return self.unfused
        if name == "max" or name == "min":
            return lambda operands: self.extreme(name, operands)
        return None

    def instruction(self, spelled: str, operands: list[Value], dtype: str, result: str) -> Value:
        """A vocabulary spelling, filled in; an intrinsic in it is declared."""
        shape = next((o for o in reversed(operands) if o.dtype == dtype), operands[-1])
        text, called, types = _spelled(spelled, shape.type, dtype, shape.lanes)
        if called:
            self.declare(called, shape.type, types)
        return self.ssa(text.format(*(operand.text for operand in operands)), result, shape.lanes)

    def named(self, word: str, *operands: Value) -> Value:
        """A word that has one LLVM spelling, on values."""
        values = [self.splat(o) for o in operands] if any(o.lanes for o in operands) else list(operands)
        dtype = values[-1].dtype
        special = self.special(word, dtype)
        if special is not None:
            return special(values)
        spelled = VOCABULARY[word].spelling("llvm", kind(dtype))
        if spelled is None:
            raise KernelError(f"{self.kernel.name}: {word} of {dtype} has no LLVM spelling")
        return self.instruction(spelled, values, dtype, dtype)

    def extreme(self, name: str, operands: list[Value]) -> Value:
        """A NaN in either operand is the result; of two zeros the second, as NumPy's vectors have it.

        `select(a > b, a, b)` is one instruction, which gives b where they are equal, or one is NaN: it lets a
        NaN in a through, so a number stands there if one of them is a number.
        """
        first, second = operands
        dtype = first.dtype
        if kind(dtype) != "f":
            return self.instruction(
                VOCABULARY[name].spelling("llvm", kind(dtype)) or "", operands, dtype, dtype
            )
        order = "ogt" if name == "max" else "olt"
        if _is_number(second) and second.constant != 0:  # equal ones are the same
            first, second = second, first
        larger = self.select(self.test(f"fcmp {order}", first, second), first, second)
        if _is_number(first):
            return larger
        return self.select(self.test("fcmp uno", first, first), first, larger)

    def unfused(self, operands: list[Value]) -> Value:
        """a b + c without the instruction: in float64, where a product of float32s is exact."""
        a, b, c = (self.cast(operand, "f64") for operand in operands)
        return self.cast(self.binary("fadd", self.binary("fmul", a, b), c), operands[0].dtype)

    def mulhi(self, operands: list[Value]) -> Value:
        left, right = (self.convert("zext", operand, "u64") for operand in operands)
        return self.convert("trunc", self.binary("lshr", self.binary("mul", left, right), 32), "u32")

    def scalef(self, operands: list[Value]) -> Value:
        """One instruction for a vector; a number alone takes a lane of it, and stays a number."""
        p, n = (self.splat(operand) for operand in operands)
        zero = Value("zeroinitializer", "f32", self.lanes, 0.0)
        arguments = [p, n, zero, self.constant(-1, "i16"), self.constant(4, "i32")]
        scaled = self.ssa(self.call(self.target.scalef, p.type, arguments), "f32", self.lanes)
        return scaled if any(operand.lanes for operand in operands) else self.lane(scaled, 0)

    def integer_division(self, name: str, operands: list[Value]) -> Value:
        """Division that never traps, on masked lanes neither: 0 and -1 as divisors are replaced by 1.

        x / -1 is -x and its remainder 0 (the least integer wraps); a quotient by 0 is 0, as in NumPy.
        """
        left, right = operands
        signed = kind(left.dtype) == "i"
        division = ("s" if signed else "u") + ("div" if name == "trunc_div" else "rem")
        if right.constant not in (None, 0, -1):
            return self.binary(division, left, right)
        zero, one = self.like(left, 0), self.like(left, 1)
        by_zero = self.test("icmp eq", right, zero)
        safe = self.select(by_zero, one, right)
        if signed:
            by_minus = self.test("icmp eq", right, -1)
            safe = self.select(by_minus, one, safe)
        result = self.binary(division, left, safe)
        if signed and name == "trunc_div":
            result = self.select(by_minus, self.binary("sub", zero, left), result)
        return self.select(by_zero, zero, result) if name == "trunc_div" else result

    def whole_power(self, operands: list[Value]) -> Value:
        """An integer power by squaring, a bit of the exponent at a time; it wraps as products do.

        1 / x^n cut to a whole number where the exponent is negative: 0 but for 1 and -1.
        """
        base, exponent = operands
        zero, one = self.like(base, 0), self.like(base, 1)

        def body(index: Name, carried: list[Value]) -> list[Value]:
            total, square, left = carried
            odd = self.test("icmp ne", self.binary("and", left, 1), zero)
            product = self.binary("mul", total, self.select(odd, square, one))
            return [product, self.binary("mul", square, square), self.binary("lshr", left, 1)]

        total = self.loop(0, bits(base.dtype), 1, [one, base, exponent], body)[0]
        if kind(base.dtype) == "u":
            return total
        # -1 and 1 are their own inverses; their powers by any odd or even number are found in its last bit
        odd = self.test("icmp ne", self.binary("and", exponent, 1), zero)
        unit = self.select(odd, base, one)
        inverse = self.select(self.test("icmp eq", self.binary("mul", base, base), one), unit, zero)
        return self.select(self.test("icmp slt", exponent, zero), inverse, total)

    def checked(self, name: str, args: tuple[Expr, ...], point: Point, value: Value) -> Value:
        """The expansion of a sine or cosine, or the C library's where an operand is too large for that."""
        operand = self.emit(args[0], point)
        large = self.test("fcmp oge", self.named("abs", operand), TURNS)
        if large.lanes:
            large = self.ssa(self.call(f"llvm.vector.reduce.or.v{large.lanes}i1", "i1", [large]), "bool")
        libm = VOCABULARY[name].libm
        return self.unless(large, value, lambda: self.library(libm, [operand]))

    def library(self, name: str, operands: list[Value]) -> Value:
        """A function of the C library, called for each lane in a loop through memory."""
        dtype, lanes = operands[0].dtype, operands[0].lanes
        element, function = ELEMENTS[dtype], name + ("f" if dtype == "f32" else "")
        if not lanes:
            return self.ssa(self.call(function, element, operands), dtype)
        slots = [self.slot(operand.type, n) for n, operand in enumerate(operands)]
        for slot, operand in zip(slots, operands, strict=True):
            self.line(f"store {operand}, ptr {slot}, align 64")

        def body(index: Name, _: list[Value]) -> list[Value]:
            places = [self.name(f"getelementptr {element}, ptr {slot}, i64 {index}") for slot in slots]
            values = [self.ssa(f"load {element}, ptr {place}", dtype) for place in places]
            result = self.ssa(self.call(function, element, values), dtype)
            self.line(f"store {result}, ptr {places[0]}")
            return []

        self.loop(0, lanes, 1, [], body)
        return self.read(slots[0], dtype, lanes, 64)

    def permuted(self, numbers: tuple[int, ...], places: Value) -> Value | None:
        """Those of sixteen numbers that the lowest bits of each lane say; None of other vectors."""
        if places.type != "<16 x i32>":
            return None
        elements = ", ".join(f"float {literal(number, 'f32')}" for number in numbers)
        table = Value(f"<{elements}>", "f32", 16)
        return self.ssa(self.call(self.target.permutes, "<16 x float>", [table, places]), "f32", 16)

    # ---- casts
    def convert(self, instruction: str, value: Value, dtype: str) -> Value:
        target = type_of(dtype, value.lanes)
        if target == value.type and (value.constant is None or "bf16" not in (value.dtype, dtype)):
            return value._replace(dtype=dtype)
        return self.ssa(f"{instruction} {value} to {target}", dtype, value.lanes)

    def bitcast(self, value: Value, dtype: str) -> Value:
        return self.convert("bitcast", value, dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        """As NumPy's astype: floats truncate towards zero, integers wrap, anything but zero is true."""
        source = value.dtype
        if source == dtype:
            return value
        if source == "bf16":
            return self.cast(self.widened(value), dtype)
        if dtype == "bf16":
            return self.narrowed(self.cast(value, "f32"))
        if {source, dtype} == {"f64", "f16"}:
            return self.cast(self.cast(value, "f32"), dtype)
        if not self.target.has_halves and "f16" in (source, dtype):
            if source == "f16":
                return self.cast(self.half_widened(value), dtype)
            return self.half_narrowed(self.cast(value, "f32"))
        if dtype == "bool":
            return self.test("fcmp une" if is_floating(source) else "icmp ne", value, 0)
        if is_floating(source) and is_floating(dtype):
            return self.convert("fpext" if bits(dtype) > bits(source) else "fptrunc", value, dtype)
        if is_floating(dtype):
            return self.convert("sitofp" if kind(source) == "i" else "uitofp", value, dtype)
        if source == "f16":
            return self.cast(self.cast(value, "f32"), dtype)
        if is_floating(source):  # through a wider signed integer, so that -1.0 wraps
            return self.cast(
                self.truncated(value, "i64" if bits(dtype) > 32 or dtype == "u32" else "i32"), dtype
            )
        if bits(dtype) <= bits(source) and source != "bool":
            return self.convert("trunc", value, dtype)
        return self.convert("sext" if kind(source) == "i" else "zext", value, dtype)

    def truncated(self, value: Value, dtype: str) -> Value:
        """A float truncated to i32 or i64; the least one where it doesn't fit, or is NaN, as x86 has it.

        To LLVM such a conversion is poison: of `float(int(x))` it would make `trunc(x)`.  Where there is an
        intrinsic, it is x86's own instruction, which does all of it.
        """
        if name := self.target.truncates.get(value.lanes) if (value.dtype, dtype) == ("f32", "i32") else None:
            return self.converted(name, value)
        limit = 2.0 ** (bits(dtype) - 1)
        result = self.convert("fptosi", value, dtype)
        least = self.like(result, -(1 << bits(dtype) - 1))
        for test, bound in (("fcmp oge", -limit), ("fcmp olt", limit)):
            result = self.select(self.test(test, value, bound), result, least)
        return result

    def rounded(self, byte: RoundedByte, value: Value) -> Value | None:
        """A float rounded and cut to a byte by one conversion; None where that would not give the same.

        A NaN is the least i32, of which the lowest byte is 0: it is not to meet another bound, nor a step.
        """
        convert = self.target.rounds.get(value.lanes)
        if convert is None or value.dtype != "f32" or (byte.zero and byte.low):
            return None
        value = self.extreme("min", [self.like(value, float(byte.high - byte.zero)), value])
        if byte.low:
            value = self.extreme("max", [self.like(value, float(byte.low)), value])
        whole = self.converted(convert, value)
        if not byte.low:
            whole = self.extreme("max", [whole, self.like(whole, -byte.zero)])
        return self.cast(self.binary("add", whole, byte.zero) if byte.zero else whole, byte.dtype)

    def converted(self, name: str, value: Value) -> Value:
        """An f32 as i32 by an intrinsic, which gives the least one for what doesn't fit, and for NaN."""
        rest = []
        if value.lanes == 16:  # what masked lanes hold, the mask, and the mode that is set
            zero = Value("zeroinitializer", "i32", 16, 0)
            rest = [zero, self.constant(-1, "i16"), self.constant(4, "i32")]
        return self.ssa(self.call(name, type_of("i32", value.lanes), [value, *rest]), "i32", value.lanes)

    def widened(self, value: Value) -> Value:
        """bf16 is the upper half of an f32."""
        return self.bitcast(self.binary("shl", self.convert("zext", value, "i32"), 16), "f32")

    def narrowed(self, value: Value) -> Value:
        """An f32 to bf16: to nearest, ties to even; a NaN stays one."""
        pattern = self.bitcast(value, "i32")
        upper = self.binary("lshr", pattern, 16)
        bias = self.binary("add", self.binary("and", upper, 1), 0x7FFF)
        shifted = self.binary("lshr", self.binary("add", pattern, bias), 16)
        quiet = self.binary("or", upper, 0x40)
        return self.convert("trunc", self.select(self.test("fcmp uno", value, value), quiet, shifted), "bf16")

    def half_widened(self, value: Value) -> Value:
        """An f16 to f32 in integer steps: its exponent is moved by a product, which subnormals need too."""
        pattern = self.convert("zext", self.bitcast(value, "i16"), "i32")
        sign = self.binary("shl", self.binary("and", pattern, 0x8000), 16)
        size = self.binary("and", pattern, 0x7FFF)
        scaled = self.binary("fmul", self.bitcast(self.binary("shl", size, 13), "f32"), 2.0**112)
        special = self.test("icmp sge", size, 0x7C00)  # inf and NaN have all exponent bits
        finite = self.bitcast(scaled, "i32")
        chosen = self.select(special, self.binary("or", finite, 0x7F800000), finite)
        return self.bitcast(self.binary("or", chosen, sign), "f32")

    def half_narrowed(self, value: Value) -> Value:
        """An f32 to f16 in integer steps: to nearest, ties to even."""
        pattern = self.bitcast(value, "i32")
        sign = self.binary("and", self.binary("lshr", pattern, 16), 0x8000)
        size = self.binary("and", pattern, 0x7FFFFFFF)
        odd = self.binary("and", self.binary("lshr", size, 13), 1)
        biased = self.binary("add", size, 0xFFF - (112 << 23))
        normal = self.binary("lshr", self.binary("add", biased, odd), 13)
        # a subnormal is rounded by adding a number whose last bit is the least f16
        shifted = self.binary("fadd", self.bitcast(size, "f32"), 0.5)
        small = self.binary("sub", self.bitcast(shifted, "i32"), 126 << 23)
        finite = self.select(self.test("icmp slt", size, 113 << 23), small, normal)
        invalid = self.test("icmp sgt", size, 0x7F800000)
        endless = self.select(invalid, self.like(size, 0x7E00), self.like(size, 0x7C00))
        chosen = self.select(self.test("icmp sge", size, 143 << 23), endless, finite)
        return self.bitcast(self.convert("trunc", self.binary("or", chosen, sign), "i16"), "f16")
