"""A traced forward under eager autograd: the compiled forward runs, and its outputs get a history.

    ahead = differentiable(graph, needs, into=into, frozen=frozen, compile_graph=compile_graph)
    outputs = ahead.run(tensors)

The contract with the recorder:

- `graph` is functionalised and otherwise as it was recorded; its params stand for `tensors`, which a call
  hands in by the same positions.
- History that ended in the recorded run ends at `detach` nodes (ir/detach.py).
- `needs` says which params require gradients; a call with another pattern is another path.
- `into[j]` is the position of the param that result j is written into, None for a result that is returned.
  `run` writes, and notes the writes with the tensors' storages.
- Each result that is returned is a new tensor.  What the program returns as a view of another tensor, or as
  one of its own operands, the caller makes of these by eager ops, whose history is then eager's own.

One node stands for all that the graph computes, as a custom Function does; but where one returned tensor is
made of another, each gets a node of its own, or hooks on the first and gradients with respect to it would not
see what flows back from the second.  So do tensors whose histories save nothing together, as one may be gone
back from when the other has been, and is freed.  Those are the stages.

What the forward half hands over to backward are hidden outputs of the node, as those of an op.  Under
create_graph the backward graph is itself run as a traced forward, and what flows back to the values saved
comes to this node again, as further cotangents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ..ir.errors import GradError
from ..ir.graph import Graph, Value
from ..ir.graph import Node as Call
from ..ir.lowering import extern
from ..ir.op import Op
from ..ir.types import CPU, Device
from ..passes.graphs.cse import cse
from ..passes.graphs.dce import leading_to
from ..passes.graphs.differentiate import varying_with
from ..passes.graphs.partition import views
from ..runtime import modes
from ..runtime.changes import advance_contents
from ..runtime.graph import Node, Port
from ..runtime.history import storage_of
from ..runtime.inplace import rebase
from ..runtime.places import Place, here, spell, spelled
from ..runtime.plan import Plan
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor, wrap
from .gradients import Compile, Gradients, Program

new = object.__new__
NO_WRITES: Mapping = MappingProxyType({})
NOBODY = Storage()  # never written: stands for what only the node itself can see


def differentiable(
    graph: Graph,
    needs: Sequence[bool],
    *,
    into: Sequence[int | None],
    frozen: frozenset[int] = frozenset(),
    writes: Mapping[int, tuple[int, tuple[str, Place]]] = NO_WRITES,
    compile_graph: Compile,
    place: Device = CPU,
) -> Differentiable:
    """Compile `graph` so that its results get a history when it is run, on tensors of a device.

    frozen: positions of the params that hold captured tensors which the graph does not write.  writes: for
    params that it does write, by position, how often the recorded run wrote them, and by whom last; once and
    by the call itself where that isn't known.  Raises GradError for a graph whose history can't be one
    node's: it must run eagerly.
    """
    varying = varying_with(graph, [p for p, need in zip(graph.params, needs, strict=True) if need])
    for value, at in zip(graph.results, into, strict=True):
        if at is not None and needs[at] and value not in varying:
            raise GradError(
                f"{graph.name}: a tensor that requires gradients is written without history",
                f"tensor: {graph.params[at]!r}",
            )
    return Differentiable(graph, tuple(needs), tuple(into), frozen, writes, compile_graph, varying, place)


class Eager(Exception):
    """A path, or this call of it, is to run eagerly, and nothing was changed yet: (why)."""


class Differentiable:
    """One recorded path, to be called with gradients on, by any number of threads."""

    def __init__(
        self,
        graph: Graph,
        needs: tuple[bool, ...],
        into: tuple[int | None, ...],
        frozen: frozenset[int],
        writes: Mapping[int, tuple[int, tuple[str, Place]]],
        compile_graph: Compile,
        varying: set[Value],
        place: Device,
    ):
        self.graph, self.needs, self.into, self.writes, self.place = graph, needs, into, writes, place
        ahead, self.stages = graph, []
        defined = {v for node in graph.nodes for v in node.outputs}
        for results, earlier in _stages(graph, varying):
            stage = _Stage(graph, needs, results, earlier, len(ahead.results), frozen, compile_graph, place)
            self.stages.append(stage)
            # what backward alone wants may take nodes that the forward had no use for
            more = [n for n in stage.nodes if defined.isdisjoint(n.outputs)]
            defined.update(v for node in more for v in node.outputs)
            ahead = ahead.replace(nodes=(*ahead.nodes, *more), results=(*ahead.results, *stage.owned))
        owned = len(ahead.results) - len(graph.results)
        self.forward = Program(ahead, (*into, *(None,) * owned), frozen, compile_graph)
        self.guarded = tuple({i for stage in self.stages for i in stage.guarded})

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One tensor per result: a new one, or the one it was written into.  Raises Eager."""
        place = here()
        edges = {i: x._node for i, (x, need) in enumerate(zip(tensors, self.needs)) if need}
        # as they are before anything is written
        stores = {i: storage_of(tensors[i]) for i in self.guarded if i < len(tensors)}
        for at in self.into:
            if at is not None and any(i != at and s is tensors[at]._storage for i, s in stores.items()):
                raise Eager("it writes a part of a tensor, and saves another part of it for backward: which "
                            "came first is what eager code tells")  # fmt: skip
        versions = {i: store.version for i, store in stores.items()}
        given = [x._data for x in tensors]
        arrays = self.forward.run(given, tensors)
        outputs: list[Tensor] = []
        for value, at, array in zip(self.graph.results, self.into, arrays):
            if at is None:
                outputs.append(wrap(array, value.type.at(self.place)))
            else:
                outputs.append(tensors[at])
                times, writer = self.writes.get(at, (1, (self.graph.name, place)))
                store = storage_of(tensors[at])
                store.version += times
                store.writer = writer
                advance_contents()
        if any(e is not None for e in edges.values()):
            if modes.CHANGED:
                modes.tell("foreign", self.graph.name)
            count = len(tensors)  # results are numbered behind the params
            for i in self.guarded:
                if i >= count:
                    stores[i] = storage_of(outputs[i - count])
                    versions[i] = stores[i].version
            for stage in self.stages:
                stage.hang(edges, stores, versions, (*given, *arrays), place)
            for j, (x, at) in enumerate(zip(outputs, self.into)):
                edge = edges.get(count + j)
                if at is not None and edge is not None:
                    rebase(x, edge)
                elif at is None:
                    x._edge = edge
        return outputs


