"""Write PyTorch's checkpoints: an object as a pickle of protocol 2, with PyTorch's names, and its storages.

Tensors whose memory overlaps share a storage, which is written once; which they are is known when all have
been seen, so what a tensor is spelled as follows from its group at the end.  The memory of a view is that of
its base, as PyTorch has it.  Source: PyTorch 2.13, torch/serialization.py and torch/_tensor.py.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from struct import pack
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...ir.dtypes import DType
from ...ir.errors import ArgumentError, LaminaError
from ...ir.types import Device
from ..compound import Compound
from ..layouts import Layout, sparse_coo
from ..memory_view import TypedStorage, memory_of
from ..meta import META, NoValues, strides
from ..on_device import OnDevice, line_of, on_host
from ..sparse_tensor import Sparse
from ..tensor import Parameter, Size, Tensor, fields, slots
from .archive import ALIGNMENT
from .archive import pieces as archived
from .names import STORAGES
from .reader import MAGIC, VERSION

Piece = bytes | Callable[[], bytes]
HERE = __name__.partition(".")[0]  # lamina
OLD_NAMES = {  # as protocol 2, that of Python 2, has them; and what readers know as PyTorch's
    "builtins": "__builtin__", "copyreg": "copy_reg", "lamina._utils": "torch._utils",
}  # fmt: skip
CLASSES: dict[Any, tuple[str, str]] = {  # those of Lamina's that are attributes, as readers know them
    Tensor: ("torch", "Tensor"), Parameter: ("torch.nn.parameter", "Parameter"),
    Size: ("torch", "Size"), Device: ("torch", "device"),
}  # fmt: skip
BATCH = 1000  # items between a mark and what takes them, as Python's pickler has it


class UnnamableError(ArgumentError, AttributeError, pickle.PicklingError):
    """An object that a checkpoint can't hold: its class has no name that a reader could look up."""


# ---- opcodes -----------------------------------------------------------------------------------------------
def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _integer(n: int) -> bytes:
    if 0 <= n < 256:
        return b"K" + pack("<B", n)
    if 0 <= n < 65536:
        return b"M" + pack("<H", n)
    if -(1 << 31) <= n < 1 << 31:
        return b"J" + pack("<i", n)
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return (b"\x8a" + pack("<B", len(raw)) if len(raw) < 256 else b"\x8b" + pack("<I", len(raw))) + raw


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return b"X" + pack("<I", len(raw)) + raw


def _flag(flag: bool) -> bytes:
    return b"\x88" if flag else b"\x89"


