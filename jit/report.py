"""What `explain()` says, and what LAMINA_LOG=trace prints as it happens."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from . import memory_report, mesh_report
from .causes import Cause, cause, place_of
from .ledger import Fares, Ledger
from .recording import Recording
from .tuning import summary

LONGEST = 64  # things of a kind that are remembered one by one: misses, reasons, paths
OTHERS = "other reasons"
COMPILING = "it is being compiled"
BUSY = "another thread drew random numbers, or wrote what this call reads, meanwhile"
TIMED = "it was timed, to know what tracing saves"
SPARED = "a further recording waits until it may pay off"
SHORT = "there is too little memory to record it"
RESIZED = "code for these sizes waits until it may pay off"
STANCE = "nothing was to be recorded, as compiler.set_stance said"
PASSING = (COMPILING, BUSY, TIMED, STANCE)  # reasons of eager calls that pass by themselves
FEW = 0.1  # of all calls: so many may be recorded anew before that is a cause of slowness
TOLD = 3  # causes that are told in short


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
    first: float = 0.0  # of the first call, which also settles what the guards need
    run: float = 0.0  # of those calls after it that were timed
    timed: int = 0
    hits: int = 0
    counted: bool = True  # among the recordings of which there may be so many
    misses: Counter[str] = field(default_factory=Counter)
    segments: list[ref] = field(default_factory=list)  # dead where the path was dropped
    sizes: tuple[str, ...] = ()  # what those that keep changing are

    def served(self, seconds: float) -> None:
        """Note a call that was timed."""
        if self.hits:
            self.run += seconds
            self.timed += 1
        else:
            self.first = seconds
        self.hits += 1

    @property
    def average(self) -> float:
        """What a call takes."""
        return self.run / self.timed if self.timed else self.first

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
            "run_seconds": self.first + self.run, "kept": bool(self.kept()), "sizes": list(self.sizes),
        }  # fmt: skip

    def text(self) -> list[str]:
        """All of it as lines, but for what didn't fit."""
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
        lines += [f"    {each}" for each in self.sizes]
        for segment in self.kept():
            if segment.symbols and segment.code is not None:
                why = segment.code.unfit
                lines.append(f"    code for each set of sizes: {why}" if why else "    code for all sizes")
            if getattr(segment.code, "together", None) is not None:
                lines.append(f"    {segment.code.text()}")
            if segment.code is not None and segment.code.tuned:
                lines.append(f"    tuned: {summary(segment.code.tuned)}")
        if self.hits:
            lines.append(f"    {counted(self.hits, 'hit')}, {self.average * 1e6:.1f} us on average")
        return lines


