"""Profiles as users open them: torch.profiler's and torch.autograd.profiler's classes in one."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import modes
from .averages import EventList, FunctionEventAvg
from .files import write_chrome_trace, write_memory_timeline
from .recorder import LABEL, FunctionEvent, Recorder


class record_function(contextlib.ContextDecorator):
    """Name a block, or a decorated function, for the profile that is open on this thread, if there is one."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._open: list[tuple[Recorder, FunctionEvent]] = []

    def __enter__(self) -> record_function:
        timing = modes.local.timing
        if timing is not None:
            self._open.append((timing, timing.begin(self.name, LABEL)))
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            timing, event = self._open.pop()
            timing.end(event)

    def _recreate_cm(self) -> record_function:
        return type(self)(self.name, self.args)


class ProfilerActivity(enum.Enum):
    """What a profile listens to.  Here: CPU."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


Schedule = Callable[[int], ProfilerAction]


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """What to do in which step: skip the first, then in turn wait, warm up, and record some.

    repeat: how often; 0 for as long as there are steps.  skip_first_wait: whether not to wait the first time.
    """
    for name, number in (("wait", wait), ("warmup", warmup), ("repeat", repeat), ("skip_first", skip_first)):
        if not isinstance(number, int) or number < 0:
            raise ArgumentValueError(f"schedule({name}): must be an int of at least 0, not {number!r}")
    if not isinstance(active, int) or active < 1:
        raise ArgumentValueError(f"schedule(active): must be an int of at least 1, not {active!r}")
    cycle = wait + warmup + active

    def decide(step: int) -> ProfilerAction:
        if not isinstance(step, int) or step < 0:
            raise ArgumentValueError(f"a step is an int of at least 0, not {step!r}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD

    return decide


class Listener:
    """What hears of ops, and of the rest lets all go on.  Traced functions run eagerly while it does."""

    def of_op(self, run: Callable, op: Any, plan: Any, operands: tuple, suffix: str = "") -> Any:
        """Run an op."""
        return run(op, plan, operands)

    def of_step(self, step: Callable, node: Any, gradient: Any, create: bool) -> Any:
        """Take a step of backward."""
        return step(node, gradient, create)

    def of_call(self, function: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run a traced function, which would tell of kernels if it was compiled."""
        return function.__wrapped__(*args, **kwargs)

    def enters(self, traced: Any) -> bool:
        """Whether it hears of a traced function by `of_call`."""
        return True

    def begin(self, *_: Any) -> None:
        """Something with a name begins."""

    def end(self, *_: Any) -> None:
        """It ends."""

    def aside(self, work: Callable[[], Any]) -> Any:
        """Do what is no part of what is heard of."""
        return work()


class Timed(modes._Mode):
    """Have this thread tell a recorder."""

    def __init__(self, recorder: Recorder | Listener):
        self._changes = {"timing": recorder}


