"""A sound first schedule for any kernel on a CPU, and the units of work that follow from a schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ...ir.dims import Dim, evaluate, for_once, hint
from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine, Extent
from ...ir.kernel.form import Fold, Kernel, Local, Reduce, Stage, Store, names
from ...ir.kernel.scalar import Expr, Op, Read, Ref, walk
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import bits
from ...ir.memo import MEMO
from ..kernels.arrange_axes import STRIP
from ..kernels.product import Product, products
from .steps import CHUNK, Block, Keep, Scalar, Schedule, Step, Stream, Strips, Tile, Vectorise, tiles, unrolls
from .target import Target

ROWS, COLUMNS = 16, 256  # of a strip of sums over rows; 1,024 columns are no better, and fewer units
STREAM = 64 << 20  # bytes written: from here 21 to 27 % are gained by not reading them first (Zen 5)
MOST_TAPS = 5  # of a window, along a side
MOST_WRITTEN = 1024  # instructions, about, of all points of a short axis
USUAL = 64  # points of an axis that schedules are chosen for, where it may have any number
MOST_STRIDE = 4  # between lanes that are picked out of whole vectors
KEPT_BYTES = 64 << 10  # of stack for one kept Local: a row that is read again must stay in the nearest caches


def usual(extent: Extent) -> int:
    """The points of an axis to choose by: sizes that are symbols will be large, if they are small now."""
    if not isinstance(extent, Dim):
        return extent
    large = {name: max(size, USUAL) for name, size in for_once().items()}
    return max(hint(extent), evaluate(extent, large), USUAL)


@lru_cache(MEMO)
def default_schedule(kernel: Kernel, target: Target) -> Schedule:
    """A sound first choice: the axis most accesses are contiguous in, and registers to hide latency."""
    axes = _vector_axes(kernel)
    if not axes:
        return Schedule(Scalar(names(kernel.parallel)[-1] if kernel.parallel else None))
    stores = [(stage, kernel.buffers[stage.buffer].offset(stage.index)) for stage in kernel.stores]
    loads = [(s, kernel.buffers[access.buffer].offset(access.index)) for s, access in kernel.reads]
    short = _short_sums(kernel, target)
    vector = max(axes, key=lambda axis: _contiguity(kernel, axis, loads, stores, target, axis in short))
    if not lanes_apart(kernel, vector):
        return Schedule(Scalar(vector))
    held = max(1, min(_most_vectors(kernel, vector), _size(kernel, vector) // target.lanes))
    for roles in products(kernel):
        if roles.is_matmul and vector in roles.n + roles.m:
            across = (roles.m if vector in roles.n else roles.n)[-1]
            rows = _tile(kernel, across, (8, 6, 4, 3, 2))
            unroll = unrolls({roles.k[-1]: min(4, _size(kernel, roles.k[-1]))})
            return Schedule(Vectorise(vector, min(2, held)), *tiles({across: rows}), *unroll)
        if taps := _taps(kernel, roles, vector, target):
            return Schedule(Vectorise(vector), *tiles(taps))
        if window := _window(kernel, roles, vector):
            return Schedule(Vectorise(vector), *window)
    across = _transposed_axis(kernel, vector, target.lanes)
    if across:
        in_strips = across == kernel.parallel[-1].name and _size(kernel, across) == STRIP
        block = [Block(vector, STRIP)] if in_strips else []
        return Schedule(Vectorise(vector), Tile(across, target.lanes), *block)
    beside, far = _short_axis(kernel, vector, target)
    if beside:
        others = [a for a in names(kernel.parallel) if a not in (vector, beside)]
        blocks = [Block(vector, target.lanes), Block(others[-1], STRIP)] if others else [Block(vector, STRIP)]
        return Schedule(Vectorise(vector), Tile(beside, _size(kernel, beside)), *(blocks if far else []))
    if vector in kernel.parallel_names and any(store.combine and store.axes for store in kernel.stores):
        held = max(1, min(8, _size(kernel, vector) // target.lanes))  # vectors for each index that is read
        return Schedule(Vectorise(vector, held), Block(vector, held * target.lanes))
    lanes = _lanes(kernel, vector, target)
    if strips := _strips(kernel, vector, held * target.lanes):
        return Schedule(Vectorise(vector, held), *strips)
    return Schedule(
        Vectorise(vector, held, lanes),
        *_rows(kernel, vector),
        *_block(kernel, vector, held * target.lanes),
        *map(Keep, sorted(_kept(kernel, vector))),
        *_streams(kernel, vector),
    )


def _lanes(kernel: Kernel, vector: str, target: Target) -> int:
    """Those of a shorter vector that an axis fills, where it leaves half of the target's empty; else 0.

    Windows of 8 images take 2.1 ms in place of 5.9 (Winograd's tiles of 32 x 128 x 128, EPYC "Zen 5", one
    thread, 2026-11-28): stores that leave lanes out take longer than whole ones.  Code over one axis serves
    every size, and stays.
    """
    size, rows = _size(kernel, vector), len(kernel.parallel) > 1 and vector in kernel.parallel_names
    return size if rows and size in (4, 8) and size < target.lanes else 0


def _block(kernel: Kernel, vector: str, size: int) -> list[Block]:
    """Points in a unit of work: whole blocks of vectors, fewer where each point is a loop of its own."""
    inner = max((math.prod(int(axis.extent) for axis in stage.axes) for stage in kernel.stages), default=1)
    points = max(1, CHUNK // max(1, inner) // size) * size
    return [Block(vector, points)] if points != CHUNK and vector in kernel.parallel_names else []


def _strips(kernel: Kernel, vector: str, width: int) -> list[Step]:
    """Sums over rows that are longer than `width` columns: ROWS at a time, each a stretch of COLUMNS.

    Whole sums of a few columns at a time come to another page with each row: 1024 x 1024 take 105 us in
    place of 76, 4096 x 8192 10.3 ms in place of 6.7 (EPYC "Zen 4" with AVX2, one thread, 2026-11-30).
    """
    sums = [stage for stage in kernel.stages if isinstance(stage, Reduce)]
    others = [stage for stage in kernel.stages if stage not in sums]
    if vector not in kernel.parallel_names or len({stage.axes for stage in sums}) != 1:
        return []
    summed, *more = names(sums[0].axes)
    inlined = map(Substitution(refs=kernel.locals).stage, sums)
    known = {stage.name for stage in sums}
    is_one_pass = not any(isinstance(e, Ref) and e.name in known for s in inlined for e in walk(s.value))
    offsets = [kernel.buffers[read.buffer].offset(read.index) for _, read in kernel.reads]
    if (
        more
        or any(isinstance(stage, Fold) or stage.axes for stage in others)
        or not is_one_pass
        or any(kernel.dtypes[name] == "bool" for name in known)
        or not any(offset.coefficient(vector) == 1 and offset.coefficient(summed) for offset in offsets)
        or not 2 * width <= min(COLUMNS, _size(kernel, vector))
        or _size(kernel, summed) < 2 * ROWS
    ):
        return []
    return [Block(vector, min(COLUMNS, _size(kernel, vector)) // width * width), Strips(summed, ROWS)]


def _streams(kernel: Kernel, vector: str) -> list[Stream]:
    """Of a pointwise kernel over one axis that writes more than caches hold, element beside element.

    The axis may be open, with the usual number of points here: the step says how many will do.
    """
    written = sum(bits(kernel.buffers[store.buffer].dtype) for store in kernel.stores)
    least, beside = -(-STREAM * 8 // max(written, 1)), Affine(((vector, 1),))
    fits = (
        names(kernel.parallel) == (vector,)
        and _size(kernel, vector) >= least
        and not runs_once(kernel)
        and all(isinstance(stage, (Store, Local)) and not stage.axes for stage in kernel.stages)
        and all(kernel.buffers[store.buffer].offset(store.index) == beside for store in kernel.stores)
        and not any(isinstance(part, Expr) for store in kernel.stores for part in store.index)
    )
    return [Stream(least)] if fits else []


def _rows(kernel: Kernel, vector: str) -> list[Tile]:
    """Two short rows at once: each ends in a chain of dependent steps.  A softmax over 64 gains a third."""
    reduces = any(isinstance(stage, (Reduce, Fold)) for stage in kernel.stages)
    if vector in kernel.parallel_names or not reduces or not kernel.parallel or _size(kernel, vector) > 512:
        return []
    rows = kernel.parallel[-1].name
    return [Tile(rows, 2)] if _tile(kernel, rows, (2,)) == 2 else []


def _taps(kernel: Kernel, roles: Product, vector: str, target: Target) -> dict[str, int]:
    """Short axes that one factor alone runs over, of a sum along the vectors: all at once, they read the
    other one once, and nearly the same of their own.

    The gradient of 96 depthwise 3 x 3 weights on 56 x 56, batch 32: 13 ms in place of 86 (EPYC "Zen 4", one
    thread, 2026-11-26).
    """
    if roles.is_matmul or vector not in roles.k or runs_once(kernel):
        return {}
    found: dict[str, int] = {}
    for axis in (*roles.m, *roles.n):
        size = _size(kernel, axis)
        if 1 < size <= MOST_TAPS and size * math.prod(found.values()) <= target.sums:
            found[axis] = size
    both = max(roles.batch, key=lambda axis: _size(kernel, axis), default="")
    if found and both and 2 * math.prod(found.values()) <= target.sums and _size(kernel, both) > 1:
        found[both] = 2
    return found


def _short_sums(kernel: Kernel, target: Target) -> set[str]:
    """Summed axes that may be the vector's though they fill none, as lanes can be left out: of sums for taps.

    Weight gradients of narrow images: 64 depthwise 3 x 3 kernels, 32 images of 25 x 5, 5.2 ms and so 0.69,
    8 images of 14 x 14 1.12 ms and 0.18 (an Intel Xeon with AVX-512, one thread, 2026-11-30).
    """
    if not target.has_masks:
        return set()
    return {axis for roles in products(kernel) for axis in roles.k if _taps(kernel, roles, axis, target)}


def _window(kernel: Kernel, roles: Product, vector: str) -> list[Step]:
    """Sums over a small window for each place of a row: all taps written out, for a few rows at once.

    In a loop each waits for the last, and says anew which lanes are beside the image: the gradient of 64
    depthwise 3 x 3 kernels to 32 images of 25 x 5 took 3.8 ms in place of 0.5, of 32 to 4 of 56 x 56 1.25 in
    place of 0.27 (an Intel Xeon with AVX-512, one thread, 2026-11-30).
    """
    sizes = {axis: kernel.extents[axis] for axis in roles.k}
    rows = [axis for axis in names(kernel.parallel) if axis != vector]
    small = all(not isinstance(size, Dim) and size <= MOST_TAPS for size in sizes.values())
    if roles.is_matmul or not small or not rows or vector not in kernel.parallel_names:
        return []
    return [*tiles({rows[-1]: _tile(kernel, rows[-1], (4, 3, 2))}), *unrolls(sizes)]


def _size(kernel: Kernel, axis: str) -> int:
    return int(kernel.extents[axis])


def _tile(kernel: Kernel, axis: str, sizes: tuple[int, ...]) -> int:
    """The first of `sizes` that the axis holds, and divides where points must not be computed twice."""
    return next(
        (
            n
            for n in sizes
            if n <= _size(kernel, axis) and not (_size(kernel, axis) % n and runs_once(kernel))
        ),
        1,
    )


def runs_once(kernel: Kernel) -> bool:
    """Whether computing a point twice would change the result: stores that accumulate or are in place."""
    return not kernel.is_order_free or any(buffer.inplace for buffer in kernel.outputs)


def _vector_axes(kernel: Kernel) -> list[str]:
    """The axes that may be the vector axis: not those that a fold or a `set` store runs in sequence.

    Of a fold that can be merged the fastest axis may: each lane then meets its points in order.
    """
    if any(store.combine == "set" for store in kernel.stores):
        return []
    sequential: set[str] = set()
    for stage in kernel.stages:
        if isinstance(stage, Fold):
            sequential.update(names(stage.axes if stage.merge is None else stage.axes[:-1]))
    return [axis.name for axis in kernel.axes if axis.name not in sequential]


def lanes_apart(kernel: Kernel, vector: str) -> bool:
    """Whether neighbours along the axis accumulate into different elements, in no order.

    One dimension of the index that is another place for each of them is enough.
    """
    return not any(store.combine == "set" for store in kernel.stores) and all(
        any(isinstance(part, Affine) and part.coefficient(vector) for part in store.index)
        for store in kernel.stores
        if store.combine is not None and (vector in kernel.parallel_names or vector in names(store.axes))
    )


def _contiguity(
    kernel: Kernel,
    axis: str,
    loads: list[tuple[Stage, Affine]],
    stores: list[tuple[Stage, Affine]],
    target: Target,
    short: bool,
) -> tuple[bool, int, int, int]:
    """Whether the axis fills a vector; how many elements have stride 1 along it; stores break ties, and then
    elements that are a few apart.

    loads, stores: the kernel's, with the offsets of what they read and write.  short: see `_short_sums`.

    Where an instruction may leave lanes out, a short parallel axis that all stores are contiguous in does
    too: a row of 10 takes one masked store, where 16 rows at once took 10 scattered ones.
    """
    beside = [(stage, offset) for stage, offset in loads + stores if offset.coefficient(axis) == 1]
    reached = sum(_points(kernel, stage, offset) for stage, offset in beside)
    stored = sum(offset.coefficient(axis) == 1 for _, offset in stores)
    masked = short or axis in kernel.parallel_names and stored == len(stores) and target.has_masks
    strides = [offset.coefficient(axis) for _, offset in loads + stores]
    near = sum(not isinstance(by, Dim) and 1 < abs(by) <= MOST_STRIDE for by in strides)
    return _size(kernel, axis) >= (3 if masked else target.lanes), reached, stored, near


def _points(kernel: Kernel, stage: Stage, offset: Affine) -> int:
    """How often a stage comes to another element, at one parallel point; what is the same for a whole axis of
    such points, as a channel's mean for its image, is read before its loop."""
    if not stage.axes:
        return int(all(axis.extent == 1 or axis.name in offset.names for axis in kernel.parallel))
    return math.prod(int(axis.extent) for axis in stage.axes if axis.name in offset.names)


