"""What the current thread is doing besides plain computing: gradients on or off, recording, inference.

`CHANGED` holds the threads whose state differs from the ordinary one (gradients on, nothing hooked in).
While it is empty an op asks nothing else; otherwise it consults its own thread's `local`.  So the ordinary
path pays for one global, and every thread is right.

A signal's handler may raise at any step of `with no_grad():`, also where Python does not leave the block any
more: while it is entered, and while it is left.  So a thread's state is no value that blocks save and put
back: it follows, each time one is entered or left, from the list of those that are open; and a mode that
nobody holds any more leaves its own.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError
from ..ir.warned import TELLS

CHANGED: set[weakref.ref[_Token]] = set()

# The threads on which `local.within` answers calls of modules.  Apart from `CHANGED`, as ops need not ask.
WITHIN: set[weakref.ref[_Token]] = set()

ORDINARY: dict[str, Any] = {
    "grad": True, "inference": False, "hook": None, "notice": None, "caller": None, "stepping": None,
    "values": None, "anomaly": False,
    "multithreading": True, "early_stop": None, "recompute_debug": None, "within": None, "levels": (),
    "autocast": None, "autocast_dtype": None, "packing": None, "unpacked": None, "functions": (),
    "unanswered": False, "device": None, "timing": None, "allowance": None, "streams": None,
    "eager": False, "on_miss": None,
}  # fmt: skip
_WATCHING = (
    "hook", "anomaly", "levels", "autocast", "packing", "functions", "timing", "allowance", "streams",
)  # fmt: skip
_ASIDE = (
    "hook", "anomaly", "autocast", "autocast_dtype", "packing", "functions", "device", "streams", "eager",
)  # fmt: skip
_ORDINARILY = {**ORDINARY, "records": True, "watched": False, "aside": False, "usual": True}
_NO_GRADIENTS = {"grad": False}
_WITHOUT = {**_ORDINARILY, **_NO_GRADIENTS, "records": False}
UNSERVED: Any = type("Unserved", (), {"__slots__": (), "__repr__": lambda self: "unserved"})()


class _Token:
    """Lives as long as its thread, which stays in `CHANGED` no longer."""

    __slots__ = ("__weakref__",)


class _Local(threading.local):
    """A thread's state.  New threads start in the ordinary one.

    Invariant: the state is the ordinary one, changed by what `base` and each of `entered` say, in order; and
    `mark` is in `WITHIN` where `within` is something, in `CHANGED` where anything else is not the ordinary
    one.  Who was interrupted in between makes it so again (`_settle`).

    grad: gradients are recorded.  inference: they are not, whatever `grad` says.  hook: called with
    (op, attrs, operands, outputs) after each op, hidden outputs included: where a recorder listens.
    notice: called with what else a recorder must hear (see `tell`).  caller: called with (function, args,
    kwargs) in place of a function of the user's (see `call_user`).  stepping: makes the steps of a backward,
    called with the function that makes one and what that takes.  values: answers calls of functions with what
    stands for tensors in a graph, as `met` in overriding.py has it.
    anomaly: every op notes its line, and backward looks for NaN, unless it is LINES.
    within: called with (module, args, kwargs) ahead of a module's own call, made if it answers UNSERVED.
    autocast: the low precisions that products are computed in (autocasting.py), on the CPU and on GPUs, each
    or both of which may be None.
    autocast_dtype: what blocks inside take for these unless they say another; None for the usual ones.
    packing: the (pack, unpack) that stand between nodes and what they save (packing.py).
    unpacked: why none may be opened, a text.
    functions: the open modes that answer calls of functions, the innermost last (overriding.py).
    device: where new tensors are made, if not on the CPU.
    timing: what is told when ops, steps of backward, traced functions and kernels begin and end: a profiler's
    Recorder.  Traced functions stay compiled under it.
    streams: by the number of a GPU the stream that work is queued on, where it is not the default one.
    allowance: what is asked before an op's kernel runs for the memory of its results (allowance.py).
    multithreading: what `set_multithreading_enabled` was told, which changes nothing: a backward runs on the
    thread that asks for it.
    early_stop, recompute_debug: what blocks have checkpoints do, whatever they are told (recomputing.py).
    unanswered: classes derived from Tensor answer no calls.
    levels: the open function transforms that wrap tensors, the innermost last (see levels.py).
    eager: traced functions run undecorated.  on_miss: what one does with a call that no recording fits, in
    place of recording it: EAGER or FAIL.
    What follows from these: records, whether gradients are recorded; watched, whether an op is more to this
    thread than its result and history; aside, whether traced functions run undecorated.
    """

    grad = True
    inference = False
    hook: Callable | None = None
    notice: Callable | None = None
    caller: Callable | None = None
    stepping: Callable | None = None
    values: Any = None
    anomaly = False
    within: Any = None
    autocast: Any = None
    autocast_dtype: Any = None
    levels: tuple = ()
    packing: tuple[Callable, Callable] | None = None
    unpacked: str | None = None
    functions: tuple = ()
    unanswered: bool = False
    device: Any = None
    timing: Any = None
    allowance: Any = None
    streams: dict[int, Any] | None = None
    multithreading = True
    early_stop: bool | None = None
    recompute_debug: bool | None = None
    eager = False
    on_miss: str | None = None
    records = True
    watched = False
    aside = False

    def __init__(self) -> None:
        self.base: dict[str, Any] = {}
        self.entered: list[tuple[int, dict[str, Any]]] = []  # (id of a mode, what it changes)
        self.token = _Token()
        self.mark = weakref.ref(self.token, _ended)
        self.usual = True  # the state is the ordinary one, but for gradients
        hash(self.mark)  # which a dead reference can't be asked for first


def _ended(mark: weakref.ref[_Token], marked: tuple[set, ...] = (CHANGED, WITHIN)) -> None:
    for marks in marked:
        marks.discard(mark)


local = _Local()


def update(**state: Any) -> None:
    """Change this thread's state, until the block ends that changed the same."""
    mine = local.__dict__
    try:
        for name, value in state.items():
            changes = next((c for _, c in reversed(mine["entered"]) if name in c), mine["base"])
            if changes is mine["base"] and value == ORDINARY[name]:
                changes.pop(name, None)
            else:
                changes[name] = value
        _settle(mine)
    except BaseException:  # an interrupt
        _settle(mine)
        raise


