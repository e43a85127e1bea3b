"""Takes a recorded path in place of the user's function: reads, computes, and last of all commits.

Until the last question of a path is answered nothing that the program can see has changed.  Then, in this
order: generators advance, the last segment runs and writes, versions are counted, gradients are put in their
places, and what is returned is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..ir.dims import Dim, evaluate, symbols_of
from ..ir.dtypes import dtype_named, from_numpy_dtype
from ..ir.meeting import Met
from ..ir.op import REGISTRY
from ..ir.types import Type, type_of
from ..runtime import Tensor, set_grad_enabled
from ..runtime.changes import advance_contents
from ..runtime.generator import state_array
from ..runtime.graph import Saving
from ..runtime.history import storage_of
from ..runtime.on_device import OnDevice, transposed, write_over
from ..runtime.storage import Inferred
from ..runtime.tensor import wrap
from .autograd import Eager
from .draws import Undo
from .observe.known import Registry
from .observe.parts import Reason
from .recording import KEEP, Recording
from .report import COMPILING
from .sized import slot_of, with_sizes
from .sources import Arg, Draw, Fresh, Given, Grad, Held, Lifted, Made, Memory, Number, Source
from .tree import Branch, End, Key, Segment, Tree


class Missed(Exception):
    """No recorded path fits: (the segment whose answer had none, or None; the answer; the reasons)."""


class Unready(Exception):
    """A path is still being compiled, and until then runs eagerly: (why)."""


class Busy(Exception):
    """Another thread drew random numbers meanwhile, or wrote what guards had read.

    Nothing was changed, and the call must run eagerly.
    """


class Raised(Exception):
    """An effect raised, after what was computed has been written: (the error), which the user is to see."""


class Call:
    """One call on recorded paths.

    S: the slots: the arguments, then what guards find.  registry: of the captured tensors.  numbers: by group
    of an optimizer, what it says now.  positions: where the generators stand.  met: the collectives so far.
    """

    __slots__ = ("S", "registry", "numbers", "positions", "path", "branch", "undo", "met")

    def __init__(self, S: list, registry: Registry):
        self.S, self.registry = S, registry
        self.numbers: dict[int, dict[str, Any]] = {}
        self.path: Any = None  # what the report says of the one taken
        self.branch: Any = None  # the last that was taken
        self.undo = Undo()
        self.met: list[Met] = []
        self.positions = [g.position() for g in registry.generators] if registry.generators else ()

    def tensor(self, source: Source) -> Any:
        """The tensor that a source names."""
        if type(source) is Held:
            return self.registry.refs[source.index]()
        if type(source) is Arg:
            return self.S[source.index]
        return leaf_of(self.tensor(source.of)).grad

    def _group(self, number: int) -> dict[str, Any]:
        """What an optimizer's group says now, where a question needs it ahead of the path's conditions."""
        if number not in self.numbers:
            reach, at = self.registry.groups[number]
            optimizer = reach()
            if optimizer is None or len(optimizer.param_groups) <= at:
                raise Missed(None, None, [(Reason("the groups of an optimizer"), self.branch)])
            self.numbers[number] = optimizer._numbers(optimizer.param_groups[at])
        return self.numbers[number]

    def array(self, source: Source) -> np.ndarray:
        """The array that a source stands for now."""
        kind = type(source)
        if kind is Held:
            return self.registry.refs[source.index]()._data
        if kind is Arg:
            return self.S[source.index]._data
        if kind is Number:
            return np.array(self._group(source.group)[source.name], np.float64)
        if kind is Draw:
            seed, offset = self.positions[source.generator]
            return state_array(seed, offset + counted(source.offset, self.S))
        if kind is Lifted:
            return np.array(_number(source.expression)(self.S), dtype_named(source.dtype).numpy)
        return self.S[source.index] if kind is Memory else self.tensor(source)._data


@cache
def _number(expression: str) -> Callable[[list], Any]:
    """The function of the slots that an expression is."""
    return eval(f"lambda S: {expression}")


def leaf_of(x: Tensor) -> Any:
    """The leaf that holds a tensor's gradient; None where it never had one."""
    node: Any = x._node
    return node if node is not None else getattr(x, "_resting", None)