class Log:
    """Counts what happened to a traced function.

    again: by place, how often it led to a further recording, and what was told of it last.  because: of
    reasons of eager calls, what they go back to.  passing: of recording runs that did what later ones don't,
    what that was.  inner: the logs of what it calls that is traced, and how deep each lies.  within: calls in
    which compiled code served some of those.
    """

    def __init__(self, name: str, ledger: Ledger, inner: Callable[[], list[tuple[int, Log]]] = list):
        self.name, self.ledger, self.inner = name, ledger, inner
        self.within = 0
        self.paths: list[Path] = []
        self.refusals: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.passing: Counter[str] = Counter()
        self.again: dict[str, tuple[int, str]] = {}
        self.because: dict[str, str] = {}
        self.misses: list[str] = []
        self.waiting = self.recorded = self.raised = 0
        self.let_by = self.left = 0  # calls that are not asked about, and those of them still to come
        self._numbered = self._hits = 0  # of paths that are forgotten
        self._running = 0.0  # seconds that their hits took

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
            self._running += gone.hits * gone.average
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

    def anew(self, reason: str) -> None:
        """Note that a call is recorded as it fits no recording."""
        place = place_of(reason)
        if place not in self.again and len(self.again) >= LONGEST:
            place = OTHERS
        self.again[place] = self.again.get(place, (0, ""))[0] + 1, reason

    def eager(self, reason: str) -> None:
        """Note a call that ran eagerly."""
        _count(self.reasons, reason)
        self.tell(f"eager: {reason}")

    def refused(self, reason: str) -> None:
        """Note a recording run of which no trace could be made."""
        self.recorded += 1
        _count(self.refusals, reason)
        self.tell(f"refused: {reason}")

    def passed(self, reason: str) -> None:
        """Note a recording run that did what later ones don't."""
        self.recorded += 1
        _count(self.passing, reason)
        self.tell(f"not kept: {reason}")

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
        return {
            "served": self.hits, "recorded": self.recorded, "eager": eager, "raised": self.raised,
            "within": self.within,
        }  # fmt: skip

    def summary(self) -> str:
        """In one line."""
        calls = f"{counted(self.hits, 'compiled call')}, {counted(self.eager_calls, 'eager call')}"
        return f"{counted(self.recorded, 'recording')}, {calls}"

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.counts().values()) - self.within  # which are eager ones

    @property
    def ratio(self) -> float | None:
        """What a served call takes, by what an eager one does; None where either was not timed.

        A run that is recorded is interpreted: it tells nothing of what an eager call takes.
        """
        eager, fares = self.ledger.eager_call, self.fares()
        known = eager and self.ledger.eager_calls and fares.hits
        return fares.running / fares.hits / eager if eager and known else None

    def fares(self) -> Fares:
        """How calls fared, for the ledger."""
        running = self._running + sum(path.hits * path.average for path in self.paths)
        return Fares(self.calls, self.hits, running)

    def causes(self) -> list[Cause]:
        """Why calls were not served, by how many were not; what is told of a success is no cause."""
        eager = {reason: n for reason, n in self.reasons.items() if reason not in PASSING}
        if self.unasked:
            most = max(eager, key=eager.__getitem__, default=OTHERS)
            eager[most] = eager.get(most, 0) + self.unasked
        found = [(self.because.get(reason, reason), n) for reason, n in eager.items()]
        found += self.refusals.items()
        if not self.hits or sum(n for n, _ in self.again.values()) > max(2, FEW * self.calls):
            found += [(reason, n) for n, reason in self.again.values()]
        calls, last = Counter[str](), {}
        for reason, n in found:
            calls[place_of(reason)] += n
            last.setdefault(place_of(reason), reason)
        return [cause(last[place], n) for place, n in calls.most_common()]

    def verdict(self) -> str:
        """How the function fares, in one line."""
        if self.hits:
            speed = "" if self.ratio is None else f", at {self.ratio:.2g} of eager's time"
            return f"{self.name}: served {self.hits} of {counted(self.calls, 'call')}{speed}"
        if causes := self.causes():
            whole = " as a whole" if self.within else ""
            return f"{self.name}: not served{whole}, because {causes[0].what}"
        if self.raised:
            return f"{self.name}: not served, because it raised"
        if not self.calls:
            return f"{self.name}: not called yet"
        if self.reasons[COMPILING]:
            return f"{self.name}: recorded, and {COMPILING}"
        if self.paths:
            return f"{self.name}: recorded, and ready to serve"
        return f"{self.name}: not recorded yet: {next(iter(self.passing), 'another thread is about it')}"

    def told(self) -> dict[str, Any]:
        """The report as plain values; `TracedFunction.explain` says which."""
        ledger = self.ledger
        return {
            "name": self.name, "verdict": self.verdict(), **self.counts(), "calls": self.calls,
            "ratio": self.ratio, "causes": [c.told() for c in self.causes()],
            "recording_seconds": ledger.recording, "compiling_seconds": ledger.compiling,
            "beside_seconds": ledger.beside, "eager_call_seconds": ledger.eager_call,
            "spent_seconds": ledger.spent, "saved_seconds": ledger.saved(self.fares()),
            "budget": ledger.budget,
            "paths": [path.told() for path in self.paths],
            "misses": list(self.misses), "refusals": dict(self.refusals), "reasons": dict(self.reasons),
            "passing": dict(self.passing), "waiting": self.waiting, "unasked": self.unasked,
            "inner": [{"depth": depth, **log.told()} for depth, log in self.inner()],
        }  # fmt: skip

    def memory(self) -> list[tuple[int, dict[str, Any]]]:
        """What the code of each recording holds (`memory_report.py`), by the recording's number."""
        codes = [(path.number, segment.code) for path in self.paths for segment in path.kept()]
        return [(number, memory_report.memory_of(code.code)) for number, code in codes if code is not None]

    def mesh(self, dims: Mapping[tuple[int, ...], str]) -> list[tuple[int, list[dict[str, Any]]]]:
        """The collectives of each recording (`mesh_report.py`), by its number; dims: names of groups."""
        return [
            (
                path.number,
                [each for s in path.kept() for each in mesh_report.collectives_of(s.graph, _sizes(s), dims)],
            )
            for path in self.paths
        ]

    def text(
        self, detail: bool = False, memory: bool = False, mesh: Mapping[tuple[int, ...], str] | None = None
    ) -> str:
        """The report for a reader: verdict, causes, cost; then, in detail, all that is known."""
        causes = self.causes()
        lines = [self.verdict()]
        for number, each in enumerate(causes[:TOLD]):
            if self.hits or number:
                lines.append(f"  {each.where or 'why'}: {each.what} ({counted(each.calls, 'call')})")
            elif each.where:
                lines.append(f"  at {each.where} ({counted(each.calls, 'call')})")
            if each.instead:
                lines.append(f"    instead: {each.instead}")
        if len(causes) > TOLD:
            lines.append(f"  and for {len(causes) - TOLD} more reasons")
        if self.recorded or self.raised:
            cost = [f"recording took {_seconds(self.ledger.recording)}"]
            if self.ledger.compiling:
                cost.append(f"compiling {_seconds(self.ledger.compiling)}")
            if self.ledger.searching:
                cost.append(f"searching for schedules {_seconds(self.ledger.searching)}")
            if self.ledger.beside:
                cost.append(f"compiling in the background {_seconds(self.ledger.beside)}")
            lines.append(f"  cost: {', '.join(cost)}")
            if self.reasons[SPARED]:
                lines.append(f"    {SPARED} (budget={self.ledger.budget:g} s)")
        if memory:
            lines += [line for each in self.memory() for line in memory_report.text(*each)]
            lines += memory_report.kept()
        if mesh is not None:
            for path, each in zip(self.paths, self.mesh(mesh), strict=True):
                lines += mesh_report.text(*each, live=path.live)
        return "\n".join([*lines, *(self._details() if detail else ()), *self._tree()])

    def _tree(self) -> list[str]:
        """What became of that which it calls, where that is traced in its place."""
        lines = [f"  in {counted(self.within, 'call')} what it calls was served:"] if self.within else []
        for depth, log in self.inner():
            why = next(iter(log.reasons), "") and f"; eager: {next(iter(log.reasons))}"
            lines.append(f"{'  ' * depth}    {log.name}: {log.summary()}{why}")
        return lines

    def _details(self) -> list[str]:
        lines = [f"  in all: {self.summary()}"]
        for path in self.paths:
            lines += path.text()
        lines += [f"  warm-up{_times(n)}: {reason}" for reason, n in self.passing.items()]
        found = [miss for path in self.paths for miss in path.misses.items()]
        known = {reason for reason, _ in found}
        missed: dict[str, tuple[int, str]] = {}
        for reason, n in [*found, *((reason, 1) for reason in self.misses if reason not in known)]:
            place = place_of(reason)
            missed[place] = missed.get(place, (0, ""))[0] + n, reason
        lines += [f"  missed{_times(n)}: {reason}" for n, reason in missed.values()]
        lines += [f"  refused{_times(n)}: {reason}" for reason, n in self.refusals.items()]
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
        return lines


def _sizes(segment: Any) -> Mapping[str, int]:
    """What symbols were in the run that a segment was recorded in."""
    return segment.end.recording.sizes if segment.end is not None else {}


def _count(counter: Counter[str], reason: str) -> None:
    """Count a reason; beyond many different ones all are counted as one."""
    counter[reason if reason in counter or len(counter) < LONGEST else OTHERS] += 1


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""


def milliseconds(seconds: float) -> str:
    """A time in milliseconds."""
    return f"{seconds * 1e3:.1f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else milliseconds(seconds)


def counted(number: int, what: str) -> str:
    """A number of things: 1 call, 2 calls."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
