"""The element types a kernel computes in: Lamina's own by their short names, and unsigned u32 and u64.

u32 and u64 are compute-only: Philox needs them, no tensor has them.
"""

from __future__ import annotations

import numpy as np

from .. import dtypes

NUMPY: dict[str, np.dtype] = {dtype.short: dtype.numpy for dtype in dtypes.ALL}
NUMPY |= {"u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64)}

# One letter for what a word must know of a type: h for the halves, which are stored and cast but not
# computed in.
KINDS = {"f64": "f", "f32": "f", "f16": "h", "bf16": "h", "i64": "i", "i32": "i", "i16": "i", "i8": "i"}
KINDS |= {"u8": "u", "u32": "u", "u64": "u", "bool": "b"}


def kind(dtype: str) -> str:
    """f floating, h half, i signed, u unsigned, b bool."""
    return KINDS[dtype]


def is_floating(dtype: str) -> bool:
    return KINDS[dtype] in "fh"


def bits(dtype: str) -> int:
    """The width in bits."""
    return NUMPY[dtype].itemsize * 8


def least(dtype: str) -> bool | int | float:
    """The identity of max."""
    if dtype == "bool":
        return False
    return -float("inf") if is_floating(dtype) else int(np.iinfo(NUMPY[dtype]).min)


def greatest(dtype: str) -> bool | int | float:
    """The identity of min."""
    if dtype == "bool":
        return True
    return float("inf") if is_floating(dtype) else int(np.iinfo(NUMPY[dtype]).max)
