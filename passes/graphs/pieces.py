"""What a node is to a kernel that it becomes a part of: its lowering, and what may be done with that.

A *pure* piece is a function of its index: every output is one store of an expression at plain axes, so that a
reader can put the expression in place of the read.  Any other piece has stages, which run at the parallel
points of the kernel that they are in.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain

from ...ir.dims import hint
from ...ir.graph import Node
from ...ir.kernel.affine import Affine, Extent, as_affine
from ...ir.kernel.form import Axis, Buffer, Fold, Kernel, Reduce, Stage, Store
from ...ir.kernel.scalar import Expr, Op, Read, Ref, op, read, ref, walk
from ...ir.locks import cached_property
from ...ir.lowering import Decomposition, NotLowered, Recurrence
from ...ir.memo import remember
from ...ir.op import REGISTRY
from ...ir.op import Op as Record
from ...ir.views import row_major
from ..kernels.product import plain
from ..kernels.word_costs import cost
from .lower import lower


@dataclass(frozen=True)
class Pure:
    """An output as a function of its index.  axes: the axis that each part of the index stands for."""

    axes: tuple[str, ...]
    value: Expr

    @cached_property
    def along(self) -> dict[str, list[tuple[str, int]]]:
        """The dimensions of buffers that it reads along each axis, as (buffer, dimension)."""
        return dimensions_along(self.value)


@dataclass(frozen=True, eq=False)
class Piece:
    """The lowering of one node.

    kernel: as `lower` made it, without what only serves outputs that nobody wants.  pure: by output, a
    function; None for a piece with stages.
    """

    kernel: Kernel
    pure: dict[int, Pure] | None

    @cached_property
    def weight(self) -> int:
        """What one element costs."""
        return sum(cost(e) for stage in self.kernel.stages for e in stage.exprs)

    @cached_property
    def readings(self) -> Counter[str]:
        """How many of its stages read each buffer."""
        read = ({e.buffer for e in walk(*s.exprs) if isinstance(e, Read)} for s in self.kernel.stages)
        return Counter(chain.from_iterable(read))

    @cached_property
    def along(self) -> dict[str, list[tuple[str, int]]]:
        """The dimensions of buffers that its stages read along each axis, as (buffer, dimension)."""
        return dimensions_along(*(e for stage in self.kernel.stages for e in stage.exprs))

    @cached_property
    def parallel(self) -> Counter[Extent]:
        """The extents of the parallel axes, without those of one point."""
        return Counter(a.extent for a in self.kernel.parallel if a.extent != 1)

    @cached_property
    def points(self) -> int:
        """The points of the parallel axes."""
        return hint(math.prod(self.parallel.elements()))

    @cached_property
    def work(self) -> int:
        """The points of the largest stage."""
        inner = (math.prod(hint(a.extent) for a in stage.axes) for stage in self.kernel.stages)
        return self.points * max(inner, default=1)

    @cached_property
    def ends(self) -> bool:
        """Whether no one can read its result inside of the kernel: parts of it are stored apart."""
        stores = self.kernel.stores
        return len({s.buffer for s in stores}) < len(stores) or any(s.combine for s in stores)

    @cached_property
    def joins(self) -> bool:
        """Whether it stores parts of one result, one element of each at each of its points."""
        return self.ends and self.points == self.work and not any(s.combine for s in self.kernel.stores)

    @cached_property
    def heavy(self) -> bool:
        """Whether it computes with its operands' elements many times: convolutions, products, some pools."""
        if self.pure is not None:
            return False
        largest = max((math.prod(map(hint, b.shape)) for b in self.kernel.buffers.values()), default=1)
        loops = [s for s in self.kernel.stages if isinstance(s, (Reduce, Fold))]
        return any(
            self.points * math.prod(hint(a.extent) for a in s.axes) > largest or _is_product(s) for s in loops
        )

    @cached_property
    def is_view(self) -> bool:
        """Whether it only says where the one element stands that it reads."""
        return self.pure is not None and len(self.pure) == 1 and isinstance(self.pure[0].value, Read)

    @cached_property
    def is_alias(self) -> bool:
        """Whether every element stays where it stands in a dense array."""
        return is_identity(self.kernel)


def is_identity(kernel: Kernel) -> bool:
    """Whether a kernel puts every element where it already stands."""
    if len(kernel.inputs) != 1 or len(kernel.stages) != 1 or len(kernel.stores) != 1:
        return False
    (source,), (store,), (out,) = kernel.inputs, kernel.stores, kernel.outputs
    access = store.value
    if not isinstance(access, Read) or access.other is not None or store.combine:
        return False
    if not all(isinstance(part, Affine) for part in access.index):
        return False
    same = math.prod(source.shape) == math.prod(out.shape)
    offsets = source.offset(access.index), out.offset(store.index)
    return same and len({kernel.moving((offset,)) for offset in offsets}) == 1


def _is_product(stage: Stage) -> bool:
    """Whether a stage adds up products of two arrays."""
    value = stage.value if isinstance(stage, Reduce) and stage.combine == "sum" else None
    if not isinstance(value, Op) or value.name != "mul":
        return False
    left, right = ({e.buffer for e in walk(a) if isinstance(e, Read)} for a in value.args)
    return bool(left and right and left != right)


_pieces: dict[tuple, tuple[Piece | None]] = {}


def piece_of(node: Node, used: frozenset[int]) -> Piece | None:
    """The piece a node is; None for one without a kernel.  used: the outputs that somebody wants.

    Raises Unsayable for sizes that are not even known for once.
    """
    key = (signature(node), used)
    found = _pieces.get(key)
    if found is None:
        found = remember(_pieces, key, (_made(node, used),))
    return found[0]


