"""Notes what happens on a thread while a profile is open: the one thing that the runtime tells (modes.py)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from time import perf_counter_ns
from typing import Any
from weakref import ref

import numpy as np

from ..runtime import Tensor
from ..runtime.places import is_internal
from .work import NOTHING, Work, work_of_op, work_of_step

MICROSECOND = 1e-3  # nanoseconds


class Interval:
    """From when to when, in microseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


class FunctionEvent:
    """One thing that happened: an op, a step of backward, a traced call, a kernel, or a labelled block.

    id: its number.  name.  thread: the number of its thread.  cpu_parent: the event that it happened in, or
    None; cpu_children: those that happened in it.  time_range: in microseconds since the profile began.
    input_shapes: of its operands, [] for None and numbers.  stack: the user's frames, innermost first.
    cpu_memory_usage: bytes of new tensors that it made, less those that were freed meanwhile.
    """

    def __init__(self, name: str, what: Any, number: int, parent: FunctionEvent | None, counts_work: bool):
        self.id, self.name, self.what = number, name, what
        self._work = None if counts_work else NOTHING
        self.thread = threading.get_ident()
        self.cpu_parent = parent
        self.cpu_children: list[FunctionEvent] = []
        self.input_shapes: list[list[int]] = []
        self.stack: list[str] = []
        self.cpu_memory_usage = 0
        self.start = self.end = 0  # nanoseconds of the machine's clock
        self.origin = 0

    is_async = is_legacy = is_remote = False
    count = 1
    device_time_total = self_device_time_total = device_memory_usage = self_device_memory_usage = 0

    @property
    def key(self) -> str:
        return self.name

    @property
    def is_user_annotation(self) -> bool:
        """Whether it is a block that `record_function` names."""
        return self.what is LABEL

    @property
    def time_range(self) -> Interval:
        return Interval((self.start - self.origin) * MICROSECOND, (self.end - self.origin) * MICROSECOND)

    @property
    def cpu_time_total(self) -> float:
        """Microseconds, with what happened in it."""
        return (self.end - self.start) * MICROSECOND

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without what happened in it."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def work(self) -> Work:
        """What had to be computed and moved, nothing where that is not known or was not asked for."""
        if self._work is None:
            self._work = _work(self.what)
        return self._work

    @property
    def flops(self) -> int:
        """Operations on floating-point numbers that it takes, a multiplication and an addition being two."""
        return self.work.flops

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_total:.3f}us "
            f"thread={self.thread} input_shapes={self.input_shapes}>"
        )


LABEL = "label"  # what a block is that `record_function` names


def _work(what: Any) -> Work:
    if what is None or what is LABEL:
        return NOTHING
    return work_of_op(*what) if type(what) is tuple else work_of_step(what)


