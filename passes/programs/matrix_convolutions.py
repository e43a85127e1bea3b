"""Lay images out with their channels innermost where matrix registers multiply pairs of bfloat16.

    %y = conv2d(%x: f32[1,64,56,56], %w)    ->    %x1: bf16[1,56,56,64] = relayout(%x)
    %z = relu(%y)                                 %x2: bf16[1,58,58,64] = pad(%x1)
                                                  %w1: f32[3,3,64,64] = relayout(%w)
                                                  %y1: f32[1,56,56,64] = conv2d(%x2, %w1)
                                                  %z1: f32[1,56,56,64] = relu(%y1)
                                                  %z: f32[1,64,56,56] = relayout(%z1)

A convolution is a product of matrices then, whose left factor lies along the sum: `pack_matmuls` says how it
runs.  A depthwise one between them has a channel in each lane.  Groups stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Buffer, Kernel, Reduce, Stage
from ...ir.kernel.scalar import Expr
from ..kernels.blocking import fresh, squeezed
from ..kernels.product import Convolution, Windowed, element, is_zero, product_of
from ..schedules.choose_product import MATRIX_SHARE
from ..schedules.steps import FEWEST_PAIRS, Schedule, pairs_at_once
from ..schedules.target import Target
from .assign_layouts import round_call
from .image_layout import ImageLayout, Order, padded
from .pack_convolution import by_channels
from .pack_matmuls import instead
from .program import Array, Call, Program, Step

COLUMNS = 16  # channels of a result that are worth matrix registers


def matrix_convolutions(program: Program, target: Target, rounds: bool = False) -> Program:
    """The program with its images laid out anew, or the program itself where that saves nothing.

    rounds: whether factors of f32 may be rounded to bfloat16.
    """
    windowed = {call: found for call in program.calls if call.how is None and (found := _windowed(call))}
    if any(found.gradient for found in windowed.values()):
        return program  # gradients of weights want images as they are
    served = {call: found for call, found in windowed.items() if _fits(call, found, rounds)}
    saved = sum(map(_multiplied, served)) * target.core.muladd * (1 - MATRIX_SHARE)
    if not served or saved < _copied(program, served) / target.core.packs:
        return program
    return _Layout(program, served, target, rounds).program()


def _windowed(call: Call) -> Windowed | None:
    found = product_of(call.kernel)
    return found and found.widened


def _fits(call: Call, roles: Windowed, rounds: bool) -> bool:
    """Whether a convolution of images of given sizes has factors of bfloat16, or such as may be rounded, and
    reads its image at every place or next to it."""
    kernel, found = call.kernel, product_of(call.kernel)
    assert found is not None
    extents, wanted = kernel.extents, {"bf16", "f32"} if rounds else {"bf16"}
    if _is_open(kernel, roles.batch) or kernel.dtypes[found.stage.name] != "f32":
        return False
    for factor in found.factors:
        side = element(factor.value)
        if side is None or kernel.buffers[side.buffer].dtype not in wanted:
            return False
        if side.other is not None and not is_zero(side.other):
            return False
        if any(isinstance(part, Expr) for part in side.index):
            return False
    channel, out = (int(kernel.extents[axis]) if axis else 1 for axis in roles.channels)
    return channel > 1 and out >= COLUMNS and 0 not in extents.values()


def _is_open(kernel: Kernel, batch: str | None) -> bool:
    """Whether more than the batch has any size."""
    return any(isinstance(extent, Dim) for axis, extent in kernel.extents.items() if axis != batch)


def _multiplied(call: Call) -> int:
    return prod(map(hint, call.kernel.extents.values()))


def _copied(program: Program, served: Mapping[Call, Windowed]) -> int:
    """The bytes of images that come or go as they are."""
    ends = {*program.params, *program.results}
    for call in program.calls:
        if call not in served and not _follows(call):
            ends.update((*call.inputs, *call.outputs))
    images = {a for call, roles in served.items() for a in _images(call, roles) if a in ends}
    return sum(hint(array.nbytes) for array in images)


def _images(call: Call, roles: Windowed) -> list[Array]:
    arrays = zip((*call.inputs, *call.outputs), call.kernel.buffers.values(), strict=True)
    return [array for array, buffer in arrays if buffer.name in roles.images]


def _follows(call: Call) -> bool:
    """Whether a call is as quick with the channels innermost: all but other convolutions are."""
    roles = _convolution(call)
    return product_of(call.kernel) is None or roles is not None and roles.depthwise


class _Layout(ImageLayout):
    def __init__(self, program: Program, found: Mapping[Call, Windowed], target: Target, rounds: bool):
        super().__init__(program, found)
        self.target, self.rounds = target, rounds
        self.copies: dict[tuple[Kernel, tuple], Array] = {}

    def is_touched(self, call: Call) -> bool:
        return super().is_touched(call) and _follows(call)

    def order(self, roles: Windowed | None, array: Array) -> Order:
        return (0, *range(2, len(array.shape)), 1)

    def weights(self, call: Call, roles: Windowed | None) -> dict[str, Order]:
        found = _depthwise(call)
        if found is None:
            return super().weights(call, roles)
        return {found.weight: (*range(2, 2 + len(found.taps)), 1, 0)}

    def way(self, call: Call, kernel: Kernel, roles: Windowed | None) -> Schedule | None:
        found = _depthwise(call)
        return None if found is None else by_channels(kernel, found, self.target)

    def calls(self, call: Call, roles: Windowed | None) -> Iterable[Step]:
        if roles is not None:
            return self.as_product(call, roles)
        return (call,) if call.how is None else self.rounded(call)

    def as_product(self, call: Call, roles: Windowed) -> list[Step]:
        """The call on its image as bfloat16, with zeros around it, and beside channels (an image's three) of
        which no number of pairs fills a register.

            x[n, i+r-1, j+s-1, c else 0]    ->    p[n, i+r, j+s, c],  p[n, i, j, c] = x[n, i-1, j-1, c else 0]
        """
        kernel, (image, _), (channel, _) = call.kernel, roles.images, roles.channels
        assert channel is not None
        count = filling(int(kernel.extents[channel]), _beside(kernel, roles))
        found = product_of(kernel)
        assert found is not None
        arrays = {b.name: a for a, b in zip(call.inputs, kernel.inputs, strict=True)}
        steps: list[Step] = []
        for side in (found.left, found.right):
            access = element(side)
            assert access is not None
            array, index = arrays[access.buffer], [part for part in access.index if isinstance(part, Affine)]
            reach = [part.bounds(kernel.extents) for part in index]
            first = [hint(low) for low, _ in reach]  # of the batch, which may be open, it is 0
            shape = [high - low + 1 for low, high in reach]
            shape[[part.names for part in index].index({channel})] = count
            if access.buffer == image and array.dtype != "bf16":
                array = self.shared(steps, round_call(array))
            if any(first) or tuple(shape) != array.shape:
                array = self.shared(steps, padded(array, first, tuple(shape)))
            buffer = Buffer(fresh(call.kernel, access.buffer), array.dtype, tuple(shape))
            at = tuple(part - Affine((), low) for part, low in zip(index, first, strict=True))
            call = instead(call, side, buffer, at, array)
        stages = tuple(_with_extent(stage, channel, count) for stage in call.kernel.stages)
        return [*steps, replace(call, kernel=call.kernel.replace(stages=stages))]

    def rounded(self, call: Call) -> list[Step]:
        """A depthwise convolution that reads its image as bfloat16: half of the bytes that it waits for."""
        found, steps = product_of(call.kernel), list[Step]()
        assert found is not None
        side = found.left if found.m else found.right
        access = element(side)
        assert access is not None
        (array,) = (
            a for a, b in zip(call.inputs, call.kernel.inputs, strict=True) if b.name == access.buffer
        )
        if array.dtype == "f32" and self.rounds:
            made = self.shared(steps, round_call(array))
            buffer = Buffer(fresh(call.kernel, access.buffer), "bf16", made.shape)
            outside = None if access.other is None else 0
            call = instead(call, side, buffer, access.index, made, outside)
        return [*steps, call]

    def shared(self, steps: list[Step], made: Call) -> Array:
        """What a call makes; equal calls are made once."""
        key = made.kernel, made.inputs
        if key not in self.copies:
            steps.append(made)
            (self.copies[key],) = made.outputs
        return self.copies[key]


def _depthwise(call: Call) -> Convolution | None:
    roles = _convolution(call)
    return roles if roles is not None and roles.depthwise else None


def _convolution(call: Call) -> Convolution | None:
    """The convolution that a call is, of images of given sizes."""
    found = product_of(squeezed(call.kernel))
    roles = found and found.convolution
    if (
        roles is None
        or _is_open(call.kernel, roles.batch)
        or len({a for _, a in call.kernel.reads if a.buffer == roles.weight}) > 1
    ):
        return None
    return roles


def _with_extent(stage: Stage, axis: str, extent: int) -> Stage:
    if not isinstance(stage, Reduce):
        return stage
    return replace(stage, axes=tuple(replace(a, extent=extent) if a.name == axis else a for a in stage.axes))


def _beside(kernel: Kernel, roles: Windowed) -> int:
    """Taps whose channels lie side by side."""
    index = next(access.index for _, access in kernel.reads if access.buffer == roles.images[0])
    row, taps = index[-2], [axis for axis in roles.stage.axes if axis.name != roles.channels[0]]
    assert isinstance(row, Affine)
    return next((int(a.extent) for a in taps if row.coefficient(a.name) == 1), 1)


def filling(channels: int, taps: int = 1) -> int:
    """So many channels and more, of which some pairs fill a register; taps: of these side by side."""
    count = channels + channels % 2
    while pairs_at_once(count * taps // 2) < FEWEST_PAIRS:
        count += 2
    return count
