"""Lay images out with their channels innermost where matrix registers multiply pairs of bfloat16, and where
factors are bytes.

    %y = conv2d(%x: f32[1,64,56,56], %w)    ->    %x1: bf16[1,56,56,64] = relayout(%x)
    %z = relu(%y)                                 %x2: bf16[1,58,58,64] = pad(%x1)
                                                  %w1: f32[3,3,64,64] = relayout(%w)
                                                  %y1: f32[1,56,56,64] = conv2d(%x2, %w1)
                                                  %z1: f32[1,56,56,64] = relu(%y1)
                                                  %z: f32[1,64,56,56] = relayout(%z1)

A convolution is a product of matrices then, whose left factor lies along the sum: `pack_matmuls` says how it
runs.  A depthwise one between them has a channel in each lane.  Groups stay as they are.

Images of bytes stay bytes, or become i16 where a target multiplies no quads; a number around them that is not
0 (a zero point) is copied there beforehand.
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
from ..schedules.steps import Schedule
from ..schedules.target import Target
from .image_layout import ImageLayout, Order, padded
from .pack_convolution import by_channels
from .product_calls import cast_call, instead
from .program import Array, Call, Program, Step
from .side_by_side import BYTES, filling

COLUMNS = 16  # channels of a result that are worth matrix registers


def matrix_convolutions(program: Program, target: Target, rounds: bool = False) -> Program:
    """The program with its images laid out anew, or the program itself where that saves nothing.

    rounds: whether factors of f32 may be rounded to bfloat16.
    """
    program = _filled(program)
    windowed = {call: found for call in program.calls if call.how is None and (found := _windowed(call))}
    if any(found.gradient for found in windowed.values()):
        return program  # gradients of weights want images as they are
    served = {call: found for call, found in windowed.items() if _fits(call, found, rounds, target)}
    served |= {call: found for call in program.calls if (found := _depthwise_bytes(call)) is not None}
    saved = sum(map(_multiplied, served)) * target.core.muladd * (1 - MATRIX_SHARE)
    in_bytes = any(map(_in_bytes, served))  # as they are given, each is widened for itself
    if not served or not in_bytes and saved < _copied(program, served) / target.core.packs:
        return program
    return _Layout(program, served, target, rounds).program()


def _windowed(call: Call) -> Windowed | None:
    found = product_of(call.kernel)
    return found and found.widened


def _in_bytes(call: Call) -> bool:
    """Whether factors are bytes, and sums i32."""
    found = product_of(call.kernel)
    if found is None or call.kernel.dtypes[found.stage.name] != "i32":
        return False
    sides = [element(factor.value) for factor in found.factors]
    return all(side is not None and call.kernel.buffers[side.buffer].dtype in BYTES for side in sides)


def _filled(program: Program) -> Program:
    """The program in which bytes beside an image that are not 0 are copied there beforehand.

    x[n, c, i+r-1 else 3]    ->    p[n, c, i+r],  p[n, c, i] = x[n, c, i-1 else 3]
    """
    steps = list[Step]()
    for step in program.steps:
        steps += _with_copies(step) if isinstance(step, Call) and step.how is None else [step]
    return program.replace(steps=tuple(steps)) if len(steps) > len(program.steps) else program


def _with_copies(call: Call) -> list[Step]:
    found = product_of(call.kernel) if _in_bytes(call) else None
    for factor in found.factors if found else ():
        access = element(factor.value)
        assert access is not None
        index = [part for part in access.index if isinstance(part, Affine)]
        if access.other is None or is_zero(access.other) or len(index) < len(access.index):
            continue
        array = next(
            a for a, b in zip(call.inputs, call.kernel.inputs, strict=True) if b.name == access.buffer
        )
        reach = [part.bounds(call.kernel.extents) for part in index]
        if any(isinstance(low, Dim) for low, _ in reach):
            continue
        first = [int(low) for low, _ in reach]
        shape = tuple(high - low + 1 for low, high in reach)
        copy = padded(array, first, shape, fill=int(access.other.value))
        buffer = Buffer(fresh(call.kernel, access.buffer), array.dtype, shape)
        at = tuple(part - Affine((), low) for part, low in zip(index, first, strict=True))
        return [copy, instead(call, factor.value, buffer, at, copy.outputs[0])]
    return [call]


def _fits(call: Call, roles: Windowed, rounds: bool, target: Target) -> bool:
    """Whether a convolution of images of given sizes has factors of bfloat16, or such as may be rounded, or
    bytes, which the target multiplies, and reads its image at every place or next to it."""
    kernel, found = call.kernel, product_of(call.kernel)
    assert found is not None
    extents, wanted = kernel.extents, {"bf16", "f32"} if rounds else {"bf16"}
    if _in_bytes(call):
        wanted = {*BYTES}
        weight = next(b for b in kernel.inputs if b.name == roles.weight)
        if weight.dtype != "i8" or not (target.byte_matrix or target.lanes in {*target.quads, *target.words}):
            return False
    elif not target.matrix or kernel.dtypes[found.stage.name] != "f32":
        return False
    if _is_open(kernel, roles.batch):
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
        if call.how is not None:  # a depthwise one
            return self.rounded(call)
        return (call,) if roles is None else self.as_product(call, roles)

    def as_product(self, call: Call, roles: Windowed) -> list[Step]:
        """The call on its image as bfloat16, with zeros around it, and beside channels (an image's three) of
        which no number of pairs fills a register.

            x[n, i+r-1, j+s-1, c else 0]    ->    p[n, i+r, j+s, c],  p[n, i, j, c] = x[n, i-1, j-1, c else 0]
        """
        kernel, (image, _), (channel, _) = call.kernel, roles.images, roles.channels
        assert channel is not None
        count, dtype = self.channels(call, roles, int(kernel.extents[channel]))
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
            if access.buffer == image and dtype == "bf16" != array.dtype:
                array = self.shared(steps, cast_call("round", array, "bf16"))
            made = dtype if access.buffer == image else array.dtype
            if any(first) or tuple(shape) != array.shape or made != array.dtype:
                array = self.shared(steps, padded(array, first, tuple(shape), made))
            buffer = Buffer(fresh(call.kernel, access.buffer), array.dtype, tuple(shape))
            at = tuple(part - Affine((), low) for part, low in zip(index, first, strict=True))
            call = instead(call, side, buffer, at, array)
        stages = tuple(_with_extent(stage, channel, count) for stage in call.kernel.stages)
        return [*steps, replace(call, kernel=call.kernel.replace(stages=stages))]

    def channels(self, call: Call, roles: Windowed, count: int) -> tuple[int, str]:
        """The channels that an image is copied with, and in which dtype."""
        beside = _beside(call.kernel, roles)
        if not _in_bytes(call):
            return filling(count, 2, beside), "bf16"
        image = next(b.dtype for b in call.kernel.inputs if b.name == roles.images[0])
        if self.target.byte_matrix:
            return filling(count, 4, beside), image
        size = 4 if self.target.lanes in self.target.quads else 2
        return -(-count // size) * size, image if size == 4 else "i16"

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
            made = self.shared(steps, cast_call("round", array, "bf16"))
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


def _depthwise_bytes(call: Call) -> Windowed | None:
    """The roles of a depthwise convolution's arrays, where its factors are bytes."""
    found = _depthwise(call) if call.how is None and _in_bytes(call) else None
    if found is None or found.batch is None and len(call.outputs) > 1:
        return None
    channel = found.group
    return Windowed(
        found.stage,
        found.batch,
        (found.input, call.kernel.outputs[0].name),
        found.weight,
        False,
        (channel, channel),
    )


def _depthwise(call: Call) -> Convolution | None:
    roles = _convolution(call)
    return roles if roles is not None and roles.depthwise else None


def _convolution(call: Call) -> Convolution | None:
    """The convolution that a call is, of images of given sizes."""
    found = product_of(squeezed(call.kernel))
    roles = found and (found.widened_convolution if _in_bytes(call) else found.convolution)
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
