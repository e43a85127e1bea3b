"""`save` and `load`: which form a file has, and how it is opened.

save   a name that ends in .safetensors      Lamina's own form, which safetensors' readers read (own_form.py)
       any other name, and files without one  PyTorch's, which `torch.load` reads (writer.py)
load   both forms, files of safetensors, PyTorch's earlier format, and the index of a model in several files:
       told apart by what is in the file, whatever its name is
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from ...ir.dtypes import uint8
from ...ir.errors import ArgumentError, ArgumentValueError, OutOfMemoryError
from ...ir.files import NotRegularError, open_regular
from ...ir.own_files import replacing
from ...ir.types import Device
from .. import modes
from ..conversion import require_cpu
from ..creation import mapped
from . import own_form, reader
from .archive import Archive, InMemory, OnDisk, Source
from .own_form import SavedFileError
from .writer import earlier, zipped

Target = str | os.PathLike | IO[bytes]

OWN = ".safetensors"  # the end of names of files in Lamina's own form
ZIP = b"PK\x03\x04"
MOST_OF_INDEX = 1 << 26  # bytes: that of a model of 400 B parameters has 200 KB


def _pieces(obj: Any, name: str, zip_format: bool) -> Iterator[Any]:
    if name.lower().endswith(OWN):
        return own_form.pieces(obj)
    return zipped(obj) if zip_format else earlier(obj)


def save(
    obj: Any,
    f: Target,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write `obj` to a path or to a file that is open for writing bytes.

    In PyTorch's format, which `torch.load` reads, unless the name ends in .safetensors: then as a file of
    safetensors, which other programs read, with a checksum over all of it.

    obj: tensors, arrays, numbers, texts, None, dtypes, and dicts, lists and tuples of these, nested at will,
    such as the state_dict of a module or an optimizer.  In PyTorch's format also modules, and other objects
    whose classes have a name; `load(…, weights_only=False)` reads these.  Tensors over the same memory are
    stored once, and views with the memory of their base, as PyTorch stores them.

    A path is written under another name first and then renamed, so an interrupt leaves the old file.
    pickle_module, pickle_protocol: taken because scripts give them; the pickle is Lamina's, of protocol 2.
    _use_new_zipfile_serialization: False for the format of PyTorch before 1.6.  Raises ArgumentError.
    """
    if modes.CHANGED:
        modes.tell("refuse", "save(obj, f) wrote a file")
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise ArgumentError(
                f"save(obj, f): f must be a path or a file open for writing, not {type(f).__name__}"
            )
        for piece in _pieces(obj, str(getattr(f, "name", "")), _use_new_zipfile_serialization):
            f.write(piece)
        if callable(flush := getattr(f, "flush", None)):
            flush()  # who opens it by its name now reads all of it
        return
    pieces = _pieces(obj, os.fsdecode(f), _use_new_zipfile_serialization)
    first = next(pieces)
    with replacing(os.fspath(f)) as file:
        file.write(first)
        for piece in pieces:
            file.write(piece)


