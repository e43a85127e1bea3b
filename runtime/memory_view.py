"""The memory behind tensors: where it begins, how large it is, what it holds; and tensors set to parts of it.

There is no object for memory itself: NumPy's arrays hold it.  A `TypedStorage` is made when it is asked for,
of a tensor whose memory it tells about.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    default_dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    over,
    uint8,
)
from ..ir.errors import ArgumentError, ArgumentValueError, DeviceError, DTypeError, ShapeError
from ..ir.types import CPU, Device, placed, type_of
from ..ir.views import row_major
from . import modes, shared_memory
from .creation import mapped
from .graph import Leaf
from .history import storage_of
from .inplace import check_writable
from .meta import NoValues, NoValuesError, placed_at
from .meta import array as nothing
from .on_device import OnDevice, line_of, lying, there
from .refusal import refusing, refusing_methods
from .storage import Storage
from .tensor import Tensor, line_of_storage, tensor_of, wrap


def _reach(x: Tensor) -> int:
    """How many elements the memory would have behind a tensor that has none: those of its base."""
    base = x if x._view is None else x._view[0]
    steps: Any = base.stride()
    return 1 + sum((n - 1) * step for n, step in zip(base._meta.shape, steps)) if base.numel() else 0


def memory_of(x: Tensor) -> np.ndarray:
    """All of the memory that a tensor shares with its base and views, as a line of elements of its dtype."""
    if type(x._data) is NoValues:
        raise NoValuesError("a tensor on the meta device has no memory (Not available)", f"tensor: {x._meta}")
    held = x._storage.memory if x._storage is not None else None
    if held is None and type(x._data) is OnDevice:
        return line_of(x._data)
    if held is None:
        root = (x._view[0] if x._view else x)._data
        reach = 1 + sum((n - 1) * s // root.itemsize for n, s in zip(root.shape, root.strides, strict=True))
        held = over(root, (reach if root.size else 0,), (root.itemsize,), writeable=root.flags.writeable)
    return held if held.dtype == x._data.dtype else held.view(x._data.dtype)


class TypedStorage:
    """The memory that a tensor shares with its base and all views, as numbers of one dtype.

    Made of a size (zeros), of a sequence of numbers, or of another storage's bytes (`wrap_storage`).  It can
    be read, compared (`data_ptr`) and written, as a tensor can; its size stays.  Raises ArgumentError,
    ArgumentValueError.
    """

    kind: DType | None = None  # what classes derived from this one hold; else the default dtype
    _part: slice | None = None  # which elements, of a part of another storage

    def __init__(self, *args: Any, wrap_storage: Any = None, dtype: DType | None = None, device: Any = None):
        if dtype is not None and self.kind is not None:
            raise ArgumentError(f"{type(self).__name__}(dtype): it holds {self.kind.name}: use TypedStorage")
        dtype = dtype or self.kind or default_dtype()
        place = CPU if device is None else placed(str(device))
        place = there(place) if place.type == "cuda" else place
        if wrap_storage is not None:
            if args or not isinstance(wrap_storage, UntypedStorage):
                raise ArgumentError("TypedStorage(wrap_storage): takes an UntypedStorage, and no size then")
            self._tensor, self.dtype = wrap_storage._whole().view(dtype), dtype
            return
        given = args[0] if args else 0
        if place.type == "meta" and hasattr(given, "__index__"):
            kind = type_of(dtype, (given.__index__(),), place)
            self._tensor, self.dtype = wrap(nothing(kind), kind), dtype
            return
        if len(args) > 1 or not (hasattr(given, "__index__") or isinstance(given, (list, tuple))):
            raise ArgumentError(f"{type(self).__name__}(…): takes a size, or a sequence of numbers")
        if not isinstance(given, (list, tuple)):
            if given.__index__() < 0:
                raise ArgumentValueError(f"{type(self).__name__}(size): can't be negative, as {given} is")
            given = np.zeros(given.__index__(), dtype.numpy)
        self._tensor, self.dtype = tensor_of(np.asarray(given, dtype.numpy)).to(place), dtype

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._tensor.device

    def _whole(self) -> Tensor:
        """A line of all elements, in the order of memory."""
        if modes.CHANGED:
            modes.tell("refuse", "the memory behind a tensor was looked at")
        line = self._line()
        whole = wrap(line, type_of(self.dtype, line.shape, self.device))
        if self._part is None:
            whole._storage = storage_of(self._tensor)  # what is written counts for the tensors, too
        return whole

    def _line(self) -> np.ndarray:
        line = memory_of(self._tensor)
        line = line if line.dtype == self.dtype.numpy else line.view(self.dtype.numpy)
        if self._part is None:
            return line
        if type(line) is OnDevice:
            return lying(line, self._part.start, (self._part.stop - self._part.start,), line.strides)
        return line[self._part]

    @property
    def filename(self) -> str | None:
        """The file that what is written goes into; None where it is memory alone."""
        held: Any = memory_of(self._tensor)
        while held is not None:
            if isinstance(held, np.memmap) and held.filename is not None:
                return str(held.filename) if held.mode == "r+" else None
            held = getattr(held, "base", None)
        return None

    def data_ptr(self) -> int:
        """The address of the first byte."""
        if type(self._tensor._data) is NoValues:
            return 0
        return self._whole().data_ptr()

    @property
    def _cdata(self) -> int:
        """A number that storages of the same memory share, while a tensor over it lives."""
        return id(storage_of(self._tensor))

    def nbytes(self) -> int:
        """The size in bytes."""
        data = self._tensor._data
        if type(data) is NoValues and self._part is None:
            return _reach(self._tensor) * data.itemsize
        if type(data) is NoValues:
            return (self._part.stop - self._part.start) * self.dtype.itemsize
        return self._whole()._data.nbytes

    def size(self) -> int:
        """The number of elements."""
        return len(self)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def tolist(self) -> list:
        """The elements as Python numbers."""
        return self._whole().tolist()

    def untyped(self) -> TypedStorage:
        """The same memory, as bytes."""
        return _storage(self._tensor, UntypedStorage, uint8)

    def type(self, dtype: Any = None) -> Any:
        """PyTorch's name of the class, "torch.FloatStorage"; or the elements cast to `dtype`."""
        if dtype is None:
            return f"torch.{'cuda.' if self.is_cuda else ''}{self.dtype.scalar_type}Storage"
        return _storage(self._whole().to(dtype), TypedStorage, dtype)

    def resizable(self) -> bool:
        """Whether the memory could be another size: never here, where it is a NumPy array's."""
        return False

    is_sparse = False

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self.device.type == "cuda"

    @property
    def _untyped_storage(self) -> TypedStorage:
        return self.untyped()

    def get_device(self) -> int | None:
        """The number of the GPU it is on, None elsewhere: as PyTorch's, and unlike a tensor's."""
        return self.device.index

    def is_shared(self) -> bool:
        """Whether other processes see it, or may."""
        return shared_memory.is_shared(self._tensor)

    def share_memory_(self) -> TypedStorage:
        """Move what the tensor holds into memory that other processes see.

        Raises DeviceError, StateError: see `Tensor.share_memory_`.
        """
        shared_memory.share([self._tensor])
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether it is memory that a GPU copies from without waiting."""
        return self._tensor.is_pinned(device)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same memory, read as the same dtype."""
        if not isinstance(other, TypedStorage):
            return NotImplemented
        return self.dtype is other.dtype and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self._place())

    def _place(self) -> tuple:
        if self.device.type == "meta":  # has no addresses: the tensor stands for them
            return self.device, id(self._tensor)
        return self.device, self.data_ptr(), self.nbytes()

    def cpu(self) -> TypedStorage:
        """This, or a copy on the CPU of one that is on a GPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """A copy on a GPU; this where it is there, or on one that is pretended.  Raises DeviceError."""
        return self.to(device="cuda" if device is None else device)

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """A copy on another device, or this.  Raises DeviceError where that is not there."""
        place = placed_at(device)
        return self if place == self.device else _storage(self._whole().to(place), type(self), self.dtype)

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        byte_order: str = "native",
        count: int = -1,
        offset: int = 0,
        *,
        dtype: DType | None = None,
    ) -> TypedStorage:
        """A copy of the bytes of a buffer, read as numbers in that order: native, little or big."""
        dtype = cls.kind or dtype or default_dtype()
        order = {"native": "=", "little": "<", "big": ">"}.get(byte_order)
        if order is None:
            raise ArgumentValueError(f"from_buffer(byte_order): native, little or big, not {byte_order!r}")
        kind = np.dtype(dtype.numpy)
        raw = kind if kind.kind == "V" or kind.itemsize == 1 else kind.newbyteorder(order)
        size = (memoryview(buffer).nbytes - offset) // kind.itemsize if count < 0 else count
        held = np.frombuffer(buffer, raw if kind.kind != "b" else np.uint8, size, offset)
        return _storage(tensor_of(held.astype(kind)), cls, dtype)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first `size` elements of a file; see lamina.from_file."""
        dtype = cls.kind or default_dtype()
        held = mapped(f"{cls.__name__}.from_file", filename, shared, size, dtype)
        return _storage(tensor_of(held), cls, dtype)

    def clone(self) -> TypedStorage:
        """A copy in memory of its own."""
        return _storage(self._whole().clone(), type(self), self.dtype)

    def fill_(self, value: int | float | bool) -> TypedStorage:
        """Write one number everywhere."""
        self._whole().fill_(value)
        return self

    def byteswap(self, dtype: DType) -> None:
        """Turn around the bytes of each number of `dtype`, of complex ones those of each part."""
        whole = self._whole().view(uint8).unflatten(0, (-1, dtype.to_real().itemsize))
        whole.copy_(whole.flip(1))

    def copy_(self, source: TypedStorage) -> TypedStorage:
        """Write the elements of another storage of the same size."""
        self._whole().copy_(source._whole())
        return self

    def __len__(self) -> int:
        if type(self._tensor._data) is NoValues:
            return self.nbytes() // self.dtype.itemsize
        return self._whole()._data.size

    def __getitem__(self, index: Any) -> Any:
        found = self._whole()[self._checked(index)]
        return found.tolist() if isinstance(index, slice) else found.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._whole()[self._checked(index)] = value

    def _checked(self, index: Any) -> int | slice:
        if not isinstance(index, slice) and not hasattr(index, "__index__"):
            raise ArgumentError(f"a storage is indexed by ints and slices, not by a {type(index).__name__}")
        return index if isinstance(index, slice) else index.__index__()

    def __repr__(self) -> str:
        return f"<the memory of {len(self)} elements of {self.dtype}>"


