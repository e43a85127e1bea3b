"""Rewrite a kernel for channel-blocked arrays: [n, c, h, w] -> [n, c / 16, h, w, 16].

    y[n, c, i] = (x[n, c, i] + b[c])    ->    y[n, co, i, ci] = (x[n, co, i, ci] + b[16*co+ci])

The block is as long as a vector, so that whatever runs over channels fills registers whatever the sizes of
the image.  What is computed does not change, only the axes that it is written over.

Channels that don't fill their last block are followed by zeros there: every kernel that writes such an array
writes them, and every sum that reads it adds products of zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ...ir.kernel.affine import ZERO, Affine, vanishes
from ...ir.kernel.form import Axis, Buffer, Fold, Index, Kernel, Local, Reduce, Stage, Store, names
from ...ir.kernel.scalar import Expr, Op, Read, coordinate, op, read
from ...ir.kernel.substitute import Substitution

CHANNEL = 1  # the dimension that is blocked
MOST_WASTE = 2.0  # of a blocked array: its size to that of what it holds


def squeezed(kernel: Kernel) -> Kernel:
    """Without the axes of one point, which say nothing: x[n, c+r, i] for r:1 -> x[n, c, i].

    A stage that runs over nothing else keeps one of them.
    """
    kept = {
        stage.axes[0].name
        for stage in kernel.stages
        if isinstance(stage, (Reduce, Fold, Local)) and stage.axes and all(a.extent == 1 for a in stage.axes)
    }
    kept |= {
        name for stage in kernel.stages if isinstance(stage, (Local, Fold)) for name in names(stage.axes)
    }
    gone = {axis.name for axis in kernel.axes if axis.extent == 1} - kept
    if not gone:
        return kernel
    return Substitution(indices=dict.fromkeys(gone, ZERO), axes=dict.fromkeys(gone, ())).kernel(kernel)


def split_axis(kernel: Kernel, axis: str, size: int) -> tuple[Kernel, str, str]:
    """The kernel with an axis as two, the inner of `size` points and last, and the names of both."""
    outer, inner = fresh(kernel, f"{axis}o"), fresh(kernel, f"{axis}i")
    index, axes = _halves(kernel, axis, size, outer, inner)
    return Substitution(indices={axis: index}, axes={axis: axes}).kernel(kernel), outer, inner


def _halves(kernel: Kernel, axis: str, size: int, outer: str, inner: str) -> tuple[Affine, tuple[Axis, Axis]]:
    extent = int(kernel.extents[axis])
    return Affine.of({outer: size, inner: 1}), (Axis(outer, -(-extent // size)), Axis(inner, size))


def fresh(kernel: Kernel, name: str) -> str:
    """The name, or one like it that nothing in the kernel has."""
    taken = {*kernel.buffers, *kernel.extents, *kernel.symbols}
    taken |= {defined for stage in kernel.stages for defined in stage.defines}
    while name in taken:
        name += "_"
    return name


def zero_of(dtype: str) -> int:
    """What stands beyond the last channel."""
    return False if dtype == "bool" else 0


def blocked_shape(shape: tuple[int, ...], lanes: int) -> tuple[int, ...]:
    """[n, c, ...] -> [n, c / lanes, ..., lanes], the blocks rounded up"""
    return (*shape[:CHANNEL], -(-shape[CHANNEL] // lanes), *shape[CHANNEL + 1 :], lanes)


def can_block(shape: tuple, lanes: int) -> bool:
    """Whether an array of this shape is an image whose channels fill their blocks, or half of them.

    One place to a channel is no image: [n, c, 1, 1] lies in memory as its blocked form does.
    """
    if len(shape) < 3 or not all(isinstance(n, int) for n in shape[CHANNEL:]) or 0 in shape:
        return False
    channels = shape[CHANNEL]
    return -(-channels // lanes) * lanes <= MOST_WASTE * channels and any(n > 1 for n in shape[CHANNEL + 1 :])


@dataclass(frozen=True)
class Blocked:
    """A kernel on blocked arrays.

    buffers: those that are.  axes: what runs in place of an axis that was split, outer and inner.
    """

    kernel: Kernel
    buffers: frozenset[str]
    axes: Mapping[str, tuple[str, str]]


def block(kernel: Kernel, given: Iterable[str], lanes: int, beside: Iterable[str] = ()) -> Blocked | None:
    """The kernel with the buffers `given` blocked, and all that go with them but those `beside`.

    None where an index on channels is more than one axis and a whole number of blocks, or where the order
    of channels matters to a fold.
    """
    wanted, split = _closure(kernel, set(given), set(beside), lanes)
    if wanted is None:
        return None
    pairs = {axis: (fresh(kernel, f"{axis}o"), fresh(kernel, f"{axis}i")) for axis in sorted(split)}
    own = sorted(split - kernel.parallel_names)
    if all(len(split.intersection(names(stage.axes))) < 2 for stage in kernel.stages):
        # the lanes of stages that run one after another are one axis: only one fills the vectors
        pairs |= {axis: (pairs[axis][0], pairs[own[0]][1]) for axis in own}
    halves = {axis: _halves(kernel, axis, lanes, *pair) for axis, pair in pairs.items()}

    blocks = Substitution(
        indices={axis: index for axis, (index, _) in halves.items()},
        axes={axis: axes for axis, (_, axes) in halves.items()},
        buffers={b: _reshaped(kernel.buffers[b], lanes) for b in wanted},
        at=dict.fromkeys(wanted, partial(_blocked_index, lanes)),
    )
    made = blocks.kernel(kernel)
    ragged = {axis: int(kernel.extents[axis]) for axis in split if int(kernel.extents[axis]) % lanes}
    if ragged:
        filled = _filled(made, {pairs[axis]: extent for axis, extent in ragged.items()}, wanted, lanes)
        if filled is None:
            return None
        made = filled
    return Blocked(made, frozenset(wanted), pairs)


def _reshaped(buffer: Buffer, lanes: int) -> Buffer:
    return replace(buffer, shape=blocked_shape(buffer.shape, lanes))


def _blocked_index(lanes: int, index: Index) -> Index:
    """[n, 16*co+ci+16*g+32, i] -> [n, co+g+2, i, ci]"""
    part = index[CHANNEL]
    assert isinstance(part, Affine)  # _is_blockwise said so
    lane = Affine(tuple((name, c) for name, c in part.terms if c % lanes))
    rest = part - lane
    outer = Affine(tuple((name, c // lanes) for name, c in rest.terms), rest.constant // lanes)
    return (*index[:CHANNEL], outer, *index[CHANNEL + 1 :], lane)


def _filled(
    kernel: Kernel, ragged: Mapping[tuple[str, str], int], wanted: set[str], lanes: int
) -> Kernel | None:
    """The kernel with zeros in what is left of last blocks; None for a store or a sum that can't have them.

    ragged: the axes that were one, outer and inner, and the extent that it had.
    """
    made = _zeros_beyond(kernel)
    stages: list[Stage] = []
    for stage in made.stages:
        own = [pair for pair in ragged if pair[1] in names(stage.axes)]
        if isinstance(stage, Store):
            pairs = [pair for pair in ragged if _has(stage.index, pair[1])]
            # only the last dimension of a blocked array has room beyond the last channel
            beyond = any(_has(stage.index[:-1], inner) for _, inner in pairs)
            if own or beyond or (pairs and stage.buffer not in wanted):
                return None
            # in a dimension that is no block's, what is beyond the last is no element at all
            if any(_has(stage.index[:-1], inner) for _, inner in pairs):
                return None
            value = stage.value
            for outer, inner in pairs:
                place = coordinate(Affine.of({outer: lanes, inner: 1}))
                zero = zero_of(kernel.buffers[stage.buffer].dtype)
                value = op("select", op("lt", place, ragged[outer, inner]), value, zero)
            stage = replace(stage, value=value)
        elif own and not (isinstance(stage, Reduce) and _adds_zeros(stage, own, wanted)):
            return None
        stages.append(stage)
    return made.replace(stages=tuple(stages))


def _has(index: Index, axis: str) -> bool:
    return any(isinstance(part, Affine) and axis in part.names for part in index)


def _adds_zeros(stage: Reduce, pairs: list[tuple[str, str]], wanted: set[str]) -> bool:
    """Whether every term beyond the last channel is zero times zero: a blocked image's and a weight's."""
    factors = stage.value.args if isinstance(stage.value, Op) and stage.value.name == "mul" else ()
    reads = [factor for factor in factors if isinstance(factor, Read)]
    return (
        stage.combine == "sum"
        and len(reads) == 2
        and any(factor.buffer in wanted for factor in reads)
        and all(_has(factor.index, inner) for factor in reads for _, inner in pairs)
    )


def _zeros_beyond(kernel: Kernel) -> Kernel:
    """The kernel whose reads beyond the last channel give zero."""

    def guarded(access: Read) -> Read:
        if access.other is not None or not kernel.unproved(access):
            return access
        return read(access.buffer, access.index, zero_of(kernel.buffers[access.buffer].dtype))

    return Substitution(reads=guarded).kernel(kernel)


def _closure(
    kernel: Kernel, wanted: set[str], beside: set[str], lanes: int
) -> tuple[set[str] | None, set[str]]:
    """The buffers to block, and the axes to split; None for what can't be blocked."""
    indices: dict[str, list[Index]] = {name: [] for name in kernel.buffers}
    for _, access in kernel.reads:
        indices[access.buffer].append(access.index)
    for store in kernel.stores:
        indices[store.buffer].append(store.index)
    split: set[str] = set()
    while True:
        found = {
            name for b in wanted for index in indices[b] for name in _within_blocks(index[CHANNEL], lanes)
        }
        more = {
            name
            for name, buffer in kernel.buffers.items()
            if name not in beside
            and can_block(buffer.shape, lanes)
            and any(names_in(index[CHANNEL]) & found for index in indices[name])
        }
        if found <= split and more <= wanted:
            break
        split, wanted = split | found, wanted | more
    sound = (
        all(can_block(kernel.buffers[b].shape, lanes) and kernel.buffers[b].layout is None for b in wanted)
        and all(_is_blockwise(kernel, b, index[CHANNEL], lanes) for b in wanted for index in indices[b])
        and not any(
            isinstance(part, Expr) and split & kernel.free_axes(part)
            for accesses in indices.values()
            for index in accesses
            for part in index
        )
        and all(b.inplace is None or (b.inplace in wanted) == (b.name in wanted) for b in kernel.outputs)
        and not any(_keeps_order(stage) and split & set(names(stage.axes)) for stage in kernel.stages)
        and not any(store.combine for store in kernel.stores)
    )
    return (wanted if sound else None), split


