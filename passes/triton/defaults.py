"""The schedule that follows from a kernel: its axes, its strides, and how much shared memory there is.

    a contraction       tl.dot on tiles of M and N, a step of K at a time; the rest of K in loops
    long local axes     a row of them is one dimension of the tensors, rows side by side the other
    a transposition     square tiles
    all else            a flat tile of points, short local axes as loops

What a program holds in registers at once stays near 16 numbers a thread for each value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Fold, Kernel, Stage, names
from ...ir.kernel.scalar import Coordinate, Expr, Op, Read, Ref, walk
from ...ir.kernel.types import bits, kind
from ..kernels.product import Product, element, products
from ..schedules.gpu import (
    IEEE,
    WARPS,
    Along,
    Descriptors,
    Dot,
    Group,
    Lanes,
    Persistent,
    Precision,
    Registers,
    Serial,
    Stages,
    Warps,
)
from ..schedules.steps import Schedule, Step
from .descriptors import describable
from .halves import half_factors
from .scatter import ordered, serial_axes
from .schedule import check_bound, num_warps, points, power_of_two
from .target import ANY, Target

SHARED = 3 * 1024  # bytes of shared memory beside the steps of a dot that are loaded ahead
PROGRAMS = 128  # about as many as a large GPU runs at once: below it, tiles are made smaller
# A product of halves loads a quarter less by tiles of 128 x 256 than by 128 x 128: on an H200 it runs at 762
# and 783 TF/s of 4096 and 8192, and by those at 648 and 656 (benchmarks/results/gpu_tiles.txt, 2026-11-27).
SQUARE, WIDE = (128, 128), (128, 256)
# Products of so many tiles that cores do one after another are two in a hundred quicker by descriptors and
# programs that go on, of 4096 and of 8192 halves; of f32, which leave no room beside what is loaded ahead,
# slower (benchmarks/results/gpu_ways.txt, 2026-11-27).
CORES = 132  # of an H100 and of an H200
LONG = 32  # points of a local axis from which it is a dimension: the lanes of a warp
ROW = 8192  # points of a row that are held at once; longer ones are gone along in steps
STEP = 4096
# A fold's states are merged between threads, which takes as long as many steps: of argmax an H200 takes 63 us
# by steps of 1024, and 88 where a row of 4096 is held (benchmarks/results/gpu_ways.txt, 2026-11-27).
MERGED = 1024
MANY, MANY_LANES = 24, 128  # elements of a point from which on a thread has one of these points alone
GROUP = 8  # rows of tiles, in a product of so many tiles that the L2 does not hold all columns


def default_schedule(kernel: Kernel, target: Target = ANY, precision: str = IEEE) -> Schedule:
    """How the kernel runs unless somebody knows better.  Raises KernelError for one that is not bound.

    precision: of products of f32; AMD's GPUs multiply these as they are, some on their matrix cores.
    """
    check_bound(kernel)
    made = _of_narrow_warps(kernel, target, IEEE if target.backend == "hip" else precision)
    if target.warp == 32:
        return made
    others = (step for step in made.steps if not isinstance(step, Warps))
    return Schedule(*others, Warps(target.warps(num_warps(made))))


def _of_narrow_warps(kernel: Kernel, target: Target, precision: str) -> Schedule:
    """The schedule whose warps are 32 threads, as all numbers here were chosen for."""
    serial = serial_axes(kernel)
    parallel = tuple(axis for axis in names(kernel.parallel) if axis not in serial)
    if serial or any(store.axes for store in ordered(kernel)):
        steps: list[Step] = [Lanes("flat", 256, parallel)] if parallel else []
        steps += [Serial(serial)] if serial else []
        return Schedule(*(steps or [Warps(WARPS)]))
    local_store = any(store.axes for store in kernel.stores)
    for roles in products(kernel) if not local_store else ():
        if roles.is_matmul and min(points(kernel, roles.m), points(kernel, roles.n)) > 1:
            # what is stored side by side are columns, so that the right factor mostly lies so as well
            return _product(kernel, roles.by_columns or roles, target, precision)
    blocks = _blocks(kernel)
    if blocks:
        return _rows(kernel, parallel, blocks)
    if not parallel:
        return Schedule(Warps(WARPS))
    if len({*kernel.reads}) + len(kernel.stores) > MANY:
        return Schedule(Lanes("flat", MANY_LANES, parallel))
    last = max(parallel, key=lambda axis: _stores_along(kernel, axis))
    strided = [axis for axis in _transposed_axes(kernel, last) if axis != last]
    if strided and not local_store:
        across = strided[0], last
        # a copy of halves by 64 x 64 takes 13.4 us where it takes 15.5 by 32 x 32, of f32 as long
        if len(kernel.reads) == 1 == len(kernel.stores) and all(int(kernel.extents[a]) >= 64 for a in across):
            return Schedule(Lanes("row", 64, across[:1]), Lanes("column", 64, across[1:]), Warps(8))
        return Schedule(Lanes("row", 32, across[:1]), Lanes("column", 32, across[1:]))
    # a norm's channels come first in its kernel, and last where images lie channels last
    parallel = tuple(sorted(parallel, key=lambda axis: _stride(kernel, axis), reverse=True))
    return Schedule(Lanes("flat", 256 if any(s.axes for s in kernel.stages) else 1024, parallel))


# ---- products
def _product(kernel: Kernel, roles: Product, target: Target, precision: str) -> Schedule:
    """tl.dot, which adds in f32; products of other types add up in registers, an outer product at a time."""
    m, n, k = (points(kernel, axes) for axes in (roles.m, roles.n, roles.k))
    batch, shared = points(kernel, roles.batch), target.shared - SHARED
    halves = half_factors(kernel, roles)
    if kernel.dtypes[roles.stage.name] != "f32":
        return Schedule(Lanes("m", 32, roles.m), Lanes("n", 32, roles.n))
    on_cores = halves or precision != IEEE or target.has_f32
    registers = precision == "tf32" and not halves and _one_lies_apart(kernel, roles)
    # the factor in registers is the left one; other units are quick where the sum is innermost in that:
    # a product of 4096 runs at 44 TF/s so, and at 14 the other way round (an H200, 2026-11-27)
    lies_along = _is_innermost(kernel, roles.left, roles.depth)
    if registers and lies_along or not on_cores and not lies_along and _one_lies_apart(kernel, roles):
        roles, m, n = roles.turned_over, n, m
    most, step = (128, 64) if halves else (128, 32) if on_cores else (64, 32)
    if not (on_cores or target.has_room):  # RDNA: a thread has its part of a whole step in registers
        step = 16
    if precision == "tf32x3" and 3 * sum(SQUARE) * 64 * 4 <= shared:
        step = 64
    sizes = [min(most, max(16, power_of_two(m))), min(most, max(16, power_of_two(n)))]
    while batch * -(-m // sizes[0]) * -(-n // sizes[1]) < PROGRAMS and max(sizes) > 32:
        sizes[sizes[0] < sizes[1]] //= 2
    fits = (
        target.has_room and target.buffers(target.ahead) * sum(WIDE) * step * (2 if halves else 4) <= shared
    )
    if on_cores and fits and precision != "tf32x3" and sizes == [*SQUARE] and n > SQUARE[1]:
        wide, square = (_area_of_a_core(batch, m, n, tile) for tile in (WIDE, SQUARE))
        sizes = [*WIDE] if wide <= square else sizes
    widest = roles.depth
    # short axes (a window's, few channels) are fused, so that a step is filled
    block = (widest,) if int(kernel.extents[widest]) >= 16 else roles.k
    step = min(step, max(16, power_of_two(points(kernel, block))))
    stage = sum(sizes) * step * (2 if halves else 4)
    most = 4 if registers else target.ahead
    stages = next(n for n in range(most, 0, -1) if n == 1 or target.buffers(n) * stage <= shared)
    warps = 8 if sizes[0] * sizes[1] >= 128 * 128 else 4 if sizes[0] * sizes[1] >= 64 * 32 else 2
    if not (on_cores or target.has_room):
        warps = 8
    if target.warp == 64 and sizes == [*WIDE]:
        warps = 16  # by 8 what is loaded ahead and the sums leave no registers for a second wavefront
    counts = -(-m // sizes[0]), -(-n // sizes[1])
    is_grouped = counts[0] > GROUP and counts[1] > 1 and k > 1
    made = Schedule(
        Lanes("m", sizes[0], roles.m),
        Lanes("n", sizes[1], roles.n),
        Along("k", step, block),
        Dot(roles.stage.name),
        *([Group(GROUP)] if is_grouped else []),
        *([Precision(precision)] if precision != IEEE and not halves else []),
        *([Registers()] if registers else []),
        Warps(warps),
        Stages(stages),
    )
    goes_on = halves and sizes == [*WIDE] and target.name == "sm_90" and math.prod(counts) >= 2 * CORES
    if not goes_on or len(kernel.reads) > 2 or bits(kernel.outputs[0].dtype) > 16 or len(kernel.stores) > 1:
        return made
    described = Schedule(*made.steps, Descriptors(), Persistent(CORES))
    return described if batch == 1 and describable(kernel, described, roles) else made


def _one_lies_apart(kernel: Kernel, roles: Product) -> bool:
    """Whether the sum is innermost in one of the factors alone."""
    return sum(_is_innermost(kernel, factor, roles.depth) for factor in (roles.left, roles.right)) == 1


def _is_innermost(kernel: Kernel, factor: Expr, axis: str) -> bool:
    access = element(factor)
    return access is not None and kernel.buffers[access.buffer].offset(access.index).coefficient(axis) == 1


def _area_of_a_core(batch: int, m: int, n: int, tile: tuple[int, int]) -> int:
    """Elements that the core with the most programs computes."""
    programs = batch * -(-m // tile[0]) * -(-n // tile[1])
    return -(-programs // PROGRAMS) * math.prod(tile)


# ---- rows
def blockable(kernel: Kernel, stage: Stage) -> bool:
    """Whether a stage may take many points of its axes at once."""
    if isinstance(stage, Fold):
        return mergeable(kernel, stage) or running(kernel, stage) is not None
    return not scans_of(kernel, stage) or all(running(kernel, scan) for scan in scans_of(kernel, stage))


def mergeable(kernel: Kernel, stage: Fold) -> bool:
    """Whether a fold's states can be kept by lane and merged: the merge speaks of nothing but states."""
    own = {*stage.names, *(f"right.{name}" for name in stage.names)}
    return (
        stage.merge is not None
        and all(kind(kernel.dtypes[name]) in "fiu" for name in stage.names)
        and not any(
            isinstance(e, (Read, Coordinate)) or isinstance(e, Ref) and e.name not in own
            for e in walk(*stage.merge)
        )
    )


