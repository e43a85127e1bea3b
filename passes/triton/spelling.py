"""How Triton says numbers, conversions and the words of the vocabulary, for each element type."""

from __future__ import annotations

import math

from ...ir.kernel.types import bits, is_floating, kind
from ...ir.kernel.words import VOCABULARY

TYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "int1"}
TYPES |= {
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "u32": "uint32",
    "u64": "uint64",
}

# Words whose spelling takes only float32.
_DOUBLE = {
    "div": "({0} / {1})",
    "sqrt": "tl.sqrt({0})",
    "max": "tl.where(({0} > {1}) | ({0} != {0}), {0}, {1})",
    "min": "tl.where(({0} < {1}) | ({0} != {0}), {0}, {1})",
}
# In 3.6 a minus is a subtraction from 0, which loses the sign of a zero.  tl.exp of f32 multiplies by log2(e)
# once, rounded: 40 ulp at 80.
_INSTEAD = {"neg": "({0} * -1.0)", "exp": "libdevice.exp({0})"}
# Triton compares bfloat16 by way of float32 only on some targets, and its interpreter compares the bits.
_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "isnan"))


def number(value: bool | int | float, dtype: str, rank: int) -> str:
    """A typed constant, a tensor of size 1 in every dimension; a scalar where there are none."""
    if _is_negative_zero(value):  # 3.6 has one zero in constants
        return f"(tl.full({[1] * rank}, 0.0, tl.{TYPES[dtype]}) * -1.0)"
    return f"tl.full({[1] * rank}, {literal(value, dtype)}, tl.{TYPES[dtype]})"


def literal(value: bool | int | float, dtype: str) -> str:
    """A constant as Python writes it, typed by what stands beside it."""
    if not is_floating(dtype):
        return repr(value)
    if _is_negative_zero(value):
        return number(value, dtype, 0)
    text = repr(float(value))
    return f"float('{text}')" if "inf" in text or "nan" in text else text


def _is_negative_zero(value: bool | int | float) -> bool:
    return value == 0 and math.copysign(1, value) < 0


def converted(value: str, source: str, target: str, as_bits: bool) -> str:
    """A value as another element type, or its bits read as one."""
    if as_bits:
        return f"{value}.to(tl.{TYPES[target]}, bitcast=True)"
    if target == "bool":
        return f"({value}.to(tl.float32) != 0)" if kind(source) == "h" else f"({value} != 0)"
    if is_floating(source) and kind(target) == "u":  # a negative number wraps, as on the CPU
        return f"{value}.to(tl.int64).to(tl.{TYPES[target]})"
    return f"{value}.to(tl.{TYPES[target]})"


def spelled(word: str, dtype: str, *operands: str) -> str | None:
    """A word applied to operands of this type, or None where Triton has no such function."""
    letter = kind(dtype)
    if letter == "h" and word in _COMPARISONS:
        operands = tuple(f"{operand}.to(tl.float32)" for operand in operands)
    spelling = VOCABULARY[word].spelling("triton", "f" if letter == "h" else letter)
    if word in _INSTEAD and letter == "f":
        spelling = _INSTEAD[word]
    elif dtype == "f64":
        spelling = _DOUBLE.get(word, spelling)
    if spelling is None and word == "pow" and letter in "iu":
        return f"pow_{dtype}_helper({', '.join(operands)})"
    return None if spelling is None else spelling.format(*operands)


def power_helper(dtype: str) -> str:
    """The function that raises integers to powers: a squaring for each bit, so that every result wraps."""
    steps = bits(dtype) - (kind(dtype) == "i")
    below = "" if kind(dtype) == "u" else _BELOW
    return _POWER.format(dtype=dtype, steps=steps, type=TYPES[dtype], below=below)


_POWER = """\
@triton.jit
def pow_{dtype}_helper(x, y):
    value = x * 0 + y * 0 + 1
    square = x + y * 0
    power = x * 0 + y
    for step in range({steps}):
        value = tl.where((power & 1) != 0, value * square, value).to(tl.{type})
        square = (square * square).to(tl.{type})
        power = (power >> 1).to(tl.{type})
{below}    return value
"""
_BELOW = """\
    value = tl.where((y < 0) & (x != 1) & (x != -1), 0, value)
    value = tl.where((y < 0) & ((x == 1) | (x == -1)), tl.where((y & 1) != 0, x, x * x), value)
"""
