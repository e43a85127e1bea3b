"""Lets small collectives of one kind, none of which needs another's result, travel as one.

    graph f(%a: f32[2,2], %b: f32[3]) -> (f32[2,2], f32[3]) {
      %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[2,2]
      %1 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[3]
      return %0, %1
    }
    ->
    graph f(%a: f32[2,2], %b: f32[3]) -> (f32[2,2], f32[3]) {
      %0 = reshape(%a) {shape=(4,)} : f32[4]
      %1 = cat(%0, %b) {dim=0, sizes=(4,3)} : f32[7]
      %2 = all_reduce(%1) {reduce="sum", group=(0,1)} : f32[7]
      %3 = basic_index(%2) {index=(("slice",0,4,1),)} : f32[4]
      %4 = reshape(%3) {shape=(2,2)} : f32[2,2]
      %5 = basic_index(%2) {index=(("slice",4,7,1),)} : f32[3]
      return %4, %5
    }

The one stands where the last of them stood, and what reads the others waits for it; what would have another
collective wait as well ends a bucket.  So an early one begins later, but all are through when the last alone
would have been, as it is small: that takes the time of a collective, not of bytes.

Other ranks run collectives too, so this is no pass of the pipeline: it is for ranks that have told each other
that they run the same (`jit/agreed.py`).  Each element is combined with the same ones as before, in an order
that is MPI's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import prod

from ...ir.graph import Builder, Graph, Node, Value, substituted
from ...ir.op import REGISTRY
from ...ir.write import need_values

# An all_reduce of 1 KB takes 11 us between two ranks and 80 between four on two cores, one of 64 MB 11.8 and
# 39.9 ms (docs/scaling.md): so much of one of 64 KB is latency, which joining saves.
SMALL = 1 << 16  # bytes that a rank gives or gets; of larger ones the copies would cost more
MOST = 1 << 20  # bytes of a bucket

WHOLE = ("all_reduce", "reduce", "broadcast")  # each element by itself, wherever it lies
BY_RANKS = ("all_gather", "reduce_scatter")  # of as many parts as ranks


def bucket_collectives(graph: Graph) -> Graph:
    """The graph with such collectives joined.  Those of sizes that are symbols stay as they are.

    Raises GraphError for a graph with writes.
    """
    need_values("bucket_collectives", graph)
    buckets = list(_buckets(graph))
    if not buckets:
        return graph
    of = {node: members for members in buckets for node in members}
    became: dict[Value, Value] = {}
    with Builder.extending(graph.replace(nodes=())) as b:
        missing = {v for node in of for v in node.outputs}
        waiting: list[Node] = []
        for node in graph.nodes:
            if node in of:
                if node is not of[node][-1]:
                    continue
                b.where = node.where
                operands = [became.get(v, v) for member in of[node] for v in member.inputs if v is not None]
                for member, value in zip(of[node], _joined(of[node], operands), strict=True):
                    became[member.outputs[0]] = value
                missing.difference_update(v for member in of[node] for v in member.outputs)
                ready, waiting = waiting, []
            else:
                ready = [node]
            for each in ready:
                if missing.isdisjoint(each.inputs):
                    b.append(substituted(each, became))
                    missing.difference_update(each.outputs)
                else:
                    waiting.append(each)
                    missing.update(each.outputs)
        return b.finish([became.get(v, v) for v in graph.results])


def _buckets(graph: Graph) -> Iterator[list[Node]]:
    """Collectives that can be one, in order; each of several."""
    filling: dict[Hashable, list[Node]] = {}
    leads: dict[Value | None, set[Node]] = {}  # the collectives in `filling` that a value hangs on
    done: list[list[Node]] = []
    for node in graph.nodes:
        behind = set[Node]().union(*(leads.get(v, ()) for v in node.inputs))
        if node.op.traits.meets:
            # It runs where it stands, so the buckets of what it needs end before it.
            for key in [key for key, members in filling.items() if not behind.isdisjoint(members)]:
                done.append(filling.pop(key))
            behind = set()
            if (key := _key(node)) is not None:
                members = filling.setdefault(key, [])
                if members and sum(map(_nbytes, members)) + _nbytes(node) > MOST:
                    done.append(members)
                    members = filling[key] = []
                members.append(node)
                behind = {node}
        for v in node.outputs:
            leads[v] = behind
    done += filling.values()
    yield from (members for members in done if len(members) > 1)


def _key(node: Node) -> Hashable:
    """What collectives that can be one have in common; None for one that stays by itself."""
    (x,), attrs = node.inputs, node.attrs
    if x is None or node.op.name not in (*WHOLE, *BY_RANKS) or len(attrs["group"]) == 1:
        return None
    if not all(isinstance(n, int) for n in x.shape) or _nbytes(node) > SMALL:
        return None
    alike = tuple([(name, value) for name, value in attrs.items() if name != "dim"])
    return node.op.name, x.dtype.name, x.device, alike


def _nbytes(node: Node) -> int:
    """Of what a rank gives or gets, the larger."""
    sizes = [prod(v.shape) * v.dtype.itemsize for v in (*node.inputs, *node.outputs) if v is not None]
    return max(sizes)


def _joined(members: list[Node], operands: list[Value]) -> Iterator[Value]:
    """Emit one collective for several; their results."""
    first = members[0]
    if first.op.name in WHOLE:
        flat = [_reshaped(x, (prod(x.shape),)) for x in operands]
        made = first.op(REGISTRY["cat"](flat, 0), **first.attrs)
        yield from _cut(made, members, lambda part, node: _reshaped(part, node.outputs[0].shape))
        return
    ranks = len(first.attrs["group"])
    rest = {name: value for name, value in first.attrs.items() if name != "dim"}
    if first.op.name == "all_gather":
        rows = [_reshaped(x, (1, prod(x.shape))) for x in operands]
        made = first.op(REGISTRY["cat"](rows, 1), 0, **rest)
        yield from _cut(made, members, lambda part, node: _behind(part, node.outputs[0].shape, node, ranks))
        return
    rows = [_ahead(x, node.attrs["dim"], ranks) for x, node in zip(operands, members, strict=True)]
    made = first.op(REGISTRY["cat"](rows, 1), 0, **rest)
    yield from _cut(made, members, lambda part, node: _reshaped(part, node.outputs[0].shape))


def _cut(made: Value, members: list[Node], shaped: Callable[[Value, Node], Value]) -> Iterator[Value]:
    """The stretches of a joined result along its last dim, in the shapes that they had."""
    begin, whole = 0, tuple([("slice", 0, n, 1) for n in made.shape[:-1]])
    rows = prod(made.shape[:-1])
    for node in members:
        end = begin + prod(node.outputs[0].shape) // rows
        yield shaped(REGISTRY["basic_index"](made, (*whole, ("slice", begin, end, 1))), node)
        begin = end


def _ahead(x: Value, dim: int, ranks: int) -> Value:
    """What each rank is to get, as a row.  Shapes: [..., ranks * n, ...] -> [ranks, elements]."""
    cut = _reshaped(x, (*x.shape[:dim], ranks, x.shape[dim] // ranks, *x.shape[dim + 1 :]))
    order = (dim, *(d for d in range(cut.ndim) if d != dim))
    moved = cut if dim == 0 else REGISTRY["permute"](cut, order)
    return _reshaped(moved, (ranks, prod(x.shape) // ranks))


def _behind(part: Value, shape: tuple, node: Node, ranks: int) -> Value:
    """What each rank gave, one behind the other.  Shapes: [ranks, elements] -> [..., ranks * n, ...]."""
    dim = node.attrs["dim"]
    given = (*shape[:dim], shape[dim] // ranks, *shape[dim + 1 :])
    each = _reshaped(part, (ranks, *given))
    order = (*range(1, dim + 1), 0, *range(dim + 1, each.ndim))
    moved = each if dim == 0 else REGISTRY["permute"](each, order)
    return _reshaped(moved, shape)


def _reshaped(x: Value, shape: tuple) -> Value:
    return x if tuple(x.shape) == tuple(shape) else REGISTRY["reshape"](x, shape)