def running(kernel: Kernel, stage: Fold) -> tuple[str, Expr] | None:
    """The word and the values of a scan that only combines: s = word(s, value).  Else None."""
    (step, *others), (name, *_) = stage.step, stage.names
    if not stage.scan or others or not isinstance(step, Op) or step.name not in ("add", "mul", "max", "min"):
        return None
    if kind(kernel.dtypes[name]) not in "fiu":
        return None
    for state, value in (step.args, step.args[::-1]):
        own = isinstance(state, Ref) and state.name == name
        if own and not any(isinstance(e, Ref) and e.name == name for e in walk(value)):
            return step.name, value
    return None


def scans_of(kernel: Kernel, stage: Stage) -> list[Fold]:
    """The scans whose states a stage reads at points of its axes, in order, with those that these read."""
    found: list[Fold] = []
    needed = kernel.needs(stage)
    for scan in reversed([s for s in kernel.stages if isinstance(s, Fold) and s.scan]):
        if needed.intersection(scan.names) and scan is not stage:
            found.append(scan)
            needed |= kernel.needs(scan)
    return found[::-1]


def _blocks(kernel: Kernel) -> tuple[Along, ...]:
    """A block for the last local axis of each stage, where one of them is long; short ones are loops.

    Axes that are all short are one block where together they are long, and where points alone would not fill
    the GPU.
    """
    stages = [s for s in kernel.stages if s.axes and not (isinstance(s, Fold) and s.scan)]
    loops = {a for s in stages if not blockable(kernel, s) for a in names(s.axes)}
    loops |= {
        a
        for s in kernel.stages
        if isinstance(s, Fold) and s.scan and not running(kernel, s)
        for a in names(s.axes)
    }
    few = points(kernel, names(kernel.parallel)) < PROGRAMS * 128
    found: dict[tuple[str, ...], None] = {}
    longest = 0
    for stage in stages:
        own = names(stage.axes)
        if loops.intersection(own) or not points(kernel, own):
            continue
        last = own[-1:]
        if few and points(kernel, last) < LONG <= points(kernel, own) and _stands_alone(kernel, own):
            last = own
        found[last] = None
        longest = max(longest, points(kernel, last))
    if longest < LONG:
        return ()
    return tuple(
        Along(f"row{n or ''}", min(power_of_two(points(kernel, axes)), ROW), axes)
        for n, axes in enumerate(found)
    )


