"""A device's memory shared with other libraries: DLPack's capsules and `__cuda_array_interface__`, both ways.

NumPy does it for the CPU (interchange.py).  What is handed out lives until who took it gives it back; what is
taken in is given back when no tensor sees it and the stream of that moment has come so far.  Whose work waits
for whose: the taker says its stream, which then waits for ours.

Source: the DLPack specification 1.0; version 3 of the CUDA array interface.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from ...ir import dtypes
from ...ir.dtypes import DType
from ...ir.errors import ArgumentError, DeviceError, DTypeError
from ...ir.types import Device, type_of
from ..interchange import (
    BITS,
    CAPSULES,
    CODES,
    CUDA,
    MOST_DIMS,
    ROCM,
    Versioned,
    inside_of,
    is_valid,
    pointer,
)
from ..on_device import ALIGNMENT, SPAN, OnDevice, count, over, part, there
from ..tensor import Tensor, wrap
from .driver import Driver, Stream
from .machine import Machine, machine

# By DLPack's kind of device the number of the default stream, and those of all that are no addresses: CUDA's
# 2 is that of each thread, and its 0 could mean either.
DEFAULTS: dict[int, tuple[int, tuple[int, ...]]] = {CUDA: (1, (1, 2)), ROCM: (0, (0,))}
COPIED = 2  # a flag of the newer capsule; 1 says read-only
_CODES = {
    **{getattr(dtypes, f"int{bits}"): 0 for bits in (8, 16, 32, 64)},
    **{getattr(dtypes, f"uint{bits}"): 1 for bits in (8, 16, 32, 64)},
    **{getattr(dtypes, f"float{bits}"): 2 for bits in (16, 32, 64)},
    **CODES, dtypes.complex64: 5, dtypes.complex128: 5, dtypes.bool_: 6,
}  # fmt: skip
_BY_CODE = {(code, 8 * dtype.itemsize): dtype for dtype, code in _CODES.items()}

_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def kind_here() -> int:
    """DLPack's number for the kind of GPUs that there are."""
    return ROCM if Driver.open().vendor.interface == "HIP" else CUDA


# ---- out ---------------------------------------------------------------------------------------------------
def exported(array: OnDevice, dtype: DType, stream: int | None, versioned: bool, copied: bool) -> Any:
    """A capsule of an array, ready for who works on that stream.  copied: nobody else sees the memory.

    Raises ArgumentError for a number that is no stream.
    """
    at, usual, others = array.memory.machine, *DEFAULTS[kind_here()]
    wrong = type(stream) is not int or stream < -1 or (0 <= stream <= 2 and stream not in others)
    if stream is not None and wrong:
        named = ", ".join(map(str, others))
        raise ArgumentError(
            f"__dlpack__(stream): takes None, -1, {named} or the number of a stream, not {stream!r}"
        )
    if stream != -1:
        lead(at.stream, usual if stream is None else stream)
    plain = array if dtype not in CODES else array.view(BITS[array.itemsize])
    capsule = np.ndarray.__dlpack__(plain, max_version=(1, 0) if versioned else None)
    inside = inside_of(capsule)  # NumPy's, which holds the array until it is given back; but for the place
    inside.data, inside.byte_offset = array.address, 0
    inside.device_type, inside.device_id, inside.code = kind_here(), at.device.ordinal, _CODES[dtype]
    if copied and versioned:
        Versioned.from_address(pointer(capsule, b"dltensor_versioned")).flags |= COPIED
    return capsule


def lead(stream: Stream, handle: int) -> None:
    """Have a stream of another library's wait for all that is in ours."""
    if handle != stream.handle:
        stream.lead(handle)


def interface(x: Tensor) -> dict[str, Any]:
    """What `__cuda_array_interface__` says of a tensor on a device: version 2, as PyTorch's."""
    data = x._data
    assert isinstance(data, OnDevice)
    typestr = data.dtype.str if x._meta.dtype not in CODES else f"<V{data.itemsize}"
    return {
        "typestr": typestr, "shape": tuple(x.shape), "data": (x.data_ptr(), False), "version": 2,
        "strides": None if x.is_contiguous() else tuple(data.strides),
    }  # fmt: skip


# ---- in ----------------------------------------------------------------------------------------------------
class Foreign:
    """Memory of another library's, where an array's own would be.  block: the allocator has none of it.

    It begins at a multiple of ALIGNMENT, which may be before what was handed over.
    """

    __slots__ = ("machine", "address", "nbytes", "block", "_give_back", "__weakref__")

    def __init__(self, at: Machine, address: int, nbytes: int, give_back: Callable[[], object]):
        beyond = address % ALIGNMENT
        self.machine, self.address, self.nbytes = at, address - beyond, nbytes + beyond
        self.block, self._give_back = None, give_back

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with suppress(DeviceError):  # a device that is lost, a forked child
                self.machine.leave(self._give_back)


