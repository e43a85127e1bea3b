"""Lay images out by blocks of channels, pack weights, and choose how each convolution runs.

    program net(%x: f32[1,16,8,8], %w: f32[32,16,3,3]) -> (%y) {
      %y: f32[1,32,8,8] = conv_relu(%x, %w)
    }
        ->
    program net(%x: f32[1,16,8,8], %w: f32[32,16,3,3]) -> (%y2) {
      %x1: f32[1,1,8,8,16] = block(%x)
      %u: f32[1,36,16,32] = pack_winograd(%w, %g)
      %y: f32[1,2,8,8,16] = conv_relu(%x1, %w, %u)  # winograd F(4x4,3x3) ...
      %y2: f32[1,32,8,8] = unblock(%y)
    }

A convolution wants its images blocked and makes a blocked one; every other kernel whose channels are one
plain axis follows its operands.  What can't be blocked, and the results, stay as they are: `block` and
`unblock` convert between the two, once for each array that needs it.  Packing a weight is a call like any
other, so that it is hoisted with all that depends on weights alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Fold, Kernel, Local, Reduce, Store
from ...ir.kernel.scalar import read
from ..kernels.blocking import (
    CHANNEL,
    Blocked,
    block,
    blocked_shape,
    can_block,
    fresh,
    names_in,
    squeezed,
    zero_of,
)
from ..kernels.product import Convolution, product_of
from ..kernels.space_to_depth import space_to_depth
from ..kernels.winograd import weight_products
from ..schedules.choose_winograd import choose_winograd, directly, pack_winograd
from ..schedules.default import runs_once
from ..schedules.steps import Schedule, Vectorise, Winograd, tiles, unrolls
from ..schedules.target import Target
from .pack_convolution import WIDE, Direct, direct
from .product_calls import cast_call
from .program import Array, Call, Program, Step

MOST_TAPS = 16  # of a window that is unrolled
# Of a window whose sums take no longer than copying them: 28 x 28 by 3 x 3 to 16 channels took 4.9 us on
# plain arrays and 7.5 by blocks and a copy, 128 x 128 by 9 x 9 to 32 channels 740 and 490 (Xeon, 2026-11-27).
FEW_TAPS = 25
FEWEST_TAPS = 9  # of a depthwise one, where registers are few
FEWEST_PLACES = 7  # of its rows
PACKED = 10.0  # nanoseconds of a vector of what weights become for Winograd's products (EPYC "Zen 4", AVX2)


@dataclass(frozen=True)
class Options:
    """What a program must hold to.

    winograd: whether a convolution may be computed from sums of its inputs.  One inf or NaN then spoils the
    places around those that it reaches, and the last bits differ from those of a direct sum.  threads: how
    many to find work for.  rounds: whether its factors may be rounded to bfloat16.  seldom: weights change
    seldom, so that what is made of them takes no time.
    """

    winograd: bool = True
    threads: int = 2
    rounds: bool = False
    seldom: bool = True


def assign_layouts(program: Program, target: Target, options: Options | None = None) -> Program:
    """The program with blocked images, packed weights and chosen convolutions; its params and results as
    they were."""
    return _Assignment(program, target, options or Options()).program()


class _Assignment:
    """Walks a program once.

    plain, blocked: which of the new arrays hold an old one, in each form.  made_blocked: the old ones that
    are computed in blocks.  readers: of each of the old ones, how many steps.
    """

    def __init__(self, program: Program, target: Target, options: Options):
        self.old, self.target, self.options = program, target, options
        self.steps: list[Step] = []
        self.plain: dict[Array, Array] = {a: a for a in (*program.params, *program.constants)}
        self.blocked: dict[Array, Array] = {}
        self.made_blocked: set[Array] = set()
        self.readers = Counter(a for step in program.steps for a in {*step.inputs} if a is not None)
        self.constants: dict[Array, np.ndarray] = dict(program.constants)
        self.packed: dict[tuple[Array, str], Array] = {}
        self.tables: dict[tuple[int, int], Array] = {}
        self.rounded: dict[Array, Array] = {}

    def program(self) -> Program:
        for step in self.old.steps:
            if not (isinstance(step, Call) and step.how is None and self.call(step)):
                self.as_it_was(step)
        results = tuple(self.as_plain(array) for array in self.old.results)
        return self.old.replace(steps=tuple(self.steps), results=results, constants=self.constants)

    # ---- the two forms of an array
    def as_plain(self, array: Array) -> Array:
        if array not in self.plain:
            source = self.blocked[array]
            made = Array(array.name, array.dtype, array.shape)
            self.steps.append(
                Call(unblock_kernel(array.dtype, array.shape, self.target.lanes), (source,), (made,))
            )
            self.plain[array] = made
        return self.plain[array]

    def as_blocked(self, array: Array) -> Array:
        if array not in self.blocked:
            lanes = self.target.lanes
            made = Array(array.name, array.dtype, blocked_shape(array.shape, lanes))
            self.steps.append(
                Call(block_kernel(array.dtype, array.shape, lanes), (self.plain[array],), (made,))
            )
            self.blocked[array] = made
        return self.blocked[array]

    def as_rounded(self, array: Array) -> Array:
        """What an array holds as bfloat16."""
        if array not in self.rounded:
            call = cast_call("round", array, "bf16")
            self.steps.append(call)
            (self.rounded[array],) = call.outputs
        return self.rounded[array]

    # ---- steps
    def as_it_was(self, step: Step) -> None:
        inputs = tuple(None if a is None else self.as_plain(a) for a in step.inputs)
        self.steps.append(replace(step, inputs=inputs))
        self.plain |= {array: array for array in step.outputs}

    def call(self, step: Call) -> bool:
        """Append the call on blocked arrays; False where it stays as it was."""
        kernel = squeezed(step.kernel)
        found = product_of(kernel)
        roles = found and found.convolution
        if roles is not None and self.wants_blocks(kernel, roles):
            return not self.stays_plain(step, kernel, roles) and self.convolve(step, kernel, roles)
        given = {
            buffer.name
            for buffer, array in zip(kernel.inputs, step.inputs, strict=True)
            if array in self.made_blocked
        }
        made = block(kernel, given, self.target.lanes) if given else None
        if made is None:
            return False
        self.append(step, made.kernel, made.buffers, {}, blocked_schedule(made))
        return True

    def append(
        self,
        step: Call,
        kernel: Kernel,
        buffers: frozenset[str],
        instead: Mapping[str, tuple[Array, ...]],
        how: object,
    ) -> None:
        """A call of `kernel` in place of a step.  buffers: those blocked.  instead: other operands."""
        inputs: list[Array] = []
        for buffer, array in zip(step.kernel.inputs, step.inputs, strict=True):
            name = buffer.name
            found = instead.get(name)
            inputs += found or (self.as_blocked(array) if name in buffers else self.as_plain(array),)
        outputs = []
        for buffer, old, array in zip(kernel.outputs, step.kernel.outputs, step.outputs, strict=True):
            shape = buffer.shape
            made = array if shape == array.shape else Array(array.name, array.dtype, shape)
            if old.name in buffers:
                self.blocked[array] = made
                self.made_blocked.add(array)
            else:
                self.plain[array] = made
            outputs.append(made)
        self.steps.append(Call(kernel, tuple(inputs), tuple(outputs), how, step.where))

    # ---- convolutions
    def wants_blocks(self, kernel: Kernel, roles: Convolution) -> bool:
        """Whether the outputs can come in blocks, and the weight is read by the convolution alone."""
        lanes = self.target.lanes
        weight = [access for _, access in kernel.reads if access.buffer == roles.weight]
        return (
            len(set(weight)) == 1
            and all(buffer.inplace is None for buffer in kernel.outputs)
            and all(kernel.buffers[name].dtype == "f32" for name in (roles.input, roles.weight))
            and all(can_block(buffer.shape, lanes) for buffer in kernel.outputs)
            and not any(store.axes for store in kernel.stores)
            # where something else stands in the place of channels, that would be cut into blocks
            and all(names_in(store.index[CHANNEL]) <= {roles.out, roles.group} for store in kernel.stores)
        )

    def stays_plain(self, step: Call, kernel: Kernel, roles: Convolution) -> bool:
        """Whether it does better between plain arrays.

        Few channels, as half of a block or more would be padding (8 to 8 of them on 28 x 28 take 8 us so,
        and 14 by blocks; Xeon, 2026-11-27), but for images that a gradient will read too.  And what would be
        copied at both ends: a product of matrices, and small windows of one channel, or of each alone, whose
        rows are as good as blocks.  144 channels of 56 x 56, batch 8, 3 x 3: 3.8 ms in place of 10.8; 5 x 5
        5.9 and 11.2, but by half as many registers 1.07 and 0.97 of one image (a Xeon with AVX-512, one
        thread, 2026-12-01).
        """
        channels, outs = (int(kernel.extents[axis]) if axis else 1 for axis in (roles.channel, roles.out))
        image = next(a for a, b in zip(step.inputs, kernel.inputs, strict=True) if b.name == roles.input)
        assert image is not None
        if roles.group is None and 2 * max(channels, outs) <= self.target.lanes and self.readers[image] == 1:
            return True
        if not set(step.outputs) <= set(self.old.results):
            return False
        if roles.of_one_channel:
            return roles.stride[-1] == 1 and prod(map(int, roles.window)) <= FEW_TAPS
        if not self.made_blocked.isdisjoint(a for a in step.inputs if a is not None):
            return False
        if roles.depthwise:
            taps, row = prod(map(int, roles.window)), int(kernel.extents[roles.places[-1]])
            most = FEW_TAPS if self.target.registers >= WIDE else FEWEST_TAPS
            return taps <= most and row >= (FEWEST_PLACES if taps <= FEWEST_TAPS else self.target.lanes // 2)
        return roles.is_pointwise

    def convolve(self, step: Call, kernel: Kernel, roles: Convolution) -> bool:
        how = self.winograd(kernel, roles)
        if how is not None:
            return self.by_winograd(step, kernel, roles, how)
        if self.as_depth(step, kernel, roles):
            return True
        made = direct(kernel, roles, self.target, self.options.rounds)
        if made is None:
            return False
        return self.directly(step, roles, made)

    def directly(self, step: Call, roles: Convolution, made: Direct) -> bool:
        operands = dict(zip((b.name for b in step.kernel.inputs), step.inputs, strict=True))
        weight = self.as_plain(operands[roles.weight])
        instead = {roles.weight: (self.pack(weight, made.pack, (), made.pack_schedule),)}
        image = made.kernel.buffers[roles.input]
        if image.dtype == "bf16":
            instead[roles.input] = (self.as_rounded(self.as_blocked(operands[roles.input])),)
        self.append(step, made.kernel, made.buffers, instead, made.how)
        return True

    def winograd(self, kernel: Kernel, roles: Convolution, direct: float | None = None) -> Winograd | None:
        options = self.options
        if not options.winograd:
            return None
        how = choose_winograd(kernel, roles, self.target, options.threads, options.rounds, direct)
        if how is None or options.seldom:
            return how
        pairs = prod(map(int, kernel.buffers[roles.weight].shape[:2]))
        made = pairs * (how.tile + int(roles.window[0]) - 1) ** 2 * PACKED / self.target.lanes
        gain = (directly(kernel, roles, self.target) if direct is None else direct) / 2
        return how if made < gain else None

    def as_depth(self, step: Call, kernel: Kernel, roles: Convolution) -> bool:
        """A strided convolution of few channels by Winograd, between the places that a stride passes."""
        image = kernel.buffers[roles.input]
        if can_block(image.shape, self.target.lanes):
            return False
        deep = space_to_depth(kernel, roles, self.target.lanes)
        if deep is None:
            return False
        how = self.winograd(deep.kernel, deep.roles, directly(kernel, roles, self.target))
        if how is None:
            return False
        operands = {b.name: a for b, a in zip(step.kernel.inputs, step.inputs, strict=True) if a is not None}
        x, w = operands[roles.input], operands[roles.weight]
        shapes = deep.kernel.buffers
        whole = Array(x.name, x.dtype, deep.image.outputs[0].shape)
        self.steps.append(Call(deep.image, (self.as_plain(x),), (whole,)))
        self.plain[whole] = whole
        made = operands[roles.input] = Array(x.name, x.dtype, shapes[roles.input].shape)
        self.blocked[made] = self.as_blocked(whole)
        operands[roles.weight] = self.pack(self.as_plain(w), deep.weight, (), None)
        self.plain[operands[roles.weight]] = operands[roles.weight]
        inputs = tuple(operands[b.name] for b in step.kernel.inputs)
        return self.by_winograd(
            replace(step, kernel=deep.kernel, inputs=inputs), deep.kernel, deep.roles, how
        )

    def by_winograd(self, step: Call, kernel: Kernel, roles: Convolution, how: Winograd) -> bool:
        made = block(
            kernel, [roles.input, *(b.name for b in kernel.outputs)], self.target.lanes, beside=[roles.weight]
        )
        if made is None:
            return False
        operands = dict(zip((b.name for b in step.kernel.inputs), step.inputs, strict=True))
        weight = self.as_plain(operands[roles.weight])
        pack = pack_winograd(weight.shape, how, self.target.lanes)
        taps = int(roles.window[0])
        table = self.tables.get((how.tile, taps))
        if table is None:
            numbers = weight_products(how.tile, taps)
            table = self.tables[how.tile, taps] = Array(f"g{how.tile}", "f64", numbers.shape)
            self.constants[table] = numbers
        rows = {"a": 12 if table.shape[0] == 36 else 8}
        schedule = Schedule(Vectorise("ki"), *tiles(rows), *unrolls({"r": taps, "s": taps}))
        u = self.pack(weight, pack, (table,), schedule)
        buffer = Buffer(fresh(made.kernel, "u"), "f32", u.shape)
        at = [b.name for b in made.kernel.inputs].index(roles.weight) + 1
        inputs = made.kernel.inputs
        new = made.kernel.replace(inputs=(*inputs[:at], buffer, *inputs[at:]))
        self.append(step, new, made.buffers, {roles.weight: (weight, u)}, Schedule(how))
        return True

    def pack(self, array: Array, kernel: Kernel, beside: tuple[Array, ...], how: object) -> Array:
        """What a kernel with one output makes of the array: once, however often it is wanted."""
        key = array, str(kernel)
        if key not in self.packed:
            (output,) = kernel.outputs
            made = Array(f"{array.name}_{output.name}", output.dtype, output.shape)
            self.steps.append(Call(kernel, (array, *beside), (made,), how))
            self.packed[key] = made
        return self.packed[key]


def blocked_schedule(made: Blocked) -> Schedule | None:
    """A kernel over blocks: the lanes along the block, and some places of a row together, so that they share
    what they compute with, and windows what they read.  None leaves it to the default."""
    kernel = made.kernel
    lanes = [inner for _, inner in made.axes.values() if inner in kernel.parallel_names]
    stored = [store.index[-2] for store in kernel.stores if len(store.index) > 2]
    rows = [a for a in kernel.parallel if stored and all(at == Affine(((a.name, 1),)) for at in stored)]
    if (
        len(lanes) != 1
        or not rows
        or not rows[0].extent
        or any(isinstance(s, Local) and s.axes for s in kernel.stages)
    ):
        return None
    row, extent = rows[0].name, int(rows[0].extent)
    summed = [axis for stage in kernel.stages if isinstance(stage, (Reduce, Fold)) for axis in stage.axes]
    if prod(int(axis.extent) for axis in summed) > MOST_TAPS:
        return None
    size = next(n for n in range(min(8, extent), 0, -1) if extent % n == 0)
    if size < 4 and summed and not runs_once(kernel):
        size = min(
            4, extent
        )  # the last one overlaps, as in a pointwise kernel, which may run in place, none may
    inner = {axis.name: int(axis.extent) for axis in summed[-1:]}
    return Schedule(Vectorise(lanes[0]), *tiles({row: size}), *unrolls(inner))


def block_kernel(dtype: str, shape: tuple[int, ...], lanes: int) -> Kernel:
    """y[n, co, i, ci] = x[n, 16*co+ci, i else 0]"""
    to = blocked_shape(shape, lanes)
    places = tuple(Axis(f"i{d}", n) for d, n in enumerate(to[:-1]))
    axes = (*places, Axis("ci", lanes))
    at = tuple(Affine(((axis.name, 1),)) for axis in axes)
    channel = at[CHANNEL] * lanes + at[-1]
    source = (*at[:CHANNEL], channel, *at[CHANNEL + 1 : -1])
    value = read("x", source, zero_of(dtype) if shape[CHANNEL] % lanes else None)
    return Kernel(
        "block", (Buffer("x", dtype, shape),), (Buffer("y", dtype, to),), axes, (Store("y", at, value),)
    )


def unblock_kernel(dtype: str, shape: tuple[int, ...], lanes: int) -> Kernel:
    """y[n, 16*co+ci, i] = x[n, co, i, ci], over co and ci too: squares of registers are transposed then.

    Where a last block is not full they are loops of stores, and what is left of it is stored by itself.
    """
    source = blocked_shape(shape, lanes)
    places = tuple(Axis(f"i{d}", n) for d, n in enumerate(shape) if d != CHANNEL)
    at = {f"i{d}": Affine(((f"i{d}", 1),)) for d in range(len(shape))}
    before, after = (
        [at[f"i{d}"] for d in range(CHANNEL)],
        [at[f"i{d}"] for d in range(CHANNEL + 1, len(shape))],
    )
    whole, rest = divmod(shape[CHANNEL], lanes)

    def store(block: Affine, lane: str, axes: tuple[Axis, ...]) -> Store:
        inner = Affine(((lane, 1),))
        return Store(
            "y", (*before, block * lanes + inner, *after), read("x", (*before, block, *after, inner)), axes
        )

    stores = []
    if not rest:
        places = (*places[:CHANNEL], Axis("co", whole), Axis("ci", lanes), *places[CHANNEL:])
        stores.append(store(Affine((("co", 1),)), "ci", ()))
    elif whole:
        stores.append(store(Affine((("co", 1),)), "ci", (Axis("co", whole), Axis("ci", lanes))))
    if rest:
        stores.append(store(Affine((), whole), "cr", (Axis("cr", rest),)))
    buffers = (Buffer("x", dtype, source),), (Buffer("y", dtype, shape),)
    return Kernel("unblock", *buffers, places, tuple(stores))
