"""What names in PyTorch's checkpoints stand for, and what is made of their arguments: data, never code.

    name -> value    what the name stands for in the object, which may hold it: a dtype, a class
    value -> maker   what is done where the pickle calls it: a function of ours, of checked arguments

A name that is not here is refused, so a pickle can call nothing but the makers.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from functools import cache
from math import prod
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from ...ir import dtypes
from ...ir.dtypes import DType
from ...ir.errors import DeviceError
from ...ir.types import CPU, RANK, Device, type_of
from ..layouts import LAYOUTS, Layout, sparse_coo
from ..memory_view import TypedStorage, UntypedStorage
from ..meta import META
from ..meta import array as nothing
from ..on_device import on_host
from ..sparse_tensor import Sparse, is_ascending, restored, sparse_of
from ..tensor import Parameter, Size, Tensor, fields, retyped, slot_names, tensor_of, wrap
from .opcodes import check_key
from .own_form import SavedFileError

LARGEST = 2**63 - 1
DEFAULTDICTS = 1000  # in one file: CPython leaves C's stack where it frees many that are nested
REQUIRES = "a file says requires_grad of a tensor of integers"

# PyTorch's classes of storages, by dtype; those of all others are bytes.
STORAGES = {
    dtypes.float32: "FloatStorage", dtypes.float64: "DoubleStorage", dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage", dtypes.int64: "LongStorage", dtypes.int32: "IntStorage",
    dtypes.int16: "ShortStorage", dtypes.int8: "CharStorage", dtypes.uint8: "ByteStorage",
    dtypes.bool_: "BoolStorage", dtypes.complex64: "ComplexFloatStorage",
    dtypes.complex128: "ComplexDoubleStorage",
}  # fmt: skip


class RefusedNameError(SavedFileError, pickle.UnpicklingError):
    """A checkpoint names a class or a function that is not taken from files."""


class StorageKind(NamedTuple):
    """What a class of storages stands for."""

    dtype: DType


class Unsuited(Exception):
    """Arguments from which nothing can be made; the reader tells where."""


def _require(holds: bool, what: str) -> None:
    """Refuse what does not hold; asked by types and identity, as `len`, `bool` and `==` may run code."""
    if not holds:
        raise Unsuited(what)


def shown(value: Any) -> str:
    """A value as errors tell it, in bounded time: by its name, or that of its class."""
    named = isinstance(value, (type, FunctionType))
    return (value.__qualname__ if named else f"a {type(value).__qualname__}")[:60]


def runs_when_freed(cls: type) -> bool:
    """Whether the instances of a class have a `__del__`: code that runs with what a file says of them."""
    return any("__del__" in vars(base) for base in cls.__mro__)


def are_sizes(numbers: Any) -> bool:
    """Whether these are a tuple of sizes or strides."""
    return isinstance(numbers, tuple) and all(type(n) is int and 0 <= n <= LARGEST for n in numbers)


# ---- tensors -----------------------------------------------------------------------------------------------
def placed(storage: Any, offset: Any, size: Any, stride: Any, dtype: DType) -> Tensor:
    """A tensor over a storage; all that is said of it is held against the storage first."""
    _require(isinstance(storage, TypedStorage) and isinstance(dtype, DType), "a tensor of no storage")
    _require(type(offset) is int and 0 <= offset <= LARGEST, "an offset that is none")
    _require(are_sizes(size) and are_sizes(stride), "sizes or strides that are none")
    _require(len(size) == len(stride) <= RANK, "sizes and strides that don't fit")
    _require(prod(max(n, 1) for n in size) * dtype.itemsize <= LARGEST, "sizes beyond all memory")
    if storage.device == META:
        kind = type_of(dtype, tuple(size), META)
        return wrap(nothing(kind), kind)
    # NumPy asks 64 bits of a stride, even of one that is never taken.
    most = LARGEST // dtype.itemsize
    steps = tuple(step if n > 1 or step <= most else 1 for n, step in zip(size, stride, strict=True))
    held = storage._line().view(np.uint8)
    last = offset + sum((n - 1) * step for n, step in zip(size, steps, strict=True))
    _require(not prod(size) or (last + 1) * dtype.itemsize <= held.size, "a tensor that leaves its storage")
    if not prod(size):
        offset, steps = min(offset, held.size // dtype.itemsize), (0,) * len(size)
    made = Tensor(0, dtype=dtype).to(storage.device)
    if dtype is dtypes.bool_ and storage.dtype is not dtype:
        _require(on_host(held).max(initial=0) <= 1, "bools of bytes that are neither 0 nor 1")
    whole = storage if held.size % dtype.itemsize == 0 else _first(storage, dtype.itemsize)
    return made.set_(whole.untyped(), offset, tuple(size), steps)


def _first(storage: TypedStorage, itemsize: int) -> TypedStorage:
    """The bytes of a storage that are whole elements."""
    line = storage._tensor
    return line[: len(storage) // itemsize * itemsize].untyped_storage() if len(storage) else storage


def _require_no_hooks(hooks: Any) -> None:
    _require(hooks is None or type(hooks) in (dict, OrderedDict) and not hooks, "hooks of a tensor")


def _asking(x: Tensor, requires_grad: Any) -> Tensor:
    _require(type(requires_grad) is bool, "a requires_grad that is no bool")
    _require(not requires_grad or x.dtype.inexact, REQUIRES)
    return x.requires_grad_() if requires_grad else x


def _attributed(x: Any, state: Any) -> Any:
    """Hang on a tensor what its pickle says; what has the name of a method or a property is refused."""
    parts = state if type(state) is tuple else (state,)
    _require(all(part is None or type(part) is dict for part in parts), "a state of a tensor that is none")
    of_program = slot_names(type(x))
    for name, value in (item for part in parts if part for item in part.items()):
        _require(type(name) is str and name.isidentifier(), "an attribute without a name")
        if name in of_program:
            object.__setattr__(x, name, value)  # no code of the class is asked
            continue
        _require(not hasattr(type(x), name), f"an attribute {name[:60]!r} of a tensor")
        fields(x)[name] = value
    return x


class Makers:
    """What is made of arguments, by the value that a name stands for.

    size: of the pickle.  Copies are counted against it, so that a few bytes that ask for one again and again
    don't fill memory.
    """

    def __init__(self, size: int):
        self._left = 8 * size + 4096
        self._defaultdicts = 0
        self._blank: dict[int, np.ndarray] = {}  # arrays whose state is still to come
        # What waits for the storages; None where these are read at once.
        self.later: list[Callable[[], object]] | None = None
        self.of = {id(value): getattr(self, name) for name, value in _called().items()}

    def _spend(self, count: int) -> None:
        self._left -= count
        _require(self._left >= 0, "copies of more than it holds")

    # ---- tensors ----
    def rebuild_tensor(self, storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
        """A view of a storage."""
        return placed(storage, offset, size, stride, getattr(storage, "dtype", None))

    def rebuild_tensor_v2(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
        metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        """The same, with what PyTorch says of gradients and of bits that negate or conjugate."""
        _require_no_hooks(hooks)
        made = self.rebuild_tensor(storage, offset, size, stride)
        return _asking(self._turned(made, metadata), requires_grad)

    def rebuild_tensor_v3(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
        metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        """The same, over a storage of bytes."""
        _require_no_hooks(hooks)
        _require(self.later is None or dtype is not dtypes.bool_, "bools over bytes")
        made = placed(storage, offset, size, stride, dtype)
        return _asking(self._turned(made, metadata), requires_grad)

    def _turned(self, x: Tensor, metadata: Any) -> Tensor:
        """The values that a lazily conjugated or negated tensor stands for."""
        if metadata is None or type(metadata) is dict and not metadata:
            return x
        _require(type(metadata) is dict and metadata.keys() <= {"conj", "neg"}, "metadata of a tensor")
        conj, neg = (metadata.get(name) is True for name in ("conj", "neg"))
        _require(x.dtype.inexact and not x.dtype.storage and x.device == CPU, "metadata of a tensor")
        self._spend(x.nbytes)
        made = np.empty(x._data.shape, x._data.dtype)

        def turn() -> None:
            np.conjugate(x._data, out=made) if conj else np.copyto(made, x._data)
            np.negative(made, out=made) if neg else None

        turn() if self.later is None else self.later.append(turn)
        return tensor_of(made)

    def rebuild_parameter(self, data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Parameter:
        """A parameter."""
        _require_no_hooks(hooks)
        _require(isinstance(data, Tensor), "a parameter of no tensor")
        _require(type(requires_grad) is bool, "a requires_grad that is no bool")
        _require(not requires_grad or data.dtype.inexact, REQUIRES)
        return _attributed(Parameter(data.detach(), requires_grad), state)

    def rebuild_sparse(self, layout: Any, data: Any) -> Tensor:
        """A sparse tensor of its parts, each of which is looked at."""
        _require(type(data) is tuple and isinstance(layout, Layout), "a sparse tensor of no parts")
        count = 1 if layout == sparse_coo else 2
        _require(len(data) in (count + 2, count + 3), "a sparse tensor of no parts")
        places, values, size, rest = data[:count], data[count], data[count + 1], data[count + 2 :]
        for part in (*places, values):
            _require(isinstance(part, Tensor) and part.is_contiguous(), "parts of a sparse tensor")
            self._spend(part.nbytes)
        _require(are_sizes(size), "a sparse tensor of no size")
        coalesced = bool(rest) and rest[0] is True
        if self.later is None:
            whole = tuple(place.long() for place in places)
            return restored(layout.name, whole, values, tuple(size), coalesced, False)
        _require(all(place.dtype is dtypes.int64 for place in places), "places that are no int64")
        made = sparse_of(LAYOUTS[layout], places, values, tuple(size), False)

        def look() -> None:
            restored(layout.name, places, values, tuple(size), coalesced, False)
            made._coalesced = layout != sparse_coo or coalesced and is_ascending(made)

        self.later.append(look)
        return made

    def settle(self) -> None:
        """Do what waited for the storages, which have been read by now."""
        for act in self.later or ():
            act()

    def rebuild_meta(self, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
        """A tensor on the meta device."""
        _require(isinstance(dtype, DType) and are_sizes(size), "a tensor of no type")
        _require(prod(max(n, 1) for n in size) * dtype.itemsize <= LARGEST, "sizes beyond all memory")
        kind = type_of(dtype, tuple(size), META)
        return _asking(wrap(nothing(kind), kind), requires_grad)

    def rebuild_from_type(self, function: Any, cls: Any, args: Any, state: Any) -> Tensor:
        """A tensor of a class, or one that something hangs on."""
        _require(id(function) in _REBUILDING and isinstance(args, tuple), "a tensor made by no rebuilder")
        _require(isinstance(cls, type) and issubclass(cls, Tensor), "a tensor of no tensor's class")
        _require(not runs_when_freed(cls), f"a {shown(cls)}, whose __del__ would run by itself")
        made = self.of[id(function)](*args)
        if type(made) is not cls:
            _require(cls is not Parameter or not isinstance(made, Sparse), "a sparse parameter")
            made = Parameter(made.detach(), made.requires_grad) if cls is Parameter else retyped(made, cls)
        return _attributed(made, state)

    # ---- Python's ----
    def ordered(self, items: Any = ()) -> OrderedDict:
        """An OrderedDict: of pairs, where Python 2 wrote it."""
        _require(type(items) in (list, tuple), "an OrderedDict of no pairs")
        self._spend(len(items))
        for pair in items:
            _require(type(pair) in (list, tuple) and len(pair) == 2, "an OrderedDict of no pairs")
            check_key(pair[0])
        return OrderedDict(items)

    def counter(self, items: Any = None) -> Counter:
        """A Counter of a dict."""
        made: Counter = Counter()
        if items is not None:
            _require(type(items) is dict, "a Counter of no dict")
            self._spend(len(items))
            dict.update(made, items)
        return made

    def with_default(self, factory: Any = None) -> defaultdict:
        """A defaultdict of a type that is harmless to call."""
        _require(factory is None or any(factory is each for each in FACTORIES), "a defaultdict of a function")
        self._defaultdicts += 1
        _require(self._defaultdicts <= DEFAULTDICTS, f"more than {DEFAULTDICTS} defaultdicts")
        return defaultdict(factory)

    def encoded(self, text: Any, encoding: Any = "utf-8") -> bytes:
        """Bytes, which protocol 2 writes as text."""
        _require(type(text) is str and type(encoding) is str, "bytes of no text")
        _require(encoding in ("latin1", "latin-1", "utf-8", "ascii"), "bytes of no known encoding")
        self._spend(len(text))
        return text.encode(encoding)

    def raw(self, data: bytes = b"") -> bytes:
        """Bytes."""
        _require(type(data) is bytes, "bytes of something else")
        return data

    def raw_array(self, data: Any = b"", encoding: Any = None) -> bytearray:
        """A bytearray."""
        _require(isinstance(data, (str, bytes, bytearray)), "a bytearray of something else")
        self._spend(len(data))
        return bytearray(self.encoded(data, encoding) if isinstance(data, str) else data)

    def members(self, items: Any = ()) -> set:
        """A set."""
        _require(type(items) in (list, tuple, set, frozenset), "a set of something else")
        self._spend(len(items))
        for item in items:
            check_key(item)
        return set(items)

    def kind(self, value: Any) -> type:
        """The class of None, which has no name of its own."""
        _require(value is None, "the class of another value than None")
        return type(None)

    def frozen(self, items: Any = ()) -> frozenset:
        """A frozenset."""
        return frozenset(self.members(items))

    def number(self, real: Any = 0.0, imag: Any = 0.0) -> complex:
        """A complex number."""
        _require(type(real) in (int, float) and type(imag) in (int, float), "a complex number of no numbers")
        return complex(real, imag)

    def size(self, sizes: Any = ()) -> Size:
        """A shape."""
        _require(isinstance(sizes, (tuple, list)) and all(type(n) is int for n in sizes), "a Size of no ints")
        self._spend(len(sizes))
        return Size(sizes)

    def device(self, kind: Any, index: Any = None) -> Device:
        """A device."""
        _require(type(kind) is str and type(index) in (int, type(None)), "a device of no name")
        try:
            return Device(kind, index)
        except DeviceError:
            raise Unsuited(f"a device {kind!r:.40}, which is none of Lamina's") from None

    def layout(self, name: Any) -> Any:
        """A layout."""
        _require(type(name) is str, "a layout of no name")
        return LAYOUTS[name.removeprefix("torch.")]

    # ---- NumPy's ----
    def dtype(self, code: Any, align: Any = False, copy: Any = True) -> np.dtype:
        """The type of numbers of an array."""
        if isinstance(code, np.dtype):
            return code
        _require(type(code) is str and NUMBERS.fullmatch(code), "a type of no numbers")
        return np.dtype(code)

    def blank(self, cls: Any, shape: Any, code: Any) -> np.ndarray:
        """An array whose state comes later."""
        _require(cls is np.ndarray, "an array of another class")
        made = np.empty(0, np.int8)
        self._blank[id(made)] = made
        return made

    def fill(self, array: Any, state: Any) -> None:
        """Give such an array its state: (version, shape, dtype, whether by columns, bytes)."""
        _require(self._blank.pop(id(array), None) is array, "a second state of an array")
        _require(isinstance(state, tuple) and len(state) == 5, "an array's state that is none")
        _, shape, dtype, by_columns, raw = state
        _require(type(by_columns) is bool, "an array's state that is none")
        self._check(dtype, shape, raw)
        array.__setstate__((1, shape, dtype, by_columns is True, bytes(raw)))

    def _check(self, dtype: Any, shape: Any, raw: Any) -> None:
        _require(isinstance(dtype, np.dtype) and not dtype.hasobject, "an array of no numbers")
        _require(are_sizes(shape) and len(shape) <= RANK, "an array of no shape")
        _require(isinstance(raw, (bytes, bytearray)), "an array of no bytes")
        _require(prod(max(n, 1) for n in shape) * dtype.itemsize <= LARGEST, "sizes beyond all memory")
        _require(prod(shape) * dtype.itemsize == len(raw), "an array of more or fewer bytes than it needs")
        _require(dtype.kind != "b" or not raw or max(raw) <= 1, "bools of bytes that are neither 0 nor 1")
        self._spend(len(raw))

    def of_buffer(self, raw: Any, dtype: Any, shape: Any, order: Any = "C") -> np.ndarray:
        """An array of protocol 5."""
        self._check(dtype, shape, raw)
        _require(type(order) is str and order in ("C", "F"), "an array of no order")
        return np.frombuffer(bytearray(raw), dtype).reshape(shape, order=order)

    def scalar(self, dtype: Any, raw: Any) -> np.generic:
        """A number of NumPy's."""
        self._check(dtype, (), raw)
        return np.frombuffer(raw, dtype)[0]


