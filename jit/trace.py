"""`trace`: the first call of a function is an eager run that is written down, later calls run compiled code.

A traced function returns what the undecorated one would return, and has the same side effects.  Where that
can't be promised it runs undecorated, and `explain()` says why.
"""

from __future__ import annotations

import builtins
import copy
import functools
import inspect
import operator
import os
import sys
import threading
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import repeat
from threading import get_ident
from typing import Any

from ..ir import meeting
from ..ir.dtypes import default_dtype, set_default_dtype
from ..ir.errors import (
    ArgumentError,
    ArgumentValueError,
    DeviceError,
    DimError,
    DistributedError,
    GradError,
    LaminaError,
)
from ..ir.graph import Graph
from ..ir.specialise import specialise
from ..ir.types import CPU
from ..nn import Module
from ..passes.llvm import headroom
from ..runtime import memory, modes, workers
from ..runtime.graph import Leaf
from ..runtime.interrupts import let_through
from . import backend, beside
from .autograd import Eager, differentiable
from .blame import where_text
from .causes import cause
from .facts import Refusal
from .guards import Conditions, Guard
from .ledger import Ledger, budget_of
from .observe.deaths import Reach
from .observe.decode import TABLES
from .observe.facts import Abandoned, Facts
from .observe.fresh import unmade
from .observe.indices import refuse_views, settle
from .observe.kinds import TRANSPARENT
from .observe.known import Registry
from .observe.modules_around import ModulesAround
from .observe.numbers import raw
from .observe.outcome import Outcome
from .observe.outermost import Interpreter
from .observe.parts import Part, place_text
from .observe.tracebacks import HIDDEN, clean
from .quick import AFTER, MISS, quick
from .recorder import Recorder
from .recording import Recording, finished
from .replay import Busy, Call, Missed, Raised, Unready, choose, take
from .report import BUSY, COMPILING, PASSING, RESIZED, SHORT, SPARED, STANCE, TIMED, Log
from .sized import Sized
from .sources import Arg, Held
from .targets import resident, target_of
from .tree import MOST_ANSWERS, Branch, Segment, Tree
from .tuning import Clock, seconds_of
from .verify import TraceError, compared, wanted
from .within import MOST_RECORDINGS as MOST_INNER
from .within import Answers, Within

PRECISIONS = (None, "float32", "tf32", "tf32x3", "bfloat16")  # by which products of float32 may be multiplied
MOST_RECORDINGS = 32  # of one function
MOST_IN_VAIN = 2  # times `max_recordings`: as many may be made that were dropped before they paid off
PAID_OFF = 64  # calls served, with which a recording has
PATIENCE = 32  # calls in a row that no recording served, before some are let by unasked
LONGEST_LEAVE = 16_384  # calls that are let by unasked, at most: asking takes as long as some 500 of them
LONGEST_TIME = 10.0  # seconds that these may take
TIMED_AFTER = 4  # calls served, before one is run eagerly, to know what that takes
MOST_REFUSED = 4  # recording runs refused for one reason, before all calls run plainly if none was served
MOST_RAISED = 2  # recording runs that raise, before such calls run plainly


# Methods of modules that return the module.
RETURNED = frozenset((
    "apply", "bfloat16", "cpu", "cuda", "double", "eval", "float", "half", "requires_grad_", "share_memory",
    "to", "to_empty", "train", "type",
))  # fmt: skip
# What records and compiles uses these as well; the others it doesn't.
_OTHERS = ("print", "input", "breakpoint", "help", "exit", "quit", "copyright", "credits", "license", "_")
_BUILTINS = {n: value for n, value in vars(builtins).items() if callable(value) and n not in _OTHERS}


class TooManyRecordings(LaminaError, RuntimeError):
    """A function was recorded `max_recordings` times, and a call fits none of them."""


class RefusedError(LaminaError, RuntimeError):
    """A call can't be recorded, or not be served, under `fullgraph=True` or such a stance of the compiler."""


