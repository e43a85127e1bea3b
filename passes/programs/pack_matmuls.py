"""Choose how products of matrices run, and pack their right factors where it pays.

    %y: f32[64,512] = linear(%x, %w)    ->    %p: f32[16,784,32] = pack(%w)
                                              %y: f32[64,512] = linear(%x, %p)  # panels(...)

A packed factor lies as panels [n / width, k, width], which are read in one stream.  What depends on weights
alone is packed by a call that runs again only when a weight changes; other factors are packed where enough
rows pass over them.  What stands before and after the product (an activation, a bias, a residual) stays in
its kernel.

Factors of bfloat16 (or rounded to it, where that was asked for) are multiplied in pairs where a target has an
instruction for two: panels are [n / width, k / 2, width, 2] then, and the left factor lies along the sum.
Bytes are multiplied in quads, [n / width, k / 4, width, 4], or as pairs of i16 where a target has no
instruction for four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Fold, Kernel, Reduce, names
from ...ir.kernel.scalar import Cast, Expr, Op, Read, coordinate, op, walk
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import NUMPY, bits, is_floating
from ..kernels.blocking import fresh, split_axis, squeezed
from ..kernels.collapse import collapsed
from ..kernels.product import Product, product_of
from ..kernels.split_reductions import split_reductions
from ..schedules.choose_blocks import asked_for, images_together, is_far
from ..schedules.choose_product import PAGE, Size, choose_product, goes_by_rows, of_tiles
from ..schedules.default import USUAL, balanced_tile, instructions, usual
from ..schedules.steps import (
    FEWEST_PAIRS,
    NEIGHBOURS,
    SIDE,
    Apart,
    Block,
    Collapse,
    Copy,
    Join,
    Matrix,
    Pack,
    Peel,
    Prefetch,
    Reorder,
    Roll,
    Schedule,
    Step,
    Stream,
    Strips,
    Tile,
    Unroll,
    Vectorise,
    pairs_at_once,
    tiles,
)
from ..schedules.target import Target
from .product_calls import (
    by_columns,
    chains_of,
    guarded,
    in_full,
    instead,
    is_narrow,
    lies_along,
    narrowed,
    part_of,
    strides_of,
    sure,
)
from .program import Alias, Array, Call, Program, without_unread
from .program import Step as ProgramStep
from .side_by_side import (
    BYTES,
    HALVES,
    Neighbours,
    byte_factors,
    can_deepen,
    deepened,
    filling,
    narrow_dtype,
    of_bytes,
)
from .split_calls import in_turn
from .weight_panels import FAR_BYTES, FEW_ROWS, SUMS, from_bytes, is_made_of_bytes, made_of_bytes

# Instructions after a tile's sums, from which on they are written once, in a loop over its rows: for 12 rows
# and the random numbers of dropout LLVM takes 370 ms, and 35 where they are in a loop that runs as fast.
LONG_TILE = 400
LONG_SUM = 512  # points of a sum that is gone over in strips, at least ...
LONG_PART = 1024  # ... and of a part of one that is cut
STRIP = 64  # of its points, about, whose lines of both factors the nearest caches hold
NEAR_ROWS = 256  # bytes between the rows of a strip that stay in the nearest cache as they lie
WAITING_BYTES = 96 << 10  # of sums that wait on the stack meanwhile, at most
WAITING_COLUMNS = 128  # of them, where there are many rows
UNITS = 16  # of work, so many that a sum is cut in no more parts
OPEN_UNITS = 4  # blocks of rows, where the sum has any length and is not cut
PACKED_ROWS = 64  # of a panel of pairs in a unit of work
MATRIX_ROWS = 8  # that are worth a matrix register
MOST_VECTORS = 8  # of columns beside each other in a tile
PANELS_AHEAD = 2  # of a right factor where it lies


@dataclass(frozen=True)
class Options:
    """frozen: the positions of the params that hold weights, which seldom change.  only: the way that every
    product takes that it fits, to measure it.  rounds: whether factors of f32 may be rounded to bfloat16.
    any_rows: whether a single row's weights lie as they do for any number of rows."""

    frozen: frozenset[int] = frozenset()
    only: str | None = None
    rounds: bool = False
    any_rows: bool = False


def pack_matmuls(program: Program, target: Target, options: Options | None = None) -> Program:
    """The program with a way to run for every product of matrices, and packed factors where they pay."""
    options = options or Options()
    frozen = {program.params[k] for k in options.frozen} | set(program.constants)
    packing = Packing(target, frozen, options)
    packing.uses.update((call.name, array) for call in program.calls for array in {*call.inputs})
    for step in program.steps:
        packing.step(step)
    passed = packing.passed
    if not passed:
        return program.replace(steps=tuple(packing.steps))
    steps = without_unread(packing.steps, program.results, lambda step: not passed.isdisjoint(step.outputs))
    return program.replace(steps=steps)