# ---- the names ---------------------------------------------------------------------------------------------
NUMBERS = re.compile(r"[?bBhHiIlLqQefdFD]|b1|[iu][1248]|f[248]|c(8|16)")
FACTORIES = (list, dict, set, int, float, str, bool, tuple, complex, OrderedDict, Counter)


class _Function(NamedTuple):
    """What stands for a function of PyTorch's that makes something: it is a name, and can't be called."""

    name: str


RECONSTRUCTOR = _Function("copyreg._reconstructor")  # of classes, as protocols 0 and 1 have them
# How `torch.relu` is pickled: as an attribute of this class, by name.
ATTRIBUTE, ROOT_FUNCTIONS = _Function("builtins.getattr"), _Function("torch._C._VariableFunctionsClass")


@cache
def _called() -> dict[str, Any]:
    """By the name of a maker, the value that is called."""
    functions = (
        "rebuild_tensor", "rebuild_tensor_v2", "rebuild_tensor_v3", "rebuild_parameter", "rebuild_sparse",
        "rebuild_meta", "rebuild_from_type", "layout", "blank", "of_buffer", "scalar", "encoded", "kind",
    )  # fmt: skip
    return {name: _Function(name) for name in functions} | {
        "ordered": OrderedDict, "counter": Counter, "with_default": defaultdict,
        "raw": bytes, "raw_array": bytearray, "members": set, "frozen": frozenset, "number": complex,
        "size": Size, "device": Device, "dtype": np.dtype,
    }  # fmt: skip


