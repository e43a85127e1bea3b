"""FileStore: a store in a file that all processes see."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
import zlib
from typing import Any

from ..ir.errors import ArgumentValueError, DistributedError
from .store import Store, waited
from .store_table import CHANGES, FRAME, HEAD, Op, Request, Table, packed, request_of

_HEADER = b"Lamina store file 1\n"
_CHECK = 4  # bytes of a checksum ahead of each request
LOOKS, LONGEST = 1e-3, 0.05  # seconds between two looks at the file, at first and at last


class FileStore(Store):
    """Values by key, in a file of all requests so far; each process does them again on a table of its own.

    A file that is not there, or empty, is a new store.  world_size: once as many stores were made of it and
    all are let go of, the last one removes the file; it stays where that is not said, or one was killed.
    Requests are written under a lock and with a checksum; what a killed process wrote in part is cut off.

    Raises DistributedError for a file that is none of a store.
    """

    def __init__(self, file_name: str | os.PathLike, world_size: int = -1, timeout: Any = None):
        super().__init__(timeout)
        if not isinstance(file_name, (str, os.PathLike)) or not os.fspath(file_name):
            raise ArgumentValueError(f"FileStore(file_name): a path, not {file_name!r}")
        self._log = _Log(os.path.abspath(os.fspath(file_name)))
        self._log.ask(Request(Op.JOIN, [], []))
        weakref.finalize(self, _leave, self._log, world_size, os.getpid())

    @property
    def path(self) -> str:
        """The file."""
        return self._log.path

    def ask(self, request: Request, limit: float) -> list[bytes] | None:
        pause = LOOKS

        def rest(left: float) -> None:
            nonlocal pause
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST)

        return waited(lambda: self._log.ask(request), limit, rest)

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"


class _Log:
    """A file of requests and the table that they make.  done: the bytes of it that are in the table."""

    def __init__(self, path: str):
        self.path = path
        self._start((0, 0))

    def _start(self, identity: tuple[int, int]) -> None:
        self.table, self.done, self._identity = Table(), 0, identity

    def ask(self, request: Request) -> list[bytes] | None:
        """Do a request, on the file too where it changes anything.  Other threads and processes wait.

        Raises DistributedError.
        """
        fd = self._locked()
        try:
            self._catch_up(fd)
            answer = self.table.answer(request)
            if answer is not None and request.op in CHANGES:
                self._write(fd, request)
            return answer
        except OSError as error:
            self._start((0, 0))  # the table may be ahead of the file
            raise DistributedError(f"FileStore({self.path!r}): {error.strerror or error}") from None
        finally:
            os.close(fd)  # which unlocks it

    def _locked(self) -> int:
        """The file, locked, and surely the one that has the name."""
        while True:
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise DistributedError(
                    f"FileStore({self.path!r}): {error.strerror}", "name a file that can be made"
                ) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                here, named = os.fstat(fd), os.stat(self.path)
            except FileNotFoundError:
                os.close(fd)  # the last of an earlier job removed it meanwhile
                continue
            except BaseException:
                os.close(fd)
                raise
            if (here.st_dev, here.st_ino) == (named.st_dev, named.st_ino):
                if (here.st_dev, here.st_ino) != self._identity or here.st_size < self.done:
                    self._start((here.st_dev, here.st_ino))
                return fd
            os.close(fd)

    def _catch_up(self, fd: int) -> None:
        """Do what others wrote; cut off what a process that was killed wrote in part."""
        if not self.done:
            begin = os.pread(fd, len(_HEADER), 0)
            if not begin:
                _write_all(fd, _HEADER, 0)
            elif begin != _HEADER:
                raise DistributedError(
                    f"FileStore({self.path!r}): this file is none of a store",
                    "name one that is not there yet",
                )
            self.done = len(_HEADER)
        while head := os.pread(fd, _CHECK + HEAD.size, self.done):
            length = int.from_bytes(head[_CHECK : _CHECK + 4], "big")
            whole = 4 + length
            if len(head) < _CHECK + HEAD.size or not HEAD.size <= whole <= FRAME + 4:
                break
            data = _read_all(fd, whole, self.done + _CHECK)
            if len(data) < whole or zlib.crc32(data).to_bytes(4, "big") != head[:_CHECK]:
                break
            try:
                self.table.answer(request_of(data[4:]))
            except ValueError:
                break
            self.done += _CHECK + whole
        if head:
            os.ftruncate(fd, self.done)

    def _write(self, fd: int, request: Request) -> None:
        data = packed(request.op, request.keys, request.values)
        _write_all(fd, zlib.crc32(data).to_bytes(4, "big") + data, self.done)
        self.done += _CHECK + len(data)


def _read_all(fd: int, size: int, at: int) -> bytes:
    parts = bytearray()
    while len(parts) < size and (more := os.pread(fd, size - len(parts), at + len(parts))):
        parts += more
    return bytes(parts)


def _write_all(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


def _leave(log: _Log, world_size: int, process: int) -> None:
    """Say that a FileStore was let go of, and remove the file after the last; not in a forked child."""
    if os.getpid() != process:
        return
    try:
        answer = log.ask(Request(Op.LEAVE, [], []))
        joined, left = map(int, (answer or [b"1 0"])[0].split())
        if world_size > 0 and left >= max(world_size, joined):
            os.unlink(log.path)
    except (DistributedError, OSError):  # it is gone already, or its folder
        pass