def load(
    f: Target,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    encoding: str = "utf-8",
) -> Any:
    """Read what `save` or `torch.save` wrote, or a file of safetensors, from a path or an open file.

    Of safetensors also the index of a model in several files, model.safetensors.index.json, which gives the
    dict of all their tensors.

    map_location: where tensors go: None (where they were saved, which must be there; of safetensors the
    CPU), a device, a dict of devices by where storages were saved, or a function of a storage and that.
    weights_only: True, the default, takes tensors, containers, numbers and what
    `serialization.add_safe_globals` names.  False also takes modules of nn, by PyTorch's names too, and
    classes, functions and members of enumerations that your program has defined and loaded.  Either way no
    code in a file is run, nothing is imported for it, and no function that it names is called; but with
    False a file chooses which of your classes it is made of, runs their `__setstate__`, and may hang your
    functions on them (runtime/classes.py says what that means).
    mmap: True reads storages where they are looked at; of a path in the zip format alone.  What is written
    into them stays in this process.  The file must not be made shorter meanwhile: the system would end the
    process.  encoding: of the texts that Python 2 pickled.

    Raises SavedFileError for a file that is damaged, cut short or of another kind, RefusedNameError (a
    pickle.UnpicklingError, as PyTorch's) for one that names what is not taken; DeviceError; OSError.
    """
    if modes.CHANGED:
        modes.tell("refuse", "load(f) read a file")
    reader.check_place(map_location)
    weights_only = weights_only is not False
    if pickle_module is not None and (weights_only or pickle_module is not pickle):
        raise ArgumentError(
            "load(pickle_module): Can not safely load weights when explicit pickle_module is specified: "
            "files are read by Lamina alone",
            "leave it out",
        )
    asked = map_location, weights_only, _checked_encoding(encoding)
    try:
        if isinstance(f, (str, os.PathLike)):
            return _of_path(f, asked, bool(mmap))
        if mmap:
            raise ArgumentValueError(
                "load(mmap=True): f must be a file path in order to use the mmap argument"
            )
        return _of_file(f, asked)
    except reader.OfCaller as passed:
        raise passed.error from passed.error.__cause__
    except MemoryError as error:
        raise OutOfMemoryError(
            "load(): the host has not as much memory as the file's tensors need"
        ) from error


def _checked_encoding(encoding: Any) -> str:
    if not isinstance(encoding, str) or encoding.lower() not in (
        "utf-8", "utf8", "ascii", "latin1", "latin-1", "bytes",
    ):  # fmt: skip
        raise ArgumentValueError(
            f"load(encoding): {encoding!r:.60} is none of utf-8, ascii, latin1 and bytes"
        )
    return encoding


def _opened(path: str | os.PathLike) -> IO[bytes]:
    try:
        return open_regular(path)
    except NotRegularError:
        raise SavedFileError(
            f"load(): {os.path.basename(os.fsdecode(path))} is a pipe or a device, not a file",
            "open it, and give load(f) the open file",
        ) from None


def _of_path(path: str | os.PathLike, asked: tuple, mmap: bool) -> Any:
    name = os.path.basename(os.fsdecode(path))
    with _opened(path) as file:
        start, size = file.read(16), os.fstat(file.fileno()).st_size
        if start.startswith(ZIP):
            mapping: Callable[[], np.ndarray] | None = None
            if mmap:
                mapping = lambda: mapped("load(mmap=True)", path, False, size, uint8)  # noqa: E731
            place, weights_only, encoding = asked
            return reader.of_zip(OnDisk(file, size), name, place, weights_only, encoding, mapping)
        if mmap:
            raise ArgumentValueError(
                "load(mmap=True): mmap can only be used with files saved with "
                "save(…, _use_new_zipfile_serialization=True)",
                f"leave it out for {name}, or load it and save it anew under a name that ends in .pt",
            )
        file.seek(0)
        data = file.read()
    if _is_index(data):
        return _of_index(data, name, os.path.dirname(os.fsdecode(path)), asked)
    return _of_bytes(data, name, asked)[0]


def _of_file(f: Any, asked: tuple) -> Any:
    if not hasattr(f, "read"):
        raise ArgumentError(f"load(f): f must be a path or a file open for reading, not {type(f).__name__}")
    name = str(getattr(f, "name", "the file"))
    seeks = f.seekable() if hasattr(f, "seekable") else hasattr(f, "seek") and hasattr(f, "tell")
    begin = f.tell() if seeks else None
    if begin is not None:
        start = f.read(len(ZIP))
        if start == ZIP:  # whose parts are read where they are wanted, each once
            f.seek(0, os.SEEK_END)
            end = f.tell()
            found = reader.of_zip(OnDisk(f, end - begin, begin), name, *asked)
            f.seek(end)
            return found
        f.seek(begin)
    data = f.read()
    if not isinstance(data, bytes):
        raise ArgumentError("load(f): the file is open as text", "open it with mode 'rb'")
    found, end = _of_bytes(data, name, asked)
    if begin is not None:
        f.seek(begin + end)  # several may follow each other
    return found