def _stages(graph: Graph, varying: set[Value]) -> list[tuple[list[int], list[int]]]:
    """(results, results of earlier stages), by position: a result is made of no other of its own stage."""
    visible = [j for j, v in enumerate(graph.results) if v in varying]
    values = {graph.results[j] for j in visible}.difference(graph.params)
    depth: dict[Value, int] = dict.fromkeys(graph.params, 0)
    for node in graph.nodes:
        through = [depth[v] + (v in values) for v in node.inputs if v in varying and v in depth]
        depth.update((v, max(through, default=0)) for v in node.outputs)
    levels = {j: depth[graph.results[j]] for j in visible}
    found = []
    for level in sorted({*levels.values()}):
        earlier = [j for j in visible if levels[j] < level]
        together = _together(graph, [j for j in visible if levels[j] == level], earlier, varying)
        found += [(group, earlier) for group in together]
    return found


def _together(graph: Graph, results: list[int], earlier: list[int], varying: set[Value]) -> list[list[int]]:
    """The results in groups that share nothing saved: eager goes back from each by itself, and frees that.

    Eager frees, and looks for writes, op by op.  So where two share nothing but each shares something with a
    third, it lets both be gone back from, or what is saved for the one be written, which a group refuses.
    What results of two stages share it frees once, where here each has its own.
    """
    joined: list[int] = []  # for each op that saves something one it hangs together with, or itself
    behind: dict[Value, set[int]] = {}  # those next behind a value

    def standing(i: int) -> int:
        while joined[i] != i:
            joined[i] = joined[joined[i]]
            i = joined[i]
        return i

    def join(together: set[int]) -> None:
        for i in together:
            joined[standing(i)] = standing(min(together))

    values, known = ([graph.results[j] for j in which] for which in (results, earlier))
    for node in leading_to(graph.nodes, values, {*known}):
        reached = {i for v in node.inputs for i in behind.get(v, ())}
        if _saved(node, varying):
            joined.append(len(joined))
            join({*reached, len(joined) - 1})
            reached = {len(joined) - 1}
        behind.update((v, reached) for v in node.outputs if v in varying)
    for v in values:
        join(behind.get(v, set()))
    groups: dict[Any, list[int]] = {}
    for j, v in zip(results, values):
        groups.setdefault(standing(min(behind[v])) if behind.get(v) else v, []).append(j)
    return [*groups.values()]