def _settle(mine: dict[str, Any]) -> None:
    """Make a thread's state, and whether `CHANGED` has it, what its open blocks say."""
    mark, changed = mine["mark"], mine["base"]
    if not mine["entered"] and not changed:  # as where the outermost block ends
        if mine["usual"]:
            mine["grad"] = mine["records"] = True
        else:
            mine.update(_ORDINARILY)
        if WITHIN:
            WITHIN.discard(mark)
        CHANGED.discard(mark)
        return
    entered = (*mine["entered"],)
    if len(entered) == 1 and not changed:
        changed = entered[0][1]
    elif entered:
        changed = changed.copy()
        for _, changes in entered:
            changed.update(changes)
    if changed == _NO_GRADIENTS and not WITHIN:  # the usual block
        CHANGED.add(mark)
        if mine["usual"]:
            mine["grad"] = mine["records"] = False
        else:
            mine.update(_WITHOUT)
        return
    state = {**ORDINARY, **changed}
    mine["usual"] = False
    CHANGED.add(mark)  # before it is special, and until it is not
    if answers := state["within"] is not None:
        WITHIN.add(mark)
    mine.update(
        state,
        records=state["grad"] and not state["inference"],
        watched=any(map(state.__getitem__, _WATCHING)),
        aside=any(map(state.__getitem__, _ASIDE)),
        usual=False,
    )
    if answers:
        state["within"] = None
    elif WITHIN:
        WITHIN.discard(mark)
    if state == ORDINARY:
        CHANGED.discard(mark)


def _leave(mine: dict[str, Any], entry: tuple | None) -> None:
    """End an open block of a thread's, if it has not ended yet."""
    entered = mine["entered"]
    if entered and entered[-1] is entry:  # as nearly always
        entered.pop()
    else:
        entered[:] = [each for each in entered if each is not entry]
    _settle(mine)


def standing() -> tuple:
    """What this thread's state is made of; equal where nothing was changed, or all was put back."""
    mine = local.__dict__
    return {**mine["base"]}, [*mine["entered"]]


def restore(before: tuple) -> None:
    """Make this thread's state what `standing` told, whichever blocks are open."""
    mine = local.__dict__
    mine["base"], mine["entered"][:] = {**before[0]}, before[1]
    _settle(mine)


def tell(kind: str, *what: Any) -> None:
    """Tell this thread's recorder, if there is one, of something that is no op.  Ask `CHANGED` first.

    escape (tensor, how, value): Python was handed a value that depends on the tensor's elements.
    made (array): a tensor was made of what Python knows, numbers or shapes.
    drawn (generator, counters, state): a stretch of random numbers was reserved.
    numbers (operands, optimizer, group): where the 0-d operands of an update were read from.
    once (reason): this run did what later runs don't, so its recording is of no use.
    gradients (leaf): the `.grad` of leaves is read or written from here on; one leaf's, where it is known.
    kept (tensor, gradient): the `.grad` of a tensor is read or written that is no leaf, or asks for none.
    asked (tensor, question, answer): Python was told what a tensor's type, strides and history don't say.
    sized (tensor): Python was told a tensor's sizes, or what follows from them.
    backward (): history is walked.
    detached (tensor): a tensor without history that shares memory with one that may have it.
    apart (begins): what is heard from here on, or up to here, is of numbers that no size of the call told.
    picked (tensor, part): a view at a place that a tensor tells, of which an op told that it was a copy.
    foreign (what): history that no op record stands for was made.
    refuse (reason): something happened that a recording can't repeat.
    """
    notice = local.notice
    if notice is not None:
        notice(kind, *what)


