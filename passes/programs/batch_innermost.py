"""Lay images out with the batch innermost, for convolutions whose batch fills vectors.

    %y = conv2d(%x: f32[32,16,8,8], %w)        %x1: f32[16,8,8,32] = relayout(%x)
    %z = relu(%y)                        ->    %w1: f32[3,3,16,32] = relayout(%w)
                                               %y1: f32[32,8,8,32] = conv2d(%x1, %w1)
                                               %z1: f32[32,8,8,32] = relu(%y1)
                                               %z: f32[32,32,8,8] = relayout(%z1)

A window then moves by whole vectors, so that no tap beside the image is computed and nothing is padded, and
both gradients have the form of the convolution itself.  Everything that meets an image on the way
(normalisation, pooling, the pointwise rest) runs on the same layout, which any kernel can.  A 1 x 1 layer of
small planes and its gradients are products of matrices in it, for `pack_matmuls`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from ...ir.dims import Dim, Undecided, hint, likely
from ...ir.kernel.affine import Affine, Extent
from ...ir.kernel.form import Index, Kernel
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import NUMPY, bits, is_floating
from ..kernels.collapse import collapsed
from ..kernels.product import Windowed, product_of
from ..kernels.residues import residues, summation
from ..schedules.choose_blocks import blocks, strips
from ..schedules.choose_winograd import choose_images
from ..schedules.default import balanced_tile
from ..schedules.steps import (
    Bound,
    Join,
    Residues,
    Schedule,
    Vectorise,
    tiles,
)
from ..schedules.target import BASELINE, Target
from .image_layout import ImageLayout, Order, padded, permuted, taps_first
from .product_calls import by_columns
from .program import Array, Call, Program, Step
from .split_calls import in_turn
from .winograd_tiles import in_tiles

# A plane of one channel up to this size lies contiguous: [c, h, w, n].  Of larger ones, whose size is most
# often a power of two, one place in every channel would fall on the same lines of the cache, and the channels
# of one place lie together where sums are direct: [h, w, c, n].  On Zen 5, 64 channels of 32 x 32, batch 32:
# 224 GF/s against 162.
PLANE_BYTES = 16 << 10
NO_LIMIT = 1 << 62
DIRECT = 3  # direct sums lose a tenth by whole planes, others gain some three times that by them

# A channel's plane of all images up to this size makes a 1 x 1 layer a product of matrices, whose panels are
# packed: with 16 images 1024 channels to 256 on 14 x 14 run at 375 GF/s in place of 310, their weight's
# gradient at 485 in place of 360 (EPYC "Zen 5", two threads, 2026-11-28).  Of larger ones, which come from
# memory, the places that the caches hold meet all channels instead (`blocks`), but in the gradient of a large
# weight whose fewer channels are packed: 256 x 64 of 56 x 56 take 4.3 ms in place of 5.9, 128 x 128 4.4 and
# 5.8, while 64 x 64 take 2.3 and 1.8 (likewise, 2026-12-01).
PRODUCT_BYTES, PACKED_BYTES = 64 << 10, 256 << 10
LARGE = 128 * 128  # elements of a weight

FEW = 32  # channels that are summed over
SAMPLED = 256  # channels that read a place; a copy pays from some 120 on, by an estimate
MANY = 3  # vectors of images, of which the last may be nearly empty


@dataclass(frozen=True)
class Options:
    """What a program must hold to.

    winograd: whether a convolution may be computed from sums of its inputs.  One inf or NaN then spoils the
    places around those that it reaches, and the last bits differ from those of a direct sum.
    """

    winograd: bool = True


def batch_innermost(program: Program, target: Target, options: Options | None = None) -> Program:
    """The program with its images laid out anew where its convolutions gain by it, else the program itself.

    They do in training, and where there are few channels.  Params and results keep their layout.
    """
    found = {call: roles for call in program.calls if (roles := served(call, target)) is not None}
    if not pays(found, target):
        return program
    program = sampled(program, found)
    found = {call: roles for call in program.calls if (roles := served(call, target)) is not None}
    return _Layout(program, found, target, options or Options()).program()


def sampled(program: Program, found: Mapping[Call, Windowed]) -> Program:
    """The program with copies of the places that layers without taps read of an image, where those are apart.

    Such a layer and its weight's gradient share one, and are products of matrices on it.
    """
    copies: dict[tuple, Array] = {}
    made: list[Step] = []
    for step in program.steps:
        if isinstance(step, Call) and (ends := _apart(step.kernel, found.get(step))):
            step = _nearer(step, *ends, copies, made)
        made.append(step)
    return program.replace(steps=tuple(made))


def _apart(kernel: Kernel, roles: Windowed | None) -> tuple[int, dict[str, int]] | None:
    """The number of the image that is read at places apart, often enough for a copy; each dimension's axis
    and step."""
    for name, other in zip(roles.images, reversed(roles.channels), strict=True) if roles else ():
        reads = [kernel.moving(access.index) for _, access in kernel.reads if access.buffer == name]
        if len(reads) != 1 or other is None or kernel.symbols or int(kernel.extents[other]) < SAMPLED:
            continue
        parts = [part for part in reads[0] if isinstance(part, Affine) and not part.constant]
        ends = {axis: int(by) for part in parts if len(part.terms) == 1 for axis, by in part.terms}
        if len(ends) == len(reads[0]) and max(ends.values()) > 1 <= min(ends.values()):
            return [buffer.name for buffer in kernel.inputs].index(name), ends
    return None


def _nearer(call: Call, at: int, ends: dict[str, int], copies: dict[tuple, Array], made: list[Step]) -> Call:
    """The call on a copy."""
    kernel, source, steps = call.kernel, call.inputs[at], tuple(ends.values())
    shape = tuple(int(kernel.extents[axis]) for axis in ends)
    if (source, steps, shape) not in copies:
        made.append(padded(source, [0] * len(steps), shape, steps=steps))
        (copies[source, steps, shape],) = made[-1].outputs
    copy = copies[source, steps, shape]

    def beside(index: Index) -> Index:
        parts = [part.terms for part in index if isinstance(part, Affine)]
        return tuple(Affine.of({name: by // ends.get(name, 1) for name, by in terms}) for terms in parts)

    buffer = replace(kernel.inputs[at], shape=copy.shape)
    nearer = Substitution(buffers={buffer.name: buffer}, at={buffer.name: beside}).kernel(kernel)
    return replace(call, kernel=nearer, inputs=(*call.inputs[:at], copy, *call.inputs[at + 1 :]))


def pays(found: Mapping[Call, Windowed], target: Target) -> bool:
    """Whether the layout is quicker than blocks of channels, which inference has Winograd's products for.

    On Zen 5, batch 32, 1 to 64 channels of 8 x 8: 159 us against 264 for the forward pass alone.
    """
    if any(roles.gradient for roles in found.values()):
        return True
    sizes = []
    for call, roles in found.items():
        extents = call.kernel.extents
        summed = [int(axis.extent) for axis in roles.stage.axes if axis.name in roles.channels]
        sizes.append((extents[roles.batch], prod(summed)))
    return (
        bool(sizes)
        and all(count <= FEW for _, count in sizes)
        and all(fills(batch, target) for batch in dict.fromkeys(batch for batch, _ in sizes))
    )


def fills(batch: Extent, target: Target) -> bool:
    """Whether vectors of images are full, or of a batch of any number most are."""
    return likely(batch, MANY * target.lanes) if isinstance(batch, Dim) else batch % target.lanes == 0


def served(call: Call, target: Target) -> Windowed | None:
    """The roles of a call that the layout can serve: a convolution whose batch fills vectors."""
    found = None if call.how is not None else product_of(call.kernel)
    roles = found and found.windowed
    if found is None or roles is None or any(factor.divided is None for factor in found.factors):
        return None
    dtype = call.kernel.dtypes[roles.stage.name]
    batch = call.kernel.extents[roles.batch]
    if isinstance(batch, Dim) and roles.gradient:
        raise Undecided(f"how images are laid out for gradients, while {batch} of them may be any number")
    if not lanes_of(hint(batch), target) or not is_floating(dtype):
        return None
    is_loop = all(summation(piece).bounds() is not None for piece in residues(call.kernel))
    return roles if is_loop else None


class _Layout(ImageLayout):
    def __init__(self, program: Program, found: Mapping[Call, Windowed], target: Target, options: Options):
        super().__init__(program, found)
        self.target, self.options = target, options
        self.largest = max(hint(array.nbytes) for step in program.steps for array in step.outputs)
        self.most = PLANE_BYTES if self.is_direct() else NO_LIMIT

    def is_direct(self) -> bool:
        """Whether direct sums over windows do so much of the work that they gain more than the others lose.

        Winograd's gather what they need in any order, and its products between tiles want whole planes; sums
        over channels alone gain less by it than norms do by whole planes (training steps on 224 x 224, two
        threads: MobileNetV2 1062 and 1012 ms, ResNet-50 2768 and 2656; a DCGAN's generator, whose sums of a
        third of the work go in tiles, 204 and 184; EPYC "Zen 4", 2026-11-26).
        """
        work = {True: 0, False: 0}
        for call, roles in self.found.items():
            if not roles.gradient:
                orders = {name: _planes(call.kernel.buffers[name].shape) for name in roles.images}
                kernel = permuted(call.kernel, orders | {roles.weight: taps_first(call.kernel, roles)})
                how = way(kernel, roles, self.target, self.options)
                taps = prod(int(a.extent) for a in roles.stage.axes if a.name not in roles.channels)
                direct = taps > 1 and how.winograd is None and self.in_tiles(kernel, how) is None
                work[direct] += prod(map(hint, kernel.extents.values()))
        return work[True] > DIRECT * work[False]

    def order(self, roles: Windowed | None, array: Array) -> Order:
        """The order of an image for a call of these roles, if any; that of a mask is as its numbers'."""
        plane = hint(prod((*array.shape[:1], *array.shape[2:]))) * max(4, NUMPY[array.dtype].itemsize)
        if plane <= self.most or (roles is not None and roles.gradient):
            return _planes(array.shape)
        return (*range(2, len(array.shape)), 1, 0)

    def way(self, call: Call, kernel: Kernel, roles: Windowed | None) -> Schedule | None:
        if roles is None or is_product(kernel, roles):
            return None
        return way(kernel, roles, self.target, self.options)

    def calls(self, call: Call, roles: Windowed | None) -> Iterable[Step]:
        """By Winograd's products between tiles, where that is quicker."""
        kernels = None if call.how is None else self.in_tiles(call.kernel, call.how)
        return (call,) if kernels is None else in_turn(call, kernels)

    def in_tiles(self, kernel: Kernel, how: Schedule) -> list[Kernel] | None:
        is_free = self.options.winograd and how.winograd is None
        return in_tiles(kernel, self.target, self.largest) if is_free else None


