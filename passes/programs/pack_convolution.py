"""Write a convolution over blocked images and a packed weight, as the kernels that the CPU runs.

    y[n, k, i, j] = sum(c, r, s) x[n, c, i+r-1, j+s-1 else 0] * w[k, c, r, s]
        ->
    p[k2, r, co, s, ci, kv, ki] = w[32*k2+16*kv+ki, 16*co+ci, r, s]
    y[n, 2*k2+kv, i, j, ki] = sum(r, co, s, ci) (x[n, co, i+r-1, j+s-1, ci else 0]
                                                 * p[k2, r, co, s, ci, kv, ki])

Weights are packed once, when they change.  Both are kernels as any other.  The second runs by rows of the
output: of a window that leaves the image above or below, the loop over r takes the rows inside (`bound`); to
the left and right the first and the last tile of a row have code of their own, in which taps outside are left
out (`peel`).  Of narrow images that windows don't leave, several rows run together.

In pairs of bfloat16 the sum over ci is one over halves of it and the two of a pair, which are the innermost
dimension of p and neighbours in x.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Store
from ...ir.kernel.scalar import Expr, Read, cast, read
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import NUMPY
from ..kernels.blocking import CHANNEL, block, can_block, fresh, split_axis
from ..kernels.collapse import collapsed
from ..kernels.product import Convolution
from ..schedules.choose_blocks import asked_for, images_together, is_far
from ..schedules.choose_product import of_tiles
from ..schedules.steps import (
    Block,
    Bound,
    Collapse,
    Pairs,
    Peel,
    Schedule,
    Vectorise,
    tiles,
    unrolls,
)
from ..schedules.target import Target

ROW_SUMS = 16  # of a tile along a row, at most
WIDE = 32  # registers, of which tiles hold so many sums that weights are read seldom
STREAMED = 16  # bytes of weights in a cycle, where they are read often
SHORT_ROW = 8  # places, which fill no tile along a row
DEEP = 128  # channels, of which a panel of the weight is too large for the nearest cache
UNIT = 56  # places of an image in a unit of work, about
SHARE = 1 / 8  # of the second cache, at most, for a panel of a weight from beyond it
MOST_TOGETHER = 32  # taps that are packed at once, in vectors that are made together
MOST_TAPS = 16  # along a row, for code that knows of each whether it lies in the image


@dataclass(frozen=True)
class Direct:
    """A convolution's kernels.

    kernel: the convolution itself, with the packed weight in place of the plain one.
    buffers: those of it that are blocked.  how: its schedule.
    """

    kernel: Kernel
    buffers: frozenset[str]
    how: Schedule
    pack: Kernel
    pack_schedule: Schedule


def direct(kernel: Kernel, roles: Convolution, target: Target, rounds: bool = False) -> Direct | None:
    """The kernels of a convolution by blocks of output channels; None where its arrays can't be blocked.

    rounds: whether both factors are rounded to bfloat16 where the target multiplies pairs of them; the image
    is an array of these then.
    """
    lanes = target.lanes
    given = [buffer.name for buffer in kernel.outputs]
    if can_block(kernel.buffers[roles.input].shape, lanes):
        given.append(roles.input)
    made = block(kernel, given, lanes, beside=[roles.weight])
    if made is None or roles.out not in made.axes:
        return None
    new, (out, lane) = made.kernel, made.axes[roles.out]
    channel, channel_lane = made.axes.get(roles.channel or "", (roles.channel, None))
    outside = new.unproved(_read(new, roles.input))
    if CHANNEL in outside:  # a depthwise one, of an image that is not blocked, beyond the last channel
        return None
    guarded = bool(outside)
    if guarded and None in roles.taps[:-1]:  # rows beside the image would be no taps of a loop
        return None
    by_rows = guarded or int(new.extents[roles.places[-1]]) >= 4
    place = None if rounds else _place_of_images(new, roles, target)
    blocks = int(new.extents[out])
    if place:
        tile = _tall_tile(place, blocks, _nbytes(new, roles.weight), target)
    else:
        tile = register_tile(new, roles, blocks, target, by_rows)
    order, beside = [out], {}
    if tile.vectors > 1:
        new, outer, inner = split_axis(new, out, tile.vectors)
        order, beside = [outer, inner], {inner: tile.vectors}
    *upper, last = roles.taps
    summed = [*upper, channel, last, channel_lane] if guarded else [channel, *roles.taps, channel_lane]
    summed = [axis for axis in summed if axis]
    pairs = list[str]()
    if rounds and target.pairs and channel_lane:
        new, half, pair = split_axis(new, channel_lane, 2)
        summed[summed.index(channel_lane)], channel_lane, pairs = half, half, [pair]
    axes, sums = [order[0], *summed, *order[1:], lane, *pairs], [*summed, *pairs]
    channels = int(kernel.buffers[roles.weight].shape[CHANNEL])
    halves = (channel, channel_lane) if channel and channel_lane and channels % lanes and not pairs else None
    pack, new = packed(new, roles, axes, sums, "bf16" if pairs else "f32", halves)
    (weight,) = (b.name for b in new.inputs if b.name not in kernel.buffers)
    new, images = _images_first(new, roles, weight, order[0], target)
    parallel = [*images[:-1], order[0], *images[-1:], *roles.places, *order[1:], lane]
    new = new.replace(parallel=tuple(Axis(axis, new.extents[axis]) for axis in parallel if axis))
    whole = [last] if guarded and last and int(new.extents[last]) <= MOST_TAPS else []
    step = steps(new, [axis for axis in summed if not guarded or axis not in upper], tile.size, whole)
    places, across = tile.places | beside, roles.places[-1]
    height = prod(int(new.extents[axis]) for axis in roles.places)
    readers = -(-height // prod(tile.places.values()))
    ahead = asked_for(weight, order[0], _nbytes(new, weight), int(new.extents[order[0]]), readers, target)
    how = Schedule(*map(Pairs, pairs), Vectorise(lane), *tiles(places), *unrolls(step))
    if place:
        size = tile.places[place.name]
        rows = Block(place.name, size * max(1, UNIT // size))
        how = Schedule(Collapse(), *how.steps, rows, ahead)
    elif by_rows:
        row = int(new.extents[across])
        by = [Block(across, row), Peel(across), Bound()]
        how = Schedule(*how.steps, *by, ahead)
    square = {channel_lane: lanes} if channel_lane and not pairs and not halves else dict.fromkeys(pairs, 2)
    if not pairs:
        square = _taps_together(pack, roles) or square
    return Direct(new, made.buffers, how, pack, Schedule(Vectorise(lane), *tiles(square)))


def _taps_together(pack: Kernel, roles: Convolution) -> dict[str, int]:
    """The innermost axes of taps, as many as may be taken at once: a channel's lie one after another.

    512 x 512 x 3 x 3 take 2.7 ms, and 7.6 where each vector gathered one tap of 16 channels (a Xeon with
    AVX-512 at 2 GHz, whose gathers take 3 cycles an element; one thread, 2026-12-01).
    """
    found: dict[str, int] = {}
    for axis in reversed(roles.taps):
        size = int(pack.extents[axis]) if axis else 1
        if axis and 1 < size <= MOST_TOGETHER // prod(found.values()):
            found[axis] = size
    return found


def _images_first(
    kernel: Kernel, roles: Convolution, packed: str, panel: str, target: Target
) -> tuple[Kernel, list[str | None]]:
    """The kernel, and the axes of its batch, the last of which stands behind that of the panels."""
    batch = roles.batch
    images = kernel.extents.get(batch or "", 1)
    if batch is None or roles.depthwise or not isinstance(images, int):
        return kernel, [batch]
    image, weight = _nbytes(kernel, roles.input), _nbytes(kernel, packed)
    together = images_together(image // max(1, images), weight, int(kernel.extents[panel]), images, target)
    if together < 2:
        return kernel, [batch, None] if together else [batch]
    kernel, *both = split_axis(kernel, batch, together)
    return kernel, [*both]


def _nbytes(kernel: Kernel, buffer: str) -> int:
    array = kernel.buffers[buffer]
    return prod(map(int, array.shape)) * NUMPY[array.dtype].itemsize


def by_channels(kernel: Kernel, roles: Convolution, target: Target) -> Schedule:
    """How a depthwise convolution runs on images whose channels are innermost: a channel in each lane."""
    guarded = bool(kernel.unproved(_read(kernel, roles.input)))
    across, last = roles.places[-1], roles.taps[-1]
    row = int(kernel.extents[across])
    by_rows = guarded or row >= 4
    tile = register_tile(kernel, roles, 1, target, by_rows)
    taps = [axis for axis in (roles.taps[-1:] if guarded else roles.taps) if axis]
    whole = [last] if guarded and last and int(kernel.extents[last]) <= MOST_TAPS else []
    how = [Vectorise(roles.out), *tiles(tile.places), *unrolls(steps(kernel, taps, tile.size, whole))]
    return Schedule(*how, *([Block(across, row), Peel(across), Bound()] if by_rows else []))


def _read(kernel: Kernel, buffer: str) -> Read:
    return next(access for _, access in kernel.reads if access.buffer == buffer)


# ---- register tiles


@dataclass(frozen=True)
class Tile:
    """Places of the output held together, by axis, and vectors of channels beside each of them."""

    places: dict[str, int]
    vectors: int

    @property
    def size(self) -> int:
        return prod(self.places.values()) * self.vectors


def register_tile(kernel: Kernel, roles: Convolution, blocks: int, target: Target, by_rows: bool) -> Tile:
    """The tile that takes the fewest cycles by a small model.

    A step of the sum takes an addition to each accumulator, two a cycle, but not less than the four cycles
    after which the next can follow; and one load for each place and vector of weights, two a cycle.  More
    than 16 accumulators spill, as LLVM loads the numbers of the next steps early: 14 ran at 262 GF/s and
    28 at 180 on one Zen 5 core.  Where tiles are small weights come from the second cache again and again.
    """
    registers = target.registers
    weights = target.lanes * 4 / STREAMED if registers < WIDE else 0.0
    sizes = [int(kernel.extents[axis]) for axis in roles.places]
    best: tuple[float, Tile] | None = None
    for vectors in (1,) if roles.depthwise else (4, 3, 2, 1):
        if blocks % vectors:
            continue
        for places in _place_tiles(sizes, by_rows):
            size = prod(places)
            if size * vectors > ROW_SUMS or (size + 1) * vectors >= registers:
                continue
            tiles = prod(-(-n // t) for n, t in zip(sizes, places, strict=True)) * blocks // vectors
            loads = (size * 2 if roles.depthwise else size + vectors) / 2
            cycles = tiles * (max(size * vectors / 2, loads, vectors * weights, 4) + 0.5)
            if best is None or cycles < best[0]:
                best = cycles, Tile(dict(zip(roles.places, places, strict=True)), vectors)
    assert best is not None
    return best[1]


def _place_of_images(kernel: Kernel, roles: Convolution, target: Target) -> Axis | None:
    """The axis of all places of an image, for tiles that hold more than those along a row; None for what has
    a window or steps over places.

    128 channels to 512 on 28 x 28, batch 8: 177 GF/s in place of 164, 1024 to 256 on 14 x 14 167 in place of
    157 (an Intel Xeon with AMX, one thread, 2026-11-28).  On a Zen 5 core 256 to 1024 and back on 14 x 14 246
    in place of 202, 160 to 960 on 7 x 7 250 and 210; fewer channels are as quick, or 3 % quicker, along rows.
    With half of the registers, whose tiles are short, 96 to 576 and back on 14 x 14 run at 84 GF/s and not at
    60, 64 to 256 and back on 56 x 56 at 78 and not at 50 (EPYC "Zen 4" by AVX2, one thread, 2026-11-30).
    """
    channels, row = int(kernel.buffers[roles.weight].shape[CHANNEL]), int(kernel.extents[roles.places[-1]])
    more = target.core.sums > ROW_SUMS or channels >= DEEP or row < SHORT_ROW  # or rows are as good
    if not (roles.is_pointwise and (more or target.registers < WIDE)):
        return None
    flat = collapsed(kernel)
    places = [axis for axis in flat.parallel if axis.name in roles.places]
    others = {axis.name for axis in kernel.axes if axis.extent != 1 and axis.name not in roles.places}
    if len(places) != 1 or not others <= {*flat.extents}:
        return None
    whole = prod(int(kernel.extents[axis]) for axis in roles.places)
    return places[0] if places[0].extent == whole else None


def _tall_tile(place: Axis, blocks: int, weight: int, target: Target) -> Tile:
    """The tile of places of a whole image that takes least: a product of matrices.

    weight: bytes of all of it.  The panels of one from afar are small, so that two of them stay near.  With
    few registers 6 x 2 run at 80 GF/s, 4 x 3 at 57, 12 x 1 at 54 and 3 x 4 at 45 (as above).
    """
    height, core = int(place.extent), target.core
    most = SHARE * core.cache * blocks // weight if is_far(weight, target) else blocks
    counts = [n for n in (4, 3, 2, 1) if blocks % n == 0 and n <= max(1, most)]
    if target.registers < WIDE:
        counts = [next(n for n in (2, 3, 1) if blocks % n == 0)]
    fits = [(rows, n) for n in counts for rows in range(1, min(height, target.sums // n) + 1)]
    rows, vectors = min(fits, key=lambda tile: of_tiles(height, blocks, tile, core))
    return Tile({place.name: rows}, vectors)


def _place_tiles(sizes: list[int], by_rows: bool) -> Iterable[tuple[int, ...]]:
    """Tiles of at most 16 places: along the last dimension, and of a few rows."""
    *others, width = sizes
    for across in range(1, min(width, 16) + 1):
        yield (*(1 for _ in others), across)
        for rows in (2, 3, 4):
            if others and not by_rows and rows <= others[-1] and rows * across <= 16:
                yield (*(1 for _ in others[:-1]), rows, across)


def steps(kernel: Kernel, summed: list[str], size: int, whole: list[str]) -> dict[str, int]:
    """How far the summed axes are unrolled: those of `whole` entirely, and of the innermost so much that a
    loop body has some 60 multiplications (some 90 with a whole axis, as each tap's are apart), since a long
    one no longer keeps its accumulators in registers, and takes its time to compile."""
    step = {name: int(kernel.extents[name]) for name in whole}
    room = (96 if whole else 64) // (size * prod(step.values()))
    for name in reversed(summed):
        extent = int(kernel.extents[name])
        if name not in step:
            step[name] = next(n for n in range(min(max(1, room), extent), 0, -1) if extent % n == 0)
            room //= step[name]
        if step[name] < extent or room < 2:
            break
    return step


# ---- packing


def packed(
    kernel: Kernel,
    roles: Convolution,
    axes: list[str],
    summed: list[str],
    dtype: str,
    halves: tuple[str, str] | None = None,
) -> tuple[Kernel, Kernel]:
    """The kernel that packs the weight in the order of `axes`, and the convolution that reads it so.

    summed: the order in which that one sums.  dtype: of the packed weight, and of the image.  halves: of
    channels that don't fill their last block, the axes of blocks and within one: those that there are lie one
    after another then, and the guard of the others has their products left out.
    """
    plain = kernel.buffers[roles.weight]
    access = _read(kernel, roles.weight)
    extents, name = dict(kernel.extents), fresh(kernel, "packed")
    parts = {axis: Affine(((axis, 1),)) for axis in axes}
    index, other = access.index, access.other
    if halves:
        outer, inner = halves
        channel, both = fresh(kernel, "c"), Affine.of({outer: int(extents[inner]), inner: 1})
        axes = [channel if axis == inner else axis for axis in axes if axis != outer]
        extents[channel], parts[channel] = plain.shape[CHANNEL], both
        index = tuple(Affine(((channel, 1),)) if part == both else part for part in index)
    own, at = (tuple(Affine(((axis, 1),)) for axis in axes), tuple(parts[axis] for axis in axes))
    shape = tuple(int(extents[axis]) for axis in axes)
    value = read("weight", index, other)
    pack = Kernel(
        "pack_weights",
        (replace(plain, name="weight"),),
        (Buffer("packed", dtype, shape),),
        tuple(Axis(axis, extents[axis]) for axis in axes),
        (Store("packed", own, _as(dtype, "f32", value)),),
    )
    weights = [a for _, a in kernel.reads if a.buffer == roles.weight]
    buffers = {roles.weight: Buffer(name, dtype, shape)}
    exprs: dict[Expr, Expr] = dict.fromkeys(
        weights, _as("f32", dtype, read(name, at, 0.0 if halves else None))
    )
    if dtype != "f32":
        buffers[roles.input] = replace(kernel.buffers[roles.input], dtype=dtype)
        exprs |= {a: cast(a, "f32") for _, a in kernel.reads if a.buffer == roles.input}
    new = Substitution(buffers=buffers, exprs=exprs).kernel(kernel)
    stages = tuple(
        replace(stage, axes=tuple(Axis(name, extents[name]) for name in summed))
        if getattr(stage, "name", None) == roles.stage.name
        else stage
        for stage in new.stages
    )
    return pack, new.replace(stages=stages)


def _as(dtype: str, given: str, value: Expr) -> Expr:
    """A value of one dtype in another."""
    return value if dtype == given else cast(value, dtype)
