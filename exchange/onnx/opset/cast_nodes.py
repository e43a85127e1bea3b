"""Operators that change what elements are: values in another type, or bits read as another."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ....ir.dtypes import float32, from_numpy_dtype
from ....runtime import Tensor, ops
from ..array_casts import SATURATED, converted_array, largest, numbers_of, powers_of_two, texts_of
from ..declared import Node, OnnxError
from ..element_types import TEXT, bits_of, element_type
from .registry import Value, as_host, as_tensor, operator

BOOL, UINT8 = np.dtype(np.bool_), np.dtype(np.uint8)
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
E4M3FN = np.dtype(ml_dtypes.float8_e4m3fn)
E4M3FN_ROUNDS_TO_LARGEST = 464  # half way to what would be the next number


def dtype_of(value: Value) -> np.dtype:
    """The type of a value's elements, as NumPy's or ml_dtypes'."""
    return value.dtype.numpy if isinstance(value, Tensor) else value.dtype


@operator("Cast", raw=True)
def cast(node: Node, x: Value) -> Value:
    return _cast(node, x, element_type(node.attr("to")))


@operator("CastLike", raw=True)
def cast_like(node: Node, x: Value, like: Value) -> Value:
    return _cast(node, x, dtype_of(like))


def _cast(node: Node, x: Value, to: np.dtype) -> Value:
    if "c" in (dtype_of(x).kind, to.kind):
        raise OnnxError(f"Cast: complex numbers are not cast: {dtype_of(x)} to {to}", str(node))
    return converted(x, to, bool(node.attr("saturate", 1)), node.attr("round_mode", "up"))


def converted(x: Value, to: np.dtype, saturate: bool = True, round_mode: str = "up") -> Value:
    """Values in another type: a tensor of a tensor, if there are tensors of that type.

    saturate: what is too large for eight bits becomes their largest number, not NaN or infinity.
    round_mode: "up", "down" or "nearest", to powers of two.
    """
    if to == dtype_of(x):
        return x
    if dtype_of(x) == TEXT:
        return numbers_of(x, to)
    if to == TEXT:
        return texts_of(as_host(x))
    if to == E8M0:
        made = powers_of_two(as_host(x), saturate, round_mode)
        return as_tensor(made) if isinstance(x, Tensor) else made
    known = from_numpy_dtype(to)
    if known is None or not isinstance(x, Tensor):
        made = converted_array(as_host(x), to, saturate)
        return as_tensor(made) if isinstance(x, Tensor) else made
    if to.name in SATURATED:
        x = x.to(float32)
        if saturate:
            x = ops.FUNCTIONS["clamp"](x, -largest(to), largest(to))
        elif to == E4M3FN:  # of its own, the conversion saturates
            x = ops.FUNCTIONS["where"](ops.FUNCTIONS["abs"](x) > E4M3FN_ROUNDS_TO_LARGEST, float("nan"), x)
    return x.to(known)


# ---- bits
@operator("BitCast", raw=True)
def bit_cast(node: Node, x: Value) -> Value:
    have, to = dtype_of(x), element_type(node.attr("to"))
    if TEXT in (have, to) or bits_of(have) != bits_of(to):
        raise OnnxError(f"BitCast: {have} and {to} are not of equally many bits", str(node))
    if isinstance(x, Tensor):
        made = x.view(from_numpy_dtype(UINT8 if to == BOOL else to))
        return ops.FUNCTIONS["ne"](made, 0) if to == BOOL else made
    if bits_of(to) < 8:
        x = _in_bytes(x.view(np.uint8), to)
    return x.view(np.uint8) != 0 if to == BOOL else x.view(to)


def _in_bytes(x: np.ndarray, to: np.dtype) -> np.ndarray:
    """The low bits of bytes, with those above them as elements of the type have them."""
    low = x & ((1 << bits_of(to)) - 1)
    sign = 1 << (bits_of(to) - 1) if to.name.startswith("int") else 0
    return (low ^ sign) - np.uint8(sign)


@operator("BitShift")
def bit_shift(node: Node, x: Tensor, by: Tensor) -> Tensor:
    direction = node.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise OnnxError(f"BitShift: the direction is {direction!r}: it is LEFT or RIGHT", str(node))
    return ops.FUNCTIONS[f"bitwise_{direction.lower()}_shift"](x, by)
