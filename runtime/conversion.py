"""Tensors as Python's numbers and NumPy's arrays, in other dtypes, and on other devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, ArgumentValueError, DeviceError, GradError, ShapeError
from ..ir.lazy import load
from ..ir.op import REGISTRY
from ..ir.pretended_gpus import is_index
from ..ir.types import CPU, Device, placed, type_of
from . import modes, ops
from .calls import eager
from .dispatch import INSTEAD
from .history import storage_of
from .layouts import sparse_coo
from .meta import META, NoValues, NoValuesError, placed_at
from .meta import array as nothing
from .modes import CHANGED
from .on_device import OnDevice, on_host, streamed
from .tensor import Tensor, wrap

# ---- to Python and NumPy
ndarray, _PYTHONS = np.ndarray, frozenset((bool, int, float, complex))


def _item(self: Tensor) -> bool | int | float | complex:
    """The value of a tensor of one element, as a number.  Raises GradError (a RuntimeError) otherwise."""
    data = self._data
    if not CHANGED and type(data) is ndarray and data.size == 1:
        value = data.item()
        if type(value) in _PYTHONS:
            return value
    if self._data.size != 1:
        raise GradError(
            f"item(): the tensor has {self._data.size} elements, not one", f"tensor: {self._meta}"
        )
    value = number_in(on_host(self._data))
    if modes.CHANGED:
        modes.tell("escape", self, "item", value)
    return value


def number_in(data: np.ndarray) -> Any:
    """The one element of an array, as a number."""
    value = data.item()
    return value if isinstance(value, (bool, int, float, complex)) else float(value)  # as bfloat16's


def _tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers."""
    data = on_host(self._data)
    # NumPy's own types are of Python's kinds; of others, those of ml_dtypes, lists would hold their scalars
    found = data.astype(np.float32).tolist() if data.dtype.isbuiltin == 2 else data.tolist()
    if modes.CHANGED:
        modes.tell("escape", self, "tolist", found)
    return found


def _truth(self: Tensor) -> bool:
    if self._data.size != 1:
        several = "more than one value" if self._data.size else "no values"
        raise ShapeError(
            f"Boolean value of Tensor with {several} is ambiguous: it has {self._data.size} elements",
            f"tensor: {self._meta}",
            "use x.any() or x.all()",
        )
    found = bool(on_host(self._data).reshape(())[()])
    if modes.CHANGED:
        modes.tell("escape", self, "bool", found)
    return found


def _number(kind: type) -> Callable:
    def convert(self):
        data = self._data
        if not CHANGED and type(data) is ndarray and data.size == 1:
            value = data.item()
            if type(value) is kind:
                return value
        if self._data.size != 1:
            raise ArgumentValueError(
                f"{kind.__name__}(x): x has {self._data.size} elements, not one", f"x: {self._meta}"
            )
        number = number_in(on_host(self._data))
        if isinstance(number, complex) and kind is not complex:
            if number.imag:
                raise ArgumentValueError(
                    f"{kind.__name__}(x): {number} is no real number", f"x: {self._meta}"
                )
            number = number.real
        value = kind(number)
        if modes.CHANGED:
            modes.tell("escape", self, kind.__name__, value)
        return value

    return convert


def _index(self: Tensor) -> int:
    if self._meta.dtype.inexact or self._data.size != 1:
        raise ArgumentError(f"only an integer tensor of one element can be an index, not {self._meta}")
    value = int(number_in(on_host(self._data)))
    if modes.CHANGED:
        modes.tell("escape", self, "int", value)
    return value


def _numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """The values as an array that shares this tensor's memory.

    Raises GradError if it requires gradients, but under no_grad().

    force: a copy-free detached array even then.
    """
    if self._node is not None and not force and modes.is_grad_enabled():
        raise GradError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            "an array can't follow gradients: use x.detach().numpy()",
        )
    if type(self._data) is NoValues:
        raise NoValuesError("numpy(): a tensor on the meta device has no values", f"tensor: {self._meta}")
    if type(self._data) is OnDevice:
        if not force:
            raise ArgumentError(
                f"numpy(): can't convert {self._meta.device} device type tensor to numpy. Use Tensor.cpu() "
                "to copy the tensor to host memory first.",
                f"tensor: {self._meta}",
            )
        return on_host(self._data)
    if modes.CHANGED:
        modes.tell("refuse", "numpy() handed out a tensor's memory")
    storage_of(self).expose()
    return self._data


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    data = _numpy(self)
    if copy is False and dtype is not None and data.dtype != dtype:
        raise ArgumentValueError(f"an array of {dtype} can't share the memory of {self._meta}")
    return np.array(data, dtype=dtype, copy=copy)


