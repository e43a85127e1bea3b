"""What stays in the caches while a direct convolution runs, or a weight's gradient.

Of a convolution whose lanes are channels some images meet all output channels before the next ones do, where
that brings less from afar than if all images met some channels.  Where the lanes are images, places meet all
output channels before the next ones do, so that their inputs come from afar once.  Of a gradient strips of
both images meet a block of their channels, tile by tile, whose sums wait on the stack: the strips of a tile
stay in the nearest cache for all taps, those of a block in the second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from ...ir.dims import hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel
from ...ir.kernel.types import NUMPY
from ..kernels.product import Windowed
from ..kernels.residues import residues
from .steps import Block, Prefetch, PrefetchPanel, Step, Strips
from .target import AHEAD, Target

NEAREST = 32 << 10  # bytes of the nearest cache
SHORT = 2  # places of a block, at least
PLACES = 24  # blocks of places, at least, so that they come out about even for a few threads
PLACES_AHEAD = 8
UNITS = 8  # of a gradient, at least
MOST_TILES = 40  # that ask for the next panel of a weight
WEIGHTS = 3  # second caches full of weights, at most, that come from beyond them once for each block


def images_together(image: int, weight: int, panels: int, images: int, target: Target) -> int:
    """How many images meet all panels of a weight before the next ones do; 0 for all of them panel by panel.

    image, weight: bytes of one and of all panels.  512 channels to 1024, 1 x 1 at every second place of
    28 x 28, batch 8: 145 GF/s in place of 100; 1024 to 256 on 14 x 14, in ResNet-50: 146 in place of 115 (an
    Intel Xeon with AMX, one thread, 2026-11-27).
    """
    near = target.core.cache
    if images * image <= near // 2 or image > near:
        return 0
    together = max(n for n in range(1, images + 1) if images % n == 0 and (n == 1 or n * image <= near // 2))
    by_panels = weight + images * image * panels
    by_images = weight * (images // together if weight > near // 2 else 1) + images * image
    return together if by_images < by_panels else 0


def is_far(weight: int, target: Target) -> bool:
    """Whether a network's weight of so many bytes comes from beyond the second cache at every call."""
    return weight > target.core.cache // 4


def asked_for(buffer: str, axis: str, weight: int, panels: int, tiles: int, target: Target) -> Step:
    """How a packed weight is asked for, of so many bytes and panels along an axis, each read by some tiles.

    Where these are many, the first of them waits for little: with 43 of them a product lost 2 to 5 % (an
    Intel Xeon with AMX, one thread, 2026-11-28).
    """
    fits = 2 * weight // panels <= target.core.cache
    if is_far(weight, target) and panels > 1 and 1 < tiles <= MOST_TILES and fits:
        return PrefetchPanel(buffer, axis)
    return Prefetch(buffer, AHEAD)


