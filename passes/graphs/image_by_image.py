"""A batch of large images goes through a network's first layers image by image, so that caches hold them.

    graph net(%x: f32[8,3,224,224], %w: f32[64,3,7,7], ...) -> (f32[8,1000]) {
      %0 = conv2d(%x, %w, ...) : f32[8,64,112,112]
      %1 = relu(%0)            : f32[8,64,112,112]
      ...
    }
    ->
      %0 = reshape(%x) {shape=(8, 1, 3, 224, 224)}
      %1 = recur(%0, %w, ...) {body=graph images(%x: f32[1,3,224,224], ...) {...}, count=8, sequences=1, ...}
      %2 = reshape(%1) {shape=(8, 512, 28, 28)}
      ...

Each layer of a batch reads what the one before it wrote, which is in memory by then where all images together
are larger than the last cache.  Of one image it is still there.  Runs of the body hang on nothing, so threads
share them.  Layers with more weights than images stay together: their weights are read once for all.

Which nodes may go so is read off their kernels: every point of the first dimension of what they make hangs on
that point alone of what was made so, and on nothing else that tells points apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...ir.errors import LaminaError
from ...ir.graph import Builder, Constant, Graph, Node, Value
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, names
from ...ir.kernel.scalar import Coordinate, Expr, walk
from ...ir.lowering import KernelForm, Pointwise
from ...ir.op import REGISTRY
from ...ir.recur import recurrent
from ...ir.types import Type
from ..kernels.index_check import from_data
from .lower import lower
from .pieces import is_reshape

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
FEWEST = 4  # images, so that threads have some each
FAR = 8 << 20  # bytes of an image, or of weights, that caches don't keep until they are read again
TOGETHER = 12 << 20  # of all images that a layer reads and writes, likewise: a part of the last cache
WEIGHTS = 25.0  # bytes in a nanosecond of weights that caches don't keep, which each image reads
BESIDE = 2.0  # of what the loop leaves, which is laid out anew
RATE, SHARE = 100.0, 1 / 40  # operations in a nanosecond, and the part of their time that must be gained
# Bytes of a weight that a 1 x 1 convolution multiplies by an image at once.  Eight images of 512 x 28 x 28 by
# 128 x 512 take 16.1 ms, eight times one 7.4; of 256 x 56 x 56 by 64 x 256 11 and 8.5 (EPYC "Zen 4").
PART = 32 << 10
HIDDEN = 64.0  # operations for each byte of images, of which fewer don't hide that these come


def image_by_image(graph: Graph, far: float = 0.0) -> Graph:
    """The graph with such layers in a loop over the images of a batch, where that gains.

    far: bytes in a nanosecond of images that caches don't keep, as layers read them; 0 where none is known.
    """
    count = next((n for n in map(_images, graph.nodes) if n), 0)
    every = (v for node in graph.nodes for v in node.outputs if _is_sized(v))
    if not far or count < FEWEST or sum(map(_nbytes, every)) < TOGETHER:
        return graph
    chosen = _Chosen(count)
    for node in graph.nodes:
        if not chosen.takes(node):
            break
    nodes = chosen.best(graph, far)
    return _looped(graph, count, nodes, chosen) if nodes else graph


def _is_sized(value: Value) -> bool:
    return all(isinstance(n, int) for n in value.shape)


def _images(node: Node) -> int:
    """Of how many images a node is a convolution; 0 for all else."""
    x = node.inputs[0] if node.inputs else None
    if node.op.name not in CONVOLUTIONS or x is None or not _is_sized(x):
        return 0
    return int(x.shape[0])


@dataclass
class _Chosen:
    """What may go image by image: nodes, in order, with their attrs for one image.

    each: the values that have an image for each point of their first dimension.
    """

    count: int
    nodes: dict[Node, Mapping[str, Any]] = field(default_factory=dict)
    each: dict[Value, None] = field(default_factory=dict)

    def takes(self, node: Node) -> bool:
        """Note a node that may go so; returns False for one that may not, and hangs on the others."""
        first = node.inputs[0] if node.inputs else None
        begins = _images(node) == self.count and first not in self.each
        found = self.each.keys() & {v for v in node.inputs if v is not None}
        if not found and not begins:
            return True
        each = {*self.each, first} if begins else self.each.keys()
        attrs = _for_one(node, each, self.count)
        if attrs is None:
            return not found
        if begins:
            assert first is not None
            self.each[first] = None
        self.nodes[node] = attrs
        self.each |= dict.fromkeys(node.outputs)
        return True

    def best(self, graph: Graph, far: float) -> list[Node]:
        """The first nodes, as many as gain most; none where that is a small part of their time."""
        readers = Counter(v for node in graph.nodes for v in node.inputs if v is not None)
        readers.update(graph.results)
        most = saved = weights = time = 0.0
        chosen = 0
        seen: set[Value] = set()
        left: Counter[Value] = Counter()  # readers that are to come, of what is made
        for at, node in enumerate(self.nodes, 1):
            saved += self.waited(node, readers) / far
            time += self.count * _operations(node) / RATE
            own = {v for v in node.inputs if v is not None and v not in self.each} - seen
            weights += sum(map(_nbytes, own))
            seen |= own
            left.subtract([v for v in node.inputs if v is not None and v in left])
            left.update({v: readers[v] for v in node.outputs})
            beside = self.count * sum(map(_bytes_of_one, +left)) / BESIDE
            again = (self.count - 1) * max(0, weights - FAR) / WEIGHTS
            gain = saved - beside - again
            if gain > max(most, SHARE * time):
                most, chosen = gain, at
        nodes = [*self.nodes]
        while 0 < chosen < len(nodes) and isinstance(nodes[chosen].op.lower, Pointwise):
            chosen += 1  # fused with what comes before it
        return nodes[:chosen]

    def waited(self, node: Node, readers: Mapping[Value, int]) -> float:
        """Bytes of images that a kernel waits for where they are the batch's, and would not of one image.

        Of a node that is fused with what makes one of its operands these are the others.
        """
        found = [v for v in dict.fromkeys(node.inputs) if v in self.each]
        moved = (
            found[1:]
            if isinstance(node.op.lower, Pointwise)
            else [*found, *filter(readers.get, node.outputs)]
        )
        each = sum(n for n in map(_bytes_of_one, moved) if n < FAR)
        if each * self.count < TOGETHER:
            return 0.0
        open_ = min(1.0, HIDDEN * each / max(1, _operations(node)))
        return self.count * each * open_ * _passes(node)


def _passes(node: Node) -> float:
    """How often a kernel reads its images: a 1 x 1 convolution for each part of its weight that is multiplied
    at once.
    """
    weight = node.inputs[1] if node.op.name in CONVOLUTIONS else None
    if weight is None or any(n != 1 for n in weight.shape[2:]):
        return 1.0
    return max(1.0, _nbytes(weight) / PART)


def _operations(node: Node) -> int:
    """Multiplications and additions of a convolution on one image."""
    weight = node.inputs[1] if node.op.name in CONVOLUTIONS else None
    if weight is None:
        return 0
    return 2 * prod(int(n) for n in (*node.outputs[0].shape[1:], *weight.shape[1:]))


def _nbytes(value: Value) -> int:
    return prod(int(n) for n in value.shape) * value.dtype.numpy.itemsize


def _bytes_of_one(value: Value) -> int:
    return _nbytes(value) // max(1, int(value.shape[0]))


# ---- what may go so
def _for_one(node: Node, each: AbstractSet[Value], count: int) -> Mapping[str, Any] | None:
    """The attrs of a node on one image; None where it is none for each of them."""
    types = [None if v is None else v.type for v in node.inputs]
    if not all(_is_sized(v) for v in (*node.inputs, *node.outputs) if v is not None):
        return None
    if any(not v.ndim or v.shape[0] != count for v in node.outputs):
        return None
    if is_reshape(node.op):  # of arrays whose images are their slowest parts
        if node.inputs[0] not in each:
            return None
    elif not isinstance(node.op.lower, KernelForm | Pointwise) or not _is_each(node, each):
        return None
    given = [_one(t) if t and v in each else t for v, t in zip(node.inputs, types, strict=True)]
    wanted = tuple(_one(v.type) for v in node.outputs)
    for attrs in (node.attrs, {name: _of_one(x, count) for name, x in node.attrs.items()}):
        try:
            made = node.op.infer(*given, **attrs)
        except LaminaError:
            continue
        if (made if isinstance(made, tuple) else (made,)) == wanted:
            return attrs
    return None


def _of_one(attr: Any, count: int) -> Any:
    """A shape that begins with the number of images, or an index that begins with all of them, for one."""
    first = {count: 1, ("slice", 0, count, 1): ("slice", 0, 1, 1)}
    if not isinstance(attr, tuple) or not attr or attr[0] not in first:
        return attr
    return (first[attr[0]], *attr[1:])


def _one(kind: Type) -> Type:
    return kind.with_shape((1, *kind.shape[1:]))


def _is_each(node: Node, each: AbstractSet[Value]) -> bool:
    """Whether a node's kernel makes each image of the same one of what it is given."""
    try:
        kernel = lower(node.op, [None if v is None else v.type for v in node.inputs], node.attrs)
    except LaminaError:
        return False
    given = [v for v in node.inputs if v is not None]
    outputs = {buffer.name for buffer in kernel.outputs}
    images = outputs | {b.name for b, v in zip(kernel.inputs, given, strict=True) if v in each}
    axes = {store.index[0] for store in kernel.stores}
    if len(axes) != 1 or any(store.combine for store in kernel.stores):
        return False
    (first,) = axes
    if not isinstance(first, Affine) or first.constant or len(first.terms) != 1:
        return False
    ((axis, by),) = first.terms
    return by == 1 and axis in names(kernel.parallel) and _tells_apart(kernel, axis, images)


