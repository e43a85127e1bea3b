"""Lamina's own form of files: nested containers of tensors.  No pickle: nothing in a file is executed.

A file is a safetensors file.  Each tensor is an entry, so other programs read it too; how the entries hang
together (dicts, lists, numbers, strings) stands as JSON in the file's metadata, with a checksum over
everything.  A safetensors file of other origin, which has no such metadata, loads as a dict of tensors; white
space at the end of the header tells it from one of ours whose metadata were damaged.

Written here by hand, so that arrays go to the file without a copy; read by the safetensors library, which
checks every offset.  Source: the safetensors format, github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...ir import dtypes, lazy
from ...ir.dtypes import DType
from ...ir.errors import ArgumentError, DTypeError, LaminaError
from ...ir.ops.complex import pairs as parted
from ...ir.types import CPU, Device
from ..compound import Compound
from ..meta import NoValues, NoValuesError
from ..on_device import OnDevice, on_host
from ..sparse_tensor import Sparse, restored
from ..tensor import Parameter, Size, Tensor, tensor_of, wrap

# safetensors' names are ours in capitals: F32, BF16, U8, BOOL.  It has none for complex128, which is
# stored as pairs of F64.
DTYPES = {d.short.upper(): d for d in dtypes.EVERY if d is not dtypes.complex128}
STRUCTURE, CHECKSUM = "lamina", "lamina.crc32"
ENDING = b"\t\r\n"  # of a header with these: white space that means nothing, and stays where they are damaged
FOREIGN = {
    b"\x80": "a pickle, and no checkpoint of torch.save's",
    b"\x93NUMPY": "a NumPy array, which numpy.load reads",
    b"\x89HDF": "an HDF5 file",
}


class SavedFileError(LaminaError, RuntimeError):
    """A file that `lamina.save` did not write, or that was damaged since."""


# ---- containers as JSON ------------------------------------------------------------------------------------
class _Writer:
    """Turns an object into JSON and the arrays it refers to.

    entries: name -> array.  JSON's own null, true, numbers, strings and lists stand for themselves; anything
    else is an object with one telling key: {"dict": [[key, value], …]}, {"tensor": name}, {"float": "nan"} …
    """

    def __init__(self):
        self.entries: dict[str, np.ndarray] = {}
        self._names: dict[
            tuple, str
        ] = {}  # where an array lies -> its name: one that is shared is stored once
        self._copies: dict[tuple, np.ndarray] = {}
        self._open: set[int] = set()

    def write(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, int):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if kind is complex:
            return {"complex": [self.write(value.real, path), self.write(value.imag, path)]}
        if isinstance(value, Sparse):
            return {"sparse": [self.write(part, _below(path, "parts")) for part in value.parts()]}
        if isinstance(value, Compound):
            raise ArgumentError(
                f"save(obj): {path or 'obj'} is a {value.what} tensor",
                "save its values, and what says where they are",
            )
        if isinstance(value, Tensor):
            wide = value._meta.dtype is dtypes.complex128
            if type(value._data) is NoValues:
                raise NoValuesError(
                    f"save(…): {path} is on the meta device and has no values", f"tensor: {value._meta}"
                )
            data = self._host_array(value._data)
            made: dict[str, Any] = {"tensor": self._entry(parted(data) if wide else data, path)}
            if wide:
                made["pairs"] = True
            if isinstance(value, Parameter):
                made["parameter"] = value.requires_grad
            elif value.requires_grad:
                made["requires_grad"] = True
            return made
        if kind is np.ndarray and dtypes.from_numpy_dtype(value.dtype) is not None:
            if value.dtype == np.complex128:
                return {"pairs_array": self._entry(parted(value), path)}
            return {"array": self._entry(value, path)}
        if kind is DType:
            return {"dtype": value.name}
        if kind is Device:
            return {"device": str(value)}
        if kind not in (list, tuple, Size, dict, OrderedDict):
            raise ArgumentError(
                f"save(obj): {path or 'obj'} is a {kind.__name__}: to load it, code would have to run",
                "takes: tensors, arrays, numbers, strings, None, and dicts, lists and tuples of these",
                "save x.state_dict() of a module or an optimizer"
                if hasattr(value, "state_dict")
                else "save its parts",
            )
        if id(value) in self._open:
            raise ArgumentError(f"save(obj): {path or 'obj'} contains itself")
        self._open.add(id(value))
        try:
            if kind in (dict, OrderedDict):
                pairs = [[self._key(key, path), self.write(x, _below(path, key))] for key, x in value.items()]
                return {"dict" if kind is dict else "ordered_dict": pairs}
            items = [self.write(x, _below(path, i)) for i, x in enumerate(value)]
            return items if kind is list else {"tuple" if kind is tuple else "size": items}
        finally:
            self._open.remove(id(value))

    def _host_array(self, data: np.ndarray) -> np.ndarray:
        """A tensor's array where NumPy reads it; of equal ones on a GPU one copy, so they stay shared."""
        if not isinstance(data, OnDevice):
            return data
        place = id(data.memory), data.address, data.dtype, data.shape, data.strides
        found = self._copies.get(place)
        if found is None:
            found = self._copies[place] = on_host(data)
        return found

    def _key(self, key: Any, path: str) -> Any:
        if not _is_key(key):
            raise ArgumentError(
                f"save(obj): a key of {path or 'obj'} is a {type(key).__name__}",
                "keys can be strings, numbers, None and tuples of these",
            )
        return self.write(key, path)

    def _entry(self, data: np.ndarray, path: str) -> str:
        if not data.dtype.isnative:
            data = data.astype(data.dtype.newbyteorder("="))
        place = (data.__array_interface__["data"][0], data.dtype, data.shape, data.strides)
        known = self._names.get(place) if data.size else None
        if known is not None:
            return known
        name = free = path.encode(errors="replace").decode() or "tensor"  # half a surrogate pair is no UTF-8
        count = 1
        while free in self.entries or free == "__metadata__":
            count += 1
            free = f"{name}#{count}"
        self.entries[free] = data
        self._names[place] = free
        return free


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