# ---- to other dtypes and devices
_cast = eager(REGISTRY["cast"])


def _to(
    self: Tensor, *args: Any, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None
) -> Tensor:
    """The tensor in another dtype and on another device; itself where nothing changes.

    Spelled x.to(dtype), x.to(device), x.to(device, dtype), x.to(other); non_blocking and copy may follow by
    their places.  Raises DeviceError, ArgumentError.
    """
    if len(args) == 1 and type(args[0]) is DType and dtype is device is None and copy is False:
        return self if args[0] is self._meta.dtype else _cast(self, dtype=args[0])
    flags = [arg for arg in args if isinstance(arg, bool)]
    if len(flags) > 2:
        raise ArgumentError(f"to(…): takes non_blocking and copy by their places, not {len(flags)} flags")
    copy = flags[1] if len(flags) == 2 else copy
    for arg in args:
        if isinstance(arg, (DType, type)):
            dtype = arg
        elif isinstance(arg, str) and arg in dtypes.NAMES:
            raise ArgumentError(f"to({arg!r}): a dtype is no string", f"lamina.{arg} is that dtype")
        elif isinstance(arg, (str, Device)) or is_index(arg):
            device = arg
        elif isinstance(arg, Tensor):
            dtype, device = arg._meta.dtype, arg._meta.device
        elif arg is not None and not isinstance(arg, bool):
            raise ArgumentError(f"to(…): takes a dtype, a device or a tensor, not {type(arg).__name__}")
    place = device_of(device)
    if isinstance(dtype, type):
        dtype = dtypes.as_dtype(dtype) or dtype
    if place is not None and place != self._meta.device:
        return _moved(self, place, dtype or self._meta.dtype)
    if dtype is not None and dtype is not self._meta.dtype:
        return _cast(self, dtype=dtype)
    return ops.clone(self) if copy else self


def device_of(device: Any) -> Device | None:
    """The device that is asked for, one that is there.  Raises DeviceError."""
    if device is None:
        return None
    return placed_at(device)


def wanted_device(device: Any) -> Device:
    """The device for a new tensor: the one that is asked for, else this thread's.  Raises DeviceError."""
    if device is None:
        return (modes.local.device if modes.CHANGED else None) or CPU
    return device_of(device) or CPU


def _moved(self: Tensor, place: Device, dtype: DType) -> Tensor:
    """The tensor on another device.  Raises NoValuesError for one on the meta device."""
    if place != META:
        if self._meta.device == META:
            raise NoValuesError(
                "to(device): a tensor on the meta device has no values to copy", f"{self._meta}"
            )
        if modes.CHANGED:
            modes.tell("refuse", f"a tensor was moved to {place}")
        found = load("lamina.runtime.moving").moved(self, place)
        return found if dtype is found._meta.dtype else _cast(found, dtype=dtype)
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was moved to the meta device")
    kind = type_of(dtype, self._meta.shape, META)
    return wrap(nothing(kind), kind)


