"""What PyTorch's module has besides ops: limits of dtypes, constants, typed constructors, switches."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from ..ir import dtypes
from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, DeviceError, DTypeError
from ..ir.shapes import broadcast_shapes as common_shape
from ..ir.shapes import result_dtype, scalar_dtype
from ..ir.types import CPU, Device, placed, type_of
from ..runtime import Size, Tensor, modes
from ..runtime.conversion import device_of
from ..runtime.layouts import Layout as layout
from ..runtime.layouts import jagged, sparse_coo, sparse_csc, sparse_csr, strided
from ..runtime.memory_view import TypedStorage, UntypedStorage, is_storage
from ..runtime.memory_view import UntypedStorage as StorageBase
from ..runtime.refusal import refusing_methods, refusing_names

pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
contiguous_format, preserve_format, channels_last = "contiguous_format", "preserve_format", "channels_last"
channels_last_3d, legacy_contiguous_format = "channels_last_3d", contiguous_format
memory_format = str


class _Unbuilt:
    """A dtype of PyTorch's that no tensor here has: libraries ask whether a tensor has it."""

    def __init__(self, name: str, instead: str):
        self._name, self._instead = name, instead

    def __str__(self) -> str:
        return f"torch.{self._name}"

    def __repr__(self) -> str:
        return f"{self}, which is not built: {self._instead}"


complex32 = chalf = _Unbuilt("complex32", "complex64 is")
quint8, qint8, qint32, quint4x2, quint2x4 = (
    _Unbuilt(name, "lamina.quantize makes models of integers")
    for name in "quint8 qint8 qint32 quint4x2 quint2x4".split()
)
# shells in PyTorch too, which has no operator for them
uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7 = (
    _Unbuilt(f"{kind}{bits}", "uint8 and int8 are") for kind in ("uint", "int") for bits in range(1, 8)
)
bits8, bits16, bits1x8, bits2x4, bits4x2 = (
    _Unbuilt(name, "uint8 and uint16 are") for name in "bits8 bits16 bits1x8 bits2x4 bits4x2".split()
)


# ---- limits of dtypes --------------------------------------------------------------------------------------
class finfo:
    """The limits of a floating dtype, the default one unless given.  Raises ArgumentError for others.

    Of a complex dtype they are those of its parts.
    """

    def __init__(self, dtype: DType | None = None):
        dtype = dtype or dtypes.default_dtype()
        if isinstance(dtype, DType):
            dtype = dtype.to_real()
        if not isinstance(dtype, DType) or not dtype.is_floating_point:
            raise ArgumentError(
                f"finfo(dtype): a floating dtype is needed, not {dtype!r}", "see iinfo for integers"
            )
        found = ml_dtypes.finfo(dtype.numpy)
        self.dtype, self.bits = dtype.name, dtype.itemsize * 8
        self.min, self.max, self.eps = float(found.min), float(found.max), float(found.eps)
        self.tiny = self.smallest_normal = float(found.smallest_normal)
        # The library's own is rounded to the dtype; of float8 no decimal digit is sure.
        self.resolution = 1.0 if dtype.storage else 10.0**-found.precision

    def __repr__(self) -> str:
        shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in shown)}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer dtype.  Raises ArgumentError for other dtypes."""

    def __init__(self, dtype: DType):
        if not isinstance(dtype, DType) or dtype.category != "int":
            raise ArgumentError(
                f"iinfo(dtype): an integer dtype is needed, not {dtype!r}", "see finfo for floats"
            )
        found = np.iinfo(dtype.numpy)
        self.dtype, self.bits = dtype.name, dtype.itemsize * 8
        self.min, self.max = int(found.min), int(found.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


# ---- questions ---------------------------------------------------------------------------------------------
def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floats."""
    return input.is_floating_point()


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made under `inference_mode`."""
    return input.is_inference()


def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex."""
    return input.is_complex()


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def get_device(input: Tensor) -> int:
    """The number of the tensor's device: -1 for the CPU."""
    return input.get_device()


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero.  Raises ShapeError where it is not one."""
    return bool(input)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes broadcast to.  Raises ShapeError, ArgumentError."""
    given = [tuple(s) if isinstance(s, (tuple, list)) else (s,) for s in shapes]
    for n in (n for shape in given for n in shape):
        if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 0:
            raise ArgumentError(f"broadcast_shapes: shapes are of ints that aren't negative, not of {n!r}")
    return Size(common_shape("broadcast_shapes", *given))


