"""What a function calls that can't be recorded as a whole: modules and functions are traced in their places.

A refused function runs natively, on a thread whose `modes.local.within` is an `Answers`.  A module that is
called there is answered for by a traced function of its own, or told to run itself; then those inside it
are asked for in turn.  So the largest that can be recorded is, under the same contract.  The traced function
of a module never runs it: where no recording serves a call it says UNSERVED, and the module runs in the very
frames of a plain run, as deep and with the same tracebacks.

Calls of the user's functions are redirected by name, in twins of the functions that call them (twin.py), and
from frames that a refused recording goes on to interpret.  A function runs natively the first time, when its
ops are counted: what computes in Python for the most part is not interpreted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from math import prod
from time import perf_counter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..ir.dims import bounds
from ..nn import Module, RNNBase
from ..nn.members import fields
from ..runtime import modes
from ..runtime.modes import UNSERVED
from .observe.deaths import Reach
from .observe.handing import handed
from .observe.names import library_class
from .observe.tracebacks import HIDDEN, clean
from .twin import can_be_answered, in_the_name_of, lookups, twin

if TYPE_CHECKING:
    from .report import Log, Path
    from .trace import TracedFunction

MOST_RECORDINGS = 8  # of one module or function
# With fewer ops, on fewer elements, eager is as fast: a compiled call costs as much as Python's share of one
# op, or where its results have a history, of six (50 us; 2026-11-21, Zen 5).
LEAST_OPS, LEAST_OPS_OF_HISTORY, LEAST_ELEMENTS = 2, 6, 1 << 16
MOST_PER_OP = 2e-3  # seconds that a function takes for each of its ops, to be interpreted
MOST_TRIES = 3  # native calls, in which it took longer, before a function is let alone
MOST_DEEP = 6  # recordings that are refused, each inside of the one before: they take much of the stack
MOST_LOOKUPS = 1000  # of a twin's globals, 0.3 us each, for a call that is served
MOST_UNPAID = 16  # things that died before compiled code served a call of theirs, before no more are traced


class Inner:
    """A module or a function that was called, held weakly.

    worth: whether a recording may be worth its while; None for a function that is being tried.  tries: how
    often that was.  traced: from the second call on, where it is worth it.  plain: whether a function has no
    twin, as it looks up so much that this would cost more than it gains.
    """

    __slots__ = ("plain", "reach", "traced", "tries", "worth")

    def __init__(self, thing: Module | FunctionType, within: ref[Within]):
        key = id(thing)

        def gone(_: Any) -> None:
            if (this := within()) is not None:
                this.gone(key)

        self.reach = Reach(thing, gone)
        self.worth = is_worth(thing) if issubclass(type(thing), Module) else None
        self.traced: TracedFunction | None = None
        self.tries, self.plain = 0, False

    @property
    def hopeless(self) -> bool:
        """Whether the thing always runs itself, as far as has been seen."""
        if self.traced is None:
            return self.worth is False
        return self.traced._log.recorded > 1 and not self.traced._log.paths


class Within:
    """The modules and functions that one traced function calls when it runs natively.

    It keeps none of them alive, and serves any number of threads.  function: the one itself.  trace: makes a
    traced function of what is held weakly.
    """

    def __init__(self, function: Any, trace: Callable[[Reach, str, Within], TracedFunction]):
        self._trace = trace
        self._inner: dict[int, Inner] = {}
        self._unpaid = 0
        function = function.__func__ if type(function) is MethodType else function
        if issubclass(type(function), (Module, FunctionType)):
            self.meet(function).worth = False

    def traced(self, module: Module) -> TracedFunction | None:
        """What answers for a module; None where it is to run itself, as it does the first time."""
        inner = self._known(module)
        if inner is None:
            self.meet(module)
            return None
        if not inner.worth or type(module).__call__ is not _CALL:  # which would run a second time
            return None
        return inner.traced or self.trace(inner, type(module).__name__)

    def trace(self, inner: Inner, name: str) -> TracedFunction | None:
        """Make what answers for a thing; None where too many died in vain."""
        if self._unpaid < MOST_UNPAID:
            inner.traced = self._trace(inner.reach, name, self)
        return inner.traced

    def meet(self, thing: Module | FunctionType) -> Inner:
        """What is known of a thing."""
        inner = self._known(thing)
        if inner is None:
            self._inner.pop(id(thing), None)
            inner = self._inner.setdefault(id(thing), Inner(thing, ref(self)))
        return inner

    def _known(self, thing: Any) -> Inner | None:
        """What is known of a thing: not of one that lay there before, of whose death an interrupt kept us."""
        inner = self._inner.get(id(thing))
        return inner if inner is not None and inner.reach() is thing else None

    def gone(self, key: int) -> None:
        """Forget a thing that died."""
        inner = self._inner.pop(key, None)
        if inner is not None and inner.traced is not None:
            self._unpaid = 0 if inner.traced._log.hits else self._unpaid + 1

    def let_alone(self, traced: TracedFunction) -> None:
        """Let a thing run itself from now on, and drop what was recorded of it."""
        inner = self._inner.get(id(traced.__wrapped__))
        if inner is not None:
            inner.worth, inner.traced = False, None

    @property
    def idle(self) -> bool:
        """Whether everything that it calls has turned out to run itself."""
        return all(inner.worth is False or inner.hopeless for inner in [*self._inner.values()])

    def logs(self) -> list[tuple[int, Log]]:
        """What happened to each traced thing, and how deep it lies: behind the modules that it is in."""
        living = [i for i in [*self._inner.values()] if i.reach() is not None]
        traced = [i.traced for i in living if i.traced is not None]
        inside = {t: _inside(t.__wrapped__) for t in traced}
        depths = {t: sum(id(t.__wrapped__) in ids for ids in inside.values()) for t in traced}
        found: dict[TracedFunction, None] = {}

        def enter(t: TracedFunction) -> None:
            if t not in found:
                found[t] = None
                for below in traced:
                    if id(below.__wrapped__) in inside[t] and depths[below] == depths[t] + 1:
                        enter(below)

        for t in sorted(traced, key=lambda t: depths[t]):
            enter(t)
        return [(depths[t], t._log) for t in found]


class Answers:
    """Answers the calls of modules, and of functions, during one native run.

    hook, recorder: what hears the run, if anything does: this answers once the recorder has given up.
    served: how often compiled code answered.
    """

    def __init__(self, within: Within, hook: Any = None, recorder: Any = None):
        self._within, self._hook, self._recorder = within, hook, recorder
        around = modes.local.within
        self._depth = around._depth + 1 if type(around) is Answers else 0
        self._running: set[int] = set()  # functions that run natively below a frame of ours
        self.served = 0

    def __call__(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        if not self.active:
            return UNSERVED
        traced = self._within.traced(module)
        if traced is None:
            return UNSERVED
        try:
            return self._answer(traced, args, kwargs)
        except BaseException as error:
            error.__traceback__ = clean(error.__traceback__)
            raise

    @property
    def active(self) -> bool:
        """Whether anything is answered for now."""
        local = modes.local
        if (
            local.hook is not self._hook
            or local.anomaly
            or local.autocast is not None
            or local.packing is not None
            or local.functions
            or local.device is not None
            or self._depth > MOST_DEEP
        ):
            return False
        return self._recorder is None or self._recorder.reason is not None

    def _answer(self, traced: TracedFunction, args: tuple, kwargs: dict[str, Any]) -> Any:
        log = traced._log
        recorded = log.recorded
        if self._hook is None:
            answer = traced(*args, **kwargs)
        else:
            with modes.unheard():
                answer = traced(*args, **kwargs)
        if log.recorded != recorded:
            if answer is not UNSERVED and log.paths and not pays(log.paths[-1]):
                self._within.let_alone(traced)
        elif answer is not UNSERVED:
            self.served += 1
        return answer

    # ---- functions ----
    def run(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run a function natively, and answer for what it calls."""
        callee, given, named = _unwrapped(function, args, kwargs)
        with modes.within(self):
            return self._natively(callee, [*given, *named.values()], tuple(named))

    def _natively(self, function: Any, values: list[Any], names: tuple[str, ...]) -> Any:
        """Call a function, or its twin, with what a list holds, which is empty then."""
        if type(function) is not FunctionType:
            return handed(function, values, names)
        inner, served = self._within.meet(function), self.served
        made = function if inner.plain else twin(function, self)
        try:
            return handed(made, values, names)
        finally:
            if made is not function:
                inner.plain = lookups(made) > MOST_LOOKUPS * (1 + self.served - served)

    def instead(self, function: FunctionType) -> Callable:
        """What is called in place of a function of the user's: itself or its twin, where nothing answers."""
        if not self.active:
            return function
        inner = self._within.meet(function)
        if self.runs(function) or inner.hopeless:
            return function if inner.plain else twin(function, self)  # which takes no more of the stack

        def redirected(*args: Any, **kwargs: Any) -> Any:
            values, names = [*args, *kwargs.values()], tuple(kwargs)
            del args, kwargs
            return self.call(function, values, names)

        return in_the_name_of(function, redirected)

    def runs(self, function: FunctionType) -> bool:
        """Whether a function runs natively below a frame of ours."""
        return id(function) in self._running

    def call(self, function: Any, values: list[Any], names: tuple[str, ...] = ()) -> Any:
        """Call a function, by way of what answers for it if it is a user's.

        values: what it is given, emptied then; names: of the last ones, given by name.
        """
        if type(function) in (partial, MethodType):
            place = len(values) - len(names)
            function, given, named = _unwrapped(
                function, tuple(values[:place]), dict(zip(names, values[place:], strict=True))
            )
            values[:], names = [*given, *named.values()], tuple(named)
            del given, named
        if not can_be_answered(function) or not self.active:
            return handed(function, values, names)
        inner = self._within.meet(function)
        first = not self.runs(function)
        try:
            if (
                first
                and inner.worth
                and (traced := inner.traced or self._within.trace(inner, function.__name__))
            ):
                place = len(values) - len(names)
                named = dict(zip(names, values[place:], strict=True))
                answer = self._answer(traced, tuple(values[:place]), named)
                del named
                if answer is not UNSERVED:
                    return answer
            self._running.add(id(function))
            if first and inner.worth is None:
                return self._tried(inner, function, values, names)
            return self._natively(function, values, names)
        except BaseException as error:
            error.__traceback__ = clean(error.__traceback__)
            raise
        finally:
            if first:
                self._running.discard(id(function))

    def _tried(self, inner: Inner, function: FunctionType, values: list[Any], names: tuple[str, ...]) -> Any:
        """Run a function for the first times, and see what it does."""
        counter = Counter()
        heard = modes.hooked(counter.hear)
        answers = Answers(self._within, heard.listener, counter)
        answers._running = self._running
        start = perf_counter()
        try:
            with heard, modes.within(answers):
                return answers._natively(function, values, names)
        finally:
            ops = counter.ops + answers.served * LEAST_OPS
            inner.tries += 1
            if ops >= LEAST_OPS and perf_counter() - start <= MOST_PER_OP * ops:
                inner.worth = True
            elif ops < LEAST_OPS or inner.tries >= MOST_TRIES:  # the first call of an op takes longest
                inner.worth = False
            self.served += answers.served