def _stands_alone(kernel: Kernel, axes: tuple[str, ...]) -> bool:
    """Whether no stage runs over some of the axes and not over all, in that order."""
    return all(names(s.axes) == axes or not set(names(s.axes)) & set(axes) for s in kernel.stages)


def _rows(kernel: Kernel, parallel: tuple[str, ...], blocks: tuple[Along, ...]) -> Schedule:
    """Rows held at once, or steps along them; beside each other if they are short, or run along columns."""
    across = _across(kernel, parallel, blocks)
    if across is not None:
        beside = min(64, power_of_two(int(kernel.extents[across])))
        size = max(2048 // beside, 1)
        return Schedule(Lanes("column", beside, (across,)), *_at_most(size, blocks))
    longest = max(points(kernel, b.axes) for b in blocks)
    most = ROW if longest <= ROW else STEP
    folds = any(isinstance(stage, Fold) and not stage.scan for stage in kernel.stages)
    blocks = _at_most(MERGED if folds else most, blocks)
    size = max(b.size for b in blocks)
    held = max(1, 1024 // size)
    tiles = [Lanes("rows", held, parallel)] if held > 1 and parallel else []
    # what goes along in steps waits for memory: softmax of 100,000 halves takes 122 us so, and 130 by 8 warps
    each = 512 if longest <= ROW else 256
    return Schedule(*tiles, *blocks, Warps(min(16, max(4, size // each))))


def _at_most(size: int, blocks: tuple[Along, ...]) -> tuple[Along, ...]:
    return tuple(replace(block, size=min(block.size, size)) for block in blocks)


def _across(kernel: Kernel, parallel: tuple[str, ...], blocks: tuple[Along, ...]) -> str | None:
    """The parallel axis along which most of what is read in the blocks is consecutive, if it is one."""
    count: dict[str | None, int] = {}
    for stage, offset in _offsets(kernel):
        block = next((b for b in blocks if b.axes[-1] in names(stage.axes)), None)
        if block is None or not offset.coefficient(block.axes[-1]):
            continue
        along = block.axes[-1]
        near = [a for a in (along, *parallel) if offset.coefficient(a) == 1 and kernel.extents[a] != 1]
        axis = None if not near or near[0] == along else near[0]
        if axis is not None and int(kernel.extents[axis]) < 8:
            axis = None
        count[axis] = count.get(axis, 0) + 1
    return max(count, key=lambda axis: (count[axis], axis is None)) if count else None


def _offsets(kernel: Kernel) -> Iterator[tuple[Stage, Affine]]:
    for stage, access in kernel.reads:
        yield stage, kernel.buffers[access.buffer].offset(access.index)
    for store in kernel.stores:
        yield store, kernel.buffers[store.buffer].offset(store.index)


# ---- points
def _stores_along(kernel: Kernel, axis: str) -> int:
    """How many stores have stride 1 along the axis; later axes win ties."""
    return sum(kernel.buffers[s.buffer].offset(s.index).coefficient(axis) == 1 for s in kernel.stores)


def _stride(kernel: Kernel, axis: str) -> int:
    """How far apart neighbours along the axis are in what is stored."""
    offsets = (kernel.buffers[s.buffer].offset(s.index) for s in kernel.stores)
    return sum(abs(int(offset.coefficient(axis))) for offset in offsets)


def _transposed_axes(kernel: Kernel, last: str) -> list[str]:
    """Axes along which some read has stride 1 while it strides over `last`."""
    offsets = [kernel.buffers[access.buffer].offset(access.index) for _, access in kernel.reads]
    return [
        axis
        for offset in offsets
        for axis, coefficient in offset.terms
        if coefficient == 1 and axis in kernel.parallel_names and offset.coefficient(last) > 1
    ]
