"""Lay images out with the batch innermost, for convolutions whose batch fills vectors.

    %y = conv2d(%x: f32[32,16,8,8], %w)        %x1: f32[16,8,8,32] = relayout(%x)
    %z = relu(%y)                        ->    %w1: f32[3,3,16,32] = relayout(%w)
                                               %y1: f32[32,8,8,32] = conv2d(%x1, %w1)
                                               %z1: f32[32,8,8,32] = relu(%y1)
                                               %z: f32[32,32,8,8] = relayout(%z1)

A window then moves by whole vectors, so that no tap beside the image is computed and nothing is padded, and
both gradients have the form of the convolution itself.  Everything that meets an image on the way
(normalisation, pooling, the pointwise rest) runs on the same layout, which any kernel can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ..ir.errors import KernelError
from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Axis, Buffer, Fold, Kernel, Reduce, Stage, Store
from ..ir.kernel.scalar import Expr, read
from ..ir.kernel.types import NUMPY, bits, is_floating
from .blocking import Rewriting
from .llvm.matmul import REGISTERS, tile
from .llvm.target import Target
from .llvm.windows import Windows, bounds, pieces, summation
from .llvm.winograd_lanes import WinogradLanes, winograd_lanes
from .program import Array, Call, Program, Step
from .windowed import Windowed, windowed

# A plane of one channel up to this size lies contiguous: [c, h, w, n].  Of larger ones, whose size is most
# often a power of two, one place in every channel would fall on the same lines of the cache, and the channels
# of one place lie together where sums are direct: [h, w, c, n].  On Zen 5, 64 channels of 32 x 32, batch 32:
# 224 GF/s against 162.
PLANE_BYTES = 16 << 10
NO_LIMIT = 1 << 62

FEW = 32  # channels that are summed over

Order = tuple[int, ...]


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
    return _Layout(program, found, target, options or Options()).program()


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
        sizes.append((int(extents[roles.batch]), prod(summed)))
    return bool(sizes) and all(batch % target.lanes == 0 and count <= FEW for batch, count in sizes)


def served(call: Call, target: Target) -> Windowed | None:
    """The roles of a call that the layout can serve: a convolution whose batch fills vectors."""
    roles = None if call.how is not None else windowed(call.kernel)
    if roles is None:
        return None
    dtype = call.kernel.dtypes[roles.stage.name]
    if not lanes_of(int(call.kernel.extents[roles.batch]), target) or not is_floating(dtype):
        return None
    try:
        for piece in pieces(call.kernel):
            bounds(piece, summation(piece))
    except KernelError:
        return None
    return roles


class _Layout:
    """Which arrays are laid out anew, and the steps that use them."""

    def __init__(self, program: Program, found: Mapping[Call, Windowed], target: Target, options: Options):
        self.source, self.found, self.target, self.options = program, found, target, options
        self.images = self.spread()
        self.most = PLANE_BYTES if self.is_direct() else NO_LIMIT
        self.steps: list[Step] = []
        # an array in the orders of its dimensions that there are
        self.made: dict[Array, dict[Order, Array]] = {}

    def spread(self) -> frozenset[Array]:
        """The images of the convolutions, and all of their rank and batch that meet them in a call."""
        images: set[Array] = set()
        for call, roles in self.found.items():
            images |= {_array(call, name) for name in roles.images}
        kinds = {(len(image.shape), image.shape[0]) for image in images}
        waiting = [call for call in self.source.calls if call not in self.found and _is_free(call)]
        while True:
            met = [call for call in waiting if images.intersection((*call.inputs, *call.outputs))]
            if not met:
                return frozenset(images)
            waiting = [call for call in waiting if call not in met]
            for call in met:
                images |= {a for a in (*call.inputs, *call.outputs) if (len(a.shape), *a.shape[:1]) in kinds}

    def is_direct(self) -> bool:
        """Whether direct sums do most of the work: Winograd's gather what they need in any order."""
        work = {True: 0, False: 0}
        for call, roles in self.found.items():
            if not roles.gradient:
                orders = {name: _planes(call.kernel.buffers[name].shape) for name in roles.images}
                kernel = permuted(call.kernel, orders | {roles.weight: _weight_order(call.kernel, roles)})
                how = way(kernel, roles, self.target, self.options)
                work[isinstance(how, Windows)] += prod(int(n) for n in kernel.extents.values())
        return work[True] > work[False]

    def program(self) -> Program:
        for step in self.source.steps:
            if isinstance(step, Call) and (step in self.found or self.is_touched(step)):
                self.relaid(step)
            else:
                self.steps.append(replace(step, inputs=tuple(a and self.plain(a) for a in step.inputs)))
        results = tuple(map(self.plain, self.source.results))
        return self.source.replace(steps=tuple(self.steps), results=results)

    def is_touched(self, call: Call) -> bool:
        return _is_free(call) and bool(self.images.intersection((*call.inputs, *call.outputs)))

    def relaid(self, call: Call) -> None:
        """The call on arrays in their new orders."""
        roles = self.found.get(call)
        orders = {b.name: self.order(roles, a) for a, b in _pairs(call) if a in self.images}
        if roles is not None and not roles.gradient:
            orders[roles.weight] = _weight_order(call.kernel, roles)
        kernel = permuted(call.kernel, orders)
        inputs = tuple(
            self.reordered(a, orders[b.name]) if b.name in orders else self.plain(a)
            for a, b in zip(call.inputs, kernel.inputs, strict=True)
        )
        outputs = []
        for array, buffer in zip(call.outputs, kernel.outputs, strict=True):
            made = array
            if buffer.name in orders:
                made = Array(array.name, array.dtype, tuple(map(int, buffer.shape)))
                self.made[array] = {orders[buffer.name]: made}
            outputs.append(made)
        how = None if roles is None else way(kernel, roles, self.target, self.options)
        self.steps.append(Call(kernel, inputs, tuple(outputs), how))

    def order(self, roles: Windowed | None, array: Array) -> Order:
        """The order of an image for a call of these roles, if any."""
        plane = prod(array.shape) // array.shape[1] * NUMPY[array.dtype].itemsize
        if plane <= self.most or (roles is not None and roles.gradient):
            return _planes(array.shape)
        return (*range(2, len(array.shape)), 1, 0)

    def reordered(self, array: Array, order: Order) -> Array:
        """The array in an order of its dimensions, by a call of its own where there is none yet."""
        known = self.made.setdefault(array, {_identity(array): array})
        if order not in known:
            have, source = next(iter(known.items()))
            call = relayout(source, tuple(have.index(d) for d in order), array.name)
            self.steps.append(call)
            (known[order],) = call.outputs
        return known[order]

    def plain(self, array: Array) -> Array:
        return self.reordered(array, _identity(array))


