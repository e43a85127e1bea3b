"""What the ranks of one machine tell each other beside MPI: which collective each is at, and who lives.

A board is shared memory of MPI's, with a part for each rank that it alone writes.  Ahead of a collective a
rank notes there what it is about to do, and looks at what the others noted for the same: who is at another
one can never meet it, and MPI would hang or give garbage.  Who waits long looks again, and whether the others
run.  A note is written and read without a lock: the count, which makes it valid, is written last.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
from collections.abc import Iterable
from functools import cache

from ..ir.errors import DistributedError

GROUPS, NOTE = 32, 256  # notes of a rank, one for each group; bytes of a note
PART = 64 + GROUPS * NOTE
_HEAD = struct.Struct("QQ")  # process, whether it has left
_NOTE = struct.Struct("QQQQ")  # what stands in a note ahead of its text, each at so many bytes:
GROUP_AT, FINGERPRINT_AT, LENGTH_AT, COUNT_AT, TEXT_AT = range(0, 40, 8)
_TEXT = NOTE - TEXT_AT


@cache
def note_of(text: str) -> tuple[int, bytes]:
    """What stands in a note for a text: its fingerprint, and as much of it as fits."""
    data = text.encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little"), data[:_TEXT]


class Board:
    """The notes of the ranks on one machine.

    memory: as many parts as ranks.  ranks: their numbers among all, in the order of their parts.
    """

    def __init__(self, memory: memoryview, ranks: tuple[int, ...], rank: int):
        self.memory, self.ranks, self.rank = memory, ranks, rank
        self.parts = {r: n * PART for n, r in enumerate(ranks)}
        self.own = self.parts[rank]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        memory[self.own : self.own + PART] = bytes(PART)
        _HEAD.pack_into(memory, self.own, os.getpid(), 0)

    def place(self, rank: int, group: int) -> int:
        """Where in the memory a rank's note for a group is."""
        return self.parts[rank] + 64 + group % GROUPS * NOTE

    def note(self, group: int, count: int, text: str) -> None:
        """Say that this rank comes to the collective `text`, the `count`-th of a group."""
        fingerprint, data = note_of(text)
        at = self.place(self.rank, group)
        _NOTE.pack_into(self.memory, at, group, fingerprint, len(data), 0)
        self.memory[at + TEXT_AT : at + TEXT_AT + len(data)] = data
        struct.pack_into("Q", self.memory, at + COUNT_AT, count)

    def read(self, rank: int, group: int) -> tuple[int, int, str] | None:
        """The count, fingerprint and text of what a rank noted last for a group; None where there is none."""
        at = self.place(rank, group)
        noted, fingerprint, length, count = _NOTE.unpack_from(self.memory, at)
        if noted != group or not count:
            return None
        text = bytes(self.memory[at + TEXT_AT : at + TEXT_AT + min(length, _TEXT)])
        if _NOTE.unpack_from(self.memory, at)[3] != count:
            return None  # it is being written
        return count, fingerprint, text.decode("utf-8", "replace")

    def compare(self, ranks: Iterable[int], group: int, count: int, text: str) -> None:
        """Raise DistributedError if one of these ranks noted another collective as the `count`-th."""
        fingerprint = note_of(text)[0]
        offset = 64 + group % GROUPS * NOTE
        for rank in ranks:
            noted, other, _, at = _NOTE.unpack_from(self.memory, self.parts[rank] + offset)
            if at == count and noted == group and other != fingerprint:
                known = self.read(rank, group)
                if known is not None and known[0] == count and known[1] != fingerprint:
                    raise DistributedError(
                        f"the ranks don't agree on collective {count} of their group",
                        f"rank {self.rank}: {text}",
                        f"rank {rank}: {known[2]}",
                        "every rank of a group calls the same collectives, in one order, with equal shapes",
                    )

    def have_come(self, ranks: Iterable[int], group: int, count: int) -> bool:
        """Whether each of these ranks has noted a group's `count`-th collective, or one after it."""
        offset = 64 + group % GROUPS * NOTE
        for rank in ranks:
            noted, _, _, at = _NOTE.unpack_from(self.memory, self.parts[rank] + offset)
            if noted != group or at < count:
                return False
        return True

    def leave(self) -> None:
        """Say that this rank meets nobody any more."""
        _HEAD.pack_into(self.memory, self.own, os.getpid(), 1)

    def trouble(self, rank: int) -> str | None:
        """Why a rank can't come: it has left, it is gone, or it is stopped."""
        process, left = _HEAD.unpack_from(self.memory, self.parts[rank])
        if left:
            return f"rank {rank} has ended its part (process {process})"
        state = _state(process)
        if state is None or state in "ZX":
            return f"rank {rank} is gone (process {process})"
        return f"rank {rank} is stopped (process {process})" if state in "Tt" else None

    def where(self, rank: int, group: int) -> str:
        """What a rank does, for people."""
        noted, trouble = self.read(rank, group), self.trouble(rank)
        at = "at no collective yet" if noted is None else f"at {noted[0]}: {noted[2]}"
        return f"{trouble}, {at}" if trouble else f"rank {rank} is {at}"


def _state(process: int) -> str | None:
    """A letter for what a process does, as /proc has it; None where there is none."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return None