def _most_vectors(kernel: Kernel, vector: str) -> int:
    """Independent vectors to hide the latency of additions: few where the body needs registers itself."""
    reductions = [stage for stage in kernel.stages if isinstance(stage, (Reduce, Fold))]
    if vector not in kernel.parallel_names:
        return 4 if reductions else 1
    return 1 if not reductions else 2 if any(is_long(kernel, s, frozenset()) for s in reductions) else 8


_LENGTH = {"exp": 15, "log": 25, "erf": 40, "tanh": 30, "sigmoid": 25, "sin": 40, "cos": 40, "pow": 60}
_LONG = 12  # instructions


def is_long(kernel: Kernel, stage: Stage, keep: frozenset[str]) -> bool:
    """Whether one step of a stage is many instructions, those of the Locals that are not kept included."""
    return instructions(kernel, (stage,), keep) > _LONG


def instructions(kernel: Kernel, stages: Sequence[Stage], keep: frozenset[str]) -> int:
    """Roughly what one step of some stages takes, each Local that they need and is not kept counted once."""
    total, seen = 0, set()
    waiting = [expr for stage in stages for expr in stage.exprs]
    while waiting:
        for expr in walk(waiting.pop()):
            if isinstance(expr, Op):
                total += _LENGTH.get(expr.name, 1)
            elif isinstance(expr, Ref) and expr.name not in keep | seen and expr.name in kernel.locals:
                seen.add(expr.name)
                waiting.append(kernel.locals[expr.name].value)
    return total


