"""Tensors from what is not one: numbers, lists, NumPy arrays, buffers."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError
from ..ir.lazy import load
from ..ir.types import CPU
from . import modes, on_device
from .conversion import device_of, wanted_device
from .history import storage_of
from .interchange import from_dlpack
from .on_device import on_host
from .refusal import refusing
from .storage import Inferred
from .tensor import Size, Tensor, line_of_storage, tensor_of


def _checked(name: str, dtype: Any) -> DType | None:
    found = dtypes.as_dtype(dtype)
    if dtype is not None and found is None:
        raise ArgumentError(f"{name}(dtype=…): takes a lamina dtype such as lamina.float32, not {dtype!r}")
    return found


def _array(name: str, data: Any, dtype: DType | None) -> np.ndarray:
    """Nested sequences of numbers and tensors as a fresh array.  Raises ArgumentValueError if ragged."""
    if (row := _row(data, dtype)) is not None:
        return row
    if (line := line_of_storage[0](data, dtype)) is not None:
        data = line
    plain = _plain(name, data)
    if isinstance(plain, (list, tuple)) and plain and isinstance(plain[0], np.ndarray) and plain[0].ndim:
        if isinstance(data[0], np.ndarray):
            warnings.warn(
                "Creating a tensor from a list of numpy.ndarrays is extremely slow in PyTorch; for "
                f"{name}(data), numpy.array(data) makes one array of them",
                UserWarning,
                stacklevel=4,
            )
    try:
        array = np.array(plain)
    except ValueError:
        raise ArgumentValueError(
            f"{name}(data): the rows of the nested sequence differ in length: {_uneven(plain)}"
        ) from None
    except TypeError:  # of its own methods
        raise ArgumentValueError(
            f"{name}(data): could not determine the shape of object type '{type(data).__name__}'"
        ) from None
    listed = isinstance(plain, (list, tuple))
    if (
        array.dtype.kind == "O"
        or listed
        and array.dtype.kind == "f"
        and array.size
        and array.max() >= _BEYOND
    ):
        exact = _exactly(plain)
        if all(isinstance(x, int) for x in exact.flat):  # of which NumPy makes floats, of 63 bits and of 64
            if dtype is dtypes.uint64:
                _check_fit(name, exact, dtype)
                exact = exact.astype(np.uint64)
            array = exact
        elif array.dtype.kind == "O":
            array = exact
    if array.dtype.kind == "O" and all(isinstance(x, (int, float)) for x in array.flat):  # beyond 64 bits
        if dtype is dtypes.bool_:
            array = array != 0
        elif any(isinstance(x, float) for x in array.flat) or (dtype is not None and dtype.inexact):
            array = array.astype(np.float64)
        else:
            _check_fit(name, array, dtype or dtypes.int64)
    if array.dtype.kind not in "biufcV" and dtypes.from_numpy_dtype(array.dtype) is None:
        raise ArgumentError(f"{name}(data): invalid data type '{_odd(data)}': numbers are needed")
    typed = isinstance(data, _TYPED) or _holds_typed(data)
    if dtype is None and typed and isinstance(data, (list, tuple)):
        dtype = dtypes.from_numpy_dtype(array.dtype) if array.dtype.kind not in "fc" else _promoted(data)
    if dtype is None and not typed and (array.dtype == np.float64 or not array.size):
        dtype = dtypes.default_dtype()  # Python floats, wherever they stand; or nothing
    if dtype is None and not typed and array.dtype == np.complex128:
        dtype = dtypes.default_dtype().to_complex()
    if array.dtype.kind == "c" and dtype is not None and not dtype.is_complex and not typed:
        raise ArgumentError(f"{name}(data): complex numbers don't fit into {dtype}", "x.real takes a part")
    if not typed and array.size and (dtype or dtypes.int64).category == "int":
        _check_fit(name, array, dtype or dtypes.int64)
    if dtype is None:
        return array
    parted = array.dtype.kind == "c" and dtype.category in ("int", "float")
    return dtypes.converted(array.real if parted else array, dtype.numpy)


def _row(data: Any, dtype: DType | None) -> np.ndarray | None:
    """The array of a number of Python's own, or of a row of one kind, in the dtype that these take."""
    kind = type(data)
    if kind is list or kind is tuple:
        kinds = {*map(type, data)}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
    if kind is float:
        wanted = dtype or dtypes.default_dtype()
        return np.array(data, wanted.numpy) if wanted is dtypes.float32 or wanted is dtypes.float64 else None
    if kind is bool:
        return np.array(data, np.bool_) if dtype is None or dtype is dtypes.bool_ else None
    if kind is int and (dtype is None or dtype is dtypes.int64):
        try:
            return np.array(data, np.int64)
        except OverflowError:
            return None
    return None