def _tensor_over(
    at: Machine, address: int, dtype: DType, shape: tuple[int, ...], steps: tuple[int, ...],
    give_back: Callable[[], object],
) -> Tensor:  # fmt: skip
    """A tensor over memory of another library's.  steps: in bytes."""
    reach = [(n - 1) * step for n, step in zip(shape, steps, strict=True) if n > 1]
    empty = 0 in shape
    below = 0 if empty else -sum(r for r in reach if r < 0)
    nbytes = 0 if empty else below + sum(r for r in reach if r > 0) + dtype.itemsize
    if nbytes > SPAN:
        raise ArgumentError(f"memory of {nbytes} bytes is beyond that of any device", f"sizes: {shape}")
    memory: Any = Foreign(at, address - below, nbytes, give_back)
    begin = address - memory.address
    array = part(memory, over(memory), shape, dtype.numpy, 0 if empty else begin, None if empty else steps)
    return wrap(array, type_of(dtype, shape, there(Device("cuda", at.device.ordinal))))


def _dense_steps(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    sizes = [max(n, 1) for n in shape]
    return tuple([n * itemsize for n in accumulate(reversed(sizes), mul, initial=1)][:-1][::-1])


def taken(capsule: Any) -> Tensor:
    """A tensor over what a capsule of CUDA's memory holds.  Raises ArgumentError, DTypeError, DeviceError."""
    name, layout = next((name, layout) for name, layout in CAPSULES.items() if is_valid(capsule, name))
    place = pointer(capsule, name)
    held = layout.from_address(place)
    inside = held.tensor
    dtype = _BY_CODE.get((inside.code, inside.bits)) if inside.lanes == 1 else None
    if dtype is None:
        raise DTypeError(
            f"from_dlpack(x): DLPack type code {inside.code}, {inside.bits} bits, {inside.lanes} lanes is no "
            "type of Lamina's"
        )
    if not 0 <= inside.ndim <= MOST_DIMS:
        raise ArgumentError(f"from_dlpack(x): a tensor has at most {MOST_DIMS} dimensions, not {inside.ndim}")
    at = machine(inside.device_id)
    at.check()
    sizes = ctypes.c_int64 * inside.ndim
    shape = tuple(sizes.from_address(inside.shape)) if inside.ndim else ()
    if inside.strides and inside.ndim:
        steps = tuple([step * dtype.itemsize for step in sizes.from_address(inside.strides)])
    else:
        steps = _dense_steps(shape, dtype.itemsize)
    if any(n < 0 for n in shape):
        raise ArgumentError(f"from_dlpack(x): a size is negative: {shape}")

    def give_back() -> None:
        if held.deleter:
            _DELETER(held.deleter)(place)

    _rename(capsule, _USED[name])  # it is ours from here on
    return _tensor_over(at, (inside.data or 0) + inside.byte_offset, dtype, shape, steps, give_back)


_USED = {b"dltensor_versioned": b"used_dltensor_versioned", b"dltensor": b"used_dltensor"}


def of_interface(obj: Any) -> Tensor:
    """A tensor over what an object's `__cuda_array_interface__` describes, which it stays alive for.

    Its stream, where it says one, is waited for by ours.  Raises ArgumentError, DTypeError, DeviceError.
    """
    told = obj.__cuda_array_interface__
    if not isinstance(told, dict) or not {"shape", "typestr", "data"} <= told.keys():
        raise ArgumentError("__cuda_array_interface__ has no shape, typestr and data", f"it is {told!r:.200}")
    if told.get("mask") is not None:
        raise ArgumentError("__cuda_array_interface__: a mask is not supported")
    kind = np.dtype(told["typestr"])
    dtype = dtypes.from_numpy_dtype(kind)
    if dtype is None:
        raise DTypeError(f"__cuda_array_interface__: {told['typestr']!r} is no type of Lamina's")
    shape, strides, (address, read_only) = tuple(told["shape"]), told.get("strides"), told["data"]
    if read_only:
        raise ArgumentError("__cuda_array_interface__: memory that is read-only can't be a tensor's")
    at = next((m for m in map(machine, range(count())) if not address or m.device.holds(address)), None)
    if at is None:
        raise DeviceError(f"__cuda_array_interface__: {address:#x} is in no device's memory")
    at.check()
    if told.get("stream") is not None:
        at.stream.follow(told["stream"])
    steps = _dense_steps(shape, dtype.itemsize) if strides is None else tuple(strides)
    return _tensor_over(at, address or 0, dtype, shape, steps, lambda: obj)