class profile:
    """Note what each op, step of backward, traced call and kernel takes, on the thread that begins it.

    activities: ProfilerActivity.CPU, or nothing said.  schedule: which steps are recorded (`schedule`), where
    `step()` ends each; all by default.  on_trace_ready: called with the profile when what was to be recorded
    is.  record_shapes: note the operands' shapes.  profile_memory: note the memory of new tensors.
    with_stack: note the user's frames.  with_flops: count what each event computes and moves, beside what the
    machine can at most (measured, once: half a second).  enabled: False for a block that is not heard.

    Traced functions stay compiled; their calls go the long way, which tells of each kernel, some ten
    microseconds a call and two a kernel.  An op takes about two microseconds more than without.  Arguments
    about other machinery of PyTorch's are taken and change nothing.  Raises ArgumentValueError for devices.
    """

    def __init__(
        self,
        activities: Iterable[ProfilerActivity] | bool | None = None,
        *,
        enabled: bool = True,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        use_cuda: bool = False,
        use_device: str | None = None,
        **others: Any,
    ):
        if isinstance(activities, bool):  # as autograd.profiler's first argument is
            activities, enabled = None, activities
        asked = set(activities or (ProfilerActivity.CPU,))
        for other in asked - {ProfilerActivity.CPU}:
            if other is not ProfilerActivity.CUDA:
                raise ArgumentValueError(
                    f"profile(activities): {other} is not heard here", "ask for ProfilerActivity.CPU"
                )
        if schedule is not None and not callable(schedule):
            raise ArgumentError(f"profile(schedule): must be callable, not {type(schedule).__name__}")
        unknown = others.keys() - _TAKEN
        if unknown:
            raise ArgumentError(f"profile: there is no argument {', '.join(sorted(unknown))}")
        self.enabled, self.activities = enabled, asked
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._stepwise = schedule is not None
        self._recorder: Recorder | None = None
        self._mode: Timed | None = None
        self._step: FunctionEvent | None = None
        self._metadata: dict[str, Any] = {}

    # ---- from when to when
    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, as `with` does."""
        if self._mode is not None:
            raise ArgumentValueError("profile: it has been started, and not stopped since")
        if self.enabled:
            self._go_to(self.schedule(self.step_num))

    def stop(self) -> None:
        """End.  What was recorded is kept until it starts again."""
        recorded = self.current_action in _RECORDING
        self._pause()
        self.current_action = ProfilerAction.NONE
        if recorded and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Say that a step of the schedule is over."""
        if not self.enabled:
            return
        before = self.current_action
        self.step_num += 1
        after = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE or (before in _RECORDING and after not in _RECORDING):
            self._pause()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self.current_action = ProfilerAction.NONE
        self._go_to(after)

    def _go_to(self, action: ProfilerAction) -> None:
        if action in _RECORDING:
            if self.current_action not in _RECORDING:
                self._recorder = Recorder(
                    self.record_shapes, self.with_stack, self.profile_memory, self.with_flops
                )
                self._mode = Timed(self._recorder)
                self._mode.__enter__()
            self._begin_step()
        self.current_action = action

    def _begin_step(self) -> None:
        """A block for the step, as PyTorch's profiles have where there are steps."""
        if not self._stepwise and not self.step_num:
            return
        assert self._recorder is not None
        if self._step is not None:
            self._recorder.end(self._step)
        self._step = self._recorder.begin(f"ProfilerStep#{self.step_num}", LABEL)

    def _pause(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__()
        if self._recorder is not None:
            if self._step is not None:
                self._recorder.end(self._step)
                self._step = None
            self._recorder.close()

    # ---- what was found
    def _found(self) -> Recorder:
        if self._recorder is None:
            raise ArgumentValueError(
                "profile: nothing has been recorded",
                "start it, or use it as `with profile() as p:`" if self.enabled else "it was not enabled",
            )
        if self._mode is not None:
            self._recorder.end_now()
        return self._recorder

    def events(self) -> EventList:
        """All that happened, in the order in which it began."""
        recorder = self._found()
        return EventList(recorder.events, profile_memory=recorder.memory, with_flops=recorder.work)

    @property
    def function_events(self) -> EventList:
        return self.events()

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:  # fmt: skip
        """What happened under one name as one.  See EventList."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """All of it as one."""
        return self.events().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds."""
        return self.events().self_cpu_time_total

    def table(self, sort_by: str | None = None, row_limit: int = 100, **how: Any) -> str:
        """The events, each in a row.  See EventList."""
        return self.events().table(sort_by, row_limit, **how)

    def __str__(self) -> str:
        return "<unfinished profile>" if self._recorder is None else str(self.events())

    def add_metadata(self, key: str, value: str) -> None:
        """Have the trace say this."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Have the trace say what a text of JSON says.  Raises ValueError for any other text."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def export_chrome_trace(self, path: Any) -> None:
        """Write it for chrome://tracing or https://ui.perfetto.dev; gzipped for a name that ends in .gz."""
        recorder = self._found()
        write_chrome_trace(path, recorder.events, self._metadata, recorder)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Write the user's frames and what they took, a line each.  See EventList."""
        self.events().export_stacks(path, metric)

    def export_flame_graph(self, path: Any) -> None:
        """Draw what happened in what, as SVG."""
        self.events().export_flame_graph(path)

    def export_memory_timeline(self, path: Any, device: str | None = None) -> None:
        """Draw, as SVG, the memory of what was made meanwhile, by who made it; or write it as .json."""
        write_memory_timeline(path, self._found())


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_TAKEN = {
    "experimental_config", "execution_trace_observer", "acc_events", "custom_trace_id_callback",
    "use_cpu", "use_kineto", "use_mtia", "post_processing_timeout_s",
}  # fmt: skip


class emit_nvtx:
    """Refused: ranges for NVIDIA's profiler.  With `enabled=False` a block that does nothing."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        if enabled:
            raise ArgumentValueError(
                f"{type(self).__name__}: Lamina tells no other profiler of its ops",
                "profile() notes them itself; export_chrome_trace() writes them for a viewer",
            )

    def __enter__(self) -> emit_nvtx:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class emit_itt(emit_nvtx):
    """Refused as `emit_nvtx` is: ranges for Intel's profiler."""


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each trace into a folder, as TensorBoard's plugin looks for them."""

    def ready(p: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        p.export_chrome_trace(os.path.join(dir_name, name))

    return ready


def supported_activities() -> set[ProfilerActivity]:
    """What a profile can listen to."""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """Whether PyTorch's profiling library is there: no, and none is needed."""
    return False
