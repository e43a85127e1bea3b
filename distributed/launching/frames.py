"""What the watchers of ranks tell the launcher: lines in mpiexec's own output, which the launcher takes out.

A frame is one line of at most MOST bytes: MARK, a letter for its kind, the rank, a blank, what is said.
MPI's launchers hand on what a rank writes in pieces; a write of so few bytes arrives in one.
Only the standard library is used here: a watcher does not load Lamina.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

MARK = b"\x1eL"
MOST = 4096  # what a write into a pipe keeps in one piece (PIPE_BUF)
# Kinds: bytes of the rank's two streams; it was started; it still runs; it raised; it is stopped; it ended.
OUT, ERROR, STARTED, RUNNING, RAISED, STOPPED, ENDED = b"o", b"e", b"h", b"r", b"x", b"s", b"d"
LONGEST_TOLD = 1500  # characters of one text in a frame that is not a rank's output


class Frame(NamedTuple):
    """A frame that arrived: its kind, whose it is, and what it says."""

    kind: bytes
    rank: int
    data: bytes

    @property
    def told(self) -> dict[str, Any]:
        """What a frame says that is not a rank's output."""
        return json.loads(self.data)


def pack(kind: bytes, rank: int, data: bytes) -> Iterator[bytes]:
    """The lines that carry bytes.  None of them but the last ends inside of an escaped byte."""
    head = MARK + kind + b"%d " % rank
    room = MOST - len(head) - 1
    escaped = data.replace(b"\x1d", b"\x1da").replace(b"\n", b"\x1dn").replace(b"\r", b"\x1dr")
    at = 0
    while at < len(escaped):
        end = at + room
        if end < len(escaped) and escaped[end - 1 : end] == b"\x1d":
            end -= 1
        yield head + escaped[at:end] + b"\n"
        at = end


def tell(kind: bytes, rank: int, **facts: Any) -> bytes:
    """The line that carries facts, whose texts are cut where they are long."""
    for most in (LONGEST_TOLD, 300, 40):  # a character may take six bytes, and several texts be long
        short = {name: value[-most:] if isinstance(value, str) else value for name, value in facts.items()}
        line, *more = pack(kind, rank, json.dumps(short).encode())
        if not more:
            break
    return line


class Unpacker:
    """Takes frames out of a stream of bytes.  What is not one is noise, of mpiexec itself or of ssh."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame | bytes]:
        """The frames, and the lines that are none, which are now whole."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from _read(line)

    def close(self) -> Iterator[Frame | bytes]:
        """What is left at the end."""
        if self._rest:
            yield from _read(self._rest)
        self._rest = b""


def _read(line: bytes) -> Iterator[Frame | bytes]:
    at = line.find(MARK)
    if at:
        yield line if at < 0 else line[:at]
    if at < 0:
        return
    head, blank, data = line[at + len(MARK) :].partition(b" ")
    data = data.removesuffix(b"\r")  # of a terminal between
    if not (blank and head[1:].isdigit()):
        yield line[at:]
        return
    data = data.replace(b"\x1dn", b"\n").replace(b"\x1dr", b"\r").replace(b"\x1da", b"\x1d")
    yield Frame(head[:1], int(head[1:]), data)
