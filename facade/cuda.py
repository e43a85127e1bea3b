"""Answer `torch.cuda`: there is no CUDA device, or as many names of the CPU as the user asked for.

Without these (ir/pretended_gpus.py) it says so as PyTorch does on such a machine, and refuses what needs a
device.  With them programs run that insist on devices.  What can't be a name stays refused: graphs of calls,
pools of memory, tensors whose type says that they are on a GPU.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..ir.pretended_gpus import count as device_count
from . import streams
from .absent import kind
from .amp import of_cuda as amp
from .random import default_generator
from .root import OutOfMemoryError
from .streams import (
    NONE,
    Stream,
    StreamContext,
    current_device,
    current_stream,
    default_stream,
    device,
    index_of,
    refuse,
    set_device,
    set_stream,
)

__all__ = [
    "OutOfMemoryError", "Stream", "StreamContext", "amp", "current_device", "current_stream",
    "default_stream", "device", "device_count", "set_device", "set_stream",
]  # fmt: skip

ExternalStream, CUDAGraph, MemPool, graph = (
    kind(name, "cuda", NONE) for name in ("ExternalStream", "CUDAGraph", "MemPool", "graph")
)
FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = (
    kind(name, "cuda", NONE) for name in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor")
)
LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, BoolTensor = (
    kind(name, "cuda", NONE)
    for name in ("LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor")
)
stream = StreamContext
default_generators = ()


class Event(streams.Event):
    """A point in time, as `torch.Event`, of the current device."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        super().__init__(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


class device_of(device):
    """Make a tensor's device the current one for a block; the CPU's changes nothing."""

    def __init__(self, obj: Any):
        super().__init__(obj.get_device())


def is_available() -> bool:
    """Whether there are devices: where the user asked for names of the CPU."""
    return device_count() > 0


is_initialized = is_available


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the devices compute in bfloat16: where there are any, as the CPU does."""
    return is_available()


# ---- random numbers, of which the devices have the CPU's ---------------------------------------------------
def manual_seed(seed: int) -> None:
    """Seed the CPU's generator, which is the devices'; without a device there is none to seed."""
    if is_available():
        default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a device's generator.  Raises DeviceError without one."""
    index_of(device, "get_rng_state")
    return default_generator.get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Take over what `get_rng_state` returned.  Raises DeviceError without a device."""
    index_of(device, "set_rng_state")
    default_generator.set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of each device's generator."""
    return [default_generator.get_state()] * device_count()


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Take over what `get_rng_state_all` returned.  Raises DeviceError for states of devices without any."""
    for state in new_states:
        if not is_available():
            refuse("set_rng_state_all")
        default_generator.set_state(state)


# ---- memory, of which the devices have none of their own ---------------------------------------------------
def empty_cache() -> None:
    """Give unused device memory back: there is none."""


def memory_allocated(device: Any = None) -> int:
    """Bytes of device memory in use: none, as tensors are in the machine's."""
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start counting anew: there is nothing to count."""


ipc_collect = empty_cache
reset_max_memory_allocated = reset_accumulated_memory_stats = reset_peak_memory_stats
max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, int]:
    """What a device's memory holds: 0, whatever is asked for.  Raises DeviceError without a device."""
    index_of(device, "memory_stats")
    return Counter()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """A device's free and whole memory in bytes, the machine's.  Raises DeviceError without a device."""
    index_of(device, "mem_get_info")
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), _machine_memory()


def _machine_memory() -> int:
    return import_module("..runtime.allowance", __package__).machine_memory()  # which few ask for


# ---- what they are -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Properties:
    """What a device is like, for programs that ask.  total_memory: bytes, the machine's."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


CAPABILITY = (8, 0)  # the first that computes in bfloat16, and nothing after that: a CPU has no newer kernels


def get_device_name(device: Any = None) -> str:
    """The name of a device.  Raises DeviceError without one."""
    return f"CPU, pretending to be cuda:{index_of(device, 'get_device_name')}"


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The architecture of a device, as programs choose dtypes by it.  Raises DeviceError without one."""
    index_of(device, "get_device_capability")
    return CAPABILITY


def get_device_properties(device: Any = None) -> _Properties:
    """What a device has.  Raises DeviceError without one."""
    index = index_of(device, "get_device_properties")
    return _Properties(get_device_name(index), *CAPABILITY, _machine_memory(), os.cpu_count() or 1)


def synchronize(device: Any = None) -> None:
    """Return at once, as what is called is done when it returns.  Raises DeviceError without a device."""
    if not is_available():
        refuse("synchronize")


def init() -> None:
    """Begin with the devices, which takes nothing.  Raises DeviceError without one."""
    index_of(None, "init")


def is_current_stream_capturing() -> bool:
    """Whether calls are recorded into a graph of the device's: no."""
    return False