def counted(count: int | Dim, S: list) -> int:
    """A number of counters, which may hang on sizes."""
    if not isinstance(count, Dim):
        return count
    return evaluate(count, {name: S[slot_of(name)] for name in symbols_of(count)})


def take(tree: Tree, call: Call, held: Any = None) -> Any:
    """Go through the tree with this call's values.  Raises Missed, Eager, Unready, Busy.

    held: the lock that this is done under, where the path that the call takes was found to want one.
    """
    values: dict[Key, np.ndarray] = {}
    originals: dict[Key, np.ndarray] = {}
    segment, answer, branches = None, None, tree.branches if held is None else [call.branch]
    while True:
        call.branch = choose(branches, call, segment, answer)
        segment = call.branch.segment
        if segment is None:  # its compilation has failed meanwhile, in another thread
            raise Eager(call.branch.eager)
        if segment.full is not None:
            raise Eager(segment.full)
        if segment.code is None and (segment.outputs if segment.end is None else not segment.end.ready):
            raise Unready(COMPILING)
        if segment.end is not None and (lock := segment.end.recording.outcome.lock) is not None:
            if (wanted := lock(call.S)) is not held:
                return _under(wanted, tree, call, held)
        if segment.symbols and segment.code is not None:
            segment.code.of(segment.sizes(call.S))  # before anything is changed
        arrays = _inputs(tree, segment, call, values, originals)
        if segment.end is not None:
            call.path = segment.end.path
            if segment.end.live is not None:
                return _run_live(segment.end, call)
            return _finish(tree, segment, segment.end, call, arrays, values, originals)
        if segment.outputs:
            values.update(zip(segment.outputs, segment.run(arrays, _weights(segment, call), call.S)))
            if segment.meetings:
                call.met += segment.met(values, call.S)
        segment.runs += 1
        assert segment.ask is not None
        for key in segment.ask.keys:
            if key is not None and key not in values:
                values[key] = _read(tree, key, call, originals)
        answer, branches = segment.ways(values, call.S, call.undo)


def _under(lock: Any, tree: Tree, call: Call, held: Any) -> Any:
    """Take the path that was chosen with its lock held, if it still may be taken."""
    if held is not None:  # where the lock stood, another one stands now
        raise Busy
    with lock:
        try:
            return take(tree, call, lock)
        except Missed:
            raise Busy from None


def choose(
    branches: Sequence[Branch], call: Call, segment: Segment | None = None, answer: Any = None
) -> Branch:
    """The first branch that all is true of.  Raises Missed, Eager."""
    S, reasons = call.S, []
    for branch in branches:
        failing = branch.guard.failing(S)
        found = branch.segment
        if failing is None and found is not None and found.end is not None:
            failing = found.end.conditions.failing(call)
        if failing is None:
            if found is None:
                raise Eager(branch.eager)
            return branch
        reasons.append((failing, branch))
    raise Missed(segment, answer, reasons)


def _inputs(tree: Tree, segment: Segment, call: Call, values: dict, originals: dict) -> list[np.ndarray]:
    arrays = []
    for key in segment.inputs:
        array = values.get(key)
        if array is None:
            array = values[key] = _read(tree, key, call, originals)
        arrays.append(array)
    return arrays


def _weights(segment: Segment, call: Call) -> list[Tensor | None] | None:
    """The captured tensors behind a segment's frozen inputs, None for the others."""
    if segment.held is None:
        return None
    refs = call.registry.refs
    return [None if index is None else refs[index]() for index in segment.held]


def _read(tree: Tree, key: Key, call: Call, originals: dict[Key, np.ndarray]) -> np.ndarray:
    source = tree.sources[key]
    if type(source) is Grad and call.tensor(source) is None:  # asked for ahead of the path's conditions
        raise Missed(None, None, [(Reason("a gradient", seen="is there", now="is None"), call.branch)])
    array = call.array(source)
    if not array.flags.c_contiguous:
        originals[key] = array
        array = array.copy() if type(array) is OnDevice else np.ascontiguousarray(array)
    return array


