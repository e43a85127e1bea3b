"""`torch.types`: what programs write in annotations, and ask `isinstance` about."""

import os
from collections.abc import Sequence
from typing import IO, TypeAlias

from ..ir.dtypes import DType as _dtype
from ..ir.types import Device as _device
from ..runtime import Size, Tensor
from ..runtime.layouts import Layout as _layout

__all__ = [
    "Device", "FileLike", "Number", "_Number", "_TensorOrTensors", "_bool", "_complex", "_device", "_dtype",
    "_float", "_int", "_layout", "_size",
]  # fmt: skip

Number: TypeAlias = int | float | bool
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]

# Private ones that programs import nevertheless.
_Number = (int, float, bool)
_int, _float, _bool, _complex = int, float, bool, complex
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