_BEYOND = 2.0**63


def _exactly(plain: Any) -> np.ndarray:
    """Nested sequences as an array of Python's own objects, whatever of them stood in arrays."""
    made = np.array(plain, object)
    for at, x in enumerate(made.flat):
        if isinstance(x, (np.ndarray, np.generic)):
            made.flat[at] = x.item()
    return made


def _uneven(data: Any) -> str:
    """Where nested sequences differ from what their first items say of them all."""
    lengths, first = [], data
    while isinstance(first, (list, tuple)) or (isinstance(first, np.ndarray) and first.ndim):
        lengths.append(len(first))
        first = first[0] if len(first) else None
    parts = [data]
    for depth, length in enumerate(lengths):
        for part in parts:
            if not isinstance(part, (list, tuple)) and not getattr(part, "ndim", 0):
                return f"a {type(part).__name__} at dim {depth} is not a sequence"
            if len(part) != length:
                return f"expected sequence of length {length} at dim {depth} (got {len(part)})"
        parts = [item for part in parts for item in part]
    return f"a number was expected at dim {len(lengths)}"


_TYPED = np.ndarray, np.generic, Tensor


def _holds_typed(data: Any) -> bool:
    """Whether nested sequences hold anything but Python's numbers, which have no dtype of their own."""
    if not isinstance(data, (list, tuple)):
        return False
    kinds = {*map(type, data)}
    if any(issubclass(kind, _TYPED) for kind in kinds):
        return True
    return not kinds.isdisjoint((list, tuple)) and any(map(_holds_typed, data))


def _promoted(data: Any) -> DType:
    """What the dtypes of all items promote to; a Python float counts as the default dtype."""
    if isinstance(data, (list, tuple)):
        return functools.reduce(dtypes.promote, map(_promoted, data)) if data else dtypes.default_dtype()
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy_dtype(data.dtype) or dtypes.default_dtype()
    if isinstance(data, Tensor):
        return data.dtype
    if isinstance(data, complex):
        return dtypes.default_dtype().to_complex()
    return dtypes.default_dtype() if isinstance(data, float) else dtypes.of_scalar(data)


def _check_fit(name: str, array: np.ndarray, dtype: DType) -> None:
    """Refuse numbers that an integer type can't hold.  Negative ones wrap around where it has no sign."""
    info = np.iinfo(dtype.numpy)
    least = info.min if dtype.is_signed else -info.max
    if array.dtype.kind != "V" and not (array.min() >= least and array.max() <= info.max):  # NaN, too
        odd = next(x for x in array.ravel().tolist() if not least <= x <= info.max)
        raise ArgumentValueError(f"{name}(data): the number {odd} does not fit into {dtype}")


def _plain(name: str, data: Any, within: bool = False) -> Any:
    """Tensors as arrays; within a sequence one counts as a number, whatever ones its shape has."""
    if isinstance(data, Tensor):
        if modes.CHANGED:
            modes.tell("refuse", "the values of a tensor were copied to make another: clone() is an op")
        array = on_host(data.detach()._data)
        if within and array.size != 1:
            raise ArgumentValueError(
                f"{name}(data): only one element tensors can be converted to Python scalars",
                f"in the sequence: {data._meta}",
                "stack(data) puts tensors of one shape side by side",
            )
        return array.reshape(()) if within else array
    if isinstance(data, (list, tuple)) and any(isinstance(x, (Tensor, list, tuple)) for x in data):
        return [_plain(name, x, True) for x in data]
    return data


def _odd(data: Any) -> str:
    while isinstance(data, (list, tuple)) and data:
        data = next((x for x in data if not isinstance(x, (int, float, complex))), data[0])
    return type(data).__name__


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor holding a copy of `data`: a number, nested sequences of numbers, an array, a tensor.

    Python floats become the default dtype, ints int64, bools bool; arrays keep theirs.  Raises ArgumentError,
    ArgumentValueError for ragged sequences.
    """
    place = wanted_device(device)
    if isinstance(data, Tensor):
        warnings.warn(
            "tensor(x) of a tensor copies its values: x.detach().clone() says so",
            UserWarning,
            stacklevel=3,
        )
    made = _owning(_array("tensor", data, _checked("tensor", dtype)))
    if place is not CPU:
        made = made.to(place)
    return made.requires_grad_() if requires_grad else made


def new_tensor(
    self: Tensor, data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor holding a copy of `data`, of this tensor's dtype and where it is, unless others are given."""
    place = self.device if device is None and self.is_cuda else device
    return tensor(data, dtype=dtype or self.dtype, device=place, requires_grad=requires_grad)


