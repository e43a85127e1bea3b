"""Lets ranks meet less often, or move less, where what is read of a collective says so.

    graph f(%a: f32[4], %b: f32[4]) -> (f32[4]) {
      %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[4]
      %1 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[4]
      %2 = add(%0, %1) : f32[4]
      return %2
    }
    ->
    graph f(%a: f32[4], %b: f32[4]) -> (f32[4]) {
      %0 = add(%a, %b) : f32[4]
      %1 = all_reduce(%0) {reduce="sum", group=(0,1)} : f32[4]
      return %1
    }

    sums of sums (a tensor-parallel layer's gradient of its input, for each of its products)
    all_reduce, of which only this rank's part is read    reduce_scatter (an optimizer with sharded states)
    all_gather(reduce_scatter(x))                         all_reduce(x)
    this rank's part of all_gather(x)                     x
    avg, min, max, broadcast of what all ranks have       what they have
    two equal ones                                        one

Other ranks run a collective too, so this is no pass of the pipeline: it is for ranks that have told each
other that they run the same (`jit/agreed.py`).  Sums of floats are of the same terms in another order, as MPI
itself adds them in the order that it likes; numbers of 16 bits, which each rank would round, stay apart.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.graph import Builder, Graph, Node, Value, active, substituted
from ...ir.indices import whole
from ...ir.op import REGISTRY
from ...ir.write import need_values
from .cse import key_of
from .dce import dce

LINEAR = ("sum", "avg")
IDEMPOTENT = ("avg", "min", "max", "band", "bor")  # of equal values they are that value
TO_ALL = ("all_reduce", "all_gather", "broadcast")  # every rank gets the same
ROUNDS = 16  # of rewriting, of which each may make room for another


def fewer_collectives(graph: Graph, rank: int) -> Graph:
    """The graph with such collectives in place of others.

    rank: this process's number among all.  Raises GraphError for a graph with writes.
    """
    need_values("fewer_collectives", graph)
    for _ in range(ROUNDS):
        made = _Rewriting(graph, rank).graph()
        if made is graph:
            break
        graph = dce(made)
    return graph


class _Rewriting:
    """One round over a graph.

    maker, readers: of values; a result of the graph is read by None.  became: values that others stand for.
    first: collectives by what makes them equal.
    """

    def __init__(self, graph: Graph, rank: int):
        self.before, self.rank = graph, rank
        self.maker = {v: node for node in graph.nodes for v in node.outputs}
        self.readers: dict[Value, list[Node | None]] = {}
        for node in graph.nodes:
            for v in node.inputs:
                if v is not None:
                    self.readers.setdefault(v, []).append(node)
        for v in graph.results:
            self.readers.setdefault(v, []).append(None)
        self.became: dict[Value, Value] = {}
        self.first: dict[Any, Value] = {}

    def graph(self) -> Graph:
        before = self.before
        with Builder.extending(before.replace(nodes=())) as b:
            for node in before.nodes:
                if node.outputs and node.outputs[0] in self.became:
                    continue
                b.where = node.where
                made = self.rewritten(node, substituted(node, self.became))
                if made is None:
                    b.append(substituted(node, self.became))
                else:
                    self.became[node.outputs[0]] = made
            if not self.became:
                return before
            made_graph = b.finish([self.became.get(v, v) for v in before.results])
        return made_graph.replace(nodes=self.still_read(made_graph))

    def still_read(self, graph: Graph) -> list[Node]:
        """The nodes but for collectives that nobody reads any more."""
        reads = Counter(graph.used())
        return [
            node
            for node in graph.nodes
            if not node.op.traits.meets or reads[node.outputs[0]] or node.outputs[0] not in self.readers
        ]

    def rewritten(self, node: Node, now: Node) -> Value | None:
        """What stands for a node's output; None where it stays.  now: the node with its new operands."""
        name = node.op.name
        if name == "add":
            return self.sum_of_sums(node)
        if name == "basic_index":
            part = self.own_of_gathered(node)
            return self.index_first(node) if part is None else part
        if not node.op.traits.meets:
            return None
        made = None
        if name == "all_reduce":
            made = self.own_of_reduced(node)
        elif name == "all_gather":
            made = self.gathered_parts(node)
        if made is None and name in TO_ALL:
            made = self.same_everywhere(node)
        if made is None and name in TO_ALL:
            known = self.first.setdefault(key_of(now), node.outputs[0])
            made = None if known is node.outputs[0] else known
        return made

    def only_reader(self, value: Value | None) -> Node | None:
        """The node that alone reads a value."""
        found = self.readers.get(value, []) if value is not None else []
        return found[0] if len(found) == 1 else None

    def made_by(self, value: Value | None, *names: str) -> Node | None:
        """The node that makes a value, if it is of these ops, and stands as it was."""
        made = None if value is None or value in self.became else self.maker.get(value)
        return made if made is not None and made.op.name in names else None

    # ---- before -> after
    def sum_of_sums(self, node: Node) -> Value | None:
        """all_reduce(a) + all_reduce(b)  ->  all_reduce(a + b)"""
        one, two = (self.made_by(v, "all_reduce") for v in node.inputs)
        if one is None or two is None or one is two or dict(one.attrs) != dict(two.attrs):
            return None
        kinds = {v.type for v in (*node.outputs, *one.inputs, *two.inputs) if v is not None}
        (kind,) = kinds if len(kinds) == 1 else (None,)
        if (
            kind is None
            or one.attrs["reduce"] not in LINEAR
            or (kind.dtype.inexact and kind.dtype.itemsize < 4)
        ):
            return None
        if any(self.only_reader(n.outputs[0]) is not node for n in (one, two)):
            return None
        a, b = (self.became.get(n.inputs[0], n.inputs[0]) for n in (one, two))
        return REGISTRY["all_reduce"](REGISTRY["add"](a, b), **one.attrs)

    def own_of_reduced(self, node: Node) -> Value | None:
        """all_reduce(x)[own part], and nothing else of it  ->  reduce_scatter(x)"""
        readers = self.readers.get(node.outputs[0], [])
        indices = {
            reader.attrs["index"] if reader is not None and reader.op.name == "basic_index" else None
            for reader in readers
        }
        (index,) = indices if len(indices) == 1 else (None,)
        dim = self.own_dim(index, node)
        if dim is None:
            return None
        x = self.became.get(node.inputs[0], node.inputs[0])
        made = REGISTRY["reduce_scatter"](x, dim, node.attrs["reduce"], node.attrs["group"])
        self.became.update((reader.outputs[0], made) for reader in readers if reader is not None)
        return made

    def own_of_gathered(self, node: Node) -> Value | None:
        """all_gather(x)[own part]  ->  x"""
        gathered = self.made_by(node.inputs[0], "all_gather")
        if gathered is None or self.own_dim(node.attrs["index"], gathered) != gathered.attrs["dim"]:
            return None
        return self.became.get(gathered.inputs[0], gathered.inputs[0])

    def index_first(self, node: Node) -> Value | None:
        """(all_reduce(x) / n)[own part]  ->  all_reduce(x)[own part] / n"""
        made = self.maker.get(node.inputs[0])
        if made is None or node.inputs[0] in self.became or not self.leads_to_reduced(made, node):
            return None
        index = node.attrs["index"]
        operands = [v if v is None else self.became.get(v, v) for v in made.inputs]
        operands = [v if v is None or not v.ndim else REGISTRY["basic_index"](v, index) for v in operands]
        return active().emit(made.op, operands, made.attrs).outputs[0]

    def leads_to_reduced(self, node: Node, reader: Node) -> bool:
        """Whether a node is elementwise, of an all_reduce and numbers, and each is read by the next alone."""
        index = reader.attrs["index"]
        while node.op.traits.elementwise and not node.op.traits.random and len(node.outputs) == 1:
            if self.only_reader(node.outputs[0]) is not reader:
                return False
            shaped = [v for v in node.inputs if v is not None and v.ndim]
            made = self.maker.get(shaped[0]) if len(shaped) == 1 else None
            if made is None or shaped[0].shape != node.outputs[0].shape:
                return False
            if made.op.name == "all_reduce":
                return self.only_reader(shaped[0]) is node and self.own_dim(index, made) is not None
            reader, node = node, made
        return False

    def gathered_parts(self, node: Node) -> Value | None:
        """all_gather(reduce_scatter(x))  ->  all_reduce(x)"""
        parts = self.made_by(node.inputs[0], "reduce_scatter")
        if parts is None or self.only_reader(parts.outputs[0]) is not node:
            return None
        if (parts.attrs["dim"], parts.attrs["group"]) != (node.attrs["dim"], node.attrs["group"]):
            return None
        x = self.became.get(parts.inputs[0], parts.inputs[0])
        return REGISTRY["all_reduce"](x, parts.attrs["reduce"], parts.attrs["group"])

    def same_everywhere(self, node: Node) -> Value | None:
        """avg, min, max or broadcast of what all ranks have  ->  what they have"""
        known = self.made_by(node.inputs[0], *TO_ALL)
        if known is None or known.attrs["group"] != node.attrs["group"] or node.op.name == "all_gather":
            return None
        return known.outputs[0] if node.attrs.get("reduce", "avg") in IDEMPOTENT else None

    def own_dim(self, index: Any, node: Node) -> int | None:
        """The dim along which an index takes this rank's part of a collective's result; None for others."""
        group, shape = node.attrs["group"], node.outputs[0].shape
        if index is None or self.rank not in group or len(index) != len(shape):
            return None
        cut = [dim for dim, item in enumerate(index) if item != whole(shape[dim])]
        if len(cut) != 1 or len(group) == 1:
            return None
        (dim,), at = cut, group.index(self.rank)
        size = shape[dim]
        if not isinstance(size, int) or size % len(group):
            return None
        part = size // len(group)
        return dim if index[dim] == ("slice", at * part, (at + 1) * part, 1) else None