class Counter:
    """Counts ops.  reason: why it is no recorder that modules must run themselves for."""

    reason = "ops are counted"

    def __init__(self) -> None:
        self.ops = 0

    def hear(self, *_: Any) -> None:
        """Count one."""
        self.ops += 1


def _unwrapped(callee: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, tuple, dict[str, Any]]:
    """The function that a call comes to, and what it is given: past partials and bound methods."""
    kind: type = type(callee)
    while kind is partial:
        if _PLACEHOLDER is not None and any(x is _PLACEHOLDER for x in callee.args):
            break
        callee, args, kwargs = callee.func, (*callee.args, *args), {**callee.keywords, **kwargs}
        kind = type(callee)
    return (
        (callee.__func__, (callee.__self__, *args), kwargs) if kind is MethodType else (callee, args, kwargs)
    )


def _inside(thing: Any) -> set[int]:
    """What lies in a module, by id, without asking code of the user's."""
    found: set[int] = set()
    left = [thing] if issubclass(type(thing), Module) else []
    while left:
        children = fields(left.pop()).get("_modules")
        new = [child for child in (children or {}).values() if id(child) not in found]
        found.update(map(id, new))
        left += new
    return found


def pays(path: Path) -> bool:
    """Whether compiled code saves more than a call of it costs: by many ops, or by much to do.

    Where sizes are symbols, whether it may, at sizes that its guards admit.
    """
    if path.ops >= (LEAST_OPS_OF_HISTORY if path.live else LEAST_OPS):
        return True
    sizes = (prod(v.type.shape) for s in path.kept() for node in s.graph.nodes for v in node.outputs)
    return bounds(sum(sizes))[1] >= LEAST_ELEMENTS


def is_worth(module: Module) -> bool:
    """Whether a recording may be worth its while: of more than one of the library's layers."""
    kind = type(module)
    return bool(fields(module).get("_modules")) or not library_class(kind) or issubclass(kind, RNNBase)


_PLACEHOLDER = getattr(functools, "Placeholder", None)  # from 3.14 on, for what is given later
_CALL = Module.__call__
HIDDEN.add(__file__)
