"""The one scalar vocabulary: each word's types, its NumPy, LLVM and Triton spellings, and its expansion.

A word is a function on expressions: `sigmoid(x) * x` builds them.  A backend takes its own spelling, else the
expansion, else (LLVM) the C library's function lane by lane.  Composites such as gelu are no words: they are
bodies written with these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import KernelError
from . import doubles, expansions, philox, special
from .scalar import Const, Expr, Op, Scalar, Size, cast, op
from .types import kind

# Spellings by kind of element type: f floating, i signed, u unsigned, b bool (types.kind).
Spelling = str | Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Word:
    """One operation of the vocabulary.

    pattern: operands and result, `t` being the one type of the operands that agree, `b` bool: "btt:t" is
             select.
    kinds:   the kinds that t may be of; halves (h) only where the word moves or compares values.
    numpy:   a ufunc, or a function on arrays of the type.
    llvm:    an instruction; {t} its type, {0} {1} operands, {s} the type's suffix for intrinsics, {m} bool of
             the same width.
    triton:  Python source.
    libm:    the C function, for LLVM where there is neither an instruction nor an expansion.
    expand:  the same in simpler words, for types in `expands`, by kind or type where they differ; it may
             decline with None.
    by_bits: the same for f32 where `scale2` is no instruction.

    Integers divided by zero give no trap and no promised number: the host refuses them before.
    """

    name: str
    pattern: str
    kinds: str
    numpy: Any
    llvm: Spelling | None = None
    triton: Spelling | None = None
    libm: str | None = None
    expand: Callable[..., Expr | None] | Mapping[str, Callable[..., Expr | None]] | None = None
    expands: tuple[str, ...] = ("f32",)
    by_bits: Callable[..., Expr] | None = None

    def __call__(self, *args: Scalar) -> Op:
        if len(args) != self.arity:
            raise KernelError(f"{self.name} takes {self.arity} operands, got {len(args)}")
        return op(self.name, *args)

    @property
    def arity(self) -> int:
        return self.pattern.index(":")

    def expansion(self, dtype: str, args: tuple[Expr, ...], scales: bool = True) -> Expr | None:
        """The word in simpler words at this element type, or None; constants are given the type first.

        scales: whether `scale2` is an instruction."""
        if self.expand is None or dtype not in self.expands:
            return None
        typed = (cast(a, dtype) if _is_untyped(p, a) else a for p, a in zip(self.pattern, args))
        if self.by_bits is not None and dtype == "f32" and not scales:
            return self.by_bits(*typed)
        if not isinstance(self.expand, Mapping):
            return self.expand(*typed)
        return self.expand[dtype if dtype in self.expand else kind(dtype)](*typed)

    def spelling(self, target: str, kind: str) -> str | None:
        """How `target` ("llvm" or "triton") says the word for this kind of type, or None."""
        spelling = self.llvm if target == "llvm" else self.triton
        return spelling if spelling is None or isinstance(spelling, str) else spelling.get(kind)


def _is_untyped(letter: str, arg: Expr) -> bool:
    return letter == "t" and isinstance(arg, (Const, Size)) and arg.dtype is None


def _intrinsic(name: str, arity: int) -> str:
    operands = ", ".join(f"{{t}} {{{k}}}" for k in range(arity))
    return f"call {{t}} @llvm.{name}.{{s}}({operands})"


def _compare(name: str, symbol: str, ufunc: Callable, ordered: str, signed: str, unsigned: str) -> Word:
    llvm = {"f": f"fcmp {ordered} {{t}} {{0}}, {{1}}", "h": f"fcmp {ordered} {{t}} {{0}}, {{1}}"}
    llvm |= {"i": f"icmp {signed} {{t}} {{0}}, {{1}}", "u": f"icmp {unsigned} {{t}} {{0}}, {{1}}"}
    llvm["b"] = llvm["u"]
    return Word(name, "tt:b", "fhiub", ufunc, llvm, f"({{0}} {symbol} {{1}})")


def _math(name: str, function: Callable, triton: str) -> Word:
    """A function of one real number that the C library has under the same name.

    Its expansions are those of that name in expansions.py (f32) and doubles.py (f64), where they have one.
    """
    found = {"f32": getattr(expansions, name, None), "f64": getattr(doubles, name, None)}
    expand = {dtype: rule for dtype, rule in found.items() if rule is not None}
    by_bits = getattr(expansions, f"{name}_by_bits", None)
    return Word(name, "t:t", "f", function, None, triton, name, expand, tuple(expand), by_bits)


def _numpy_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One rounding for float32 (the product is exact in float64); two for float64, where NumPy has no fma."""
    wide = np.multiply(a, b, dtype=np.float64) + c
    return wide.astype(np.result_type(a, b, c))


