"""Winograd convolutions F(m x m, 3 x 3): 2.25 (m = 2) or 4 (m = 4) times fewer multiplications.

An image is cut into tiles of m x m outputs, each of which reads a window of n x n inputs, n = m + 2:

    y = At [ sum over c of (G w Gt) * (Bt x B) ] A

U = G w Gt is made beforehand, once for each weight (`pack_weights`).  V = Bt x B is made for a block of tiles
at a time, and then for each of the n * n positions the sum over channels is a matrix product, M = V U.
Layouts, with v channels of an output chunk in vectors:

    U[k / v, n * n, c, v / lanes, lanes]
    V[n * n, c / lanes, tiles, lanes]
    M[n * n, v / lanes, tiles, lanes]

The points are {0, 1, -1, inf} for m = 2 and {0, +-sqrt(2), +-1/sqrt(2), inf} for m = 4: the latter's error is
half that of the usual {0, +-1, +-2, inf}, and the transforms cost the same.
Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Reduce, Store
from ...ir.kernel.scalar import cast, read, ref
from ..blocking import can_block
from ..product import Convolution
from .code import Code
from .conv_function import PAIRS
from .conv_winograd import STACK, TAPS, WinogradCode
from .target import Target


def weight_transform(tile: int) -> np.ndarray:
    """G: [tile + 2, 3] in float64, a row for each of 0, a, -a, b, -b, ..., inf."""
    points = [0.0] + [sign * a for a in PAIRS[tile] for sign in (1, -1)]
    rows = []
    for k, p in enumerate(points):
        scale = float(np.prod([p - other for j, other in enumerate(points) if j != k]))
        rows.append([1 / scale, p / scale, p * p / scale])
    return np.array([*rows, [0, 0, 1]])


def weight_products(tile: int) -> np.ndarray:
    """G[a, r] * G[b, s], [n * n, 9] in float64: what takes the taps of a weight to U."""
    g = weight_transform(tile)
    return np.einsum("ar,bs->abrs", g, g).reshape(len(g) ** 2, TAPS**2)


def pack_winograd(shape: tuple[int, ...], how: Winograd, lanes: int) -> Kernel:
    """U = G w Gt, in float64: a chunk of v channels is `how.vectors` vectors.

    u[k2, a, c, kv, ki] = sum(t) g[a, t] * w[32*k2+16*kv+ki, c, t]
    """
    outs, channels = shape[:2]
    positions, size = (how.tile + 2) ** 2, how.vectors * lanes
    chunks, blocks = -(-outs // size), -(-channels // lanes)
    ragged = chunks * size != outs or blocks * lanes != channels
    axes = (Axis("k2", chunks), Axis("kv", how.vectors), Axis("c", blocks * lanes), Axis("a", positions))
    at = {axis: Affine(((axis, 1),)) for axis in ("k2", "a", "c", "kv", "ki", "r", "s")}
    out = Affine.of({"k2": size, "kv": lanes, "ki": 1})
    product = cast(read("w", (out, at["c"], at["r"], at["s"]), 0 if ragged else None), "f64") * read(
        "g", (at["a"], Affine.of({"r": TAPS, "s": 1}))
    )
    return Kernel(
        "pack_winograd",
        (Buffer("w", "f32", (outs, channels, TAPS, TAPS)), Buffer("g", "f64", (positions, TAPS**2))),
        (Buffer("u", "f32", (chunks, positions, blocks * lanes, how.vectors, lanes)),),
        (*axes, Axis("ki", lanes)),
        (
            Reduce("t", "sum", (Axis("r", TAPS), Axis("s", TAPS)), product),
            Store("u", tuple(at[name] for name in ("k2", "a", "c", "kv", "ki")), cast(ref("t"), "f32")),
        ),
    )


@dataclass(frozen=True)
class Winograd:
    """How a 3 x 3 convolution of stride 1 runs.

    tile:    outputs of a tile along each side: 2 or 4.
    block:   tiles that are transformed together.
    rows:    tiles of a register tile at most; `vectors`: of output channels beside them, and of a chunk.
    spread:  all tiles are transformed first, and then the work is dealt out by chunks of output channels, so
             that weights are read once: where they outweigh the image.  Else it is dealt out by blocks.
    """

    tile: int
    block: int
    rows: int
    vectors: int
    spread: bool

    def __str__(self) -> str:
        dealt = "chunks" if self.spread else "blocks"
        return f"winograd F({self.tile}x{self.tile},3x3) {dealt} of {self.block}, {self.rows}x{self.vectors}"

    def code(self, kernel: Kernel, target: Target) -> Code:
        """The code of a kernel on blocked arrays, whose weight operand is followed by U.

        Raises KernelError for a kernel that is not such a convolution.
        """
        return WinogradCode(self, kernel, target).code()


def choose_winograd(kernel: Kernel, roles: Convolution, target: Target, threads: int = 2) -> Winograd | None:
    """How a plain convolution runs fastest by Winograd; None where it can't, or where that gains little.

    A direct sum has a smaller weight and smaller errors, so Winograd must take a quarter off its time.
    """
    lanes = target.lanes
    image, weight = kernel.buffers[roles.input], kernel.buffers[roles.weight]
    if roles.window != (TAPS, TAPS) or roles.stride != (1, 1) or roles.dilation != (1, 1):
        return None
    if roles.group is not None or len(image.shape) != 4 or not can_block(image.shape, lanes):
        return None
    sizes = [int(kernel.extents[axis]) for axis in roles.places]
    outs, channels = (-(-int(n) // lanes) * lanes for n in weight.shape[:2])
    chosen, least = None, 0.75 * _products(TAPS**2, int(image.shape[0]) * prod(sizes), channels, outs, target)
    for tile in (4, 2):
        tiles = int(image.shape[0]) * prod(-(-n // tile) for n in sizes)
        positions = (tile + 2) ** 2
        cost = _products(positions, tiles, channels, outs, target)
        cost += target.core.transform * positions * tiles * (channels + outs) / lanes
        how = _dealt(tile, tiles, channels, outs, target, threads)
        if how is not None and cost < least:
            chosen, least = how, cost
    return chosen


def _products(taps: int, places: int, channels: int, outs: int, target: Target) -> float:
    """Nanoseconds of sums over channels at so many places, and of reading the weight."""
    pairs, core = taps * channels * outs, target.core
    return 2 * pairs * places * core.muladd * 16 / target.lanes + 4 * pairs * core.weight


def _dealt(tile: int, tiles: int, channels: int, outs: int, target: Target, threads: int) -> Winograd | None:
    """By chunks of channels where the weight outweighs the image, so that it is read once; else by blocks of
    tiles, for which V and M lie in the second cache, beside U where that leaves room for them.

    None where so many channels leave too few tiles to a block.
    """
    lanes, cache = target.lanes, target.core.cache
    positions, rows = (tile + 2) ** 2, 8 if lanes == 16 else 6
    vectors = 2 if outs % (2 * lanes) == 0 else 1
    spread = 2 * tiles * (channels + outs) < channels * outs
    weight = 4 * positions * channels * outs
    room = (cache - weight) // 2 if weight < cache * 3 // 4 and not spread else STACK
    room -= 16 * positions * lanes  # strides are rounded up, by two vectors at most
    block = room // (4 * positions * lanes * (vectors + (0 if spread else channels // lanes)))
    block = min(block, 64 if spread else 32)
    if block < min(rows, tiles):
        return None
    parts = -(-tiles // block)
    if not spread:  # as many blocks to each thread, if that leaves a register tile to each
        parts = max(parts, min(-(-parts // threads) * threads, tiles // rows))
    return Winograd(tile, -(-tiles // parts), rows, vectors, spread)
