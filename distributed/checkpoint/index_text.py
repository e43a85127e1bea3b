"""The index of a checkpoint: what it holds and where, as JSON under a hash of itself.

    {"hash": SHA-256 of what follows "index":, "index": {
        "format": "lamina.checkpoint", "version": 1, "id": 12 hex digits, "block": 4194304,
        "files": {"ID-00000.safetensors": bytes, ...},
        "entries": {NAME: {"path": [...], "shape": [...], "dtype": "f32", "chunks": [
                               {"offsets": [...], "sizes": [...], "file": FILE, "begin": byte there,
                                "key": entry there, "hashes": [SHA-256 of each block of bytes]}]},
                    NAME: {"path": [...], "same": the name of a tensor in the same memory},
                    NAME: {"path": [...], "value": JSON (runtime/checkpoints/own_form.py)}}}}

An index is read as what anybody may have written: every number and name in it is held against the others and
against the files before memory is taken, and a file's name says nothing but a file of this checkpoint's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Any

from ...ir import dtypes
from ...runtime import Size
from .entries import DEEPEST, name_of
from .failures import DamagedCheckpointError
from .metadata import (
    At,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    Path,
    Sizes,
    TensorProperties,
    TensorStorageMetadata,
    volume,
)
from .tiling import untiled

BLOCK = 4 << 20  # bytes under one hash: who reads a part of a chunk reads whole blocks
MOST_INDEX = 1 << 30  # bytes: 300 take a chunk of one block
MOST = 1 << 62  # elements along a dim, and bytes of a file
DIMS = 64  # NumPy's most
HEAD = re.compile(rb'\{"hash":"([0-9a-f]{64})","index":')
TAIL = b"}\n"
FORMAT, VERSION = "lamina.checkpoint", 1
FILE = r"[0-9a-f]{12}-\d{5,9}\.safetensors"
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_short = _SHORT.repr


def hash_of(data: Any) -> str:
    """The hash of a block."""
    return hashlib.sha256(data).hexdigest()


def blocks(size: int) -> int:
    """How many blocks so many bytes are."""
    return -(-size // BLOCK)


# ---- writing -----------------------------------------------------------------------------------------------
def to_bytes(metadata: Metadata) -> bytes:
    """The text of an index."""
    entries = {name: _said(metadata, name, way) for name, way in metadata.ways.items()}
    body = json.dumps(
        {"format": FORMAT, "version": VERSION, "id": metadata.identity, "block": BLOCK,
         "files": metadata.files, "entries": entries},
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return b'{"hash":"' + hash_of(body).encode() + b'","index":' + body + TAIL


def _said(metadata: Metadata, name: str, way: Path) -> dict[str, Any]:
    path = [_step(step) for step in way]
    entry: dict[str, Any] = {"path": path}
    if name in metadata.arrays:
        entry["array"] = True
    if name in metadata.same:
        return {**entry, "same": metadata.same[name]}
    stored = metadata.state_dict_metadata[name]
    if isinstance(stored, BytesStorageMetadata):
        return {**entry, "value": stored.value}
    chunks = [{**vars(chunk), "hashes": list(chunk.hashes)} for chunk in stored.chunks]
    return {**entry, "shape": list(stored.size), "dtype": stored.properties.dtype.short, "chunks": chunks}


def _step(step: str | int | At) -> Any:
    return {"in" if step.of_tuple else "at": step.index} if isinstance(step, At) else step


# ---- reading -----------------------------------------------------------------------------------------------
def identity_of(start: bytes) -> str | None:
    """Which save wrote an index that begins so; None where it is none of ours."""
    found = re.match(
        HEAD.pattern + rb'\{"format":"lamina\.checkpoint","version":\d+,"id":"([0-9a-f]{12})"', start
    )
    return found[2].decode() if found else None


def from_bytes(data: bytes, name: str) -> Metadata:
    """What the text of an index says; `name` is the checkpoint's.  Raises DamagedCheckpointError."""
    head = HEAD.match(data)
    if head is None or not data.endswith(TAIL):
        raise _damaged(name, "its index is none of Lamina's, or it is cut short")
    body = data[head.end() : -len(TAIL)]
    if hash_of(body) != head[1].decode():
        raise _damaged(name, "its index was changed since it was saved: its hash is another")
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _damaged(name, "its index is no JSON that can be read") from None
    try:
        return _Index(found, name).metadata()
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _damaged(
            name, f"its index lacks something, or says it otherwise: {_short(str(error))}"
        ) from None


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _damaged(name: str, why: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"load(): the checkpoint {name} can't be read: {why}")


