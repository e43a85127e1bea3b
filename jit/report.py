"""What `explain()` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .recording import Recording


class Log:
    """Counts what happened to a traced function."""

    def __init__(self, name: str):
        self.name = name
        self.recordings: list[str] = []
        self.hits = 0
        self.seconds = 0.0
        self.compile_seconds = 0.0
        self.waiting = 0
        self.reasons: Counter[str] = Counter()
        self.misses: list[str] = []

    def recorded(self, recording: Recording, seconds: float) -> None:
        parts = [counted(sum(recording.ops.values()), "op"), counted(len(recording.sources), "input")]
        parts.append(f"{seconds * 1e3:.1f} ms")
        if recording.questions:
            parts.append(f"{counted(len(recording.questions), 'value')} asked for")
        if recording.written:
            parts.append(f"{counted(len(recording.written), 'tensor')} written")
        if recording.live:
            parts.append("outputs with a history")
        self.recordings.append(", ".join(parts))

    def once(self, reason: str, seconds: float) -> None:
        self.recordings.append(f"not kept: {reason} ({seconds * 1e3:.1f} ms)")

    def compiled(self, seconds: float) -> None:
        self.compile_seconds += seconds

    def hit(self, seconds: float) -> None:
        self.hits += 1
        self.seconds += seconds

    def miss(self, reason: str) -> None:
        self.misses.append(reason)
        del self.misses[:-64]

    def eager(self, reason: str) -> None:
        self.reasons[reason] += 1

    def refused(self, reason: str) -> None:
        self.recordings.append(f"refused: {reason}")

    def summary(self) -> str:
        calls = f"{counted(self.hits, 'compiled call')}, {counted(self.reasons.total(), 'eager call')}"
        return f"{counted(len(self.recordings), 'recording')}, {calls}"

    def text(self, segments: Sequence[Any]) -> str:
        """The whole report."""
        lines = [f"{self.name}: {self.summary()}"]
        lines += [f"  recording {i}: {what}" for i, what in enumerate(self.recordings, 1)]
        lines += [f"  miss: {reason}" for reason in dict.fromkeys(self.misses)]
        lines += [f"  eager, {counted(count, 'call')}: {reason}" for reason, count in self.reasons.items()]
        if self.waiting:
            lines.append(
                f"  eager while another thread recorded or compiled: {counted(self.waiting, 'call')}"
            )
        codes = [segment.code for segment in segments if segment.code is not None]
        kernels = sum(len(code.kernels()) for code in codes)
        lines.append(f"  {counted(len(segments), 'segment')}, {counted(kernels, 'kernel')}")
        lines.append(f"  compiled in {self.compile_seconds * 1e3:.1f} ms")
        if self.hits:
            lines.append(f"  a compiled call took {self.seconds / self.hits * 1e6:.1f} us on average")
        return "\n".join(lines)


def counted(number: int, what: str) -> str:
    """A number of things: 1 call, 2 calls."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