def is_product(kernel: Kernel, roles: Windowed) -> bool:
    """Whether a convolution, or a gradient of one, is a product of matrices on images laid out so, which no
    layout takes for anything else, and whose planes are small."""
    if any(isinstance(axis.extent, Dim) for axis in kernel.axes):
        return False
    plane = prod(int(axis.extent) for axis in kernel.axes if axis.name not in roles.channels)
    rows, columns, *_ = kernel.outputs[0].shape
    is_packed = roles.gradient and columns <= rows and rows * columns >= LARGE
    most = PACKED_BYTES if is_packed else PRODUCT_BYTES
    if plane * NUMPY[kernel.dtypes[roles.stage.name]].itemsize > most:
        return False
    found, flat = product_of(kernel), collapsed(kernel)
    product = by_columns(flat)
    if product is None or found is None or found.windowed or found.convolution:
        return False
    return len(flat.parallel) == 2 and len(product.stage.axes) == 1


def _planes(shape: tuple) -> Order:
    """The plane of each channel contiguous: [n, c, h, w] -> [c, h, w, n]."""
    return (*range(1, len(shape)), 0)


def lanes_of(batch: int, target: Target) -> int:
    """The vectors for a batch: as few of them as there can be, and then no longer than need be.

    0 for a batch that would leave most of one empty.
    """
    widths = [n for n in (4, 8, 16) if n <= target.lanes] or [target.lanes]
    return min(widths, key=lambda n: (-(-batch // n), n)) if batch >= widths[0] else 0


def way(kernel: Kernel, roles: Windowed, target: Target, options: Options) -> Schedule:
    """How a convolution on images with the batch innermost runs: by Winograd, or directly."""
    batch = kernel.extents[roles.batch]
    if options.winograd and not roles.gradient and isinstance(batch, int):
        lanes = lanes_of(batch, target)
        found = choose_images(kernel, target, lanes)
        if found is not None:
            return Schedule(found)
    return windows(kernel, roles, target)


def windows(kernel: Kernel, roles: Windowed, target: Target) -> Schedule:
    """What the registers of a direct convolution hold.

    Of a weight's gradient, whose sum the batch is part of, a unit is a tile of both channels with all taps.
    """
    dtype = kernel.dtypes[roles.stage.name]
    registers = target.sums * 32 // max(32, bits(dtype))
    extent = {axis: hint(n) for axis, n in kernel.extents.items()}
    is_open = isinstance(kernel.extents[roles.batch], Dim)
    lanes = target.lanes if is_open else lanes_of(extent[roles.batch], target)
    wide = registers < BASELINE.sums  # a vector takes more registers than one
    vectors = 1 if wide or extent[roles.batch] % (2 * lanes) and not is_open else 2
    axes = [axis for axis in roles.channels if axis is not None]
    if not roles.gradient:
        summed = {axis.name for axis in roles.stage.axes}
        sizes = {
            axis: balanced_tile(extent[axis], registers // vectors) for axis in axes if axis not in summed
        }
        near = blocks(kernel, roles, sizes, vectors * lanes, target)
        return Schedule(Residues(), Vectorise(roles.batch, vectors, lanes), *tiles(sizes), Bound(), *near)
    side = next(n for n in (4, 3, 2, 1) if n * n <= max(1, registers // 4 * 3))
    # beside few channels, as an image's own are, more of the others: 8 x 3 sums of a ResNet's first layer
    # take 45 ms where 4 x 3 take 49 (EPYC "Zen 4", two threads, 2026-11-28)
    few = min((extent[axis] for axis in axes), default=1) if len(axes) == 2 else 1
    side = min(2 * side, registers // few) if few < side else side
    sizes = {axis: min(extent[axis], side) for axis in axes}
    if prod(int(axis.extent) for axis in roles.stage.axes) <= 2 * lanes:  # adding up lanes is most of it
        lanes = max(4, lanes // 4)
    return Schedule(
        Residues(),
        Vectorise(roles.batch, 1, lanes),
        *tiles(sizes),
        Bound(),
        Join(),
        *strips(kernel, roles, sizes, lanes, target),
    )
