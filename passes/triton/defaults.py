"""The schedule that follows from a kernel: its axes, its strides, and how much shared memory there is.

    a contraction       tl.dot on tiles of M and N, a step of K at a time; the rest of K in loops
    long local axes     a row of them is one dimension of the tensors, rows side by side the other
    a transposition     square tiles
    all else            a flat tile of points, short local axes as loops

What a program holds in registers at once stays near 16 numbers a thread for each value.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Fold, Kernel, Stage, names
from ...ir.kernel.scalar import Coordinate, Expr, Op, Read, Ref, walk
from ...ir.kernel.types import kind
from ..kernels.product import Product, products
from .halves import half_factors
from .scatter import ordered, serial_axes
from .schedule import Schedule, Tile, check_bound, points, power_of_two

SHARED = 96 * 1024  # bytes for the steps of a dot that are loaded ahead: what every card from sm_80 on has
PROGRAMS = 128  # about as many as a large GPU runs at once: below it, tiles are made smaller
LONG = 32  # points of a local axis from which it is a dimension: the lanes of a warp
ROW = 8192  # points of a row that are held at once; longer ones are gone along in steps
STEP = 4096
GROUP = 8  # rows of tiles, in a product of so many tiles that the L2 does not hold all columns


def default_schedule(kernel: Kernel, shared: int = SHARED) -> Schedule:
    """How the kernel runs unless somebody knows better.

    shared: bytes of shared memory for a program.  Raises KernelError for a kernel that is not bound.
    """
    check_bound(kernel)
    serial = serial_axes(kernel)
    parallel = tuple(axis for axis in names(kernel.parallel) if axis not in serial)
    if serial or any(store.axes for store in ordered(kernel)):
        return Schedule((Tile("flat", parallel, 256),) if parallel else (), serial=serial)
    local_store = any(store.axes for store in kernel.stores)
    for roles in products(kernel) if not local_store else ():
        if roles.is_matmul and min(points(kernel, roles.m), points(kernel, roles.n)) > 1:
            return _product(kernel, roles, shared)
    blocks = _blocks(kernel)
    if blocks:
        return _rows(kernel, parallel, blocks)
    if not parallel:
        return Schedule()
    last = max(parallel, key=lambda axis: _stores_along(kernel, axis))
    strided = [axis for axis in _transposed_axes(kernel, last) if axis != last]
    if strided and not local_store:
        return Schedule((Tile("row", (strided[0],), 32), Tile("column", (last,), 32)))
    return Schedule((Tile("flat", parallel, 256 if any(s.axes for s in kernel.stages) else 1024),))


# ---- products
def _product(kernel: Kernel, roles: Product, shared: int) -> Schedule:
    """tl.dot, which adds in f32; products of other types add up in registers, an outer product at a time."""
    m, n, k = (points(kernel, axes) for axes in (roles.m, roles.n, roles.k))
    batch = points(kernel, roles.batch)
    halves = half_factors(kernel, roles)
    if kernel.dtypes[roles.stage.name] != "f32":
        return Schedule((Tile("m", roles.m, 32), Tile("n", roles.n, 32)))
    most, step = (128, 64) if halves else (64, 32)
    sizes = [min(most, max(16, power_of_two(m))), min(most, max(16, power_of_two(n)))]
    while batch * -(-m // sizes[0]) * -(-n // sizes[1]) < PROGRAMS and max(sizes) > 32:
        sizes[sizes[0] < sizes[1]] //= 2
    widest = max(roles.k, key=lambda axis: int(kernel.extents[axis]))
    # short axes (a window's, few channels) are fused, so that a step is filled
    block = (widest,) if int(kernel.extents[widest]) >= 16 else roles.k
    step = min(step, max(16, power_of_two(points(kernel, block))))
    stage = sum(sizes) * step * (2 if halves else 4)
    stages = max(1, min(3, shared // stage))
    warps = 8 if sizes[0] * sizes[1] >= 128 * 128 else 4 if sizes[0] * sizes[1] >= 64 * 32 else 2
    counts = -(-m // sizes[0]), -(-n // sizes[1])
    group = GROUP if counts[0] > GROUP and counts[1] > 1 and k > 1 else 1
    return Schedule(
        (Tile("m", roles.m, sizes[0]), Tile("n", roles.n, sizes[1])),
        (Tile("k", block, step),),
        dot=roles,
        group=group,
        num_warps=warps,
        num_stages=stages,
    )


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


def _blocks(kernel: Kernel) -> tuple[Tile, ...]:
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
        Tile(f"row{n or ''}", axes, min(power_of_two(points(kernel, axes)), ROW))
        for n, axes in enumerate(found)
    )


def _stands_alone(kernel: Kernel, axes: tuple[str, ...]) -> bool:
    """Whether no stage runs over some of the axes and not over all, in that order."""
    return all(names(s.axes) == axes or not set(names(s.axes)) & set(axes) for s in kernel.stages)


def _rows(kernel: Kernel, parallel: tuple[str, ...], blocks: tuple[Tile, ...]) -> Schedule:
    """Rows held at once, or steps along them; beside each other if they are short, or run along columns."""
    across = _across(kernel, parallel, blocks)
    if across is not None:
        beside = min(64, power_of_two(int(kernel.extents[across])))
        size = max(2048 // beside, 1)
        narrow = tuple(Tile(b.name, b.axes, min(b.size, size)) for b in blocks)
        return Schedule((Tile("column", (across,), beside),), narrow)
    longest = max(points(kernel, b.axes) for b in blocks)
    most = ROW if longest <= ROW else STEP
    blocks = tuple(Tile(b.name, b.axes, min(b.size, most)) for b in blocks)
    size = max(b.size for b in blocks)
    held = max(1, 1024 // size)
    tiles = (Tile("rows", parallel, held),) if held > 1 and parallel else ()
    return Schedule(tiles, blocks, num_warps=min(16, max(4, size // 512)))


def _across(kernel: Kernel, parallel: tuple[str, ...], blocks: tuple[Tile, ...]) -> str | None:
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


def _transposed_axes(kernel: Kernel, last: str) -> list[str]:
    """Axes along which some read has stride 1 while it strides over `last`."""
    offsets = [kernel.buffers[access.buffer].offset(access.index) for _, access in kernel.reads]
    return [
        axis
        for offset in offsets
        for axis, coefficient in offset.terms
        if coefficient == 1 and axis in kernel.parallel_names and offset.coefficient(last) > 1
    ]
