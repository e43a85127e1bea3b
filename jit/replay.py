"""Takes a recorded path in place of the user's function: reads, computes, and last of all commits.

Until the last question of a path is answered nothing that the program can see has changed.  Then, in this
order: generators advance, the last segment runs and writes, versions are counted, gradients are put in their
places, and what is returned is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.op import REGISTRY
from ..runtime import Tensor, set_grad_enabled
from ..runtime.generator import state_array
from ..runtime.graph import Leaf, Saving
from ..runtime.history import storage_of
from ..runtime.tensor import wrap
from . import pytree
from .recording import KEEP, Recording
from .sources import Arg, Draw, Fresh, Given, Grad, Held, Made, Number, Source
from .tree import End, Key, Segment, Tree


class Missed(Exception):
    """A question was answered as in no recording: (segment, answer)."""


class Busy(Exception):
    """Another thread drew random numbers meanwhile: nothing was changed, and the call must run eagerly."""


class Call:
    """One call on recorded paths.

    leaves: of the arguments.  held, datas: the tensors that the function reaches otherwise, and their arrays.
    numbers: per group of an optimizer, what it says now.  generators, positions: where these stand.
    """

    __slots__ = ("leaves", "held", "datas", "numbers", "generators", "positions")

    def __init__(
        self, leaves: Sequence[Any], held: Sequence[Tensor], datas: Sequence[np.ndarray],
        generators: Sequence[Any] = (),
    ):  # fmt: skip
        self.leaves, self.held, self.datas, self.generators = leaves, held, datas, generators
        self.numbers: Sequence[dict[str, Any]] = ()
        self.positions = [g.position() for g in generators]

    def tensor(self, source: Source) -> Any:
        """The tensor that a source names."""
        if type(source) is Held:
            return self.held[source.index]
        if type(source) is Arg:
            return self.leaves[source.index]
        return leaf_of(self.tensor(source.of)).grad

    def array(self, source: Source) -> np.ndarray:
        """The array that a source stands for now."""
        kind = type(source)
        if kind is Held:
            return self.datas[source.index]
        if kind is Arg:
            return self.leaves[source.index]._data
        if kind is Number:
            return np.array(self.numbers[source.group][source.name], np.float64)
        if kind is Draw:
            seed, offset = self.positions[source.generator]
            return state_array(seed, offset + source.offset)
        return self.tensor(source)._data


def leaf_of(x: Tensor) -> Leaf:
    """The leaf that holds a tensor's gradient."""
    node: Any = x._node
    return node if node is not None else x._resting


class Reader:
    """How the inputs of a path's first segment are read: most stay the arrays that they were."""

    def __init__(self, tree: Tree, segment: Segment, call: Call):
        # The arrays that are held as they were last seen, and where they stand among the inputs; in one step.
        self.kept: tuple[Any, list[Any]] = (None, [None] * len(segment.inputs))
        self.held: list[tuple[int, int]] = []
        self.args: list[tuple[int, int]] = []
        self.rest: list[tuple[int, Source]] = []
        for i, key in enumerate(segment.inputs):
            source = tree.sources[key]
            if type(source) is Held:
                self.held.append((i, source.index))
            elif type(source) is Arg:
                self.args.append((i, source.index))
            else:
                self.rest.append((i, source))
        # The guards see to it that what lies row by row still does.
        self.dense = all(call.array(tree.sources[key]).flags.c_contiguous for key in segment.inputs)

    def arrays(self, call: Call) -> list[np.ndarray]:
        datas, template = self.kept
        if call.datas is not datas:
            datas, template = call.datas, template.copy()
            for i, index in self.held:
                template[i] = datas[index]
            self.kept = datas, template
        arrays = template.copy()
        leaves = call.leaves
        for i, index in self.args:
            arrays[i] = leaves[index]._data
        for i, source in self.rest:
            arrays[i] = call.array(source)
        return arrays


