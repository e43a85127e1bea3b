"""Read PyTorch's checkpoints: the zip format, and the one of versions before 1.6.

    zip       see archive.py
    earlier   four pickles (a magic number, a version, the machine, the object), the keys of the storages as a
              fifth, then each storage: its number of elements, int64, and its bytes

A storage is made when its key comes up in the object's pickle, once its size was held against the file.
Source: PyTorch 2.13, torch/serialization.py.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from ...ir import dtypes
from ...ir.dtypes import DType
from ...ir.errors import ArgumentError, DeviceError
from ...ir.types import Device, placed, type_of
from ..memory_view import TypedStorage, UntypedStorage, memory_of
from ..meta import META
from ..meta import array as nothing
from ..on_device import there
from ..tensor import Tensor, tensor_of, wrap
from . import classes
from .archive import Archive, Source
from .names import (
    ATTRIBUTE,
    RECONSTRUCTOR,
    ROOT_FUNCTIONS,
    Makers,
    RefusedNameError,
    StorageKind,
    Unsuited,
    shown,
    values,
)
from .opcodes import Pickle
from .own_form import SavedFileError

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
BYTE_ORDERS = {b"little": "little", b"big": "big"}
Place = str | Device | Mapping | Callable | None


class OfCaller(Exception):
    """What the caller's own function raised, on its way out of the pickle.  error: that."""

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


# ---- where storages go -------------------------------------------------------------------------------------
def located(map_location: Place, storage: TypedStorage, location: str) -> TypedStorage:
    """The storage where `map_location` wants it, of one that was saved at a location."""
    wanted: Any = location
    if isinstance(map_location, (str, Device)):
        wanted = str(map_location)
    elif isinstance(map_location, Mapping):
        wanted = str(map_location.get(location, location))
    elif map_location is not None:
        try:
            moved = map_location(storage, location)
            if not isinstance(moved, (TypedStorage, type(None))):
                raise ArgumentError(
                    f"load(map_location): the function gave a {type(moved).__name__}, no storage or None"
                )
        except Exception as error:
            raise OfCaller(error) from error
        if moved is not None:
            return moved
    place = placed(wanted).type if wanted.partition(":")[0] in ("cpu", "meta", "cuda") else wanted
    if place == "meta":
        kind = type_of(storage.dtype, (len(storage),), META)
        return _typed(wrap(nothing(kind), kind), storage.dtype)
    if place == "cuda":
        try:
            return storage.cuda(wanted)
        except DeviceError:
            place = wanted
    if place != "cpu":
        raise DeviceError(
            f"load(): a storage was saved on {location!r}, and there is no device {wanted!r} here",
            "load(f, map_location='cpu') puts all on the CPU",
        )
    return storage


def _typed(line: Tensor, dtype: DType) -> TypedStorage:
    made = TypedStorage.__new__(UntypedStorage if dtype is dtypes.uint8 else TypedStorage)
    made._tensor, made.dtype = line, dtype
    return made


def gpu_of(map_location: str | Device) -> Device | None:
    """The GPU of that name; None for another place.  Raises DeviceError where it is not there."""
    if placed(map_location).type != "cuda":
        return None
    try:
        return there(map_location)
    except DeviceError as error:
        raise DeviceError(error.rule, *error.details[:-1], "use map_location='cpu'") from None


def check_place(map_location: Place) -> None:
    """Refuse what says of no storage where it goes.  Raises ArgumentError, DeviceError."""
    if isinstance(map_location, (str, Device)):
        gpu_of(map_location)
    elif map_location is not None and not isinstance(map_location, Mapping) and not callable(map_location):
        raise ArgumentError(
            f"load(map_location): takes a device such as 'cpu', a dict of such or a function, not "
            f"{type(map_location).__name__}"
        )


