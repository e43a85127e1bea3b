"""What there is to be shown of a function or a file: compiled graphs, and graphs as files have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..ir.fused import fused
from ..ir.graph import Graph, Value, substituted
from ..ir.placed import nodes_of, placed
from ..ir.specialise import specialise
from ..ir.where import Where, within
from ..jit.backend import Compiled
from ..jit.viewing import Code
from ..passes.programs.program import Program


@dataclass(frozen=True)
class Subject:
    """A compiled graph.

    name: for people.  graph: as the passes were given it, its nodes numbered by their places (`ir/where.py`),
    with the nodes of what was fused before in place of it.  weights, main: the programs, whose steps' places
    have the numbers of the nodes that they compute.  code: what runs it.  arguments, held: names of what
    params stand for, by their hints: arguments, and tensors that are reached otherwise.  notes: what a reader
    has to know.
    """

    name: str
    graph: Graph
    weights: Program
    main: Program
    code: Compiled
    arguments: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def name_of(self, param: Value, otherwise: str) -> str:
        """What a param stands for, for a reader."""
        hint = param.hint or ""
        return self.arguments.get(hint) or self.held.get(hint) or hint or otherwise

    @property
    def frozen(self) -> frozenset[int]:
        """The positions of the params that hold weights."""
        return self.code.frozen


@dataclass(frozen=True)
class Shown:
    """All that a page shows.

    about: what holds of all of it, in pairs.  subjects: compiled graphs.  declared: by name, graphs as a file
    has them, as data.  whole: what a call takes by the file's own code, in seconds.
    """

    title: str
    about: tuple[tuple[str, str], ...] = ()
    subjects: tuple[Subject, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict)
    whole: float | None = None


def subject(
    name: str,
    code: Compiled,
    graph: Graph | None = None,
    arguments: Mapping[str, str] = MappingProxyType({}),
    held: Mapping[str, str] = MappingProxyType({}),
    notes: tuple[str, ...] = (),
) -> Subject:
    """A compiled graph.  graph: the recorded one, where its nodes' places say more."""
    known = numbered(code.recorded if graph is None else graph)
    _, weights, main = code.passed(known)
    named = [[step.name for step in p.steps if step.name != "alias"] for p in (weights, main)]
    if named != code.kernel_names:
        weights, main = code.programs()
        notes = (*notes, "which ops a kernel computes is not known: it was compiled otherwise")
    sizes: Mapping[str, int] = getattr(code, "sizes", {})
    graph = opened(specialise(known, sizes) if sizes else known)
    return Subject(name, graph, weights, main, code, arguments, held, notes)


def subject_of(code: Code) -> Subject:
    """The same of a traced function's."""
    return subject(code.name, code.compiled, None, code.arguments, code.held)


def numbered(graph: Graph) -> Graph:
    """The graph, each node's place with its number, as `nodes_of` counts them."""
    places = []
    for number, node in enumerate(nodes_of(graph)):
        file, line = node.where or ("", 0)
        places.append(Where(file, line, within(node.where), {number}))
    return placed(graph, places)


def opened(graph: Graph) -> Graph:
    """The graph with the nodes of what is fused in its place."""
    became: dict[Any, Any] = {}
    nodes = []
    for node in graph.nodes:
        node = substituted(node, became)
        if node.op is not fused:
            nodes.append(node)
            continue
        body = node.attrs["body"]
        inner = dict(zip(body.params, node.inputs, strict=True))
        for each in body.nodes:
            outputs = tuple(Value(v.type, v.hint) for v in each.outputs)
            nodes.append(substituted(each, inner).replace(outputs=outputs))
            inner |= zip(each.outputs, outputs, strict=True)
        became |= {v: inner.get(made, made) for v, made in zip(node.outputs, body.results, strict=True)}
    return graph.replace(nodes=nodes, results=[became.get(v, v) for v in graph.results])