TELLS.append(lambda reason: tell("refuse", reason))


def call_user(function: Callable, *args: Any) -> Any:
    """Call a function of the user's, such as a hook: by way of this thread's recorder, if there is one."""
    if CHANGED and local.caller is not None:
        return local.caller(function, args, {})
    return function(*args)


def call_user_with(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`call_user` with keyword arguments."""
    if CHANGED and local.caller is not None:
        return local.caller(function, args, kwargs)
    return function(*args, **kwargs)


def is_recording() -> bool:
    """Whether everything is to be done by ops: a hook hears them, or a transform says what they mean."""
    return bool(CHANGED) and (local.hook is not None or bool(local.levels))


def is_compiling() -> bool:
    """Whether this code runs only to be compiled: never, a run that is recorded is a call like all others."""
    return False


def is_grad_enabled() -> bool:
    """Whether ops on this thread record gradients now."""
    return not CHANGED or local.records


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside `inference_mode()`."""
    return local.inference


class _Mode:
    """A change of state for the length of a `with` block or of a decorated function (generators included).

    One object may be entered again inside itself (a decorated recursive function).
    """

    _changes: dict[str, Any]
    _mine: dict[str, Any] | None = None  # the state of the thread that entered it last

    def __enter__(self) -> Any:
        mine = self._mine = local.__dict__
        entry = id(self), {**self._changes}
        try:
            mine["entered"].append(entry)
            _settle(mine)
        except BaseException:
            _leave(mine, entry)
            raise

    def __exit__(self, *_: object) -> None:
        mine = local.__dict__
        entered, me = mine["entered"], id(self)
        entry = entered[-1] if entered else None
        if entry is None or entry[0] != me:
            entry = next((each for each in reversed(entered) if each[0] == me), None)
        try:
            _leave(mine, entry)
        except BaseException:  # an interrupt
            _leave(mine, entry)
            raise

    def __del__(self) -> None:
        """Leave the blocks that an interrupt kept Python from leaving."""
        mine = self._mine
        if mine is not None and mine["entered"]:
            for entry in (*mine["entered"],):
                if entry[0] == id(self):
                    _leave(mine, entry)

    def clone(self) -> _Mode:
        """A fresh one of the same kind: each decorated call enters its own, lest threads share a stack."""
        return type(self)()

    def __call__(self, function: Callable) -> Callable:
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated: only their construction runs so; decorate methods",
                FutureWarning,
                stacklevel=2,
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args, **kwargs):
                inner = function(*args, **kwargs)
                resume = functools.partial(inner.send, None)
                try:
                    while True:
                        try:
                            with self.clone():
                                item = resume()
                        except StopIteration as stop:
                            return stop.value
                        try:
                            resume = functools.partial(inner.send, (yield item))
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # the caller's throw() is for the function to handle
                            resume = functools.partial(inner.throw, error)
                finally:
                    with self.clone():
                        inner.close()

            return generator

        @functools.wraps(function)
        def call(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return call


class streams_as(_Mode):
    """Have a thread's work on GPUs be queued on those streams, by the numbers of the GPUs."""

    def __init__(self, streams: dict[int, Any] | None):
        self._changes = {"streams": streams}

    def clone(self) -> streams_as:
        return streams_as(self._changes["streams"])


class no_grad(_Mode):
    """Compute without recording gradients: `with no_grad():` or `@no_grad()`."""

    _changes = {"grad": False}

    def __enter__(self) -> None:
        mine = self._mine = local.__dict__
        if mine["entered"] or mine["base"] or WITHIN or not mine["usual"]:
            super().__enter__()
            return
        entry = id(self), {"grad": False}  # as mostly: what `_settle` does then
        try:
            mine["entered"].append(entry)
            CHANGED.add(mine["mark"])
            mine["grad"] = mine["records"] = False
        except BaseException:  # an interrupt
            _leave(mine, entry)
            raise

    def __exit__(self, *_: object) -> None:
        mine = local.__dict__
        entered = mine["entered"]
        if len(entered) != 1 or mine["base"] or WITHIN or not mine["usual"] or entered[0][0] != id(self):
            super().__exit__()
            return
        entry = entered[0]
        try:
            entered.pop()
            mine["grad"] = mine["records"] = True
            CHANGED.discard(mine["mark"])
        except BaseException:  # an interrupt
            _leave(mine, entry)
            raise

    def __new__(cls, function: Callable | None = None):
        made = object.__new__(cls)
        return made if function is None else made(function)


class enable_grad(no_grad):
    """Record gradients again inside a `no_grad` block."""

    _changes = {"grad": True}
    __enter__, __exit__ = _Mode.__enter__, _Mode.__exit__


class set_grad_enabled(_Mode):
    """Record gradients or not, from here on, or for a `with` block."""

    _what = "grad"

    def __init__(self, mode: bool):
        if not isinstance(mode, (bool, int)):
            raise ArgumentError(f"{type(self).__name__}(mode): must be a bool, not a {type(mode).__name__}")
        self._changes = {self._what: bool(mode)}
        self._before = {self._what: getattr(local, self._what)}
        try:
            update(**self._changes)
        except BaseException:
            update(**self._before)
            raise

    def __enter__(self) -> None:
        update(**self._before)  # from here on it is the block's
        super().__enter__()

    def clone(self) -> _Mode:
        return type(self)(self._changes[self._what])

    def __call__(self, function: Callable) -> Callable:
        update(**self._before)  # as a decorator it changes nothing where it stands
        return super().__call__(function)


class set_multithreading_enabled(set_grad_enabled):
    """Say whether backward may use several threads, from here on, or for a `with` block: it uses none."""

    _what = "multithreading"


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was told last."""
    if CHANGED:
        tell("refuse", "whether backward may use several threads was asked")
    return local.multithreading


class inference_mode(_Mode):
    """Compute without gradients; unlike under `no_grad`, `enable_grad` inside does not turn them on again."""

    def __new__(cls, mode: bool | Callable = True):
        made = object.__new__(cls)
        if callable(mode):
            made._changes = {"inference": True}
            return made(mode)
        made._changes = {"inference": bool(mode)}
        return made

    def clone(self) -> _Mode:
        return inference_mode(self._changes["inference"])


EAGER, FAIL = "eager", "fail"  # what may become of a call that no recording fits
LINES = "lines"  # a way of detecting anomalies: without a look at gradients


class detect_anomaly(_Mode):
    """Note the line of every op, and refuse a gradient that is NaN, naming the line it belongs to.

    Costs about 140 ns an op and a look at every gradient; without `check_nan` lines are noted alone.
    """

    def __init__(self, check_nan: bool = True):
        self._changes = {"anomaly": True if check_nan else LINES}

    def clone(self) -> _Mode:
        return detect_anomaly(self._changes["anomaly"] is True)


class set_detect_anomaly(set_grad_enabled):
    """Detect anomalies or not, from here on, or for a `with` block.  See detect_anomaly."""

    _what = "anomaly"

    def __init__(self, mode: bool, check_nan: bool = True):
        super().__init__(mode)
        if mode and not check_nan:
            self._changes = {"anomaly": LINES}
            update(**self._changes)

    def clone(self) -> _Mode:
        told = self._changes["anomaly"]
        return set_detect_anomaly(bool(told), told is True)


class within(_Mode):
    """Let `answer(module, args, kwargs)` answer the calls of modules: `local.within`."""

    def __init__(self, answer: Callable | None):
        self._changes = {"within": answer}

    def clone(self) -> _Mode:
        return within(self._changes["within"])


class unheard(_Mode):
    """Let nobody hear what this thread does."""

    _changes = {"hook": None, "notice": None, "caller": None, "stepping": None}


class on_values(_Mode):
    """Have `answer(function, args, kwargs)` make calls that functions of tensors can't make, and its `draw`
    make draws of random numbers.  caller: as of `hooked`.
    """

    def __init__(self, answer: Callable, caller: Callable):
        self._changes = {"values": answer, "caller": caller}


class hooked(_Mode):
    """Call `hook(op, attrs, operands, outputs)` after each op of this thread, and `notice` as `tell` says.

    caller: calls the user's functions for the framework, as `caller(function, args, kwargs)`.  stepping:
    makes the steps of a backward.
    """

    def __init__(
        self, hook: Callable, notice: Callable | None = None, caller: Callable | None = None,
        stepping: Callable | None = None,
    ):  # fmt: skip
        if not callable(hook):
            raise ArgumentError(f"hooked(hook): hook must be callable, not {type(hook).__name__}")
        self._changes = {
            "hook": _Listener(hook),
            "notice": None if notice is None else _Listener(notice),
            "caller": caller,
            "stepping": stepping,
        }
        self.listener = self._changes["hook"]  # what `local.hook` is then
        self._as_made = hook, notice, caller, stepping

    def clone(self) -> _Mode:
        return hooked(*self._as_made)


class _Listener:
    """Calls a listener, which is not told of the ops that it runs itself."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Callable):
        self._listener = listener

    def __call__(self, *event: Any) -> None:
        with unheard():
            self._listener(*event)