def take(tree: Tree, call: Call) -> Any:
    """Go through the tree with this call's values.  Raises Missed, Busy."""
    values: dict[Key, np.ndarray] = {}
    originals: dict[Key, np.ndarray] = {}
    segment = tree.root
    assert segment is not None, "a tree has a path"
    arrays = None
    if segment.reader is None:
        segment.reader = Reader(tree, segment, call)
    if segment.reader.dense:
        arrays = segment.reader.arrays(call)
        if segment.end is None or segment.end.leftover:
            values.update(zip(segment.inputs, arrays))
    while True:
        if arrays is None:
            arrays = _inputs(tree, segment, call, values, originals)
        if segment.end is not None:
            return _finish(tree, segment, segment.end, call, arrays, values, originals)
        outputs = segment.code.run(arrays, _weights(segment, call))
        segment.runs += 1
        values.update(zip(segment.outputs, outputs))
        assert segment.ask is not None
        for key in segment.ask.keys:
            if key is not None and key not in values:
                values[key] = _read(tree, key, call, originals)
        answer = segment.ask(values)
        branch = segment.branches.get(answer)
        if branch is None:
            raise Missed(segment, answer)
        segment, arrays = branch, None


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
    tensors = call.held
    return [None if index is None else tensors[index] for index in segment.held]


def _read(tree: Tree, key: Key, call: Call, originals: dict[Key, np.ndarray]) -> np.ndarray:
    array = call.array(tree.sources[key])
    if not array.flags.c_contiguous:
        originals[key] = array
        array = np.ascontiguousarray(array)
    return array


def _finish(
    tree: Tree, segment: Segment, end: End, call: Call, arrays: list, values: dict, originals: dict
) -> Any:
    recording = end.recording
    if end.plain is not None:
        outputs = segment.code.run(arrays, _weights(segment, call))
        segment.runs += 1
        made = [wrap(outputs[place], kind) for place, kind in end.plain]
        return made[0] if recording.shape is None else pytree.rebuild(recording.shape, made)
    before = [call.tensor(source).grad for source, _ in recording.gradients]
    draw(recording, call)
    # Counted before they are done: who keeps what was made of the values must see a write whose count an
    # interrupt would have cut off.
    count(recording, call, 1)
    try:
        outputs = segment.code.run(arrays, _weights(segment, call))
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
        return wrap(array if base.order is None else laid_out(array, base.order), end.types[base.result])

    return Making(recording, call, base_of, before).result()


def count(recording: Recording, call: Call, sign: int) -> None:
    """Count a path's writes, or take the counts back."""
    for source, times, writer in recording.writes:
        store = storage_of(call.tensor(source))
        store.version += sign * times
        store.writer = writer


def draw(recording: Recording, call: Call, back: bool = False) -> None:
    """Move the generators on by what a path draws, or back again.  Raises Busy if others drew meanwhile."""
    moved: list[tuple[Any, tuple[int, int], int]] = []
    for generator, (seed, offset), count in zip(call.generators, call.positions, recording.draws):
        if back:
            generator.advance((seed, offset + count), -count)
        elif not generator.advance((seed, offset), count):
            for other, (seed, offset), done in moved:
                other.advance((seed, offset + done), -done)
            raise Busy
        moved.append((generator, (seed, offset), count))


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
    list(map(np.copyto, targets, sources))  # in one sweep of C, which no interrupt divides


class Making:
    """Makes what a call returns, and the gradients it leaves.

    base_of: the tensor around a result.  before: the gradients that leaves had.
    """

    def __init__(
        self, recording: Recording, call: Call, base_of: Callable[[Fresh], Tensor], before: Sequence[Any]
    ):
        self.recording, self.call, self.base_of, self.before = recording, call, base_of, before
        self.bases: dict[int, Tensor] = {}
        self.used: set[int] = set()
        self.made: dict[int, Tensor] = {}

    def result(self) -> Any:
        leaves = [self.leaf(m) for m in self.recording.makers]
        gradients: list[Any] = [
            m if m is KEEP or m is None else self.leaf(m) for _, m in self.recording.gradients
        ]
        for (source, _), grad in zip(self.recording.gradients, gradients):
            if grad is not KEEP:
                leaf_of(self.call.tensor(source)).grad = grad
        return leaves[0] if self.recording.shape is None else pytree.rebuild(self.recording.shape, leaves)

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
        if maker.chain:
            with set_grad_enabled(history == "live"):
                for name, attrs in maker.chain:
                    x = REGISTRY[name](x, **dict(attrs))
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
    return np.ascontiguousarray(array.transpose(order)).transpose(back)
