"""What a save does to the disk: a folder of its own, files that are on the disk, one rename; and sweeping.

A checkpoint NAME is a folder with the index and files of safetensors.  A save writes into a fresh folder
beside it, or inside where NAME is there already, whose lock file it holds:

    .NAME.tmp-ID  .NAME.tmp-ID.lock     NAME is not there: the folder is renamed to NAME
    NAME/.tmp-ID  NAME/.tmp-ID.lock     it is: the files move up, then the index replaces the one before

Either is one rename, so whoever is killed at any moment leaves what was there whole.  What a killed save
leaves is removed by the next one in that place.  The system gives a dead process's lock free; where a file
system has no locks, the file says who held it.  A lock of another machine is besides left for a day.

Nothing here removes what is not named so, is not this user's, or whose lock file is none of Lamina's.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterable
from typing import Any

from ...ir.errors import ArgumentValueError
from .failures import CheckpointException, DamagedCheckpointError
from .index_text import FILE, MOST_INDEX, identity_of

INDEX = "checkpoint.json"
DAY = 86_400  # seconds
LONGEST = 200  # characters of a name that its temporary folder repeats: names end at 255
OURS = "a save of Lamina's holds this lock"
TEMPORARY = rf"\.(?:(?s:.{{1,{LONGEST}}})\.)?tmp-([0-9a-f]{{12}})"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


# ---- files -------------------------------------------------------------------------------------------------
def write_file(path: str, pieces: Iterable[bytes | memoryview], sync: bool) -> int:
    """Write a file that is not there yet; how many bytes it has.  Raises OSError."""
    handle, size = os.open(path, FRESH, 0o666), 0
    try:
        for piece in pieces:
            left = memoryview(piece)
            size += len(left)
            while len(left):
                left = left[os.write(handle, left) :]
        if sync:
            os.fsync(handle)
    except BaseException:
        _closed(handle)
        raise
    os.close(handle)  # which may say, too, that something was not written
    return size


def _closed(handle: int) -> None:
    try:
        os.close(handle)
    except OSError:
        pass  # what went wrong before is what is told


def sync_folder(path: str) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


Stamp = tuple[int, int, int, int]  # device, inode, size, nanosecond of the last change


class Opened:
    """A file of a checkpoint, open for reading: regular, in its folder, of the size that it must have.

    Raises DamagedCheckpointError where it is not, or became shorter.
    """

    def __init__(self, folder: str, file: str, size: int | None = None):
        self.path = os.path.join(folder, file)
        try:
            self.handle = os.open(self.path, READ)
        except (FileNotFoundError, NotADirectoryError):
            raise DamagedCheckpointError(f"load(): the checkpoint {folder} has no file {file}") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise self._other() from None
            raise DamagedCheckpointError(f"load(): {self.path} can't be read: {error.strerror}") from error
        status = os.fstat(self.handle)
        self.size = status.st_size
        self.stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            _closed(self.handle)
            raise self._other()
        if size not in (None, self.size):
            _closed(self.handle)
            raise DamagedCheckpointError(
                f"load(): {self.path} has {self.size} bytes, and was saved with {size}"
            )

    def _other(self) -> DamagedCheckpointError:
        return DamagedCheckpointError(
            f"load(): {self.path} is a link, a pipe or a device, and no file of a save"
        )

    def fill(self, begin: int, into: memoryview) -> None:
        """Read bytes from a place on."""
        done = 0
        while done < len(into):
            try:
                count = os.preadv(self.handle, [into[done:]], begin + done)
            except OSError as error:
                raise DamagedCheckpointError(
                    f"load(): {self.path} can't be read: {error.strerror}"
                ) from error
            if not count:
                raise DamagedCheckpointError(f"load(): {self.path} became shorter while it was read")
            done += count

    def close(self) -> None:
        _closed(self.handle)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def read_index(folder: str) -> bytes:
    """The text of the index.  Raises DamagedCheckpointError."""
    with Opened(folder, INDEX) as file:
        if file.size > MOST_INDEX:
            raise DamagedCheckpointError(
                f"load(): {file.path} has {file.size} bytes, of {MOST_INDEX} at most"
            )
        data = bytearray(file.size)
        file.fill(0, memoryview(data))
    return bytes(data)


def committed(folder: str) -> str | None:
    """Which save wrote what is in a folder; None where there is no index.  Raises DamagedCheckpointError."""
    if not os.path.lexists(os.path.join(folder, INDEX)):
        return None
    with Opened(folder, INDEX) as file:
        start = bytearray(min(file.size, 256))
        file.fill(0, memoryview(start))
    identity = identity_of(bytes(start))
    if identity is None:
        raise DamagedCheckpointError(f"{file.path} is none of Lamina's")
    return identity


# ---- a save ------------------------------------------------------------------------------------------------
class Scratch:
    """The folder that a save writes into, and the lock that says that it is alive.

    Invariant: until `commit` returns, or `abandon`, the lock is held.
    """

    def __init__(self, target: str, overwrite: bool, sync: bool):
        self.target, self.sync = os.path.realpath(target), sync
        self._handle: int | None = None
        parent, name = os.path.split(self.target)
        self.inside = os.path.isdir(self.target)
        if self.inside:
            self._require_ours(overwrite)
        elif os.path.lexists(self.target):
            raise ArgumentValueError(
                f"save(): {target} is no folder", "name one that is, or that is not there"
            )
        self.parent = self.target if self.inside else parent
        _make_folders(self.parent, sync)
        sweep(self.parent)
        start = "" if self.inside else f".{name[:LONGEST]}"
        while self._handle is None:
            self.identity = os.urandom(6).hex()
            self.folder = os.path.join(self.parent, f"{start}.tmp-{self.identity}")
            self._handle = _locked(f"{self.folder}.lock")
        try:
            os.mkdir(self.folder)
        except BaseException:
            self.abandon()
            raise

    def _require_ours(self, overwrite: bool) -> None:
        try:
            before = committed(self.target)
        except DamagedCheckpointError:
            raise ArgumentValueError(
                f"save(): {self.target} holds a {INDEX} that no save of Lamina's wrote", "name another folder"
            ) from None
        if before is not None and not overwrite:
            raise ArgumentValueError(
                f"save(): {self.target} holds a checkpoint already", "name another folder, or overwrite=True"
            )

    def commit(self, index: bytes, files: Iterable[str]) -> None:
        """Write the index and put all in place: what was there before is whole until the one rename."""
        write_file(os.path.join(self.folder, INDEX), [index], self.sync)
        if self.sync:
            sync_folder(self.folder)
        if self.inside:
            for file in files:
                os.rename(os.path.join(self.folder, file), os.path.join(self.target, file))
            if self.sync:
                sync_folder(self.target)
            os.replace(os.path.join(self.folder, INDEX), os.path.join(self.target, INDEX))
        else:
            os.rename(self.folder, self.target)
        if self.sync:
            sync_folder(self.parent)
        self._end()
        if self.inside:
            remove_others(self.target)

    def abandon(self) -> None:
        """Remove what was written, but what is in place already."""
        if self.inside:
            try:
                done = committed(self.target) == self.identity
            except (OSError, DamagedCheckpointError):
                done = True  # it can't be told: the next save looks again
            if not done:
                _remove_files(self.target, self.identity)
        self._end()

    def _end(self) -> None:
        _remove_folder(self.folder, self.identity)
        _removed(os.unlink, f"{self.folder}.lock")
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _closed(handle)


def _make_folders(path: str, sync: bool) -> None:
    above, missing = path, []
    while not os.path.isdir(above):
        above = os.path.dirname(above)
        missing.append(above)
    os.makedirs(path, exist_ok=True)
    for each in missing if sync else ():
        sync_folder(each)  # a checkpoint is no safer than the names of the folders above it


def _locked(path: str) -> int | None:
    """Make a lock file and hold it; None where a sweep took it in between.  Raises OSError."""
    handle = os.open(path, FRESH, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            _abandoned(path, handle)
            raise
    except BaseException:
        _abandoned(path, handle)
        raise
    try:
        text = json.dumps({"about": OURS, "host": host(), "pid": os.getpid()}).encode()
        if os.write(handle, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(handle)):
            return handle
    except BaseException:
        _abandoned(path, handle)
        raise
    os.close(handle)
    return None


def _abandoned(path: str, handle: int) -> None:
    _removed(os.unlink, path)
    _closed(handle)


def host() -> str:
    """This machine, and among which processes a number of one means something."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