def transposed_axis(kernel: Kernel, schedule: Schedule, target: Target) -> str | None:
    """The axis along which the schedule transposes squares of registers."""
    if schedule.vectorised is None:
        return None
    across = _transposed_axis(kernel, schedule.vectorised.axis, target.lanes)
    return across if schedule.tiles.get(across or "") == target.lanes else None


def _transposed_axis(kernel: Kernel, vector: str, lanes: int) -> str | None:
    """A strided read beside a contiguous axis: a square of registers is transposed there."""
    if runs_once(kernel) or any(isinstance(stage, (Reduce, Fold)) for stage in kernel.stages):
        return None
    for _, access in kernel.reads:
        strides = kernel.buffers[access.buffer].offset(access.index)
        across = [a for a in sorted(kernel.parallel_names) if a != vector and strides.coefficient(a) == 1]
        if can_transpose(kernel, access, vector) and across and _size(kernel, across[0]) % lanes == 0:
            return across[0]
    return None


def _short_axis(kernel: Kernel, vector: str, target: Target) -> tuple[str | None, bool]:
    """A short axis along which a strided read's elements are neighbours: all of them are taken at once, while
    their lines are near.  And whether lanes are so far apart that each takes a line of its own.

    512 x 512 weights of 3 x 3 taps to [9, 512, 512] take 0.64 ms in place of 2.4 (EPYC, 2026-11-25), rows of
    12 turned over by AVX2 a sixth (50,000 of them: 0.32 ms, 2.0 as gathers; Xeon of 2 GHz, 2026-12-01); every
    second place of rows of 640, both ways, 0.52 in place of 1.14 where lines are read from end to end.
    """
    if vector not in kernel.parallel_names or runs_once(kernel):
        return None, False
    if any(isinstance(stage, (Reduce, Fold)) for stage in kernel.stages):
        return None, False
    for _, access in kernel.reads:
        strides = kernel.buffers[access.buffer].offset(access.index)
        if strides.coefficient(vector) > 1:
            for axis in sorted(kernel.parallel_names - {vector}):
                size = _size(kernel, axis)
                written = size * instructions(kernel, kernel.stages, frozenset())
                fits = size < target.lanes or size < 4 * target.lanes and written <= MOST_WRITTEN
                if strides.coefficient(axis) == 1 and size > 1 and fits:
                    return axis, strides.coefficient(vector) > MOST_STRIDE
    return None, False