def _planes(shape: tuple) -> Order:
    """The plane of each channel contiguous: [n, c, h, w] -> [c, h, w, n]."""
    return (*range(1, len(shape)), 0)


def _identity(array: Array) -> Order:
    return tuple(range(len(array.shape)))


def _pairs(call: Call) -> list[tuple[Array, Buffer]]:
    return [
        *zip(call.inputs, call.kernel.inputs, strict=True),
        *zip(call.outputs, call.kernel.outputs, strict=True),
    ]


def _array(call: Call, name: str) -> Array:
    return next(array for array, buffer in _pairs(call) if buffer.name == name)


def _is_free(call: Call) -> bool:
    """Whether the layout of a call's arrays may change: nothing has been decided, and no order matters."""
    kernel = call.kernel
    in_order = any(store.combine == "set" for store in kernel.stores)
    return call.how is None and not in_order and not any(b.inplace for b in kernel.outputs)


def _weight_order(kernel: Kernel, roles: Windowed) -> Order:
    """Taps first, then the summed channels, and those of the result last: a tile of them is contiguous."""
    index = next(a.index for _, a in kernel.reads() if a.buffer == roles.weight)
    summed = {axis.name for axis in roles.stage.axes}
    first = 0 if isinstance(index[0], Affine) and index[0].names & summed else 1
    return (*range(2, len(index)), first, 1 - first)


