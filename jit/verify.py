"""`trace(verify=True)`: run the compiled path and the function itself from the same state, and compare.

The compiled path runs first, on copies of all that it may write; then the function runs, and what it
returns and changes is what holds.  Where they differ by more than rounding, each stage of compilation is run
in turn on the same inputs: the graph as it was recorded, the graph after each pass, the code.  The first
whose results differ is to blame, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.errors import LaminaError
from ..ir.interpret import interpret
from ..ir.views import replay
from ..passes.pipeline import Options
from . import pytree
from .recording import Recording
from .replay import Call, Missed
from .sources import Fresh, Made
from .tree import Segment, Tree


class TraceError(LaminaError, RuntimeError):
    """A compiled run that did not give what the eager run gave."""


def close(a: np.ndarray, b: np.ndarray, terms: int) -> bool:
    """Whether two arrays are the same up to rounding.

    Integers must be equal.  For floating ones each element may differ by eps * sqrt(terms) * 8 of the largest
    magnitude: sums of `terms` products in another order differ by about sqrt(terms) roundings of that size.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu" or not a.size:
        return bool(np.array_equal(a, b))
    wide = a.astype(np.float64), b.astype(np.float64)
    size = max((float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0)) for x in wide), default=0.0)
    eps = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}[a.dtype.itemsize]
    return bool(np.allclose(*wide, rtol=0, atol=8 * eps * terms**0.5 * max(size, 1e-30), equal_nan=True))


def blame(segment: Segment, arrays: Sequence[np.ndarray]) -> str:
    """The first stage of a segment's compilation that changes its results, and which result that is."""
    given = [np.array(a) for a in arrays]
    terms = _terms(segment)
    expected = interpret(segment.graph, *given)
    graph = segment.graph
    for step in Options().passes():
        made = step(graph)
        for number, (a, b) in enumerate(zip(expected, interpret(made, *given), strict=True)):
            if not close(a, b, terms):
                return f"pass {step.__name__} changes result {number}: {_worst(a, b)}"
        graph = made
    found = segment.code.run([np.array(a) for a in arrays])
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if not close(a, b, terms):
            return f"the code of {_writer(segment, number)} changes result {number}: {_worst(a, b)}"
    return ""


def rehearsed(tree: Tree, call: Call) -> tuple[Recording, list[np.ndarray], list[tuple[Segment, list]]]:
    """What a call's path computes, with nothing written: its results, and what each segment was given.

    Raises Missed.
    """
    values: dict[int, np.ndarray] = {}
    runs = []
    segment = tree.root
    assert segment is not None, "a tree has a path"
    call.positions = [g.position() for g in call.generators]
    while True:
        for key in segment.inputs:
            if key not in values:
                values[key] = np.array(call.array(tree.sources[key]), order="C")
        given = [values[key] for key in segment.inputs]
        runs.append((segment, given))
        outputs = segment.code.run([np.array(a) for a in given])
        values.update(zip(segment.outputs, outputs))
        if segment.end is not None:
            found = []
            for place, key in segment.end.results:
                known = outputs[place] if place is not None else values.get(key)
                found.append(call.array(tree.sources[key]) if known is None else known)
            return segment.end.recording, found, runs
        assert segment.ask is not None
        for key in segment.ask.keys:
            if key is not None and key not in values:
                values[key] = np.array(call.array(tree.sources[key]), order="C")
        answer = segment.ask(values)
        if answer not in segment.branches:
            raise Missed(segment, answer)
        segment = segment.branches[answer]


def compared(function: Callable[[], Any], tree: Tree, call: Call, name: str) -> Any:
    """Rehearse a path, then run the function eagerly, and compare.  Raises TraceError, Missed."""
    recording, found, runs = rehearsed(tree, call)
    result = function()
    terms = sum(_terms(segment) for segment, _ in runs)
    _, leaves = pytree.flatten(result)
    pairs = [
        (f"output {i}", leaf, m) for i, (leaf, m) in enumerate(zip(leaves, recording.makers, strict=False))
    ]
    for source, maker in recording.gradients:
        pairs.append((f"the gradient of {source}", call.tensor(source).grad, maker))
    expected = [(what, x._data, _replayed(m, found)) for what, x, m in pairs
                if isinstance(m, Made) and isinstance(m.base, Fresh)]  # fmt: skip
    written = found[len(found) - len(recording.written) :]
    for position, array in zip(recording.written, written, strict=True):
        expected.append((f"what is written into {recording.sources[position]}",
                         call.array(recording.sources[position]), array))  # fmt: skip
    for what, eager, compiled in expected:
        if not close(eager, compiled, terms):
            blamed = next((b for segment, given in runs if (b := blame(segment, given))), None)
            raise TraceError(
                f"{name}: a compiled run differs from the eager one",
                f"{what}: {_worst(eager, compiled)}",
                blamed
                or "every pass and the code agree with the graph, so the recording is not what ran now",
            )
    return result


def _replayed(maker: Made, found: list[np.ndarray]) -> np.ndarray:
    return replay(found[maker.base.result], maker.chain)


def _terms(segment: Segment) -> int:
    """How many numbers go into one at most: the elements of the largest value, and the ops on the way."""
    sizes = [
        v.type.size for node in segment.graph.nodes for v in (*node.inputs, *node.outputs) if v is not None
    ]
    return max(sizes, default=1) * max(len(segment.graph.nodes), 1)


def _writer(segment: Segment, number: int) -> str:
    """The op, and the user's line, that a result is of."""
    value = segment.graph.results[number]
    for node in segment.graph.nodes:
        if any(v is value for v in node.outputs):
            where = f" at {node.where[0].rpartition('/')[2]}:{node.where[1]}" if node.where else ""
            return f"{node.op.name}{where}"
    return "an input"


def _worst(a: np.ndarray, b: np.ndarray) -> Any:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    wide = np.abs(a.astype(np.float64) - b.astype(np.float64))
    at = np.unravel_index(int(np.nanargmax(wide)) if not np.isnan(wide).all() else 0, a.shape)
    return f"element {[int(i) for i in at]} is {a[at]} eagerly and {b[at]} compiled"
