"""What a save does to the disk: a folder of its own, a lock that says that it is alive, and one rename.

A checkpoint NAME is a folder with the index and files of safetensors.  A save writes into a fresh folder
beside it, or inside where NAME is there already, whose lock file it holds:

    .NAME.tmp-ID  .NAME.tmp-ID.lock     NAME is not there: the folder is renamed to NAME
    NAME/.tmp-ID  NAME/.tmp-ID.lock     it is: the files move up, then the index replaces the one before

Either is one rename, so whoever is killed at any moment leaves what was there whole.  What a killed save
leaves is removed by the next one in that place (leftovers.py).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable

from ...ir.errors import ArgumentValueError
from .disk import FRESH, INDEX, closed, committed, sync_folder, write_file
from .failures import DamagedCheckpointError
from .leftovers import (
    LONGEST,
    NO_LOCKS,
    OURS,
    host,
    remove_files,
    remove_folder,
    remove_others,
    removed,
    sweep,
)


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
        for folder in {parent, self.parent}:
            sweep(folder)
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
                remove_files(self.target, self.identity)
        self._end()

    def _end(self) -> None:
        remove_folder(self.folder, self.identity)
        if not os.path.lexists(self.folder):  # else the lock says whose that is, to who sweeps it
            removed(os.unlink, f"{self.folder}.lock")
        if self._handle is not None:
            handle, self._handle = self._handle, None
            closed(handle)


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
    removed(os.unlink, path)
    closed(handle)