# ---- what others left --------------------------------------------------------------------------------------
def sweep(folder: str) -> None:
    """Remove what saves that were killed have left in a folder.  Failing to is no error."""
    for name in _names(folder):
        found = re.fullmatch(TEMPORARY + r"\.lock", name)
        if found:
            path = os.path.join(folder, name)
            handle = _taken(path)
            if handle is not None:
                _remove_folder(path.removesuffix(".lock"), found[1])
                _removed(os.unlink, path)
                _closed(handle)


def _taken(path: str) -> int | None:
    """The lock file of a save that is dead, held; None of one that lives, or may, or is none of ours."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if _is_dead(handle):
            return handle
    except OSError:
        pass
    _closed(handle)
    return None


def _is_dead(handle: int) -> bool:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
        return False
    locks = True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            return False
        locks = False
    old = time.time() - status.st_mtime > DAY
    text = os.pread(handle, 1000, 0)
    if not text:  # killed before it could write
        return locks or old
    try:
        found = json.loads(text)
        about, where, pid = found["about"], found["host"], found["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if about != OURS or type(pid) is not int or pid <= 0:
        return False
    if where != host():
        return old
    return locks or not os.path.exists(f"/proc/{pid}")


def remove_others(folder: str) -> None:
    """Remove files of saves other than the one whose index is here, but of those that are alive."""
    names = _names(folder)
    identities = {name[:12] for name in names if re.fullmatch(FILE, name)}
    # The index is asked last: who is no longer alive has put its own here before, or never will.
    identities = {
        each for each in identities if not os.path.lexists(os.path.join(folder, f".tmp-{each}.lock"))
    }
    try:
        here = committed(folder)
    except (OSError, DamagedCheckpointError):
        return
    for identity in identities - {here}:
        _remove_files(folder, identity)


def remove_checkpoint(folder: str) -> None:
    """Remove a checkpoint: first its index, so that a part of it is never taken for the whole.

    What no save wrote stays, with the folder.  Raises OSError where the index can't be removed.
    """
    if committed(folder) is not None:
        os.unlink(os.path.join(folder, INDEX))
    for name in _names(folder):
        if re.fullmatch(FILE, name):
            _removed(os.unlink, os.path.join(folder, name))
    _removed(os.rmdir, folder)


def _remove_folder(folder: str, identity: str) -> None:
    if stat.S_ISDIR(_mode(folder)):  # of a link, nothing behind it
        _remove_files(folder, identity)
        _removed(os.unlink, os.path.join(folder, INDEX))
        _removed(os.rmdir, folder)


def _remove_files(folder: str, identity: str) -> None:
    for name in _names(folder):
        if re.fullmatch(FILE, name) and name.startswith(identity):
            _removed(os.unlink, os.path.join(folder, name))


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _removed(remove: Any, path: str) -> None:
    try:
        remove(path)
    except OSError:
        pass  # gone already, or not ours to remove


def told(error: OSError, target: str) -> CheckpointException:
    """What a save says that the system refused something."""
    where = f" ({error.filename})" if error.filename else ""
    remedy = {
        errno.ENOSPC: "make room, or save to another disk",
        errno.EDQUOT: "make room, or save elsewhere: the quota is used up",
        errno.EACCES: "save where you may write",
        errno.EPERM: "save where you may write",
        errno.EROFS: "save to a disk that is not mounted for reading alone",
    }
    known = remedy.get(error.errno or 0)
    return CheckpointException(
        f"save(): {target} could not be written: {error.strerror or error}{where}",
        "what was saved before is as it was",
        *([known] if known else []),
    )
