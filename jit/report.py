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
        ops = sum(recording.ops.values())
        parts = [f"{ops} ops", f"{len(recording.sources)} inputs", f"{seconds * 1e3:.1f} ms"]
        if recording.questions:
            parts.append(f"{len(recording.questions)} values asked for")
        if recording.written:
            parts.append(f"{len(recording.written)} tensors written")
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
        return f"{len(self.recordings)} recordings, {self.hits} compiled calls, {self.reasons.total()} eager"

    def text(self, segments: Sequence[Any]) -> str:
        """The whole report."""
        lines = [f"{self.name}: {self.summary()}"]
        lines += [f"  recording {i}: {what}" for i, what in enumerate(self.recordings, 1)]
        lines += [f"  miss: {reason}" for reason in dict.fromkeys(self.misses)]
        lines += [f"  eager, {count} calls: {reason}" for reason, count in self.reasons.items()]
        if self.waiting:
            lines.append(f"  eager while recording or compiling: {self.waiting} calls")
        kernels = sum(len(s.code.kernels()) for s in segments if s.code is not None)
        lines.append(f"  segments: {len(segments)}, kernels: {kernels}")
        lines.append(f"  compiled in {self.compile_seconds * 1e3:.1f} ms")
        if self.hits:
            lines.append(f"  a compiled call took {self.seconds / self.hits * 1e6:.1f} us on average")
        return "\n".join(lines)
