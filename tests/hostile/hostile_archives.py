"""Archives of models whose directory lies, while every CRC and hash fits; weights beside C libraries."""

from __future__ import annotations

import binascii
import ctypes
import hashlib
import random
import struct
import tempfile
import weakref
from dataclasses import dataclass, replace
from pathlib import Path

import mutations
from driver import Held, Kind, Wrong, kind
from hostile_models import _seeds
from model_archive import split

import lamina
from lamina import nn
from lamina.jit import ModelError
from lamina.jit.lamina_model import read

LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END_64, PLACE_64 = b"PK\x06\x06", b"PK\x06\x07"


@dataclass(frozen=True)
class Entry:
    """A member, as the directory has it, and as its own header has it where that is another."""

    name: bytes
    data: bytes
    told: int | None = None  # its size, in the directory
    packed: int | None = None
    crc: int | None = None
    method: int = 0
    flags: int = 0
    extra: bytes = b""
    own_name: bytes | None = None
    own_extra: bytes = b""
    own_size: int | None = None
    place: int | None = None  # of its header
    comment: bytes = b""
    before: bytes = b""  # what lies in front of its header
    system: int = 0

    def header(self) -> bytes:
        name = self.name if self.own_name is None else self.own_name
        size = len(self.data) if self.own_size is None else self.own_size
        crc = binascii.crc32(self.data)
        numbers = (20, self.flags, self.method, 0, 33, crc, size, size, len(name), len(self.own_extra))
        return LOCAL + struct.pack("<HHHHHIIIHH", *numbers) + name + self.own_extra

    def listed(self, at: int) -> bytes:
        size = len(self.data) if self.told is None else self.told
        packed = len(self.data) if self.packed is None else self.packed
        crc = binascii.crc32(self.data) if self.crc is None else self.crc
        numbers = (
            20 | self.system << 8, 20, self.flags, self.method, 0, 33, crc, packed % (1 << 32),
            size % (1 << 32),
            len(self.name), len(self.extra), len(self.comment), 0, 0, 0,
        )  # fmt: skip
        where = (at if self.place is None else self.place) % (1 << 32)
        return (
            CENTRAL
            + struct.pack("<HHHHHHIIIHHHHHII", *numbers, where)
            + self.name
            + self.extra
            + self.comment
        )


def archive(entries: list[Entry], comment: bytes, odd: dict[str, int]) -> bytes:
    """A file of these members.  odd: numbers of the end of the directory that are others."""
    body, places = b"", []
    for entry in entries:
        body += entry.before
        places.append(len(body))
        body += entry.header() + entry.data
    listed = b"".join(entry.listed(at) for entry, at in zip(entries, places, strict=True))
    end = b""
    if "wide" in odd:
        numbers = (44, 45, 45, 0, 0, len(entries), odd["wide"] % (1 << 64), len(listed), len(body))
        end += END_64 + struct.pack("<QHHIIQQQQ", *numbers)
        end += PLACE_64 + struct.pack("<IQI", 0, len(body) + len(listed), 1)
    count = odd.get("count", len(entries)) % (1 << 16)
    size, at = odd.get("size", len(listed)) % (1 << 32), odd.get("at", len(body)) % (1 << 32)
    end += END + struct.pack("<HHHHIIH", 0, 0, count, count, size, at, len(comment))
    return body + listed + end + comment


