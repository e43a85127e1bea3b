"""`trace`: the first call of a function is an eager run that is written down, later calls run compiled code.

A traced function returns what the undecorated one would return, and has the same side effects.  Where that
can't be promised it runs undecorated, and `explain()` says why.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from ..ir.dtypes import default_dtype, from_numpy_dtype
from ..ir.errors import ArgumentError, DimError, GradError
from ..ir.types import type_of
from ..runtime import Tensor, modes
from ..runtime.places import line_of
from ..runtime.tensor import wrap
from . import backend, pytree
from .arguments import key_of, names_of
from .autograd import differentiable
from .facts import IMMUTABLE, PLAIN, exact
from .guards import Guards
from .reads import TRANSPARENT, Reads, Refusal
from .recorder import Recorder
from .recording import Recording, finished
from .replay import Busy, Call, Making, Missed, draw, laid_out, take
from .report import Log
from .sources import Arg, Fresh, Grad, Held, Source
from .tree import Segment, Tree
from .verify import TraceError, compared

MOST_RECORDINGS = 32  # of one function
MOST_PATHS = 8  # of one set of guards
MOST_SETS = 8  # of one kind of arguments


class Entry:
    """What was recorded under one set of guards: a tree of paths, or one whose outputs have a history."""

    def __init__(self, guards: Guards):
        self.guards = guards
        self.tree = Tree(frozenset(i for i, d in enumerate(guards.datas) if d.flags.c_contiguous))
        self.live: Any = None  # the Differentiable
        self.recording: Recording | None = None
        self.eager: str | None = None  # why calls that get here run eagerly
        self.ready = True
        self.hits = 0
        self.watching: list[Any] = []  # weak references to arguments that are objects
        self.generators: list[Any] = []  # those that any of its paths draws from
        self.groups: list[tuple[Any, Any]] = []  # and the optimizers' groups whose numbers one reads


class TracedFunction:
    """A function whose calls are recorded once for each kind of arguments and state, and then compiled."""

    def __init__(
        self, function: Callable, *, verify: bool = False, background: bool = False, name: str | None = None
    ):
        self.__wrapped__ = function
        functools.update_wrapper(self, function, updated=())
        self._verify, self._background = verify, background
        self._name = name or getattr(function, "__name__", type(function).__name__)
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Forget all recordings."""
        with self._lock:
            self._entries: dict[Any, list[Entry]] = {}
            self._refused: dict[Any, str] = {}
            self._recordings = 0
            self._log = Log(self._name)

    # ---- calling ----
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        local = modes.local
        if modes.CHANGED and (local.hook is not None or local.anomaly):
            return self.__wrapped__(*args, **kwargs)
        try:
            key, leaves = key_of(args, kwargs)
        except Refusal as refusal:
            return self._eagerly(str(refusal), args, kwargs)
        why: list[str] = []
        for entry in self._entries.get(key, ()):
            guards = entry.guards
            call = Call(leaves, guards.held, guards.datas)
            failing = guards.failing(call)
            numbers: Any = ()
            if failing is None and guards.groups and (numbers := guards.read_numbers()) is None:
                failing = "a setting of an optimizer"
            if failing is not None:
                why.append(failing)
                continue
            if entry.eager is not None:
                return self._eagerly(entry.eager, args, kwargs)
            if not entry.ready:
                self._log.waiting += 1
                return self.__wrapped__(*args, **kwargs)
            call = Call(leaves, guards.held, guards.datas, entry.generators)
            call.numbers = numbers
            return self._replay(entry, call, key, args, kwargs)
        if key in self._refused:
            return self._eagerly(self._refused[key], args, kwargs)
        return self._record(key, leaves, args, kwargs, why)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __deepcopy__(self, memo: dict) -> TracedFunction:
        return TracedFunction(copy.deepcopy(self.__wrapped__, memo), **self._options())

    def __reduce__(self) -> tuple:
        return _restored, (self.__wrapped__, self._options())

    def _options(self) -> dict[str, Any]:
        return {"verify": self._verify, "background": self._background, "name": self._name}

    def __getattr__(self, name: str) -> Any:
        """What the wrapped module has: `traced.parameters()`, `traced.train()`."""
        if name.startswith("__") or name == "_entries":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def _eagerly(self, reason: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        self._log.eager(reason)
        return self.__wrapped__(*args, **kwargs)

    # ---- running what was recorded ----
    def _replay(self, entry: Entry, call: Call, key: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        start = perf_counter()
        try:
            if self._verify:
                result = compared(lambda: self.__wrapped__(*args, **kwargs), entry.tree, call, self._name)
            elif entry.live is not None:
                result = _run_live(entry, call)
            else:
                result = take(entry.tree, call)
        except Busy:
            return self._eagerly("another thread drew random numbers meanwhile", args, kwargs)
        except Missed as missed:
            segment, _ = missed.args
            return self._branch(entry, segment, key, call.leaves, args, kwargs)
        except TraceError:
            raise
        except Exception as error:
            return self._failed(entry, error, args, kwargs)
        entry.hits += 1
        self._log.hit(perf_counter() - start)
        return result

    def _failed(self, entry: Entry, error: Exception, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Compiled code raised, and changed nothing: the eager run tells whether it was right to."""
        reason = f"compiled code raised {type(error).__name__}: {error}"
        result = self._eagerly(reason, args, kwargs)  # mostly this raises, and the user sees the eager error
        entry.eager = reason
        if not isinstance(error, DimError):  # which the function itself may catch: an index out of range
            self._blame(reason)
        return result

    def _blame(self, reason: str) -> None:
        """Warn of a fault that is not the user's."""
        warnings.warn(
            f"{self._name}: {reason}\nIt runs eagerly from here on. This is a fault of Lamina's: please "
            "report it with the text of traced.explain().",
            stacklevel=2,
        )

    def _branch(
        self, entry: Entry, segment: Segment, key: Any, leaves: list, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """A question had an answer that no recording had: record this path as well."""
        ask = segment.ask
        assert ask is not None
        filename, line = line_of(ask.place)
        what = f"{ask.how} at {filename.rpartition('/')[2]}:{line}"
        self._log.miss(f"a new answer to {what}")
        if entry.tree.paths >= MOST_PATHS or self._recordings >= MOST_RECORDINGS:
            entry.eager = (
                f"{what} had more than {entry.tree.paths} answers: return the tensor and turn it into a "
                "number outside (running += loss.item() becomes running += loss)"
            )
            return self._eagerly(entry.eager, args, kwargs)
        return self._record(key, leaves, args, kwargs, [], entry)

    # ---- recording ----
    def _record(
        self, key: Any, leaves: list, args: tuple, kwargs: dict[str, Any], why: list[str],
        into: Entry | None = None,
    ) -> Any:  # fmt: skip
        if not self._lock.acquire(blocking=False):
            self._log.waiting += 1
            return self.__wrapped__(*args, **kwargs)
        try:
            if self._recordings >= MOST_RECORDINGS:
                reason = f"{MOST_RECORDINGS} recordings were made, and none fits"
                return self._eagerly(
                    reason + (f"; the last differs in: {why[-1]}" if why else ""), args, kwargs
                )
            if into is None and len(self._entries.get(key, ())) >= MOST_SETS:
                return self._eagerly(f"what it reads differs from call to call: {why[-1]}", args, kwargs)
            return self._recorded(key, leaves, args, kwargs, why, into)
        finally:
            self._lock.release()

    def _recorded(
        self, key: Any, leaves: list, args: tuple, kwargs: dict[str, Any], why: list[str], into: Entry | None
    ) -> Any:  # fmt: skip
        for reason in why:
            self._log.miss(reason)
        paths = names_of(self.__wrapped__, key[0], len(leaves))
        reads = Reads()
        try:
            objects = [(p, x) for p, x in zip(paths, leaves, strict=True)
                       if not isinstance(x, (*PLAIN, *IMMUTABLE, Tensor))]  # fmt: skip
            reads.function(self.__wrapped__, objects)
        except Refusal as refusal:
            self._recordings += 1
            self._refused[key] = str(refusal)
            return self._eagerly(str(refusal), args, kwargs)
        guards = Guards(reads)
        given = {id(x) for x in leaves}
        origins: list[tuple[Tensor, Source]] = [
            (x, Arg(i)) for i, x in enumerate(leaves) if isinstance(x, Tensor)
        ]
        origins += [(x, Held(i)) for i, x in enumerate(guards.held) if id(x) not in given]
        recorder = Recorder(origins)
        if into is not None:  # so that their numbers are those of the other paths
            recorder.generators, recorder.groups = list(into.generators), list(into.groups)
            recorder.drawn = [0] * len(recorder.generators)
        before = _modes(), pytree.containers((args, kwargs)), pytree.flatten((args, kwargs))
        self._recordings += 1
        start = perf_counter()
        with modes.hooked(recorder.hear, recorder.notice):
            result = self.__wrapped__(*args, **kwargs)
        seconds = perf_counter() - start
        try:
            if recorder.once is not None:
                self._log.once(recorder.once, seconds)
                return result
            if _modes() != before[0]:
                raise Refusal("it leaves another mode behind (gradients on or off, the default dtype)")
            if not exact(pytree.flatten((args, kwargs)), before[2]):
                raise Refusal("it changes a list, a dict or an object that it is given")
            if (effect := guards.effects()) is not None:
                self._refused[key] = f"it changes what it reads, which a replay would not: {effect}"
                raise Refusal(self._refused[key])
            self._check_fresh(result, before[1])
            recording = finished(recorder, result)
            self._enter(key, guards, recording, recorder, leaves, seconds, into)
        except Refusal as refusal:
            self._log.refused(str(refusal))
            self._refuse(key, guards, str(refusal), into)
        except Exception as error:
            reason = f"it could not be compiled: {type(error).__name__}: {error}"
            self._refuse(key, guards, reason, into)
            self._blame(reason)
        return result

    def _refuse(self, key: Any, guards: Guards, reason: str, into: Entry | None) -> None:
        """Let calls under these guards run eagerly from now on."""
        entry = into or Entry(guards)
        entry.eager, entry.ready = reason, True
        known = self._entries.setdefault(key, [])
        if entry not in known:
            known.insert(0, entry)

    @staticmethod
    def _check_fresh(result: Any, given: list) -> None:
        ids = {id(x) for x in given}
        if any(id(x) in ids for x in pytree.containers(result)):
            raise Refusal("it returns a container that it was given")

    def _enter(
        self, key: Any, guards: Guards, recording: Recording, recorder: Recorder, leaves: list,
        seconds: float, into: Entry | None,
    ) -> None:  # fmt: skip
        """Compile a recording and offer it to later calls."""
        entry = into or Entry(guards)
        call = Call(leaves, entry.guards.held, entry.guards.datas)
        entry.guards.complete(recording, call, recorder.backward)
        entry.generators, entry.groups = recorder.generators, recorder.groups
        if into is None:
            self._watch(entry, key, leaves)
        entry.recording = entry.recording or recording
        live = recording.live
        if live and (recording.foreign or recording.questions):
            raise Refusal(
                f"its outputs have a history that a recording can't give them: {recording.foreign}"
                if recording.foreign
                else "its outputs have a history, and Python asked for a value on the way to them"
            )
        segments: list[Segment] = [] if live and not self._verify else entry.tree.insert(recording)
        self._log.recorded(recording, seconds)
        entry.ready = False

        def build() -> None:
            start = perf_counter()
            if live:
                entry.live = _differentiable(recording, call)
            for segment in segments:
                segment.code = backend.compile_graph(segment.graph, into=segment.into, frozen=segment.frozen)
            entry.ready = True
            self._log.compiled(perf_counter() - start)

        def offer() -> None:
            known = self._entries.setdefault(key, [])
            if entry not in known:
                known.insert(0, entry)

        if self._background:
            offer()
            threading.Thread(target=self._in_background, args=(build, entry), daemon=True).start()
            return
        try:
            build()
        except GradError as error:
            raise Refusal(str(error)) from None
        except BaseException:  # an interrupt, too: what is half made is not offered
            if into is not None:
                self._entries.pop(key, None)
            raise
        offer()

    def _in_background(self, build: Callable[[], None], entry: Entry) -> None:
        try:
            build()
        except Exception as error:
            entry.eager, entry.ready = f"it could not be compiled: {error}", True

    def _watch(self, entry: Entry, key: Any, leaves: list) -> None:
        """Drop the recordings of arguments that are gone."""
        entries = weakref.ref(self)

        def gone(_: Any) -> None:
            traced = entries()
            if traced is not None:
                dead = traced._entries.pop(key, ())
                traced._recordings -= sum(max(1, e.tree.paths) for e in dead)

        for x in leaves:
            if not isinstance(x, (*PLAIN, *IMMUTABLE, Tensor)):
                try:
                    entry.watching.append(weakref.ref(x, gone))
                except TypeError:
                    entry.watching.append(x)

    # ---- looking at it ----
    def explain(self) -> str:
        """What was recorded, what was run, and what ran eagerly and why."""
        return self._log.text(self._segments())

    def _segments(self) -> list[Segment]:
        roots = [e.tree.root for entries in self._entries.values() for e in entries]
        return [segment for root in roots if root is not None for segment in root.all()]

    def _recorded_graphs(self) -> list[Recording]:
        return [e.recording for entries in self._entries.values() for e in entries if e.recording is not None]

    def recorded_for(self, args: tuple) -> tuple[Recording, list[Tensor]] | None:
        """The recording that a call without gradients would use, and the captured tensors it reads."""
        with modes.no_grad():
            key, leaves = key_of(args, {})
        for entry in self._entries.get(key, ()):
            call = Call(leaves, entry.guards.held, ())
            if entry.recording is not None and entry.eager is None and entry.guards.failing(call) is None:
                return entry.recording, list(call.held)
        return None

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

    def source(self, language: str = "llvm") -> str:
        """The code of the compiled segments.  Raises ArgumentError for another language than "llvm"."""
        if language != "llvm":
            raise ArgumentError(f"source(language): there is 'llvm', not {language!r}")
        return "\n".join(s.code.source(language) for s in self._segments() if s.code is not None)

    def __repr__(self) -> str:
        return f"<traced {self._name}: {self._log.summary()}>"


TRANSPARENT.add(TracedFunction)


def _restored(function: Callable, options: dict[str, Any]) -> TracedFunction:
    return TracedFunction(function, **options)


def _modes() -> tuple:
    local = modes.local
    return local.grad, local.inference, local.anomaly, default_dtype()


# ---- outputs with a history --------------------------------------------------------------------------------
def _differentiable(recording: Recording, call: Call) -> Any:
    """The recording, compiled so that its results get a history."""
    graph, sources = recording.graph, recording.sources
    needs = [isinstance(source, (Arg, Held)) and call.tensor(source)._node is not None for source in sources]
    for position in recording.written:
        if not call.tensor(sources[position]).is_contiguous():
            raise GradError("a tensor that is not contiguous is written on the way to outputs with a history")
    returned = len(graph.results) - len(recording.written)
    written = set(recording.written)
    frozen = frozenset(i for i, s in enumerate(sources) if isinstance(s, Held) and i not in written)
    places = {source: i for i, source in enumerate(sources)}
    counted = {places.get(source): (count, writer) for source, count, writer in recording.writes}
    if not counted.keys() <= written:
        raise GradError("a tensor is written as another that shares its memory, where outputs have a history")
    return differentiable(
        graph, needs, writes=counted, into=(*(None,) * returned, *recording.written), frozen=frozen,
        compile_graph=backend.compile_graph,
    )  # fmt: skip


def _run_live(entry: Entry, call: Call) -> Any:
    recording = entry.recording
    assert recording is not None
    draw(recording, call)
    tensors = []
    for source in recording.sources:
        if isinstance(source, (Arg, Held, Grad)):
            x = call.tensor(source)
            tensors.append(x if x._data.flags.c_contiguous else x.contiguous())
        else:
            array = call.array(source)
            tensors.append(wrap(array, _kind(array)))
    before = [call.tensor(source).grad for source, _ in recording.gradients]
    try:
        outputs = entry.live.run(tensors)
    except BaseException:
        draw(recording, call, back=True)
        raise

    def base_of(base: Fresh) -> Tensor:
        x = outputs[base.result]
        if base.order is not None:
            x._data = laid_out(x._data, base.order)
        return x

    return Making(recording, call, base_of, before).result()


def _kind(array: np.ndarray) -> Any:
    return type_of(from_numpy_dtype(array.dtype), array.shape)


# ---- the decorator -----------------------------------------------------------------------------------------
def trace(function: Any = None, *, verify: bool = False, background: bool = False) -> Any:
    """Record a function's first call and run what was compiled from then on: `@trace`, `trace(module)`.

    verify: compare each compiled run with the eager one, and name what differs first.  background: compile
    in a thread, while calls go on eagerly.

    A call of another kind (types, layouts, values of numbers, what the function reads) is recorded anew;
    what can't be recorded runs eagerly, and `explain()` says why.  What a function reads is found by names:
    the globals, closures, defaults and attributes that its code, and code it names, spells out.  Functions
    that reach state in other ways (through C code, or objects made behind their back) must be traced with
    that state as an argument.  Raises ArgumentError for what can't be called.
    """
    if function is None:
        return functools.partial(trace, verify=verify, background=background)
    if isinstance(function, TracedFunction):
        return function
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
    return TracedFunction(function, verify=verify, background=background)


__all__ = ["TracedFunction", "trace"]
