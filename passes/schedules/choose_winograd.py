"""Winograd convolutions F(m x m, r x r): 2.25 to 4 times fewer multiplications, of 2 to 5 taps.

An image is cut into tiles of m x m outputs, each of which reads a window of n x n inputs, n = m + r - 1:

    y = At [ sum over c of (G w Gt) * (Bt x B) ] A

For each of the n * n positions the sum over channels is a matrix product, M = V U, of U = G w Gt and
V = Bt x B, which is made for some tiles at a time.  What fills vectors is one of two:

Channels, v vectors of outputs to a chunk.  U is made beforehand, once for each weight (`pack_winograd`).

    U[k / v, n * n, c, v / lanes, lanes]  V[n * n, c / lanes, tiles, lanes]  M[n * n, v / lanes, tiles, lanes]

Images.  The transforms are the same for every image and nothing is moved between lanes.  U is made first, in
scratch memory; then a unit of work is one tile of a few vectors, and rows are output channels.

    U[n * n, c, k]   V[n * n, c, vectors, lanes]   M[n * n, rows, vectors, lanes]
"""

from __future__ import annotations

from math import prod

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Reduce, Store
from ...ir.kernel.scalar import cast, read, ref
from ..kernels.blocking import can_block
from ..kernels.product import Convolution
from ..kernels.winograd import TILES, Shape, shape_of
from .steps import Winograd
from .target import Target

STEPS = 4  # of a sum over a block of channels, written out
STACK = 5 << 18  # bytes of stack that a thread may take for V and M
BLOCK_BYTES = 1 << 20  # of V and M, with channels in the lanes
# Tiles of a block, where the second cache holds U too: 25, for which 2 MiB have room, take 4 % longer for 64
# channels of 56 x 56 (a Xeon, 2026-11-27).
NEAR_TILES = 16


def apart(vectors: int, lanes: int) -> int:
    """The floats between positions of V or M: an odd number of vectors, or their stores meet in one set of a
    cache."""
    return (vectors + 1 + vectors % 2) * lanes


