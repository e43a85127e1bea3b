"""The kernels of a program as plain data: what each computes, takes and is written as."""

from __future__ import annotations

from typing import Any

from ..ir.errors import LaminaError
from ..ir.where import origins
from ..passes.kernels.collapse import collapsed
from ..passes.llvm.binding import host_target
from ..passes.programs.program import Alias, Array, Call, Host, Program, Repeat, Step
from ..passes.schedules.default import default_schedule
from ..passes.schedules.steps import Collapse, Schedule
from ..profiler.limits import Limits
from ..profiler.work import work_of_step
from .graph_data import place_text
from .measuring import Times
from .subjects import Subject


class Texts:
    """Texts, each once."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))


class Kernels:
    """The steps of a subject's two programs as data, aliases left out: those of the weights first.

    Of each: name; kind: "kernel", "loop" or "host"; once: whether it runs when weights change, and not at
    every call; nodes: the numbers of those it computes; in: in pairs, the number of the step that makes an
    array (-1: none does) and the array; out: arrays; flops, bytes; us: microseconds of a call; least: those
    that this machine needs at the least; schedule; kernel, code: numbers of texts; same: of equal ones, the
    first.
    """

    def __init__(self, subject: Subject, times: Times | None, limits: Limits | None, texts: Texts):
        self.subject, self.times, self.limits, self.texts = subject, times, limits, texts
        self.data: list[dict[str, Any]] = []
        self._makers: dict[Array, int] = {}
        self._codes: dict[Any, tuple[int, int, str]] = {}
        self._first: dict[Any, int] = {}
        self._steps(subject.weights, True)
        self._steps(subject.main, False)

    def _steps(self, program: Program, once: bool) -> None:
        for number, step in enumerate(program.steps if not once or program.results else ()):
            if isinstance(step, Alias):
                (source,), (view,) = step.inputs, step.outputs
                if source in self._makers:
                    self._makers[view] = self._makers[source]
                continue
            self._step(step, once, None if once else number)

    def _step(self, step: Call | Repeat | Host, once: bool, number: int | None) -> None:
        at = len(self.data)
        kernel, code, schedule = self._written(step)
        same = self._first.setdefault((step.name, kernel, code, schedule, once), at)
        found: dict[str, Any] = {
            "name": step.name,
            "kind": "host" if isinstance(step, Host) else "loop" if isinstance(step, Repeat) else "kernel",
            "once": once,
            "nodes": sorted(origins(step.where)),
            "where": place_text(step.where),
            "in": [[self._makers.get(x, -1), repr(x)] for x in step.inputs if x is not None],
            "out": [repr(x) for x in step.outputs],
            "schedule": schedule,
            "kernel": kernel,
            "code": code,
            "same": same,
        }
        self._makers |= dict.fromkeys(step.outputs, at)
        if not isinstance(step, Host):
            flops, nbytes = work_of_step(step)
            found |= {"flops": flops, "bytes": nbytes}
            if self.limits is not None:
                found["least"] = self.limits.seconds(flops, nbytes) * 1e6
        seconds = None if number is None or self.times is None else (self.times.steps or {}).get(number)
        if seconds is not None:
            found["us"] = seconds * 1e6
        self.data.append(found)

    # ---- texts
    def _written(self, step: Step) -> tuple[int, int, str]:
        """Numbers of the kernel's text and of the code's, -1 for none, and the schedule's text."""
        if isinstance(step, Call):
            key = step.kernel, step.how
            if key not in self._codes:
                self._codes[key] = (self.texts.number(str(step.kernel)), self._code(step), self._how(step))
            return self._codes[key]
        if isinstance(step, Repeat):
            text = "\n".join([str(step.body), *dict.fromkeys(str(c.kernel) for c in step.body.all_calls)])
            return self.texts.number(text), -1, ""
        return -1, -1, ""

    def _code(self, call: Call) -> int:
        program = Program(call.name, tuple(dict.fromkeys(call.inputs)), (call,), call.outputs)
        target = self.subject.code.target
        try:
            texts = target.source(program)
        except LaminaError:
            return -1
        # LLVM's last is the function that would run it alone
        return self.texts.number("\n".join(texts[:-1] if target.language == "llvm" else texts))

    def _how(self, call: Call) -> str:
        if call.how is not None:
            return str(call.how)
        if self.subject.code.target.language != "llvm":
            return ""
        try:
            return str(Schedule(Collapse(), *default_schedule(collapsed(call.kernel), host_target()).steps))
        except LaminaError:
            return ""


def totals(kernels: list[dict[str, Any]]) -> dict[str, float]:
    """The sums over the kernels of a call."""
    called = [each for each in kernels if not each["once"]]
    return {key: sum(each.get(key, 0) for each in called) for key in ("us", "least", "flops", "bytes")}