def detach(input: Tensor) -> Tensor:
    """The same values without history."""
    return input.detach()


def result_type(tensor1: Any = None, tensor2: Any = None, **named: Any) -> DType:
    """The dtype of an arithmetic result of two tensors or numbers.  Raises ArgumentError for others.

    named: the two as PyTorch names them: tensor and other, scalar and tensor, scalar1 and scalar2.
    """
    if "scalar" in named:
        tensor1, tensor2 = named.get("tensor", tensor2), named["scalar"]
    elif named:
        tensor1 = named.get("tensor", named.get("scalar1", tensor1))
        tensor2 = named.get("other", named.get("scalar2", tensor2))
    for x in (tensor1, tensor2):
        if not isinstance(x, (Tensor, bool, int, float, complex)):
            raise ArgumentError(f"result_type: takes tensors and numbers, not a {type(x).__name__}")
    if not isinstance(tensor1, Tensor) and isinstance(tensor2, Tensor):
        tensor1, tensor2 = tensor2, tensor1
    if not isinstance(tensor1, Tensor):
        return dtypes.promote(dtypes.of_scalar(tensor1), dtypes.of_scalar(tensor2))
    kind = tensor1._meta
    if isinstance(tensor2, Tensor):
        return result_dtype(kind, tensor2._meta)
    return result_dtype(kind, type_of(scalar_dtype(kind.dtype, tensor2), (), CPU))


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that holds both.  Raises DTypeError where there is none."""
    return dtypes.promote(type1, type2)


def can_cast(from_: DType, to: DType) -> bool:
    """Whether an in-place result of dtype `from_` may be written into `to`: bool < integer < float <
    complex."""
    return dtypes.category_at_least(to, from_.category)


# ---- constructors by type ----------------------------------------------------------------------------------
class Typed(type):
    """Makes isinstance(x, FloatTensor) a question about the dtype and the layout."""

    dtype: DType
    layout = strided
    is_cuda = is_sparse = False

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls.dtype and x.layout is cls.layout

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        if device is not None and (place := placed(device)) != CPU:
            raise DeviceError(f"{cls.__name__}(device=…): it makes tensors on the CPU, not on {place}")
        return Tensor(*args, dtype=cls.dtype)


def _typed(name: str, dtype: DType) -> Typed:
    doc = f"A tensor of {dtype.name}: {name}([1, 2]) holds these numbers, {name}(2, 3) zeros of that shape."
    return Typed(name, (), {"dtype": dtype, "__doc__": doc})


FloatTensor, DoubleTensor = _typed("FloatTensor", dtypes.float32), _typed("DoubleTensor", dtypes.float64)
HalfTensor, BFloat16Tensor = _typed("HalfTensor", dtypes.float16), _typed("BFloat16Tensor", dtypes.bfloat16)
LongTensor, IntTensor = _typed("LongTensor", dtypes.int64), _typed("IntTensor", dtypes.int32)
ShortTensor, CharTensor = _typed("ShortTensor", dtypes.int16), _typed("CharTensor", dtypes.int8)
ByteTensor, BoolTensor = _typed("ByteTensor", dtypes.uint8), _typed("BoolTensor", dtypes.bool_)


class _TypedMemory(type):
    """Makes isinstance(x, FloatStorage) a question about the dtype."""

    kind: DType

    def __instancecheck__(cls, x: object) -> bool:
        if not isinstance(x, TypedStorage) or isinstance(x, UntypedStorage):
            return type.__instancecheck__(cls, x)
        return type.__instancecheck__(cls, x) or x.dtype is cls.kind


def _storage(name: str, dtype: DType) -> Any:
    doc = f"Memory of {dtype.name}: {name}([1, 2]) holds these numbers, {name}(2) zeros."
    return _TypedMemory(name, (TypedStorage,), {"kind": dtype, "__doc__": doc})


Storage = type("Storage", (TypedStorage,), {"__doc__": "Memory of the default dtype: see TypedStorage."})
FloatStorage, DoubleStorage = (
    _storage("FloatStorage", dtypes.float32),
    _storage("DoubleStorage", dtypes.float64),
)
LongStorage, IntStorage = _storage("LongStorage", dtypes.int64), _storage("IntStorage", dtypes.int32)
ShortStorage, CharStorage = _storage("ShortStorage", dtypes.int16), _storage("CharStorage", dtypes.int8)
ByteStorage, BoolStorage = _storage("ByteStorage", dtypes.uint8), _storage("BoolStorage", dtypes.bool_)
HalfStorage, BFloat16Storage = (
    _storage("HalfStorage", dtypes.float16),
    _storage("BFloat16Storage", dtypes.bfloat16),
)
ComplexFloatStorage, ComplexDoubleStorage = (
    _storage("ComplexFloatStorage", dtypes.complex64),
    _storage("ComplexDoubleStorage", dtypes.complex128),
)


def storage_type(self: Tensor) -> type[TypedStorage]:
    """The class of memory of this tensor's dtype."""
    return globals()[f"{self.dtype.scalar_type}Storage"]


