"""Answer `torch.cuda`: of the GPUs there are, or of as many names of the CPU as the user asked for.

Without either it says so as PyTorch does on such a machine, and refuses what needs a device.  With names
(ir/pretended_gpus.py) programs run that insist on devices.  Refused are graphs of calls, pools of memory, and
classes of tensors whose name says that they are on a GPU.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..runtime import on_device
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
    machine_of,
    pretended,
    refuse,
    set_device,
    set_stream,
)
from .streams import count as device_count

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
    """Whether there are devices, or names of the CPU that the user asked for."""
    return device_count() > 0


is_initialized = is_available
_initialized = False  # of PyTorch's inside: whether random numbers of devices must be put back


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes in bfloat16, as pretended ones do."""
    return is_available() and get_device_capability() >= (8, 0)


# ---- random numbers, of which the devices have the CPU's ---------------------------------------------------
def manual_seed(seed: int) -> None:
    """Seed the CPU's generator, which is the devices'; without a device there is none to seed."""
    if is_available():
        default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the generator by chance; without a device there is none to seed."""
    if is_available():
        default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """What the generator was seeded with.  Raises DeviceError without a device."""
    index_of(None, "initial_seed")
    return default_generator.initial_seed()


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


# ---- memory, of which pretended devices have none of their own ---------------------------------------------
def _allocator(device: Any, call: str) -> Any:
    """What hands out a device's memory; None where there is none."""
    machine = machine_of(index_of(device, call)) if is_available() else None
    if machine is None:
        return None
    machine.settle()
    return machine.allocator


def empty_cache() -> None:
    """Give the current device's unused memory back."""
    if (allocator := _allocator(None, "empty_cache")) is not None:
        allocator.empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin anew from what is in use now."""
    if (allocator := _allocator(device, "reset_peak_memory_stats")) is not None:
        allocator.reset_peak_statistics()


def _counted(name: str, key: str, doc: str) -> Any:
    def asked(device: Any = None) -> int:
        allocator = _allocator(device, name)
        return 0 if allocator is None else allocator.statistics()[key]

    asked.__name__ = asked.__qualname__ = name
    asked.__doc__ = f"Bytes of device memory {doc}; 0 of a pretended device, and without one."
    return asked


ipc_collect = empty_cache
reset_max_memory_allocated = reset_accumulated_memory_stats = reset_peak_memory_stats
memory_allocated = _counted("memory_allocated", "allocated_bytes.all.current", "in use")
max_memory_allocated = _counted("max_memory_allocated", "allocated_bytes.all.peak", "in use at most")
memory_reserved = _counted("memory_reserved", "reserved_bytes.all.current", "the driver gave")
max_memory_reserved = _counted("max_memory_reserved", "reserved_bytes.all.peak", "the driver gave at most")


def memory_stats(device: Any = None) -> dict[str, int]:
    """What a device's memory holds, 0 of what is not counted.  Raises DeviceError without a device."""
    index_of(device, "memory_stats")
    allocator = _allocator(device, "memory_stats")
    return Counter() if allocator is None else Counter(allocator.statistics())


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """What a device's memory holds, to be read."""
    about = ("memory_allocated", memory_allocated), ("memory_reserved", memory_reserved)
    peaks = ("max_memory_allocated", max_memory_allocated), ("max_memory_reserved", max_memory_reserved)
    return "\n".join(f"{name:<22}{asked(device):>20,} bytes" for name, asked in (*about, *peaks))


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_cached = reset_peak_memory_stats


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """A device's free and whole memory in bytes; of a pretended one the machine's.

    Raises DeviceError without a device.
    """
    if (machine := machine_of(index_of(device, "mem_get_info"))) is not None:
        return machine.device.memory()
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), _machine_memory()


def _machine_memory() -> int:
    return import_module("..runtime.allowance", __package__).machine_memory()  # which few ask for


# ---- what they are -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Properties:
    """What a device is like, for programs that ask.  total_memory: bytes, a pretended one's the machine's.

    warp_size: threads that run together.  gcnArchName: of AMD's the architecture, of others the name.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    gcnArchName: str


CAPABILITY = (8, 0)  # the first that computes in bfloat16, and nothing after that: a CPU has no newer kernels


def get_device_name(device: Any = None) -> str:
    """The name of a device.  Raises DeviceError without one."""
    index = index_of(device, "get_device_name")
    machine = machine_of(index)
    return f"CPU, pretending to be cuda:{index}" if machine is None else machine.device.name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The architecture of a device, as programs choose dtypes by it.  Raises DeviceError without one."""
    machine = machine_of(index_of(device, "get_device_capability"))
    return CAPABILITY if machine is None else machine.device.capability


def get_device_properties(device: Any = None) -> _Properties:
    """What a device has.  Raises DeviceError without one."""
    index = index_of(device, "get_device_properties")
    about = get_device_name(index), *get_device_capability(index)
    if (machine := machine_of(index)) is not None:
        at = machine.device
        return _Properties(*about, at.total_memory, at.multiprocessors, at.warp, at.architecture)
    return _Properties(*about, _machine_memory(), os.cpu_count() or 1, 32, about[0])


def synchronize(device: Any = None) -> None:
    """Wait until what a device was given is done; what a pretended one was given is, when a call returns.

    Raises DeviceError without a device, and the error of an index that was found to be out of range.
    """
    if not is_available():
        refuse("synchronize")
    if not pretended() and (machine := machine_of(index_of(device, "synchronize"))) is not None:
        eager, streamed = on_device.eager(), on_device.streamed()
        for stream in (machine.default, *machine.apart):
            with streamed.chosen(machine, stream):
                eager.synchronize(machine)


def init() -> None:
    """Begin with the devices, which takes nothing.  Raises DeviceError without one."""
    index_of(None, "init")


def is_current_stream_capturing() -> bool:
    """Whether calls are recorded into a graph of the device's: no."""
    return False
