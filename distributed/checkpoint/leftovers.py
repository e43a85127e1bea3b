"""What saves that were killed have left: told from those that are alive, and removed.

The system gives the lock of a dead process free; where a file system has no locks, the lock file says who
held it.  A lock of another machine is besides left for a day.  Nothing here removes what is not named as a
save names it, is not this user's, or whose lock file is none of Lamina's.
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
from typing import Any

from .disk import INDEX, closed, committed
from .failures import DamagedCheckpointError
from .index_text import FILE

DAY = 86_400  # seconds
LONGEST = 200  # characters of a name that its temporary folder repeats: names end at 255
OURS = "a save of Lamina's holds this lock"
TEMPORARY = rf"\.(?:(?s:.{{1,{LONGEST}}})\.)?tmp-([0-9a-f]{{12}})"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def host() -> str:
    """This machine, and among which processes a number of one means something."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def sweep(folder: str) -> None:
    """Remove what saves that were killed have left in a folder.  Failing to is no error."""
    for name in _names(folder):
        found = re.fullmatch(TEMPORARY + r"\.lock", name)
        if found:
            path = os.path.join(folder, name)
            handle = _taken(path)
            if handle is not None:
                remove_folder(path.removesuffix(".lock"), found[1])
                if not os.path.lexists(path.removesuffix(".lock")):
                    removed(os.unlink, path)
                closed(handle)


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
    closed(handle)
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
        remove_files(folder, identity)


def remove_checkpoint(folder: str) -> None:
    """Remove a checkpoint: first its index, so that a part of it is never taken for the whole.

    What no save wrote stays, with the folder.  Raises OSError where the index can't be removed.
    """
    if committed(folder) is not None:
        os.unlink(os.path.join(folder, INDEX))
    for name in _names(folder):
        if re.fullmatch(FILE, name):
            removed(os.unlink, os.path.join(folder, name))
    removed(os.rmdir, folder)


def remove_folder(folder: str, identity: str) -> None:
    """Remove the folder of a save, with what it wrote."""
    if stat.S_ISDIR(_mode(folder)):  # of a link, nothing behind it
        remove_files(folder, identity)
        removed(os.unlink, os.path.join(folder, INDEX))
        removed(os.rmdir, folder)


def remove_files(folder: str, identity: str) -> None:
    """Remove the files of a save in a folder."""
    for name in _names(folder):
        if re.fullmatch(FILE, name) and name.startswith(identity):
            removed(os.unlink, os.path.join(folder, name))


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


def removed(remove: Any, path: str) -> None:
    """Remove a file or a folder, if that is possible."""
    try:
        remove(path)
    except OSError:
        pass  # gone already, or not ours to remove