def _tells_apart(kernel: Kernel, axis: str, images: AbstractSet[str]) -> bool:
    """Whether an axis is the first index of what has images, as it stands, and is nowhere else."""
    alone = Affine(((axis, 1),))
    for buffer, index in _accesses(kernel):
        first, *rest = index if buffer in images else (alone, *index)
        if first != alone or any(isinstance(part, Affine) and axis in part.names for part in rest):
            return False
        if any(isinstance(part, Expr) and from_data(part) for part in rest):
            return False  # indices are looked at before a kernel runs, which no loop does
    exprs = (e for stage in kernel.stages for e in walk(*stage.exprs))
    return not any(isinstance(e, Coordinate) and axis in e.index.names for e in exprs)


def _accesses(kernel: Kernel) -> Iterator[tuple[str, Sequence[Affine | Expr]]]:
    for _, read in kernel.reads:
        yield read.buffer, read.index
    for store in kernel.stores:
        yield store.buffer, store.index


# ---- the loop
def _looped(graph: Graph, count: int, nodes: list[Node], chosen: _Chosen) -> Graph:
    taken = set(nodes)
    inside = dict.fromkeys(v for node in nodes for v in node.outputs)
    outside = {v for node in graph.nodes if node not in taken for v in node.inputs}.union(graph.results)
    results = [v for v in inside if v in outside]
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v not in inside)
    sequences = [v for v in read if v in chosen.each]
    fixed = [v for v in read if v not in chosen.each and not isinstance(v, Constant)]
    with Builder("images") as b:
        became: dict[Value | None, Any] = {v: b.param(_one(v.type), v.hint or "x") for v in sequences}
        became |= {v: b.param(v.type, v.hint or "w") for v in fixed}
        for node in nodes:
            b.where = node.where
            made = b.emit(node.op, [became.get(v, v) for v in node.inputs], chosen.nodes[node])
            became |= zip(node.outputs, made.outputs, strict=True)
        body = b.finish([became[v] for v in results])
    reshape = REGISTRY["reshape"]
    last = nodes[-1]
    with Builder.extending(graph.replace(nodes=())) as b:
        for node in graph.nodes:
            if node not in taken:
                b.append(node)
            if node is last:
                b.where = nodes[0].where
                runs = [reshape(v, (count, 1, *v.shape[1:])) for v in sequences]
                how = {"count": count, "sequences": len(runs), "kept": (), "back": False, "rows": 0}
                made = b.emit(recurrent, (*runs, *fixed), {"body": body, **how}).outputs
                for v, found in zip(results, made, strict=True):
                    b.append(Node(reshape, (found,), (v,), {"shape": v.shape}, nodes[0].where))
        return b.finish(list(graph.results))