def _finish(
    tree: Tree, segment: Segment, end: End, call: Call, arrays: list, values: dict, originals: dict
) -> Any:
    recording = end.recording
    if end.plain is not None:
        outputs = segment.run(arrays, _weights(segment, call), call.S)
        segment.runs += 1
        made = [
            make(outputs[place], typed(recording, kind, outputs[place])) for place, kind, make in end.plain
        ]
        return made[0] if recording.outcome.plain == 0 else leave(recording, call, made)
    before = [call.tensor(source).grad for source, _ in recording.gradients]
    draw(recording, call)
    # Counted before they are done: who keeps what was made of the values must see a write whose count an
    # interrupt would have cut off.
    count(recording, call, 1)
    try:
        outputs = segment.run(arrays, _weights(segment, call), call.S)
    except Exception:  # nothing was written
        draw(recording, call, back=True)
        count(recording, call, -1)
        raise
    segment.runs += 1
    if end.leftover or originals:
        _copy_back(end, call, dict(zip(segment.inputs, arrays)), values, originals)
    used = set(map(id, arrays))
    results = end.results

    def base_of(base: Fresh) -> Tensor:
        place, key = results[base.result]
        array = outputs[place] if place is not None else values.get(key)
        if array is None:
            array = _read(tree, key, call, originals)
        if id(array) in used or (place is None and array.base is not None):  # not memory of its own
            array = array.copy()
        used.add(id(array))
        kind = typed(recording, end.types[base.result], array)
        return wrap(array if base.order is None else laid_out(array, base.order), kind)

    return Making(recording, call, base_of, before).result()


def typed(recording: Recording, kind: Type, array: np.ndarray) -> Type:
    """The type of a result, whose sizes may be symbols."""
    return type_of(kind.dtype, array.shape, kind.device) if recording.symbols else kind


def count(recording: Recording, call: Call, sign: int) -> None:
    """Count a path's writes, or take the counts back."""
    for source, times, writer in recording.writes:
        store = storage_of(call.tensor(source))
        store.version += sign * times
        store.writer = writer
    if recording.writes:
        advance_contents()


def draw(recording: Recording, call: Call, back: bool = False) -> None:
    """Move the generators on by what a path draws, or back again.  Raises Busy if others drew meanwhile."""
    moved: list[tuple[Any, tuple[int, int], int]] = []
    for number, count in recording.draws:
        count = counted(count, call.S)
        generator, (seed, offset) = call.registry.generators[number], call.positions[number]
        if back:
            generator.advance((seed, offset + count), -count)
        elif not generator.advance((seed, offset), count):
            for other, (seed, offset), done in moved:
                other.advance((seed, offset + done), -done)
            raise Busy
        moved.append((generator, (seed, offset), count))


def _run_live(end: End, call: Call) -> Any:
    """Run a path whose results have a history."""
    recording = end.recording
    live = end.live_for(call.S)
    draw(recording, call)
    tensors = []
    for source in recording.sources:
        if isinstance(source, (Arg, Held, Grad)):
            x = call.tensor(source)
            tensors.append(x if x._data.flags.c_contiguous else x.contiguous())
        else:
            array = call.array(source)
            tensors.append(wrap(array, type_of(from_numpy_dtype(array.dtype), array.shape)))
    before = [call.tensor(source).grad for source, _ in recording.gradients]
    try:
        outputs = live.run(tensors)
    except BaseException:
        draw(recording, call, back=True)
        raise

    def base_of(base: Fresh) -> Tensor:
        x = outputs[base.result]
        if base.order is not None:
            x._data = laid_out(x._data, base.order)
        return x

    return Making(recording, call, base_of, before).result()