class _Index:
    """An index that is read.  Every method raises DamagedCheckpointError for what no save writes."""

    def __init__(self, found: Any, name: str):
        self.name = name
        self._taken: dict[str, list[tuple[int, int]]] = {}  # by file: where chunks lie
        self.found = self._object(found, "the index")

    def _refuse(self, why: str) -> DamagedCheckpointError:
        return _damaged(self.name, f"its index says {why}")

    def _object(self, value: Any, what: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise self._refuse(f"of {what} {_short(value)}, which is no object")
        return value

    def _number(self, value: Any, what: str, most: int = MOST) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise self._refuse(f"of {what} {_short(value)}, which is no number from 0 to {most}")
        return value

    def _sizes(self, value: Any, what: str, dims: int | None = None) -> Sizes:
        if type(value) is not list or len(value) > DIMS or dims not in (None, len(value)):
            raise self._refuse(f"of {what} {_short(value)}, which is no list of sizes")
        return tuple(self._number(n, what) for n in value)

    def metadata(self) -> Metadata:
        found = self.found
        if found["format"] != FORMAT or found["version"] != VERSION or found["block"] != BLOCK:
            raise self._refuse(
                f"that it is {_short(found['format'])} {_short(found['version'])}, not {FORMAT} {VERSION}"
            )
        identity = found["id"]
        if type(identity) is not str or not re.fullmatch(r"[0-9a-f]{12}", identity):
            raise self._refuse(f"that it is of {_short(identity)}")
        files = {}
        for file, size in self._object(found["files"], "files").items():
            if not re.fullmatch(FILE, file) or not file.startswith(identity):
                raise self._refuse(f"that it has the file {_short(file)}, which no save of it wrote")
            files[file] = self._number(size, f"the size of {file}")
        self._files = files
        stored: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        ways, same, arrays = {}, {}, set()
        entries = self._object(found["entries"], "entries")
        for name, entry in entries.items():
            what = _short(name)
            entry = self._object(entry, what)
            ways[name] = self._path(entry["path"], what)
            if name_of(ways[name]) != name:
                raise self._refuse(f"that the way to {what} is {_short(entry['path'])}")
            if entry.get("array", False) not in (True, False):
                raise self._refuse(f"of {what} that it is {_short(entry['array'])}")
            if entry.get("array") is True:
                arrays.add(name)
            if "same" in entry:
                same[name] = entry["same"]
            elif "value" in entry:
                stored[name] = BytesStorageMetadata(entry["value"])
            else:
                stored[name] = self._tensor(entry, what)
        for name, other in same.items():
            if type(other) is not str or not isinstance(stored.get(other), TensorStorageMetadata):
                raise self._refuse(f"that {_short(name)} lies where {_short(other)} does, which is no tensor")
            stored[name] = stored[other]
        self._require_apart()
        return Metadata(identity, {n: stored[n] for n in entries}, ways, same, frozenset(arrays), files)

    def _path(self, value: Any, what: str) -> Path:
        if type(value) is not list or not 0 < len(value) <= DEEPEST:
            raise self._refuse(f"that the way to {what} is {_short(value)}")
        return tuple(self._step(step, what) for step in value)

    def _step(self, step: Any, what: str) -> str | int | At:
        if type(step) in (str, int):
            return step
        kind, index = next(iter(self._object(step, f"the way to {what}").items()), ("", 0))
        if len(step) != 1 or kind not in ("at", "in"):
            raise self._refuse(f"that the way to {what} goes by {_short(step)}")
        return At(self._number(index, f"the way to {what}"), kind == "in")

    def _tensor(self, entry: Mapping[str, Any], what: str) -> TensorStorageMetadata:
        shape = self._sizes(entry["shape"], f"the shape of {what}")
        dtype = next((d for d in dtypes.EVERY if d.short == entry["dtype"]), None)
        if dtype is None:
            raise self._refuse(f"of {what} that it holds {_short(entry['dtype'])}")
        if type(entry["chunks"]) is not list:
            raise self._refuse(f"of the chunks of {what} {_short(entry['chunks'])}")
        chunks = [self._chunk(chunk, what, shape, dtype.itemsize) for chunk in entry["chunks"]]
        why = untiled(shape, (chunk.box for chunk in chunks))
        if why:
            raise self._refuse(f"of {what} {list(shape)} what can't be: {why}")
        return TensorStorageMetadata(TensorProperties(dtype), Size(shape), chunks)

    def _chunk(self, found: Any, what: str, shape: Sizes, itemsize: int) -> ChunkStorageMetadata:
        found = self._object(found, f"a chunk of {what}")
        offsets = self._sizes(found["offsets"], f"a chunk of {what}", len(shape))
        sizes = self._sizes(found["sizes"], f"a chunk of {what}", len(shape))
        if any(begin + size > n for begin, size, n in zip(offsets, sizes, shape, strict=True)):
            raise self._refuse(f"of {what} {list(shape)} a chunk at {list(offsets)} of {list(sizes)}")
        file, key, hashes = found["file"], found["key"], found["hashes"]
        if type(file) is not str or file not in self._files or type(key) is not str:
            raise self._refuse(f"that a chunk of {what} is in {_short(file)}, which is no file of it")
        begin = self._number(found["begin"], f"the place of a chunk of {what}")
        size = volume(sizes) * itemsize
        if begin + size > self._files[file]:
            raise self._refuse(f"that a chunk of {what} leaves the file {file}")
        fits = type(hashes) is list and len(hashes) == blocks(size) and all(type(h) is str for h in hashes)
        if not fits:
            raise self._refuse(f"of the hashes of a chunk of {what} {_short(hashes)}")
        if size:
            self._taken.setdefault(file, []).append((begin, begin + size))
        return ChunkStorageMetadata(offsets, sizes, file, begin, key, tuple(hashes))

    def _require_apart(self) -> None:
        """Refuse chunks over the same bytes: what is read is then no more than the files are."""
        for file, places in self._taken.items():
            places.sort()
            if any(end > begin for (_, end), (begin, _) in zip(places, places[1:])):
                raise self._refuse(f"that chunks in {file} overlap")