class _Stage:
    """Results of one path that are not made of one another: they share a node.

    Params and results are numbered as one here: results behind the params, and behind those what the forward
    half hands over, from `first` on.  operands: what the node has edges to.  gradients: both halves.
    """

    def __init__(
        self,
        graph: Graph,
        needs: tuple[bool, ...],
        results: list[int],
        earlier: list[int],
        first: int,
        frozen: frozenset[int],
        compile_graph: Compile,
        place: Device,
    ):
        count = len(graph.params)
        made = {graph.results[j]: count + j for j in reversed(earlier)}
        for param in graph.params:
            made.pop(param, None)
        values = tuple(graph.results[j] for j in results)
        whole = Graph(graph.name, (*graph.params, *made), leading_to(graph.nodes, values, made), values)
        part = cse(whole, apart=frozenset(graph.results))
        again = partial(differentiable, compile_graph=compile_graph, place=place)
        self.operands = (*range(count), *made.values())
        self.results = tuple(count + j for j in results)
        gradients = Gradients(part, (*needs, *(True for _ in made)), frozen, compile_graph, again, place)
        self.gradients = gradients
        self.nodes, self.owned = gradients.ahead.nodes, gradients.ahead.results[len(values) :]
        seen = {v: count + j for j, v in reversed([*enumerate(graph.results)])}
        seen |= dict(zip(part.params, self.operands, strict=True))
        numbers = seen | {v: count + first + k for k, v in enumerate(self.owned)}
        self.handed = count + first  # the number of the first that the forward half hands over
        self.saved = tuple(numbers[v] for v in gradients.saved)
        saving = _saving(whole, varying_with(whole, [part.params[i] for i in gradients.wrt]))
        savers = {seen[v]: (n.op.name, n.where) for v, n in saving.items() if v in seen}
        for i in self.saved:
            if i < self.handed:  # second order reads it, and eager will not save it before
                savers.setdefault(i, (graph.name, None))
        self.guarded = (*savers,)
        # Eager frees what it saved, and refuses to go through it again: so must a node that saves nothing.
        self.frees = bool(self.saved or saving)
        first = next(((n.op.name, n.where) for n in saving.values()), (graph.name, None))
        self.plan = _Step(part, self, gradients, (*savers.values(),), first, place)

    def hang(
        self, edges: dict, stores: dict, versions: dict, arrays: Sequence[np.ndarray], place: Any
    ) -> None:
        """Make the history of one call, and enter the edges to its results."""
        guards: list[Any] = []
        for i in self.guarded:
            guards += (stores[i], versions[i])
        if self.frees:
            guards += (NOBODY, 0)
        node = new(_Traced)
        node.plan, node.edges = self.plan, tuple([edges.get(i) for i in self.operands])
        node.saved, node.guards = tuple([arrays[i] for i in self.saved]), tuple(guards)
        node.place, node.hooks = place, None
        for k, i in enumerate(self.results):
            edges[i] = node if len(self.results) == 1 else Port(node, k)


class _Traced(Node):
    """The history of one call.  It names who saved something as eager does: by op, and line inside."""

    __slots__ = ()

    plan: _Step

    def saver(self, guard: int) -> tuple[str, str]:
        name, where = self.plan.savers[guard]
        return name, spell(self.place) if where is None else spelled(*where)

    def freed(self) -> tuple[str, str]:
        name, where = self.plan.first
        return name, spell(self.place) if where is None else spelled(*where)


class _Step(Plan):
    """What the nodes of one stage have in common: what a node asks of a plan, and no more.

    savers: for each saved value that the user can see, the op that eager would have saved it for, and where.
    first: of all that eager saves, the op of what backward comes upon first, and where.
    """

    __slots__ = ("first", "savers")

    def __init__(
        self, graph: Graph, stage: _Stage, gradients: Gradients, savers: tuple, first: tuple, place: Device
    ):
        outs = (*graph.results, *stage.owned)
        self.types = tuple(p.type.at(place) for p in graph.params)
        self.outs = tuple(v.type.at(place) for v in outs)
        visible = len(graph.results)
        self.op = Op(
            graph.name,
            operands=tuple(f"arg{i}" for i in range(len(graph.params))),
            attrs=(),
            outputs=tuple(f"out{k}" for k in range(visible)),
            hidden=tuple(f"saved{k}" for k in range(len(stage.owned))),
            reference=gradients.pull_back,
            infer=lambda *types: tuple(v.type for v in outs),
            lower=extern("a compiled graph"),
            samples=tuple,
            vjp=gradients.pull_back,
            doc="Run a traced forward.",
        )
        self.attrs: dict = {}
        self.vjp = self.op.vjp
        self.small = place is CPU  # whose gradients go by arrays
        self.rules = self.quick = self.raw_vjp = self.gradients = None
        self.native = None
        self.unused = (None,) * (len(outs) - 1)
        self.floats = tuple(t.dtype.inexact for t in self.types)
        sources = {i: (True, k) for k, i in enumerate(stage.operands)}
        sources |= {i: (False, k) for k, i in enumerate(stage.results)}
        sources |= {i: (False, visible + i - stage.handed) for i in stage.saved if i not in sources}
        self.sources = tuple(sources[i] for i in stage.saved)
        self.savers, self.first = savers, first


def _saved(node: Call, varying: set[Value]) -> list[Value | None]:
    """What eager saves of a call for backward."""
    op, needs = node.op, [v in varying for v in node.inputs]
    if not any(needs) or varying.isdisjoint(node.outputs):
        return []
    names = set(op.saves)
    if op.vjp is None:
        names = {n for rule, need in zip(op.rules, needs) if rule and need for n in rule.arrays}
    last = len(op.operands) - 1
    named = [(op.operands[min(i, last)], v) for i, v in enumerate(node.inputs)]
    return [v for name, v in (*named, *zip(op.all_outputs, node.outputs)) if name in names]


def _saving(graph: Graph, varying: set[Value]) -> dict[Value, Call]:
    """What eager saves for backward, and what that is a view of: by value, the last call that saves it.

    In the order in which backward would come upon them.
    """
    bases = views(graph.nodes)
    found: dict[Value, Call] = {}
    for node in reversed(graph.nodes):
        for v in _saved(node, varying):
            while v is not None:
                found.setdefault(v, node)
                v = bases.get(v)
    return found