def require_cpu(device: Any) -> None:
    """Refuse a device that is not there.  Raises DeviceError."""
    if device is not None and (place := placed(device)).type != "cpu":
        raise DeviceError(f"there is no device {place} here", "use device='cpu'")


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """PyTorch's name of the type, "torch.FloatTensor" or "torch.sparse.FloatTensor", or the tensor cast.

    That may be spelled as such a name, too, or as its class.  Raises ArgumentValueError for no type's name.
    """
    if dtype is None:
        name = _type_name(self._meta.dtype)
        if self.is_cuda:
            name = name.replace("torch.", "torch.cuda.")
        return name.replace("torch.", "torch.sparse.") if self.layout is sparse_coo else name
    if isinstance(dtype, str):
        dtype = dtype.replace("torch.sparse.", "torch.")  # a layout stays as it is
        there = dtype.startswith("torch.cuda.")
        place = placed_at("cuda") if there and not self.is_cuda else self.device if there else CPU
        dtype = dtype.replace("torch.cuda.", "torch.")
        dtype = next((d for d in dtypes.EVERY if _type_name(d) == dtype), None)
        if dtype is None:
            raise ArgumentValueError('type(dtype): invalid type; names are like "torch.FloatTensor"')
        return _to(self, dtype) if self.is_cpu and not there else _to(self, place, dtype)
    return _to(self, dtypes.default_dtype() if dtype is Tensor else getattr(dtype, "dtype", dtype))


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype of another, and on the GPU or the CPU that the other is on."""
    return _to(self, other if self.is_cuda or other.is_cuda else other._meta.dtype)


def _type_name(dtype: DType) -> str:
    return f"torch.{_OF_TYPE.get(dtype.name) or dtype.name.capitalize().replace('Uint', 'UInt')}Tensor"


_OF_TYPE = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
}  # fmt: skip


def _view_as_dtype(self: Tensor, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """x.view(dtype): the same bytes as another dtype.  None for a view of another shape, which is an op."""
    dtype = kwargs.get("dtype", args[0] if args else None)
    return _view_of_bytes(self, dtype) if len(args) + len(kwargs) == 1 and isinstance(dtype, DType) else None


INSTEAD["view"] = _view_as_dtype


def _check_bytes(x: Tensor, dtype: DType) -> None:
    """Refuse to read bytes as elements of another size that they don't make.  Raises ShapeError."""
    if not x._meta.ndim:
        raise ShapeError(f"view({dtype}): self.dim() cannot be 0, as the elements are of another size")
    if x.stride(-1) != 1:
        raise ShapeError(
            f"view({dtype}): self.stride(-1) must be 1, so that the bytes of a row have no gaps",
            f"tensor: {x._meta}, strides {x.stride()}",
            "x.contiguous() has none",
        )
    ratio = dtype.itemsize // x._meta.dtype.itemsize
    if ratio < 2:
        return
    counts: dict[str, Any] = {"size(-1)": x._meta.shape[-1], "storage_offset()": x.storage_offset()}
    counts |= {f"stride({d})": x.stride(d) for d in range(x._meta.ndim - 1)}
    for name, count in counts.items():
        if count % ratio:
            raise ShapeError(
                f"view({dtype}): self.{name} must be divisible by {ratio}, and is {count}: an element of "
                f"{dtype.name} is {ratio} of {x._meta.dtype.name}"
            )


def _view_of_bytes(self: Tensor, dtype: DType) -> Tensor:
    """The bytes read as another dtype; one of another size makes the last dimension longer or shorter.

    It has no history, and sees writes and is seen by them.  Raises ShapeError where the bytes of a row don't
    make whole elements, or don't lie side by side.
    """
    if modes.CHANGED:
        modes.tell("refuse", f"view({dtype}) read a tensor's bytes as another type")
    if dtype.itemsize != self._meta.dtype.itemsize:
        _check_bytes(self, dtype)
    try:
        data = self._data.view(dtype.numpy)
    except ValueError as error:
        raise ShapeError(f"view({dtype}): {error}", f"tensor: {self._meta}") from None
    made = wrap(data, type_of(dtype, data.shape, self._meta.device))
    made._storage = storage_of(self)
    return made


def _cpu(self: Tensor) -> Tensor:
    """The tensor on the CPU: itself, or a copy.  Raises NoValuesError for one on the meta device."""
    return _to(self, CPU) if self._meta.device is not CPU else self


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a CUDA device: itself where it is there, and on one that is pretended.

    Raises DeviceError for one that is not there, ArgumentError for what is no CUDA device.
    """
    place = Device("cuda" if device is None else device)
    if place.type != "cuda":
        raise ArgumentError(f"cuda(device): Invalid device, must be cuda device, not {place}")
    return _to(self, place)


def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in memory that a GPU reads by itself, while Python goes on; the tensor, where it is there.

    The tensor itself on pretended devices, which read the same memory.  Raises DeviceError without a device.
    """
    place = placed_at("cuda" if device is None else device)
    if self.is_cuda:
        raise DeviceError(
            f"cannot pin '{_type(self)}': only dense CPU tensors can be pinned", f"it is on {self.device}"
        )
    return self if place is CPU or not self.is_cpu else load(f"{__package__}.moving").pinned(self, place)


def _is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the memory is what `pin_memory` gives."""
    return self.is_cpu and load(f"{__package__}.moving").is_pinned(self)


def _record_stream(self: Tensor, s: Any) -> None:
    """Keep the memory, once it is freed, until what a stream has by then is done.  Raises DeviceError."""
    placed_at("cuda")
    if self.is_cuda:
        streamed().used_by(self._data, s.queue)


METHODS: dict[str, Any] = {
    "item": _item, "tolist": _tolist, "__bool__": _truth, "is_nonzero": lambda self: _truth(self),
    "__int__": _number(int), "__float__": _number(float), "__complex__": _number(complex),
    "__index__": _index, "numpy": _numpy, "__array__": _array, "to": _to, "cpu": _cpu, "cuda": _cuda,
    "pin_memory": _pin_memory, "is_pinned": _is_pinned, "record_stream": _record_stream,
    "type": _type, "type_as": _type_as,
}  # fmt: skip
