"""Write what ranks say to the launcher's own two streams, line by line."""

from __future__ import annotations

import os
import time

from . import frames

# Seconds that the beginning of a line waits for its end: a progress bar is shown, and the lines of ranks that
# write at once stay whole.
PATIENCE = 0.15
MOST = 1 << 16  # bytes of a line that wait


class Console:
    """The launcher's streams.

    Bytes of one rank and stream come out as they were, in their order; those of several take turns line by
    line.  tag: put the rank before each line.  A piece of a line that another rank's line comes behind is
    ended by a newline where lines are tagged, and left as it is where not.
    """

    def __init__(self, tag: bool = False, out: int = 1, error: int = 2):
        self._tag, self._targets = tag, {frames.OUT: out, frames.ERROR: error}
        self._held: dict[tuple[bytes, int], tuple[bytes, float]] = {}
        self._open: dict[int, tuple[bytes, int]] = {}  # whose beginning of a line stands at a target's end
        self._last: dict[int, dict[bytes, tuple[float, bytes]]] = {}
        self.written = time.monotonic()  # when a rank last wrote anything

    def add(self, kind: bytes, rank: int, data: bytes) -> None:
        """Take what a rank wrote.  Raises OSError where nobody reads it."""
        self.written = time.monotonic()
        held, since = self._held.pop((kind, rank), (b"", self.written))
        whole, newline, rest = (held + data).rpartition(b"\n")
        if newline:
            self._write(kind, rank, whole + newline)
            self._note(kind, rank, whole)
            since = self.written
        if len(rest) > MOST:
            self._write(kind, rank, rest)
            self._note(kind, rank, rest)
        elif rest:
            self._held[kind, rank] = rest, since

    def settle(self, everything: bool = False) -> float | None:
        """Write beginnings of lines that waited long enough.  Returns how long the next has to wait."""
        now = time.monotonic()
        for key, (data, since) in list(self._held.items()):
            if everything or now - since >= PATIENCE:
                del self._held[key]
                self._write(*key, data)
                self._note(*key, data)
        return PATIENCE if self._held else None

    def last_line(self, rank: int, kind: bytes | None = None) -> str:
        """The last line with something on it that a rank wrote, to either stream unless one is named."""
        kept = self._last.get(rank, {})
        lines = [kept[k] for k in (frames.OUT, frames.ERROR) if k in kept and kind in (None, k)]
        return max(lines)[1].decode(errors="backslashreplace").strip() if lines else ""

    def _note(self, kind: bytes, rank: int, data: bytes) -> None:
        line = data[-4096:].replace(b"\r", b"\n").rstrip().rpartition(b"\n")[2]
        if line:
            self._last.setdefault(rank, {})[kind] = (self.written, line[-400:])

    def _write(self, kind: bytes, rank: int, data: bytes) -> None:
        target = self._targets[kind]
        if self._tag:
            data = self._tagged(target, (kind, rank), data)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]

    def _tagged(self, target: int, who: tuple[bytes, int], data: bytes) -> bytes:
        tag = b"[%d] " % who[1]
        begun = self._open.pop(target, None)
        if not data.endswith(b"\n"):
            self._open[target] = who
        lines = data.splitlines(keepends=True) if b"\r" not in data else _lines(data)
        start = b"" if begun == who else tag if begun is None else b"\n" + tag
        return start + tag.join(lines)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends, of which `\\r` is none."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
