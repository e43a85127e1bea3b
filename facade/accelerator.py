"""Answer `torch.accelerator`: there is none, or as many names of the CPU as the user asked for.

They are what facade/cuda.py has, in the words that PyTorch has for accelerators of any kind.
"""

from __future__ import annotations

from typing import Any

from ..ir import dtypes
from ..ir.types import Device
from .absent import kind
from .cuda import (
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from .streams import current_device, current_stream, device, index_of, set_device, set_stream

__all__ = [
    "Graph", "current_accelerator", "current_device_idx", "current_device_index", "current_stream",
    "device_count", "device_index", "empty_cache", "empty_host_cache", "get_device_capability",
    "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip

Graph = kind("Graph", "accelerator", "a graph of calls would be a GPU's")
current_device_index = current_device_idx = current_device
set_device_index = set_device_idx = set_device
device_index, get_memory_info, empty_host_cache = device, mem_get_info, empty_cache


def current_accelerator(check_available: bool = False) -> Device | None:
    """The kind of accelerator that there is, without an index; None without any."""
    return Device("cuda") if is_available() else None


def synchronize(device: Any = None) -> None:
    """Return at once, as what is called is done when it returns."""


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """The dtypes that tensors may have there, by "supported_dtypes".  Raises DeviceError without a device."""
    index_of(device, "get_device_capability")
    return {"supported_dtypes": {*dtypes.ALL}}
