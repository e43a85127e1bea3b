"""ONNX's numbers of the types of elements, and what holds these in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .declared import OnnxError

STRING = 8
TEXT = np.dtype(object)
_NAMES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", STRING: "object",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
    16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
    21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
    27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip
_NUMBERS = {name: number for number, name in _NAMES.items()}
# The bits in a file of elements of less than a byte; in memory each has a byte.
_BITS = {
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}


def element_type(number: int) -> np.dtype:
    """NumPy's dtype of ONNX's number of one, or that of ml_dtypes; `object` for strings."""
    name = _NAMES.get(number)
    if name is None:
        raise OnnxError(f"{number} is the number of no type of elements")
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise OnnxError(f"elements of {name} need a newer version of the package ml_dtypes") from None


def element_number(dtype: Any) -> int:
    """ONNX's number of a dtype of NumPy's or ml_dtypes'."""
    name = np.dtype(dtype).name
    if name not in _NUMBERS:
        raise OnnxError(f"ONNX has no elements of {name}")
    return _NUMBERS[name]


def bits_of(dtype: np.dtype) -> int:
    """How many bits an element has in a file."""
    return _BITS.get(dtype.name, 8 * dtype.itemsize)
