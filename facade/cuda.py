"""Answer `torch.cuda` as PyTorch does without a CUDA device: say so, and refuse what needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..ir.errors import DeviceError
from .absent import kind
from .amp import of_cuda as amp

__all__ = ["amp"]


_NONE = "there is no CUDA device here"
Stream, Event, ExternalStream, CUDAGraph, device, device_of, StreamContext, MemPool, graph, stream = (
    kind(name, "cuda", _NONE)
    for name in (
        "Stream", "Event", "ExternalStream", "CUDAGraph", "device", "device_of", "StreamContext", "MemPool",
        "graph", "stream",
    )
)  # fmt: skip
FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = (
    kind(name, "cuda", _NONE) for name in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor")
)
LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, BoolTensor = (
    kind(name, "cuda", _NONE)
    for name in ("LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor")
)


def is_available() -> bool:
    """Whether tensors can live on a CUDA device: no."""
    return False


def is_initialized() -> bool:
    """Whether a CUDA device is in use: no."""
    return False


def is_bf16_supported() -> bool:
    """Whether the CUDA device computes in bfloat16: there is none."""
    return False


def device_count() -> int:
    """The number of CUDA devices: none."""
    return 0


def manual_seed(seed: int) -> None:
    """Seed the generator of the current CUDA device: there is none to seed."""


manual_seed_all = manual_seed


def get_rng_state_all() -> list[Any]:
    """The state of each CUDA device's generator: there are none."""
    return []


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Take over what `get_rng_state_all` returned.  Raises DeviceError for states of devices."""
    if list(new_states):
        _refuse("set_rng_state_all")


def empty_cache() -> None:
    """Give unused device memory back: there is none."""


def memory_allocated(device: Any = None) -> int:
    """Bytes of device memory in use: none."""
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start counting anew: there is nothing to count."""


ipc_collect = empty_cache
reset_max_memory_allocated = reset_peak_memory_stats
max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def _refuse(name: str) -> NoReturn:
    raise DeviceError(
        f"cuda.{name}(): there is no CUDA device here",
        "choose the device by asking: 'cuda' if lamina.cuda.is_available() else 'cpu'",
    )


# What asks for a device: name, and what it would do.
_OF_A_DEVICE = {
    "synchronize": "Wait for the device", "current_device": "The index of the current device",
    "set_device": "Choose the current device", "get_device_name": "The name of a device",
    "get_device_properties": "What a device has", "get_device_capability": "The architecture of a device",
    "get_rng_state": "The state of a device's generator",
    "set_rng_state": "Take over what `get_rng_state` returned",
    "mem_get_info": "The free and all of a device's memory", "memory_stats": "What a device's memory holds",
    "current_stream": "The stream in use", "default_stream": "The stream that is used without another",
}  # fmt: skip


def _of_a_device(name: str, about: str) -> Callable[..., NoReturn]:
    def refused(*_: Any, **__: Any) -> NoReturn:
        _refuse(name)

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"{about}.  Raises DeviceError, as there is none."
    return refused


vars().update({name: _of_a_device(name, about) for name, about in _OF_A_DEVICE.items()})
default_generators = ()


def is_current_stream_capturing() -> bool:
    """Whether calls are recorded into a graph of the device's: no."""
    return False
