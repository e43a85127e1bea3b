"""The two halves of a traced forward: what runs ahead, and the backward graphs, one for each pattern of
cotangents that arrives.

Only so does a leaf get a gradient just where eager gives it one: with zeros for a cotangent that did not
come, there would be zeros where eager leaves None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..ir.detach import detach
from ..ir.errors import GraphError
from ..ir.graph import Constant, Graph, Value, substituted
from ..ir.locks import fork_safe_lock
from ..ir.types import Device, Type
from ..passes.graphs.cse import cse
from ..passes.graphs.dce import checks, dce
from ..passes.graphs.differentiate import Options as Differentiation
from ..passes.graphs.differentiate import joint, varying_with
from ..passes.graphs.partition import Options as Partitioning
from ..passes.graphs.partition import backward_half, partition
from ..runtime import modes
from ..runtime.on_device import write_over
from ..runtime.step import as_tensor
from ..runtime.tensor import Tensor, wrap
from .interpreted import or_interpreted


class Compiled(Protocol):
    """What a graph was compiled to.  tensors: whose the arrays are, to keep what is made of frozen ones."""

    def run(
        self, arrays: Sequence[np.ndarray], tensors: Sequence[Tensor | None] | None = None
    ) -> Sequence[np.ndarray]: ...


Compile = Callable[..., Compiled]  # (graph, *, into, frozen)


class Program:
    """A compiled graph, spared of results that need no computing: params and constants.

    Every result is an array of its own, but for those that are written `into` a param.
    """

    def __init__(
        self, graph: Graph, into: Sequence[int | None], frozen: frozenset[int], compile_graph: Compile
    ):
        graph = without_detach(graph)
        params = {p: i for i, p in enumerate(graph.params)}
        self.into, self.frozen = tuple(into), frozen
        self.params = tuple(params.get(v) for v in graph.results)
        self.constants = tuple(v.data if isinstance(v, Constant) else None for v in graph.results)
        computed: dict[tuple[Value, int | None], int] = {}
        self.places: list[int | None] = []
        for value, at in zip(graph.results, into, strict=True):
            known = value in params or isinstance(value, Constant)
            self.places.append(None if known else computed.setdefault((value, at), len(computed)))
        self.compiled = None
        if computed or checks(dce(graph)):
            self.compiled = compile_graph(
                graph.replace(results=[v for v, _ in computed]),
                into=tuple(at for _, at in computed),
                frozen=frozen,
            )

    def run(self, arrays: Sequence[np.ndarray], tensors: Sequence[Tensor] | None = None) -> list[np.ndarray]:
        """One array per result; those with `into` are the params' own.  tensors: whose arrays they are."""
        given = [a if a.flags.c_contiguous else a.copy() for a in arrays]
        if tensors is not None and any(given[i] is not arrays[i] for i in self.frozen):
            tensors = None
        # before anything is written over them
        kept = [None if i is None else arrays[i].copy() for i in self.params]
        made = self.compiled.run(given, tensors) if self.compiled is not None else ()
        results: list[np.ndarray] = []
        taken: set[int] = set()
        for place, param, constant, at in zip(self.places, kept, self.constants, self.into):
            if place is None:
                array = param if constant is None else constant.copy()
            elif at is None and place in taken:
                array = made[place].copy()
            else:
                array = made[place]
                taken.add(place)
            if at is not None:
                if array is not arrays[at]:
                    write_over(arrays[at], array)
                array = arrays[at]
            results.append(array)
        return results


def without_detach(graph: Graph) -> Graph:
    """The graph for those who only want its values."""
    became: dict[Value, Value] = {}
    kept = []
    for node in graph.nodes:
        node = substituted(node, became)
        if node.op is detach:
            (became[node.outputs[0]],) = (v for v in node.inputs if v is not None)
        else:
            kept.append(node)
    return graph.replace(nodes=kept, results=[became.get(v, v) for v in graph.results]) if became else graph


