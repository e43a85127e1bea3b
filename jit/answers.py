"""What Python is told of a tensor, and the keys by which answers are told apart."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.conversion import number_in
from ..runtime.on_device import on_host

RAISED = ("raised",)


def _tolist(array: np.ndarray) -> Any:
    return (array.astype(np.float32) if array.dtype.name == "bfloat16" else array).tolist()


_READERS: dict[str, Callable[[np.ndarray], Any]] = {
    "item": number_in, "tolist": _tolist, "bool": lambda a: bool(a.reshape(())[()]),
    "int": lambda a: int(number_in(a)), "float": lambda a: float(number_in(a)),
    "complex": lambda a: complex(number_in(a)),
}  # fmt: skip
READERS = {how: lambda a, read=read: read(on_host(a)) for how, read in _READERS.items()}


def hashable(answer: Any) -> Any:
    """An answer as a key that tells types and bits apart."""
    if isinstance(answer, (list, tuple)):
        return tuple(map(hashable, answer))
    if isinstance(answer, float):
        return struct.pack("d", answer)
    if isinstance(answer, complex):
        return complex, struct.pack("dd", answer.real, answer.imag)
    return type(answer), answer


def answered(key: Any) -> Any:
    """The answer of a key that `hashable` made."""
    if isinstance(key, bytes):
        return struct.unpack("d", key)[0]
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):
        return complex(*struct.unpack("dd", key[1])) if key[0] is complex else key[1]
    return [*map(answered, key)] if isinstance(key, tuple) else key
