"""Keeps compiled code on disk, so that a second process need not compile.

The entries are lamina-code-1/<2>/<38 hex digits>.code below $LAMINA_CACHE_DIR, or below lamina/<version> in
$XDG_CACHE_HOME or ~/.cache; an empty $LAMINA_CACHE_DIR turns it off.  An entry is written to a temporary name
and renamed, so readers and other writers never meet half of one; it carries a digest of itself, and one that
does not fit is removed and built anew.  Nothing but such entries is ever removed, whatever else is in the
folder, and no link is followed to one: the folder is the user's.

A disk that is full, read-only or gone means no cache, and nothing else; if the variable names it, one warning
says so.

Loading native code means trusting it: a folder that belongs to another user is not read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
import warnings
from collections import OrderedDict
from pathlib import Path

from ..ir.files import open_regular
from ..ir.locks import fork_safe_lock
from ..ir.own_files import DAY, own_files, remove, remove_parts, temporary_beside
from ..ir.version import __version__

VARIABLE = "LAMINA_CACHE_DIR"
FOLDER = "lamina-code-1"  # the number is that of this layout
INNER, ENTRY = r"[0-9a-f]{2}", r"[0-9a-f]{38}\.code"  # the names in the folder, and in those in it
# A file of this name with this beginning says that a folder is a cache (https://bford.info/cachedir): backups
# leave it out, and `trim` touches no folder that lacks it.
TAG, SIGNATURE = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\n"
MAGIC = b"lamina1\n"
DIGEST = 32  # bytes of BLAKE2b, after the magic
LIMIT = 1 << 30  # bytes on disk; the entries that were not used for longest go first
HELD = 512  # entries that the process itself keeps


def key(*parts: str | bytes) -> str:
    """A name for what is made from these parts and nothing else."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """Bytes by key.  All methods are safe for threads.

    directory: None keeps them in the process alone.  chosen: the user named it, and is told if it is no use.
    """

    def __init__(self, directory: Path | None, limit: int = LIMIT, held: int = HELD, chosen: bool = False):
        self.directory, self.limit, self.held = directory, limit, held
        self._folder = None if directory is None else directory / FOLDER
        self._is_writable, self._chosen = True, chosen
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
        if self._folder is None or not self._is_writable:
            return
        try:
            self._write(self._folder, name, data)
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:  # as below
                raise
            self._is_writable = False  # or each entry would wait for the disk to refuse it
            if self._chosen:
                warn_once(f"{self.directory} takes no files: {error.strerror or error}")
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
            remove(str(path))

    def _path(self, name: str) -> Path | None:
        return self._folder and self._folder / name[:2] / f"{name[2:]}.code"

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
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.getuid():
                    return None
                raw = file.read()
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:  # a signal's handler raised it
                raise
            return None
        start = len(MAGIC) + DIGEST
        data = raw[start:]
        if raw[:start] != MAGIC + _digest(name, data):
            remove(str(path))
            return None
        if time.time() - status.st_mtime > DAY:
            try:
                os.utime(path)
            except OSError:
                pass  # read-only: it ages
        return data

    def _write(self, folder: Path, name: str, data: bytes) -> None:
        """Write an entry.  Raises OSError where that can't be, a folder of another user's included."""
        _make_own(folder.parent, parents=True)
        if _make_own(folder) or not os.path.lexists(folder / TAG):
            with open(folder / TAG, "wb") as file:
                file.write(SIGNATURE + b"# Compiled code, which Lamina makes anew if it is gone.\n")
        path = folder / name[:2] / f"{name[2:]}.code"
        _make_own(path.parent)
        temporary = temporary_beside(str(path))
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(MAGIC + _digest(name, data) + data)
            os.replace(temporary, path)
        except BaseException:
            remove(temporary)
            raise

    def trim(self) -> None:
        """Remove what was not used for longest until the entries are below their limit, and leftovers."""
        if self._folder is None or not _is_tagged(self._folder):
            return
        entries, total = [], 0
        for folder in _own_folders(self._folder):
            remove_parts(folder, ENTRY)
            for path, status in own_files(folder, ENTRY):
                entries.append((status.st_mtime, status.st_size, path))
                total += status.st_size
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            remove(path)
            total -= size


def _make_own(folder: Path, parents: bool = False) -> bool:
    """Make a folder, if it is not there; whether it was not.  Raises OSError unless it is this user's."""
    try:
        folder.mkdir(mode=0o700, parents=parents)
        return True
    except FileExistsError:
        status = folder.stat() if parents else folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is no folder") from None
        if status.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "it belongs to another user") from None
        return False


def _is_tagged(folder: Path) -> bool:
    """Whether a folder was made by `Cache`, and is no link to one."""
    try:
        with open(folder / TAG, "rb") as file:
            return stat.S_ISDIR(folder.lstat().st_mode) and file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def _own_folders(folder: Path) -> list[str]:
    """The folders of entries."""
    try:
        with os.scandir(folder) as inner:
            return [e.path for e in inner if re.fullmatch(INNER, e.name) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _digest(name: str, data: bytes) -> bytes:
    """Of the entry with its name: an entry under a wrong name is a damaged one."""
    return hashlib.blake2b(name.encode() + b"\n" + data, digest_size=DIGEST).digest()


def folder() -> Path | None:
    """Where the environment says that the cache is.  None: nowhere, or at a place that can't be."""
    chosen = os.environ.get(VARIABLE)
    try:
        if chosen is not None:
            return Path(chosen).expanduser().absolute() if chosen else None
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return base.absolute() / "lamina" / __version__
    except (RuntimeError, OSError) as error:  # nobody's home, or a relative path begins nowhere
        if chosen:
            warn_once(f"{chosen} is no folder: {error}")
        return None


_warned = False


def warn_once(what: str) -> None:
    """Say that the folder which the variable names is of no use, once in a process."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"{VARIABLE}: {what}. Compiled code is not kept.", RuntimeWarning, stacklevel=3)


_default: Cache | None = None
_making = fork_safe_lock()


def default() -> Cache:
    """The process's cache, in the folder that the environment named when it was first asked for."""
    global _default
    if _default is None:
        with _making:
            _default = _default or Cache(folder(), chosen=VARIABLE in os.environ)
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