class TracedFunction:
    """A function whose calls are recorded once for each kind of arguments and state, and then compiled."""

    def __init__(
        self, function: Callable, *, verify: bool = False, compile: str = "now",
        max_recordings: int = MOST_RECORDINGS, when_full: str = "eager", target: str = "cpu",
        budget: float | None | str = "default", fullgraph: bool = False, name: str | None = None,
        tune: float = 0.0, dynamic: bool | None = None, precision: str | None = None,
    ):  # fmt: skip
        self._wrap(function)
        self._verify, self._compile = wanted(verify), compile
        self._limit, self._when_full, self._target = max_recordings, when_full, target_of(target)
        self._budget = budget_of(budget) if when_full == "eager" and not self._verify else None
        self._fullgraph, self._tune = fullgraph, seconds_of(tune)
        self._dynamic = dynamic
        self._precision = "float32" if self._verify else precision  # what the eager run is compared with
        self._name = name or getattr(function, "__name__", type(function).__name__)
        self._lock, self._claims = threading.RLock(), threading.Lock()
        self._recorder: int | None = None  # the thread that records, or is about to
        self._being_built: list[list[tuple[list[Branch], Branch]]] = []
        self._lost: DeviceError | None = None
        self._example: tuple | None = None  # what `trace(function, example)` called it with
        self.reset()
        _traced.add(self)

    def _wrap(self, function: Callable) -> None:
        functools.update_wrapper(self, function, updated=())  # which sets `__wrapped__`

    def reset(self) -> None:
        """Forget all recordings."""
        with self._lock:
            self._trees: dict[Any, Tree] = {}
            self._registry = Registry()
            self._quick: dict[Any, tuple] = {}
            self._recordings = self._made = 0  # those that are kept, and those that are or have not paid off
            self._blamed = False
            self._in_vain = self._served = 0  # calls in a row that were asked about for nothing
            self._leave = 0  # how many are let by unasked the next time
            self._by: Iterator[Callable] | None = None  # for each call that is let by unasked what runs it
            self._full: str | None = None
            self._differs: str | None = None  # the last call that was not recorded, from what is
            self._unsteady: Counter[tuple] = Counter()
            self._held_answers: set[tuple] = set()  # what asked for their values: no inputs
            self._ledger = Ledger(self._budget)
            options = {
                "compile": self._compile, "target": self._target.name, "budget": None, "tune": self._tune,
                "dynamic": self._dynamic, "precision": self._precision,
            }  # fmt: skip
            self._within = Within(self.__wrapped__, functools.partial(_Inner, options))
            self._log = Log(self._name, self._ledger, self._within.logs)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "__wrapped__" and "_log" in self.__dict__:  # what was recorded is another function's
            self.reset()

    # ---- calling ----
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.CHANGED:
            local = modes.local
            if local.usual:  # but for gradients
                short: Any = len(args) if local.grad else ~len(args)
            else:
                if local.aside:
                    if local.within is not None and local.within.active:  # the hook's recording was refused
                        with modes.unheard():
                            return self(*args, **kwargs)
                    return self.__wrapped__(*args, **kwargs)
                short = len(args), local.grad, local.inference
                if (timing := local.timing) is not None:
                    if timing.enters(self):
                        return timing.of_call(self, f"traced {self._name}", args, kwargs)
                    short = None  # the long way tells of its kernels
        else:
            short = len(args)
        if not kwargs:
            for serve in self._quick.get(short, ()):
                result = serve(args)
                if result is not MISS:
                    return result
        if (by := self._by) is not None:
            for function in by:
                return function(*args, **kwargs) if kwargs else function(*args)
            self._by = None
        local = modes.local
        key = len(args), tuple(kwargs), local.grad, local.inference, default_dtype(), meeting.CARRIER
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees.setdefault(key, Tree())
        S = [*args, *kwargs.values()]
        S.extend([None] * (tree.slots - len(S)))
        call = Call(S, self._registry)
        ledger = self._ledger
        clock, apart = ledger.clock, ledger.compiling
        start = clock()
        try:
            result = self._compared(tree, call, args, kwargs) if self._verify else take(tree, call)
        except TraceError:
            raise
        except (DeviceError, DistributedError) as error:  # what other ranks were told is not said again
            raise _located(error, tree) from None
        except Exception as error:
            let_through(error)
            why = error.with_traceback(None)  # whose frames hold the arguments, and it
        else:
            path = call.path
            path.served(clock() - start - (ledger.compiling - apart))
            self._in_vain = self._leave = 0
            if path.hits >= AFTER and not kwargs and not self._verify:
                self._shorten(tree, call.branch, key)
            elif path.hits == TIMED_AFTER and self._ledger.wants_to_time():
                self._let_by((functools.partial(_eagerly, self._itself, self._log, TIMED, False),))
            return result
        # Outside of the clause: what the function raises has nothing to do with it.
        if type(why) is not Raised:
            call.undo.run()
        self._ledger.asked(clock() - start)
        if call.met:
            with meeting.begun_anew(call.met):
                return self._otherwise(tree, why, S, args, kwargs)
        return self._otherwise(tree, why, S, args, kwargs)

    def _compared(self, tree: Tree, call: Call, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Not in `__call__`: what a closure uses there would be made a cell at each call."""
        run = functools.partial(self._run, args, kwargs)
        return compared(run, tree, call, self._name, self._target)

    def _otherwise(self, tree: Tree, why: Exception, S: list, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run the function itself.  Of what it raises the user sees his own lines."""
        try:
            if type(why) is Raised:
                raise why.args[0]
            if type(why) is Missed:
                return self._missed(tree, why, S, args, kwargs)
            if type(why) in (Eager, Unready, Busy):
                S.clear()  # what guards found there must die when the run lets go of it
            if type(why) is Eager:
                if not self._being_built:
                    self._in_vain_again()
                return self._eagerly(why.args[0], args, kwargs, within=True)
            if type(why) is Unready:
                return self._eagerly(why.args[0], args, kwargs)
            if type(why) is Busy:
                return self._eagerly(BUSY, args, kwargs)
            return self._failed(tree, S, why, args, kwargs)
        except BaseException as error:
            error.__traceback__ = clean(error.__traceback__)
            raise

    def _shorten(self, tree: Tree, branch: Branch, key: tuple) -> None:
        """Let a path that is taken often be taken the short way, if it can be."""
        if branch.quick is None:
            branch.quick = False
            if self._target.language == "llvm":
                workers.settle()  # the machine may have been busy when forks were measured
            try:
                if branch in tree.branches:
                    branch.quick = quick(branch, tree, key[0]) or False
            except Exception as error:  # the call is over
                let_through(error)
                self._blame(f"the short way could not be made: {type(error).__name__}: {error}", error)
        if branch.quick:
            ways = tuple([b.quick for b in tree.branches if b.quick])
            self._quick[key[0], key[2], key[3]] = ways
            if not key[3]:  # the usual ones: the number of arguments, or its complement without gradients
                self._quick[key[0] if key[2] else ~key[0]] = ways

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __copy__(self) -> TracedFunction:
        return self._around(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict) -> TracedFunction:
        return self._around(copy.deepcopy(self.__wrapped__, memo))

    def _around(self, copied: Any) -> TracedFunction:
        """The same for a copy of what is wrapped; a function's copy is the function."""
        return self if copied is self.__wrapped__ else type(self)(copied, **self._options())

    def __reduce__(self) -> str | tuple:
        name = getattr(self.__wrapped__, "__qualname__", "")
        home = sys.modules.get(getattr(self.__wrapped__, "__module__", None) or "")
        if home is not None and vars(home).get(name) is self:
            return name  # as functions are pickled
        return _restored, (type(self), self.__wrapped__, self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "verify": self._verify, "compile": self._compile, "max_recordings": self._limit,
            "when_full": self._when_full, "target": self._target.name, "budget": self._budget,
            "fullgraph": self._fullgraph, "name": self._name, "tune": self._tune, "dynamic": self._dynamic,
            "precision": self._precision,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        """What the wrapped module has: `traced.parameters()`, `traced.train()`."""
        if name.startswith("__") or name == "_trees":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def _in_vain_again(self) -> None:
        """Count a call that was asked about for nothing; many in a row let others by unasked, ever more."""
        self._in_vain += 1
        if self._in_vain < PATIENCE:
            return
        if (served := self._log.hits) != self._served:  # the short way served some meanwhile
            self._served, self._in_vain, self._leave = served, 0, 0
            return
        longest = min(LONGEST_LEAVE, LONGEST_TIME / (self._ledger.eager_call or LONGEST_TIME))
        self._leave = max(PATIENCE, min(2 * self._leave, int(longest)))
        self._log.let_by += self._leave
        self._let_by(repeat(self._itself if self._callees().idle else self._run_within, self._leave))

    def _let_by(self, by: Iterable[Callable]) -> None:
        """Run the next calls by these, one each, unasked.  The short ways are looked at before: they go."""
        self._by = iter(by)
        self._quick.clear()

    def _eagerly(self, reason: str, args: tuple, kwargs: dict[str, Any], within: bool = False) -> Any:
        if reason not in PASSING:
            self._complain(reason)
        run = functools.partial(self._run, args, kwargs, within)
        return _eagerly(run, self._log, reason, bool(self._being_built))

    def _complain(self, reason: str) -> None:
        """Raise RefusedError where the user wants compiled code or an error."""
        if self._fullgraph:
            why = cause(self._log.because.get(reason, reason))
            details = [f"at {why.where}"] * bool(why.where) + [f"instead: {why.instead}"] * bool(why.instead)
            raise RefusedError(f"{self._name}: {why.what}", *details)

    def _callees(self) -> Within:
        return self._within

    @property
    def _itself(self) -> Callable:
        """What runs a call that is not served."""
        return self.__wrapped__

    def _run(self, args: tuple, kwargs: dict[str, Any], within: bool = False) -> Any:
        """Run the function undecorated.  within: for good, so that what it calls is traced in its place."""
        if self._verify:  # what is compared with runs eagerly all through
            with modes.within(None):
                return self.__wrapped__(*args, **kwargs)
        if not within:
            return self.__wrapped__(*args, **kwargs)
        answers = Answers(self._callees())
        try:
            return answers.run(self.__wrapped__, args, kwargs)
        finally:
            self._log.within += answers.served > 0

    def _run_within(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(args, kwargs, within=True)

    def _failed(self, tree: Tree, S: list, error: Exception, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Compiled code raised, and changed nothing: the eager run tells whether it was right to."""
        reason = f"compiled code raised {type(error).__name__}: {error}"
        # Mostly this raises, and the user sees the eager error.
        result = _eagerly(self._itself, self._log, reason, False, *args, **kwargs)
        for branch in tree.branches:
            try:
                concerned = branch.segment is not None and branch.guard.failing(S) is None
            except Exception as failed:  # it is what failed
                let_through(failed)
                concerned = True
            if concerned:
                branch.eager, branch.segment = reason, None
                self._quick.clear()
        # an index out of range, a matrix that is singular: the function itself may catch these
        if not isinstance(error, (DimError, ArgumentValueError)) and result is not modes.UNSERVED:
            self._blame(reason, error)
        return result

    def _blame(self, reason: str, error: Exception) -> None:
        """Warn once of a fault that is not the user's; want of memory is none."""
        if isinstance(error, MemoryError) or self._blamed:
            return
        self._blamed = True
        warnings.warn(
            f"{self._name}: {reason}\nIt runs eagerly from here on. This is a fault of Lamina's: please "
            "report it with the text of traced.explain().",
            stacklevel=2,
        )

    # ---- where no recorded path fits ----
    def _missed(self, tree: Tree, missed: Missed, S: list, args: tuple, kwargs: dict[str, Any]) -> Any:
        if (stance := modes.local.on_miss) is not None:
            if stance == modes.FAIL:
                told = self._told_or_blamed(tree, missed, S)
                raise RefusedError(
                    f"{self._name}: Detected recompile: no recording fits this call, and the compiler's "
                    "stance is 'fail_on_recompile'",
                    *told[-1:],
                )
            S.clear()
            return self._eagerly(STANCE, args, kwargs)
        if self._full is not None and self._when_full == "eager":
            self._in_vain_again()
            S.clear()
            return self._eagerly(self._full, args, kwargs, within=True)
        if (reason := self._not_now()) is not None:
            if reason is SPARED:
                self._in_vain_again()
                if self._differs is None and (told := self._told_or_blamed(tree, missed, S)):
                    self._differs = self._log.because[SPARED] = told[-1]
            self._note_sizes(missed, S)
            S.clear()
            return self._eagerly(reason, args, kwargs)
        me, nested = get_ident(), self._recorder == get_ident()
        try:
            with self._claims:  # no interrupt keeps it, as it may a lock that a call has taken
                if self._recorder is None:
                    self._recorder = me
            if self._recorder == me:
                with self._lock:
                    return self._recorded_anew(tree, missed, S, args, kwargs)
        finally:
            if not nested and self._recorder == me:
                self._recorder = None
        self._log.waiting += 1
        S.clear()
        return self._run(args, kwargs)

    def _recorded_anew(
        self, tree: Tree, missed: Missed, S: list, args: tuple, kwargs: dict[str, Any]
    ) -> Any:  # fmt: skip
        """Record the call, unless there is no room for it."""
        segment, answer, reasons = missed.args
        told, self._differs = self._told_or_blamed(tree, missed, S), None
        S.clear()  # what guards found there must die when the run lets go of it
        if segment is not None and segment.is_full and all(b in segment.any_ways for _, b in reasons):
            at = place_text(segment.ask.place)
            segment.full = (
                f"{segment.ask.about} took more than {MOST_ANSWERS} values; {segment.ask.remedy} ({at})"
            )
            return self._eagerly(segment.full, args, kwargs, within=True)
        most = self._recordings >= self._limit or self._made >= MOST_IN_VAIN * self._limit
        if self._full is None and most:
            self._full = f"{max(self._recordings, self._made)} recordings were made, and none fits"
            if told:
                self._full += f"; the last differs in: {told[-1]}"
        if self._full is not None:
            if self._when_full == "error":
                raise TooManyRecordings(f"{self._name}: {self._full}", "see traced.explain()")
            if told:
                self._log.because[self._full] = told[-1]
            return self._eagerly(self._full, args, kwargs, within=True)
        if told:
            self._log.anew(told[-1])
        return self._record(tree, (segment, answer), args, kwargs)

    def _not_now(self) -> str | None:
        """Why a call that no recording fits is not recorded now; None where it is."""
        ledger, log = self._ledger, self._log
        if ledger.budget is not None and (log.paths or log.refusals):  # the first is always made
            if ledger.wants_to_time():
                return TIMED
            if self._being_built:
                return COMPILING
            if not ledger.allows_recording(log.fares()):
                return SPARED
        return None if headroom.is_there(headroom.TO_BEGIN) else SHORT

    def _told_or_blamed(self, tree: Tree, missed: Missed, S: list) -> list[str]:
        try:
            return self._told(tree, missed, S)
        except Exception as error:  # the call goes on without
            let_through(error)
            self._blame(f"a miss could not be told: {type(error).__name__}: {error}", error)
            return []

    def _told(self, tree: Tree, missed: Missed, S: list) -> list[str]:
        """What differs from each recording, for a reader; all that changed since the last one is noted."""
        segment, answer, reasons = missed.args
        reasons = [(branch.guard.blamed(reason, S), branch) for reason, branch in reasons]
        told = [branch.guard.told(reason, S) for reason, branch in reasons]
        for text, (_, branch) in zip(told, reasons):
            self._log.miss(text, branch.path)
        slots = [reason.slot for reason, _ in reasons]
        if reasons:
            latest = reasons[-1][1].guard
            slots += [reason.slot for reason in latest.unsteady(S)]
            slots += latest.resized(S)
        elif segment is not None:
            told = [segment.told(answer)]
            self._log.miss(told[0])
        lost, tree.lost = tree.lost, None
        if lost is not None:  # by what was changed since: of all that differs this is the latest
            told.append(lost[0].told(lost[1], S))
            self._log.miss(told[-1])
        dead, tree.places = [slot for reach, slot in tree.places if reach() is None], []
        self._note_unsteady([*slots, *dead])
        return told

    def _note_sizes(self, missed: Missed, S: list) -> None:
        """Count the sizes that changed in a call that is not recorded, for the recording that will be."""
        try:
            if reasons := missed.args[2]:
                latest = reasons[-1][1].guard
                latest.unsteady(S)
                self._note_unsteady(latest.resized(S))
        except Exception as error:  # the call goes on without
            let_through(error)
            self._blame(f"a miss could not be told: {type(error).__name__}: {error}", error)

    def _note_unsteady(self, slots: list[tuple | None]) -> None:
        """Count the places that changed; where one does so again and again, it becomes an input."""
        for slot in {slot for slot in slots if slot is not None}:
            self._unsteady[slot] += 1

    # ---- recording ----
    def _record(self, tree: Tree, at: tuple, args: tuple, kwargs: dict[str, Any]) -> Any:
        if sys.version_info[:2] not in TABLES:
            return self._uninterpreted(tree, args, kwargs)
        for name, builtin in _BUILTINS.items():
            if vars(builtins).get(name) is not builtin:  # what records and compiles uses them as well
                return self._eagerly(f"the builtin {name} was replaced", args, kwargs)
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost
        self._target.check()
        self._recordings += 1
        self._made += 1
        ledger = self._ledger
        start, apart = ledger.clock(), ledger.compiling + ledger.searching
        try:
            with memory.giving_back():
                return self._recorded(tree, at, args, kwargs)
        finally:
            apart = ledger.compiling + ledger.searching - apart
            ledger.recorded(ledger.clock() - start - apart, self._log.fares())

    def _recorded(self, tree: Tree, at: tuple, args: tuple, kwargs: dict[str, Any]) -> Any:
        registry = self._registry
        recorder = Recorder(registry.generators, registry.groups)
        recorder.around = ModulesAround().path
        lift = dict(self._unsteady)
        if self._verify or self._dynamic is False:  # which compares what graphs of known sizes compute
            lift = {slot: count for slot, count in lift.items() if type(slot[-1]) is not int}
        observer = Interpreter(recorder, registry, lift, self._held_answers)
        observer.sizes.every = None if self._verify or self._dynamic is False else self._dynamic is True
        heard = modes.hooked(recorder.hear, observer.notice, observer.called, recorder.symbolic.step)
        answers = None
        if not self._verify:
            answers = Answers(self._callees(), heard.listener, recorder)
            observer.freely = answers.call
        before, dtype = modes.standing(), default_dtype()
        observer.clock = clock = self._ledger.clock
        start = clock()
        observer.most_turns = self._ledger.turns(self._log.fares())
        result: Any = None
        raised, again, fault = True, None, None
        try:
            with heard, modes.within(answers):
                result = observer.run(self.__wrapped__, args, kwargs)
                observer.fresh.settle()
            raised = False
        except Abandoned as abandoned:
            raised, again = False, str(abandoned)
        except Exception as error:
            if not observer.may_be_faulty or isinstance(error, DistributedError):
                raise
            raised, fault = False, error.with_traceback(None)
            observer.left_over = observer.fresh.instances
        finally:
            seconds = clock() - start
            if raised:
                self._raised(tree, at, observer)
                observer.forget()
        unmade(observer.left_over)
        if fault is not None or again is not None:  # it is made anew, from the start
            modes.restore(before)
            set_default_dtype(dtype)
        if fault is not None:
            return self._after_fault(tree, at, observer, fault, args, kwargs)
        if again is not None:
            self._log.refused(recorder.reason or again)
            self._refuse(tree, at, observer, recorder.reason or again)
            observer.forget()
            self._complain(recorder.reason or again)
            return self._run(args, kwargs, within=True)
        self._log.within += answers is not None and answers.served > 0
        try:
            if recorder.once is not None:
                self._log.passed(recorder.once)
                return raw(result)
            if (modes.standing(), default_dtype()) != (before, dtype):
                raise Refusal("it leaves another mode behind (gradients on or off, the default dtype)")
            self._enter(tree, at, observer, recorder, result, seconds)
        except Refusal as refusal:
            self._log.refused(str(refusal))
            self._refuse(tree, at, observer, str(refusal))
            self._complain(str(refusal))
        except DeviceError:
            raise
        except Exception as error:
            let_through(error)
            reason = f"it could not be compiled: {type(error).__name__}: {error}"
            self._refuse(tree, at, observer, reason)
            self._blame(reason, error)
            self._complain(reason)
        finally:
            observer.forget()
        return raw(result)

    def _after_fault(
        self, tree: Tree, at: tuple, observer: Facts, fault: Exception, args: tuple, kwargs: dict[str, Any]
    ) -> Any:  # fmt: skip
        """Run plainly what an operation of the interpreter's raised: mostly that raises the same."""
        try:
            result = self._run(args, kwargs, within=True)
        except BaseException:
            self._raised(tree, at, observer)
            raise
        else:
            if result is modes.UNSERVED:  # who called will run it
                self._raised(tree, at, observer)
                return result
            reason = f"the recorder failed: {type(fault).__name__}: {fault}"
            self._log.refused(reason)
            self._refuse(tree, at, observer, reason)
            self._blame(reason, fault)
            self._complain(reason)
            return result
        finally:
            observer.forget()

    def _uninterpreted(self, tree: Tree, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run undecorated, and say so once: the instructions of this Python are not known."""
        version, *known = (".".join(map(str, v)) for v in (sys.version_info[:2], *TABLES))
        reason = f"the bytecode of Python {version} can't be interpreted: only that of {', '.join(known)} can"
        if not self._log.reasons[reason]:
            warnings.warn(f"what is traced runs undecorated: {reason}", stacklevel=2)
        tree.branches.append(Branch(Guard(Part(), self._registry), None, reason))
        return self._eagerly(reason, args, kwargs)

    def _raised(self, tree: Tree, at: tuple, observer: Facts) -> None:
        """A recording run raised: its calls run plainly, once that has happened again."""
        self._log.raised += 1
        if self._log.raised >= MOST_RAISED:
            self._refuse(
                tree, at, observer, "the recording run raised, and a run that raises is not recorded"
            )

    def _refuse(self, tree: Tree, at: tuple, observer: Facts, reason: str) -> None:
        """Let calls that get here run eagerly from now on."""
        segment, answer = at
        number = 0 if segment is None else min(observer.recorder.asked, len(observer.guards.parts) - 1)
        # What changes at each call may be read before what is refused each time.
        always = segment is None and not self._log.hits and self._log.refusals[reason] >= MOST_REFUSED
        try:
            guard = Guard(Part() if always else observer.guards.parts[number], self._registry)
        except Exception as error:  # its text is none that Python takes: then all calls that get here do
            let_through(error)
            guard = Guard(Part(), self._registry)
            self._blame(f"its guards could not be compiled: {type(error).__name__}: {error}", error)
        self._grow(tree, observer)
        dead = [slot for reach, slot in guard.reached() if reach() is None]
        if dead:  # in the run, which held on to nothing: no later call gets here
            self._note_unsteady(dead)
            return
        branch = Branch(guard, None, reason)
        branches = tree.branches if segment is None else segment.branches.setdefault(answer, [])
        branches.append(branch)
        self._watch(tree, branches, branch)

    def _grow(self, tree: Tree, observer: Facts) -> None:
        tree.slots = max(tree.slots, observer.guards.size)

    def _enter(
        self, tree: Tree, at: tuple, observer: Facts, recorder: Recorder, result: Any, seconds: float
    ) -> None:  # fmt: skip
        """Compile a recording and offer it to later calls."""
        if recorder.reason is not None:
            raise Refusal(recorder.reason)
        observer.numbers.clocks.settle(recorder, observer.guards.parts)
        outcome = Outcome(observer, result)
        observer.guards.close(observer.known.roots)
        gradients = [leaf._node.grad for leaf, *_ in recorder.leaves if type(leaf._node) is Leaf]
        left = [*outcome.tensors, *(grad for grad in gradients if grad is not None)]
        refuse_views(recorder, left)
        settle(observer, left)
        recording = finished(recorder, outcome, result)
        if recording.live and (recording.foreign or any(q.inputs or q.op for q in recording.questions)):
            raise Refusal(
                f"its outputs have a history that a recording can't give them: {recording.foreign}"
                if recording.foreign
                else "its outputs have a history, and Python asked for a value on the way to them"
            )
        if any(self._registry.groups[number][0]() is None for number in recording.groups):
            raise Refusal("an optimizer that the run made took a step")
        if outcome.lock is not None and recording.questions:
            raise Refusal(
                "it takes a lock, and Python asked for a value, which is computed before it is taken"
            )
        text = observer.guards
        parts = text.parts + [text.part] * (recorder.asked + 1 - len(text.parts))
        guards = [Guard(part, self._registry) for part in parts]
        for guard in guards:
            if (effect := guard.effects(observer)) is not None:
                raise Refusal(f"it changes what Lamina's own code reads, {effect}")
        held = [number for part in parts for number in part.held]
        for number in held:
            x = self._registry.refs[number]()
            if x is not None and x._data.flags.c_contiguous:
                tree.dense.add(number)
        slots = sorted(observer.known.slots.values())
        arrays = recorder.arrays()
        conditions = Conditions(recording, self._registry, held, slots, arrays)
        made, way = tree.insert(recording, guards, conditions)
        hung = [(branches, branch) for branches, branch in way if branch not in branches]
        end = made[-1].end
        assert end is not None
        path = self._log.path(recording, sum(len(p.lines) for p in parts), made, seconds)
        for _, branch in hung:
            branch.path = path
        end.path = path
        path.sizes = observer.sizes.told()
        self._grow(tree, observer)

        try:
            derived = _derived(recording, recorder.tensors()) if recording.live else None
        except GradError as error:
            raise Refusal(str(error)) from None
        clock = Clock()
        options = backend.options_of(self._tune, self._precision)
        target = self._target if recording.place is CPU else resident(recording.place)
        settings: dict[str, Any] = {"target": target, "options": options}
        compile_graph: Callable[..., Any] = functools.partial(backend.compile_graph, clock=clock, **settings)
        compile_sized: Callable[..., Any] = functools.partial(
            backend.compile_sized, needs=recording.needs, clock=clock, **settings
        )

        def coded(segment: Segment, prologues: dict, sizes: dict[str, int]) -> Any:
            how: dict[str, Any] = {"into": segment.into, "frozen": segment.frozen}

            def make(graph: Graph) -> Any:
                if not sizes:
                    return compile_graph(graph, **how)
                return compile_sized(graph, sizes, prologues=prologues, **how)

            if meeting.CARRIER is None or self._verify or "all_reduce" not in recording.ops:
                return make(segment.graph)
            return import_module(".agreed", __package__).compiled(segment.graph, sizes, make)

        def live(sizes: dict[str, int]) -> Any:
            assert derived is not None
            return derived(specialise(recording.graph, sizes), compile_graph=compile_graph)

        def build() -> None:
            began = self._ledger.clock()
            if recording.live:
                end.live = self._for_sizes(recording, recording.symbols, live)
            if not recording.live or self._verify:
                for segment in made:
                    code = functools.partial(coded, segment, {})
                    segment.code = self._for_sizes(recording, segment.symbols, code)
            path.compile = self._ledger.clock() - began
            path.compile -= clock.seconds
            self._ledger.searching += clock.seconds
            self._ledger.compiled(path.compile, later)
            path.from_disk = all(s.code.from_disk for s in made if s.code is not None)
            end.ready = True

        later = self._compile == "background"
        if later:
            self._offer(tree, at, way)
            self._being_built.append(hung)
            beside.have_done(functools.partial(self._in_background, build, hung))
            return
        try:
            build()
        except GradError as error:
            raise Refusal(str(error)) from None
        self._offer(tree, at, way)

    def _for_sizes(
        self, recording: Recording, symbols: Mapping[str, int], make: Callable[[dict[str, int]], Any]
    ) -> Any:
        """What is made of a graph; where it has symbols, for each set of sizes, those of the run at once."""
        if not symbols:
            return make({})
        sizes = tuple([recording.sizes[name] for name in symbols])
        ledger, log = self._ledger, self._log

        def for_sizes(named: dict[str, int]) -> Any:
            start = ledger.clock()
            made = make(named)
            if len(sized):
                ledger.compiled(ledger.clock() - start)
            return made

        def may(is_new: bool) -> None:
            if not len(sized) or ledger.budget is None or backend.is_whole(sized.last):
                return
            if is_new or not ledger.affords(ledger.usual_code, log.fares()):
                raise Eager(RESIZED)

        sized = Sized(symbols, for_sizes, may)
        sized.of(sizes)
        return sized

    def _offer(self, tree: Tree, at: tuple, way: list[tuple[list[Branch], Branch]]) -> None:
        """Let calls find a path, those that missed as this one did above all.

        What led them astray has other guards and yet lets them in, so the path comes before it.
        """
        astray = tree.way_to(at[0])
        for branches, branch in reversed(way):  # the deepest first: who comes by must find all of a path
            is_new = branch not in branches
            before = next((i for i, other in enumerate(branches) if other in astray), len(branches))
            if not is_new:
                if branches.index(branch) <= before:
                    continue
                branches.remove(branch)
            branches.insert(before, branch)
            if is_new:
                self._watch(tree, branches, branch)

    def _in_background(self, build: Callable[[], None], hung: list) -> None:
        try:
            build()
        except DeviceError as error:  # the next call raises it, and the one after records again
            self._lost = error
            _taken_out([hung])
        except Exception as error:
            for _, branch in hung:
                branch.eager, branch.segment = f"it could not be compiled: {error}", None  # in this order
        self._being_built.remove(hung)

    def _in_child(self) -> None:
        """Forget, in a forked process, what other threads were about: they do not go on there."""
        self._lock, self._claims = threading.RLock(), threading.Lock()
        if self._recorder != get_ident():
            self._recorder = None
        self._quick = {}  # with locks of their own
        _taken_out(self._being_built)
        self._being_built.clear()

    def _watch(self, tree: Tree, branches: list[Branch], branch: Branch) -> None:
        """Drop a branch when something is gone that it depends on."""
        branch_of, tree_of, traced = weakref.ref(branch), weakref.ref(tree), weakref.ref(self)

        def gone(_: Any, over: Callable[[], bool] = sys.is_finalizing) -> None:
            if over():  # modules are being emptied, and nobody calls any more
                return
            dead, this = branch_of(), traced()
            if dead is not None and dead in branches:
                branches.remove(dead)
                if this is not None:
                    this._forget(dead)
                    this._quick.clear()
                if (among := tree_of()) is not None:
                    among.lost = dead.guard.lost()
                    among.places += [place for place in dead.guard.reached() if place[1] is not None]

        things = {id(thing): thing for reach, _ in branch.guard.reached() if (thing := reach()) is not None}
        branch.watching = [Reach(thing, gone) for thing in things.values()]

    def _forget(self, branch: Branch) -> None:
        """Count a recording no more that is dropped; none that paid off stands in the way of others."""
        path = branch.path
        if path is None:  # it was refused
            self._recordings -= 1
        elif path.counted:
            path.counted = False
            self._recordings -= 1
            self._made -= path.hits >= PAID_OFF

    # ---- looking at it ----
    def explain(
        self, *, detail: bool = False, as_dict: bool = False, memory: bool = False, mesh: bool = False
    ) -> Any:
        """How the function fares: the verdict, why calls were not served, what to write instead, the cost.

        detail: with each recording, its hits, and each place that didn't fit.  as_dict: as plain values.
        memory: with what the code of each recording holds of memory, and what is alive where that is most; it
        makes the programs once more, which takes about as long as the passes did.  mesh: with the
        collectives of each recording, what a rank sends by them, and the lines that asked for them.

            name, verdict              as the first line of the text has them
            calls                      all, which are:
            served, recorded           by compiled code; run, and written down meanwhile
            eager, raised              run undecorated; recording runs that raised
            ratio                      what a served call takes, by what an eager one does; None: not known
            about                      whether only a recording run, which is longer, tells what eager takes
            causes                     why calls were not served, most calls first, each with `what`, `where`
                                       (file:line), `instead` (what to write) and `calls`
            recording_seconds, compiling_seconds, beside_seconds (of compiling in the background)
            eager_call_seconds         what an eager call takes
            spent_seconds, saved_seconds, budget   what the ledger weighs (`budget` of trace)
            paths                      one for each recording: what it is, and how it fared
            misses                     what didn't fit a recording, the latest last
            refusals, reasons          why runs were not recorded, why calls ran eagerly, each with its count
            passing                    of recording runs that did what later ones don't, what that was
            waiting, unasked           eager calls while another thread recorded, and those let by unasked
            memory                     where asked for: of each recording's code, by its number, bytes: of its
                                       arena, of that at each step, of what is held where most is (`held`), of
                                       inputs, packed weights, results and constants
            mesh                       where asked for: of each recording, by its number, collectives: `op`,
                                       `how` (sum, ...), `type` of the operand, `group` (ranks), `dim` of the
                                       mesh, `bytes` that a rank sends, `line`
        """
        log = self._up_to_date()
        if not as_dict:
            return log.text(detail, memory, self._dims() if mesh else None)
        told = log.told() | ({"memory": log.memory()} if memory else {})
        return told | ({"mesh": log.mesh(self._dims())} if mesh else {})

    def _dims(self) -> dict[tuple[int, ...], str]:
        """What reports call groups of ranks."""
        return {}

    def _up_to_date(self) -> Log:
        """The log, which is not told of each call that is let by."""
        self._log.left = operator.length_hint(self._by) if type(self._by) is repeat else 0
        return self._log

    def counts(self) -> dict[str, int]:
        """How many calls compiled code served, how many were recorded, ran eagerly, or raised."""
        return self._up_to_date().counts()

    def call_for_code(self, *args: Any) -> Any:
        """Call it, and make whatever code that needs, at once and at any cost: it is what is wanted."""
        ledger, compile = self._ledger, self._compile
        budget = ledger.budget
        try:
            ledger.budget, self._compile, self._by = None, "now", None
            return self(*args)
        finally:
            ledger.budget, self._compile = budget, compile

    def _segments(self) -> list[Segment]:
        return [segment for tree in self._trees.values() for segment in tree.segments()]

    def _recorded_graphs(self) -> list[Recording]:
        return [s.end.recording for s in self._segments() if s.end is not None]

    def recorded_for(self, args: tuple, sized: bool = True) -> tuple[Recording, Call] | None:
        """The recording that a call without gradients would use, and that call.

        sized: with the call's sizes in place of symbols.
        """
        found = self.path_for(args)
        if found is None:
            return None
        segment, call = found
        while segment.end is None:  # whichever way: it is told by its question that it can't be exported
            segment = next(b.segment for bs in segment.branches.values() for b in bs if b.segment is not None)
        recording = segment.end.recording
        if recording.symbols and sized:
            sizes = {name: call.S[at] for name, at in recording.symbols.items()}
            recording = replace(recording, graph=specialise(recording.graph, sizes), symbols={})
        return recording, call

    def path_for(self, args: tuple) -> tuple[Segment, Call] | None:
        """The first segment of the path that a call without gradients would take, and that call."""
        with modes.no_grad():
            local = modes.local
            tree = self._trees.get(
                (len(args), (), local.grad, local.inference, default_dtype(), meeting.CARRIER)
            )
        if tree is None:
            return None
        call = Call([*args, *[None] * (tree.slots - len(args))], self._registry)
        try:
            segment = choose(tree.branches, call).segment
        except (Missed, Eager):
            return None
        return None if segment is None else (segment, call)

    def graph(self, *, raw: bool = False) -> Any:
        """The graph of the latest recording; raw: as it was recorded, with its writes.

        Raises ArgumentError where there is none.
        """
        found = self._recorded_graphs()
        if not found:
            raise ArgumentError(
                f"{self._name} has no recording: call it first",
                "explain() says why there is none after a call",
            )
        return found[-1].raw if raw else found[-1].graph

    def kernels(self) -> list[str]:
        """The names of the kernels that the compiled segments run, in order."""
        return [name for s in self._segments() if s.code is not None for name in s.code.kernels()]

    def source(self, language: str | None = None) -> str:
        """The code of the compiled segments.

        language: the target's, "llvm" or "triton".  Raises ArgumentError for another.
        """
        if language not in (None, self._target.language):
            raise ArgumentError(f"source(language): there is {self._target.language!r}, not {language!r}")
        return "\n".join(s.code.source() for s in self._segments() if s.code is not None)

    def __repr__(self) -> str:
        return f"<traced {self._name}: {self._up_to_date().summary()}>"


class TracedModule(TracedFunction):
    """A traced module: what is assigned to it is assigned to the module, as if it were that.

    What changes the module and returns it (`to`, `eval`) returns the traced one.

    wraps_module: tells a module of which it becomes an attribute that the module is its child.
    """

    wraps_module = True

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return functools.partial(self._itself_for, found) if name in RETURNED else found

    def _itself_for(self, method: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """What a method of the module's gives: of the module, this."""
        found = method(*args, **kwargs)
        return self if found is self.__wrapped__ else found

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if name in own or "_log" not in own:  # the last that `__init__` sets
            super().__setattr__(name, value)
        else:
            setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)


class _Inner(TracedFunction):
    """The traced function of what another one calls, which is held weakly: see within.py."""

    def __init__(self, options: dict[str, Any], reach: Reach, name: str, outer: Within):
        self._reach, self._outer = reach, weakref.ref(outer)
        super().__init__(reach(), name=name, max_recordings=MOST_INNER, **options)

    def _wrap(self, function: Callable) -> None:
        """Hold on to nothing, and ask nothing of an object that may have an answer of its own."""

    @property
    def __wrapped__(self) -> Any:
        return self._reach()

    def _callees(self) -> Within:
        within = self._outer()
        assert within is not None  # a run of its holds it
        return within

    @property
    def _itself(self) -> Callable:
        return _unserved

    def _run(self, args: tuple, kwargs: dict[str, Any], within: bool = False) -> Any:
        return modes.UNSERVED


def _unserved(*args: Any, **kwargs: Any) -> Any:
    """Have whoever asked run the thing itself."""
    return modes.UNSERVED


_traced: weakref.WeakSet[TracedFunction] = weakref.WeakSet()


def _in_child() -> None:
    for traced in _traced:
        traced._in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
TRANSPARENT.update((TracedFunction, TracedModule))
HIDDEN.add(__file__)


def _eagerly(function: Callable, log: Log, reason: str, beside: bool, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function as it is, and note why, and how long that took; beside: while code is made for it."""
    log.eager(reason)
    ledger, within = log.ledger, log.within
    start = ledger.clock()
    result = function(*args, **kwargs)
    if result is not modes.UNSERVED and log.within == within:  # or the time is not eager's
        ledger.ran_eagerly(ledger.clock() - start, beside)
    return result


def _taken_out(several: list[list[tuple[list[Branch], Branch]]]) -> None:
    """Take branches out of where they hang."""
    for hung in several:
        for branches, branch in hung:
            branches[:] = [each for each in branches if each is not branch]


def _located(error: LaminaError, tree: Tree) -> LaminaError:
    """The error with the places of the ops that it names: kernels are named after theirs."""
    text = str(error)
    nodes = (node for segment in tree.segments() for node in segment.graph.nodes)
    ops = dict.fromkeys(
        f"{node.op.name} at {where_text(node.where)}" for node in nodes if node.where and node.op.name in text
    )
    return type(error)(error.rule, *error.details, *([f"of: {', '.join(list(ops)[:8])}"] if ops else []))


def _restored(kind: type[TracedFunction], function: Callable, options: dict[str, Any]) -> TracedFunction:
    return kind(function, **options)


def _derived(recording: Recording, tensors: dict[Any, Any]) -> Callable:
    """What compiles a recording's graph so that its results get a history.  tensors: those of the run, by
    source.
    """
    graph, sources = recording.graph, recording.sources
    needs = [isinstance(source, (Arg, Held)) and tensors[source]._node is not None for source in sources]
    for position in recording.written:
        if not tensors[sources[position]].is_contiguous():
            raise GradError("a tensor that is not contiguous is written on the way to outputs with a history")
    returned = len(graph.results) - len(recording.written)
    written = set(recording.written)
    frozen = frozenset(i for i, s in enumerate(sources) if isinstance(s, Held) and i not in written)
    places = {source: i for i, source in enumerate(sources)}
    counted = {places.get(source): (count, writer) for source, count, writer in recording.writes}
    if not counted.keys() <= written:
        raise GradError("a tensor is written as another that shares its memory, where outputs have a history")
    return functools.partial(
        _differentiated, needs, writes=counted, into=(*(None,) * returned, *recording.written), frozen=frozen,
        place=recording.place,
    )  # fmt: skip


def _differentiated(needs: list[bool], graph: Graph, **how: Any) -> Any:
    return differentiable(graph, needs, **how)


# ---- the decorator ---------------------------------------------------------------------------------------
def trace(
    function: Any = None,
    example_inputs: Any = None,
    *,
    verify: bool = False,
    compile: str = "now",
    max_recordings: int = MOST_RECORDINGS,
    when_full: str = "eager",
    target: str = "cpu",
    budget: float | None | str = "default",
    fullgraph: bool = False,
    tune: float = 0.0,
    dynamic: bool | None = None,
    precision: str | None = None,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
) -> Any:
    """Record a function's first call and run what was compiled from then on: `@trace`, `trace(module)`.

    verify: compare each compiled run with the eager one, and name what differs first (LAMINA_VERIFY=1 does so
    for all).  compile: "now", or "background": in a thread, while calls go on eagerly.  max_recordings: how
    often it is recorded at most; when_full: what becomes of calls that fit none then, "eager" or "error",
    which raises TooManyRecordings.  target: where tensors of the host are computed with: "cpu", or "cuda"
    ("cuda:1") for a GPU, to and from which arguments and results are copied, parameters when they changed.
    What is computed of tensors on a GPU is so there, whatever it says.

    budget: the seconds by which all calls together may take longer than 1.1 times what they would have taken
    eagerly; None for no limit; 2, or what LAMINA_TRACE_BUDGET says ("none": no limit), where it is not given.
    The first recording and its code are always made; a further one where it may pay off, else the call runs
    eagerly and later ones ask again.  There is no limit under when_full="error" and verify.  A run that
    mostly loops in Python is recorded for what is left, 20 seconds without a limit, and refused then.

    fullgraph: raise RefusedError where a call can't be recorded, and let when_full be "error".  The call in
    which that is found has run; later ones raise ahead of it.

    tune: seconds for which the kernels of each compiled graph are run in other ways, to keep the quickest.
    What is found is kept on disk, for this machine and number of threads, so that the next process has it at
    once; `explain(detail=True)` tells what was gained.  Such code may round otherwise: nothing is tuned while
    `use_deterministic_algorithms(True)` holds, nor on a GPU.

    dynamic: whether sizes of arguments may be symbols, for all of which one recording serves.  None: where a
    size has changed once; True: all that are 2 or more, from the first recording on; False: never.

    precision: "float32", or what factors of float32 products and convolutions may be rounded to; their sums
    are float32 still.  By "bfloat16", 2 to 3 digits, a CPU that multiplies pairs of it (AVX512-BF16, AMX) is
    up to three times as quick.  A GPU's tensor cores take "tf32", 3 digits, which is what it makes of
    "bfloat16" too, or "tf32x3": factors as two such parts, with errors like float32's, as attention there has
    them for "float32" too, and PyTorch's own.
    None: what `set_float32_matmul_precision` says.  Elsewhere, under verify, and in exported files it is
    float32.

    mesh: a DeviceMesh (`lamina.distributed`), whose ranks all call it: the function is a program for one
    process, of which each rank then computes a part.  in_shardings: how arguments are cut: placements
    (`[Shard(0)]`, one for each dim of the mesh) for all that have such a dim, or a tuple with placements or
    None for each; or a dictionary by the names of arguments, and by patterns of those of parameters
    ("model.*.weight"), which become DTensors at the first call, in modules and optimizers that the function
    names.  What is not named is whole on every rank, and so are results, unless out_shardings says of them
    what in_shardings does of arguments.  `explain()` then names the collectives and the bytes that they send.

    example_inputs, example_kwarg_inputs: as `torch.jit.trace` has them, a tensor or a tuple, a dictionary: it
    is called with them at once.  check_trace, check_inputs, check_tolerance, strict mean nothing here:
    guards hold each call to what was recorded.

    The first call is interpreted, bytecode by bytecode, and every place of the heap that it reads becomes a
    guard: arguments, globals, closures, attributes, items, classes.  A call of which the guards don't hold is
    recorded anew; a number that keeps changing becomes an input.  What it does to lists, dicts, attributes,
    and what it prints, is done again, in order, when compiled code has run.  What can't be followed runs
    eagerly, and `explain()` says why; so does all, with a warning, on a Python whose bytecode is not known.
    Raises ArgumentError for what can't be called.
    """
    if fullgraph:
        when_full = "error"
    if function is None:
        return functools.partial(
            trace, verify=verify, compile=compile, max_recordings=max_recordings, when_full=when_full,
            target=target, budget=budget, fullgraph=fullgraph, tune=tune, dynamic=dynamic,
            precision=precision, example_inputs=example_inputs, example_kwarg_inputs=example_kwarg_inputs,
            mesh=mesh, in_shardings=in_shardings, out_shardings=out_shardings,
        )  # fmt: skip
    if isinstance(function, TracedFunction) and mesh is None:
        return function
    if compile not in ("now", "background") or when_full not in ("eager", "error"):
        raise ArgumentError(
            f"trace(function): compile is 'now' or 'background', and when_full 'eager' or 'error', "
            f"not {compile!r} and {when_full!r}"
        )
    if precision not in PRECISIONS:
        raise ArgumentError(f"trace(function): precision is one of {PRECISIONS}, not {precision!r}")
    if not callable(function) or isinstance(function, type):
        raise ArgumentError(
            f"trace(function): takes a function or a module, not {type(function).__name__}"
            if not isinstance(function, type)
            else f"trace(function): {function.__name__} is a class; trace an instance, or its forward"
        )
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise ArgumentError(
            "trace(function): a generator or a coroutine stops in the middle, and can't be recorded"
        )
    kind = TracedModule if isinstance(function, Module) else TracedFunction
    if mesh is not None:  # which loads the room of several processes
        made = import_module(".partitioned", __package__).PartitionedFunction
        function = function.__wrapped__ if isinstance(function, TracedFunction) else function
        kind = functools.partial(made, mesh=mesh, in_shardings=in_shardings, out_shardings=out_shardings)
    elif in_shardings is not None or out_shardings is not None:
        raise ArgumentError("trace(in_shardings): takes a mesh too, over whose ranks they are")
    traced = kind(
        function, verify=verify, compile=compile, max_recordings=max_recordings, when_full=when_full,
        target=target, budget=budget, fullgraph=fullgraph, tune=tune, dynamic=dynamic, precision=precision,
    )  # fmt: skip
    if example_inputs is not None or example_kwarg_inputs is not None:
        given = () if example_inputs is None else example_inputs
        given = (*given,) if isinstance(given, (tuple, list)) else (given,)
        traced(*given, **(example_kwarg_inputs or {}))
        traced._example = None if example_kwarg_inputs else given
    return traced


def reset() -> None:
    """Forget all recordings of all traced functions."""
    for traced in [*_traced]:
        traced.reset()


__all__ = ["RefusedError", "TooManyRecordings", "TracedFunction", "reset", "trace"]
