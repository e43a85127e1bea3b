"""Write the scalar bodies of elementwise ops, word by word (ir/kernel/words.py has the vocabulary)."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import TYPE_CHECKING, Any

from ....ir.dims import Dim
from ....ir.dtypes import DType, bool_, dtype_named
from ....ir.graph import Node
from ....ir.kernel.infer import dtype_of
from ....ir.kernel.scalar import Cast, Const, Expr, Op, Ref, Size, in_order, ref
from ....ir.kernel.words import VOCABULARY
from ....ir.shapes import broadcast_shapes
from ....ir.types import Shape

if TYPE_CHECKING:
    from .graph_writer import Writer

Name = str

Word = Callable[..., Name]
WORDS: dict[str, Word] = {}


def _word(*names: str) -> Callable[[Word], Word]:
    """Enter what writes words: a function of the writer and the operands, of one type where that counts."""

    def enter(function: Word) -> Word:
        WORDS.update(dict.fromkeys(names, function))
        return function

    return enter


def _plain(op: str, on_bools: str | None = None, dtype: DType | None = None) -> Word:
    def write(w: Writer, *operands: Name) -> Name:
        if on_bools is not None and w.dtypes[operands[0]] is bool_:
            return w.emit(on_bools, *operands)
        return w.emit(op, *operands, dtype=dtype)

    return write


WORDS |= {
    word: _plain(op)
    for word, op in {
        "sub": "Sub", "div": "Div", "abs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin",
        "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
        "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf",
        "sigmoid": "Sigmoid", "pow": "Pow", "select": "Where",
    }.items()
}  # fmt: skip
WORDS |= {
    word: _plain(op, dtype=bool_)
    for word, op in {
        "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal",
        "isnan": "IsNaN",
    }.items()
}  # fmt: skip
WORDS |= {
    word: _plain(op, on_bools)
    for word, (op, on_bools) in {
        "add": ("Add", "Or"), "mul": ("Mul", "And"), "max": ("Max", "Or"), "min": ("Min", "And"),
        "bit_and": ("BitwiseAnd", "And"), "bit_or": ("BitwiseOr", "Or"), "bit_xor": ("BitwiseXor", "Xor"),
        "bit_not": ("BitwiseNot", "Not"),
    }.items()
}  # fmt: skip


@_word("ne")
def _ne(w: Writer, a: Name, b: Name) -> Name:
    return w.emit("Not", w.emit("Equal", a, b, dtype=bool_))


@_word("neg")
def _neg(w: Writer, x: Name) -> Name:
    if w.dtypes[x].is_signed:
        return w.emit("Neg", x)
    return w.emit("Sub", 0, x)


@_word("sign")
def _sign(w: Writer, x: Name) -> Name:
    """0 for NaN, of which ONNX says nothing."""
    if not w.dtypes[x].is_floating_point:
        return x if w.dtypes[x] is bool_ else w.emit("Sign", x)
    return w.emit("Where", w.emit("IsNaN", x, dtype=bool_), 0, w.emit("Sign", x))


def _whole(op: str) -> Word:
    return lambda w, x: w.emit(op, x) if w.dtypes[x].is_floating_point else x


WORDS |= {"floor": _whole("Floor"), "ceil": _whole("Ceil"), "round": _whole("Round")}


@_word("trunc")
def _trunc(w: Writer, x: Name) -> Name:
    if not w.dtypes[x].is_floating_point:
        return x
    below = w.emit("Less", x, 0, dtype=bool_)
    return w.emit("Where", below, w.emit("Ceil", x), w.emit("Floor", x))


@_word("trunc_div")
def _trunc_div(w: Writer, a: Name, b: Name) -> Name:
    """ONNX leaves open what an integer divided by 0 is."""
    if w.dtypes[a].is_floating_point:
        return _trunc(w, w.emit("Div", a, b))
    zero = w.emit("Equal", b, 0, dtype=bool_)
    return w.emit("Where", zero, 0, w.emit("Div", a, w.emit("Where", zero, 1, b)))


@_word("fmod")
def _fmod(w: Writer, a: Name, b: Name) -> Name:
    return w.emit("Mod", a, b, fmod=1)


@_word("remainder")
def _remainder(w: Writer, a: Name, b: Name) -> Name:
    """With the sign of b; ONNX's own is of integers alone."""
    if not w.dtypes[a].is_floating_point:
        return w.emit("Mod", a, b)
    rest = _fmod(w, a, b)
    apart = w.emit("Xor", *(w.emit("Less", x, 0, dtype=bool_) for x in (rest, b)))
    wrong = w.emit("And", apart, w.emit("Not", w.emit("Equal", rest, 0, dtype=bool_)))
    return w.emit("Where", wrong, w.emit("Add", rest, b), rest)


@_word("copysign")
def _copysign(w: Writer, a: Name, b: Name) -> Name:
    """Of zeros, the quotient tells the sign."""
    size = w.emit("Abs", a)
    zero = w.emit("Equal", b, 0, dtype=bool_)
    told = w.emit("Where", zero, w.emit("Div", 1, b), b)
    return w.emit("Where", w.emit("Less", told, 0, dtype=bool_), w.emit("Neg", size), size)


@_word("rsqrt")
def _rsqrt(w: Writer, x: Name) -> Name:
    return w.emit("Reciprocal", w.emit("Sqrt", x))


@_word("exp2")
def _exp2(w: Writer, x: Name) -> Name:
    return w.emit("Pow", 2, x)