def signature(node: Node) -> tuple:
    """What two nodes have in common that do the same with operands of one type.

    Attrs go by their text, as 0.0 and -0.0 are equal, and so are 1 and True.  Outputs' types follow from the
    rest, but for the default dtype, which may change.
    """
    types = tuple(None if v is None else v.type for v in (*node.inputs, *node.outputs))
    return node.op, types, tuple([repr(value) for value in node.attrs.values()])


def _made(node: Node, used: frozenset[int]) -> Piece | None:
    if isinstance(node.op.lower, (NotLowered, Decomposition, Recurrence)):
        return None
    types = tuple(None if v is None else v.type for v in node.inputs)
    kernel = _reshaped(node) if is_reshape(node.op) else lower(node.op, types, node.attrs)
    if kernel is None:
        return None
    if len(used) < len(kernel.outputs):
        kernel = wanted(kernel, used)
    return Piece(kernel, _pure(kernel))


def is_reshape(record: Record) -> bool:
    """Whether the result has the elements of the operand in their order: no code, in dense arrays."""
    return record is REGISTRY["reshape"] or record is REGISTRY["view"]


def _pure(kernel: Kernel) -> dict[int, Pure] | None:
    numbers = {buffer.name: n for n, buffer in enumerate(kernel.outputs)}
    found: dict[int, Pure] = {}
    for stage in kernel.stages:
        if not isinstance(stage, Store) or stage.combine or stage.axes or numbers[stage.buffer] in found:
            return None
        shape = kernel.buffers[stage.buffer].shape
        axes = []
        for part, size in zip(stage.index, shape, strict=True):
            axis = plain(part)
            if axis is None and size != 1:
                return None
            axes.append(axis or "")
        if len({a for a in axes if a}) < len([a for a in axes if a]):
            return None
        found[numbers[stage.buffer]] = Pure(tuple(axes), stage.value)
    return found


def dimensions_along(*exprs: Expr) -> dict[str, list[tuple[str, int]]]:
    """The (buffer, dimension) that expressions read at each axis as it stands."""
    found: dict[str, list[tuple[str, int]]] = {}
    for e in walk(*exprs):
        if isinstance(e, Read):
            for d, part in enumerate(e.index):
                axis = plain(part)
                if axis is not None:
                    found.setdefault(axis, []).append((e.buffer, d))
    return found


# ---- reshapes


def _reshaped(node: Node) -> Kernel | None:
    """A reshape whose every index is affine: dimensions of size 1 come and go, and sizes are split.

    None for others, which would divide at every element.
    """
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    index = split_places(source.shape, result.shape)
    if index is None:
        return None
    axes = tuple(Axis(f"i{d or ''}", n) for d, n in enumerate(result.shape))
    places = tuple(
        Affine.of({axes[d].name: stride for d, stride in part.items() if axes[d].extent != 1})
        for part in index
    )
    at = tuple(as_affine(a.name) for a in axes)
    short = source.type.dtype.short
    return Kernel(
        node.op.name,
        (Buffer("input", short, source.shape),),
        (Buffer("out", short, result.shape),),
        axes,
        (Store("out", at, read("input", places)),),
    )


def split_places(source: tuple[int, ...], result: tuple[int, ...]) -> list[dict[int, int]] | None:
    """For each dimension of `source`, the dimensions of `result` that it is split into, with strides.

    [6, 4] as [2, 3, 1, 4]: [{0: 3, 1: 1}, {2: 4, 3: 1}].  None where dimensions are merged, and for no
    elements.
    """
    if 0 in source:
        return None
    found: list[dict[int, int]] = []
    rest = [(d, n) for d, n in enumerate(result)]
    for n in source:
        taken: list[tuple[int, int]] = []
        covered = 1
        while rest and (covered != n or rest[0][1] == 1) and n % (covered * rest[0][1]) == 0:
            if n == 1 and rest[0][1] != 1:
                break
            taken.append(rest.pop(0))
            covered *= taken[-1][1]
        if covered != n:
            return None
        strides = row_major(tuple(m for _, m in taken))
        found.append({d: stride for (d, _), stride in zip(taken, strides, strict=True)})
    return found if all(n == 1 for _, n in rest) else None


# ---- outputs that nobody wants


def wanted(kernel: Kernel, used: frozenset[int]) -> Kernel:
    """The kernel without the stages that only serve other outputs; the outputs stay declared.

    An argmax whose place nobody asks for is a maximum.
    """
    names = {b.name for n, b in enumerate(kernel.outputs) if n in used}
    stages: list[Stage] = []
    needed: set[str] = set()
    for stage in reversed(kernel.stages):
        if isinstance(stage, Store):
            if stage.buffer not in names:
                continue
        elif not needed.intersection(stage.defines):
            continue
        if isinstance(stage, Fold):
            stage = _greatest(stage, needed) or stage
        stages.append(stage)
        needed |= {e.name for e in walk(*stage.exprs) if isinstance(e, Ref)}
    return replace(kernel, stages=tuple(reversed(stages)))


def _greatest(fold: Fold, needed: set[str]) -> Reduce | None:
    """max or min for a fold that also finds where it is, if that is not needed."""
    if len(fold.names) != 2 or fold.scan or fold.names[1] in needed:
        return None
    best, step = ref(fold.names[0]), fold.step[0]
    if not (isinstance(step, Op) and step.name == "select" and step.args[2] is best):
        return None
    take, value = step.args[0], step.args[1]
    for word, combine in (("gt", "max"), ("lt", "min")):
        wins = op(word, value, best)
        nan = op("bit_or", wins, op("bit_and", op("isnan", value), op("bit_not", op("isnan", best))))
        if take is wins or take is nan:
            return Reduce(fold.names[0], combine, fold.axes, value)
    return None