def lanes_of(batch: int, target: Target) -> int:
    """The vectors for a batch: as few of them as there can be, and then no longer than need be.

    0 for a batch that would leave most of one empty.
    """
    widths = [n for n in (4, 8, 16) if n <= target.lanes]
    return min(widths, key=lambda n: (-(-batch // n), n)) if batch >= widths[0] else 0


def way(kernel: Kernel, roles: Windowed, target: Target, options: Options) -> Windows | WinogradLanes:
    """How a convolution on images with the batch innermost runs: by Winograd, or directly."""
    if options.winograd and not roles.gradient:
        lanes = lanes_of(int(kernel.extents[roles.batch]), target)
        found = winograd_lanes(kernel, roles.batch, roles.channels, target, lanes)
        if found is not None:
            return found
    return windows(kernel, roles, target)


def windows(kernel: Kernel, roles: Windowed, target: Target) -> Windows:
    """What the registers of a direct convolution hold."""
    dtype = kernel.dtypes[roles.stage.name]
    registers = REGISTERS[target.lanes == 16] * 32 // max(32, bits(dtype))
    extent = {axis: int(kernel.extents[axis]) for axis in kernel.extents}
    lanes = lanes_of(extent[roles.batch], target)
    wide = registers < REGISTERS[0]  # a vector takes more registers than one
    vectors = 1 if extent[roles.batch] % (2 * lanes) or wide else 2
    axes = [axis for axis in roles.channels if axis is not None]
    if roles.gradient:
        side = next(n for n in (4, 3, 2, 1) if n * n <= max(1, registers // 4 * 3))
        side = side if len(axes) == 2 else 2 * side
        return Windows(roles.batch, lanes, vectors, tuple((axis, min(extent[axis], side)) for axis in axes))
    summed = {axis.name for axis in roles.stage.axes}
    tiles = ((axis, tile(extent[axis], registers // vectors)) for axis in axes if axis not in summed)
    return Windows(roles.batch, lanes, vectors, tuple(tiles))


# ---- kernels in another layout


def relayout(array: Array, order: Order, name: str) -> Call:
    """The call that copies an array with its dimensions in another order."""
    axes = [Axis(f"i{d}", n) for d, n in enumerate(array.shape)]
    source = Buffer("x", array.dtype, array.shape)
    result = Buffer("y", array.dtype, tuple(array.shape[d] for d in order))
    value = read("x", [axis.name for axis in axes])
    at = tuple(Affine(((axes[d].name, 1),)) for d in order)
    kernel = Kernel("relayout", (source,), (result,), tuple(axes[d] for d in order), (Store("y", at, value),))
    return Call(kernel, (array,), (Array(name, array.dtype, result.shape),))


def permuted(kernel: Kernel, orders: Mapping[str, Order]) -> Kernel:
    """The kernel on buffers whose dimensions stand in another order, with its axes in that order too."""

    def reindexed(order: Order):
        return lambda index: tuple(index[d] for d in order)

    buffers = {
        name: (
            replace(kernel.buffers[name], shape=reindexed(order)(kernel.buffers[name].shape)),
            reindexed(order),
        )
        for name, order in orders.items()
    }
    return ordered(Rewriting({}, {}, buffers).kernel(kernel), orders)


def ordered(kernel: Kernel, chosen: Mapping[str, Order]) -> Kernel:
    """The kernel with its axes in the order in which they pass through memory, where that is free."""
    indices: list[tuple[Affine | Expr, ...]] = [s.index for s in kernel.stores if s.buffer in chosen]
    indices += [access.index for _, access in kernel.reads() if access.buffer in chosen]
    place: dict[str, int] = {}
    for index in indices:
        for position, part in enumerate(index):
            for name in part.names if isinstance(part, Affine) else ():
                place.setdefault(name, position)

    def sort(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(sorted(axes, key=lambda axis: place.get(axis.name, -1)))

    def stage(s: Stage) -> Stage:
        free = isinstance(s, Reduce) or isinstance(s, Fold) and s.merge is not None
        return replace(s, axes=sort(s.axes)) if free else s

    return kernel.replace(parallel=sort(kernel.parallel), stages=tuple(map(stage, kernel.stages)))
