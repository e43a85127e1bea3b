"""Files that take another's place once they are whole, and removal of those that a killed process left.

A file is written under a name of its own, `.NAME.<12 hex digits>.part`, and renamed.  Who is killed in the
middle leaves it behind; the next one that replaces a file in the folder removes it when it is a day old.
Nothing here removes what has not exactly such a name, is no regular file, is a link, or is another user's.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

DAY = 86_400  # seconds
LONGEST = 200  # characters of a name that its temporary one repeats: names end at 255
ANY = rf"(?s:.{{1,{LONGEST}}})"  # name


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once it is complete and on the disk, and not before.

    A pipe or a device is written as it stands.
    """
    path = os.fsdecode(path)
    if not is_replaceable(path):  # asked of the name as it is given: a pipe behind /dev/stdout has no other
        with open(path, "wb") as file:
            yield file
        return
    path = os.path.realpath(path)  # write what a link points at, not over the link
    folder = os.path.dirname(path)
    temporary = temporary_beside(path)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    remove_parts(folder, ANY)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)  # the new name, too, is on the disk
    finally:
        os.close(directory)


def temporary_beside(path: str) -> str:
    """A fresh name beside a path, for what is to take its place."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:LONGEST]}.{os.urandom(6).hex()}.part")


def is_replaceable(path: str) -> bool:
    """Whether a file may take this place: nothing is there, or a regular file."""
    return not os.path.exists(path) or stat.S_ISREG(os.stat(path).st_mode)


def remove(path: str) -> None:
    """Remove a file, if that is possible."""
    try:
        os.unlink(path)
    except OSError:
        pass  # gone already, or not ours to remove


def remove_parts(folder: str, name: str) -> None:
    """Remove what writers of files named so (a regular expression) left here more than a day ago."""
    now = time.time()
    for path, status in own_files(folder, rf"\.{name}\.[0-9a-f]{{12}}\.part"):
        if now - status.st_mtime > DAY:
            remove(path)


def own_files(folder: str, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """This user's regular files in a folder whose whole names match a regular expression."""
    try:
        with os.scandir(folder) as entries:
            named = [entry for entry in entries if re.fullmatch(name, entry.name)]
    except OSError:
        return
    for entry in named:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # another process removed it
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
            yield entry.path, status
