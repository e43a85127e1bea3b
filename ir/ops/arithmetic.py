"""Arithmetic between numbers: sums and products, and the sign of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType
from ..elementwise import elementwise
from ..errors import ArgumentValueError, DTypeError
from ..op import composite, older
from ..sample import Operand, Sample, binary_samples, unary_samples
from ..shapes import result_dtype
from ..types import Type
from .cast import dtype_of, rounded_once
from .compare import where
from .complex import is_complex_valued, magnitude, sgn
from .create import zeros_like

BOTH = ("input", "other")
# Away from the jumps of // and %: every divisor is larger than every dividend.
_DIVISOR = binary_samples({"low": 0.2, "high": 1.9}, {"low": 2.1, "high": 3.9})
_NOT_ZERO = binary_samples({"low": -2.0, "high": 2.0}, {"low": 0.5, "high": 3.0})


def zero(g: Any) -> Any:
    """The gradient of a step function: zero wherever there is one, as PyTorch has it."""
    return zeros_like(g)


# --- sums and products --------------------------------------------------------------------------------------


def check_alpha(
    op: str, by: Any, x: Any, is_bool: bool, is_float: bool, is_complex: bool, name: str = "alpha"
) -> None:
    """Refuse an alpha (`name`) that would change the dtype of alpha * x + by.  Raises DTypeError.

    It is told what alpha is, not alpha: so a recorder keeps a number open that changes from call to call.
    """
    if is_bool and not (_is_bool(by) and _is_bool(x)):
        raise DTypeError(f"{op}: Boolean {name} only supported for Boolean results, not for numbers")
    if (is_float or is_complex) and not (_is_inexact(by) or _is_inexact(x)):
        raise DTypeError(
            f"{op}: For integral input tensors, argument {name} must not be a floating point number",
            "convert an operand: x.float()",
        )
    if is_complex and not (_is_complex(by) or _is_complex(x)):
        raise DTypeError(
            f"{op}: For non-complex input tensors, argument {name} must not be a complex number",
            "convert an operand: x.to(lamina.complex64)",
        )


def _is_inexact(x: Any) -> bool:
    return dtype_of(x).inexact if hasattr(x, "dtype") else isinstance(x, (float, complex))


def _is_bool(x: Any) -> bool:
    return dtype_of(x).category == "bool" if hasattr(x, "dtype") else isinstance(x, bool)


def _is_complex(x: Any) -> bool:
    return isinstance(x, complex) or is_complex_valued(x)


@older("alpha")
def bind_add(input, other, *, alpha=1):
    """Add: input + alpha * other, with broadcasting and type promotion.  bool + bool is `or`.

    Raises DTypeError for an alpha that is a fraction where the operands are integers, and the like.
    """
    if alpha != 1 or isinstance(alpha, bool):
        check_alpha(
            "add", input, other, isinstance(alpha, bool), isinstance(alpha, float), isinstance(alpha, complex)
        )
        if _is_bool(input) and _is_bool(other):
            alpha = bool(alpha)
    return (input, other if alpha == 1 else other * alpha), {}


def _through(g, saved):
    return g


def _quick_grad_add(types, attrs):
    return (_through, _through) if types[0] is types[1] and types[0].ndim else None


add = elementwise(
    "add",
    "add",
    bind=bind_add,
    reference=np.add,
    operands=BOTH,
    commutative=True,
    quick_grad=_quick_grad_add,
    grad=(lambda g: g, lambda g: g),
    complex="analytic",
)


@older("alpha")
def bind_sub(input, other, *, alpha=1):
    """Subtract: input - alpha * other, with broadcasting and type promotion.

    Raises DTypeError for bools, and for an alpha that is a fraction where the operands are integers.
    """
    if alpha != 1 or isinstance(alpha, bool):
        check_alpha(
            "sub", input, other, isinstance(alpha, bool), isinstance(alpha, float), isinstance(alpha, complex)
        )
    return (input, other if alpha == 1 else other * alpha), {}


def _without_bools(*types: Type) -> tuple[DType, DType]:
    if any(t.dtype.category == "bool" for t in types):
        raise DTypeError(
            "sub: does not take bool", "use logical_not(x) for 1 - x, logical_xor(x, y) for x - y"
        )
    return (result_dtype(*types),) * 2


sub = elementwise(
    "sub",
    "sub",
    bind=bind_sub,
    reference=np.subtract,
    operands=BOTH,
    result=_without_bools,
    dtypes="number",
    aliases=("subtract",),
    grad=(lambda g: g, lambda g: -g),
    complex="analytic",
)


@composite()
def rsub(input, other, *, alpha=1):
    """Subtract the other way round: other - alpha * input."""
    if alpha != 1 or isinstance(alpha, bool):
        check_alpha(
            "rsub",
            other,
            input,
            isinstance(alpha, bool),
            isinstance(alpha, float),
            isinstance(alpha, complex),
        )
    return other - (input if alpha == 1 else input * alpha)


def _quick_grad_mul(types, attrs):
    if types[0] is not types[1] or not types[0].ndim:
        return None
    return (lambda g, saved: np.multiply(g, saved[1]), lambda g, saved: np.multiply(g, saved[0]))


mul = elementwise(
    "mul",
    "mul",
    reference=np.multiply,
    operands=BOTH,
    commutative=True,
    aliases=("multiply",),
    quick_grad=_quick_grad_mul,
    grad=(lambda g, other: g * other, lambda g, input: g * input),
    doc="Multiply, with broadcasting and type promotion.  bool * bool is `and`.",
    complex="analytic",
)

_quotient = elementwise(
    "div",
    "div",
    reference=np.true_divide,
    operands=BOTH,
    result="float",
    samples=_NOT_ZERO,
    grad=(lambda g, other: g / other, lambda g, input, other: -g * (input / other) / other),
    doc="Divide, with broadcasting; integers are divided as the default float.",
    complex="analytic",
)


@composite(aliases=("divide", "true_divide"), inplace=True)
def div(input, other, *, rounding_mode=None):
    """Divide, with broadcasting and type promotion.

    rounding_mode None: a float, also of integers.  "trunc": rounded towards 0, as C's integers.  "floor":
    rounded down, as Python's //.  With a mode integers stay integers.
    """
    if rounding_mode is None:
        return input / other
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return trunc_divide(input, other)
    raise ArgumentValueError(f"div: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")


floor_divide = elementwise(
    "floor_divide",
    "floor_div",
    reference=np.floor_divide,
    operands=BOTH,
    dtypes="number",
    samples=_DIVISOR,
    grad=(zero, zero),
    doc="Divide and round down, as Python's //.  Integers stay integers; one divided by 0 gives 0.",
)


def _trunc_divide(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    if input.dtype.kind == "f":
        return np.trunc(input / other)
    quotient = np.floor_divide(input, other)
    # Rounded down, so one too low where the quotient is negative and not whole
    return quotient + ((quotient < 0) & (quotient * other != input))


trunc_divide = elementwise(
    "trunc_divide",
    "trunc_div",
    reference=_trunc_divide,
    operands=BOTH,
    dtypes="number",
    samples=_DIVISOR,
    grad=(zero, zero),
    method=False,
    doc="Divide and round towards 0, as C divides integers.  This is div(…, rounding_mode='trunc').",
)


def _remainder(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    if input.dtype.kind != "f":
        return np.remainder(input, other)
    rest = np.fmod(input, other)  # np.remainder would lose the sign of a zero
    return np.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


remainder = elementwise(
    "remainder",
    "remainder",
    reference=_remainder,
    operands=BOTH,
    dtypes="number",
    samples=_DIVISOR,
    grad=(lambda g: g, lambda g, input, other: -g * floor_divide(input, other)),
    doc="Take the remainder with the sign of `other`, as Python's %: input - other * floor(input / other).",
)

fmod = elementwise(
    "fmod",
    "fmod",
    reference=np.fmod,
    operands=BOTH,
    dtypes="number",
    samples=_DIVISOR,
    grad=(lambda g: g, lambda g, input, other: -g * trunc_divide(input, other)),
    doc="Take the remainder with the sign of `input`, as C's fmod: input - other * trunc(input / other).",
)


@older("value")
def bind_addcmul(input, tensor1, tensor2, *, value=1):
    """Add a product: input + value * tensor1 * tensor2, with broadcasting and type promotion.

    Raises DTypeError for bools, and for integers where `value` is none.
    """
    return (input, tensor1, tensor2), {"value": value}


@older("value")
def bind_addcdiv(input, tensor1, tensor2, *, value=1):
    """Add a quotient: input + value * tensor1 / tensor2, with broadcasting.

    Raises DTypeError for integers.
    """
    return (input, tensor1, tensor2), {"value": value}


def _three(third: tuple[float, float] = (-2.0, 2.0), **more: Any) -> list[Sample]:
    shapes: list[Any] = [(s, s, s) for s in ((), (0,), (1,), (17,), (33,))]
    shapes += [((3, 17), (17,), (3, 1)), ((5,), (2, 5), ()), ((2, 1, 3), (4, 1), (3,))]
    return [Sample((Operand(a), Operand(b), Operand(c, *third)), more) for a, b, c in shapes]


def _scaled_result(*types: Type, value: float) -> tuple[DType, DType]:
    dtype = result_dtype(*types)
    if dtype.category == "int" and (isinstance(value, float) or (value < 0 and not dtype.is_signed)):
        raise DTypeError(f"addcmul: value={value} is no {dtype.name}", "convert the operands: x.float()")
    return dtype, dtype


def _divided_result(*types: Type, value: float) -> tuple[DType, DType]:
    dtype = result_dtype(*types)
    if not dtype.inexact:
        raise DTypeError(
            f"Integer division with addcdiv is no longer supported: the operands give {dtype.name}",
            "divide by div(…, rounding_mode='trunc'), or convert an operand: x.float()",
        )
    return dtype, dtype


addcmul = elementwise(
    "addcmul",
    lambda input, tensor1, tensor2, *, value: input + (tensor1 if value == 1 else tensor1 * value) * tensor2,
    bind=bind_addcmul,
    operands=("input", "tensor1", "tensor2"),
    attrs=("value",),
    result=_scaled_result,
    dtypes="number",
    grad=(
        lambda g: g,
        lambda g, tensor2, value: g * tensor2 * value,
        lambda g, tensor1, value: g * (tensor1 * value),
    ),
    samples=lambda: [*_three(), *_three(value=2)[-2:]],
    complex="analytic",
)


def _addcdiv_grad(g: Any, tensor1: Any, tensor2: Any, *, value: Any) -> Any:
    return -(g * (tensor1 * value)) / (tensor2 * tensor2)


addcdiv = elementwise(
    "addcdiv",
    lambda input, tensor1, tensor2, *, value: input + (tensor1 if value == 1 else tensor1 * value) / tensor2,
    bind=bind_addcdiv,
    operands=("input", "tensor1", "tensor2"),
    attrs=("value",),
    dtypes="float",
    result=_divided_result,
    grad=(
        lambda g: g,
        lambda g, tensor2, value: g / tensor2 * value,
        lambda g, tensor1, tensor2, value: rounded_once(_addcdiv_grad, g, tensor1, tensor2, value=value),
    ),
    samples=lambda: [*_three((0.5, 3.0)), *_three((0.5, 3.0), value=-0.5)[-2:]],
    complex="analytic",
)


def _lerp(input: np.ndarray, end: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The body below, of which a weight that is one number needs one side alone."""
    if weight.size != 1:
        near = input + weight * (end - input)
        return np.where(np.abs(weight) < 0.5, near, end - (end - input) * (1 - weight))
    if abs(weight.item()) < 0.5:
        return input + weight * (end - input)
    return end - (end - input) * (1 - weight)