def _copy_back(end: End, call: Call, given: dict, values: dict, originals: dict) -> None:
    """Write what the last segment's code could not: what earlier ones computed, and into strided memory."""
    targets, sources = [], []
    for position, key in end.leftover:
        targets.append(call.array(end.recording.sources[position]))
        sources.append(values[key])
    done = {position for position, _ in end.leftover}
    for position in end.recording.written:
        key = end.params[position]
        if key in originals and position not in done:
            targets.append(originals[key])
            sources.append(given[key])
    if any(type(target) is OnDevice for target in targets):
        list(map(write_over, targets, sources))
    else:
        list(map(np.copyto, targets, sources))  # in one sweep of C, which no interrupt divides


def leave(recording: Recording, call: Call, tensors: Sequence[Tensor]) -> Any:
    """Have a path's effects, in order, and make what it returns.  Raises Raised."""
    try:
        return recording.outcome.run(call.S, tensors)
    except Exception as error:
        raised = Raised(error)
    raise raised


class Making:
    """Makes what a call returns, and the gradients it leaves.

    base_of: the tensor around a result.  before: the gradients that leaves had.
    """

    def __init__(
        self, recording: Recording, call: Call, base_of: Callable[[Fresh], Tensor], before: Sequence[Any]
    ):
        self.recording, self.call, self.base_of, self.before = recording, call, base_of, before
        self.bases: dict[int, Tensor] = {}
        self.sizes = {name: call.S[at] for name, at in recording.symbols.items()}
        self.used: set[int] = set()
        self.made: dict[int, Tensor] = {}

    def result(self) -> Any:
        recording = self.recording
        for source in recording.switched:
            self.call.tensor(source).requires_grad_()
        tensors = [self.leaf(m) for m in recording.makers]
        gradients: list[Any] = [m if m is KEEP or m is None else self.leaf(m) for _, m in recording.gradients]
        for (source, _), grad in zip(recording.gradients, gradients):
            if grad is not KEEP:
                leaf_of(self.call.tensor(source)).grad = grad
        return leave(recording, self.call, tensors)

    def leaf(self, maker: Any) -> Any:
        kind = type(maker)
        if kind is Made:
            known = self.made.get(id(maker))
            if known is None:
                known = self.made[id(maker)] = self.tensor(maker)
            return known
        return self.given(maker.source) if kind is Given else maker

    def given(self, source: Source) -> Any:
        if type(source) is not Grad:
            return self.call.tensor(source)
        places = [s for s, _ in self.recording.gradients]
        return self.before[places.index(source.of)]

    def tensor(self, maker: Made) -> Tensor:
        base, history = maker.base, maker.history
        fresh = type(base) is Fresh
        x = whole = self.base(base) if fresh else self.given(base.source)
        if maker.inferred and fresh and whole._storage is None:
            whole._storage = Inferred()
        if maker.apart:
            x = x.detach()
        if maker.chain:
            with set_grad_enabled(history == "live"):
                for name, attrs in maker.chain:
                    x = REGISTRY[name](x, **with_sizes(attrs, self.sizes))
        plain = history == "none"
        if x is whole and fresh:
            if base.result in self.used or (plain and x._edge is not None):
                x = x.detach()
            else:
                self.used.add(base.result)
        elif not maker.linked:
            x = x.detach() if maker.shares else wrap(x._data, x._meta)
        elif plain and x.requires_grad:
            x = x.detach()
        if history == "leaf":
            x.requires_grad_()
        elif type(history) is Saving:
            spent = x._edge = object.__new__(Saving)
            for name in ("plan", "edges", "saved", "guards", "place"):
                setattr(spent, name, getattr(history, name))
        return x

    def base(self, base: Fresh) -> Tensor:
        found = self.bases.get(base.result)
        if found is None:
            found = self.bases[base.result] = self.base_of(base)
        return found


def laid_out(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The array with its dimensions in that order in memory."""
    back = sorted(range(len(order)), key=lambda d: order[d])
    if type(array) is OnDevice:
        return transposed(transposed(array, order).copy(), back)
    return np.ascontiguousarray(array.transpose(order)).transpose(back)