def _numpy_mulhi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def _numpy_scale2(p: np.ndarray, n: np.ndarray) -> np.ndarray:
    # beyond +-5000 every float64 is 0 or inf already; ldexp takes 32-bit exponents
    return np.ldexp(p, np.clip(np.nan_to_num(n), -5000, 5000).astype(np.int32)).astype(p.dtype)


def _numpy_trunc_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    return np.asarray((a - np.fmod(a, b)) // b, dtype=np.result_type(a, b))


def _numpy_pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """An integer to a negative power is 0 but for 1 and -1, as 1 / x^-y cut to a whole number."""
    below = y < 0
    if y.dtype.kind == "f" or not below.any():
        return np.power(x, y)
    sign = np.where(y & 1, x, x * x)
    return np.where(below, np.where(np.abs(x) == 1, sign, 0), np.power(x, np.where(below, 0, y)))


def _numpy_sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return (np.where(x < 0, e, 1) / (e + 1)).astype(x.dtype)


def _numpy_sign(x: np.ndarray) -> np.ndarray:
    return (
        ((x > 0).astype(x.dtype) - (x < 0)).astype(x.dtype)
        if x.dtype.kind in "fi"
        else (x != 0).astype(x.dtype)
    )


_INTEGERS = ("i64", "i32", "i16", "i8", "u8", "u32", "u64")
_UNSIGNED = ("u8", "u32", "u64")
_FLOATS = ("f32", "f64")
_PROPAGATE = ", propagate_nan=tl.PropagateNan.ALL)"
_NUMBER_MAX = {"f": _intrinsic("maximum", 2), "i": _intrinsic("smax", 2), "u": _intrinsic("umax", 2)}
_NUMBER_MIN = {"f": _intrinsic("minimum", 2), "i": _intrinsic("smin", 2), "u": _intrinsic("umin", 2)}


def _number(instruction: str, floating: str) -> dict[str, str]:
    integer = f"{instruction} {{t}} {{0}}, {{1}}"
    return {"f": f"{floating} {{t}} {{0}}, {{1}}", "i": integer, "u": integer}


def _itself(x: Expr) -> Expr:
    return x


def _truth(number: Spelling, instruction: str, symbol: str = "") -> dict[str, str]:
    """The spellings of a word that is a logical one on bools: the sum is `or`, the product `and`."""
    on_bool = f"({{0}} {symbol} {{1}})" if symbol else f"{instruction} {{t}} {{0}}, {{1}}"
    return (dict.fromkeys("fiu", number) if isinstance(number, str) else dict(number)) | {"b": on_bool}


def _whole(name: str, function: Callable, llvm: str, triton: str) -> Word:
    """A rounding to whole numbers: integers are whole already."""

    def rounded(x: np.ndarray) -> np.ndarray:
        return x.copy() if x.dtype.kind in "iu" else function(x)

    return Word(name, "t:t", "fiu", rounded, {"f": llvm}, {"f": triton}, None, lambda x: x, _INTEGERS)


def _both(instruction: str) -> dict[str, str]:
    return dict.fromkeys("iub", f"{instruction} {{t}} {{0}}, {{1}}")


# ---- arithmetic
add = Word(
    "add", "tt:t", "fiub", np.add, _truth(_number("add", "fadd"), "or"), _truth("({0} + {1})", "", "|")
)
sub = Word("sub", "tt:t", "fiu", np.subtract, _number("sub", "fsub"), "({0} - {1})")
mul = Word(
    "mul", "tt:t", "fiub", np.multiply, _truth(_number("mul", "fmul"), "and"), _truth("({0} * {1})", "", "&")
)
div = Word("div", "tt:t", "f", np.divide, "fdiv {t} {0}, {1}", "tl.div_rn({0}, {1})")
fma = Word("fma", "ttt:t", "f", _numpy_fma, _intrinsic("fma", 3), "tl.fma({0}, {1}, {2})")
neg = Word(
    "neg",
    "t:t",
    "fiu",
    np.negative,
    {"f": "fneg {t} {0}", "i": "sub {t} zeroinitializer, {0}", "u": "sub {t} zeroinitializer, {0}"},
    "(-{0})",
)
abs = Word(
    "abs",
    "t:t",
    "fiu",
    np.abs,
    {"f": _intrinsic("fabs", 1), "i": "call {t} @llvm.abs.{s}({t} {0}, i1 false)"},
    {"f": "tl.abs({0})", "i": "tl.abs({0})"},
    None,
    {"u": _itself},
    _UNSIGNED,
)
max = Word(
    "max",
    "tt:t",
    "fiub",
    np.maximum,
    _truth(_NUMBER_MAX, "or"),
    {
        "f": "tl.maximum({0}, {1}" + _PROPAGATE,
        "i": "tl.maximum({0}, {1})",
        "u": "tl.maximum({0}, {1})",
        "b": "({0} | {1})",
    },
)
min = Word(
    "min",
    "tt:t",
    "fiub",
    np.minimum,
    _truth(_NUMBER_MIN, "and"),
    {
        "f": "tl.minimum({0}, {1}" + _PROPAGATE,
        "i": "tl.minimum({0}, {1})",
        "u": "tl.minimum({0}, {1})",
        "b": "({0} & {1})",
    },
)
sign = Word(
    "sign",
    "t:t",
    "fiub",
    _numpy_sign,
    expands=(*_INTEGERS, *_FLOATS, "bool"),
    expand={"f": expansions.sign, "i": expansions.sign, "u": lambda x: min(x, 1), "b": _itself},
)
trunc_div = Word(
    "trunc_div",
    "tt:t",
    "fiu",
    _numpy_trunc_div,
    {"i": "sdiv {t} {0}, {1}", "u": "udiv {t} {0}, {1}"},
    {"i": "({0} // {1})", "u": "({0} // {1})"},
    None,
    lambda x, y: trunc(div(x, y)),
    _FLOATS,
)
fmod = Word(
    "fmod",
    "tt:t",
    "fiu",
    np.fmod,
    {"i": "srem {t} {0}, {1}", "u": "urem {t} {0}, {1}"},
    {"f": "libdevice.fmod({0}, {1})", "i": "({0} % {1})", "u": "({0} % {1})"},
    "fmod",
)
floor_div = Word(
    "floor_div",
    "tt:t",
    "fiu",
    np.floor_divide,
    expands=_INTEGERS + _FLOATS,
    expand={"f": expansions.floor_div_floating, "i": expansions.floor_div, "u": trunc_div},
)
remainder = Word(
    "remainder", "tt:t", "fiu", np.remainder, expand=expansions.remainder, expands=_INTEGERS + _FLOATS
)
mulhi = Word("mulhi", "tt:t", "u", _numpy_mulhi, triton="tl.umulhi({0}, {1})")

# ---- rounding and signs
round = _whole("round", np.rint, _intrinsic("rint", 1), "libdevice.rint({0})")
floor = _whole("floor", np.floor, _intrinsic("floor", 1), "tl.floor({0})")
ceil = _whole("ceil", np.ceil, _intrinsic("ceil", 1), "tl.ceil({0})")
trunc = _whole("trunc", np.trunc, _intrinsic("trunc", 1), "libdevice.trunc({0})")
copysign = Word(
    "copysign", "tt:t", "f", np.copysign, _intrinsic("copysign", 2), "libdevice.copysign({0}, {1})"
)
# p * 2^n for a whole n
scale2 = Word(
    "scale2",
    "tt:t",
    "f",
    _numpy_scale2,
    None,
    "libdevice.ldexp({0}, ({1}).to(tl.int32))",
    expand={"f32": expansions.scale2, "f64": doubles.scale2},
    expands=_FLOATS,
)

# ---- transcendental
sqrt = Word("sqrt", "t:t", "f", np.sqrt, _intrinsic("sqrt", 1), "tl.sqrt_rn({0})")
rsqrt = Word(
    "rsqrt",
    "t:t",
    "f",
    lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    expand=lambda x: 1.0 / sqrt(x),
    expands=_FLOATS,
)
exp = _math("exp", np.exp, "tl.exp({0})")
# The same where x is at most 0, which emitters find out: see `never_above_zero`.
exp_below = _math("exp_below", np.exp, "tl.exp({0})")
exp2 = _math("exp2", np.exp2, "tl.exp2({0})")
expm1 = _math("expm1", np.expm1, "libdevice.expm1({0})")
log = _math("log", np.log, "tl.log({0})")
log2 = _math("log2", np.log2, "tl.log2({0})")
log10 = _math("log10", np.log10, "libdevice.log10({0})")
log1p = _math("log1p", np.log1p, "libdevice.log1p({0})")
sin = _math("sin", np.sin, "tl.sin({0})")
cos = _math("cos", np.cos, "tl.cos({0})")
tan = _math("tan", np.tan, "libdevice.tan({0})")
asin = _math("asin", np.arcsin, "libdevice.asin({0})")
acos = _math("acos", np.arccos, "libdevice.acos({0})")
atan = _math("atan", np.arctan, "libdevice.atan({0})")
sinh = _math("sinh", np.sinh, "libdevice.sinh({0})")
cosh = _math("cosh", np.cosh, "libdevice.cosh({0})")
tanh = _math("tanh", np.tanh, "libdevice.tanh({0})")
asinh = _math("asinh", np.arcsinh, "libdevice.asinh({0})")
acosh = _math("acosh", np.arccosh, "libdevice.acosh({0})")
atanh = _math("atanh", np.arctanh, "libdevice.atanh({0})")
erf = _math("erf", special.erf, "tl.erf({0})")
erfc = _math("erfc", special.erfc, "libdevice.erfc({0})")
erfinv = Word(
    "erfinv",
    "t:t",
    "f",
    special.erfinv,
    None,
    "libdevice.erfinv({0})",
    expand={"f32": expansions.erfinv, "f64": doubles.erfinv},
    expands=_FLOATS,
)
lgamma = _math("lgamma", special.lgamma, "libdevice.lgamma({0})")
atan2 = Word("atan2", "tt:t", "f", np.arctan2, None, "libdevice.atan2({0}, {1})", "atan2")
pow = Word(
    "pow",
    "tt:t",
    "fiu",
    _numpy_pow,
    None,
    {"f": "libdevice.pow({0}, {1})"},
    "pow",
    {"f32": expansions.power_single, "f": expansions.power, "i": expansions.power, "u": expansions.power},
    _INTEGERS + _FLOATS,
)
sigmoid = Word("sigmoid", "t:t", "f", _numpy_sigmoid, expand=expansions.sigmoid, expands=_FLOATS)

# ---- comparison and choice
lt = _compare("lt", "<", np.less, "olt", "slt", "ult")
le = _compare("le", "<=", np.less_equal, "ole", "sle", "ule")
gt = _compare("gt", ">", np.greater, "ogt", "sgt", "ugt")
ge = _compare("ge", ">=", np.greater_equal, "oge", "sge", "uge")
eq = _compare("eq", "==", np.equal, "oeq", "eq", "eq")
ne = _compare("ne", "!=", np.not_equal, "une", "ne", "ne")
isnan = Word("isnan", "t:b", "fh", np.isnan, "fcmp uno {t} {0}, {0}", "({0} != {0})")
select = Word(
    "select", "btt:t", "fhiub", np.where, "select {m} {0}, {t} {1}, {t} {2}", "tl.where({0}, {1}, {2})"
)

# ---- bits; on bool they are the logical and, or, xor, not
bit_and = Word("bit_and", "tt:t", "iub", np.bitwise_and, _both("and"), "({0} & {1})")
bit_or = Word("bit_or", "tt:t", "iub", np.bitwise_or, _both("or"), "({0} | {1})")
bit_xor = Word("bit_xor", "tt:t", "iub", np.bitwise_xor, _both("xor"), "({0} ^ {1})")
bit_not = Word(
    "bit_not",
    "t:t",
    "iub",
    np.invert,
    dict.fromkeys("iub", "xor {t} {0}, {ones}"),
    {"i": "(~{0})", "u": "(~{0})", "b": "({0} == 0)"},
)
shl = Word("shl", "tt:t", "iu", np.left_shift, dict.fromkeys("iu", "shl {t} {0}, {1}"), "({0} << {1})")
shr = Word(
    "shr", "tt:t", "iu", np.right_shift, {"i": "ashr {t} {0}, {1}", "u": "lshr {t} {0}, {1}"}, "({0} >> {1})"
)

# ---- random numbers: k0 k1 c0 c1 c2 c3 and which of the four words, all u32
random_bits = Word(
    "random_bits",
    "ttttttt:t",
    "u",
    philox.numpy_random_bits,
    expand=philox.random_bits,
    expands=("u32",),
)

VOCABULARY: dict[str, Word] = {
    word.name: word for word in tuple(globals().values()) if isinstance(word, Word)
}