def blocks(
    kernel: Kernel, roles: Windowed, tile: Mapping[str, int], images: int, target: Target
) -> Iterator[Block | Prefetch]:
    """Of a convolution: the places of a row that meet all output channels, and what is asked for meanwhile.

    tile: of the output's channels.  images: those of a unit.  On one thread of an EPYC "Zen 4" (2026-11-26),
    batch 32: 96 channels to 16 on 112 x 112, 1 x 1, 24 ms in place of 45; 64 channels to 128, 3 x 3 at every
    second place of 56 x 56, 36 in place of 60.
    """
    places = [a for a in kernel.parallel if a.name not in (roles.batch, *roles.channels) and a.extent != 1]
    if len(tile) != 1 or not places:
        return
    ((channel, _),), near = tile.items(), target.core.cache
    nbytes = {name: prod(map(hint, b.shape)) * _itemsize(kernel, name) for name, b in kernel.buffers.items()}
    if nbytes[roles.images[0]] <= near or nbytes[roles.weight] > WEIGHTS * near:
        return
    if len(residues(kernel)) > 1:  # whose places are others
        yield Block(channel, int(kernel.extents[channel]))
        return
    *rows, row = places
    extents = {axis: hint(extent) for axis, extent in kernel.extents.items()}
    one = extents | {roles.batch: images} | {axis.name: 1 for axis in rows}
    size = length = extents[row.name]
    while size > 1 and _bytes(kernel, one | {row.name: size}, {roles.weight}) > near // 2:
        size -= 1
    count = -(-length // size)
    if size < SHORT or prod(extents[axis.name] for axis in rows) * count < PLACES:
        return
    yield Block(channel, extents[channel])
    yield Block(row.name, -(-length // count))
    ahead = {access.buffer for _, access in kernel.reads} - {roles.images[0], roles.weight}
    if {axis.name for axis in roles.stage.axes if axis.extent != 1} <= {*roles.channels}:  # no place again
        ahead.add(roles.images[0])
    for name in kernel.buffers:
        if name in ahead and nbytes[name] > near:
            yield Prefetch(name, PLACES_AHEAD * images * _itemsize(kernel, name))


def strips(
    kernel: Kernel, roles: Windowed, tile: Mapping[str, int], lanes: int, target: Target
) -> list[Step]:
    """The strips of a weight's gradient, and the taps and channels of a block.

    tile: the channels of both whose sums are in registers, as vectors of so many lanes.

    On one thread of an EPYC "Zen 4" (2026-11-26): 128 x 128 channels, 3 x 3 taps at every second place of
    56 x 56, batch 16, 39 ms in place of 75; 256 x 64 channels on 56 x 56 without taps 22 in place of 28.
    """
    rows = next((axis for axis in roles.stage.axes if axis.name != roles.batch), None)
    others = {axis.name: int(axis.extent) for axis in kernel.parallel if axis.name not in tile}
    taps = [Block(axis, size) for axis, size in others.items()]
    if rows is None:
        return [*taps]
    extents = {axis: hint(extent) for axis, extent in kernel.extents.items()}

    def met(sizes: Mapping[str, int]) -> int:
        """Bytes of both images that a strip of so many rows and channels reads."""
        return _bytes(kernel, {**extents, **sizes}, {roles.weight})

    length = hint(rows.extent)
    while length > 1 and met({**tile, rows.name: length}) > NEAREST:
        length -= 1
    steps: list[Step] = [Strips(rows.name, length), *taps]
    if met({}) <= target.core.cache:
        return steps
    itemsize = NUMPY[kernel.dtypes[roles.stage.name]].itemsize
    waiting = prod(others.values()) * lanes * itemsize
    sizes = [
        [n for n in range(size, extents[axis] + 1, size) if extents[axis] % n == 0]
        for axis, size in tile.items()
    ]
    blocks = [dict(zip(tile, each, strict=True)) for each in product(*sizes)]
    most = min(prod(extents[axis] for axis in tile) // UNITS, target.core.cache // 2 // waiting)
    fit = [block for block in blocks if prod(block.values()) <= most]
    *once, _ = tile

    def cost(block: Mapping[str, int]) -> tuple[float, ...]:
        """What each tile of one image's channels goes over again, where it is much; what comes from afar."""
        strip = {**block, rows.name: length}
        again = met({**strip, **dict.fromkeys(once, 0)}) // prod(others.values())
        return max(again, target.core.cache // 4), met(strip) / prod(block.values())

    best = min(fit, key=cost, default={})
    return [*steps, *(Block(axis, size) for axis, size in best.items())]


def _itemsize(kernel: Kernel, buffer: str) -> int:
    return NUMPY[kernel.buffers[buffer].dtype].itemsize


def _bytes(kernel: Kernel, extents: Mapping[str, int], without: set[str]) -> int:
    """What a kernel reads and writes: of each array's dimensions the places that the axes' points meet."""
    indices = {access.buffer: access.index for _, access in kernel.reads}
    indices |= {store.buffer: store.index for store in kernel.stores}
    nbytes = 0
    for name in indices.keys() - without:
        dims = []
        for part, size in zip(indices[name], kernel.buffers[name].shape, strict=True):
            if isinstance(part, Affine):
                low, high = part.bounds(extents)
                dims.append(min(hint(high - low) + 1, prod(extents[axis] for axis in part.names)))
            else:
                dims.append(hint(size))
        nbytes += prod(dims) * _itemsize(kernel, name)
    return nbytes