def new(self: Tensor, *args: Any, size: Sequence[int] | None = None) -> Tensor:
    """A tensor of this tensor's dtype: new([1, 2]) holds these numbers, new(2, 3) zeros of that shape.

    Of a tensor or a storage it is one over the same memory.  Raises DTypeError where its dtype is another.
    """
    made = Tensor(*(args if size is None else (Size(size),)), dtype=self.dtype)
    return made.to(self.device) if self.is_cuda else made


setattr(Tensor, "new", refusing(new))  # noqa: B010 - a method, as those of methods.py
setattr(Tensor, "new_tensor", refusing(new_tensor))  # noqa: B010 - a method, as those of methods.py


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing its memory where it is an array or tensor of that dtype already."""
    place = device_of(device)
    if place is not None and (place is not CPU or isinstance(data, Tensor)):
        return as_tensor(data, dtype).to(place)
    dtype = _checked("as_tensor", dtype)
    if isinstance(data, Tensor):
        return data if dtype is None or dtype is data.dtype else data.to(dtype)
    if isinstance(data, np.ndarray) and (dtype is None or data.dtype == dtype.numpy):
        return from_numpy(data)
    if (there := _of_device(data)) is not None:
        return there.to(dtype=dtype, device=place)
    made = _owning(_array("as_tensor", data, dtype))
    return made if device is not None or not modes.CHANGED else made.to(wanted_device(None))


def asarray(
    obj: Any, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`obj` as a tensor without history: over its memory where that can be, unless `copy` is True.

    obj: a tensor, an array, a DLPack capsule or what has `__dlpack__`, a number or nested sequences of them;
    of another object with the buffer protocol the bytes, as elements of `dtype`, else of the default dtype.
    requires_grad: the result is a leaf that wants a gradient, or, of a tensor with history, continues that.
    copy: False refuses what has to be copied.  Raises ArgumentError, ArgumentValueError.
    """
    dtype = _checked("asarray", dtype)
    if isinstance(obj, np.generic) and copy is False:
        raise ArgumentValueError("asarray(copy=False): can't alias NumPy scalars. Leave copy out")
    shared = _shared(obj, dtype)
    if shared is None:
        if copy is False:
            raise ArgumentValueError(
                f"asarray(copy=False): can't alias arbitrary sequences, and {type(obj).__name__} is one"
            )
        return tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)
    place = device_of(device)
    moves = place is not None and place != shared.device
    if copy is False and (moves or dtype not in (None, shared.dtype)):
        what = (
            f"from device '{shared.device}' to '{place}'" if moves
            else f"with dtype '{shared.dtype}' into dtype '{dtype}'"
        )  # fmt: skip
        raise ArgumentValueError(f"asarray(copy=False): can't alias a tensor {what}")
    found = shared if requires_grad else shared.detach()
    if moves or dtype not in (None, shared.dtype):
        found = found.to(device=place, dtype=dtype)
    elif copy:
        found = found.clone()
    if requires_grad and not found.requires_grad:
        found = found.detach().requires_grad_()
    return found


def _of_device(obj: Any) -> Tensor | None:
    """A tensor over a GPU's memory that another library's array holds; None of anything else."""
    if type(obj) in (list, tuple) or not hasattr(obj, "__cuda_array_interface__") or not on_device.count():
        return None
    return load(f"{__package__}.cuda.capsules").of_interface(obj)


def _shared(obj: Any, dtype: DType | None) -> Tensor | None:
    """A tensor over the memory of `obj`; None where there is no such thing."""
    if isinstance(obj, Tensor):
        return obj
    if (line := line_of_storage[0](obj, dtype)) is not None:
        return line
    if isinstance(obj, np.ndarray):
        fits = obj.dtype.isnative and not any(step % obj.itemsize for step in obj.strides)
        return from_numpy(obj) if fits and dtypes.from_numpy_dtype(obj.dtype) is not None else None
    if isinstance(obj, (list, tuple, np.generic, str)):
        return None
    if (there := _of_device(obj)) is not None:
        return there
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return frombuffer(obj, dtype=dtype or dtypes.default_dtype())


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of a NumPy array.  Raises ArgumentError, DTypeError.

    Warns of an array that is not writable: the tensor will not be either.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy(array): takes a NumPy array, not {type(array).__name__}")
    if not array.dtype.isnative:
        raise DTypeError(
            "from_numpy(array): the array is in the other byte order, which can't be shared",
            f"array: {array.dtype}",
            "use lamina.tensor(array), which copies",
        )
    if any(step % array.itemsize for step in array.strides):
        raise ArgumentValueError(
            f"from_numpy(array): the strides {array.strides} are no multiples of an element's "
            f"{array.itemsize} bytes",
            "use lamina.tensor(array), which copies",
        )
    if not array.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable: writes to the non-writable tensor will be refused; copy "
            "the array, or use lamina.tensor(array), which copies",
            UserWarning,
            stacklevel=3,
        )
    return _sharing(array)


