"""`trace(verify=True)`: run the compiled path and the function itself from the same state, and compare.

The compiled path runs first, on copies of all that it may write; then the function runs, and what it
returns and changes is what holds.  The first time that a segment runs, each stage of its compilation is
compared with the one before on the inputs of that call (blame.py), so that a wrong kernel is seen even where
its results are rounded away.  Later calls compare results, and look through the stages where these differ by
more than rounding explains (rounding.py).  What is found is written out as a script (repro.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..ir.errors import LaminaError
from ..ir.graph import Graph, Value
from ..ir.views import Chain, replay
from ..passes.pipeline import Options
from . import pytree, repro
from .autograd import Eager
from .blame import Finding, functionalised, search
from .recording import Ready, Recording
from .replay import Call, choose
from .report import COMPILING
from .rounding import difference, graph_runs
from .sources import Answer, Fresh, Made
from .stages import Case, Fault, has_winograd
from .stages import compared as differing
from .targets import CPU, Target, suited
from .tree import Branch, Segment, Tree

VARIABLE = "LAMINA_VERIFY"

# code whose stages were compared -> whether it has a Winograd kernel
_looked_through: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


class TraceError(LaminaError, RuntimeError):
    """A compiled run that did not give what the eager run gave.

    finding: the stage of compilation that is to blame, on the smallest graph that shows it; None where every
    stage is right.
    """

    finding: Finding | None = None


def wanted(option: bool | None = None) -> bool:
    """Whether to verify: what `trace` was told, or what $LAMINA_VERIFY says (1, true, yes, on)."""
    return bool(option) or os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


@dataclass
class Rehearsal:
    """What a call's path computes, with nothing written.

    found: the results.  runs: the segments, and what each was given.  params: what those of the recording's
    graph held; None where host code would have to tell.
    """

    recording: Recording
    found: list[np.ndarray]
    runs: list[tuple[Segment, list[np.ndarray]]]
    params: list[np.ndarray] | None


def rehearsed(tree: Tree, call: Call) -> Rehearsal:
    """Take a call's path on copies.  Raises Missed, Eager."""
    values: dict[int, np.ndarray] = {}
    runs = []
    segment = _segment(choose(tree.branches, call))
    while True:
        for key in segment.inputs:
            if key not in values:
                values[key] = np.array(call.array(tree.sources[key]), order="C")
        if segment.full is not None or segment.code is None:
            raise Eager(segment.full or COMPILING)
        given = [values[key] for key in segment.inputs]
        runs.append((segment, given))
        outputs = segment.code.run([np.array(a) for a in given], _weights(segment, call))
        values.update(zip(segment.outputs, outputs))
        if segment.end is not None:
            call.path = segment.end.path
            found = []
            for place, key in segment.end.results:
                known = outputs[place] if place is not None else values.get(key)
                found.append(np.array(call.array(tree.sources[key])) if known is None else known)
            params = [values.get(key) for key in segment.end.params]
            for n, source in enumerate(segment.end.recording.sources):
                if params[n] is None and not isinstance(source, Answer):  # known only on the way
                    params[n] = np.array(call.array(source), order="C")
            whole = None if any(p is None for p in params) else params
            return Rehearsal(segment.end.recording, found, runs, whole)
        assert segment.ask is not None
        for key in segment.ask.keys:
            if key is not None and key not in values:
                values[key] = np.array(call.array(tree.sources[key]), order="C")
        answer, ways = segment.ways(values, call.S, call.undo)
        segment = _segment(choose(ways, call, segment, answer))


def _segment(branch: Branch) -> Segment:
    assert branch.segment is not None, "choose has seen to it"
    return branch.segment


def compared(function: Callable[[], Any], tree: Tree, call: Call, name: str, target: Target = CPU) -> Any:
    """Rehearse a path, then run the function eagerly, and compare.  Raises TraceError, Missed, Eager."""
    run = rehearsed(tree, call)
    call.undo.run()  # the function draws for itself
    # of gradients that are written and then given up, nothing leads to the memory afterwards
    targets = [call.array(run.recording.sources[at]) for at in run.recording.written]
    result = function()
    for segment, given in run.runs:
        if segment.code not in _looked_through:
            if finding := blame(segment, given, target):
                raise _error(f"{name}: what was compiled is not what was recorded", [], finding)
            _looked_through[segment.code] = _has_winograd(segment)
    for what, eager, compiled, runs in _pairs(run, result, call, targets):
        winograd = any(_looked_through.get(segment.code) for segment, _ in run.runs)
        how = difference(eager, compiled, runs, winograd=winograd)
        if how is None:
            continue
        finding = next((b for segment, given in run.runs if (b := blame(segment, given, target))), None)
        if finding is None and run.params is not None:
            finding = functionalised(run.recording.raw, run.params)
        if finding is None:
            finding = next((b for s, given in run.runs if (b := _kept(s, given, call, target))), None)
        raise _error(f"{name}: a compiled run differs from the eager one", [f"{what}: {how}"], finding)
    return result