def _of_bytes(data: bytes, name: str, asked: tuple) -> tuple[Any, int]:
    """What is in a file that was read, and where it ends."""
    if data.startswith(ZIP):
        return reader.of_zip(InMemory(data), name, *asked), len(data)
    if reader.is_earlier(data):
        return reader.of_earlier(data, name, *asked)
    if data[257:262] == b"ustar":
        raise SavedFileError(
            f"load(): {name} is a tar archive, as PyTorch wrote before 0.2",
            "load it there, and save it anew",
        )
    place = asked[0]
    if place is not None and not isinstance(place, (str, Device)):
        raise ArgumentError(
            f"load(map_location): of a file of safetensors, a device such as 'cpu', not {place!r:.60}"
        )
    if place is not None and (gpu := reader.gpu_of(place)) is not None:
        return own_form.read(data, name, gpu), len(data)
    require_cpu(place)
    return own_form.read(data, name), len(data)


# ---- models in several files -------------------------------------------------------------------------------
def _is_index(data: bytes) -> bool:
    # A file of safetensors may begin with a brace: as the low byte of its length, before bytes that are 0.
    return data[:64].lstrip()[:1] == b"{" and b"\0" not in data[:8]


def _of_index(data: bytes, name: str, folder: str, asked: tuple) -> dict[str, Any]:
    """The tensors of all files that an index names, in its order."""
    try:
        index = json.loads(data[:MOST_OF_INDEX])
        where = index["weight_map"]
        fits = isinstance(where, dict) and all(isinstance(file, str) for file in where.values())
    except (ValueError, KeyError, TypeError, RecursionError):
        fits = False
    if not fits:
        raise SavedFileError(
            f"load(): {name} is text, and no index of a model in several files",
            'one has a dict of file names: {"weight_map": {"weight": "model-00001-of-00002.safetensors"}}',
        )
    files: dict[str, Any] = {}
    for file in dict.fromkeys(where.values()):
        if os.path.basename(file) != file or file in ("", ".", "..") or "\0" in file:
            raise SavedFileError(f"load(): {name} names {file[:200]!r}, which is no file beside it")
        with _opened(os.path.join(folder, file)) as opened:
            part = opened.read(64)
        if _is_index(part):
            raise SavedFileError(f"load(): {name} names {file[:200]!r}, which is an index itself")
        files[file] = _of_path(os.path.join(folder, file), asked, mmap=False)
    lacking = [
        key for key, file in where.items() if not isinstance(files[file], dict) or key not in files[file]
    ]
    if lacking:
        raise SavedFileError(f"load(): {where[lacking[0]]} has no tensor {lacking[0]!r:.200}, as {name} says")
    return {key: files[file][key] for key, file in where.items()}


def get_unsafe_globals_in_checkpoint(f: Target) -> list[str]:
    """The names in a checkpoint of the zip format that `load` would refuse, read without doing what it says.

    Raises ArgumentValueError for a file that is none, SavedFileError for a damaged one.
    """
    if isinstance(f, (str, os.PathLike)):
        with _opened(f) as file:
            source: Source = OnDisk(file, os.fstat(file.fileno()).st_size)
            return _unsafe(source, os.path.basename(os.fsdecode(f)))
    return _unsafe(InMemory(f.read()), str(getattr(f, "name", "the file")))


def _unsafe(source: Source, name: str) -> list[str]:
    if source.take(0, min(4, source.size)) != ZIP:
        raise ArgumentValueError(f"{name}: Expected input to be a checkpoint returned by torch.save")
    return reader.unsafe_names(Archive(source, name), name)