class _Reader:
    """Turns JSON back into the object.  Raises SavedFileError where it is not what _Writer writes."""

    def __init__(self, entries: dict[str, np.ndarray], place: Device = CPU):
        self._entries, self._place = entries, place
        self._used: dict[str, Tensor] = {}
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "dict": lambda pairs: dict(self._pairs(pairs)),
            "ordered_dict": lambda pairs: OrderedDict(self._pairs(pairs)),
            "tuple": lambda items: tuple(self._items(items)),
            "size": lambda items: Size(self._items(items)),
            "float": lambda text: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text],
            "dtype": dtypes.dtype_named,
            "device": Device,
            "array": lambda name: self._entries[name],
            "pairs_array": lambda name: _of_pairs(self._entries[name]),
            "complex": lambda parts: complex(*self._items(parts)),
            "sparse": lambda parts: restored(*self._items(parts)),
        }

    def read(self, found: Any) -> Any:
        if isinstance(found, list):
            return self._items(found)
        if not isinstance(found, dict):
            return found
        try:
            if "tensor" in found:
                return self._tensor(**found)
            ((kind, value),) = found.items()
            return self._kinds[kind](value)
        except SavedFileError:
            raise
        except (KeyError, TypeError, ValueError, LaminaError):
            raise SavedFileError(f"load(): the file says {str(found)[:60]!r}, which means nothing") from None

    def _items(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise TypeError("items")
        return [self.read(x) for x in items]

    def _pairs(self, pairs: Any) -> list[tuple[Any, Any]]:
        """The items of a dict, whose keys are of the kinds that `save` takes, and differ."""
        items = [(key, value) for key, value in map(self._items, pairs)]
        keys = {key: None for key, _ in items}
        if len(keys) < len(items) or not all(map(_is_key, keys)):
            raise ValueError("keys")
        return items

    def _tensor(
        self,
        tensor: str,
        parameter: bool | None = None,
        requires_grad: bool | None = None,
        pairs: bool | None = None,
    ) -> Tensor:
        if not {type(parameter), type(requires_grad), type(pairs)} <= {bool, type(None)}:
            raise TypeError("flags")
        first = self._used.get(tensor)
        if first is None:
            array = self._entries[tensor]
            made = tensor_of(_of_pairs(array) if pairs else array).to(self._place)
            self._used[tensor] = made
        else:
            made = wrap(first._data, first._meta)
            made._storage = first.detach()._storage  # what was shared is shared again
        if parameter is not None:
            return Parameter(made, parameter)
        return made.requires_grad_() if requires_grad else made


def _of_pairs(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float64 or not array.ndim or array.shape[-1] != 2:
        raise ValueError("pairs")
    return array.view(np.complex128)[..., 0]


def _is_key(key: Any) -> bool:
    return isinstance(key, (type(None), bool, str, int, float, tuple)) and not isinstance(key, Tensor)


def as_json(value: Any, path: str) -> Any:
    """What JSON says of a value without tensors and arrays.  Raises ArgumentError, which names `path`."""
    writer = _Writer()
    found = writer.write(value, path)
    if writer.entries:
        raise ArgumentError(f"save(obj): {path} holds a tensor where numbers and texts alone are taken")
    return found


def from_json(found: Any) -> Any:
    """The value of which `as_json` said this.  Raises SavedFileError where it says nothing that it would."""
    try:
        return _Reader({}).read(found)
    except RecursionError:
        raise SavedFileError("load(): a value is nested too deeply") from None


# ---- files -------------------------------------------------------------------------------------------------
def _checksum(structure: str, entries: dict[str, tuple[str, list[int], Any]]) -> str:
    """CRC-32 over the structure and, in the order of their names, all entries with their types."""
    found = zlib.crc32(structure.encode())
    for name, (dtype, shape, raw) in sorted(entries.items()):
        found = zlib.crc32(raw, zlib.crc32(f"{name}\0{dtype}\0{shape}\0".encode(), found))
    return f"{found:08x}"


def pieces(obj: Any) -> Iterator[bytes | memoryview]:
    """The bytes of a file, piece by piece; all that can be refused is refused before the first."""
    writer = _Writer()
    structure = json.dumps(writer.write(obj, ""), separators=(",", ":"))
    raw = _raw(writer.entries)
    yield from _file(raw, {STRUCTURE: structure, CHECKSUM: _checksum(structure, raw)})


def _raw(entries: dict[str, np.ndarray]) -> dict[str, tuple[str, list[int], Any]]:
    raw: dict[str, tuple[str, list[int], Any]] = {}
    for name, data in entries.items():
        dtype = dtypes.from_numpy_dtype(data.dtype)
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        raw[name] = (dtype.short.upper(), list(data.shape), memoryview(flat))
    return raw


def _file(
    raw: dict[str, tuple[str, list[int], Any]], metadata: dict[str, str] | None
) -> Iterator[bytes | memoryview]:
    """The parts of a safetensors file, in order."""
    header, places = laid_out({name: (dtype, shape, len(data)) for name, (dtype, shape, data) in raw.items()},
                              metadata)  # fmt: skip
    yield header
    for name in places:
        yield raw[name][2]


def laid_out(
    entries: dict[str, tuple[str, list[int], int]], metadata: dict[str, str] | None
) -> tuple[bytes, dict[str, int]]:
    """The header of a safetensors file of entries (dtype, shape, bytes), and where in it each begins."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    places: dict[str, int] = {}
    end = 0
    for name in sorted(entries, key=lambda name: -DTYPES[entries[name][0]].itemsize):  # so all are aligned
        dtype_name, shape, size = entries[name]
        places[name], end = end, end + size
        header[name] = {"dtype": dtype_name, "shape": shape, "data_offsets": [places[name], end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += ENDING if metadata else b""
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + begin for name, begin in places.items()}


def safetensors_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Named arrays as the bytes of a safetensors file."""
    return b"".join(_file(_raw(arrays), None))


def read(data: bytes, name: str, place: Device = CPU) -> Any:
    """What `pieces` wrote, or the dict of tensors of any safetensors file, with the tensors at `place`.

    Raises SavedFileError, DTypeError.
    """
    metadata, entries = _parsed(data, name)
    if STRUCTURE not in metadata and CHECKSUM not in metadata:
        return {name: tensor_of(_array(name, *entry)).to(place) for name, entry in entries.items()}
    structure = metadata.get(STRUCTURE, "")
    if _checksum(structure, entries) != metadata.get(CHECKSUM):
        raise SavedFileError(f"load(): {name} was changed since it was saved: its checksum is another")
    reader = _Reader({name: _array(name, *entry) for name, entry in entries.items()}, place)
    try:
        return reader.read(json.loads(structure, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        raise SavedFileError(f"load(): the structure that {name} states can't be read") from None


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _array(name: str, dtype: str, shape: list[int], raw: bytearray) -> np.ndarray:
    known = DTYPES.get(dtype)
    if known is None:
        raise DTypeError(f"load(): entry {name!r} holds {dtype}", f"Lamina's types: {', '.join(DTYPES)}")
    data = np.frombuffer(raw, np.uint8)
    try:
        # A bool's byte must be 0 or 1, and a file may hold any.
        return (data != 0 if known is dtypes.bool_ else data.view(known.numpy)).reshape(shape)
    except ValueError:  # too many dimensions, or of no element, and one that is beyond all memory
        raise SavedFileError(f"load(): entry {name!r} has a shape that no array has: {shape}"[:300]) from None


def _parsed(data: bytes, name: str) -> tuple[dict[str, str], dict[str, tuple[str, list[int], bytearray]]]:
    """The metadata and the entries (dtype, shape, bytes) of a safetensors file.  Raises SavedFileError."""
    if not data:
        raise SavedFileError(f"load(): {name} is empty")
    for start, kind in FOREIGN.items():
        # The first eight bytes may happen to be a length; a real one is followed by an opening brace.
        if data.startswith(start) and data[8:9] != b"{":
            raise SavedFileError(
                f"load(): {name} is {kind}",
                "load it where it was written, and save its tensors with torch.save or safetensors",
            )
    safetensors = lazy.load("safetensors")
    try:
        found = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        raise SavedFileError(
            f"load(): {name} is no safetensors file, or it is cut short or damaged", f"found: {error}"
        ) from None
    text = data[8 : 8 + int.from_bytes(data[:8], "little")]
    header = json.loads(text)
    metadata = header.pop("__metadata__", None) or {}
    if STRUCTURE not in metadata and CHECKSUM not in metadata and text.rstrip(b" ")[-1:] in ENDING:
        raise SavedFileError(
            f"load(): {name} was saved by Lamina, and what it said of its structure is damaged"
        )
    known = {key: (entry["dtype"], entry["shape"], entry["data"]) for key, entry in found}
    return metadata, {key: known[key] for key in header}  # the library has an order of its own