class Recorder:
    """The events of a profile.

    shapes, stacks, memory, work: whether those are noted.
    """

    def __init__(self, shapes: bool = False, stacks: bool = False, memory: bool = False, work: bool = False):
        self.shapes, self.stacks, self.memory, self.work = shapes, stacks, memory, work
        self.events: list[FunctionEvent] = []  # in the order in which they began
        self.changes: list[tuple[int, int, str]] = []  # of memory: (when, bytes, who made it)
        self._open: FunctionEvent | None = None
        self._live: dict[int, Any] = {}
        self._entering: Any = None
        self._numbers: Iterator[int] = count()
        self._aside = 0
        self.origin = self.now()
        self.ended = self.origin

    def now(self) -> int:
        """Nanoseconds of a clock that stands still while the profile itself needs time."""
        return perf_counter_ns() - self._aside

    # ---- what the runtime calls
    def aside(self, work: Callable[[], Any]) -> Any:
        """Do what only the profile needs done: it takes no time."""
        begun = perf_counter_ns()
        try:
            return work()
        finally:
            self._aside += perf_counter_ns() - begun

    def begin(self, name: str, what: Any = None) -> FunctionEvent:
        """Something begins.  what: see `_work`."""
        made = FunctionEvent(name, what, next(self._numbers), self._open, self.work)
        made.origin = self.origin
        if self._open is not None:
            self._open.cpu_children.append(made)
        if self.stacks:
            made.stack = _frames(sys._getframe(1))
        self._open = made
        self.events.append(made)
        made.start = self.now()
        return made

    def end(self, event: FunctionEvent) -> None:
        """It ends, and with it what an exception ended inside."""
        now = self.now()
        inner = self._open
        while inner is not None and inner is not event:
            inner.end = inner.end or now
            inner = inner.cpu_parent
        event.end = now
        self._open = event.cpu_parent

    def of_op(self, run: Callable, op: Any, plan: Any, operands: tuple, suffix: str = "") -> Any:
        """Run an op's plan on tensors."""
        event = self.begin(op.name + suffix, (op, plan.types, plan.attrs))
        if self.shapes:
            event.input_shapes = [[] if t is None else [*t.shape] for t in plan.types]
        try:
            made = run(op, plan, operands)
            if self.memory and not suffix:
                self.note(event, made if isinstance(made, (tuple, list)) else (made,))
            return made
        finally:
            self.end(event)

    def of_step(self, step: Callable, node: Any, gradient: Any, create: bool) -> Any:
        """A step of backward, whose results are gradients."""
        event = self.begin(node.name())
        if self.shapes:
            given = gradient if type(gradient) is list else [gradient]
            event.input_shapes = [[] if g is None else [*g.shape] for g in given]
        try:
            made = step(node, gradient, create)
            if self.memory:
                self.note(event, made)
            return made
        finally:
            self.end(event)

    def of_call(self, function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run a traced function."""
        event = self.begin(name)
        if self.shapes:
            event.input_shapes = [[*x.shape] if isinstance(x, Tensor) else [] for x in args]
        try:
            made = function(*args, **kwargs)
            if self.memory:
                self.note(event, made if isinstance(made, (tuple, list)) else (made,))
            return made
        finally:
            self.end(event)

    def enters(self, traced: Any) -> bool:
        """Whether a call of a traced function comes from outside: of the one that is told of, it does not."""
        self._entering = traced if self._entering is not traced else None
        return self._entering is not None

    # ---- memory
    def note(self, event: FunctionEvent, made: Iterable[Any]) -> None:
        """Count what an event made, and have its end noted."""
        for x in made:
            array = x._data if isinstance(x, Tensor) else x
            if not isinstance(array, np.ndarray) or (isinstance(x, Tensor) and x._view is not None):
                continue
            while isinstance(array.base, np.ndarray):
                array = array.base
            key = id(array)
            if array.nbytes and key not in self._live:
                self._live[key] = ref(array, self._freed(key, array.nbytes, event.name))
                self.changes.append((self.now(), array.nbytes, event.name))
                self._count(event, array.nbytes)

    def _freed(self, key: int, nbytes: int, name: str) -> Callable[[Any], None]:
        mine = ref(self)

        def freed(_: Any) -> None:
            recorder = mine()
            if recorder is not None and recorder._live.pop(key, None) is not None:
                recorder.changes.append((recorder.now(), -nbytes, name))
                recorder._count(recorder._open, -nbytes)

        return freed

    @staticmethod
    def _count(event: FunctionEvent | None, nbytes: int) -> None:
        while event is not None:
            event.cpu_memory_usage += nbytes
            event = event.cpu_parent

    def end_now(self) -> None:
        """Give what is still open an end for the while."""
        self.ended = self.now()
        event = self._open
        while event is not None:
            event.end, event = self.ended, event.cpu_parent

    def close(self) -> None:
        """Nothing happens any more."""
        self.ended = self.now()
        self._live.clear()
        while self._open is not None:
            self.end(self._open)


def _frames(frame: Any) -> list[str]:
    """The user's frames, from the innermost on."""
    found = []
    while frame is not None:
        code = frame.f_code
        if not is_internal(code.co_filename):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found