def blame(segment: Segment, arrays: Sequence[np.ndarray], target: Target = CPU) -> Finding | None:
    """The first stage of a segment's compilation that changes its results, and which result that is."""
    given = tuple(np.array(a) for a in arrays)
    case = Case(segment.graph, given, segment.into, segment.frozen, target)
    found = search(case, suited(Options(), target))
    if found is not None:
        return found
    told = case.compare(segment.code.run([np.array(a) for a in given]), winograd=_has_winograd(segment))
    return None if told is None else _of_result(case, "the code that is kept of", *told)


def _kept(segment: Segment, arrays: Sequence[np.ndarray], call: Call, target: Target) -> Finding | None:
    """Whether what was kept of the weights is no longer what they give."""
    tensors = _weights(segment, call)
    if tensors is None:
        return None
    fresh = segment.code.run([np.array(a) for a in arrays])
    kept = segment.code.run([np.array(a) for a in arrays], tensors)
    case = Case(segment.graph, tuple(arrays), segment.into, segment.frozen, target)
    told = differing(fresh, kept, lambda: case.runs)
    return None if told is None else _of_result(case, "the prologue's results, kept for", *told)


def _of_result(case: Case, stage: str, number: int, how: Any) -> Finding:
    value = case.graph.results[number]
    node = next((n for n in case.graph.nodes if any(v is value for v in n.outputs)), None)
    ops = () if node is None else ((node.op.name, node.where),)
    stage = f"{stage} {node.op.name if node else 'an input'}"
    return Finding(Fault(stage, number, how), case, "the linked program", node, ops)


def _error(rule: str, details: Sequence[str], finding: Finding | None) -> TraceError:
    if finding is None:
        lines = ["every pass and the code agree with the graph, so the recording is not what ran now"]
    else:
        script = repro.write(finding)
        lines = [*finding.lines, *([f"to see it again: python {script}"] if script else [])]
    error = TraceError(rule, *details, *lines)
    error.finding = finding
    return error


def _weights(segment: Segment, call: Call) -> list[Any] | None:
    if segment.held is None:
        return None
    return [None if index is None else call.registry.refs[index]() for index in segment.held]


def _has_winograd(segment: Segment) -> bool:
    programs = getattr(segment.code, "programs", None)
    return programs is not None and any(map(has_winograd, programs()))


def _pairs(run: Rehearsal, result: Any, call: Call, targets: Sequence[np.ndarray]) -> list[tuple]:
    """What is compared: (what it is, the eager array, the compiled one, its runs with noise)."""
    recording, found = run.recording, run.found
    values = _Noisy(recording.graph, run.params)
    results = recording.graph.results[recording.first :]
    _, leaves = pytree.flatten(result)
    # what is returned is known leaf by leaf where it is made of containers alone
    told = zip(leaves, recording.leaves or (), strict=False)
    pairs = [(f"output {i}", leaf, recording.makers[place.at])
             for i, (leaf, place) in enumerate(told) if isinstance(place, Ready)]  # fmt: skip
    for source, maker in recording.gradients:
        pairs.append((f"the gradient of {source}", call.tensor(source).grad, maker))
    made: list[tuple] = []
    for what, x, maker in pairs:
        if isinstance(maker, Made) and isinstance(maker.base, Fresh):
            place, chain = maker.base.result, maker.chain
            runs = partial(values.of, results[place], chain)
            made.append((what, x._data, replay(found[place], chain), runs))
    count = len(recording.written)
    ends = found[len(found) - count :], results[len(results) - count :]
    for position, target, array, value in zip(recording.written, targets, *ends, strict=True):
        what = f"what is written into {recording.sources[position]}"
        made.append((what, target, array, partial(values.of, value)))
    return made


class _Noisy:
    """The values of a recorded graph with noise, computed when they are first asked for."""

    def __init__(self, graph: Graph, params: list[np.ndarray] | None):
        self.graph, self.params = graph, params
        self._runs: list[dict[Value, np.ndarray]] | None = None

    def of(self, value: Value, chain: Chain = ()) -> list[np.ndarray]:
        if self._runs is None:
            assert self.params is not None, "a graph's params are known"
            self._runs = graph_runs(self.graph, self.params)
        return [replay(np.asarray(values[value]), chain) for values in self._runs]
