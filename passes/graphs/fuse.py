"""Nodes that run as one kernel become one `fused` node.

    graph net(%x: f32[8,3], %w: f32[3,4], %b: f32[4]) -> (f32[8,4]) {
      %0 = matmul(%x, %w) : f32[8,4]
      %1 = add(%0, %b) : f32[8,4]
      return %1
    }
    ->
    graph net(%x: f32[8,3], %w: f32[3,4], %b: f32[4]) -> (f32[8,4]) {
      %0 = fused(%x, %w, %b) {body=graph matmul_add(...) -> (f32[8,4]) {...}} : f32[8,4]
      return %0
    }

Every node starts as a group; going down the graph, a node's group joins those of its operands where that
saves a pass over memory and costs no more arithmetic, and then groups join that read the same arrays.  What
joins is decided by sizes; that one kernel can say it is asked of `compose`, which has the last word.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ...ir.dims import has_hint, hint
from ...ir.errors import Unsayable
from ...ir.fused import fused
from ...ir.graph import Constant, Graph, Node, Value, substituted
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel
from ...ir.where import joined
from ..kernels.word_costs import CHEAP, DIVISION
from .compose import draft, kernel_name
from .dce import checks, dce
from .freeze import fixed_by
from .pieces import Piece, piece_of

AGAIN = 2 * CHEAP  # additions: computing an element again, where it could be read again
SHARED = 1 << 10  # elements that are worth reading once in place of twice


@dataclass(frozen=True)
class Limits:
    """What a machine wants of kernels.

    nodes, arrays: of one kernel, at most.  A norm's gradient with its optimizer's step reads and writes 33
    arrays: where that is too many, the forward pass stores what could be computed again of its input
    (MobileNetV2's norms 177 ms in place of 160; EPYC "Zen 4", two threads, 2026-11-28).

    rows: parallel points that keep the cores busy, where a kernel would else run over all elements at once.
    small: elements that are done before other cores would have begun.
    """

    nodes: int = 64
    arrays: int = 40
    rows: int = 8
    small: int = 1 << 12


CPU = Limits()
# A thousand points are a block for each of 132 cores or so.  Each array is a pointer and masks in registers.
GPU = Limits(nodes=48, arrays=16, rows=1024, small=1 << 14)


def fuse(graph: Graph, limits: Limits = CPU, frozen: AbstractSet[int] = frozenset()) -> Graph:
    """Make groups of nodes into `fused` nodes, one kernel each.  frozen: the positions of params that hold
    weights: what is computed of them alone is apart from the rest, as it need not run at every call.

    Convolutions and products take what is computed with their results, and transposed operands; reductions
    take their operands' elementwise ops, and what follows at the same points; elementwise ops join others.
    Never: two convolutions or products; what would be computed again for each reader if it is expensive;
    host ops.  A graph that holds fused nodes has been through this, and stays as it is.
    """
    if any(node.op is fused for node in graph.nodes):
        return graph
    graph = dce(graph)  # a value that nobody reads would be kept for nobody
    return _Fusion(graph, limits, frozen).fused()


@dataclass(eq=False)
class _Group:
    """Nodes that are to be one kernel.

    mask: a bit for each node.  before: the nodes of the groups that it needs.  anchor: the node whose stages
    lay out the parallel axes, None where all are elementwise.  elements: of the largest result.  host: it has
    no kernel that others could be part of.  inputs, outputs: what `_Fusion` has found them to be.
    """

    nodes: list[int]
    mask: int
    before: int
    pieces: dict[int, Piece]
    anchor: int | None
    elements: int
    host: bool = False
    inputs: list[Value] | None = None
    outputs: list[Value] | None = None

    @property
    def stages(self) -> Piece | None:
        return None if self.anchor is None else self.pieces[self.anchor]

    @property
    def heavy(self) -> bool:
        return self.anchor is not None and self.pieces[self.anchor].heavy

    @property
    def weight(self) -> int:
        return sum(p.weight for p in self.pieces.values())

    @property
    def work(self) -> int:
        return max(p.work for p in self.pieces.values())

    @property
    def ends(self) -> bool:
        return any(p.ends for p in self.pieces.values())


class _Fusion:
    def __init__(self, graph: Graph, limits: Limits, frozen: AbstractSet[int] = frozenset()):
        self.graph, self.limits = graph, limits
        self.results = {*graph.results, *checks(graph)}
        self.nodes, self.original = _views_apart(graph)
        self.number = {v: n for n, node in enumerate(self.nodes) for v in node.outputs}
        self.users: dict[Value, int] = {}  # a bit for each node
        for n, node in enumerate(self.nodes):
            for v in node.inputs:
                if v is not None:
                    self.users[v] = self.users.get(v, 0) | 1 << n
        fixed = fixed_by({graph.params[n] for n in frozen}, self.nodes) if frozen else set()
        self.fixed = sum(1 << n for n, node in enumerate(self.nodes) if fixed.issuperset(node.outputs))
        self.group_of: list[_Group] = []
        self.groups: dict[_Group, None] = {}
        self.late: list[tuple[int, int]] = []  # nodes and their makers, whose groups may join in the end

    def alone(self, n: int) -> _Group:
        node, before = self.nodes[n], 0
        for v in node.inputs:
            if v in self.number:
                maker = self.group_of[self.number[v]]
                before |= maker.mask | maker.before
        piece = _piece(node, frozenset(k for k, v in enumerate(node.outputs) if self.is_used(v)))
        if piece is None:
            return _Group([n], 1 << n, before, {}, None, 0, host=True)
        elements = max(hint(math.prod(v.shape)) for v in node.outputs)
        return _Group([n], 1 << n, before, {n: piece}, n if piece.pure is None else None, elements)

    def is_busy(self, group: _Group) -> bool:
        """Whether there are parallel points for all cores, or not much to do."""
        enough = group.stages is None or group.stages.points >= self.limits.rows
        return enough or group.work <= self.limits.small

    def is_used(self, value: Value) -> bool:
        return value in self.users or value in self.results

    # ---- the pass
    def fused(self) -> Graph:
        for n in range(len(self.nodes)):
            group = self.alone(n)
            self.group_of.append(group)
            self.groups[group] = None
            if not group.host:
                self.join_makers(n)
        for n in reversed(range(len(self.nodes))):
            self.sink(n)
        self.find_before()
        for m, n in self.late:
            maker, group = self.group_of[m], self.group_of[n]
            if maker is not group and self.follows(maker, group, late=True):
                self.join(maker, group)
        self.join_neighbours()
        return self.rebuilt()

    def join_makers(self, n: int) -> None:
        """Join the group of a node with those that make its operands, those with stages first."""
        makers = {self.number[v] for v in self.nodes[n].inputs if v in self.number}
        for m in sorted(makers, key=lambda m: (self.group_of[m].anchor is None, -m)):
            maker, group = self.group_of[m], self.group_of[n]
            if maker is group or maker.host:
                continue
            if self.follows(maker, group):
                self.join(maker, group)
            elif group.anchor is not None:
                self.late.append((m, n))

    def join_neighbours(self) -> None:
        """Join groups that read one large array, and all that compute single numbers."""
        readers: dict[Value, list[_Group]] = {}
        scalars: list[_Group] = []
        for group in self.groups:
            if group.host:
                continue
            if group.anchor is None and group.elements == 1:
                scalars.append(group)
            for value in self.inputs(group):
                if hint(math.prod(value.shape)) >= SHARED:
                    readers.setdefault(value, []).append(group)
        for groups in (scalars, *readers.values()):
            for one, two in itertools.pairwise(groups):
                a, b = self.group_of[one.nodes[0]], self.group_of[two.nodes[0]]
                if a is not b and self.beside(a, b):
                    self.join(a, b)

    # ---- what may join
    def follows(self, maker: _Group, group: _Group, late: bool = False) -> bool:
        """Whether a group may run where what it reads is made.

        What others need too joins stages only when all else is done (`late`): by then it may stand with them.
        """
        if self.is_fixed(maker) and not self.is_fixed(group):
            if maker.stages is not None or maker.weight > CHEAP:
                return False
        if maker.ends:
            return group.stages is None and self.is_beside_joined(maker, group)
        if maker.stages is not None and not group.heavy:
            return self.after_stages(maker, group)
        apart = not self.kept(maker, group)  # no one else needs what is made
        if group.heavy:
            return self.before_heavy(maker, group, apart)
        if group.stages is not None:
            if maker.elements in (group.work, group.stages.points):
                if group.stages.joins and maker.elements == group.work:
                    return True
                return apart or late and self.is_busy(group) and not group.ends and maker.weight <= AGAIN
            return apart and maker.weight <= CHEAP
        if maker.elements == group.elements:
            return True
        return apart and (maker.elements > group.elements or maker.weight < DIVISION)

    def is_beside_joined(self, maker: _Group, group: _Group) -> bool:
        """Whether a group runs at the points where parts are joined, and reads nothing that is joined."""
        assert maker.stages is not None
        ended = {v for n, piece in maker.pieces.items() if piece.ends for v in self.nodes[n].outputs}
        at_points = maker.stages.joins and group.elements == maker.work
        return at_points and ended.isdisjoint(self.inputs(group))

    def before_heavy(self, maker: _Group, group: _Group, apart: bool) -> bool:
        """Whether a group may be computed in a convolution or product: for its result, or as a view."""
        assert group.anchor is not None and group.stages is not None
        operands = (self.number[v] for v in self.nodes[group.anchor].inputs if v in self.number)
        if any(maker.mask >> m & 1 for m in operands):
            views = maker.pieces.values()
            return apart and all(p.is_view for p in views) and not all(p.is_alias for p in views)
        if maker.stages is not None:
            return False
        if maker.elements == group.stages.points:
            return True
        return apart and (maker.elements > group.stages.points or maker.weight < DIVISION)

    def after_stages(self, maker: _Group, group: _Group) -> bool:
        """Whether a group may run at the parallel points of one with stages."""
        assert maker.stages is not None
        if maker.heavy and self.is_result(maker.anchor):
            # It is stored anyway, so one pass over it is all there is to save; and a weight's gradient alone
            # can be laid out as its convolution likes it, and shares the code of the optimizer's update.
            return False
        if group.stages is not None:
            same = maker.stages.parallel == group.stages.parallel
            return same and not maker.heavy and not group.ends and self.is_busy(maker)
        if group.elements == maker.stages.points:
            return True
        return group.elements == maker.work and not maker.heavy and self.is_busy(maker)

    def is_result(self, n: int | None) -> bool:
        return n is not None and not self.results.isdisjoint(self.nodes[n].outputs)

    def beside(self, one: _Group, two: _Group) -> bool:
        """Whether groups that read the same may run as one."""
        if self.is_fixed(one) != self.is_fixed(two):
            return False
        if one.heavy or two.heavy or one.ends or two.ends:
            return False
        if one.stages is not None and two.stages is not None:
            same = one.stages.parallel == two.stages.parallel
            return same and one.work == two.work and self.is_busy(one)
        if one.stages is None and two.stages is None:
            return one.elements == two.elements
        staged, pure = (one, two) if two.stages is None else (two, one)
        return pure.elements == staged.work and self.is_busy(staged)

    def is_fixed(self, group: _Group) -> bool:
        """Whether weights alone decide what a group makes, which can be kept then."""
        return not group.mask & ~self.fixed

    def kept(self, group: _Group, other: _Group) -> bool:
        """Whether anything but `other` needs what the group makes."""
        inside = group.mask | other.mask
        return any(v in self.results or self.users[v] & ~inside for v in self.outputs(group))

    # ---- joining
    def join(self, one: _Group, two: _Group) -> None:
        """Make one group of two, unless other nodes stand between them or one kernel can't say it."""
        if len(one.nodes) + len(two.nodes) > self.limits.nodes:
            return
        made = self.grouped(one.nodes + two.nodes, one.pieces | two.pieces)
        made.before = (one.before | two.before) & ~made.mask
        if any(maker.before & made.mask for maker in self.makers(made)):
            return
        if not (self.is_narrow(made) if self.goes_on(one, two) else self.sayable(made)):
            return
        self.put([one, two], [made])
        mask, all_of_it = made.mask, made.mask | made.before
        for group in self.groups:
            if group.before & mask:
                group.before |= all_of_it

    def grouped(self, nodes: Iterable[int], pieces: dict[int, Piece]) -> _Group:
        nodes = sorted(nodes)
        own = {n: pieces[n] for n in nodes}
        anchor = next((n for n in nodes if own[n].pure is None), None)
        elements = max(hint(math.prod(v.shape)) for n in nodes for v in self.nodes[n].outputs)
        return _Group(nodes, sum(1 << n for n in nodes), 0, own, anchor, elements)

    def makers(self, group: _Group) -> set[_Group]:
        return {self.group_of[self.number[v]] for v in self.inputs(group) if v in self.number}

    def put(self, old: Iterable[_Group], new: Iterable[_Group]) -> None:
        for group in old:
            del self.groups[group]
        for group in new:
            self.groups[group] = None
            for n in group.nodes:
                self.group_of[n] = group

    # ---- moving on
    def sink(self, n: int) -> None:
        """Move a node from the group that makes its operands to the one that reads its results, with what
        only it needs, where less is written and read then: a mask or a normalised input that the backward
        pass alone uses is computed there.
        """
        group = self.group_of[n]
        if group.host or len(group.nodes) == 1 or group.pieces[n].pure is None:
            return
        outputs = self.nodes[n].outputs
        readers = {self.group_of[u] for v in outputs for u in _bits(self.users.get(v, 0))}
        if self.results.intersection(outputs) or group in readers or len(readers) != 1:
            return
        (reader,) = readers
        cone = self.cone(n)
        if len(cone) == len(group.nodes) or reader.host:
            return
        pieces = [group.pieces[m] for m in cone]
        rest = self.grouped(set(group.nodes) - cone, group.pieces)
        if all(p.is_alias for p in pieces):
            own = self.grouped(cone, group.pieces)
            self.put([group], [rest, own])
            return
        weight = sum(p.weight * p.points for p in pieces)
        if weight > CHEAP * group.pieces[n].points or len(cone) + len(reader.nodes) > self.limits.nodes:
            return
        if reader.heavy and not all(p.is_view for p in pieces) and self.feeds(n, reader.anchor):
            return
        larger = self.grouped(cone | set(reader.nodes), group.pieces | reader.pieces)
        now = self.traffic(group) + self.traffic(reader)
        if self.traffic(rest) + self.traffic(larger) < now and self.sayable(rest) and self.sayable(larger):
            self.put([group, reader], [rest, larger])

    def cone(self, n: int) -> set[int]:
        """A node, and the elementwise ones of its group that nothing else needs."""
        group, found, waiting = self.group_of[n], {n}, [n]
        while waiting:
            inside = sum(1 << m for m in found)
            for m in {self.number[v] for v in self.nodes[waiting.pop()].inputs if v in self.number}:
                if m in found or not group.mask >> m & 1 or group.pieces[m].pure is None:
                    continue
                outputs = self.nodes[m].outputs
                if not any(o in self.results or self.users.get(o, 0) & ~inside for o in outputs):
                    found.add(m)
                    waiting.append(m)
        return found

    def feeds(self, n: int, anchor: int | None) -> bool:
        return anchor is not None and not set(self.nodes[n].outputs).isdisjoint(self.nodes[anchor].inputs)

    def traffic(self, group: _Group) -> int:
        """The bytes that a group reads and writes."""
        return sum(nbytes(v) for v in (*self.inputs(group), *self.outputs(group)))

    def find_before(self) -> None:
        """Note anew what each group needs."""
        for group in self.groups:
            group.before = 0
        for group in self.ordered():
            for maker in self.makers(group):
                group.before |= maker.mask | maker.before

    def goes_on(self, maker: _Group, group: _Group) -> bool:
        """Whether a group is one elementwise op on one value of the other, of its shape, or that value with
        other dimensions of size 1.

        That can be said wherever the value is, so that `compose` need not be asked after each op of a chain.
        """
        n, *more = group.nodes
        node, made = self.nodes[n], 0
        if more or not (node.op.traits.elementwise or group.pieces[n].is_alias):
            return False
        shape = _long(node.outputs[0].shape) if node.op.traits.view else node.outputs[0].shape
        for v in {v for v in node.inputs if v in self.number}:
            if maker.mask >> self.number[v] & 1:
                made += 1 if shape == (_long(v.shape) if node.op.traits.view else v.shape) else 2
        return made == 1

    def is_narrow(self, group: _Group) -> bool:
        """Whether a group has no more arrays than a kernel may have."""
        return len(self.inputs(group)) + len(self.outputs(group)) <= self.limits.arrays

    def sayable(self, made: _Group, unasked: bool = True) -> bool:
        """Whether the group is one kernel.  unasked: what is elementwise throughout is, at a glance."""
        if not self.is_narrow(made):
            return False
        nodes = [self.nodes[n] for n in made.nodes]
        shape = nodes[0].outputs[0].shape
        alike = (n.op.traits.elementwise and n.outputs[0].shape == shape for n in nodes)
        if unasked and made.anchor is None and all(alike):
            return True
        try:
            kernel = draft(self.body(made)[0])
        except Unsayable:
            return False
        return not made.heavy or _keeps_rows(kernel)

    def inputs(self, group: _Group) -> list[Value]:
        """What the group reads of others, in order of use, but for scalars known now."""
        if group.inputs is None:
            read = dict.fromkeys(v for n in group.nodes for v in self.nodes[n].inputs if v is not None)
            made = {v for n in group.nodes for v in self.nodes[n].outputs}
            group.inputs = [v for v in read if v not in made and not is_number(v)]
        return group.inputs

    def outputs(self, group: _Group) -> list[Value]:
        """What others read of the group, and the graph's results among it."""
        if group.outputs is None:
            made = [v for n in group.nodes for v in self.nodes[n].outputs]
            group.outputs = [v for v in made if v in self.results or self.users.get(v, 0) & ~group.mask]
        return group.outputs

    def body(self, group: _Group) -> tuple[Graph, dict[Value, Value]]:
        """The graph of a group, and which of its values others stand for: copies of a view meet again.

        It shares values with the graph around it, but for constants.
        """
        became: dict[Value, Value] = {}
        first: dict[tuple, Node] = {}
        nodes: list[Node] = []
        for n in group.nodes:
            node = substituted(self.nodes[n], became)
            known = first.setdefault(self.key(n, node), node)
            if known is not node:
                became |= zip(node.outputs, known.outputs, strict=True)
            else:
                nodes.append(node)
        outputs = dict.fromkeys(became.get(v, v) for v in self.outputs(group))
        return body_of(nodes, self.inputs(group), outputs), became

    def key(self, n: int, node: Node) -> tuple:
        """What copies of one view have in common; `node` is node `n` with its operands replaced."""
        return self.original[self.nodes[n]], *map(id, node.inputs)

    # ---- the graph again
    def rebuilt(self) -> Graph:
        """The graph of the groups, in an order that they can run in."""
        if all(len(group.nodes) == 1 for group in self.groups):
            return self.graph
        became: dict[Value, Value] = {}
        made: dict[tuple, Node] = {}
        nodes: list[Node] = []
        for group in self.ordered():
            if len(group.nodes) == 1 or not self.sayable(group, unasked=False):
                for n in group.nodes:
                    alone = substituted(self.nodes[n], became)
                    key = self.key(n, alone)  # copies of a view that none took in are one
                    if key not in made:
                        made[key] = alone
                        nodes.append(alone)
                    became |= zip(self.nodes[n].outputs, made[key].outputs, strict=True)
                continue
            body, met = self.body(group)
            became |= met
            inputs = tuple(became.get(v, v) for v in self.inputs(group))
            where = joined(self.nodes[n].where for n in group.nodes)
            nodes.append(Node(fused, inputs, body.results, {"body": body}, where))
        return self.graph.replace(nodes=nodes, results=[became.get(v, v) for v in self.graph.results])

    def ordered(self) -> list[_Group]:
        """Each group after those that make what it reads, otherwise in the order of their last nodes."""
        found: dict[_Group, None] = {}
        for group in sorted(self.groups, key=lambda group: group.nodes[-1]):
            waiting = [group]
            while waiting:
                makers = [m for m in self.makers(waiting[-1]) if m not in found]
                if makers:
                    waiting.extend(sorted(makers, key=lambda group: -group.nodes[-1]))
                else:
                    found[waiting.pop()] = None
        return list(found)


def nbytes(value: Value) -> int:
    return hint(math.prod(value.shape)) * value.type.dtype.numpy.itemsize


def _piece(node: Node, used: frozenset[int]) -> Piece | None:
    """The piece that others may join; None for a node that runs alone."""
    if not all(has_hint(n) for v in (*node.inputs, *node.outputs) if v is not None for n in v.shape):
        return None  # its sizes aren't known
    piece = piece_of(node, used)
    return piece if piece is None or piece.kernel.stages else None


def body_of(nodes: Sequence[Node], inputs: Iterable[Value], outputs: Iterable[Value]) -> Graph:
    """The graph of some nodes.  Only unnamed scalars are constants in it: others become params."""
    became: dict[Value, Value] = {}
    params = []
    for v in inputs:
        if isinstance(v, Constant):
            became[v] = Value(v.type, v.hint)
        params.append(became.get(v, v))
    for v in (v for node in nodes for v in node.inputs):
        if isinstance(v, Constant) and v not in became and not v.inline:
            became[v] = Constant(v.data)
    made = tuple(substituted(node, became) for node in nodes)
    graph = Graph("", tuple(params), made, tuple(outputs))
    return graph.replace(name=kernel_name(graph))


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes but for those of 1."""
    return tuple(n for n in shape if n != 1)


def is_number(value: Value) -> bool:
    """Whether a value is a scalar that a kernel can have in its text."""
    return isinstance(value, Constant) and not value.ndim


def _keeps_rows(kernel: Kernel) -> bool:
    """Whether all results are stored along the last parallel axis, as the kernel's first stage computes."""
    axes = [a.name for a in kernel.parallel if a.extent != 1]
    for store in kernel.stores:
        parts = [p for p in store.index if isinstance(p, Affine) and not p.names.isdisjoint(axes)]
        if parts and axes[-1] not in parts[-1].names:
            return False
    return True


def _views_apart(graph: Graph) -> tuple[list[Node], dict[Node, Node]]:
    """The nodes, with a view of its own for each reader, and which node each copy is one of.

    A view costs nothing inside of a kernel: one that several groups read must not keep them apart.
    """
    views = {n.outputs[0] for n in graph.nodes if n.op.traits.view}
    taken, original = set(graph.results), dict[Node, Node]()
    copies: dict[Value, list[Value]] = {}
    made: list[Node] = []

    def own_views(node: Node) -> Node:
        own: dict[Value, Value] = {}
        for v in node.inputs:
            if v in views and v not in own:
                if v in taken:
                    own[v] = Value(v.type, v.hint)
                    copies.setdefault(v, []).append(own[v])
                taken.add(v)
        return substituted(node, own)

    for node in reversed(graph.nodes):
        versions = [node, *(node.replace(outputs=(v,)) for v in copies.get(node.outputs[0], ()))]
        for version in versions:
            made.append(own_views(version))
            original[made[-1]] = node
    return made[::-1], original


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
