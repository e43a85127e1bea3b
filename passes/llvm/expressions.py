"""Scalar expressions in LLVM: words by their spelling, their expansion, or the C library lane by lane."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from ...ir.errors import KernelError
from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Cast, Const, Coordinate, Expr, Op, Read, Ref, cast, op
from ...ir.kernel.types import bits, is_floating, kind
from ...ir.kernel.words import VOCABULARY
from .schedule import Schedule
from .target import Target
from .writer import ELEMENTS, Point, Value, Writer, suffix

_INTRINSIC = re.compile(r"@([\w.{}]+)\((.*)\)$")


class Expressions(Writer, ABC):
    """Emits an expression at a point, once for each coordinates of its free axes.

    That memo is register tiling: points that share coordinates share loads and whatever is computed from
    them.
    """

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(1 if schedule.scalar else target.lanes)
        self.kernel, self.schedule, self.target = kernel, schedule, target
        self.lane_axis = "" if schedule.scalar else schedule.vector or ""  # "": every value is a scalar
        self.mask: str | None = None  # the lanes inside the vector axis; None: all of them
        self._order: dict[Expr, list[str]] = {}

    def key(self, expr: Expr, point: Point, wanted: str | None = None) -> tuple:
        """What an emitted value is remembered by."""
        if expr not in self._order:
            self._order[expr] = sorted(self.kernel.free_axes(expr))
        return expr, wanted, tuple(point[axis] for axis in self._order[expr] if axis in point)

    def emit(self, expr: Expr, point: Point, wanted: str | None = None) -> Value:
        """The value of `expr`; `wanted` types it where it is made of untyped constants alone."""
        dtype = self.kernel.dtype_of(expr) or wanted
        if dtype is None:
            raise KernelError(f"{self.kernel.name}: {expr} has no element type", "write it as f32(...)")
        if isinstance(expr, Const):
            return self.constant(expr.value, dtype)
        own = None if self.kernel.dtype_of(expr) else wanted
        return self.memo(self.key(expr, point, own), lambda: self.compute(expr, point, dtype))

    def compute(self, expr: Expr, point: Point, dtype: str) -> Value:
        match expr:
            case Read():
                return self.load(expr, point)
            case Ref():
                return self.reference(expr, point)
            case Coordinate():
                return self.coordinate(expr, point)
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
        start = Value(self.whole(expr.index, point), "i64")
        step = expr.index.coefficient(self.lane_axis)
        if not step:
            return start
        return self.ssa(f"add {self.splat(start)}, {self.ramp('i64', step)}", "i64", self.lanes)

    # ---- words
    def operation(self, name: str, args: tuple[Expr, ...], point: Point, dtype: str) -> Value:
        word = VOCABULARY[name]
        pairs = list(zip(word.pattern, args, strict=False))
        agreed = next((d for p, a in pairs if p == "t" and (d := self.kernel.dtype_of(a))), dtype)
        letter = kind(agreed)
        if letter == "h" and name != "select":  # comparing halves is comparing what they stand for
            return self.operation(name, tuple(cast(arg, "f32") for arg in args), point, dtype)
        special = self.special(name, agreed)
        spelled = word.spelling("llvm", letter)
        if special is None and spelled is None:
            simpler = word.expansion(agreed, args)
            if simpler is not None:
                return self.emit(simpler, point, agreed)
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

    def special(self, name: str, dtype: str):
        """The words that are more than one instruction here, or None."""
        if name == "mulhi":
            return self.mulhi
        if name == "scale2" and dtype == "f32" and self.target.has_scalef and not self.schedule.scalar:
            return self.scalef
        if name in ("trunc_div", "fmod") and kind(dtype) in "iu":
            return lambda operands: self.integer_division(name, operands)
        if name == "max" or name == "min":
            return lambda operands: self.extreme(name, operands)
        return None

    def instruction(self, spelled: str, operands: list[Value], dtype: str, result: str) -> Value:
        """A vocabulary spelling, filled in; an intrinsic in it is declared."""
        shape = next((o for o in reversed(operands) if o.dtype == dtype), operands[-1])
        lanes = shape.lanes
        ones = f"splat ({ELEMENTS[dtype]} -1)" if lanes else "-1"
        fields = {"t": shape.type, "m": Value("", "bool", lanes).type, "s": suffix(dtype, lanes)}
        fields["ones"] = ones if dtype != "bool" else "splat (i1 true)" if lanes else "true"
        called = _INTRINSIC.search(spelled)
        if called:
            types = [argument.split(" ")[0].format(**fields) for argument in called[2].split(", ")]
            self.declare(called[1].format(**fields), shape.type, types)
        text = spelled.format(*(operand.text for operand in operands), **fields)
        return self.ssa(text, result, lanes)

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
        """One compare and select where the second operand is a number: it lets a NaN in the first through."""
        first, second = operands
        known = not second.text.startswith("%") and first.text.startswith("%")
        if kind(first.dtype) != "f" or not known or "7FF8" in second.text:
            return self.instruction(
                VOCABULARY[name].spelling("llvm", kind(first.dtype)) or "", operands, first.dtype, first.dtype
            )
        order = "olt" if name == "max" else "ogt"
        beyond = self.ssa(f"fcmp {order} {first}, {second.text}", "bool", first.lanes)
        return self.ssa(f"select {beyond}, {second}, {first}", first.dtype, first.lanes)

    def mulhi(self, operands: list[Value]) -> Value:
        left, right = (self.convert("zext", operand, "u64") for operand in operands)
        product = self.ssa(f"mul {left}, {right.text}", "u64", left.lanes)
        high = self.ssa(
            f"lshr {product}, {self.constant(32, 'u64', bool(left.lanes)).text}", "u64", left.lanes
        )
        return self.convert("trunc", high, "u32")

    def scalef(self, operands: list[Value]) -> Value:
        p, n = (self.splat(operand) for operand in operands)
        arguments = [
            (p.type, p.text),
            (p.type, n.text),
            (p.type, "zeroinitializer"),
            ("i16", "-1"),
            ("i32", "4"),
        ]
        return self.ssa(self.call("llvm.x86.avx512.mask.scalef.ps.512", p.type, arguments), "f32", self.lanes)

    def integer_division(self, name: str, operands: list[Value]) -> Value:
        """Division that never traps, on masked lanes neither: 0 and -1 as divisors are replaced by 1.

        x / -1 is -x and its remainder 0 (the least integer wraps); a quotient by 0 is 0, as in NumPy.
        """
        left, right = operands
        lanes, dtype = left.lanes, left.dtype
        signed = kind(dtype) == "i"

        def pick(test: Value, yes: Value, no: Value) -> Value:
            return self.ssa(f"select {test}, {yes}, {no}", dtype, lanes)

        division = ("s" if signed else "u") + ("div" if name == "trunc_div" else "rem")
        traps = [self.constant(n, dtype, bool(lanes)).text for n in (0, -1)]
        if not right.text.startswith("%") and right.text not in traps:
            return self.ssa(f"{division} {left}, {right.text}", dtype, lanes)
        zero, one = self.constant(0, dtype, bool(lanes)), self.constant(1, dtype, bool(lanes))
        by_zero = self.ssa(f"icmp eq {right}, {zero.text}", "bool", lanes)
        safe = pick(by_zero, one, right)
        if signed:
            minus = self.constant(-1, dtype, bool(lanes))
            by_minus = self.ssa(f"icmp eq {right}, {minus.text}", "bool", lanes)
            safe = pick(by_minus, one, safe)
        result = self.ssa(f"{division} {left}, {safe.text}", dtype, lanes)
        if signed and name == "trunc_div":
            result = pick(
                by_minus, self.ssa(f"sub {left.type} {zero.text}, {left.text}", dtype, lanes), result
            )
        return pick(by_zero, zero, result) if name == "trunc_div" else result

    def library(self, name: str, operands: list[Value]) -> Value:
        """A function of the C library, called for each lane."""
        dtype, lanes = operands[0].dtype, operands[0].lanes
        element, function = ELEMENTS[dtype], name + ("f" if dtype == "f32" else "")

        def once(values: list[Value]) -> Value:
            return self.ssa(self.call(function, element, [(v.type, v.text) for v in values]), dtype)

        if not lanes:
            return once(operands)
        total = Value("poison", dtype, lanes)
        for number in range(lanes):
            value = once([self.lane(operand, number) for operand in operands])
            total = self.ssa(f"insertelement {total}, {value}, i32 {number}", dtype, lanes)
        return total

    # ---- casts
    def convert(self, instruction: str, value: Value, dtype: str) -> Value:
        target = Value("", dtype, value.lanes).type
        if target == value.type:
            return Value(value.text, dtype, value.lanes)
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
        if dtype == "bool":
            test = "fcmp une" if is_floating(source) else "icmp ne"
            zero = self.constant(0, source, bool(value.lanes)).text
            return self.ssa(f"{test} {value}, {zero}", "bool", value.lanes)
        if is_floating(source) and is_floating(dtype):
            return self.convert("fpext" if bits(dtype) > bits(source) else "fptrunc", value, dtype)
        if is_floating(dtype):
            return self.convert("sitofp" if kind(source) == "i" else "uitofp", value, dtype)
        if is_floating(
            source
        ):  # through a wider signed integer, so that -1.0 wraps instead of being undefined
            through = "i64" if bits(dtype) > 32 or dtype == "u32" else "i32"
            return self.cast(self.convert("fptosi", value, through), dtype)
        if bits(dtype) <= bits(source) and source != "bool":
            return self.convert("trunc", value, dtype)
        return self.convert("sext" if kind(source) == "i" else "zext", value, dtype)

    def widened(self, value: Value) -> Value:
        """bf16 is the upper half of an f32."""
        wide = self.convert("zext", Value(value.text, "i16", value.lanes), "i32")
        moved = self.ssa(
            f"shl {wide}, {self.constant(16, 'i32', bool(value.lanes)).text}", "i32", value.lanes
        )
        return self.bitcast(moved, "f32")

    def narrowed(self, value: Value) -> Value:
        """An f32 to bf16: to nearest, ties to even; a NaN stays one."""
        lanes = value.lanes

        def number(n: int) -> str:
            return self.constant(n, "i32", bool(lanes)).text

        pattern = self.bitcast(value, "i32")
        upper = self.ssa(f"lshr {pattern}, {number(16)}", "i32", lanes)
        odd = self.ssa(f"and {upper}, {number(1)}", "i32", lanes)
        bias = self.ssa(f"add {odd}, {number(0x7FFF)}", "i32", lanes)
        rounded = self.ssa(f"add {pattern}, {bias.text}", "i32", lanes)
        shifted = self.ssa(f"lshr {rounded}, {number(16)}", "i32", lanes)
        quiet = self.ssa(f"or {upper}, {number(0x40)}", "i32", lanes)
        invalid = self.ssa(f"fcmp uno {value}, {value.text}", "bool", lanes)
        chosen = self.ssa(f"select {invalid}, {quiet}, {shifted}", "i32", lanes)
        return Value(self.convert("trunc", chosen, "i16").text, "bf16", lanes)
