"""Entries of the cache on disk: damaged ones, and those whose digest was made to fit.

Objects are code, and never mutated with a digest that fits: those who write into the folder are trusted.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import weakref
from pathlib import Path

import mutations
import numpy as np
from driver import Kind, Wrong, kind

from lamina.ir.kernel.text import parse
from lamina.passes import cache
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.triton.launches import Launches, launch_list
from lamina.runtime import native

KERNEL = """\
kernel scaled(x: f32[4,8], w: f32[8]) -> (y: f32[4,8]) {
  parallel i:4 j:8
  y[i, j] = (x[i, j] * w[j])
}"""

GATHER = """\
kernel gather(t: f32[6,4], r: i64[3]) -> (y: f32[3,4]) {
  parallel i:3 j:4
  m = r[i]
  y[i, j] = t[m, j]
}"""


class _Folder:
    """Folders for entries, in memory where the system has a place for it; they go with who forks."""

    def __init__(self) -> None:
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._all = tempfile.mkdtemp("-hostile", dir=shared)
        weakref.finalize(self, shutil.rmtree, self._all, True)

    @property
    def directory(self) -> Path:
        """The folder of this process alone."""
        return Path(self._all, str(os.getpid()))

    def path(self, name: str) -> Path:
        """Where the entry of this name lies."""
        path = cache.Cache(self.directory)._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _entry(name: str, data: bytes) -> bytes:
    return cache.MAGIC + cache._digest(name, data) + data


@kind("cache")
def damaged_entries() -> Kind:
    """A damaged entry is none, and is removed."""
    whole = {cache.key(str(n)): random.Random(n).randbytes(n) for n in (0, 1, 40, 1000, 20_000)}
    whole[cache.key("packed")] = cache.pack(b"{}", b"", b"x" * 100)
    files = {name: _entry(name, data) for name, data in whole.items()}
    folder = _Folder()

    def make(rng: random.Random) -> tuple[str, bytes]:
        name, other = rng.choice([*files]), rng.choice([*files])
        return name, mutations.damaged(rng, files[other if rng.random() < 0.1 else name], [*files.values()])

    def check(made: tuple[str, bytes]) -> str:
        name, data = made
        path = folder.path(name)
        path.write_bytes(data)
        found = cache.Cache(folder.directory).get(name)
        if found is None and path.exists():
            raise Wrong("a damaged entry stays")
        if found is not None and found != whole[name]:
            raise Wrong("a damaged entry is believed")
        return "none" if found is None else "same"

    return Kind(make=make, check=check, refusals=(), memory=1 << 28, share=3000)


@kind("cache-authored")
def authored_programs() -> Kind:
    """A program whose manifest says something odd is none, or is one that can be held.  None is run."""
    x, w, y = Array("x", "f32", (4, 8)), Array("w", "f32", (8,)), Array("y", "f32", (4, 8))
    call, weights = Call(parse(KERNEL), (x, w), (y,)), {w: np.arange(8, dtype=np.float32)}
    program = Program("scaled", (x,), (call,), (y,), constants=weights)
    executable = native.Executable(program)
    manifest, target = executable.manifest.json(), executable.target
    constants = [constant.tobytes() for constant in executable.constants]
    name = native._program_key("hostile", target)
    folder = _Folder()

    def make(rng: random.Random) -> bytes:
        way = rng.randrange(6)
        if way == 0:
            text = mutations.damaged(rng, manifest.encode())
        else:
            text = json.dumps(mutations.altered(rng, json.loads(manifest))).encode()
        pieces = [text, *(mutations.damaged(rng, c) if rng.random() < 0.1 else c for c in constants)]
        packed = bytearray(cache.pack(*pieces, *executable.objects))
        if way == 1:
            at = 8 * rng.randrange(len(pieces) + 2)
            packed[at : at + 8] = (rng.choice(mutations.EXTREMES) % (1 << 64)).to_bytes(8, "little")
        return _entry(name, bytes(packed))

    def check(data: bytes) -> str:
        path = folder.path(name)
        path.write_bytes(data)
        cache._default = cache.Cache(folder.directory)
        found = native.load_program("hostile", target)
        if found is None and path.exists():
            raise Wrong("an entry that can't be used stays")
        return "none" if found is None else "held"

    return Kind(make=make, check=check, refusals=(), batch=500, share=1000)


@kind("cache-launches")
def authored_launches() -> Kind:
    """A list of launches that says something odd is refused, or is one that can be held.  None is run."""
    table, rows, y = Array("t", "f32", (6, 4)), Array("r", "i64", (3,)), Array("y", "f32", (3, 4))
    program = Program("gather", (table, rows), (Call(parse(GATHER), (table, rows), (y,)),), (y,))
    good = json.loads(launch_list(program)[0].json())

    def make(rng: random.Random) -> bytes:
        text = json.dumps(mutations.altered(rng, good)).encode()
        return cache.pack(mutations.damaged(rng, text) if rng.random() < 0.2 else text)

    def check(data: bytes) -> str:
        launches, _, _ = Launches.unpack(data)
        str(launches)
        return "held"

    return Kind(make=make, check=check, refusals=(ValueError,), share=1000)