def _cast(dtype: DType) -> Any:
    def cast(self: TypedStorage) -> TypedStorage:
        return self.type(dtype)

    cast.__doc__ = f"The elements as {dtype.name}, in memory of their own where they are of another dtype."
    return cast


for _dtype, _cast_name in {
    bfloat16: "bfloat16", bool_: "bool", uint8: "byte", int8: "char", complex128: "complex_double",
    complex64: "complex_float", float64: "double", float32: "float", float16: "half", int32: "int",
    int64: "long", int16: "short",
}.items():  # fmt: skip
    setattr(TypedStorage, _cast_name, _cast(_dtype))


class UntypedStorage(TypedStorage):
    """The memory that a tensor shares with its base and all views, as bytes.  Made of a number of bytes."""

    kind = uint8

    def __getitem__(self, index: Any) -> Any:
        """A byte; of a slice, which has no step, that part of the memory itself."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        begin, end, step = index.indices(len(self))
        if step != 1:
            raise ArgumentValueError(f"a storage's bytes are sliced with a step of 1, not {step}")
        first = self._part.start if self._part is not None else 0
        made = _storage(self._tensor, UntypedStorage, uint8)
        made._part = slice(first + begin, first + max(begin, end))
        return made

    def untyped(self) -> TypedStorage:
        """This."""
        return self

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> TypedStorage:
        """The first bytes of a file; see lamina.from_file."""
        return super().from_file(filename, shared, nbytes)


def _storage(tensor: Tensor, cls: type[TypedStorage], dtype: DType) -> TypedStorage:
    made = cls.__new__(cls)
    made._tensor, made.dtype = tensor, dtype
    return made


def untyped_storage(self: Tensor) -> TypedStorage:
    """The memory behind this tensor and its views, as bytes."""
    return _storage(self, UntypedStorage, uint8)


def storage(self: Tensor) -> TypedStorage:
    """The memory behind this tensor and its views, as numbers of its dtype."""
    return _storage(self, TypedStorage, self.dtype)


def _as_tensor(obj: Any, dtype: DType | None) -> Tensor | None:
    """A storage as a tensor over its memory; of bytes, of any dtype.  None for anything else."""
    if not isinstance(obj, TypedStorage):
        return None
    whole = obj._whole()
    return whole if dtype is None or not isinstance(obj, UntypedStorage) else whole.view(dtype)


line_of_storage.append(_as_tensor)


def is_storage(obj: Any) -> bool:
    """Whether an object is the memory of a tensor."""
    return isinstance(obj, TypedStorage)


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Make this tensor one over other memory: a storage's from an offset on, or another tensor's.

    size, stride: in elements; without, all of a storage, or the shape of the tensor given.  Without a source
    it becomes empty.  It has no history from then on, though a leaf stays one, and sees writes and is seen
    by them.
    Raises ShapeError for what leaves the memory, DTypeError, ArgumentError.
    """
    if source is not None and not isinstance(source, (Tensor, TypedStorage)):
        raise ArgumentError(f"set_(source): takes a tensor or a storage, not {type(source).__name__}")
    check_writable(self, "set_", modes.is_grad_enabled() and self._node is not None)
    if modes.CHANGED:
        modes.tell("refuse", "set_() gave a tensor other memory")
    dtype = self._meta.dtype
    owner = source._tensor if isinstance(source, TypedStorage) else source
    owner = Tensor(0).to(self.device) if owner is None else owner
    typed = source.dtype if source is not None else dtype
    if typed is not dtype and not isinstance(source, UntypedStorage):
        raise DTypeError(
            f"set_(source): Expected a Storage of type {dtype}, as the tensor is, not {typed}",
            "x.untyped_storage()",
        )
    if source is not None and source.device != self.device:
        raise DeviceError(
            f'set_(source): Attempted to set the storage of a tensor on device "{self.device}" to a storage '
            f'on different device "{source.device}"',
            f"x.to('{self.device}') makes one of it there",
        )
    part = isinstance(source, TypedStorage) and source._part is not None
    line = source._line() if part else memory_of(owner)
    line = line if line.dtype == dtype.numpy else line.view(dtype.numpy)
    if isinstance(source, Tensor) and size is None:
        storage_offset, size, stride = source.storage_offset(), source.shape, source.stride()
    shape = (line.size - storage_offset,) if size is None else _whole_numbers("size", size)
    steps = row_major(shape) if stride is None else _whole_numbers("stride", stride)
    if len(steps) != len(shape):
        raise ShapeError(f"set_: {len(shape)} sizes and {len(steps)} strides")
    last = storage_offset + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    if storage_offset < 0 or (prod(shape) and last >= line.size) or min(shape, default=0) < 0:
        raise ShapeError(
            f"set_: size {list(shape)} and stride {list(steps)} from {storage_offset} on are out of "
            f"bounds for storage of size {line.size} (elements)"
        )
    strides = tuple(step * dtype.itemsize for step in steps)
    store = Storage() if part else storage_of(owner)
    store.memory = line
    if type(line) is OnDevice:
        self._data = lying(line, storage_offset, shape, strides)
    else:
        self._data = over(line[storage_offset:], shape, strides, writeable=line.flags.writeable)
    self._meta = type_of(dtype, shape, self._meta.device)
    node = self._edge if type(self._edge) is Leaf else None
    self._storage, self._view, self._node = store, None, node
    if node is not None:
        node.kind = self._meta
    return self


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether another tensor is over the same memory, with the same offset, sizes and strides."""
    if modes.CHANGED:
        modes.tell("refuse", "is_set_to() compared where tensors lie")
    same = self._meta.shape == tensor._meta.shape and self.stride() == tensor.stride()
    if not memory_of(self).size:  # there is none
        return self is tensor
    return same and self._meta.dtype is tensor._meta.dtype and self.data_ptr() == tensor.data_ptr()


def dim_order(self: Tensor, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the one with the widest steps to the one with the narrowest.

    ambiguity_check: True to refuse where more than one order fits, as where a size is 1; or a list of the
    memory formats that must not fit equally well.  Raises ArgumentValueError.
    """
    steps: Any = self.stride()
    shape = self._meta.shape
    order = tuple(sorted(range(len(shape)), key=lambda d: -steps[d]))
    if ambiguity_check is True:
        ambiguous = len({*steps}) < len(steps) or (1 in shape and len(shape) > 1)
    elif isinstance(ambiguity_check, (list, tuple)):
        ambiguous = sum(self.is_contiguous(memory_format=each) for each in ambiguity_check) > 1
    elif ambiguity_check is False:
        ambiguous = False
    else:
        raise ArgumentError(f"dim_order(ambiguity_check): a bool or memory formats, not {ambiguity_check!r}")
    if ambiguous:
        raise ArgumentValueError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats.",
            f"sizes: {list(shape)}",
            f"strides: {list(steps)}",
        )
    return order


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not all(hasattr(n, "__index__") and n.__index__() >= 0 for n in numbers):
        raise ArgumentValueError(f"set_({name}): takes ints, none negative, not {given!r}")
    return tuple(n.__index__() for n in numbers)


refusing_methods((TypedStorage,))
for _name, _method in {
    "untyped_storage": untyped_storage,
    "storage": storage,
    "set_": refusing(set_),
    "is_set_to": refusing(is_set_to),
    "dim_order": refusing(dim_order),
    "const_data_ptr": Tensor.data_ptr,
}.items():
    setattr(Tensor, _name, _method)