_REBUILDING = {
    id(_called()[f"rebuild_{name}"])
    for name in ("tensor", "tensor_v2", "tensor_v3", "sparse", "meta", "parameter")
}


# What PyTorch's functions of `torch._utils` are here.
REBUILDERS = {
    "_rebuild_tensor": "rebuild_tensor", "_rebuild_tensor_v2": "rebuild_tensor_v2",
    "_rebuild_tensor_v3": "rebuild_tensor_v3", "_rebuild_parameter": "rebuild_parameter",
    "_rebuild_parameter_with_state": "rebuild_parameter", "_rebuild_sparse_tensor": "rebuild_sparse",
    "_rebuild_meta_tensor_no_storage": "rebuild_meta",
}  # fmt: skip


def _is_further(dtype: DType) -> bool:
    return dtype.numpy.type.__module__ == "ml_dtypes"


@cache
def values() -> dict[str, Any]:
    """What each name stands for."""
    called = _called()
    found: dict[str, Any] = {f"torch._utils.{name}": called[maker] for name, maker in REBUILDERS.items()}
    for name, kind in ((s, StorageKind(d)) for d, s in STORAGES.items()):
        found[f"torch.{name}"] = found[f"torch.storage.{name}"] = kind
    found["torch.storage.UntypedStorage"] = found["torch.UntypedStorage"] = UntypedStorage
    found |= {f"torch.{each.name}": each for each in dtypes.EVERY}
    for each in (bytes, bytearray, set, frozenset, complex, list, dict, int, float, str, bool, tuple, object):
        found[f"builtins.{each.__name__}"] = each
    for module in ("numpy.core", "numpy._core"):
        found[f"{module}.multiarray._reconstruct"] = called["blank"]
        found[f"{module}.multiarray.scalar"] = called["scalar"]
        found[f"{module}.numeric._frombuffer"] = called["of_buffer"]
    found |= {f"ml_dtypes.{each.name}": each.numpy for each in dtypes.EVERY if _is_further(each)}
    return found | {
        "builtins.type": called["kind"],
        "torch._tensor._rebuild_from_type_v2": called["rebuild_from_type"],
        "torch.tensor._rebuild_from_type_v2": called["rebuild_from_type"],
        "torch.serialization._get_layout": called["layout"],
        "torch.Size": Size, "torch.device": Device, "torch.Tensor": Tensor,
        "torch.nn.parameter.Parameter": Parameter, "collections.OrderedDict": OrderedDict,
        "collections.Counter": Counter, "collections.defaultdict": defaultdict,
        "_codecs.encode": called["encoded"], "numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype,
        "copyreg._reconstructor": RECONSTRUCTOR,
    }  # fmt: skip
