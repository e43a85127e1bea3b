"""Which of PyTorch's kernels attention may use, of which there is one here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from ..ir.errors import ArgumentError, DeviceError


class SDPBackend(IntEnum):
    """PyTorch's kernels for scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_ON_CPU = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Permit attention these kernels; as results are the same, the block changes nothing.

    Raises ArgumentError for what is no SDPBackend, DeviceError where no kernel is permitted that a CPU has.
    """
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, SDPBackend) for each in given):
        raise ArgumentError("sdpa_kernel(backends): an SDPBackend, or a list of them, is wanted")
    if not any(each in _ON_CPU for each in given):
        raise DeviceError(
            f"sdpa_kernel: {', '.join(each.name for each in given) or 'no kernel'}: a CPU has none such",
            "permit SDPBackend.MATH",
        )
    yield