def _lerped(input: Type, end: Type, weight: Type) -> tuple[DType, DType]:
    for name, other in (("end", end), ("weight", weight)):
        if other.dtype is not input.dtype and (other is end or other.ndim):
            raise DTypeError(
                f"lerp: expected dtype {input.dtype.name} for `{name}` but got dtype {other.dtype.name}",
                f"convert one: {name}.type_as(input)",
            )
    if not result_dtype(input, end, weight).inexact:
        raise DTypeError(
            f"lerp: \"lerp_kernel\" not implemented for '{input.dtype.scalar_type}'",
            "interpolate floats: lerp(input.float(), end.float(), weight)",
        )
    return (result_dtype(input, end, weight),) * 2


lerp = elementwise(
    "lerp",
    # The end that is nearer is the one started from, so that weights 0 and 1 give it exactly.
    lambda input, end, weight: where(
        abs(weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight)
    ),
    reference=_lerp,
    operands=("input", "end", "weight"),
    dtypes="float",
    result=_lerped,
    grad=(
        lambda g, weight: g * (1 - weight),
        lambda g, weight: g * weight,
        lambda g, input, end: g * (end - input),
    ),
    samples=lambda: _three(),
    doc="Interpolate linearly: input + weight * (end - input).  The three broadcast.",
    complex="analytic",
)