# ---- what a pickle may do ----------------------------------------------------------------------------------
class _World:
    """What the pickle of a checkpoint may do: the world of opcodes.py.

    weights_only: whether classes of the program are refused.  storages: by key and dtype.
    """

    def __init__(self, name: str, weights_only: bool, map_location: Place, size: int):
        self.name, self.weights_only, self.map_location = name, weights_only, map_location
        self.makers = Makers(size)
        self.vouched = classes.vouched()
        self.made: dict[int, Any] = {}  # instances of classes, which alone take states and items
        self.storages: dict[str, tuple[TypedStorage, TypedStorage]] = {}  # as read, and where it goes

    # ---- names ----
    def find(self, module: str, name: str) -> Any:
        spelled, why = f"{module}.{name}", ""
        if spelled in values():
            return values()[spelled]
        if spelled in self.vouched and module.partition(".")[0] not in classes.BLOCKED:
            return self.vouched[spelled]
        if not self.weights_only:
            found, why = classes.named(module, name)
            if found is not None:
                return found
        raise self._refused(spelled, why)

    def _refused(self, name: str, why: str) -> RefusedNameError:
        shown, leaf = name[:200], name.rpartition(".")[2][:60]
        if shown.partition(".")[0] in classes.BLOCKED:
            remedy = "nothing of that module is ever taken from a file"
        elif shown.startswith("torch.") and (name.endswith("qtensor") or "nested" in name):
            remedy = "quantised and nested tensors are not read: save dense ones where it was made"
        else:
            remedy = (
                f"if you trust the file and what it names: serialization.add_safe_globals([{leaf}]) before, "
                f"or with serialization.safe_globals([{leaf}]): load(…)"
            )
        ways = [remedy, "where it was made: torch.save(model.state_dict(), path) saves tensors alone"]
        if self.weights_only:
            rule = (
                f"load(): Weights only load failed: {self.name} names {shown}, which is not taken from files"
            )
            ways.insert(
                1, "weights_only=False takes modules of nn, distributions and classes of your program"
            )
        else:
            rule = f"load(): {self.name} names {shown}, which is not taken from files: {why}"
        return RefusedNameError(rule, *ways)

    # ---- objects ----
    def call(self, function: Any, args: Any) -> Any:
        return self.done(lambda: self._called(function, args))

    def _called(self, function: Any, args: Any) -> Any:
        if type(args) is not tuple:
            raise Unsuited("arguments that are no tuple")
        maker = self.makers.of.get(id(function))
        if maker is not None:
            return maker(*args)
        if function is ATTRIBUTE:
            return self._op(*args)
        if function is RECONSTRUCTOR:
            cls, base, state = args
            if base is not object or state is not None:
                raise Unsuited("an instance of an old kind")
            return self._instance(cls, (), {})
        if self._is_vouched(function):
            return self._kept(function(*args))
        if self._is_of_program(function):
            return self._kept(classes.called(function, args))
        raise Unsuited(f"a call of {shown(function)}")

    def _op(self, owner: Any = None, name: Any = None, *more: Any) -> Any:
        """What a pickle asks `getattr` for.  Raises RefusedNameError for all but an op."""
        known = owner is ROOT_FUNCTIONS and type(name) is str and not more
        op = classes.root_function(name) if known else None
        if op is None:
            what = f"{ROOT_FUNCTIONS.name}.{name}" if known else ATTRIBUTE.name
            raise self._refused(what, "only an op is looked up")
        return op

    def _kept(self, made: Any) -> Any:
        if not isinstance(made, Enum):  # whose members are the program's
            self.made[id(made)] = made
        return made

    def make(self, cls: Any, args: Any, kwargs: dict) -> Any:
        return self.done(lambda: self._instance(cls, args, kwargs))

    def _instance(self, cls: Any, args: Any, kwargs: dict) -> Any:
        if type(args) is not tuple or type(kwargs) is not dict:
            raise Unsuited("arguments that are no tuple")
        if cls is ATTRIBUTE:
            return self._op(*args)
        if self._is_vouched(cls):
            return self._kept(cls.__new__(cls, *args, **kwargs))
        maker = self.makers.of.get(id(cls))
        if maker is not None and not kwargs:
            return maker(*args)
        if kwargs or not self._is_of_program(cls):
            raise Unsuited(f"an instance of {shown(cls)}")
        return self._kept(classes.instance(cls, args))

    def build(self, obj: Any, state: Any) -> None:
        self.done(lambda: self._built(obj, state))

    def _built(self, obj: Any, state: Any) -> None:
        kind = type(obj)
        if kind is np.ndarray:
            self.makers.fill(obj, state)
        elif isinstance(obj, np.dtype):
            # Its fields are those of the name already; another order of bytes would be another type.
            if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", "|", "="):
                raise Unsuited("an array whose bytes are in another order")
        elif kind is OrderedDict:
            if type(state) is not dict or any(hasattr(OrderedDict, name) for name in state):
                raise Unsuited("attributes of an OrderedDict")
            vars(obj).update(state)
        elif id(obj) in self.made:
            classes.build(obj, state)
        else:
            raise Unsuited(f"a state of a {kind.__qualname__}")

    def put(self, obj: Any, pairs: list[tuple[Any, Any]]) -> None:
        known = type(obj) in (OrderedDict, Counter, defaultdict) or id(obj) in self.made
        if not known or not isinstance(obj, dict):
            raise TypeError("items of no dict")
        put = OrderedDict.__setitem__ if isinstance(obj, OrderedDict) else dict.__setitem__
        for key, value in pairs:
            put(obj, key, value)

    def extend(self, obj: Any, items: list) -> None:
        if id(obj) not in self.made or not isinstance(obj, list):
            raise TypeError("items of no list")
        list.extend(obj, items)

    def _is_vouched(self, value: Any) -> bool:
        return any(value is each for each in self.vouched.values())

    def _is_of_program(self, cls: Any) -> bool:
        """Whether a class is one that `find` gives: what was pushed may have come from elsewhere."""
        if self.weights_only or not isinstance(cls, type):
            return False
        return classes.named(cls.__module__, cls.__qualname__)[0] is cls

    def done(self, act: Callable[[], Any]) -> Any:
        """What it gives; what fails for what the file says becomes the reader's error."""
        try:
            return act()
        except Unsuited as error:
            raise SavedFileError(f"load(): {self.name} asks for {error}") from None
        except (SavedFileError, DeviceError, MemoryError, OfCaller):
            raise
        except Exception as error:  # of a class's own __setstate__, too
            raise SavedFileError(
                f"load(): {self.name} can't be read: {type(error).__name__}: {str(error)[:200]}"
            ) from error

    # ---- storages ----
    def persistent(self, key: Any) -> Any:
        return self.done(lambda: self._persistent(key))

    def _persistent(self, key: Any) -> Any:
        if type(key) is not tuple or not key:
            raise Unsuited("something outside of its pickle that is no storage")
        what, *rest = (x.decode("ascii") if isinstance(x, bytes) else x for x in key)
        if what == "module" and len(rest) == 3:  # a class with its source, which is not looked at
            return rest[0]
        if what != "storage" or len(rest) not in (4, 5):
            raise Unsuited("something outside of its pickle that is no storage")
        kind, name, location, count, *views = rest
        dtype = dtypes.uint8 if kind is UntypedStorage else kind.dtype if type(kind) is StorageKind else None
        named = type(name) is str and type(location) is str
        if dtype is None or not named or type(count) is not int or count < 0:
            raise Unsuited("a storage that is none")
        if name not in self.storages:
            read = _typed(self.line(name, dtype, count), dtype)
            self.storages[name] = read, located(self.map_location, read, location)
        read, made = self.storages[name]
        if count * dtype.itemsize != len(read) * read.dtype.itemsize:
            raise Unsuited(f"the storage {name[:60]!r} in two sizes")
        if views and views[0] is not None:
            return self._part(made, views[0])
        return made if made.dtype is dtype else _typed(made._tensor, dtype)

    def line(self, name: str, dtype: DType, count: int) -> Tensor:
        """All elements of a storage; both formats have their own."""
        raise NotImplementedError

    def _part(self, whole: TypedStorage, view: Any) -> TypedStorage:
        """A stretch of a storage, as the oldest files have them."""
        if type(view) is not tuple or len(view) != 3:
            raise Unsuited("a part of a storage that is none")
        _, begin, count = view
        if type(begin) is not int or type(count) is not int or not 0 <= begin <= begin + count <= len(whole):
            raise Unsuited("a part that leaves its storage")
        part = _typed(whole._tensor, whole.dtype)
        part._part = slice(begin, begin + count)
        return part