@_word("expm1")
def _expm1(w: Writer, x: Name) -> Name:
    """tanh(x / 2) (e^x + 1): nothing cancels near 0.  Where e^x is infinite, so is the result."""
    return w.emit("Mul", w.emit("Tanh", w.emit("Mul", x, 0.5)), w.emit("Add", w.emit("Exp", x), 1))


@_word("log1p")
def _log1p(w: Writer, x: Name) -> Name:
    """log(y) x / (y - 1) of the rounded y = 1 + x: what it lost is in the quotient.  Source: Kahan."""
    y = w.emit("Add", x, 1)
    lost = w.emit("Sub", y, 1)
    plain = w.emit("Log", y)
    exact = w.emit("Mul", plain, w.emit("Div", x, lost))
    near = w.emit("Where", w.emit("Equal", lost, 0, dtype=bool_), x, exact)
    return w.emit("Where", w.emit("Less", y, 4, dtype=bool_), near, plain)


def _log_to(base: float) -> Word:
    return lambda w, x: w.emit("Mul", w.emit("Log", x), 1 / log(base))


WORDS |= {"log2": _log_to(2.0), "log10": _log_to(10.0)}


@_word("erfc")
def _erfc(w: Writer, x: Name) -> Name:
    return w.emit("Sub", 1, w.emit("Erf", x))


@_word("atan2")
def _atan2(w: Writer, y: Name, x: Name) -> Name:
    """The angle of |y| and |x|, from 0 to pi / 2, mirrored by their signs."""
    tall, wide = w.emit("Abs", y), w.emit("Abs", x)
    same = w.emit("Equal", tall, wide, dtype=bool_)  # two zeros or infinities, too
    origin = w.emit("Equal", tall, 0, dtype=bool_)
    ratio = w.emit("Where", same, 1, w.emit("Div", tall, wide))
    angle = w.emit("Where", origin, 0, w.emit("Atan", ratio))
    left = w.emit("Less", _copysign(w, w.constant(1, w.dtypes[x]), x), 0, dtype=bool_)
    return _copysign(w, w.emit("Where", left, w.emit("Sub", pi, angle), angle), y)


@_word("fma")
def _fma(w: Writer, a: Name, b: Name, c: Name) -> Name:
    return w.emit("Add", w.emit("Mul", a, b), c)


# ---- bodies


def write_body(w: Writer, node: Node, operands: list[Name | None]) -> list[Name]:
    """Write what an elementwise op's body computes of one element, on all."""
    given: list[Any] = [None if name is None else ref(f"x{n}") for n, name in enumerate(operands)]
    lower: Any = node.op.lower
    made = lower.body(*given, **node.attrs)
    body = _Body(w, node, {f"x{n}": name for n, name in enumerate(operands) if name is not None})
    shapes = {f"x{n}": v.shape for n, v in enumerate(node.inputs) if v is not None}
    several = made if isinstance(made, tuple) else (made,)
    return [
        body.whole(each, out.dtype, out.shape, shapes)
        for each, out in zip(several, node.outputs, strict=True)
    ]


class _Body:
    """An expression of scalars, written on arrays.  names: of its references."""

    def __init__(self, w: Writer, node: Node, names: dict[str, Name]):
        self.w, self.node, self.names = w, node, names
        self.stages = {given: w.dtypes[name].short for given, name in names.items()}
        self.types: dict[Expr, str | None] = {}
        self.written: dict[tuple[Expr, str], Name] = {}

    def whole(self, made: Any, dtype: DType, shape: Shape, shapes: dict[str, Shape]) -> Name:
        """The array of an expression, in the shape of the op's result."""
        if not isinstance(made, Expr):
            if isinstance(made, Dim):
                return self.w.expanded(self.w.number(made, dtype), shape)
            return self.w.filled(self.node.outputs[0].type, made)
        name = self.write(made, dtype.short)
        own = [shapes[part.name] for part in in_order(made) if isinstance(part, Ref)]
        fits = own and broadcast_shapes(self.node.op.name, *own) == shape
        return name if fits else self.w.expanded(name, shape)

    def write(self, expr: Expr, wanted: str) -> Name:
        """The name of an expression's value.  wanted: its type where it has none of its own."""
        key = expr, self.type_of(expr) or wanted
        if key not in self.written:
            self.written[key] = self._written(*key)
        return self.written[key]

    def type_of(self, expr: Expr) -> str | None:
        return dtype_of(expr, {}, self.stages, self.types)

    def _written(self, expr: Expr, own: str) -> Name:
        match expr:
            case Const(value):
                return self.w.constant(value, dtype_named(own))
            case Size(dim):
                return self.w.number(dim, dtype_named(own))
            case Ref(name):
                return self.names[name]
            case Cast(dtype, arg, bits) if not bits and dtype not in ("u32", "u64"):
                return self.w.cast(self.write(arg, dtype), dtype_named(dtype))
            case Op(name, args):
                return self._op(expr, name, args, own)
        raise self.w.refusal(self.node, "it reads the bits of numbers, for which ONNX has no operator")

    def _op(self, expr: Op, name: str, args: tuple[Expr, ...], own: str) -> Name:
        word = VOCABULARY[name]
        letters = word.pattern.split(":")[0]
        agreed = next(
            (t for t, letter in zip(map(self.type_of, args), letters, strict=True) if letter == "t" and t),
            own,
        )
        if name in WORDS:
            names = [
                self.write(a, "bool" if letter == "b" else agreed)
                for a, letter in zip(args, letters, strict=True)
            ]
            return WORDS[name](self.w, *names)
        simpler = word.expansion(agreed, args)
        if simpler is None:
            raise self.w.refusal(self.node, f"ONNX has no operator for {name}")
        return self.write(simpler, own)
