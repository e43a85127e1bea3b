"""Share memory with other libraries, both ways and without a copy: DLPack, and Python's buffer protocol.

NumPy writes and reads the capsules, so that their memory is freed by its code and not by ours.  It knows no
bfloat16 and no float8: such an array travels as unsigned integers, and the element type in the capsule is put
right here.

Source: the DLPack specification, version 1.0, and 1.1 for float8's codes; PEP 688 for buffers (Python 3.12
and newer).
Importing this module hangs `__dlpack__`, `__dlpack_device__` and `__buffer__` on `Tensor`.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentError, DeviceError, DTypeError, LaminaError
from . import modes
from .conversion import require_cpu
from .history import storage_of
from .meta import NoValues, NoValuesError
from .on_device import OnDevice
from .tensor import Tensor, tensor_of


class ExportError(LaminaError, BufferError):
    """Memory that can't be handed out."""


# ---- the capsule -------------------------------------------------------------------------------------------
class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


CAPSULES = {b"dltensor_versioned": _Versioned, b"dltensor": _Managed}
CODE_UNSIGNED = 1
CODES = {  # of the element types that NumPy has no capsule for
    dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e4m3fnuz: 11, dtypes.float8_e5m2: 12,
    dtypes.float8_e5m2fnuz: 13, dtypes.float8_e8m0fnu: 14,
}  # fmt: skip
BY_CODE = {(code, dtype.itemsize * 8): dtype for dtype, code in CODES.items()}
BITS = {1: np.uint8, 2: np.uint16}  # what such an array travels as, by the size of an element
# Memory that the CPU can read: its own, CUDA's and ROCm's pinned host memory, CUDA's managed memory.
READABLE = (1, 3, 11, 13)
CUDA = 2
DEVICES = {CUDA: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
VERSION = (1, 0)
MOST_DIMS = 64  # of NumPy's arrays

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _inside(capsule: Any) -> _Tensor:
    """What a capsule says, to read or to change.  Raises ArgumentError for a used or foreign one."""
    for name, layout in CAPSULES.items():
        if _is_valid(capsule, name):
            return layout.from_address(_pointer(capsule, name)).tensor
    raise ArgumentError("this is no DLPack capsule, or one that was consumed already", f"given: {capsule!r}")


def _count(inside: _Tensor) -> int:
    """How many elements a capsule says that it has; 0 where it is for NumPy to refuse its sizes."""
    if not inside.shape or not 0 < inside.ndim <= MOST_DIMS:
        return int(inside.ndim == 0)
    return math.prod((ctypes.c_int64 * inside.ndim).from_address(inside.shape))


# ---- out ---------------------------------------------------------------------------------------------------
def _shareable(x: Tensor, how: str) -> np.ndarray:
    if x._node is not None:
        raise ExportError(
            f"{how}: a tensor that requires gradients can't be shared, as writes to it would go unseen",
            f"tensor: {x._meta}",
            "share x.detach()",
        )
    if modes.CHANGED:
        modes.tell("refuse", f"{how} handed out a tensor's memory")
    if type(x._data) is NoValues:
        raise NoValuesError("a tensor on the meta device has no memory to share", f"tensor: {x._meta}")
    if type(x._data) is OnDevice:
        raise ExportError(f"{how}: a tensor on {x.device} can't be shared yet", "share x.cpu()")
    return x._data


def export(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of this tensor's memory (of a copy's, where `copy` is True).

    max_version: what the consumer reads; without it the older capsule is made, which can't say that memory is
    read-only.  Raises ExportError, a BufferError, where gradients, the device or read-only memory forbid it.
    """
    data = _shareable(self, "__dlpack__()")
    if stream is not None:
        raise ArgumentError(
            f"__dlpack__(stream): memory of the CPU has no stream, so None is needed, not {stream!r}"
        )
    code = CODES.get(self._meta.dtype)
    plain = data if code is None else data.view(BITS[data.itemsize])
    try:
        capsule = plain.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
    except BufferError as error:
        raise ExportError(f"__dlpack__(): {error}", f"tensor: {self._meta}") from None
    if not copy:
        storage_of(self).expose()
    if code is not None:
        _inside(capsule).code = code
    return capsule


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's name of the device: (kind, index)."""
    return (CUDA, self.get_device()) if self.is_cuda else self._data.__dlpack_device__()


def _buffer(self: Tensor, flags: int) -> memoryview:
    """The memory, for `memoryview(x)`.

    Raises ExportError where it requires gradients, and for bfloat16 and float8.
    """
    data = _shareable(self, "memoryview(x)")
    if self._meta.dtype in CODES:
        raise ExportError(
            f"memoryview(x): buffers have no code for {self._meta.dtype.name}",
            "share x.float(), or use DLPack",
        )
    storage_of(self).expose()
    return memoryview(data)


# ---- in ----------------------------------------------------------------------------------------------------
class _Carrier:
    """Hands a capsule to NumPy."""

    def __init__(self, capsule: Any, device: tuple[int, int]):
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def _capsule_of(x: Any) -> Any:
    if type(x).__name__ == "PyCapsule":
        return x
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentError(f"from_dlpack(x): takes an object with __dlpack__, not {type(x).__name__}")
    kind, index = x.__dlpack_device__()
    if int(kind) not in READABLE:
        place = f"{DEVICES.get(int(kind), f'DLPack device kind {int(kind)}')}:{index}"
        raise DeviceError(
            f"from_dlpack(x): the memory is on {place}, which the CPU can't read", "copy it to the CPU first"
        )
    try:
        return x.__dlpack__(max_version=VERSION)
    except TypeError:  # a producer from before versions
        return x.__dlpack__()


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's, which must have `__dlpack__`; capsules are taken as
    well.

    copy: True for memory of its own.  Memory that is read-only stays so, and so does what a producer hands
    out in the older capsule, which can't say.  Raises ArgumentError, DeviceError, DTypeError.
    """
    require_cpu(device)
    if modes.CHANGED:
        modes.tell("refuse", "from_dlpack(x) took in memory of another library")
    capsule = _capsule_of(ext_tensor)
    inside = _inside(capsule)
    foreign = BY_CODE.get((inside.code, inside.bits)) if inside.lanes == 1 else None
    if not inside.data and _count(inside):
        raise ArgumentError("from_dlpack(x): the capsule has elements, and says that they lie nowhere")
    described = f"DLPack type code {inside.code}, {inside.bits} bits, {inside.lanes} lanes"
    if foreign is not None:
        inside.code = CODE_UNSIGNED
    try:
        data = np.from_dlpack(_Carrier(capsule, (inside.device_type, inside.device_id)))
    except (BufferError, RuntimeError) as error:
        raise DTypeError(f"from_dlpack(x): {error}", f"given: {described}") from None
    made = tensor_of(data if foreign is None else data.view(foreign.numpy))
    if copy:
        return tensor_of(made._data.copy())
    storage_of(made).expose()
    return made


def install() -> None:
    """Hang the methods on `Tensor`; done once, when the runtime is imported."""
    for name, method in {"dlpack": export, "dlpack_device": _dlpack_device, "buffer": _buffer}.items():
        setattr(Tensor, f"__{name}__", method)


install()
