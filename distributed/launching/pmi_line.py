"""A rank's line to MPI's launcher (PMI), by way of its watcher.

MPICH's and Slurm's launchers give each rank a socket, of the number PMI_FD, by which ranks find each other.
When it is closed too early, or says that the rank aborts, they kill all ranks at once, and what those were
about to say is lost.  Through the watcher it stays open until the launcher has been told what happened, and
an abort goes no further.  Only the standard library is used here: a watcher does not load Lamina.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

NAME = "PMI_FD"
READ = 1 << 16
# As both versions of the protocol begin the message; the second has its length in six digits before it.
_ABORT = re.compile(rb"(?:^|\n)[ \d]{0,6}cmd=abort\b(?:.*?\bexitcode=(-?\d+))?")


class PmiLine:
    """Both halves: `server`, to MPI's launcher, and `rank`, to the rank; `rank_end` is what the rank gets.

    Each is -1 once it is closed, and all are where there is no such line.  aborted: the status that the rank
    gave to MPI_Abort, once it has.
    """

    def __init__(self, environ: Mapping[str, str]):
        self.server = int(environ.get(NAME, "-1"))
        self.rank = self.rank_end = -1
        self.aborted: int | None = None
        if self.server >= 0:
            ours, theirs = socket.socketpair()
            self.rank, self.rank_end = ours.detach(), theirs.detach()

    def open_ends(self) -> list[int]:
        """The descriptors to read from."""
        return [fd for fd in (self.server, self.rank) if fd >= 0] if self.rank >= 0 else []

    def serve(self, fd: int) -> None:
        """Hand on what one side says."""
        data, other = _read(fd), self.rank if fd == self.server else self.server
        if fd == self.rank and (abort := _ABORT.search(data)):
            self.aborted = int(abort[1] or 1)
        elif data and other >= 0:
            _write(other, data)
        elif not data and fd == self.rank:
            os.close(self.rank)
            self.rank = -1  # the other half stays until the watcher ends
        elif not data:
            os.close(self.server)
            self.server = -1
            if self.rank >= 0:  # the rank is to know, too
                os.close(self.rank)
                self.rank = -1


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ)
    except ConnectionError:
        return b""


def _write(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:  # closed meanwhile, as reading will tell
        pass