def _tuple(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def _integers(numbers: Iterable[int]) -> bytes:
    return _tuple(*map(_integer, numbers))


NO_HOOKS = _global("collections", "OrderedDict") + b")R"


def _dtype(dtype: DType) -> bytes:
    return _global("torch", dtype.name)


# ---- storages ----------------------------------------------------------------------------------------------
class _Extent:
    """Memory that a tensor needs: a line of its elements, and where the tensor begins in it, in bytes.

    location: where it was, as the file says.
    """

    def __init__(self, line: np.ndarray, begin: int, dtype: DType, location: str = "cpu"):
        self.line, self.begin, self.dtype, self.location = line, begin, dtype, location
        self.start = line.__array_interface__["data"][0]
        self.stop = self.start + line.nbytes
        self.group: _Group = None  # type: ignore[assignment]


class _Group:
    """Extents that overlap: one storage.  key: its name in the file."""

    def __init__(self, extents: list[_Extent]):
        self.extents = extents
        first = min(extents, key=lambda each: each.start)
        self.start, self.stop = first.start, max(each.stop for each in extents)
        self.line, self.location = first.line, first.location
        self.key = ""
        types = {each.dtype for each in extents}
        self.dtype = types.pop() if len(types) == 1 else None
        for each in extents:
            each.group = self

    @property
    def size(self) -> int:
        return self.stop - self.start

    def memory(self) -> memoryview:
        """All of it; the extents hold the memory alive."""
        if not self.size:
            return memoryview(b"")
        return memoryview(as_strided(self.line.view(np.uint8), (self.size,), (1,)))

    def spelled(self, legacy: bool, wanted: DType | None = None) -> bytes:
        """The storage as the pickle names it, as one of another dtype where that is wanted and fits.

        The earlier format counts the elements of a storage by its one dtype.
        """
        fits = not legacy and wanted in STORAGES and self.size % wanted.itemsize == 0
        dtype = wanted if wanted is not None and fits else self.dtype
        count, kind = self.size, _global("torch.storage", "UntypedStorage")
        if legacy:  # whose reader in PyTorch takes no storage without a dtype
            kind = _global("torch", "ByteStorage")
        if dtype in STORAGES:
            count //= dtype.itemsize
            kind = _global("torch", STORAGES[dtype])
        parts = (_text("storage"), kind, _text(self.key), _text(self.location), _integer(count))
        return _tuple(*parts, *([b"N"] if legacy else [])) + b"Q"

    @property
    def elements(self) -> int:
        """What the earlier format counts."""
        return self.size // self.dtype.itemsize if self.dtype in STORAGES else self.size


def _grouped(extents: list[_Extent]) -> list[_Group]:
    """The storages of extents, in their order.  One whose elements lie between others' has its own."""
    groups: list[list[_Extent]] = []
    end = -1
    for each in sorted((x for x in extents if x.line.size), key=lambda x: (x.start, -x.stop)):
        aligned = groups and (each.start - groups[-1][0].start) % each.dtype.itemsize == 0
        if groups and each.start < end and aligned:
            groups[-1].append(each)
        else:
            groups.append([each])
        end = max(end, each.stop)
    groups += [[each] for each in extents if not each.line.size]
    for members in groups:
        _Group(members)
    ordered = list(dict.fromkeys(each.group for each in extents))
    for number, group in enumerate(ordered):
        group.key = str(number)
    return ordered


def _extent_on_device(x: Tensor, fetched: dict[int, np.ndarray]) -> tuple[_Extent, tuple[int, ...]]:
    """The same of one on a GPU: of a copy of all its memory, one for all tensors there."""
    data: Any = x._data
    dtype = x._meta.dtype
    if not data.size or any(step < 0 or step % dtype.itemsize for step in data.strides):
        extent = _Extent(np.ascontiguousarray(on_host(data)).reshape(-1), 0, dtype, str(x.device))
        extent.begin = extent.start
        return extent, strides(x._meta)
    line = fetched.get(id(data.memory))
    if line is None:  # the memory lives as long as the tensor, which the writer keeps
        line = fetched[id(data.memory)] = on_host(line_of(data, np.dtype(np.uint8)))
    extent = _Extent(line, 0, dtype, str(x.device))
    extent.begin = extent.start + data.address - data.memory.address
    return extent, tuple(step // dtype.itemsize for step in data.strides)


def _extent(x: Tensor, fetched: dict[int, np.ndarray]) -> tuple[_Extent, tuple[int, ...]]:
    """The memory of a tensor and its strides, in elements; a copy of what PyTorch has no strides for.

    fetched: copies of the memory of GPUs, by its identity.
    """
    dtype = x._meta.dtype
    if type(x._data) is OnDevice:
        return _extent_on_device(x, fetched)
    root = (x._view[0] if x._view else x)._data
    store = x._storage
    steps = (*x._data.strides, *(root.strides if store is None or store.memory is None else ()))
    if x._data.size and all(step >= 0 and step % dtype.itemsize == 0 for step in steps):
        line = memory_of(x)
        extent = _Extent(line, x._data.__array_interface__["data"][0], dtype)
        reach = sum((n - 1) * step for n, step in zip(x._data.shape, x._data.strides, strict=True))
        begin, end = extent.begin - extent.start, extent.begin - extent.start + reach + dtype.itemsize
        if begin >= 0 and begin % dtype.itemsize == 0 and end <= line.nbytes:
            return extent, tuple(step // dtype.itemsize for step in x._data.strides)
    line = np.ascontiguousarray(x._data).reshape(-1)
    extent = _Extent(line, 0, dtype)
    extent.begin = extent.start
    return extent, strides(x._meta)


# ---- objects -----------------------------------------------------------------------------------------------
class _Writer:
    """Spells an object.  pieces: the pickle, in order; what waits for the storages is a function."""

    def __init__(self, legacy: bool):
        self.pieces: list[Piece] = [b"\x80\2"]
        self.extents: list[_Extent] = []
        self._fetched: dict[int, np.ndarray] = {}
        self._legacy = legacy
        self._memo: dict[int, int] = {}
        self._alive: list[Any] = []  # whose ids the memo has

    def _put(self, value: Any) -> None:
        index = self._memo[id(value)] = len(self._memo)
        self._alive.append(value)
        self.pieces.append(b"q" + pack("<B", index) if index < 256 else b"r" + pack("<I", index))

    def write(self, value: Any, path: str) -> None:
        """Spell a value; path: where it is, as errors tell it.  Raises ArgumentError."""
        out, kind = self.pieces.append, type(value)
        if value is None:
            out(b"N")
        elif kind is bool:
            out(_flag(value))
        elif kind is int:
            out(_integer(value))
        elif kind is float:
            out(b"G" + pack(">d", value))
        elif (index := self._memo.get(id(value))) is not None:
            out(b"h" + pack("<B", index) if index < 256 else b"j" + pack("<I", index))
        elif kind is tuple:
            self._tuple(value, path)
        else:
            self._object(value, kind, path)

    def _object(self, value: Any, kind: type, path: str) -> None:
        out = self.pieces.append
        if kind is str:
            out(_text(value))
            self._put(value)
        elif kind is list:
            out(b"]")
            self._put(value)
            self._items(enumerate(value), path, paired=False)
        elif kind is dict:
            out(b"}")
            self._put(value)
            self._items(value.items(), path, paired=True)
        elif isinstance(value, Tensor):
            self._tensor(value, path)
        elif isinstance(value, TypedStorage):
            self._storage(value._whole(), value.dtype)
        elif kind is DType:
            out(_dtype(value))
        elif kind is Device:
            self._call(
                ("torch", "device"), (value.type, *([] if value.index is None else [value.index])), path
            )
        elif kind is Layout:
            self._call(("torch.serialization", "_get_layout"), (f"torch.{value.name}",), path)
        elif kind is Size:
            out(_global("torch", "Size") + _integers(value) + b"\x85R")
            self._put(value)
        elif kind is bytes:
            self._call(("_codecs", "encode"), (value.decode("latin1"), "latin1"), path)
            self._put(value)
        elif kind is bytearray:
            self._call(("__builtin__", "bytearray"), (value.decode("latin1"), "latin-1"), path)
            self._put(value)
        elif kind is complex:
            self._call(("__builtin__", "complex"), (value.real, value.imag), path)
        elif kind in (set, frozenset):
            self._call(("__builtin__", kind.__name__), ([*value],), path)
            self._put(value)
        elif value is type(None):
            self._call(("__builtin__", "type"), (None,), path)
            self._put(value)
        elif isinstance(value, (type, FunctionType)):
            self._named(value, path)
        else:
            self._reduced(value, path)

    def _tuple(self, value: tuple, path: str) -> None:
        if not value:
            self.pieces.append(b")")
            return
        self.pieces.append(b"(")
        for i, item in enumerate(value):
            self.write(item, _below(path, i))
        if (index := self._memo.get(id(value))) is not None:  # it is within itself, by way of a list
            self.pieces.append(b"1j" + pack("<I", index))
            return
        self.pieces.append(b"t")
        self._put(value)

    def _items(self, items: Iterable[tuple[Any, Any]], path: str, paired: bool) -> None:
        """The items of a list or a dict, some at a time."""
        every = list(items)
        for start in range(0, len(every), BATCH):
            self.pieces.append(b"(")
            for key, value in every[start : start + BATCH]:
                if paired:
                    self.write(key, path)
                self.write(value, _below(path, key))
            self.pieces.append(b"u" if paired else b"e")

    def _call(self, name: tuple[str, str], args: tuple, path: str) -> None:
        self.pieces.append(_global(*name))
        self._tuple(args, path)
        self.pieces.append(b"R")

    # ---- tensors ----
    def _tensor(self, x: Tensor, path: str) -> None:
        out, kind, state = self.pieces.append, type(x), dict(fields(x))
        if isinstance(x, Compound) and not isinstance(x, Sparse):
            raise ArgumentError(
                f"save(obj): {path or 'obj'} is a {x.what} tensor",
                "save its values, and what says where they are",
            )
        if kind.__module__.partition(".")[0] == HERE and kind is not Parameter:
            state |= {
                name: getattr(x, name) for name in vars(kind).get("__slots__", ()) if name == "persistent"
            }
            state |= {"_is_buffer": True} if "persistent" in state else {}  # as PyTorch has a Buffer
            kind = Tensor
        if kind is Parameter:
            out(_global("torch._utils", "_rebuild_parameter" + ("_with_state" if state else "")) + b"(")
            self._rebuilt(x, False, path)
            out(_flag(x.requires_grad) + NO_HOOKS)
            if state:
                self.write(state, path)
            out(b"tR")
        elif state or kind is not Tensor:
            function, args = self._rebuilder(x, x.requires_grad, path)
            out(_global("torch._tensor", "_rebuild_from_type_v2") + b"(")
            out(function)
            if kind is Tensor:
                out(_global("torch", "Tensor"))
            else:
                self._named(kind, path)
            args()
            held = slots(x)
            self.write((state, held) if held else state, path)
            out(b"tR")
        else:
            self._rebuilt(x, x.requires_grad, path)
        self._put(x)

    def _rebuilt(self, x: Tensor, requires_grad: bool, path: str) -> None:
        function, args = self._rebuilder(x, requires_grad, path)
        self.pieces.append(function)
        args()
        self.pieces.append(b"R")

    def _rebuilder(self, x: Tensor, requires_grad: bool, path: str) -> tuple[Piece, Callable[[], None]]:
        """The function that makes a tensor, and what writes its arguments."""
        meta = x._meta
        if isinstance(x, Sparse):
            more = (x._coalesced,) if x._layout is sparse_coo else ()
            parts = (*x._places, x._stored.detach(), Size(meta.shape), *more)
            name = _global("torch._utils", "_rebuild_sparse_tensor")
            return name, lambda: self._tuple((x._layout, parts), path)
        if meta.device == META:
            spelled = _tuple(
                _dtype(meta.dtype), _integers(meta.shape), _integers(strides(meta)), _flag(requires_grad)
            )
            name = _global("torch._utils", "_rebuild_meta_tensor_no_storage")
            return name, lambda: self.pieces.append(spelled)
        if type(x._data) is NoValues:
            raise UnnamableError(
                f"save(obj): {path or 'obj'} is a {type(x).__name__} without memory of its own"
            )
        extent, steps = _extent(x, self._fetched)
        self.extents.append(extent)

        def function() -> bytes:
            plain = extent.group.dtype in STORAGES
            return _global("torch._utils", "_rebuild_tensor_v2" if plain else "_rebuild_tensor_v3")

        def args() -> bytes:
            group = extent.group
            offset = (extent.begin - group.start) // meta.dtype.itemsize
            more = () if group.dtype in STORAGES else (_dtype(meta.dtype),)
            storage = group.spelled(self._legacy)
            sizes = _integers(meta.shape), _integers(steps)
            return _tuple(storage, _integer(offset), *sizes, _flag(requires_grad), NO_HOOKS, *more)

        return function, lambda: self.pieces.append(args)

    def _storage(self, line: Tensor, dtype: DType) -> None:
        extent, _ = _extent(line, self._fetched)
        self.extents.append(extent)
        self.pieces.append(lambda: extent.group.spelled(self._legacy, dtype))

    # ---- what has a name ----
    def _named(self, value: Any, path: str) -> None:
        """A class or a function, by the name that it has in its module."""
        module, name = value.__module__, value.__qualname__
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value:
            raise UnnamableError(
                f"save(obj): {path or 'obj'} needs {module}.{name}, and no reader could look that up",
                "define it in a module, outside of functions; or save state_dict() and numbers alone",
            )
        self.pieces.append(_global(*CLASSES.get(value, (OLD_NAMES.get(module, module), name))))
        self._put(value)

    def _reduced(self, value: Any, path: str) -> None:
        """Any other object, as its class says that it is pickled."""
        kind = type(value)
        remedy = (
            "save x.state_dict() of a module or an optimizer"
            if hasattr(value, "state_dict")
            else "save its parts"
        )
        try:
            reduce = copyreg.dispatch_table.get(kind)
            how = reduce(value) if reduce else value.__reduce_ex__(2)
        except LaminaError:
            raise
        except Exception as error:
            raise UnnamableError(
                f"save(obj): {path or 'obj'} is a {kind.__name__}, which can't be pickled: {error}", remedy
            ) from error
        if isinstance(how, str):
            self._named(value, path)
            return
        function, args, state, items, pairs = (*how, None, None, None)[:5]
        name = getattr(function, "__name__", "")
        if name == "__newobj_ex__" or len(how) > 5:
            raise UnnamableError(
                f"save(obj): {path or 'obj'} is a {kind.__name__}, which asks for more", remedy
            )
        if name == "__newobj__":
            self._named(args[0], path)
            self._tuple(tuple(args[1:]), path)
            self.pieces.append(b"\x81")
        else:
            self._function(function, path)
            self._tuple(tuple(args), path)
            self.pieces.append(b"R")
        self._put(value)
        self._items(enumerate(items or ()), path, paired=False)
        self._items(pairs or (), path, paired=True)
        if state is not None:
            self.write(state, path)
            self.pieces.append(b"b")

    def _function(self, function: Any, path: str) -> None:
        """What makes an object: a class, or a function, which may be written in C."""
        if isinstance(function, (type, FunctionType, BuiltinFunctionType)) and function.__module__:
            self._named(function, path)
        else:
            raise UnnamableError(
                f"save(obj): {path or 'obj'} is made by a {type(function).__name__} without a name"
            )


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


# ---- files -------------------------------------------------------------------------------------------------
def _written(obj: Any, legacy: bool) -> tuple[bytes, list[_Group]]:
    """The pickle of an object, and its storages."""
    writer = _Writer(legacy)
    try:
        writer.write(obj, "")
    except RecursionError:
        raise UnnamableError("save(obj): obj is nested too deeply") from None
    groups = _grouped(writer.extents)
    spelled = (piece if isinstance(piece, bytes) else piece() for piece in writer.pieces)
    return b"".join(spelled) + b".", groups


def zipped(obj: Any) -> Iterator[bytes | memoryview]:
    """The bytes of a checkpoint, part by part; all that can be refused is refused before the first.

    Raises ArgumentError.
    """
    data, groups = _written(obj, legacy=False)
    members: list[tuple[str, Any]] = [
        ("data.pkl", data), (".format_version", b"1"), (".storage_alignment", str(ALIGNMENT).encode()),
        ("byteorder", sys.byteorder.encode()),
    ]  # fmt: skip
    members += ((f"data/{group.key}", group.memory()) for group in groups)
    return archived([*members, ("version", b"3\n")])


def earlier(obj: Any) -> Iterator[bytes | memoryview]:
    """The same in the format of versions before 1.6."""
    data, groups = _written(obj, legacy=True)
    machine = {
        "protocol_version": VERSION, "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }  # fmt: skip
    for head in (MAGIC, VERSION, machine):
        yield _written(head, legacy=True)[0]
    yield data
    groups.sort(key=lambda group: group.key)
    yield _written([group.key for group in groups], legacy=True)[0]
    for group in groups:
        yield group.elements.to_bytes(8, "little")
        yield group.memory()
