"""Split the graph of a function and its gradients into a forward and a backward half.

    graph f_grad(%x: f32[64], %g: f32[64]) -> (f32[64], f32[64]) {
      %0 = exp(%x) : f32[64]
      %1 = mul(%0, 2.0:f32) : f32[64]
      %2 = mul(%g, 2.0:f32) : f32[64]
      %3 = mul(%2, %0) : f32[64]
      return %1, %3
    }
    ->
    graph f_forward(%x: f32[64]) -> (f32[64], f32[64]) {
      %0 = exp(%x) : f32[64]
      %1 = mul(%0, 2.0:f32) : f32[64]
      return %1, %0
    }
    graph f_backward(%0: f32[64], %g: f32[64]) -> (f32[64]) {
      %1 = mul(%g, 2.0:f32) : f32[64]
      %2 = mul(%1, %0) : f32[64]
      return %2
    }

The backward half needs values of the forward one.  Each is either handed over (saved) or computed again from
others that are; the choice that saves the fewest bytes is a minimum cut.  Only pointwise and moving ops are
computed again: a fused backward does that on the way, in less time than it would take to read the value.
Among choices that differ by less than 3 %, that one is made whose values the forward half writes to memory
anyway: what products and reductions read and give, not what lies between two of them in registers.
Source: Jiang and others, "min-cut rematerialization", in the functorch partitioners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod

from ...ir import lazy
from ...ir.errors import GraphError
from ...ir.graph import Constant, Graph, Node, Value
from ...ir.lowering import NotLowered
from .dce import leading_to

PRICE = 100  # of a byte; what need not be written otherwise costs up to 3 more
SYMBOL_SIZE = 128  # what a dimension counts for whose size is a symbol: only the proportions matter


@dataclass(frozen=True)
class Options:
    """What a joint graph consists of, and what may be computed twice.

    gradients: how many of the last results are the backward half's.  cotangents: how many of the last params
    are.  recompute: whether the backward half may repeat cheap ops of the forward one; without, it saves just
    what it reads.
    """

    gradients: int
    cotangents: int
    recompute: bool = True


@dataclass(frozen=True)
class Partition:
    """forward: params -> original results, then `owned`.  backward: `saved`, then cotangents -> gradients.

    saved: in order of definition.  A param or an original result of which the joint graph's gradients read
    the memory, itself or a view of it, is *borrowed*: to hand it over costs nothing, and whoever runs the
    halves must see to it that nobody changed it meanwhile.  The others are `owned`: nobody but the backward
    half sees them.
    """

    forward: Graph
    backward: Graph
    saved: tuple[Value, ...]
    owned: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.forward}\n{self.backward}"


def partition(joint: Graph, options: Options) -> Partition:
    """The two halves.  Raises GraphError where an original result depends on a cotangent."""
    halves = _Halves(joint, options)
    saved = halves.saved()
    owned = tuple(v for v in saved if v not in halves.borrowed)
    forward = forward_half(joint.replace(params=halves.params, results=halves.results), owned)
    return Partition(forward, halves.backward(saved), saved, owned)


def forward_half(graph: Graph, owned: Sequence[Value]) -> Graph:
    """The graph that also returns `owned`, without what neither needs."""
    results = (*graph.results, *owned)
    name = f"{graph.name.removesuffix('_grad')}_forward"
    return Graph(name, graph.params, leading_to(graph.nodes, results), results)


def backward_half(joint: Graph, saved: Sequence[Value], options: Options) -> Graph:
    """The gradients as a graph of `saved` and the cotangents.

    Raises GraphError where they take more: another value of the forward half that is not cheap to repeat.
    """
    return _Halves(joint, options).backward(saved)


def nbytes(value: Value) -> int:
    """The size of a value in bytes; a symbol counts as some number."""
    return prod(d if isinstance(d, int) else SYMBOL_SIZE for d in value.shape) * value.dtype.itemsize


def cheap(node: Node) -> bool:
    """Whether a fused kernel computes the node on the way, so that to repeat it costs next to nothing."""
    traits = node.op.traits
    if traits.random or traits.host or isinstance(node.op.lower, NotLowered):
        return False
    return traits.elementwise or traits.movement or traits.view or traits.creation


def views(nodes: Iterable[Node]) -> dict[Value, Value]:
    """For each view what it is a view of."""
    found: dict[Value, Value] = {}
    for node in nodes:
        base = node.inputs[0] if node.op.traits.view and not node.op.traits.copies else None
        if base is not None and not isinstance(base, Constant):
            found[node.outputs[0]] = base
    return found


class _Halves:
    """The parts of a joint graph.

    behind: the values that depend on cotangents.  ahead: the nodes that the original results take; all others
    run once, in whichever half.  borrowed: the params and original results whose memory the others read.
    """

    def __init__(self, joint: Graph, options: Options):
        self.joint, self.options = joint, options
        params, results = len(joint.params) - options.cotangents, len(joint.results) - options.gradients
        self.params, self.cotangents = joint.params[:params], joint.params[params:]
        self.results, self.gradients = joint.results[:results], joint.results[results:]
        self.behind = set(self.cotangents)
        for node in joint.nodes:
            if not self.behind.isdisjoint(node.inputs):
                self.behind.update(node.outputs)
        for value in self.results:
            if value in self.behind:
                raise GraphError(f"partition: a result of {joint.name} depends on a cotangent", f"{value!r}")
        self.ahead = set(leading_to(joint.nodes, self.results))
        read = {v for node in joint.nodes if node not in self.ahead for v in node.inputs} | {*self.gradients}
        visible = {*self.params, *self.results}
        bases = views(joint.nodes)
        for node in reversed(joint.nodes):
            read.update(bases[v] for v in node.outputs if v in read and v in bases and v not in visible)
        self.borrowed = visible & read

    def repeatable(self, node: Node) -> bool:
        """Whether the backward half may hold the node, whatever the forward half holds."""
        return node not in self.ahead or (self.options.recompute and cheap(node))

    def backward(self, saved: Sequence[Value]) -> Graph:
        joint, known = self.joint, {*saved, *self.cotangents}
        nodes = leading_to(joint.nodes, self.gradients, known)
        for node in nodes:
            if not self.repeatable(node):
                raise GraphError(f"partition: the gradients of {joint.name} would run an op twice", str(node))
            known.update(node.outputs)
        for value in (*(v for node in nodes for v in node.inputs), *self.gradients):
            if value is not None and value not in known and not isinstance(value, Constant):
                raise GraphError(
                    f"partition: the gradients of {joint.name} take more than what is saved", f"{value!r}"
                )
        name = f"{joint.name.removesuffix('_grad')}_backward"
        return Graph(name, (*saved, *self.cotangents), nodes, self.gradients)

    def saved(self) -> tuple[Value, ...]:
        """What to hand over: what can be had in no other way, then a minimum cut through the rest."""
        nodes, behind = self.joint.nodes, self.behind
        later = [n for n in leading_to(nodes, self.gradients) if not behind.isdisjoint(n.outputs)]
        read = {v for n in later for v in n.inputs} | {*self.gradients}
        wanted = {v for v in read if v is not None and v not in behind and not isinstance(v, Constant)}
        made_again = {v for node in nodes if self.repeatable(node) for v in node.outputs}
        known = {*self.borrowed, *(v for v in wanted if v not in made_again)}
        known |= self._cut(wanted, known)
        _, reached = self._repeated(wanted, known)
        defined = (*self.params, *(v for node in nodes for v in node.outputs))
        return tuple(v for v in defined if v in reached and v in known)

    def _repeated(self, wanted: Iterable[Value], known: Collection[Value]) -> tuple[list[Node], set[Value]]:
        """The nodes that may compute what is wanted from what is known, in order, and all that they touch."""
        reached, found = set(wanted), []
        for node in reversed(self.joint.nodes):
            if any(v in reached and v not in known for v in node.outputs) and self.repeatable(node):
                found.append(node)
                reached.update(v for v in node.inputs if v is not None and not isinstance(v, Constant))
        return found[::-1], reached

    def _cut(self, wanted: Collection[Value], known: Collection[Value]) -> set[Value]:
        """The cheapest values that, with what is known, give all that is wanted."""
        nodes, reached = self._repeated(wanted, known)
        made = {v for node in nodes for v in node.outputs}
        flow = _Flow(self._price())
        for value in (*self.params, *(v for node in self.joint.nodes for v in node.outputs)):
            if value in reached and value not in known and value not in made:
                flow.add(value, (), source=True, sink=value in wanted)
        for node in nodes:
            feeds = [v for v in node.inputs if v in flow.feeds]
            for value in node.outputs if feeds else ():
                if value in reached and value not in known:
                    flow.add(value, feeds, source=False, sink=value in wanted)
        return flow.cut()

    def _price(self) -> Callable[[Value], int]:
        """Bytes, and a little more for what the forward half writes, or even computes, for this alone."""
        nodes = [node for node in self.joint.nodes if node in self.ahead]
        heavy = [node for node in nodes if not cheap(node)]
        written = {v for node in heavy for v in (*node.inputs, *node.outputs)}.difference(self.results)
        computed = {*self.params, *(v for node in nodes for v in node.outputs)}
        return lambda v: nbytes(v) * (PRICE if v in written else PRICE + 2 if v in computed else PRICE + 3)


class _Flow:
    """A network of values: each may be cut, at its price, so that no source reaches a sink."""

    def __init__(self, price: Callable[[Value], int]) -> None:
        self.price = price
        self.feeds: dict[Value, set[Value]] = {}  # in order of definition
        self.users: dict[Value, set[Value]] = {}
        self.sources: set[Value] = set()
        self.sinks: set[Value] = set()

    def add(self, value: Value, feeds: Iterable[Value], *, source: bool, sink: bool) -> None:
        self.feeds[value], self.users[value] = set(feeds), set()
        for v in self.feeds[value]:
            self.users[v].add(value)
        if source:
            self.sources.add(value)
        if sink:
            self.sinks.add(value)

    def cut(self) -> set[Value]:
        """A minimum cut; among equals the one nearest to the sinks, where least is computed again."""
        self._condense()
        found = {v for v in self.feeds if v in self.sources and v in self.sinks}
        for group in self._groups(found):
            found |= _minimum_cut(self, group)
        return found

    def _condense(self) -> None:
        """Merge values that no best cut has with their neighbours, which leaves little of a usual graph."""
        for v in reversed(tuple(self.feeds)):
            # All of v's ways lead through its one user, which is no dearer.
            if v not in self.sinks and len(self.users[v]) == 1:
                (user,) = self.users[v]
                if self.price(user) <= self.price(v):
                    self._merge(v, user)
            elif v not in self.sinks and not self.users[v]:
                self._drop(v)
        for v in tuple(self.feeds):
            # All of v comes from one value, which is cheaper.
            if v not in self.sources and len(self.feeds[v]) == 1:
                (feed,) = self.feeds[v]
                if self.price(feed) < self.price(v):
                    self._merge(v, feed)

    def _merge(self, value: Value, into: Value) -> None:
        """Let `into` stand for both."""
        feeds, users = self.feeds[value] - {into}, self.users[value] - {into}
        for marks in (self.sources, self.sinks):
            if value in marks:
                marks.add(into)
        self._drop(value)
        for v in feeds:
            self.users[v].add(into)
        for v in users:
            self.feeds[v].add(into)
        self.feeds[into] |= feeds
        self.users[into] |= users

    def _drop(self, value: Value) -> None:
        for v in self.feeds.pop(value):
            self.users[v].discard(value)
        for v in self.users.pop(value):
            self.feeds[v].discard(value)
        self.sources.discard(value)
        self.sinks.discard(value)

    def _groups(self, without: Collection[Value]) -> Iterable[list[Value]]:
        """The values that hang together, but for those given."""
        seen = set(without)
        for start in self.feeds:
            group, stack = [], [start]
            while stack:
                v = stack.pop()
                if v not in seen:
                    seen.add(v)
                    group.append(v)
                    stack += [*self.feeds[v], *self.users[v]]
            if group:
                yield group


def _minimum_cut(flow: _Flow, group: Sequence[Value]) -> set[Value]:
    """The minimum cut of one group of values.

    A value is an edge from 2 i to 2 i + 1, whose capacity is its price; what leads from value to value has no
    capacity to cut.  networkx returns the cut nearest to the sink.
    """
    networkx = lazy.load("networkx")
    network, number = networkx.DiGraph(), dict(zip(group, count()))
    network.add_nodes_from(("source", "sink"))
    for v, i in number.items():
        network.add_edge(2 * i, 2 * i + 1, capacity=flow.price(v))
        if v in flow.sources:
            network.add_edge("source", 2 * i)
        if v in flow.sinks:
            network.add_edge(2 * i + 1, "sink")
        for user in flow.users[v]:
            if user in number:
                network.add_edge(2 * i + 1, 2 * number[user])
    _, (near, _) = networkx.minimum_cut(
        network, "source", "sink", flow_func=networkx.algorithms.flow.shortest_augmenting_path
    )
    return {v for v, i in number.items() if 2 * i in near and 2 * i + 1 not in near}
