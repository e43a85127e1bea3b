"""What `explain()` says, and what LAMINA_LOG=trace prints as it happens."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from .recording import Recording

LONGEST = 64  # things of a kind that are remembered one by one: misses, reasons, paths
OTHERS = "other reasons"


@dataclass
class Path:
    """One recorded path: what it is, and how it fared.  Times in seconds."""

    number: int
    ops: int
    inputs: int
    guards: int
    asked: int
    written: int
    effects: int
    live: bool
    record: float
    compile: float = 0.0
    from_disk: bool = False
    run: float = 0.0  # of those calls that were timed
    timed: int = 0
    hits: int = 0
    counted: bool = True  # among the recordings of which there may be so many
    misses: Counter[str] = field(default_factory=Counter)
    segments: list[ref] = field(default_factory=list)  # dead where the path was dropped

    def kept(self) -> list[Any]:
        """Its segments, as long as it is kept."""
        return [segment for reach in self.segments if (segment := reach()) is not None]

    def kernels(self) -> list[str]:
        """The names of the kernels that its segments run."""
        return [name for s in self.kept() if s.code is not None for name in s.code.kernels()]

    def told(self) -> dict[str, Any]:
        """All of it as plain values."""
        nodes = sum(len(s.graph.nodes) for s in self.kept())
        return {
            "number": self.number, "ops": self.ops, "inputs": self.inputs, "guards": self.guards,
            "asked": self.asked, "written": self.written, "effects": self.effects, "history": self.live,
            "nodes": nodes, "kernels": self.kernels(), "hits": self.hits, "misses": dict(self.misses),
            "record_seconds": self.record, "compile_seconds": self.compile, "from_disk": self.from_disk,
            "run_seconds": self.run, "kept": bool(self.kept()),
        }  # fmt: skip

    def text(self) -> list[str]:
        """All of it as lines."""
        parts = [counted(self.ops, "op"), counted(self.inputs, "input"), counted(self.guards, "guard")]
        if self.asked:
            parts.append(f"{counted(self.asked, 'value')} asked for")
        if self.written:
            parts.append(f"{counted(self.written, 'tensor')} written")
        if self.effects:
            parts.append(counted(self.effects, "effect"))
        if not self.kept():
            parts.append("dropped, as what it depends on is gone")
        elif self.live:
            parts.append("outputs with a history")
        else:
            parts.append(counted(len(self.kernels()), "kernel"))
        compiled = "from the cache" if self.from_disk else "compiled"
        times = f"recorded in {milliseconds(self.record)}, {compiled} in {milliseconds(self.compile)}"
        lines = [f"  recording {self.number}: {', '.join(parts)}; {times}"]
        if self.timed:
            lines.append(f"    {counted(self.hits, 'hit')}, {self.run / self.timed * 1e6:.1f} us on average")
        lines += [f"    missed{_times(n)}: {reason}" for reason, n in self.misses.items()]
        return lines


class Log:
    """Counts what happened to a traced function."""

    def __init__(self, name: str):
        self.name = name
        self.paths: list[Path] = []
        self.refusals: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.misses: list[str] = []
        self.waiting = self.recorded = self.raised = 0
        self.let_by = self.left = 0  # calls that are not asked about, and those of them still to come
        self._numbered = self._hits = 0  # of paths that are forgotten

    def tell(self, text: str) -> None:
        """Print an event where LAMINA_LOG=trace asks for it."""
        if "trace" in os.environ.get("LAMINA_LOG", ""):
            print(f"lamina: {self.name}: {text}", file=sys.stderr)

    def path(self, recording: Recording, guards: int, segments: list[Any], seconds: float) -> Path:
        """Note a path that was recorded."""
        self.recorded += 1
        self._numbered += 1
        made = Path(
            self._numbered, sum(recording.ops.values()), len(recording.sources), guards,
            len(recording.questions), len(recording.written), recording.outcome.effects, recording.live,
            seconds, segments=[ref(segment) for segment in segments],
        )  # fmt: skip
        gone = next((p for p in self.paths if not p.kept()), None)
        if gone is not None and len(self.paths) >= LONGEST:
            self._hits += gone.hits
            self.paths = [path for path in self.paths if path is not gone]
        self.paths.append(made)
        self.tell(made.text()[0].strip())
        return made

    def miss(self, reason: str, path: Path | None = None) -> None:
        """Note a call that a path didn't fit."""
        if path is not None:
            _count(path.misses, reason)
        self.misses.append(reason)
        del self.misses[:-LONGEST]
        self.tell(f"miss: {reason}")

    def eager(self, reason: str) -> None:
        """Note a call that ran eagerly."""
        _count(self.reasons, reason)
        self.tell(f"eager: {reason}")

    def refused(self, reason: str) -> None:
        """Note a recording run of which no trace could be made."""
        self.recorded += 1
        _count(self.refusals, reason)
        self.tell(f"refused: {reason}")

    @property
    def hits(self) -> int:
        """Calls that compiled code served."""
        return self._hits + sum(path.hits for path in self.paths)

    @property
    def unasked(self) -> int:
        """Calls that ran eagerly unasked, as none before them was served."""
        return self.let_by - self.left

    @property
    def eager_calls(self) -> int:
        """Calls that ran eagerly; those that another thread held up are not among them."""
        return self.reasons.total() + self.unasked

    def counts(self) -> dict[str, int]:
        """Calls by what became of them."""
        eager = self.eager_calls + self.waiting
        return {"served": self.hits, "recorded": self.recorded, "eager": eager, "raised": self.raised}

    def summary(self) -> str:
        """In one line."""
        calls = f"{counted(self.hits, 'compiled call')}, {counted(self.eager_calls, 'eager call')}"
        return f"{counted(self.recorded, 'recording')}, {calls}"

    def told(self) -> dict[str, Any]:
        """The report as plain values: counts, paths, misses (latest last), refusals and reasons."""
        return {
            "name": self.name, **self.counts(), "paths": [path.told() for path in self.paths],
            "misses": list(self.misses), "refusals": dict(self.refusals), "reasons": dict(self.reasons),
            "waiting": self.waiting, "unasked": self.unasked,
        }  # fmt: skip

    def text(self) -> str:
        """The report for a reader."""
        lines = [f"{self.name}: {self.summary()}"]
        for path in self.paths:
            lines += path.text()
        lines += [f"  refused{_times(n)}: {reason}" for reason, n in self.refusals.items()]
        known = {reason for path in self.paths for reason in path.misses}
        lines += [f"  miss: {reason}" for reason in dict.fromkeys(self.misses) if reason not in known]
        lines += [f"  eager, {counted(count, 'call')}: {reason}" for reason, count in self.reasons.items()]
        if self.unasked:
            calls = counted(self.unasked, "call")
            lines.append(
                f"  eager, {calls}: none of those before fitted a recording, so these were not tried"
            )
        if self.raised:
            lines.append(f"  {counted(self.raised, 'recording run')} raised")
        if self.waiting:
            calls = counted(self.waiting, "call")
            lines.append(f"  eager while another thread recorded or compiled: {calls}")
        return "\n".join(lines)


def _count(counter: Counter[str], reason: str) -> None:
    """Count a reason; beyond many different ones all are counted as one."""
    counter[reason if reason in counter or len(counter) < LONGEST else OTHERS] += 1


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""


def milliseconds(seconds: float) -> str:
    """A time in milliseconds."""
    return f"{seconds * 1e3:.1f} ms"


def counted(number: int, what: str) -> str:
    """A number of things: 1 call, 2 calls."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
