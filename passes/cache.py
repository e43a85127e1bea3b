"""Keeps compiled code on disk, so that a second process need not compile.

The folder is $LAMINA_CACHE_DIR, or lamina/<version> in $XDG_CACHE_HOME or ~/.cache; an empty
$LAMINA_CACHE_DIR turns it off.  An entry is written to a temporary name and renamed, so readers and other
writers never meet half of one; it carries a digest of itself, and one that does not fit is removed and built
anew.  A disk that is full or read-only means no cache, and nothing else.

Loading native code means trusting it: a folder that belongs to another user is not read.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

from ..ir.locks import fork_safe_lock
from ..ir.version import __version__

MAGIC = b"lamina1\n"
DIGEST = 32  # bytes of BLAKE2b, after the magic
LIMIT = 1 << 30  # bytes on disk; the entries that were not used for longest go first
HELD = 512  # entries that the process itself keeps
DAY = 86_400  # seconds: how exactly the time of the last use is kept
LEFTOVER = 3_600  # seconds after which a temporary file is one that a killed process left


def key(*parts: str | bytes) -> str:
    """A name for what is made from these parts and nothing else."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """Bytes by key.  directory: None keeps them in the process alone.  All methods are safe for threads."""

    def __init__(self, directory: Path | None, limit: int = LIMIT, held: int = HELD):
        self.directory, self.limit, self.held = directory, limit, held
        self.hits = self.misses = 0
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._lock = fork_safe_lock()
        # bytes written since the folder was last measured; from a random number on, so that many short
        # processes measure it as often as a long one
        self._grown = int.from_bytes(os.urandom(8), "little") % self._due

    @property
    def _due(self) -> int:
        return max(self.limit // 16, 1)

    def get(self, name: str) -> bytes | None:
        """The bytes kept under a key, or None."""
        with self._lock:
            data = self._memory.get(name)
        if data is None:
            data = self._read(name)
        with self._lock:
            self.hits += data is not None
            self.misses += data is None
        if data is not None:
            self._remember(name, data)
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep bytes under a key.  Whatever the disk does, this succeeds."""
        self._remember(name, data)
        try:
            self._write(name, data)
        except OSError:
            return
        with self._lock:
            self._grown += len(data)
            due = self._grown >= self._due
            self._grown = 0 if due else self._grown
        if due:
            self.trim()

    def forget(self, name: str) -> None:
        """Drop an entry, one that turned out to be unusable."""
        with self._lock:
            self._memory.pop(name, None)
        path = self._path(name)
        if path is not None:
            _remove(path)

    def _path(self, name: str) -> Path | None:
        return self.directory and self.directory / name[:2] / name[2:]

    def _remember(self, name: str, data: bytes) -> None:
        with self._lock:
            self._memory[name] = data
            self._memory.move_to_end(name)
            while len(self._memory) > self.held:
                self._memory.popitem(last=False)

    def _read(self, name: str) -> bytes | None:
        path = self._path(name)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.getuid():
                    return None
                raw = file.read()
        except OSError:
            return None
        start = len(MAGIC) + DIGEST
        data = raw[start:]
        if raw[:start] != MAGIC + _digest(name, data):
            _remove(path)
            return None
        if time.time() - status.st_mtime > DAY:
            try:
                os.utime(path)
            except OSError:
                pass  # read-only: it ages
        return data

    def _write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if path is None:
            return
        assert self.directory is not None
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.directory.stat().st_uid != os.getuid():
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(MAGIC + _digest(name, data) + data)
            os.replace(temporary, path)
        except BaseException:
            _remove(Path(temporary))
            raise

    def trim(self) -> None:
        """Remove what was not used for longest until the folder is below its limit, and leftovers."""
        if self.directory is None:
            return
        entries, total, now = [], 0, time.time()
        for folder, _, files in os.walk(self.directory):
            for file in files:
                path = Path(folder, file)
                try:
                    status = path.stat()
                except OSError:
                    continue  # another process removed it
                if file.startswith("."):
                    if now - status.st_mtime > LEFTOVER:
                        _remove(path)
                    continue
                entries.append((status.st_mtime, status.st_size, path))
                total += status.st_size
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if total <= self.limit:
                break
            _remove(path)
            total -= size


def _digest(name: str, data: bytes) -> bytes:
    """Of the entry with its name: an entry under a wrong name is a damaged one."""
    return hashlib.blake2b(name.encode() + b"\n" + data, digest_size=DIGEST).digest()


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass  # gone already, or not ours to remove


def folder() -> Path | None:
    """Where the environment says that the cache is."""
    chosen = os.environ.get("LAMINA_CACHE_DIR")
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # nobody's home
        return None
    return base / "lamina" / __version__


_default: Cache | None = None
_making = fork_safe_lock()


def default() -> Cache:
    """The process's cache, in the folder that the environment named when it was first asked for."""
    global _default
    if _default is None:
        with _making:
            _default = _default or Cache(folder())
    return _default


# ---- several pieces of bytes as one entry
def pack(*pieces: bytes) -> bytes:
    """[count][length of each][piece 0][piece 1]..., the numbers as 8 bytes."""
    numbers = (len(pieces), *map(len, pieces))
    return b"".join([*(n.to_bytes(8, "little") for n in numbers), *pieces])


def unpack(data: bytes) -> list[bytes]:
    """What was packed.  Raises ValueError for anything else."""
    count = int.from_bytes(data[:8], "little")
    at = 8 * (count + 1)
    if at > len(data):
        raise ValueError("packed pieces are cut off")
    pieces = []
    for k in range(1, count + 1):
        size = int.from_bytes(data[8 * k : 8 * k + 8], "little")
        pieces.append(data[at : at + size])
        at += size
    if at != len(data):
        raise ValueError("packed pieces have another length")
    return pieces