Tensor.storage_type = storage_type  # type: ignore[attr-defined]


def set_default_tensor_type(t: Any) -> None:
    """Make the dtype of FloatTensor and its kin the default.  Raises ArgumentError, DTypeError."""
    if isinstance(t, str):
        t = globals().get(t.rpartition(".")[2])
    if not isinstance(t, Typed) or t.is_sparse:
        raise ArgumentError("set_default_tensor_type(t): takes FloatTensor, DoubleTensor and their kin")
    if not t.dtype.is_floating_point:
        raise DTypeError(f"set_default_tensor_type(t): a floating type is needed, not {t.dtype}")
    dtypes.set_default_dtype(t.dtype)


# ---- switches ----------------------------------------------------------------------------------------------
def get_default_device() -> Device:
    """Where new tensors are made."""
    return modes.local.device or CPU


def set_default_device(device: Any) -> None:
    """Choose where this thread makes new tensors.  Raises DeviceError for any place that is not there."""
    place = device_of(device)
    modes.update(device=None if place is None or place == CPU else place)


__all__ = [
    "BFloat16Storage", "BFloat16Tensor", "BoolStorage", "BoolTensor", "ByteStorage", "ByteTensor",
    "CharStorage", "CharTensor", "ComplexDoubleStorage", "ComplexFloatStorage", "DoubleStorage",
    "DoubleTensor", "FloatStorage", "FloatTensor", "HalfStorage", "HalfTensor", "IntStorage", "IntTensor",
    "LongStorage", "LongTensor", "ShortStorage", "ShortTensor", "Storage", "StorageBase",
    "TypedStorage", "UntypedStorage",
    "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8",
    "broadcast_shapes", "can_cast", "chalf", "channels_last", "channels_last_3d", "complex32",
    "contiguous_format", "detach", "e", "finfo", "get_default_device", "get_device", "iinfo", "inf",
    "int1", "int2", "int3", "int4", "int5", "int6", "int7",
    "is_complex", "is_floating_point", "is_inference", "is_nonzero", "is_storage", "jagged", "layout",
    "legacy_contiguous_format", "memory_format", "nan", "newaxis", "numel", "pi", "preserve_format",
    "promote_types", "qint32", "qint8", "quint2x4", "quint4x2", "quint8", "result_type", "set_default_device",
    "set_default_tensor_type", "sparse_coo", "sparse_csc", "sparse_csr", "strided",
    "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7",
]  # fmt: skip


refusing_names(globals(), "lamina.facade.names")
refusing_methods((finfo, iinfo))