def _true_bools(line: np.ndarray, dtype: DType) -> None:
    """Make bools of what a file has for them: each byte may be any."""
    if dtype is dtypes.bool_ and line.max(initial=0) > 1:
        np.minimum(line, 1, out=line)


# ---- the zip format ----------------------------------------------------------------------------------------
class _Zipped(_World):
    def __init__(
        self, archive: Archive, mapping: np.ndarray | None, size: int, name: str, weights_only: bool,
        map_location: Place,
    ):  # fmt: skip
        super().__init__(name, weights_only, map_location, size)
        self.archive, self.mapping = archive, mapping
        order = archive.read("byteorder") if "byteorder" in archive.members else b"little"
        if order not in BYTE_ORDERS:
            raise SavedFileError(f"load(): {self.name} names a byte order that is none: {order[:20]!r}")
        self.swapped = BYTE_ORDERS[order] != sys.byteorder

    def line(self, name: str, dtype: DType, count: int) -> Tensor:
        member, nbytes = f"data/{name}", count * dtype.itemsize
        at, size, _ = self.archive.members.get(member, (0, -1, 0))
        if size != nbytes:
            what = "is not there" if size < 0 else f"has {size} bytes, and needs {nbytes}"
            raise SavedFileError(f"load(): {self.name} is damaged: its member {member[:60]!r} {what}")
        if self.swapped and dtype is dtypes.uint8:
            raise Unsuited("bytes of a machine with another byte order")
        if self.mapping is not None and at % dtype.itemsize == 0 and not self.swapped:
            raw = self.mapping[at : at + size]
        else:
            raw = np.empty(size, np.uint8)
            self.archive.fill(member, raw)
        _true_bools(raw, dtype)
        line = raw.view(dtype.numpy)
        return tensor_of(line.byteswap() if self.swapped else line)


