"""Convolutions of f32 by Winograd's algorithm, of images as they were given or with the channels innermost.

    %y: f32[64,32,14,14] = conv2d(%x: f32[64,16,14,14], %w: f32[32,16,3,3])
    ->
    %u: f32[36,16,32] = tiles_of_w(%w)
    %v: f32[36,16,1024] = tiles_of_x(%x)
    %m: f32[36,32,1024] = products(%u, %v)
    %t: f32[64,32,16,16] = places(%m)
    %y: f32[64,32,14,14] = conv2d(%t)       or both at once, of whole tiles

The kernels are those of `winograd_tiles.py`, which are told of images with the batch innermost: dimensions
are taken for those before, and are back in their places after.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ...ir.kernel.form import Index, Kernel, Local, Reduce, Stage, Store
from ...ir.kernel.scalar import Read
from ...ir.kernel.substitute import Substitution
from ..kernels.product import Windowed, plain, product_of
from .image_layout import Order, permuted
from .program import Call, Program, Step
from .split_calls import BANDWIDTH, SINGLE, in_turn
from .winograd_tiles import tiled

MOST = 1 << 30  # bytes of what tiles become, which live for a moment
LAUNCH = 3e-6  # seconds in which a kernel begins and ends
SHARE = 0.85  # of the time of a direct sum, or what rounds otherwise is not worth it


def tile_convolutions(program: Program, share: float = SHARE) -> Program:
    """The program with its convolutions in tiles, if all of them take less time so.

    Where there are others, `channels_last` lays out images for all, and asks for each; so it does where
    weights have gradients, as the products of these are thrice as fast of tiles with the channels innermost
    (434 us and 182 on an H200; benchmarks/results/gpu_ways.txt, 2026-11-27).  share: as `in_tiles` has it.
    """
    convolutions = dict(_convolutions(program))
    if any(roles.gradient for roles in convolutions.values()):
        return program
    found = {call: in_tiles(call.kernel, roles, share) for call, roles in convolutions.items()}
    if not found or None in found.values():
        return program
    steps: list[Step] = []
    for step in program.steps:
        kernels = found.get(step) if isinstance(step, Call) else None
        steps.extend((step,) if kernels is None else in_turn(step, kernels))
    return program.replace(steps=tuple(steps))


def _convolutions(program: Program) -> Iterator[tuple[Call, Windowed]]:
    for call in program.calls:
        product = product_of(call.kernel) if call.how is None else None
        if product is not None and product.widened is not None:
            yield call, product.widened


def in_tiles(kernel: Kernel, roles: Windowed, share: float = SHARE) -> list[Kernel] | None:
    """The kernels in place of a convolution or a gradient; None where it is another, or gains too little.

    share: of the time of a direct sum, at most.
    """
    kernels = _tiles(kernel, roles)
    if kernels is None or sum(map(_made, kernels[:-1])) > MOST:
        return None
    rate, *_ = SINGLE
    direct = _flops(kernel) / rate
    made = sum(map(_flops, kernels)) / rate + sum(map(_bytes, kernels)) / BANDWIDTH + LAUNCH * len(kernels)
    return kernels if made < share * direct else None


def _flops(kernel: Kernel) -> float:
    found = product_of(kernel)
    return 0.0 if found is None else 2.0 * prod(int(axis.extent) for axis in kernel.axes)


def _bytes(kernel: Kernel) -> float:
    return float(sum(4 * prod(map(int, buffer.shape)) for buffer in kernel.buffers.values()))


def _made(kernel: Kernel) -> int:
    return sum(4 * prod(map(int, buffer.shape)) for buffer in kernel.outputs)


def _tiles(kernel: Kernel, roles: Windowed) -> list[Kernel] | None:
    if kernel.symbols or any(b.inplace for b in kernel.outputs):
        return None
    indices = {access.buffer: access.index for stage, access in kernel.reads if isinstance(stage, Reduce)}
    orders = {name: _order(index, roles, name in roles.images) for name, index in indices.items()}
    if None in orders.values():
        return None
    known = {name: order for name, order in orders.items() if order is not None}
    kernels = tiled(permuted(kernel, known), images_first=True)
    if kernels is None:
        return None
    back = {name: _inverse(order) for name, order in known.items()}
    image = next(name for name in roles.images if name in indices)
    if known[image][0] == len(known[image]) - 1:  # channels are innermost, so they are of tiles too
        in_tiles_last = kernels[:2] if roles.gradient else kernels[1:3]
        back |= {k.outputs[0].name: (0, 2, 1) for k in in_tiles_last}
    if not roles.gradient:
        *_, places, last = kernels
        result = _order(last.stores[0].index, roles, True)
        if result is None:
            return None
        back[places.outputs[0].name] = _inverse(result)
    made = [permuted(k, {b: order for b, order in back.items() if b in k.buffers}) for k in kernels]
    whole = None if roles.gradient else _joined(*made[-2:])
    return made if whole is None else [*made[:-2], whole]


def _joined(places: Kernel, last: Kernel) -> Kernel | None:
    """The kernel that stores what the last one computes of places as it makes these.

    None where it reads others too, or where tiles reach beyond the image.
    """
    total = next((stage for stage in last.stages if isinstance(stage, Local)), None)
    (result,) = places.outputs
    if total is None or not isinstance(total.value, Read) or total.value.buffer != result.name:
        return None
    at = [axis for part in total.value.index if (axis := plain(part)) is not None]
    if {*at} != last.parallel_names or tuple(last.extents[axis] for axis in at) != result.shape:
        return None
    if any(not isinstance(stage, (Local, Store)) or stage.axes for stage in last.stages):
        return None
    stages: list[Stage] = []
    for store in places.stores:
        here = Substitution(
            indices=dict(zip(at, store.index, strict=True)),
            refs={**last.locals, total.name: store.value},
        )
        stages += [here.stage(stage) for stage in last.stores]
    rest = tuple(b for b in last.inputs if b.name != result.name)
    return last.replace(inputs=(*places.inputs, *rest), parallel=places.parallel, stages=tuple(stages))


def _order(index: Index, roles: Windowed, is_image: bool) -> Order | None:
    """Which dimensions are the channels, the places and the batch of an image; or of a weight the taps, what
    is summed and what is not.
    """
    axes = [plain(part) for part in index]
    summed = {axis.name for axis in roles.stage.axes}
    if is_image:
        first = [d for d, axis in enumerate(axes) if axis is not None and axis in roles.channels]
        last = [d for d, axis in enumerate(axes) if axis == roles.batch]
        inner = [d for d in range(len(axes)) if d not in (*first, *last)]
    else:
        channels = [d for d, axis in enumerate(axes) if axis is not None and axis in roles.channels]
        inner = [d for d in range(len(axes)) if d not in channels]
        first, last = [], sorted(channels, key=lambda d: axes[d] not in summed)
    order = (*first, *inner, *last)
    return order if (len(first), len(last)) == ((1, 1) if is_image else (0, 2)) else None


def _inverse(order: Order) -> Order:
    return tuple(order.index(d) for d in range(len(order)))