def _after(kernel: Kernel) -> int:
    """Instructions of what stands after the sums; none where a fold may carry its states on."""
    if any(isinstance(stage, Fold) for stage in kernel.stages):
        return 0
    first = 1 + max(n for n, stage in enumerate(kernel.stages) if isinstance(stage, Reduce))
    return instructions(kernel, kernel.stages[first:], frozenset())


class Packing:
    """The steps so far, and what has been packed.

    uses: how many calls of one name read an array; what they have packed of it, they share.  passed: arrays
    in whose place others were read.
    """

    def __init__(self, target: Target, frozen: set[Array], options: Options):
        self.target, self.frozen = target, frozen
        self.only, self.rounds, self.any_rows = options.only, options.rounds, options.any_rows
        self.steps: list[ProgramStep] = []
        self.made: dict[tuple, tuple[Array, ...]] = {}
        self._strides: dict[tuple, tuple[int, int]] = {}
        self.uses: Counter[tuple[str, Array]] = Counter()
        self.passed: set[Array] = set()

    def step(self, step: ProgramStep) -> None:
        """Append a step, with how it runs if it is a product."""
        made = self.call(step) if isinstance(step, Call) and step.how is None else step
        self.steps.append(made)
        if all(array is None or array in self.frozen for array in made.inputs):
            self.frozen |= set(made.outputs)

    def call(self, call: Call) -> Call:
        found = product_of(call.kernel)
        if found is not None and found.windowed:
            narrow = product_of(squeezed(call.kernel))
            if not (narrow and narrow.convolution and narrow.convolution.is_pointwise):
                return call
        if found is None:  # as most have none, before more is done
            return call
        as_it_was, call = call, replace(call, kernel=in_full(call.kernel))
        flat = collapsed(call.kernel)
        roles = by_columns(flat)
        if roles is None:
            return as_it_was
        if is_made_of_bytes(self, call, flat, roles):
            return from_bytes(self, self.simple_left(call, flat, roles, widened=False))
        way = self.chosen(call, flat, roles)
        if way == "plain":
            return as_it_was
        if way == "dots":
            return replace(call, how=self.dots(flat, roles))
        if way == "pairs":
            return self.pairs(call, flat, roles)
        bytes_ = byte_factors(flat, roles)
        if bytes_ is None and (parts := self.parts(flat, roles)) > 1:
            *partial_sums, total = in_turn(call, split_reductions(call.kernel, parts) or ())
            self.steps += map(self.call, partial_sums)
            return total
        call = self.simple_left(call, flat, roles)
        return self.panels(call, collapsed(call.kernel), pack=way == "packed")

    def chosen(self, call: Call, flat: Kernel, roles: Product) -> str:
        """The way that a product of matrices takes."""
        size = self.size(flat, roles)
        ways = ["packed", "plain"]
        if size.pitch is not None and not size.turned:
            ways.append("panels")
        if self.is_along(flat, roles):
            ways.append("dots")
        given = self.arrays_of(call, roles.right, flat)
        frozen = all(array in self.frozen for array in given)
        if self.pair_of(call.kernel, flat, roles) is not None:
            if byte_factors(flat, roles):
                return "pairs"  # four at once, where any other way widens each
            if frozen or self.target.pairs or self.fits_matrices(flat, roles):
                ways.append("pairs")
        if self.only is not None:
            ways = [self.only] if self.only in ways else ["plain"]
        shared = min((self.uses[call.name, array] for array in given), default=1)
        return choose_product(size, ways, 0.0 if frozen else 1 / max(1, shared), self.target)

    def size(self, flat: Kernel, roles: Product) -> Size:
        """What the choice looks at."""
        extent = {axis: usual(n) for axis, n in flat.extents.items()}
        rows = prod(extent[axis] for axis in flat.free_axes(roles.left) - set(roles.k))
        own = flat.free_axes(roles.right) & set(roles.outer)
        if own:  # products of a batch: each has its own factors
            rows = extent[roles.row] if roles.row else 1
        dtype = "i8" if byte_factors(flat, roles) else flat.dtypes[roles.stage.name]
        itemsize = NUMPY[dtype].itemsize
        step, inner = self.strides_of(flat, roles.right, roles.column, roles.k)
        columns, tile = flat.extents[roles.column], self.tile(flat, roles)
        return Size(
            batch=prod(extent[axis] for axis in own),
            rows=rows,
            columns=extent[roles.column],
            depth=prod(extent[axis] for axis in roles.k),
            itemsize=itemsize,
            pitch=(inner if step == 1 else step) * itemsize or None,
            turned=step > 1,
            tile=tile,
            is_ragged=isinstance(columns, Dim) or columns % tile[1] != 0,
            in_strips=self.strips(flat, roles) is not None,
            is_made=not lies_along(flat, roles),
        )

    def strides_of(self, flat: Kernel, factor: Expr, axis: str, inner: tuple[str, ...]) -> tuple[int, int]:
        """As of product_calls.py; layers are alike, and each is asked many times."""
        key = flat, factor, axis, inner
        if key not in self._strides:
            self._strides[key] = strides_of(*key)
        return self._strides[key]

    def arrays_of(self, call: Call, expr: Expr, flat: Kernel) -> list[Array]:
        read_here = {e.buffer for e in walk(expr) if isinstance(e, Read)}
        return [a for a, b in zip(call.inputs, flat.inputs, strict=True) if b.name in read_here]

    def maker(self, array: Array) -> tuple[Call | None, list[Array]]:
        """The call that makes an array, if one does, and the array under all the shapes that it has since."""
        shapes = [array]
        for step in reversed(self.steps):
            if shapes[-1] in step.outputs:
                if not isinstance(step, Alias):
                    return (step if isinstance(step, Call) else None), shapes
                shapes.append(step.inputs[0])
        return None, shapes

    # ---- both factors along the sum
    def is_along(self, flat: Kernel, roles: Product) -> bool:
        """Whether both factors are contiguous along the one summed axis, which fills vectors."""
        if len(roles.k) != 1 or usual(flat.extents[roles.k[0]]) < 2 * self.target.lanes:
            return False
        sides = (self.strides_of(flat, factor, roles.k[0], ()) for factor in (roles.left, roles.right))
        return all(step == 1 for step, _ in sides)

    def dots(self, flat: Kernel, roles: Product) -> Schedule:
        """Vectors along the sum, in tiles of so many sums that additions follow each other at once: 3 x 3 run
        at 70 GF/s and 2 x 2 at 46 (of 32 x 784 x 256; EPYC "Zen 4" by AVX2, one thread, 2026-11-30).  As many
        sums as lanes are added up best: where four rows are, 4 x 2 run as fast, and of short sums faster (of
        7 x 64 x 2000: 44 GF/s, and 3 x 3 at 33).  A large right factor is read once, for all rows."""
        wide, rows = max(1, bits(flat.dtypes[roles.stage.name]) // 32), 1
        side = 2 if wide > 1 else 4 if self.target.registers >= 32 else 3
        most, sizes, order = side * side, {}, list[Step]()
        if roles.row is not None:
            height = usual(flat.extents[roles.row])
            if side == 3 and balanced_tile(height, 4) == 4:
                side, most = 4, 8
            rows = sizes[roles.row] = balanced_tile(height, side)
            if not goes_by_rows(height, self.size(flat, roles), self.target):
                rest = (axis for axis in names(flat.parallel) if axis not in (roles.row, roles.column))
                order.append(Reorder((*rest, roles.column, roles.row)))
        sizes[roles.column] = balanced_tile(usual(flat.extents[roles.column]), most // rows)
        return Schedule(Collapse(), *order, Vectorise(roles.k[0]), *tiles(sizes), Join())

    # ---- pairs
    def pair_of(self, kernel: Kernel, flat: Kernel, roles: Product) -> Neighbours | None:
        """The axis of the kernel whose neighbours can be multiplied two by two, or four by four; None where
        none can."""
        axis = next((name for name, by in chains_of(kernel, flat)[roles.k[-1]].terms if by == 1), "")
        extent = kernel.extents.get(axis, 1)
        if isinstance(extent, Dim):
            return None
        if (bytes_ := byte_factors(flat, roles)) is not None:
            return self.bytes_of(kernel, flat, roles, axis, bytes_)
        fits = self.target.pairs or self.fits_matrices(flat, roles)
        if not (fits or self.is_few_by_halves(flat, roles)):
            return None
        if flat.dtypes[roles.stage.name] != "f32" or extent % 2:
            return None
        sides = roles.left, roles.right
        if not all(is_narrow(flat, e) or self.rounds and flat.dtype_of(e) == "f32" for e in sides):
            return None
        return Neighbours(axis, "bf16", "bf16", extent)

    def is_few_by_halves(self, flat: Kernel, roles: Product) -> bool:
        """Whether weights of bfloat16 lie in pairs for a few rows, which are read so and widened: as they lie
        for many rows, which matrix registers take, so that programs for both may share them."""
        rows = usual(flat.extents[roles.row]) if roles.row else 1
        if not self.target.matrix or rows >= MATRIX_ROWS or not is_narrow(flat, roles.right):
            return False
        return not self.fits_matrices(flat, roles)  # by rows of several axes, say

    def bytes_of(
        self, kernel: Kernel, flat: Kernel, roles: Product, axis: str, dtypes: tuple[str, str]
    ) -> Neighbours | None:
        """The axis of a product of bytes, which is made longer where its points don't come out even."""
        extent = int(kernel.extents[axis])
        full = sure(product_of(kernel))
        longer = can_deepen(kernel, replace(full, turned=roles.turned), axis)
        in_matrices = self.fits_matrices(flat, roles)
        if not in_matrices and longer and extent == flat.extents[roles.k[-1]]:
            filled = filling(extent, NEIGHBOURS["i8"])
            in_matrices = 2 * extent > filled and self.fits_matrices(flat, roles, filled)
            extent = filled if in_matrices else extent
        found = of_bytes(dtypes, self.target, in_matrices)
        if found is None:
            return None
        extent += -extent % NEIGHBOURS[found[1]]
        return Neighbours(axis, *found, extent) if longer or extent == kernel.extents[axis] else None

    def pairs(self, call: Call, flat: Kernel, roles: Product) -> Call:
        """The call in pairs along the sum, its right factor packed, its left one laid along the sum."""
        found = self.pair_of(call.kernel, flat, roles)
        assert found is not None
        kernel = call.kernel
        if found.extent != kernel.extents[found.axis]:
            full = replace(sure(product_of(kernel)), turned=roles.turned)
            kernel = deepened(kernel, full, found.axis, found.extent)
        kernel, _, pair = split_axis(kernel, found.axis, found.count)
        call = replace(call, kernel=kernel)
        flat = collapsed(kernel)
        roles = sure(by_columns(flat))
        if found.right == "bf16" and self.is_few_by_halves(flat, roles) and is_narrow(flat, roles.left):
            call = self.computed_left(call, roles.turned, "f32")  # once, and not for each panel
        elif not lies_along(flat, roles, found.left):
            call = self.computed_left(call, roles.turned, found.left)
        return self.panels(call, collapsed(call.kernel), replace(found, axis=pair))

    def fits_matrices(self, flat: Kernel, roles: Product, depth: int = 0) -> bool:
        """Whether matrix registers hold the sums of a product of pairs, whose right factor is yet to pack.

        depth: of the innermost summed axis, where that is made longer.
        """
        dtypes = byte_factors(flat, roles)
        in_bytes = dtypes is not None and dtypes[0] in BYTES
        is_float = flat.dtypes[roles.stage.name] == "f32"
        has = self.target.byte_matrix if in_bytes else self.target.matrix and is_float
        if not has or roles.row is None:
            return False
        if any(isinstance(flat.extents[axis], Dim) for axis in roles.k):
            return False
        count = NEIGHBOURS["i8" if in_bytes else "bf16"]
        rows, depth = prod(self.matrix_rows(flat, roles).values()), depth or int(flat.extents[roles.k[-1]])
        deep = depth % count == 0 and pairs_at_once(depth // count) >= FEWEST_PAIRS
        if in_bytes:  # a left factor that lies across the sum is copied
            return (rows >= MATRIX_ROWS or len(roles.k) > 1) and deep
        return (rows >= MATRIX_ROWS or len(roles.k) > 1) and deep and not self.strips(flat, roles)

    def matrix_rows(self, flat: Kernel, roles: Product) -> dict[str, int]:
        """The rows that matrix registers hold, by axis: two registers along one, or one of each of two."""
        extent = {axis: usual(flat.extents[axis]) for axis in roles.m}
        apart = {axis: self.strides_of(flat, roles.left, axis, ())[0] for axis in roles.m}
        near = sorted(roles.m, key=lambda axis: (apart[axis], -extent[axis]))
        row = next((axis for axis in near if 2 * extent[axis] >= MATRIX_ROWS), near[0])
        is_open = isinstance(flat.extents[row], Dim)  # of any number few are left
        rows = {row: 2 * SIDE if is_open else -(-extent[row] // -(-extent[row] // (2 * SIDE)))}
        other = next((axis for axis in near if axis != row and extent[axis] > 1), None)
        return {other: 2} | rows if other is not None and rows[row] <= SIDE else rows

    # ---- panels
    def panels(self, call: Call, flat: Kernel, pack: bool | Neighbours, packed: str = "") -> Call:
        """The call by panels of columns, its right factor packed or where it lies.

        pack: True, or the axis of its pairs.  packed: the buffer that lies so for matrix registers already.
        """
        pairs = pack if isinstance(pack, Neighbours) else None
        roles = sure(by_columns(flat))
        target, extent = self.target, {axis: usual(n) for axis, n in flat.extents.items()}
        row = roles.row
        in_matrices = pairs is not None and (bool(packed) or self.fits_matrices(flat, roles))
        widened = pairs is not None and pairs.right == "bf16" and not (in_matrices or target.pairs)
        if in_matrices:
            held = self.matrix_rows(flat, roles)
            *_, row = held
            rows, width = held[row], SIDE * (1 + (extent[roles.column] > SIDE))
        else:
            rows, width = self.tile(flat, roles)
            if widened:
                width = SIDE * (1 + (extent[roles.column] > SIDE))
            held = {row: rows} if row else {}
        height = extent[row] if row else 1
        vectors = width // target.lanes
        block, columns = rows * max(1, min(8, -(-height // rows))), width
        strips = self.strips(flat, roles)
        if strips is not None:
            block, columns = self.waiting_block(flat, roles)
        size, narrow = self.size(flat, roles), self.stays_narrow(flat, roles)
        by_rows = row is not None and goes_by_rows(height, size, target)
        steps: list[Step] = []
        if pack:
            if not packed:
                call, packed = self.with_packed(call, flat, roles, width, pairs)
            flat = collapsed(call.kernel)
            roles = sure(by_columns(flat))
            steps.append(Pack(packed, roles.column))
            if widened:
                assert pairs is not None
                steps += [Unroll(pairs.axis, pairs.count), Apart(roles.k[-2], SUMS)]
            elif pairs:
                steps.append(pairs.step(pairs.axis))
            elif (narrow or self.is_alike(flat, roles)) and not strips:
                steps.append(Apart(roles.k[-1], SUMS))
            if not in_matrices:
                weight = hint(call.inputs[-1].nbytes)
                panels = -(-extent[roles.column] // columns) * prod(extent[axis] for axis in roles.batch)
                is_open = any(isinstance(axis.extent, Dim) for axis in flat.axes)  # tiles are not known
                readers = 1 if by_rows or strips or is_open else -(-height // rows)
                ahead = asked_for(packed, roles.column, weight, panels, readers, target)
                if not isinstance(ahead, Prefetch) or (weight > FAR_BYTES and height <= FEW_ROWS):
                    steps.append(ahead)
        elif strips is None:
            steps += self.next_columns(flat, roles, width)
        if not in_matrices and self.passes_caches(flat):
            steps.append(Stream())
        rest = [axis for axis in names(flat.parallel) if axis not in (row, roles.column)]
        above = [axis for axis in rest if in_matrices and axis in roles.m]  # rows of the same right factor
        rest = [axis for axis in rest if axis not in above]
        if in_matrices:
            weight = usual(call.inputs[-1].nbytes) // prod(extent[axis] for axis in roles.batch)
            block, by_rows = self.matrix_block(flat, roles, above, weight, (rows, columns))
        inner = [*above, *([row] if row else [])]
        inner.insert(1 if by_rows else 0, roles.column)
        if not (pairs or narrow or strips) and target.core.steps > 1:
            steps.append(Unroll(roles.k[-1], target.core.steps))
        steps += [Vectorise(roles.column, vectors), Block(roles.column, columns), Peel(roles.column)]
        if row:
            steps += [*tiles(held), *([Block(row, block)] if block > rows else [])]
            if in_matrices:
                steps.append(Matrix(row))
            elif rows > 1 and _after(flat) * rows * vectors > LONG_TILE:
                steps.append(Roll(row))
        if strips is not None:
            steps += [strips, *self.copied(flat, roles)]
        return replace(call, how=Schedule(Collapse(), Reorder((*rest, *inner)), *steps))

    def next_columns(self, flat: Kernel, roles: Product, width: int) -> Iterator[Prefetch]:
        """How the columns of the next panels are asked for of a right factor where it lies, if that is beyond
        the second cache: a row of a panel is two lines of another page, which nothing else reads ahead.

        144 channels to 24 on 56 x 56, batch 8: 5.7 ms in place of 11.6 (a Xeon with AVX-512, one thread,
        2026-12-01).
        """
        step, apart = self.strides_of(flat, roles.right, roles.column, roles.k)
        if step != 1 or apart < 2 * PANELS_AHEAD * width:
            return
        (buffer,) = (flat.buffers[e.buffer] for e in walk(roles.right) if isinstance(e, Read))
        itemsize = NUMPY[buffer.dtype].itemsize
        if is_far(prod(map(usual, buffer.shape)) * itemsize, self.target) and apart * itemsize % PAGE:
            yield Prefetch(buffer.name, PANELS_AHEAD * width * itemsize)

    def passes_caches(self, flat: Kernel) -> bool:
        """Whether what is written goes past the caches, which would read its lines first, two of a row.

        24 channels to 144 on 56 x 56, batch 8: 4.4 ms in place of 8.3 (likewise).
        """
        written = sum(prod(map(usual, b.shape)) * NUMPY[b.dtype].itemsize for b in flat.outputs)
        return written >= self.target.core.streams

    def matrix_block(
        self, flat: Kernel, roles: Product, above: list[str], weight: int, tile: tuple[int, int]
    ) -> tuple[int, bool]:
        """The rows of a block, and whether one (of windows, an image) meets all panels before the next one
        does, or a panel all blocks.

        above: the rows' axes beside theirs.  weight: bytes of its panels.  2048 rows of 1024 with 4096
        columns: 970 GF/s in place of 560 (an Intel Xeon with AMX, one thread, 2026-11-27).
        """
        rows, columns = tile
        (left,) = (e for e in walk(roles.left) if isinstance(e, Read))
        *_, row = self.matrix_rows(flat, roles)
        height, buffer = usual(flat.extents[row]), flat.buffers[left.buffer]
        nbytes, near = prod(map(usual, buffer.shape)) * NUMPY[buffer.dtype].itemsize, self.target.core.cache
        nbytes //= prod(usual(flat.extents[axis]) for axis in roles.batch)  # of each its own
        block = rows * max(1, min(8, -(-height // rows)))
        while not above and block > rows and block * (nbytes // height) > near // 2:
            block -= rows
        images = usual(flat.extents[above[0]]) if above else -(-height // block)
        panels = -(-usual(flat.extents[roles.column]) // columns)
        return block, images_together(nbytes // images, weight, panels, images, self.target) > 0

    def tile(self, flat: Kernel, roles: Product) -> tuple[int, int]:
        """The rows and the columns of the sums that registers hold."""
        target, extent = self.target, {axis: usual(n) for axis, n in flat.extents.items()}
        dtype = flat.dtypes[roles.stage.name]
        wide = max(1, bits(dtype) // 32)  # registers for a vector
        registers = target.sums
        height = extent[roles.row] if roles.row else 1
        # Narrow weights lie alike for any number of rows: programs for one and for many may share them.
        is_narrowed = made_of_bytes(flat, roles) or self.stays_narrow(flat, roles)
        is_alike = self.is_alike(flat, roles)
        many = max(height, USUAL) if is_narrowed or is_alike else height
        vectors = MOST_VECTORS
        while vectors > 1 and vectors * wide * min(many, registers // (2 * wide)) > registers:
            vectors //= 2
        while vectors > 1 and vectors // 2 * target.lanes >= extent[roles.column]:
            vectors //= 2
        is_open = is_alike or roles.row is not None and isinstance(flat.extents[roles.row], Dim)
        found = {vectors: registers // (vectors * wide)}
        if target.core.vectors > 2 and vectors < MOST_VECTORS and not is_narrowed:
            turned = self.strides_of(flat, roles.right, roles.column, roles.k)[0] > 1
            tested = turned and not self.frozen and 4 * target.core.packs_ragged < target.core.packs
            for count in range(3, MOST_VECTORS):
                most = registers // (count * wide)
                if tested and extent[roles.column] % (count * target.lanes):
                    continue  # each call would pack panels that are not full
                if count * wide <= target.core.vectors or height <= most and not is_open:
                    found[count] = most
        if (
            roles.row
            and self.strides_of(flat, roles.left, roles.row, ())[0] * NUMPY[dtype].itemsize % PAGE == 0
        ):
            found = {vectors: min(most, 8) for vectors, most in found.items()}
        columns = -(-extent[roles.column] // target.lanes)
        tiles_ = [  # of any number of rows few are left
            (min(most, many) if is_open else balanced_tile(height, most, target.core.tile / n), n)
            for n, most in found.items()
        ]
        # of equal ones that which loads least, a register for each row and vector
        rows, vectors = min(tiles_, key=lambda tile: (of_tiles(many, columns, tile, target.core), sum(tile)))
        return min(rows, height), vectors * target.lanes

    def is_alike(self, flat: Kernel, roles: Product) -> bool:
        """Whether a single row's weights lie as they would for any number of rows."""
        return self.any_rows and (roles.row is None or usual(flat.extents[roles.row]) == 1)

    # ---- long sums
    def strips(self, flat: Kernel, roles: Product) -> Strips | None:
        """How a long sum is gone over that reads both factors along their rows, and so a line of the left one
        for each of its points: in strips, whose lines stay near while all columns meet them.  None where the
        left factor stays near as a whole."""
        if len(roles.k) != 1 or roles.row is None:
            return None
        depth, height = flat.extents[roles.k[0]], usual(flat.extents[roles.row])
        points = prod(usual(flat.extents[axis]) for axis in flat.free_axes(roles.left))  # those of all parts
        left = points * NUMPY[flat.dtypes[roles.stage.name]].itemsize
        along, _ = self.strides_of(flat, roles.left, roles.row, ())
        few = height <= 2 * self.tile(flat, roles)[0] or left <= self.target.core.cache // 2
        if usual(depth) < LONG_SUM or along != 1 or few:
            return None
        return Strips(roles.k[0], STRIP if isinstance(depth, Dim) else -(-depth // (depth // STRIP)))

    def copied(self, flat: Kernel, roles: Product) -> list[Copy]:
        """The left factor, if the rows of a strip lie so far apart that few of them stay in the nearest cache
        (result 256 x 64, sum of 7224: 61 GF/s in place of 48, EPYC "Zen 3", one thread, 2026-11-26)."""
        left, row = roles.left, roles.row
        while isinstance(left, Cast):
            left = left.arg
        height = flat.extents[row] if row is not None else 0
        if not isinstance(left, Read) or isinstance(height, Dim) or height < self.target.lanes:
            return []
        buffer = flat.buffers[left.buffer]
        apart = hint(buffer.offset(left.index).coefficient(roles.k[0])) * NUMPY[buffer.dtype].itemsize
        reads = sum(isinstance(e, Read) and e.buffer == buffer.name for e in walk(roles.stage.value))
        if apart <= NEAR_ROWS or reads > 1 or not is_floating(buffer.dtype):
            return []
        return [Copy(buffer.name, row or "")]

    def waiting_block(self, flat: Kernel, roles: Product) -> tuple[int, int]:
        """The rows and the columns of the sums that wait on the stack while strips are gone over: of a short
        axis all, so that few blocks read the other's factor again.  A sum of any length is not cut in parts:
        there are more blocks then, for several threads."""
        tile, width = self.tile(flat, roles)
        most = WAITING_BYTES // NUMPY[flat.dtypes[roles.stage.name]].itemsize
        height, columns = usual(flat.extents[roles.row or ""]), usual(flat.extents[roles.column])
        few = most // min(columns, WAITING_COLUMNS)
        if isinstance(flat.extents[roles.k[0]], Dim):
            few = min(few, tile * max(2, -(-height // (OPEN_UNITS * tile))))
        rows = _even_block(height, tile, few)
        return rows, _even_block(columns, width, most // rows)

    def parts(self, flat: Kernel, roles: Product) -> int:
        """In how many parts a long sum is cut, so that there is work for several threads, and each part of
        the factors is read in one stream; 1 for a sum that is not."""
        if self.strips(flat, roles) is None or any(isinstance(n, Dim) for n in flat.extents.values()):
            return 1
        extent = {axis: int(n) for axis, n in flat.extents.items()}
        blocks = dict(zip((roles.row, roles.column), self.waiting_block(flat, roles), strict=True))
        units = prod(-(-extent[axis.name] // blocks.get(axis.name, 1)) for axis in flat.parallel)
        height, columns, depth = extent[roles.row or ""], extent[roles.column], extent[roles.k[0]]
        small = depth * (height + columns) // (4 * height * columns)  # partial sums beside the factors
        return max(1, min(UNITS // units, depth // LONG_PART, small))

    def simple_left(self, call: Call, flat: Kernel, roles: Product, widened: bool = True) -> Call:
        """The call with its left factor computed before, where it would be computed for every panel again.

        widened: halves are made floats, too.
        """
        is_half = widened and narrow_dtype(flat, roles.left) in HALVES
        if not is_half and not any(isinstance(e, Op) for e in walk(roles.left)):
            return call
        return self.computed_left(call, roles.turned, flat.dtype_of(roles.left))

    def computed_left(self, call: Call, turned: bool, dtype: str) -> Call:
        """The call with its left factor as an array of a dtype, its sum innermost: computed by a call before,
        which calls of one factor share."""
        kernel = call.kernel
        full = replace(sure(product_of(kernel)), turned=turned)
        left = full.left
        axes = [axis for axis in (*kernel.parallel, *full.stage.axes) if axis.name in kernel.free_axes(left)]
        buffer = Buffer(fresh(kernel, "left"), dtype, tuple(a.extent for a in axes))
        at = tuple(Affine(((axis.name, 1),)) for axis in axes)
        made = self.shared(part_of(call, "left", narrowed(kernel, left, dtype), buffer, tuple(axes), at))
        return instead(call, left, buffer, at, made)

    def shared(self, made: Call) -> Array:
        """What a call makes; equal calls are made once."""
        (array,) = self.all_shared(made)
        return array

    def all_shared(self, made: Call) -> tuple[Array, ...]:
        """The same of a call that makes several arrays."""
        key = made.kernel, made.inputs
        if key not in self.made:
            self.steps.append(made)
            if all(array in self.frozen for array in made.inputs):
                self.frozen |= set(made.outputs)
            self.made[key] = made.outputs
        return self.made[key]

    def with_packed(
        self, call: Call, flat: Kernel, roles: Product, width: int, pair: Neighbours | None = None
    ) -> tuple[Call, str]:
        """The call on the packed factor, and the buffer's name; packing is a call before it.

        pair: the neighbours that lie side by side, innermost.
        """
        kernel = call.kernel
        factor = replace(sure(product_of(kernel)), turned=roles.turned).right
        dtype, columns = flat.dtype_of(roles.right), flat.extents[roles.column]
        if not is_floating(dtype) or self.stays_narrow(flat, roles):
            dtype = narrow_dtype(flat, roles.right) or dtype
        if pair:
            dtype = pair.right
        free = flat.free_axes(roles.right)
        outer = [axis for axis in flat.parallel if axis.name in free and axis.name in roles.outer]
        summed = [axis for axis in flat.axes if axis.name in roles.k]
        panel = Axis(fresh(flat, "p"), (columns + (width - 1)) // width)
        lane = Axis(fresh(flat, "x"), width)
        column = Affine.of({panel.name: width, lane.name: 1})
        chains = chains_of(kernel, flat)
        at, sums = coordinate(chains[roles.column]), [chains[axis.name] for axis in summed]
        index = [*(chains[axis.name] for axis in outer), op("floor_div", at, width)]
        axes, indices = [*outer, panel, *summed, lane], {roles.column: column}
        index += [*sums, op("remainder", at, width)]
        if pair:  # [..., k, width]  ->  [..., k / 2, width, 2]
            count = pair.count
            half = Axis(fresh(flat, "h"), int(summed[-1].extent) // count)
            two = Axis(fresh(flat, "d"), count)
            axes[axes.index(summed[-1])] = half
            axes.append(two)
            indices[summed[-1].name] = Affine.of({half.name: count, two.name: 1})
            index[-2] = Affine(tuple((name, by // count) for name, by in sums[-1].terms if name != pair.axis))
            index.append(Affine(((pair.axis, 1),)))
        shape = tuple(axis.extent for axis in axes)
        is_padded = isinstance(columns, Dim) or columns % width
        reads = partial(guarded, flat, roles.right) if is_padded else None
        value = Substitution(indices=indices, reads=reads).expr(narrowed(flat, roles.right, dtype))
        buffer = Buffer(fresh(kernel, "packed"), dtype, shape)
        flat_call = self.flattened(call, flat, value)
        at_axes = tuple(Affine(((a.name, 1),)) for a in axes)
        part = part_of(flat_call, "pack", value, buffer, tuple(axes), at_axes)
        if pair:  # a row of the panel is two vectors, the lanes of one between those of the other
            size = min(PACKED_ROWS, half.extent)
            part = replace(
                part, how=Schedule(Vectorise(lane.name), Tile(two.name, count), Block(half.name, size))
            )
        made = self.shared(part)
        return instead(call, factor, buffer, tuple(index), made), buffer.name

    def stays_narrow(self, flat: Kernel, roles: Product) -> bool:
        """Whether a right factor of halves is packed as these, and widened where it is multiplied: of one row
        896 x 2048 weights take 86 us in place of 136, in bfloat16 or float16, and as long by many as those
        of float32 (EPYC "Zen 4" by AVX2, one thread, 2026-11-30)."""
        dtype = narrow_dtype(flat, roles.right)
        return dtype == "bf16" or dtype == "f16" and self.target.has_halves

    def flattened(self, call: Call, flat: Kernel, value: Expr) -> Call:
        """A call of the collapsed kernel on the arrays that `value` reads, under the shapes that it has."""
        read_here = {e.buffer for e in walk(value) if isinstance(e, Read)}
        arrays, buffers = [], []
        for array, buffer in zip(call.inputs, flat.inputs, strict=True):
            if buffer.name in read_here:
                arrays.append(self.alias(array, buffer.shape))
                buffers.append(buffer)
        return replace(call, kernel=flat.replace(inputs=tuple(buffers)), inputs=tuple(arrays), how=None)

    def alias(self, array: Array, shape: tuple[int, ...]) -> Array:
        if array.shape == shape:
            return array
        key = ("alias", array, shape)
        if key not in self.made:
            made = Array(array.name, array.dtype, shape)
            self.steps.append(Alias((array,), (made,)))
            if array in self.frozen:
                self.frozen.add(made)
            self.made[key] = (made,)
        return self.made[key][0]


def _even_block(extent: int, tile: int, most: int) -> int:
    """Points of a block of whole tiles, no more than `most` where a tile has fewer, so that all blocks of an
    axis are nearly alike."""
    tiles_of_axis, tiles_of_block = -(-extent // tile), max(1, most // tile)
    blocks = -(-tiles_of_axis // tiles_of_block)
    return tile * -(-tiles_of_axis // blocks)
