"""Files for `lamina.load`: damaged ones, and those in which an author says something odd and signs it."""

from __future__ import annotations

import io
import json
import random
from collections import OrderedDict
from typing import Any

import mutations
import numpy as np
import safetensors.numpy
from driver import Kind, Wrong, kind

import lamina
from lamina.ir import dtypes
from lamina.ir.errors import DTypeError
from lamina.runtime.checkpoints import own_form
from lamina.runtime.checkpoints.own_form import SavedFileError

OBJECTS: list[Any] = [
    {
        "model": OrderedDict([("0.weight", lamina.arange(6.0).view(2, 3)), ("0.bias", lamina.ones(2))]),
        "optimizer": {"state": {0: {"step": lamina.tensor(3.0), "max": None}, 1: {}}, "lr": [0.1, (0.9, 1)]},
        "epoch": 7,
        "best": float("inf"),
    },
    [lamina.ones(2, 0), lamina.tensor([True]), lamina.float32, lamina.device("cpu"), lamina.Size((2,))],
    {(1, None): lamina.Parameter(lamina.ones(3)), "two": [lamina.tensor(2)] * 2, "h": lamina.ones(3).half()},
    "text",
]  # fmt: skip
ENTRIES = {"w": np.arange(6.0).reshape(2, 3), "b": np.array([True, False]), "empty": np.ones((2, 0), np.int8)}


class _Own(io.BytesIO):
    name = "own.safetensors"  # in Lamina's own form


def _stored(obj: Any) -> bytes:
    file = _Own()
    lamina.save(obj, file)
    return file.getvalue()


def _spelled(value: Any) -> Any:
    """A value with everything that `load` promises about it, as one that can be compared."""
    if isinstance(value, lamina.Tensor):
        about = (value.dtype.name, tuple(value.shape), value.requires_grad, value.detach()._data.tobytes())
        return (type(value).__name__, *about)
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return (type(value).__name__, [(_spelled(k), _spelled(v)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_spelled(x) for x in value])
    if value is None or isinstance(value, (bool, int, float, str, lamina.device)) or value in dtypes.ALL:
        return (type(value).__name__, repr(value))
    raise Wrong(f"load returned a {type(value).__name__}")


SEEDS = [*map(_stored, OBJECTS), safetensors.numpy.save(ENTRIES, metadata={"format": "np"})]


def _split(data: bytes) -> tuple[Any, bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _joined(header: Any, body: bytes) -> bytes:
    text = json.dumps(header).encode(errors="replace")
    return len(text).to_bytes(8, "little") + text + body


def _entries(header: Any, body: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    found = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            found[name] = (about["dtype"], about["shape"], body[begin:end])
    return found


def _signed(header: Any, body: bytes) -> Any:
    """The header with the checksum that fits, where that can be said at all."""
    try:
        about = header["__metadata__"]
        about["lamina.crc32"] = own_form._checksum(about["lamina"], _entries(header, body))
    except (KeyError, TypeError, ValueError, AttributeError, UnicodeEncodeError):
        pass
    return header


def _damaged(rng: random.Random) -> tuple[bytes, int]:
    """A file that was damaged, and the number of the whole one."""
    number = rng.randrange(len(SEEDS))
    return mutations.damaged(rng, SEEDS[number], SEEDS), number


def _authored(rng: random.Random) -> bytes:
    """A file whose author says something odd, and signs it."""
    header, body = _split(rng.choice(SEEDS))
    way = rng.randrange(4)
    if way == 0 and "lamina" in header["__metadata__"]:
        structure = mutations.altered(rng, json.loads(header["__metadata__"]["lamina"]))
        header["__metadata__"]["lamina"] = json.dumps(structure)
    elif way == 1 and "lamina" in header["__metadata__"]:
        text = mutations.damaged(rng, header["__metadata__"]["lamina"].encode())
        header["__metadata__"]["lamina"] = text.decode(errors="replace")
    elif way == 2:
        header = mutations.altered(rng, header)
    else:
        body = mutations.damaged(rng, body)
    return _joined(_signed(header, body), body)


def _truth(data: bytes) -> dict[str, tuple[str, tuple, bytes]] | None:
    """What a file of another origin holds, read with nothing of Lamina's."""
    header, body = _split(data)
    if {"lamina", "lamina.crc32"} & (header.get("__metadata__") or {}).keys():
        return None
    return {
        name: (
            dtype,
            tuple(shape),
            np.frombuffer(raw, np.uint8).astype(bool).tobytes() if dtype == "BOOL" else raw,
        )
        for name, (dtype, shape, raw) in _entries(header, body).items()
    }


@kind("safetensors")
def damaged_files() -> Kind:
    """Whatever damage does, `load` refuses, or gives what was saved."""
    whole = [_spelled(lamina.load(io.BytesIO(data))) for data in SEEDS]

    def check(made: tuple[bytes, int]) -> str:
        data, number = made
        value = lamina.load(io.BytesIO(data))
        spelled = _spelled(value)
        if spelled == whole[number] or spelled in whole:
            return "same"
        truth = _truth(data)
        if truth is None or number < len(OBJECTS):
            raise Wrong("a damaged file loads as something else")
        # A file of another origin has no checksum: what it says is what it holds.
        for name, (dtype, shape, raw) in truth.items():
            x = value[name]
            if (x.dtype.short.upper(), tuple(x.shape), x._data.tobytes()) != (dtype, shape, raw):
                raise Wrong(f"entry {name!r} is not what the file holds")
        return "other"

    return Kind(make=_damaged, check=check, refusals=(SavedFileError, DTypeError), share=20_000)


@kind("safetensors-authored")
def authored_files() -> Kind:
    """What an author signs is refused, or is a container of Lamina's values whose bytes the file holds."""

    def check(data: bytes) -> str:
        spelled = _spelled(lamina.load(io.BytesIO(data)))
        try:
            again = _spelled(lamina.load(io.BytesIO(_stored(lamina.load(io.BytesIO(data))))))
        except lamina.ir.errors.ArgumentError as error:
            raise Wrong(f"what was loaded can't be saved: {error}") from None
        if again != spelled:
            raise Wrong("what was loaded is another when it was saved and loaded again")
        return "other"

    return Kind(make=_authored, check=check, refusals=(SavedFileError, DTypeError), share=4000)
