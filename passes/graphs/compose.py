"""One kernel for a graph: what a fused node runs.

    graph bias_relu(%x: f32[8,3], %w: f32[3,4], %b: f32[4]) -> (f32[8,4]) {
      %0 = matmul(%x, %w) : f32[8,4]
      %1 = add(%0, %b) : f32[8,4]
      %2 = relu(%1) : f32[8,4]
      return %2
    }
    ->
    kernel matmul_add_relu(a: f32[8,3], b: f32[3,4], other: f32[4]) -> (out: f32[8,4]) {
      parallel i:8 i1:4
      t = sum(r:3) (a[i, r] * b[r, i1])
      out[i, i1] = max((t + other[i1]), 0)
    }

A pure piece goes into whatever reads it, through views too.  A piece with stages adds them, at the same
parallel points; what reads its result does so at the point where it stands.  Which axis of one piece is which
of another follows from what they index: an axis is known by the (array, dimension) that it runs along.

Values keep the element types they have in the graph, so that a chain of ops on halves rounds where the ops by
themselves would: what is composed gives the bits that its nodes give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ...ir.dims import hint, is_at_least
from ...ir.errors import Unsayable
from ...ir.graph import Constant, Graph, Node, Value
from ...ir.kernel.affine import ZERO, Affine, Extent, as_affine
from ...ir.kernel.form import Axis, Buffer, Fold, Kernel, Local, Reduce, Stage, Store, Subscript, names
from ...ir.kernel.infer import dtype_of
from ...ir.kernel.scalar import (
    Const,
    Expr,
    Read,
    Ref,
    cast,
    const,
    coordinate,
    op,
    read,
    ref,
    walk,
)
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import is_floating, kind
from ...ir.kernel.verify import verify
from ...ir.memo import remember
from ..kernels.hoist import hoisted
from ..kernels.index_check import index_check, trusted
from ..kernels.product import plain
from ..kernels.word_costs import CHEAP
from .lower import numbered
from .pieces import Piece, Pure, piece_of, signature


def compose(body: Graph) -> Kernel:
    """The kernel that computes a graph: an input for each param, an output for each result.

    Graphs of one structure get one kernel, the same object.  Raises Unsayable for what one kernel can't
    say, or could only say by computing expensive values again and again.
    """
    key = _structure(body)
    return _made_once(_kernels, key, lambda: verify(hoisted(_drafted(key, body))))


def draft(body: Graph) -> Kernel:
    """What `compose` makes a kernel of: not gone over yet, nor verified.  Raises Unsayable as that does.

    Groups are tried out by the hundred; what all their kernels are, only the last ones need.
    """
    return _drafted(_structure(body), body)


def _drafted(key: tuple, body: Graph) -> Kernel:
    def make() -> Kernel:
        composer = _Composer(body)
        found = composer.kernel()
        if composer.trusting and len(body.nodes) > 1 and index_check(found) is None:
            raise Unsayable("what an index picks is an index in turn: no kernel could look at it ahead")
        return found

    return _made_once(_drafts, key, make)


_Known = dict[tuple, Kernel | Unsayable]
_kernels: _Known = {}
_drafts: _Known = {}


def _made_once(known: _Known, key: tuple, make: Callable[[], Kernel]) -> Kernel:
    """What is known under a key, a refusal too, which is raised each time."""
    found = known.get(key)
    if found is None:
        try:
            found = make()
        except Unsayable as error:
            found = error
        remember(known, key, found)
    if isinstance(found, Unsayable):
        raise Unsayable(found.rule, *found.details)
    return found


def _structure(body: Graph) -> tuple:
    """Equal for graphs that differ only in names and places."""
    numbers: dict[Value | None, object] = {None: None}
    for value in (*body.params, *(v for node in body.nodes for v in node.outputs)):
        numbers[value] = len(numbers)

    def number(value: Value | None) -> object:
        if isinstance(value, Constant):
            return value.type, value.data.tobytes()
        return numbers[value]

    nodes = tuple((*signature(n), tuple([number(v) for v in n.inputs])) for n in body.nodes)
    return tuple(p.type for p in body.params), nodes, tuple([number(v) for v in body.results])


def kernel_name(body: Graph) -> str:
    """What its nodes do, in order: conv2d_add_relu.  Views are named where there is nothing else."""
    words = [n.op.name for n in body.nodes if not n.op.traits.view] or [n.op.name for n in body.nodes]
    found: list[str] = []
    for word in words:
        if not found or found[-1] != word:
            found.append(word)
    if len(found) > 8:
        found = [*found[:6], f"and_{len(found) - 6}_more"]
    return "_".join(found) or "nothing"


class _Composer:
    """Builds the kernel of one graph.

    places: which index of the kernel runs along a dimension of an array or of a stored value.
    stored: the values that stages have computed: (at, value, axes), of the store that there would be.
    """

    def __init__(self, body: Graph):
        self.body = body
        self.producer = {v: (node, n) for node in body.nodes for n, v in enumerate(node.outputs)}
        self.taken: set[str] = set()
        self.stages: list[Stage] = []
        self.parallel: tuple[Axis, ...] | None = None
        self.extents: dict[str, int] = {}
        self.places: dict[tuple[Value, int], Affine] = {}
        self.stored: dict[Value, tuple[tuple[Affine, ...], Expr, tuple[Axis, ...]]] = {}
        self.ended: dict[Value, list[Store]] = {}
        self.dtypes: dict[str, str] = {}
        self._roots: dict[tuple[Value, int], list[tuple[Value, int]]] = {}
        self._operands: dict[Node, dict[str, Value]] = {}
        self._at: dict[tuple, Expr] = {}
        self._seen: dict[Value, dict[tuple, None]] = {}
        self.trusting: dict[
            tuple[Expr, Extent], Value
        ] = {}  # indices from data, and the sizes they are below
        used = {v for node in body.nodes for v in node.inputs} | set(body.results)
        self.pieces: dict[Node, Piece] = {}
        for node in body.nodes:
            outputs = frozenset(n for n, v in enumerate(node.outputs) if v in used)
            piece = piece_of(node, outputs)
            if piece is None:
                raise Unsayable(f"{node.op.name} has no kernel that others could be part of")
            self.pieces[node] = piece
        self.buffers = {value: self.buffer(value, name) for value, name in self.operands().items()}
        self.arrays = {buffer.name: buffer for buffer in self.buffers.values()}
        self.shared = self.kept_values()

    # ---- names
    def operands(self) -> dict[Value, str]:
        """Each param under the name that its first reader has for it."""
        found: dict[Value, str] = {}
        for node in self.body.nodes:
            operands = numbered(node.op.operands, len(node.inputs))
            for value, name in zip(node.inputs, operands, strict=True):
                if value is not None and value not in self.producer and not isinstance(value, Constant):
                    found.setdefault(value, name)
        return {p: found.get(p, "unused") for p in self.body.params}

    def name(self, stem: str) -> str:
        number, found = 0, stem
        while found in self.taken:
            number += 1
            found = f"{stem}{number}"
        self.taken.add(found)
        return found

    def buffer(self, value: Value, stem: str) -> Buffer:
        return Buffer(self.name(stem), value.type.dtype.short, value.shape)

    def axis(self, stem: str, extent: int) -> Axis:
        axis = Axis(self.name(stem), extent)
        self.extents[axis.name] = extent
        return axis

    # ---- what is kept
    def kept_values(self) -> set[Value]:
        """The expensive pure values that several loops read: computed once, as a Local."""
        loops: dict[Value, int] = dict.fromkeys(self.body.results, 1)
        weights: dict[Value, float] = {}
        several = any(piece.pure is None for piece in self.pieces.values())
        for node, piece in self.pieces.items():
            for name, value in self.operands_of(node).items():
                loops[value] = loops.get(value, 0) + piece.readings[name]
        found: set[Value] = set()
        for node, piece in self.pieces.items():
            if piece.pure is None:
                continue
            inlined = {v for v in node.inputs if v is not None and v not in found}
            for value in node.outputs:
                elements = _size(value) or 1  # what is per row, a row computes once
                shares = (weights.get(v, 0) * _size(v) / elements for v in inlined)
                weights[value] = piece.weight + sum(shares)
                if several and loops.get(value, 0) > 1 and weights[value] > CHEAP:
                    found.add(value)
        self.weights = weights
        return found

    # ---- the kernel
    def kernel(self) -> Kernel:
        for node, piece in self.pieces.items():
            if piece.pure is None:
                self.stage(node, piece)
        results = [(v, self.result_buffer(v)) for v in self.body.results]
        if self.parallel is None:
            self.lay_out()
        stores = [store for value, out in results for store in self.stores(value, out)]
        inputs = tuple(self.buffers[p] for p in self.body.params)
        outputs = tuple(out for _, out in results)
        assert self.parallel is not None
        made = Kernel(kernel_name(self.body), inputs, outputs, self.parallel, (*self.stages, *stores))
        for part, size in self.trusting.keys() - set(trusted(made) if self.trusting else ()):
            value = self.trusting[part, size]  # nobody would look at the index, or for another size
            raise Unsayable(f"an index from data has to be held to the {size} elements of {value.type}")
        return made

    def result_buffer(self, value: Value) -> Buffer:
        node, number = self.producer.get(value, (None, 0))
        stem = "out" if node is None else numbered(node.op.all_outputs, len(node.outputs))[number]
        return self.buffer(value, stem)

    def lay_out(self) -> None:
        """Without stages, the parallel axes are those of the largest result."""
        largest = max(self.body.results, key=_size)
        axes = [self.axis("i", n) for n in largest.shape]
        self.parallel = tuple(axes)
        for d, axis in enumerate(axes):
            if axis.extent != 1:
                for root in self.roots(largest, d):
                    self.places.setdefault(root, as_affine(axis.name))
                self.places.setdefault((largest, d), as_affine(axis.name))

    # ---- which axis is which
    def roots(self, value: Value, d: int) -> list[tuple[Value, int]]:
        """The dimensions of params and stored values that dimension `d` of a value runs along."""
        key = value, d
        if key not in self._roots:
            self._roots[key] = list(dict.fromkeys(self._found_roots(value, d)))
        return self._roots[key]

    def _found_roots(self, value: Value, d: int) -> Iterator[tuple[Value, int]]:
        if value.shape[d] == 1 or isinstance(value, Constant):
            return
        node, number = self.producer.get(value, (None, 0))
        pure = None if node is None else self.pieces[node].pure
        if node is None or pure is None:
            yield value, d
            return
        yield from self.along(node, pure[number], pure[number].axes[d])

    def along(self, node: Node, what: Pure | Piece, axis: str) -> Iterator[tuple[Value, int]]:
        """The roots of what a node reads along an axis of its own, all of it or for one output."""
        operands = self.operands_of(node)
        for buffer, d in what.along.get(axis, ()):
            yield from self.roots(operands[buffer], d)

    def operands_of(self, node: Node) -> dict[str, Value]:
        """What each buffer of a node's piece is."""
        found = self._operands.get(node)
        if found is None:
            names = [buffer.name for buffer in self.pieces[node].kernel.inputs]
            given = [value for value in node.inputs if value is not None]
            found = self._operands[node] = dict(zip(names, given, strict=True))
        return found

    def found(self, roots: list[tuple[Value, int]]) -> Iterator[Affine]:
        """Where the roots run already; stored values know best."""
        for known in (True, False):
            for root in roots:
                if (root[0] in self.stored) is known and root in self.places:
                    yield self.places[root]

    # ---- pieces with stages
    def stage(self, node: Node, piece: Piece) -> None:
        kernel = piece.kernel
        inner = [a for a in kernel.axes if a not in kernel.parallel]
        roots = {a.name: list(self.along(node, piece, a.name)) for a in kernel.axes}
        axes: dict[str, Subscript] = {}
        if self.parallel is None:
            own = {a.name: self.axis("i", a.extent) for a in kernel.parallel}
            self.parallel = tuple(own.values())
            axes |= {name: as_affine(a.name) for name, a in own.items()}
        else:
            axes |= self.matched(node, kernel, roots)
        renamed = self.inner_axes(inner, roots)
        axes |= {name: as_affine(a.name) for name, a in renamed.items()}
        for a in kernel.axes:
            if a.extent != 1:
                for root in roots[a.name]:
                    self.places.setdefault(root, axes[a.name])
        named = {name: self.name("t") for s in kernel.stages for name in s.defines}
        loops = {name: (a,) for name, a in renamed.items()}
        write = Substitution(indices=axes, axes=loops, stages=named, reads=self.reader(node))
        stores: dict[str, list[Store]] = {}
        for stage in map(write.stage, kernel.stages):
            if isinstance(stage, Store):
                stores.setdefault(stage.buffer, []).append(stage)
            else:
                self.stages.append(self.typed(stage))
        for value, buffer in zip(node.outputs, kernel.outputs, strict=True):
            one = stores.get(buffer.name, [])
            if len(one) == 1 and one[0].combine is None:
                at = one[0].index
                self.stored[value] = (at, one[0].value, one[0].axes)  # type: ignore[assignment]
                for d, part in enumerate(at):
                    if value.shape[d] != 1 and isinstance(part, Affine):
                        self.places[value, d] = part
            elif one:
                self.ended[value] = one

    def typed(self, stage: Stage) -> Stage:
        """The stage, with the types of what it defines noted."""
        kernel = Kernel("", tuple(self.buffers.values()), (), (), (stage,))
        known = dict(self.dtypes)
        if isinstance(stage, Fold):
            for name, value in zip(stage.names, stage.init, strict=True):
                dtype = dtype_of(value, kernel.buffers, known, {})
                self.dtypes[name] = self.dtypes[f"right.{name}"] = dtype or "f32"
        elif isinstance(stage, (Reduce, Local)):
            self.dtypes[stage.name] = dtype_of(stage.value, kernel.buffers, known, {}) or "f32"
        return stage

    def matched(self, node: Node, kernel: Kernel, roots: Mapping[str, list]) -> dict[str, Subscript]:
        """The kernel's parallel axes for those of one more piece with stages."""
        assert self.parallel is not None
        axes: dict[str, Subscript] = {a.name: ZERO for a in kernel.parallel if a.extent == 1}
        left = {a.name: a for a in self.parallel if a.extent != 1}
        waiting = [a for a in kernel.parallel if a.extent != 1]
        unknown = []
        for a in waiting:
            places = [plain(p) for p in self.found(roots[a.name])]
            here = next((p for p in places if p in left and left[p].extent == a.extent), None)
            if here is None and places:
                raise Unsayable(
                    f"{kernel.name} runs at other points than what it is composed with",
                    f"axis: {a} of {node.op.name}",
                    f"parallel: {' '.join(map(str, self.parallel))}",
                )
            if here is None:
                unknown.append(a)
            else:
                axes[a.name] = as_affine(left.pop(here).name)
        if [a.extent for a in unknown] != [a.extent for a in left.values()]:
            raise Unsayable(
                f"{kernel.name} runs at other points than what it is composed with",
                f"its own: {' '.join(map(str, kernel.parallel))}",
                f"parallel: {' '.join(map(str, self.parallel))}",
            )
        pairs = zip(unknown, left.values(), strict=True)
        return axes | {a.name: as_affine(b.name) for a, b in pairs}

    def inner_axes(self, inner: list[Axis], roots: Mapping[str, list]) -> dict[str, Axis]:
        """The kernel's local axes for those of one more piece: the same where they run along the same."""
        outer = {a.name for a in self.parallel or ()}
        found: dict[str, Axis] = {}
        for a in inner:
            places = [plain(p) for p in self.found(roots[a.name])]
            if any(p in outer for p in places) and a.extent != 1:
                raise Unsayable(f"an axis can't be computed along and apart at once: {a}")
            used = {b.name for b in found.values()}
            loops = (p.name for stage in self.stages for p in stage.axes)  # of other arrays: a loop is a loop
            free = (p for p in (*places, *loops) if p and p not in used and self.extents[p] == a.extent)
            same = next(free, None)
            found[a.name] = self.axis("r", a.extent) if same is None else Axis(same, a.extent)
        return found

    # ---- reading
    def reader(self, node: Node, guard: bool = False) -> Callable[[Read], Expr]:
        """What the reads of a node's kernel are in this one."""
        operands = self.operands_of(node)
        return lambda access: self.at(operands[access.buffer], access.index, access.other, guard)

    def at(self, value: Value, index: tuple[Subscript, ...], other: Const | None = None, guard=False) -> Expr:
        """The element of a value at an index of the kernel, in the value's own type.

        other: what is read out of bounds.  guard: the index may be out of bounds; what is read then is not
        used, but must not be touched.
        """
        if isinstance(value, Constant):
            if value.ndim:
                raise Unsayable(f"only scalar constants can stand in a kernel, not {value!r}")
            return const(value.data.item(), value.type.dtype.short)
        if other is None:
            for part, n in zip(index, value.shape, strict=True):
                if isinstance(part, Expr) and any(isinstance(e, (Read, Ref)) for e in walk(part)):
                    self.trusting.setdefault((part, n), value)
        if value in self.buffers:
            access = read(self.buffers[value].name, index, other)
            return self.guarded(access) if guard else access
        if other is not None:
            return self.padded(value, index, other)
        key = value, index, guard
        found = self._at.get(key)
        if found is None:
            node, number = self.producer[value]
            short = tuple(
                ZERO if n == 1 and not guard else part for part, n in zip(index, value.shape, strict=True)
            )
            pure = self.pieces[node].pure
            if pure is None:
                found = self.stored_at(node, value, short, guard)
            else:
                found = self.pure_at(node, value, short, guard)
            self._at[key] = found
        return found

    def guarded(self, access: Read) -> Read:
        """The read with an `else` where it may be out of bounds."""
        array = self.arrays[access.buffer]
        if access.other is not None or all(map(self.part_inside, access.index, array.shape)):
            return access
        return read(access.buffer, access.index, const(_nothing(array.dtype)))

    def part_inside(self, part: Subscript, size: int) -> bool:
        if not isinstance(part, Affine):
            return False
        low, high = part.bounds(self.extents)
        return is_at_least(low, 0) and is_at_least(size - 1, high)

    def padded(self, value: Value, index: tuple[Subscript, ...], other: Const) -> Expr:
        """A read with an `else`, of a value that no array holds."""
        inside: Expr | None = None
        for part, n in zip(index, value.shape, strict=True):
            if self.part_inside(part, n):
                continue
            place = coordinate(part) if isinstance(part, Affine) else cast(part, "i64")
            here = op("bit_and", op("ge", place, 0), op("lt", place, n))
            inside = here if inside is None else op("bit_and", inside, here)
        found = self.at(value, index, guard=inside is not None)
        return found if inside is None else op("select", inside, found, cast(other, value.type.dtype.short))

    def pure_at(self, node: Node, value: Value, index: tuple[Subscript, ...], guard: bool) -> Expr:
        _, number = self.producer[value]
        pure = (self.pieces[node].pure or {})[number]
        seen = self._seen.setdefault(value, {})
        seen[index] = None
        if len(seen) > 1 and self.weights[value] > CHEAP:
            raise Unsayable(
                f"{node.op.name} is expensive, and would be computed at several places",
                *(", ".join(map(str, place)) for place in seen),
            )
        axes: dict[str, Subscript] = dict(zip(pure.axes, index, strict=True))
        found = Substitution(indices=axes, reads=self.reader(node, guard)).expr(pure.value)
        if value not in self.shared or guard:
            return found
        over = [plain(part) for part in index if part != ZERO]
        local = tuple(
            Axis(a, self.extents[a]) for a in over if a and a not in {p.name for p in self.parallel or ()}
        )
        if None in over or not local or self.parallel is None:
            return found
        name = self.name("t")
        self.stages.append(self.typed(Local(name, local, found)))
        return ref(name, names(local))

    def stored_at(self, node: Node, value: Value, index: tuple[Subscript, ...], guard: bool) -> Expr:
        if value not in self.stored:
            raise Unsayable(f"{node.op.name} stores parts of its result apart: nothing can read it here")
        at, found, axes = self.stored[value]
        local = {a.name for a in axes}
        moved: dict[str, Subscript] = {}
        for here, there, n in zip(at, index, value.shape, strict=True):
            axis = plain(here)
            if here == there or n == 1 and axis not in local:
                continue
            if axis not in local:
                raise Unsayable(
                    f"{node.op.name} is read at other points than where it is computed",
                    f"computed at: {', '.join(map(str, at))}",
                    f"read at: {', '.join(map(str, index))}",
                )
            moved[axis] = there
        if not moved:
            return found
        if any(isinstance(e, Ref) and set(e.axes) & moved.keys() for e in walk(found)):
            raise Unsayable(f"{node.op.name} is read at other points than where it is kept")
        return Substitution(indices=moved, reads=self.guarded if guard else None).expr(found)

    # ---- results
    def stores(self, value: Value, out: Buffer) -> list[Store]:
        """The stores of one result."""
        if value in self.ended:
            return [replace(store, buffer=out.name) for store in self.ended[value]]
        if value in self.stored:
            at, found, axes = self.stored[value]
            return [Store(out.name, at, found, axes)]
        index = self.result_index(value)
        outer = {a.name for a in self.parallel or ()}
        inner = dict.fromkeys(name for part in index for name, _ in part.terms if name not in outer)
        found = self.at(value, index)
        return [Store(out.name, index, found, tuple(Axis(n, self.extents[n]) for n in inner))]

    def result_index(self, value: Value) -> tuple[Affine, ...]:
        """The index of the kernel that a pure result is stored at: every parallel axis, and local ones."""
        assert self.parallel is not None
        parts: list[Affine | None] = [ZERO if n == 1 else None for n in value.shape]
        used: set[str] = set()
        for outside in (True, False):
            for d, part in enumerate(parts):
                if part is not None:
                    continue
                for place in self.found([(value, d), *self.roots(value, d)]):
                    is_outer = bool(place.names & {a.name for a in self.parallel})
                    whole = place.bounds(self.extents) == (0, value.shape[d] - 1)
                    if is_outer is outside and whole and not place.names & used:
                        parts[d] = place
                        used |= place.names
                        break
        left = [a for a in self.parallel if a.name not in used and a.extent != 1]
        for d, n in enumerate(value.shape):
            if parts[d] is None:
                axis = left.pop(0) if left and left[0].extent == n else self.axis("r", n)
                parts[d] = as_affine(axis.name)
        if left:
            raise Unsayable(
                f"a result has to be computed once, not at each point of {' '.join(map(str, left))}",
                f"result: {value.type}",
                f"parallel: {' '.join(map(str, self.parallel))}",
            )
        found = tuple(part for part in parts if part is not None)
        return self.with_unit_axes(found)

    def with_unit_axes(self, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Axes of one point in place of zeros, where the result has a dimension for each parallel axis."""
        assert self.parallel is not None
        if len(index) != len(self.parallel):
            return index
        pairs = zip(index, self.parallel, strict=True)
        return tuple(as_affine(a.name) if a.extent == 1 and part == ZERO else part for part, a in pairs)


def _size(value: Value) -> int:
    return hint(math.prod(value.shape))


def _nothing(dtype: str) -> bool | int | float:
    return False if kind(dtype) == "b" else 0.0 if is_floating(dtype) else 0