def names_in(part: Affine | Expr) -> frozenset[str]:
    """The axes of a part of an index, of one that is not computed."""
    return part.names if isinstance(part, Affine) else frozenset()


def _within_blocks(part: Affine | Expr, lanes: int) -> frozenset[str]:
    """The axes of an index on channels whose steps are no whole blocks: those to split."""
    return frozenset(name for name, c in part.terms if c % lanes) if isinstance(part, Affine) else frozenset()


def _is_blockwise(kernel: Kernel, buffer: str, part: Affine | Expr, lanes: int) -> bool:
    """Whether an index on channels is one axis plus whole blocks, and either both are whole blocks long, or
    it is that axis alone."""
    if not isinstance(part, Affine) or not vanishes(part.constant % lanes):
        return False
    (name, *more) = _within_blocks(part, lanes) or ("", "")
    if more or part.coefficient(name) != 1:
        return False
    extent, channels = int(kernel.extents[name]), int(kernel.buffers[buffer].shape[CHANNEL])
    whole = extent % lanes == 0 and channels % lanes == 0
    return whole or (part == Affine(((name, 1),)) and extent == channels)


def _keeps_order(stage: Stage) -> bool:
    """Whether the stage's own axes can't be split: a sequence, or an array that later stages index."""
    return isinstance(stage, Local) or (isinstance(stage, Fold) and (stage.scan or stage.merge is None))