# --- one operand --------------------------------------------------------------------------------------------

neg = elementwise(
    "neg",
    "neg",
    reference=np.negative,
    dtypes="number",
    aliases=("negative",),
    grad=lambda g: -g,
    doc="Negate.  Raises DTypeError for bools.",
    complex="analytic",
)


@composite()
def positive(input):
    """Give the input itself, as Python's +x.  Raises DTypeError for bools."""
    if dtype_of(input).category == "bool":
        raise DTypeError("positive: does not take bool")
    return input


def _sign(input: np.ndarray) -> np.ndarray:
    """Integers and bools; a bool is its own sign."""
    return input.copy("K") if input.dtype.kind == "b" else np.sign(input)


sign = elementwise(
    "sign",
    "sign",
    reference=lambda input: (
        np.where(input != input, 0, np.sign(input)) if input.dtype.kind == "f" else _sign(input)
    ),
    samples=unary_samples(away_from=(0.0,)),
    grad=zero,
    doc="Give -1, 0 or 1 by the sign; 0 for NaN, as in PyTorch.",
)

abs = elementwise(
    "abs",
    "abs",
    reference=np.absolute,
    dtypes="number",
    aliases=("absolute",),
    result=magnitude,
    samples=unary_samples(away_from=(0.0,)),
    grad=lambda g, input: g * (sgn if is_complex_valued(input) else sign)(input),
    doc="Take the absolute value.  The gradient at 0 is 0.",
    complex="stated",
)
