"""Arrays of NumPy's in another type, texts among them: no ops, so that a tracer has nothing to look into."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ...runtime.allowance import afford
from .declared import OnnxError

SATURATED = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
INFINITIES = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}  # as ONNX spells them
PER_TEXT = 256  # bytes that a number as text takes, at the most


def largest(dtype: np.dtype) -> float:
    """The greatest number of a floating-point type."""
    return float(ml_dtypes.finfo(dtype).max)


def converted_array(x: np.ndarray, to: np.dtype, saturate: bool) -> np.ndarray:
    """Numbers in another type.  saturate: what is too large for eight bits becomes their largest number."""
    if x.dtype.type.__module__ == "ml_dtypes":  # among themselves not all are converted
        x = x.astype(np.float32)
    if to.name in SATURATED and saturate:
        x = np.clip(x.astype(np.float32), -largest(to), largest(to))
    with np.errstate(all="ignore"):  # what is out of range is left open
        return x.astype(to)


def powers_of_two(x: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """The magnitudes as float8e8m0."""
    rounds_up = {"up": 0.5, "nearest": 0.75, "down": 1.0}.get(round_mode)
    if rounds_up is None:
        raise OnnxError(f"Cast: round_mode is {round_mode!r}: it is up, down or nearest")
    x = np.abs(x.astype(np.float64))
    fraction, exponent = np.frexp(x)  # fractions from a half up
    above = fraction > rounds_up if round_mode == "up" else fraction >= rounds_up
    exponent = np.where(np.isinf(x), 256, np.where(x == 0, -256, exponent - 1 + above))
    beyond = (np.abs(exponent) > 127) & (not saturate)
    return (
        np.where(np.isnan(x) | beyond, 255, np.clip(exponent, -127, 127) + 127)
        .astype(np.uint8)
        .view(ml_dtypes.float8_e8m0fnu)
    )


# ---- strings
def texts_of(x: np.ndarray) -> np.ndarray:
    """Numbers as ONNX spells them."""
    afford((x.size,), PER_TEXT, "Cast")
    if x.dtype.kind in "iub":
        return x.astype(str).astype(object)
    if x.dtype.type.__module__ == "ml_dtypes":
        x = x.astype(np.float32)
    found = [np.format_float_positional(each, trim="0") for each in x.reshape(-1)]
    made = np.empty(x.size, object)
    made[:] = [INFINITIES.get(each, each) for each in found]
    return made.reshape(x.shape)


def numbers_of(x: np.ndarray, to: np.dtype) -> np.ndarray:
    """What texts say."""
    read, wide = {"i": (_whole, np.int64), "u": (_whole, np.uint64)}.get(to.kind, (float, np.float64))
    try:
        found = np.array([read(each) for each in x.reshape(-1)], wide).reshape(x.shape)
    except (ValueError, OverflowError) as error:
        raise OnnxError(f"Cast: not all strings are numbers of {to}", str(error)) from None
    return converted_array(found, to, True)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))
