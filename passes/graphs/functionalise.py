"""Turns writes into values: what a program changed in place becomes further results.

    graph f(%x: f32[2,3]) -> (f32[2,3]) {
      %0 = basic_index(%x) {index=(("int",0),("slice",0,3,1))} : f32[3]
      %1 = mul(%0, 2.0:f32) : f32[3]
      %2 = write(%0, %1) : f32[3]
      %3 = neg(%x) : f32[2,3]
      return %3
    }
    ->
    graph f(%x: f32[2,3]) -> (f32[2,3], f32[2,3]) {
      %0 = basic_index(%x) {index=(("int",0),("slice",0,3,1))} : f32[3]
      %1 = mul(%0, 2.0:f32) : f32[3]
      %2 = view_scatter(%x, %1) {chain=(("basic_index",(("index",(("int",0),("slice",0,3,1))),)),)} : f32[2,3]
      %3 = neg(%2) : f32[2,3]
      return %3, %2
    }

Every value has a home: the root whose memory it is or shares, and the chain of views that leads there.  A
write gives the root a new current value, and what is used after it is derived from that by its chain, which
may be the value just written.  It is the same rule by which eager writes rebase histories
(runtime/inplace.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir.detach import detach
from ...ir.errors import GraphError
from ...ir.graph import Builder, Constant, Graph, Node, Value
from ...ir.op import REGISTRY, Op
from ...ir.ops.cast import cast
from ...ir.ops.unview import view_scatter
from ...ir.printing import names_of, node_text
from ...ir.views import BY_VALUE, MAPS, Chain, replay, step
from ...ir.write import write

Home = tuple[Value, Chain]
DETACH = step(detach.name)  # in a chain of homes: the same memory, without the history


def functionalise(graph: Graph) -> Graph:
    """The graph without writes; the final values of written params are appended to its results.

    `written` of the graph that goes in says which params these are.  Every `view` becomes `reshape`, as
    values have no strides.  Raises GraphError for a write into a constant, or into a view whose elements
    overlap, and where a write touches what a `reshape` gave or took: it may share memory or not.
    """
    if not any(node.op is write or node.op.name in BY_VALUE for node in graph.nodes):
        return graph
    memory = _Memory(graph)
    for node in graph.nodes:
        memory.walk(node)
    changed = (graph.params[i] for i in written(graph))
    return memory.b.finish([memory.read(v) for v in (*graph.results, *changed)])


def written(graph: Graph) -> tuple[int, ...]:
    """The positions of the params whose memory the graph writes, ascending."""
    homes = homes_of(graph)
    roots = {homes[node.outputs[0]][0] for node in graph.nodes if node.op is write}
    return tuple(i for i, p in enumerate(graph.params) if p in roots)


def homes_of(graph: Graph) -> dict[Value, Home]:
    """The root and the chain of every value that shares another's memory."""
    homes: dict[Value, Home] = {}
    for node in graph.nodes:
        link = link_of(node)
        if link is not None:
            (source, *_), (out,) = node.inputs, node.outputs
            assert source is not None, f"{node.op.name} has an operand"
            root, chain = homes.get(source, (source, ()))
            homes[out] = root, chain + link
    return homes


def link_of(node: Node) -> Chain | None:
    """What the node adds to the chain of its first operand, whose memory its output shares; None if it has
    its own.  That of `reshape`, which may be either, counts as its own."""
    if node.op is write:
        return ()
    if node.op is detach:
        return (DETACH,)
    if node.op.traits.view and not node.op.traits.copies:
        return (step(node.op.name, **node.attrs),)
    return None