def can_transpose(kernel: Kernel, access: Read, vector: str) -> bool:
    """Whether a read strides over the vector axis within proved bounds, in elements of 1, 2 or 4 bytes."""
    buffer = kernel.buffers[access.buffer]
    stride = buffer.offset(access.index).coefficient(vector)
    return (
        (isinstance(stride, Dim) or stride > 1)
        and buffer.dtype != "bool"  # a byte in memory, and a bit in registers
        and bits(buffer.dtype) in (8, 16, 32)
        and not any(isinstance(part, Expr) for part in access.index)
        and not kernel.unproved(access)
    )


def _kept(kernel: Kernel, vector: str) -> frozenset[str]:
    """The Locals over the vector axis whose array is small."""
    return frozenset(
        s.name
        for s in kernel.stages
        if isinstance(s, Local)
        and names(s.axes) == (vector,)
        and kernel.dtypes[s.name] != "bool"
        and _size(kernel, vector) * bits(kernel.dtypes[s.name]) // 8 <= KEPT_BYTES
    )


def most_kept(dtype: str, schedule: Schedule) -> int:
    """The elements of a kept Local along an axis that is left open: a tile's points share the bytes."""
    return KEPT_BYTES * 8 // bits(dtype) // math.prod(schedule.tiles.values())