def _owning(array: np.ndarray) -> Tensor:
    """A tensor around an array, of inference mode where that is on."""
    made = tensor_of(array)
    if modes.CHANGED and modes.local.inference:
        made._storage = Inferred()
    return made


def _sharing(array: np.ndarray) -> Tensor:
    made = _owning(array)
    storage_of(made).expose()
    if modes.CHANGED:
        modes.tell("refuse", "a NumPy array was turned into a tensor that shares its memory")
    return made


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d tensor over the memory of an object with the buffer protocol.  `offset` is in bytes.

    count: elements; negative for all that there are.  Warns of memory that can't be written.
    Raises ArgumentError, ArgumentValueError.
    """
    known = _checked("frombuffer", dtype)
    if known is None:
        raise ArgumentError("frombuffer(dtype): a dtype is needed")
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ArgumentValueError(
            f"frombuffer(buffer): the object does not implement Python buffer protocol. It is a "
            f"{type(buffer).__name__}"
        ) from None
    size, each = view.nbytes, known.itemsize
    if not size or not count:
        raise ArgumentValueError(f"frombuffer: both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ArgumentValueError(
            f"frombuffer: offset ({offset} bytes) must be at least 0 and less than the buffer length "
            f"({size} bytes)"
        )
    left = size - offset
    if count < 0 and left % each:
        raise ArgumentValueError(
            f"frombuffer: buffer length ({left} bytes) after offset ({offset} bytes) must be a "
            "multiple of an "
            f"element's {each} bytes"
        )
    if count > 0 and count * each > left:
        raise ArgumentValueError(
            f"frombuffer: requested buffer length ({count} * {each} bytes) after offset ({offset} "
            "bytes) must not "
            f"exceed the buffer length ({size} bytes)"
        )
    if view.readonly:
        warnings.warn(
            "The given buffer is not writable. The tensor can't be written either: clone() it to do so",
            UserWarning,
            stacklevel=3,
        )
    made = _sharing(np.frombuffer(buffer, known.numpy, count, offset))
    return made.requires_grad_() if requires_grad else made


def mapped(call: str, filename: Any, shared: bool | None, size: int, dtype: DType) -> np.ndarray:
    """The first elements of a file, as memory that is read where it is looked at; see `from_file`."""
    name = os.fsdecode(filename) if isinstance(filename, (str, bytes, os.PathLike)) else None
    if name is None:
        raise ArgumentError(f"{call}(filename): must be a path, not a {type(filename).__name__}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ArgumentValueError(f"{call}(size): must be an int and not negative, not {size!r}")
    if not size:
        return np.empty(0, dtype.numpy)
    nbytes = size * dtype.itemsize
    try:
        if shared and not os.path.exists(name):
            open(name, "xb").close()
        there = os.path.getsize(name)
        if not os.path.isfile(name):
            raise ArgumentValueError(f"{call}(filename): {name!r} is no regular file")
        if there < nbytes and not shared:
            raise ArgumentValueError(
                f"{call}: {size} elements of {dtype} are {nbytes} bytes, and {name!r} has {there}",
                "shared=True makes the file as long",
            )
        return np.memmap(name, np.uint8, "r+" if shared else "c", shape=(nbytes,)).view(dtype.numpy)
    except OSError as error:
        raise ArgumentValueError(f"{call}: {name!r} can't be mapped: {error.strerror}") from error


def from_file(
    filename: Any, shared: bool | None = None, size: int = 0, *, dtype: DType | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A 1-d tensor over the first `size` elements of a file, which are read when they are looked at.

    shared: what is written goes into the file, which is made, or made longer, where it holds fewer; else
    writes stay in this process.  The file must not be made shorter meanwhile: the system then ends whoever
    reads behind its end.  Raises ArgumentError, ArgumentValueError for files that can't be mapped.
    """
    known = _checked("from_file", dtype) or dtypes.default_dtype()
    return _sharing(mapped("from_file", filename, shared, size, known)).to(wanted_device(device))


def scalar_tensor(
    s: int | float | bool, *, dtype: DType | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A 0-d tensor holding a number, of the default dtype where none is given."""
    return tensor(s, dtype=dtype or dtypes.default_dtype(), device=device, requires_grad=requires_grad)


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor."""
    return isinstance(x, Tensor)


class _Old(type):
    """Makes isinstance(x, Variable) ask for a tensor."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False) -> Tensor:
        found = data.detach()
        return found.requires_grad_() if requires_grad else found


class Variable(metaclass=_Old):
    """PyTorch's old name of a tensor with history: Variable(data, requires_grad) shares the data."""