def pack_winograd(shape: tuple[int, ...], how: Winograd, lanes: int) -> Kernel:
    """U = G w Gt, in float64: a chunk of v channels is `how.vectors` vectors.

    u[k2, a, c, kv, ki] = sum(t) g[a, t] * w[32*k2+16*kv+ki, c, t]
    """
    outs, channels = shape[:2]
    taps = shape[2]
    positions, size = (how.tile + taps - 1) ** 2, how.vectors * lanes
    chunks, blocks = -(-outs // size), -(-channels // lanes)
    ragged = chunks * size != outs or blocks * lanes != channels
    axes = (Axis("k2", chunks), Axis("kv", how.vectors), Axis("c", blocks * lanes), Axis("a", positions))
    at = {axis: Affine(((axis, 1),)) for axis in ("k2", "a", "c", "kv", "ki", "r", "s")}
    out = Affine.of({"k2": size, "kv": lanes, "ki": 1})
    product = cast(read("w", (out, at["c"], at["r"], at["s"]), 0 if ragged else None), "f64") * read(
        "g", (at["a"], Affine.of({"r": taps, "s": 1}))
    )
    return Kernel(
        "pack_winograd",
        (Buffer("w", "f32", (outs, channels, taps, taps)), Buffer("g", "f64", (positions, taps**2))),
        (Buffer("u", "f32", (chunks, positions, blocks * lanes, how.vectors, lanes)),),
        (*axes, Axis("ki", lanes)),
        (
            Reduce("t", "sum", (Axis("r", taps), Axis("s", taps)), product),
            Store("u", tuple(at[name] for name in ("k2", "a", "c", "kv", "ki")), cast(ref("t"), "f32")),
        ),
    )


# ---- vectors of channels
def choose_winograd(
    kernel: Kernel,
    roles: Convolution,
    target: Target,
    threads: int = 2,
    rounds: bool = False,
    direct: float | None = None,
) -> Winograd | None:
    """How a plain convolution runs fastest by Winograd; None where it can't, or where that gains little.

    A direct sum has a smaller weight and smaller errors, so Winograd must take a quarter off its time.
    rounds: whether that one's factors may be bfloat16, which takes half where the target multiplies pairs.
    direct: its time, where it is another kernel's.
    """
    lanes = target.lanes
    image, weight = kernel.buffers[roles.input], kernel.buffers[roles.weight]
    taps, *others = roles.window
    if (
        not isinstance(taps, int)
        or others != [taps]
        or taps not in TILES
        or roles.stride != (1, 1)
        or roles.dilation != (1, 1)
    ):
        return None
    if roles.group is not None or len(image.shape) != 4 or not can_block(image.shape, lanes):
        return None
    sizes = [int(kernel.extents[axis]) for axis in roles.places]
    outs, channels = (-(-int(n) // lanes) * lanes for n in weight.shape[:2])
    summed = in_steps(int(weight.shape[1]))
    share = 0.5 if rounds and target.pairs else 1.0
    chosen, least = None, 0.75 * share * (directly(kernel, roles, target) if direct is None else direct)
    for tile in TILES[taps]:
        tiles = hint(image.shape[0]) * prod(-(-n // tile) for n in sizes)
        positions = (tile + taps - 1) ** 2
        cost = _products(positions, tiles, summed, outs, target)
        cost += target.core.transform * positions * tiles * (channels + outs) / lanes
        any_number = isinstance(image.shape[0], Dim)
        how = _dealt(tile, positions, tiles, channels, outs, target, threads, any_number)
        if how is not None and cost < least:
            chosen, least = how, cost
    return chosen


def in_steps(channels: int) -> int:
    """Channels that a sum runs over, of blocks the last of which may not be full: in whole steps."""
    return -(-channels // STEPS) * STEPS


def directly(kernel: Kernel, roles: Convolution, target: Target) -> float:
    """Nanoseconds of a direct sum, by blocks of channels where the image has them."""
    image, (outs, channels) = kernel.buffers[roles.input], map(int, kernel.buffers[roles.weight].shape[:2])
    places = hint(image.shape[0]) * prod(int(kernel.extents[axis]) for axis in roles.places)
    lanes = target.lanes
    channels = -(-channels // lanes) * lanes if can_block(image.shape, lanes) else channels
    return _products(prod(map(int, roles.window)), places, channels, -(-outs // lanes) * lanes, target)


def _products(taps: int, places: int, channels: int, outs: int, target: Target) -> float:
    """Nanoseconds of sums over channels at so many places, and of reading the weight meanwhile."""
    pairs, core = taps * channels * outs, target.core
    return max(2 * pairs * places * core.muladd * 16 / target.lanes, 4 * pairs * core.weight)


def _dealt(
    tile: int,
    positions: int,
    tiles: int,
    channels: int,
    outs: int,
    target: Target,
    threads: int,
    any_number: bool,
) -> Winograd | None:
    """By chunks of channels where the weight outweighs the image, so that it is read once; else by blocks of
    tiles, for which V and M lie in the second cache, beside U where that leaves room for them.

    any_number: images, so that tiles may be more.  None where channels are so many that a block has too
    few tiles.
    """
    lanes, cache = target.lanes, target.core.cache
    rows = target.core.sums // 2 if target.registers >= 32 else 6
    vectors = 2 if outs % (2 * lanes) == 0 else 1
    spread = not any_number and 2 * tiles * (channels + outs) < channels * outs
    weight = 4 * positions * channels * outs
    is_near = weight < cache * 3 // 4 and not spread
    room = (cache - weight) // 2 if is_near else BLOCK_BYTES
    room -= 16 * positions * lanes  # strides are rounded up, by two vectors at most
    block = room // (4 * positions * lanes * (vectors + (0 if spread else channels // lanes)))
    block = min(block, 64 if spread else NEAR_TILES if is_near else 32)
    if block < min(rows, tiles):
        return None
    parts = -(-tiles // block)
    if not spread:  # as many blocks to each thread, if that leaves a register tile to each
        parts = max(parts, min(-(-parts // threads) * threads, tiles // rows))
    return Winograd(tile, -(-tiles // parts), rows, vectors, spread)


# ---- vectors of images
def choose_images(kernel: Kernel, target: Target, lanes: int) -> Winograd | None:
    """How a convolution on images with the batch innermost, or its input gradient, runs by Winograd; None
    where it can't, or where that gains too little."""
    shape = shape_of(kernel)
    if shape is None or shape.block:
        return None
    batch, channels, outs = (int(kernel.extents[axis]) for axis in (shape.lane, shape.channel, shape.out))
    if outs % lanes or batch % lanes:
        return None
    tiles = prod(-(-int(kernel.extents[place]) // TILES[shape.window][0]) for place in shape.places)
    for vectors in (2, 1):
        if batch % (vectors * lanes):
            continue
        # Of a batch that fills no vector, so many tiles that two are full: a U-Net's on 8 images run at 440
        # GF/s in place of 340; of one that does, one, as more take 3 % longer (EPYC "Zen 4", 2026-11-28).
        few = 2 * target.lanes // (vectors * lanes) if lanes < target.lanes else 1
        block = max(1, min(few, tiles * batch // (vectors * lanes)))
        across = max(1, block * vectors * lanes // target.lanes)  # vectors of a row of sums
        rows = next(n for n in range(target.with_lanes(lanes).sums // across, 0, -1) if outs % n == 0)
        held = apart(channels * across, target.lanes) + apart(rows * across, target.lanes)
        if 4 * 36 * held <= STACK:
            how = Winograd(TILES[shape.window][0], block, rows, vectors, False, lanes)
            return how if _gains(how, kernel, shape, target) else None
    return None


def _gains(how: Winograd, kernel: Kernel, shape: Shape, target: Target) -> bool:
    """Whether it takes a sixth off the time of a direct sum, in nanoseconds.

    U is written once and read for every unit, so that many channels of small images gain nothing.  A direct
    sum's vectors are of images alone, of which there may be few.
    """
    core = target.core
    batch, channels, outs = (int(kernel.extents[axis]) for axis in (shape.lane, shape.channel, shape.out))
    positions, pairs = (how.tile + shape.window - 1) ** 2, channels * outs
    direct, tiles = 2.0 * pairs * batch, 1
    for place, origin, size in zip(shape.places, shape.origin, shape.size, strict=True):
        extent = int(kernel.extents[place])
        direct *= sum(0 <= origin + i + r < size for i in range(extent) for r in range(shape.window))
        tiles *= -(-extent // how.tile)
    blocks, nbytes = batch / (how.vectors * how.images * how.block), 4 * positions * pairs
    spent = 2 * positions * pairs * batch * tiles / core.image_gflops
    spent += tiles * batch / how.images * (channels + outs) * core.image_transform
    spent += pairs / how.images * core.image_weight
    far = core.image_far if nbytes <= core.last else core.image_memory
    spent += (tiles * blocks + 2) * nbytes / (core.image_near if nbytes <= core.cache else far)
    return spent < 5 / 6 * direct / core.image_gflops * target.lanes / how.images
