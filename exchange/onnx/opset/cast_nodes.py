"""Operators that change what elements are: values in another type, or bits read as another."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ....ir.dtypes import float32, from_numpy_dtype
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError
from ..element_types import TEXT, bits_of, element_type
from .registry import Value, as_host, as_tensor, operator

BOOL, UINT8 = np.dtype(np.bool_), np.dtype(np.uint8)
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
E4M3FN = np.dtype(ml_dtypes.float8_e4m3fn)
SATURATED = {E4M3FN, *(np.dtype(getattr(ml_dtypes, f"float8_{x}")) for x in ("e4m3fnuz", "e5m2", "e5m2fnuz"))}
E4M3FN_ROUNDS_TO_LARGEST = 464  # half way to what would be the next number
INFINITIES = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}  # as ONNX spells them


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
        return _numbers(x, to)
    if to == TEXT:
        return _texts(as_host(x))
    if to == E8M0:
        made = _powers_of_two(as_host(x), saturate, round_mode)
        return as_tensor(made) if isinstance(x, Tensor) else made
    known = from_numpy_dtype(to)
    if known is None or not isinstance(x, Tensor):
        made = _converted_host(as_host(x), to, saturate)
        return as_tensor(made) if isinstance(x, Tensor) else made
    if to in SATURATED:
        x = x.to(float32)
        if saturate:
            x = ops.FUNCTIONS["clamp"](x, -_largest(to), _largest(to))
        elif to == E4M3FN:  # of its own, the conversion saturates
            x = ops.FUNCTIONS["where"](ops.FUNCTIONS["abs"](x) > E4M3FN_ROUNDS_TO_LARGEST, float("nan"), x)
    return x.to(known)


def _largest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max)


def _converted_host(x: np.ndarray, to: np.dtype, saturate: bool) -> np.ndarray:
    if x.dtype.type.__module__ == "ml_dtypes":  # among themselves not all are converted
        x = x.astype(np.float32)
    if to in SATURATED and saturate:
        x = np.clip(x.astype(np.float32), -_largest(to), _largest(to))
    with np.errstate(all="ignore"):  # what is out of range is left open
        return x.astype(to)


def _powers_of_two(x: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """The magnitudes as float8e8m0."""
    rounds_up = {"up": 0.5, "nearest": 0.75, "down": 1.0}.get(round_mode)
    if rounds_up is None:
        raise OnnxError(f"Cast: round_mode is {round_mode!r}: it is up, down or nearest")
    x = np.abs(x.astype(np.float64))
    fraction, exponent = np.frexp(x)  # fractions from a half up
    above = fraction > rounds_up if round_mode == "up" else fraction >= rounds_up
    exponent = np.where(np.isinf(x), 256, np.where(x == 0, -256, exponent - 1 + above))
    beyond = (np.abs(exponent) > 127) & (not saturate)
    return np.where(np.isnan(x) | beyond, 255, np.clip(exponent, -127, 127) + 127).astype(np.uint8).view(E8M0)


# ---- strings
def _texts(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iub":
        return x.astype(str).astype(object)
    if x.dtype.type.__module__ == "ml_dtypes":
        x = x.astype(np.float32)
    found = [np.format_float_positional(each, trim="0") for each in x.reshape(-1)]
    made = np.empty(x.size, object)
    made[:] = [INFINITIES.get(each, each) for each in found]
    return made.reshape(x.shape)


def _numbers(x: np.ndarray, to: np.dtype) -> np.ndarray:
    """What texts say."""
    read, wide = {"i": (_whole, np.int64), "u": (_whole, np.uint64)}.get(to.kind, (float, np.float64))
    try:
        found = np.array([read(each) for each in x.reshape(-1)], wide).reshape(x.shape)
    except (ValueError, OverflowError) as error:
        raise OnnxError(f"Cast: not all strings are numbers of {to}", str(error)) from None
    return converted(found, to)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


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
