"""Files of a checkpoint: written until they are on the disk, opened as what anybody may have put there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Any

from .failures import CheckpointException, DamagedCheckpointError
from .index_text import MOST_INDEX, identity_of

INDEX = "checkpoint.json"
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
OF_DISK = (errno.EIO, errno.ESTALE, errno.EBADMSG, errno.EUCLEAN)
FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


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
        closed(handle)
        raise
    os.close(handle)  # which may say, too, that something was not written
    return size


def closed(handle: int) -> None:
    """Close what something went wrong with before, which is what is told."""
    try:
        os.close(handle)
    except OSError:
        pass


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

    Raises DamagedCheckpointError where it is not, or became shorter; CheckpointException where it may not be
    read.
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
            raise self._unread(error) from error
        status = os.fstat(self.handle)
        self.size = status.st_size
        self.stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            closed(self.handle)
            raise self._other()
        if size not in (None, self.size):
            closed(self.handle)
            raise DamagedCheckpointError(
                f"load(): {self.path} has {self.size} bytes, and was saved with {size}"
            )

    def _unread(self, error: OSError) -> CheckpointException:
        """What says that the system refused to read: another checkpoint may do only where the disk is why."""
        kind = DamagedCheckpointError if error.errno in OF_DISK else CheckpointException
        return kind(f"load(): {self.path} can't be read: {error.strerror}")

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
                raise self._unread(error) from error
            if not count:
                raise DamagedCheckpointError(f"load(): {self.path} became shorter while it was read")
            done += count

    def close(self) -> None:
        closed(self.handle)

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