def _twisted(rng: random.Random, members: dict[str, bytes]) -> bytes:
    entries = [Entry(name.encode(), data) for name, data in members.items()]
    odd: dict[str, int] = {}
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, other = rng.randrange(len(entries)), rng.choice(entries)
        entry, number = entries[at], rng.choice(mutations.EXTREMES)
        near = len(entry.data) + rng.choice((-1, 1, 8, 100_000))
        changes = (
            {"told": number}, {"packed": number}, {"told": near}, {"packed": near}, {"told": near,
            "packed": near},
            {"crc": number % (1 << 32)}, {"method": rng.choice((1, 8, 12, 14, 95, 99, 65535))},
            {"flags": 1 << rng.randrange(16)}, {"own_name": other.name}, {"own_size": number % (1 << 32)},
            {"extra": struct.pack("<HHQQQ", 1, 24, number % (1 << 64), number % (1 << 64), 0),
            "told": (1 << 32) - 1},
            {"extra": rng.randbytes(rng.randrange(1, 40))},
            {"own_extra": rng.randbytes(rng.randrange(1, 4000))},
            {"place": number}, {"place": 0}, {"comment": rng.randbytes(9)}, {"before": rng.randbytes(99)},
            {"name": rng.choice((other.name, entry.name.upper(), entry.name + b"\0x",
            b"/" + entry.name, b"./x",
                                 entry.name + b"/", b"\xff\xfe", entry.name.replace(b".", b"\\")))},
            {"data": mutations.damaged(rng, entry.data)}, {"system": rng.choice((3, 11, 255))},
            {"data": other.data, "own_size": len(entry.data)},
        )  # fmt: skip
        if rng.random() < 0.75:
            entries[at] = replace(entry, **rng.choice(changes))
        elif rng.random() < 0.5:
            odd[rng.choice(("count", "size", "at", "wide"))] = rng.choice((number, rng.randrange(9)))
        else:
            entries.insert(at, replace(other, **rng.choice(changes)))
    fits = hashlib.sha256(members["manifest.json"]).hexdigest().encode()
    return archive(entries, fits if rng.random() < 0.9 else fits + rng.randbytes(5), odd)


@kind("lam-archive")
def twisted_archives() -> Kind:
    """However a directory lies, a file is refused, or is the model that was exported, member by member."""
    members, file = [split(data) for data in _seeds()], Held(".lam")
    for whole in members:
        made = archive([Entry(name.encode(), data) for name, data in whole.items()],
                       hashlib.sha256(whole["manifest.json"]).hexdigest().encode(), {})  # fmt: skip
        assert read(file.hold(made))[1].keys() | {"manifest.json"} == whole.keys()

    def make(rng: random.Random) -> tuple[bytes, int]:
        number = rng.randrange(len(members))
        return _twisted(rng, members[number]), number

    def check(made: tuple[bytes, int]) -> str:
        data, number = made
        _, found = read(file.hold(data))
        if found | {"manifest.json": members[number]["manifest.json"]} != members[number]:
            raise Wrong("an archive that lies is read as another model")
        return "same"

    return Kind(make=make, check=check, refusals=(ModelError,), memory=1 << 28, share=1000)


@kind("c-weights")
def weights_beside() -> Kind:
    """A C library loads the file of weights that was written with it, and no other."""
    lamina.manual_seed(0)
    folder = tempfile.TemporaryDirectory()
    place, model = Path(folder.name), nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3)).eval()
    lamina.jit.export(
        model, place / "tiny.so", lamina.ones(2, 6), levels=["x86-64-v2"], weights=place / "tiny.weights"
    )
    whole, file = (place / "tiny.weights").read_bytes(), Held(".weights")
    library = ctypes.CDLL(str(place / "tiny.so"))
    library.tiny_error.restype, library.tiny_error.argtypes = ctypes.c_char_p, [ctypes.c_int]

    def check(data: bytes) -> str:
        if data == whole:  # a library that has its weights looks at no other file
            return "same"
        code = library.tiny_load(str(file.hold(data)).encode())
        if code == 0:
            raise Wrong("weights of another file are taken")
        return library.tiny_error(code).decode()

    def make(rng: random.Random) -> bytes:
        return mutations.damaged(rng, whole)

    check.folder = weakref.finalize(check, folder.cleanup)  # type: ignore[attr-defined]
    return Kind(make=make, check=check, refusals=(), batch=1000, memory=1 << 28, share=1000)
