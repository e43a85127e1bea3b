"""Share memory with other libraries, both ways and without a copy: DLPack, and Python's buffer protocol.

NumPy writes and reads the capsules, so that their memory is freed by its code and not by ours.  It knows no
bfloat16 and no float8: such an array travels as unsigned integers, and the element type in the capsule is put
right here.  Memory of a GPU goes by way of cuda/capsules.py, with the stream that waits for ours.

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
from ..ir.errors import ArgumentError, DeviceError, DTypeError, GradError, LaminaError
from ..ir.lazy import load
from ..ir.types import Device
from . import modes, on_device, ops
from .conversion import device_of
from .history import storage_of
from .meta import NoValues, NoValuesError
from .on_device import OnDevice
from .tensor import Tensor, tensor_of


class NoInterfaceError(LaminaError, AttributeError):
    """Something without an array interface."""


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


class Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


CAPSULES = {b"dltensor_versioned": Versioned, b"dltensor": Managed}
CODE_UNSIGNED = 1
CODES = {  # of the element types that NumPy has no capsule for
    dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e4m3fnuz: 11, dtypes.float8_e5m2: 12,
    dtypes.float8_e5m2fnuz: 13, dtypes.float8_e8m0fnu: 14,
}  # fmt: skip
BY_CODE = {(code, dtype.itemsize * 8): dtype for dtype, code in CODES.items()}
BITS = {1: np.uint8, 2: np.uint16}  # what such an array travels as, by the size of an element
# Memory that the CPU can read: its own, CUDA's and ROCm's pinned host memory, CUDA's managed memory.
READABLE = (1, 3, 11, 13)
CUDA, ROCM = 2, 10
DEVICES = {CUDA: "cuda", 7: "vulkan", 8: "metal", ROCM: "rocm", 14: "oneapi"}
VERSION = (1, 0)
MOST_DIMS = 64  # of NumPy's arrays

is_valid = ctypes.pythonapi.PyCapsule_IsValid
is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def inside_of(capsule: Any) -> _Tensor:
    """What a capsule says, to read or to change.  Raises ArgumentError for a used or foreign one."""
    for name, layout in CAPSULES.items():
        if is_valid(capsule, name):
            return layout.from_address(pointer(capsule, name)).tensor
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
    read-only.  stream: of a tensor on a GPU, the number of the stream that is to wait for what was queued; 1
    or None for the default one, -1 for none.  dl_device: (1, 0) for a copy on the CPU.  Raises ExportError, a
    BufferError, where gradients, the device or read-only memory forbid it.
    """
    data = _shareable(self, "__dlpack__()")
    if type(data) is OnDevice:
        return _export_of_device(self, stream, max_version, dl_device, copy)
    if stream is not None and stream != -1:
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
        inside_of(capsule).code = code
    return capsule


def _export_of_device(
    x: Tensor, stream: Any, max_version: tuple[int, int] | None, dl_device: Any, copy: bool | None
) -> Any:
    """The same of a tensor on a GPU."""
    if dl_device is not None and tuple(dl_device) != _dlpack_device(x):
        if tuple(dl_device) != (1, 0) or copy is False:
            raise ExportError(
                f"__dlpack__(dl_device={tuple(dl_device)}): the tensor is on {x.device}",
                "dl_device=(1, 0) copies it to the CPU, unless copy=False",
            )
        return export(x.cpu(), max_version=max_version)
    if copy:
        x = ops.clone(x)
    else:
        storage_of(x).expose()
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    made: Any = x._data
    return load(f"{__package__}.cuda.capsules").exported(made, x._meta.dtype, stream, versioned, copy is True)


def _cuda_interface(self: Tensor) -> dict[str, Any]:
    """The CUDA array interface, version 2.  Raises AttributeError for a tensor of the CPU, GradError."""
    if type(self._data) is not OnDevice:
        raise NoInterfaceError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()}", "x.cuda() has one"
        )
    if self.requires_grad:
        raise GradError(
            "Can't get __cuda_array_interface__ on Variable that requires grad", "x.detach() has one"
        )
    storage_of(self).expose()
    return load(f"{__package__}.cuda.capsules").interface(self)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's name of the device: (kind, index)."""
    return (_kind_here(), self.get_device()) if self.is_cuda else self._data.__dlpack_device__()


def _kind_here() -> int:
    """The kind of the GPUs that there are; 0 without any."""
    return load(f"{__package__}.cuda.capsules").kind_here() if on_device.count() else 0


def _buffer(self: Tensor, flags: int) -> memoryview:
    """The memory, for `memoryview(x)`.

    Raises ExportError where it requires gradients, and for bfloat16 and float8.
    """
    data = _shareable(self, "memoryview(x)")
    if type(data) is OnDevice:
        raise ExportError(f"memoryview(x): the tensor is on {self.device}", "share x.cpu(), or use DLPack")
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
    if int(kind) in (CUDA, ROCM) and int(kind) == _kind_here():
        eager = on_device.eager()
        at = eager.machine_at(Device("cuda", int(index)))
        try:
            return x.__dlpack__(stream=at.stream.handle, max_version=VERSION)
        except TypeError:
            return x.__dlpack__(stream=at.stream.handle)
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
    place = device_of(device)
    if modes.CHANGED:
        modes.tell("refuse", "from_dlpack(x) took in memory of another library")
    made = _taken(_capsule_of(ext_tensor))
    if place is not None and place != made.device:
        if copy is False:
            raise ArgumentError(
                f"from_dlpack(copy=False): the memory is on {made.device}, and {place} was asked for"
            )
        return made.to(place)
    if copy:
        return ops.clone(made)
    storage_of(made).expose()
    return made


def _taken(capsule: Any) -> Tensor:
    """A tensor over the memory of a capsule."""
    inside = inside_of(capsule)
    foreign = BY_CODE.get((inside.code, inside.bits)) if inside.lanes == 1 else None
    if not inside.data and _count(inside):
        raise ArgumentError("from_dlpack(x): the capsule has elements, and says that they lie nowhere")
    if inside.device_type in (CUDA, ROCM):
        if inside.device_type != _kind_here():
            place = f"{DEVICES[inside.device_type]}:{inside.device_id}"
            raise DeviceError(f"from_dlpack(x): the memory is on {place}, which is not here")
        return load(f"{__package__}.cuda.capsules").taken(capsule)
    described = f"DLPack type code {inside.code}, {inside.bits} bits, {inside.lanes} lanes"
    if foreign is not None:
        inside.code = CODE_UNSIGNED
    try:
        data = np.from_dlpack(_Carrier(capsule, (inside.device_type, inside.device_id)))
    except (BufferError, RuntimeError) as error:
        raise DTypeError(f"from_dlpack(x): {error}", f"given: {described}") from None
    return tensor_of(data if foreign is None else data.view(foreign.numpy))


def install() -> None:
    """Hang the methods on `Tensor`; done once, when the runtime is imported."""
    for name, method in {"dlpack": export, "dlpack_device": _dlpack_device, "buffer": _buffer}.items():
        setattr(Tensor, f"__{name}__", method)
    setattr(Tensor, "__cuda_array_interface__", property(_cuda_interface))  # noqa: B010


install()