def units(kernel: Kernel, schedule: Schedule) -> int:
    """The number of units of work: tiles of the parallel axes, times chunks of the vector axis."""
    return math.prod(count or 0 for _, count in unit_axes(kernel, schedule))


def unit_axes(kernel: Kernel, schedule: Schedule) -> list[tuple[str, int | None]]:
    """The axes that a unit number counts, slowest first, with the number of blocks along each.

    None for a symbolic axis: it is the slowest, which no other's number depends on.
    """
    counts: list[tuple[str, int | None]] = []
    for axis in kernel.parallel:
        if isinstance(axis.extent, Dim):
            counts.append((axis.name, None))
            continue
        extent, size = axis.extent, schedule.block(axis.name)
        tile = schedule.tiles.get(axis.name, 1)
        if axis.name != schedule.axis and extent:
            if tile > extent or extent % tile and runs_once(kernel) or size < extent and size % tile:
                raise KernelError(
                    f"{kernel.name}: a tile fits its axis and its block, and divides both where points must "
                    "run once",
                    f"axis: {axis}",
                    f"tile: {tile}, block: {size}",
                )
        counts.append((axis.name, -(-extent // size)))
    return counts


def balanced_tile(extent: int, most: int, apart: float = 1.0) -> int:
    """The tile that takes least: few points are computed twice, and tiles are few.

    apart: what each takes beside its points, as so many of them.
    """
    most = min(extent, most)
    sizes = range(most, (most - 1) // 2, -1)
    return min(sizes, key=lambda n: -(-extent // n) * (n + apart))