def of_zip(
    source: Source, name: str, map_location: Place, weights_only: bool, encoding: str,
    mapping: Callable[[], np.ndarray] | None = None,
) -> Any:  # fmt: skip
    """The object of a checkpoint in the zip format.

    mapping: gives all bytes of the file, as memory that is read where it is looked at, for the storages.
    Raises SavedFileError, DeviceError.
    """
    archive = Archive(source, name)
    data = archive.read("data.pkl")
    mapped = mapping() if mapping else None
    world = _Zipped(archive, mapped, len(data), name, weights_only, map_location)
    return Pickle(data, 0, world, encoding, name).read()


# ---- the earlier format ------------------------------------------------------------------------------------
class _Earlier(_World):
    def __init__(self, data: bytes, name: str, weights_only: bool, map_location: Place):
        super().__init__(name, weights_only, map_location, len(data))
        self.left = len(data)
        self.makers.later = []

    def line(self, name: str, dtype: DType, count: int) -> Tensor:
        self.left -= count * dtype.itemsize + 8
        if self.left < 0:
            raise SavedFileError(f"load(): {self.name} is cut short: its storages are larger than the file")
        return tensor_of(np.zeros(count, dtype.numpy))

    def fill(self, data: bytes, at: int, keys: Any) -> int:
        """Read the storages that follow; where they end."""
        named = type(keys) is list and all(type(key) in (str, bytes) for key in keys)
        keys = [k.decode("ascii", "replace") if type(k) is bytes else k for k in keys] if named else keys
        if not named or sorted(keys) != sorted(self.storages):
            raise SavedFileError(f"load(): {self.name} is damaged: its storages are others than it names")
        for key in keys:
            read, made = self.storages[key]
            into = memory_of(read._tensor).view(np.uint8)
            count, at = int.from_bytes(data[at : at + 8], "little"), at + 8
            # A storage that is named as bytes first counts bytes.
            if count * read.dtype.itemsize != into.size or at + into.size > len(data):
                raise SavedFileError(f"load(): {self.name} is damaged or cut short: a storage is not whole")
            into[:] = np.frombuffer(data, np.uint8, into.size, at)
            _true_bools(into, read.dtype)
            if made.device != read.device and made.device != META:  # it was moved when it held nothing yet
                made.copy_(read)
            at += into.size
        return at


def is_earlier(data: bytes) -> bool:
    """Whether a file begins with the magic number, as a pickle."""
    return data.startswith(b"\x80") and MAGIC.to_bytes(10, "little") in data[:32]


def of_earlier(
    data: bytes, name: str, map_location: Place, weights_only: bool, encoding: str
) -> tuple[Any, int]:
    """The object of a checkpoint in the earlier format, and where it ends.

    Raises SavedFileError, DeviceError.
    """
    plain = _World(name, True, None, len(data))
    heads, at = [], 0
    for _ in range(3):
        pickle = Pickle(data, at, plain, encoding, name)
        heads.append(pickle.read())
        at = pickle.at
    if heads[:2] != [MAGIC, VERSION]:
        raise SavedFileError(f"load(): {name} is a pickle, and no checkpoint of torch.save's")
    world = _Earlier(data, name, weights_only, map_location)
    pickle = Pickle(data, at, world, encoding, name)
    found = pickle.read()
    keys = Pickle(data, pickle.at, plain, encoding, name)
    names = keys.read()
    end = world.fill(data, keys.at, names)
    world.done(world.makers.settle)
    return found, end


def unsafe_names(archive: Archive, name: str) -> list[str]:
    """The names in a checkpoint's pickle that `load` does not take by default."""
    names = Pickle(archive.read("data.pkl"), 0, _World(name, True, None, 0), "utf-8", name).names()
    spelled = dict.fromkeys(f"{module}.{leaf}" for module, leaf in names)
    return [each for each in spelled if not classes.is_safe(each)]