class _Memory:
    """What memory holds, as a graph is walked.

    known: per root that was written, the values that stand for what chains of views select of it now; the
    chain () is its whole.  loose: the reshape nodes, by output, and the root whose memory each may share;
    dependents: the same by root.  stale: outputs of reshapes whose root was written since.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.homes = homes_of(graph)
        self.b = Builder.extending(graph.replace(nodes=()))
        self.known: dict[Value, dict[Chain, Value]] = {}
        self.loose: dict[Value, tuple[Value, Node]] = {}
        self.dependents: dict[Value, list[Value]] = {}
        self.stale: set[Value] = set()

    def home(self, value: Value) -> Home:
        return self.homes.get(value, (value, ()))

    def walk(self, node: Node) -> None:
        self.b.where = node.where
        if node.op is write:
            self.write(node)
        elif link_of(node) is not None and self.home(node.outputs[0])[0] in self.known:
            self.read(node.outputs[0])
        else:
            if node.op.traits.copies:
                self.loosen(node)
            inputs = tuple(None if v is None else self.read(v) for v in node.inputs)
            kept = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            op = by_value(node.op)
            self.b.append(node if kept and op is node.op else node.replace(op=op, inputs=inputs))

    def read(self, value: Value) -> Value:
        """What stands for `value` now."""
        root, chain = self.home(value)
        if root in self.stale:
            raise self.unclear(root)
        known = self.known.get(root)
        if known is None:
            return value
        have = len(chain)
        while chain[:have] not in known:
            have -= 1
        found = known[chain[:have]]
        for end in range(have, len(chain)):
            name, attrs = chain[end]
            hint = value.hint if end + 1 == len(chain) else None
            op = detach if chain[end] == DETACH else by_value(REGISTRY[name])
            found = known[chain[: end + 1]] = self.emit(op, (found,), dict(attrs), hint)
        return found

    def write(self, node: Node) -> None:
        target, value = node.inputs
        assert target is not None and value is not None, "the verifier has seen the node"
        root, chain = self.home(target)
        views = tuple(link for link in chain if link != DETACH)
        self.check(node, root, views)
        new = self.read(value)
        if new.dtype is not root.dtype:
            new = self.emit(cast, (new,), {"dtype": root.dtype}, value.hint)
        whole = new
        if views:
            whole = self.emit(view_scatter, (self.read(root), new), {"chain": views}, root.hint)
        self.known[root] = {chain: new, (): whole}
        self.stale.update(self.dependents.pop(root, ()))

    def emit(self, op: Op, operands: Sequence[Value], attrs: Mapping[str, Any], hint: str | None) -> Value:
        return self.b.emit(op, operands, attrs, hint).outputs[0]

    def loosen(self, node: Node) -> None:
        """Note that a reshape's output may share memory with its operand."""
        (source,), (out,) = node.inputs, node.outputs
        assert source is not None, "reshape has an operand"
        root = self.home(source)[0]
        root = self.loose[root][0] if root in self.loose else root
        self.loose[out] = root, node
        self.dependents.setdefault(root, []).append(out)

    def check(self, node: Node, root: Value, chain: Chain) -> None:
        """Refuse a write whose outcome a graph does not tell.  Raises GraphError."""
        if isinstance(root, Constant):
            raise self.error("a constant can't be written", node, "make it a param")
        if root in self.loose:
            raise self.unclear(root)
        if any(MAPS[name].overlaps for name, _ in chain) and _overlap(root, chain):
            raise self.error("several elements of what is written share one place in memory", node)

    def unclear(self, out: Value) -> GraphError:
        return self.error(
            "memory is written that reshape shares or copies, which depends on strides",
            self.loose[out][1],
            "record view where it shares memory, clone after reshape where it copies",
        )

    def error(self, rule: str, node: Node, *remedy: str) -> GraphError:
        place = (f"made at {node.where[0]}:{node.where[1]}",) if node.where else ()
        text = node_text(node, names_of(self.graph))
        return GraphError(f"graph {self.graph.name}: {rule}", text, *place, *remedy)


def by_value(op: Op) -> Op:
    """The op that gives the values of a view whatever the strides; other ops as they are."""
    return REGISTRY[BY_VALUE[op.name]] if op.name in BY_VALUE else op


def _overlap(root: Value, chain: Chain) -> bool:
    """Whether a chain selects an element twice, as far as the sizes tell: True where they are symbols."""
    if not all(isinstance(n, int) for n in root.shape):
        return True
    places = replay(np.arange(prod(root.shape)).reshape(root.shape), chain)
    return np.unique(places).size < places.size
