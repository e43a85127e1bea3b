"""Choose how products of matrices run, and pack their right factors where it pays.

    %y: f32[64,512] = linear(%x, %w)    ->    %p: f32[16,784,32] = pack(%w)
                                              %y: f32[64,512] = linear(%x, %p)  # panels(...)

A packed factor lies as panels [n / width, k, width], which are read in one stream.  What depends on weights
alone is packed by a call that runs again only when a weight changes; other factors are packed where enough
rows pass over them.  What stands before and after the product (an activation, a bias, a residual) stays in
its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Axis, Buffer, Kernel, Local, Reduce, Store, names
from ..ir.kernel.scalar import Cast, Expr, Op, Read, coordinate, op, read, walk
from ..ir.kernel.types import NUMPY, bits, is_floating
from .blocking import Rewriting, fresh, zero_of
from .collapse import Substituted, collapsed
from .llvm.matmul import Dots, Panels, tile
from .llvm.schedule import runs_once
from .llvm.target import Target
from .pieces import wanted
from .program import Alias, Array, Call, Program, Step
from .windowed import windowed

WORTH_ROWS = 16  # rows that pass over a factor until packing it costs less than its strides do
NEAR_BYTES = 256 << 10  # of a factor that is read where it lies, if its rows are contiguous
FAR_BYTES = 2 << 20  # of a packed factor that comes from beyond the nearer caches
AHEAD_BYTES = 8 << 10  # of a panel that are asked for before they are needed; measured at 4096 x 4096, 8 rows
PAGE = 4096  # rows this far apart fall on the same lines of the nearest cache, which holds 12 of each


@dataclass(frozen=True)
class Options:
    """frozen: the positions of the params that hold weights, which seldom change."""

    frozen: frozenset[int] = frozenset()


def pack_matmuls(program: Program, target: Target, options: Options | None = None) -> Program:
    """The program with a way to run for every product of matrices, and packed factors where they pay."""
    frozen = {program.params[k] for k in (options or Options()).frozen} | set(program.constants)
    packing = _Packing(target, frozen)
    for step in program.steps:
        packing.step(step)
    return program.replace(steps=tuple(packing.steps))


@dataclass(frozen=True)
class Product:
    """stage = sum(k) left * right at every row and column of a collapsed kernel.

    The column's elements are neighbours in the result.  row: the longest axis of the left factor alone, or
    None.  outer: the other parallel axes.  side: which factor is the right one.
    """

    stage: Reduce
    left: Expr
    right: Expr
    side: int
    row: str | None
    column: str
    k: tuple[str, ...]
    outer: tuple[str, ...]


def product(kernel: Kernel) -> Product | None:
    """The roles in a collapsed kernel that is one product, with what is computed from it at its points."""
    stage = _sum_of_products(kernel)
    if stage is None or kernel.symbols or runs_once(kernel):
        return None
    form = stage.value
    assert isinstance(form, Op)
    if any(s.axes for s in kernel.stages if s is not stage) or not is_floating(kernel.dtypes[stage.name]):
        return None
    parallel, k = names(kernel.parallel), names(stage.axes)
    column = next((axis for axis in parallel if _stored_along(kernel, axis)), None)
    free = [kernel.free_axes(factor) for factor in form.args]
    if column is None or 0 in kernel.extents.values() or not set(k) <= free[0] & free[1]:
        return None
    side = 1 if column in free[1] else 0
    if column in free[1 - side] or column not in free[side]:
        return None
    rows = [axis for axis in parallel if axis in free[1 - side] - free[side]]
    row = max(rows, key=lambda axis: int(kernel.extents[axis])) if rows else None
    outer = tuple(axis for axis in parallel if axis not in (row, column))
    return Product(stage, form.args[1 - side], form.args[side], side, row, column, k, outer)


def _sum_of_products(kernel: Kernel) -> Reduce | None:
    """The one stage that is more than elementwise, if that adds up products."""
    sums = [stage for stage in kernel.stages if not isinstance(stage, (Local, Store))]
    if len(sums) != 1 or not isinstance(sums[0], Reduce) or sums[0].combine != "sum":
        return None
    return sums[0] if isinstance(sums[0].value, Op) and sums[0].value.name == "mul" else None


def _stored_along(kernel: Kernel, axis: str) -> bool:
    return all(kernel.buffers[s.buffer].offset(s.index).coefficient(axis) == 1 for s in kernel.stores)


class _Packing:
    """The steps so far, and what has been packed."""

    def __init__(self, target: Target, frozen: set[Array]):
        self.target, self.frozen = target, frozen
        self.steps: list[Step] = []
        self.packed: dict[tuple, Array] = {}

    def step(self, step: Step) -> None:
        """Append a step, with how it runs if it is a product."""
        made = self.call(step) if isinstance(step, Call) and step.how is None else step
        self.steps.append(made)
        if all(array is None or array in self.frozen for array in made.inputs):
            self.frozen |= set(made.outputs)

    def call(self, call: Call) -> Call:
        if windowed(call.kernel):
            return call
        as_it_was, call = call, replace(call, kernel=_in_full(call.kernel))
        if _sum_of_products(call.kernel) is None:  # as most have none, before more is done
            return as_it_was
        flat = collapsed(call.kernel)
        roles = product(flat)
        if roles is None:
            return as_it_was
        extent = {axis: int(n) for axis, n in flat.extents.items()}
        rows = prod(extent[axis] for axis in flat.free_axes(roles.left) - set(roles.k))
        if flat.free_axes(roles.right) & set(roles.outer):  # products of a batch: each has its own factors
            rows = extent[roles.row] if roles.row else 1
        depth = prod(extent[axis] for axis in roles.k)
        given = self.arrays_of(call, roles.right, flat)
        if all(array in self.frozen for array in given):
            return self.panels(call, flat, roles, pack=True)
        step, inner = _strides(flat, roles.right, roles.column, roles.k)
        if step == 1:
            size = NUMPY[flat.dtypes[roles.stage.name]].itemsize
            near = inner * size % PAGE and depth * inner * size <= NEAR_BYTES
            return self.panels(call, flat, roles, pack=not near and rows >= WORTH_ROWS)
        if self.is_along(flat, roles) and (rows <= WORTH_ROWS or rows < 4 * WORTH_ROWS and depth >= 512):
            return replace(call, how=self.dots(flat, roles))
        return self.panels(call, flat, roles, pack=True) if rows >= WORTH_ROWS else as_it_was

    def arrays_of(self, call: Call, expr: Expr, flat: Kernel) -> list[Array]:
        read_here = {e.buffer for e in walk(expr) if isinstance(e, Read)}
        return [a for a, b in zip(call.inputs, flat.inputs, strict=True) if b.name in read_here]

    # ---- both factors along the sum
    def is_along(self, flat: Kernel, roles: Product) -> bool:
        """Whether both factors are contiguous along the one summed axis, which fills vectors."""
        if len(roles.k) != 1 or int(flat.extents[roles.k[0]]) < 2 * self.target.lanes:
            return False
        sides = (_strides(flat, factor, roles.k[0], ()) for factor in (roles.left, roles.right))
        return all(step == 1 for step, _ in sides)

    def dots(self, flat: Kernel, roles: Product) -> Dots:
        wide = max(1, bits(flat.dtypes[roles.stage.name]) // 32)
        side = 4 if self.target.lanes == 16 and wide == 1 else 2
        tiles = {}
        if roles.row is not None:
            tiles[roles.row] = tile(int(flat.extents[roles.row]), side)
        tiles[roles.column] = tile(
            int(flat.extents[roles.column]), side * side // tiles.get(roles.row or "", 1)
        )
        return Dots(roles.k[0], tuple(tiles.items()))

    # ---- panels
    def panels(self, call: Call, flat: Kernel, roles: Product, pack: bool) -> Call:
        """The call by panels of columns, its right factor packed or where it lies."""
        call = self.simple_left(call, flat, roles)
        flat = collapsed(call.kernel)
        roles = _sure(product(flat))
        target, extent = self.target, {axis: int(n) for axis, n in flat.extents.items()}
        dtype = flat.dtypes[roles.stage.name]
        wide = max(1, bits(dtype) // 32)  # registers for a vector
        registers = target.sums
        height = extent[roles.row] if roles.row else 1
        vectors = 8
        while vectors > 1 and vectors * wide * min(height, registers // (2 * wide)) > registers:
            vectors //= 2
        while vectors > 1 and vectors // 2 * target.lanes >= extent[roles.column]:
            vectors //= 2
        most, width = registers // (vectors * wide), vectors * target.lanes
        if roles.row and _strides(flat, roles.left, roles.row, ())[0] * NUMPY[dtype].itemsize % PAGE == 0:
            most = min(most, 8)
        rows = tile(height, most)
        block = rows * max(1, min(8, -(-height // rows)))
        packed, ahead = None, 0
        if pack:
            call, packed = self.with_packed(call, flat, roles, width)
            flat = collapsed(call.kernel)
            roles = _sure(product(flat))
            far = call.inputs[-1].nbytes > FAR_BYTES and height <= 4 * WORTH_ROWS
            ahead = AHEAD_BYTES if far else 0
        return replace(call, how=Panels(packed, roles.row, roles.column, rows, width, block, ahead))

    def simple_left(self, call: Call, flat: Kernel, roles: Product) -> Call:
        """The call with its left factor computed before, where it would be computed for every panel again."""
        if not any(isinstance(e, Op) for e in walk(roles.left)):
            return call
        kernel = call.kernel
        stage = _sum_of(kernel)
        left = stage.value.args[1 - roles.side]  # type: ignore[attr-defined]
        axes = [axis for axis in (*kernel.parallel, *stage.axes) if axis.name in kernel.free_axes(left)]
        buffer = Buffer(fresh(kernel, "left"), kernel.dtype_of(left), tuple(a.extent for a in axes))
        at = tuple(Affine(((axis.name, 1),)) for axis in axes)
        made = _part(call, "left", left, buffer, tuple(axes), at)
        self.steps.append(made)
        return _instead(call, left, buffer, at, made.outputs[0])

    def with_packed(self, call: Call, flat: Kernel, roles: Product, width: int) -> tuple[Call, str]:
        """The call on the packed factor, and the buffer's name; packing is a call before it."""
        kernel = call.kernel
        factor = _sum_of(kernel).value.args[roles.side]  # type: ignore[attr-defined]
        dtype, columns = flat.dtype_of(roles.right), int(flat.extents[roles.column])
        free = flat.free_axes(roles.right)
        outer = [axis for axis in flat.parallel if axis.name in free and axis.name in roles.outer]
        summed = [axis for axis in flat.axes if axis.name in roles.k]
        panel, lane = (Axis(fresh(flat, name), n) for name, n in (("p", -(-columns // width)), ("x", width)))
        axes = (*outer, panel, *summed, lane)
        shape = tuple(int(axis.extent) for axis in axes)
        column = Affine.of({panel.name: width, lane.name: 1})
        terms = {roles.column: column}
        rewriting = _Guarded(flat, terms) if columns % width else Rewriting(terms, {}, {})
        value = rewriting.expr(roles.right)
        buffer = Buffer(fresh(kernel, "packed"), dtype, shape)
        chains = _chains(kernel, flat)
        at = coordinate(chains[roles.column])
        index = (
            *(chains[axis.name] for axis in outer),
            op("floor_div", at, width),
            *(chains[axis.name] for axis in summed),
            op("remainder", at, width),
        )
        flat_call = self.flattened(call, flat, value)
        made = _part(flat_call, "pack", value, buffer, axes, tuple(Affine(((a.name, 1),)) for a in axes))
        key = made.kernel, made.inputs
        if key not in self.packed:
            self.steps.append(made)
            if all(array in self.frozen for array in made.inputs):
                self.frozen |= set(made.outputs)
            (self.packed[key],) = made.outputs
        return _instead(call, factor, buffer, index, self.packed[key]), buffer.name

    def flattened(self, call: Call, flat: Kernel, value: Expr) -> Call:
        """A call of the collapsed kernel on the arrays that `value` reads, under the shapes that it has."""
        read_here = {e.buffer for e in walk(value) if isinstance(e, Read)}
        arrays, buffers = [], []
        for array, buffer in zip(call.inputs, flat.inputs, strict=True):
            if buffer.name in read_here:
                arrays.append(self.alias(array, tuple(map(int, buffer.shape))))
                buffers.append(buffer)
        return Call(flat.replace(inputs=tuple(buffers)), tuple(arrays), call.outputs)

    def alias(self, array: Array, shape: tuple[int, ...]) -> Array:
        if array.shape == shape:
            return array
        key = ("alias", array, shape)
        if key not in self.packed:
            made = Array(array.name, array.dtype, shape)
            self.steps.append(Alias((array,), (made,)))
            if array in self.frozen:
                self.frozen.add(made)
            self.packed[key] = made
        return self.packed[key]


class _Guarded(Rewriting):
    """Reads are 0 where their index, rewritten, leaves the buffer."""

    def __init__(self, kernel: Kernel, terms: Mapping[str, Affine]):
        super().__init__(terms, {}, {})
        self.old = kernel

    def rebuilt(self, expr: Expr) -> Expr:
        made = super().rebuilt(expr)
        if isinstance(made, Read) and made.other is None and made is not expr:
            return read(made.buffer, made.index, zero_of(self.old.buffers[made.buffer].dtype))
        return made


def _sure(roles: Product | None) -> Product:
    assert roles is not None  # the same product as before
    return roles


def _in_full(kernel: Kernel) -> Kernel:
    """The kernel whose sums say in full what they add up: a factor that is computed by another kernel takes
    no stage of this one with it.

        t = sqrt(s[j])
        y = sum(k) (x[i, k] * (w[k, j] / t))    ->    y = sum(k) (x[i, k] * (w[k, j] / sqrt(s[j])))
    """
    if not kernel.locals:
        return kernel
    inline = Substituted({}, kernel.locals)
    stages = tuple(inline.stage(stage) if isinstance(stage, Reduce) else stage for stage in kernel.stages)
    return wanted(kernel.replace(stages=stages), frozenset(range(len(kernel.outputs))))


def _sum_of(kernel: Kernel) -> Reduce:
    return next(stage for stage in kernel.stages if isinstance(stage, Reduce))


def _strides(kernel: Kernel, factor: Expr, axis: str, inner: tuple[str, ...]) -> tuple[int, int]:
    """The stride of a factor that is one element along an axis, and the least one along `inner`.

    (0, 0) for a factor that is computed from several elements, or not always there.
    """
    while isinstance(factor, Cast):
        factor = factor.arg
    if (
        not isinstance(factor, Read)
        or kernel.unproved(factor)
        or any(isinstance(p, Expr) for p in factor.index)
    ):
        return 0, 0
    offset = kernel.buffers[factor.buffer].offset(factor.index)
    return offset.coefficient(axis), min((offset.coefficient(name) for name in inner), default=0)


def _part(
    call: Call, name: str, value: Expr, buffer: Buffer, axes: tuple[Axis, ...], at: tuple[Affine, ...]
) -> Call:
    """The call that stores an expression of a call's inputs for every point of the axes."""
    read_here = {e.buffer for e in walk(value) if isinstance(e, Read)}
    pairs = [(a, b) for a, b in zip(call.inputs, call.kernel.inputs, strict=True) if b.name in read_here]
    kernel = Kernel(name, tuple(b for _, b in pairs), (buffer,), axes, (Store(buffer.name, at, value),))
    made = Array(name, buffer.dtype, tuple(map(int, buffer.shape)))
    return Call(kernel, tuple(a for a, _ in pairs), (made,))


def _instead(
    call: Call, factor: Expr, buffer: Buffer, index: tuple[Affine | Expr, ...], array: Array
) -> Call:
    """The call with a factor read from an array of its own, and without the inputs that it needs no more."""
    rewriting = Rewriting({}, {}, {})
    rewriting.memo[factor] = read(buffer.name, index)
    kernel = rewriting.kernel(call.kernel.replace(inputs=(*call.kernel.inputs, buffer)))
    arrays = (*call.inputs, array)
    used = {access.buffer for _, access in kernel.reads}
    kept = [(a, b) for a, b in zip(arrays, kernel.inputs, strict=True) if b.name in used]
    kernel = kernel.replace(inputs=tuple(b for _, b in kept))
    return Call(kernel, tuple(a for a, _ in kept), call.outputs, call.how)


def _chains(kernel: Kernel, flat: Kernel) -> dict[str, Affine]:
    """What each axis of the collapsed kernel is in the axes of the kernel itself.

    Collapsing makes neighbours one axis, under the name of the slowest.
    """
    chains: dict[str, Affine] = {}
    for group in (kernel.parallel, *(stage.axes for stage in kernel.stages)):
        current = ""
        for axis in group:
            if axis.name in flat.extents:
                current = axis.name
                chains[current] = Affine(((current, 1),))
            elif axis.extent != 1:
                chains[current] = chains[current] * int(axis.extent) + Affine(((axis.name, 1),))
    return chains