class Gradients:
    """The halves of one stage of a path.

    ahead: the forward graph, which returns the original results, then what only backward looks at.  saved:
    what any backward graph takes, in order, before cotangents.  floating: the positions of the results that
    a cotangent may come for; second order goes through what only backward looks at.  again: makes of a
    backward graph what differentiates it once more.  place: of the tensors.
    """

    def __init__(
        self,
        graph: Graph,
        needs: Sequence[bool],
        frozen: frozenset[int],
        compile_graph: Compile,
        again: Callable,
        place: Device,
    ):
        self.place = place
        self.wrt = tuple(i for i, need in enumerate(needs) if need)
        self.compile_graph, self.again = compile_graph, again
        self.ahead, self.floating = graph, tuple(range(len(graph.results)))
        self.visible = frozenset(graph.results)
        self.saved: tuple[Value, ...] = ()
        more = True
        while more:  # what is saved has gradients too, and what those take is saved as well
            self.full, self.everything = self._joint(self.floating)
            split = partition(self.full, Partitioning(len(self.everything), len(self.floating)))
            known = {*self.saved}
            more = any(v not in known for v in split.saved)
            self.saved += tuple(v for v in split.saved if v not in known)
            self.ahead = split.forward.replace(name=graph.name)
            varying = varying_with(self.ahead, [graph.params[i] for i in self.wrt])
            self.floating = tuple(j for j, v in enumerate(self.ahead.results) if v in varying)
        position = {v: i for i, v in enumerate(self.saved)}
        self.frozen = frozenset(
            position[p] for i, p in enumerate(graph.params) if i in frozen and p in position
        )
        self.halves: dict[tuple[int, ...], Half] = {}
        self.making = fork_safe_lock()

    def _joint(self, of: tuple[int, ...]) -> tuple[Graph, tuple[int, ...]]:
        # With cse, what a rule computes of forward values alone is what the forward half saved of it; but for
        # results, which the user may write where no rule reads them themselves.
        made, reached = joint(self.ahead, Differentiation(wrt=self.wrt, of=of))
        return cse(made, apart=self.visible), reached

    def pull_back(self, saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
        """One gradient per param, None where none arrives: arrays, or tensors with history where they ask."""
        if modes.CHANGED:
            modes.tell("refuse", "backward went through the history of a compiled call")
        arrived = {j: g for j, g in enumerate(cotangents) if g is not None}
        given = tuple(at for at in self.floating if at in arrived)
        half = self.halves.get(given)
        if half is None:
            with self.making:
                half = self.halves.get(given)
                if half is None:
                    half = self.halves[given] = self._half(given)
        found: list[Any] = [None] * len(needs)
        for i, gradient in zip(half.reached, half.run(saved, arrived), strict=True):
            found[i] = gradient
        return tuple(found)

    def _half(self, given: tuple[int, ...]) -> Half:
        """The backward graph for cotangents of the results at these positions."""
        made, reached = self._joint(given)
        try:
            graph = backward_half(made, self.saved, Partitioning(len(reached), len(given)))
        except GraphError:  # a rule that reads more where less is given: with zeros it reads what was saved
            given = self.floating
            graph = backward_half(self.full, self.saved, Partitioning(len(self.everything), len(given)))
            gradients = dict(zip(self.everything, graph.results, strict=True))
            graph = graph.replace(results=[gradients[i] for i in reached])
        types = {at: self.ahead.results[at].type for at in given}
        return Half(graph, types, reached, self.frozen, self.compile_graph, self.again, self.place)


class Half:
    """One backward graph: of what was saved, and of cotangents of the results at `types`' positions.

    reached: the params that get a gradient.
    """

    def __init__(
        self,
        graph: Graph,
        types: dict[int, Type],
        reached: tuple[int, ...],
        frozen: frozenset[int],
        compile_graph: Compile,
        again: Callable,
        place: Device,
    ):
        self.graph, self.types, self.reached, self.frozen, self.again = graph, types, reached, frozen, again
        self.place = place
        self.none = (None,) * len(graph.results)
        self.program = Program(graph, self.none, frozen, or_interpreted(compile_graph))
        self.differentiable: dict[tuple[bool, ...], Any] = {}
        self.making = fork_safe_lock()

    def run(self, saved: tuple, arrived: dict[int, Any]) -> Sequence[Any]:
        """The gradients of the params reached; with their history where the operands have one."""
        operands = [*saved]
        for at, kind in self.types.items():
            operands.append(arrived[at] if at in arrived else np.zeros(kind.shape, kind.dtype.numpy))
        tensors = any(isinstance(x, Tensor) for x in arrived.values())
        if tensors and modes.is_grad_enabled():
            operands = [as_tensor(x) for x in operands]
            needs = tuple([x._node is not None for x in operands])
            if any(needs):
                return self._differentiable(needs).run(operands)
        arrays = self.program.run([x._data if isinstance(x, Tensor) else x for x in operands])
        if not tensors:
            return arrays
        return [wrap(a, v.type.at(self.place)) for a, v in zip(arrays, self.graph.results, strict=True)]

    def _differentiable(self, needs: tuple[bool, ...]) -> Any:
        found = self.differentiable.get(needs)
        if found is None:
            with self.making:
                found = self.differentiable.get(needs)
                if found is None:
                    made = self.again(self.graph, needs, into=self.none, frozen=self.frozen)
                    found = self.differentiable[needs] = made
        return found
