"""Left factors that a call before made of bytes and scales: they are read as these.

    out[i, g, r] = (f32(i8(round(x[i, g, r] / s))) * s)        whose s is of [i, g]
        ->  bytes[i, g, r] = i8(round(x[i, g, r] / s))
            scales[i, g] = s, sums[i, g] = s * sum(r) bytes[i, g, r]

As activations are that were rounded to bytes, of each group in steps of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...ir.dims import Dim
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Buffer, Kernel, Reduce, Store, names
from ...ir.kernel.scalar import Cast, Expr, Op, Read, cast, op, read, ref
from ..kernels.blocking import fresh
from .program import Array, Call

if TYPE_CHECKING:
    from .pack_matmuls import Packing


class Whole(NamedTuple):
    """A call that makes bytes and scales in place of arrays, and of how many neighbours each of these is."""

    call: Call
    group: int
    arrays: frozenset[Array]


class Left(NamedTuple):
    """A left factor in whole numbers: how it is read, its sums over each group, and the arrays of both."""

    factor: Expr
    sums: Expr
    arrays: dict[Buffer, Array]


def made_whole(packing: Packing, call: Call, left: Expr) -> Whole | None:
    """How a left factor is made in bytes; None of one that is made otherwise."""
    if not isinstance(left, Read) or left.other is not None:
        return None
    if not all(isinstance(part, Affine) for part in left.index):
        return None
    (array,) = packing.arrays_of(call, left, call.kernel)
    made, shapes = packing.maker(array)
    is_all = all(a.size == array.size for a in shapes)  # and no part of what was made
    return _stored(made, shapes) if made is not None and is_all else None


def _stored(call: Call, passed: list[Array]) -> Whole | None:
    """The call that stores bytes, scales and sums in place of products, the last of these arrays."""
    kernel, buffer = call.kernel, call.kernel.outputs[call.outputs.index(passed[-1])]
    stores = [stage for stage in kernel.stages if isinstance(stage, Store) and stage.buffer == buffer.name]
    if len(stores) != 1 or stores[0].combine or buffer.inplace or buffer.layout or not buffer.shape:
        return None
    (store,), last = stores, buffer.shape[-1]
    found = _factors(kernel, store.value)
    if found is None or isinstance(last, Dim) or call.how is not None:
        return None
    number, scale = found
    shared, along = kernel.free_axes(scale), store.index[-1]
    alone = isinstance(along, Affine) and along.names and along.names.isdisjoint(shared)
    if not alone or not all(isinstance(p, Affine) and p.names <= shared for p in store.index[:-1]):
        return None
    numbers = Buffer(fresh(kernel, "bytes"), "i8", buffer.shape)
    scales = Buffer(fresh(kernel, "scales"), "f32", buffer.shape[:-1])
    own, inner = ([a for a in store.axes if (a.name in shared) is there] for there in (True, False))
    if own or not along.names <= {*names(inner)}:
        return None  # scales are of the parallel axes, and groups go over others
    sums, total = Buffer(fresh(kernel, "sums"), "f32", buffer.shape[:-1]), fresh(kernel, "total")
    stages = (
        *(stage for stage in kernel.stages if not isinstance(stage, Store)),
        Reduce(total, "sum", tuple(inner), cast(number, "i32")),
        replace(store, buffer=numbers.name, value=number),
        Store(scales.name, store.index[:-1], scale),
        Store(sums.name, store.index[:-1], op("mul", cast(ref(total), "f32"), scale)),
    )
    made = kernel.replace(outputs=(numbers, scales, sums), stages=stages)
    arrays = tuple(Array(b.name, b.dtype, b.shape) for b in made.outputs)
    return Whole(replace(call, kernel=made, outputs=arrays), int(last), frozenset(passed))


def _factors(kernel: Kernel, value: Expr) -> tuple[Expr, Expr] | None:
    """The bytes and the scale whose product a value is."""
    if not isinstance(value, Op) or value.name != "mul":
        return None
    for one, other in (value.args, value.args[::-1]):
        if isinstance(one, Cast) and one.dtype == "f32" and kernel.dtype_of(one.arg) == "i8":
            return one.arg, other
    return None


def read_whole(packing: Packing, call: Call, left: Expr, made: Whole, inner: tuple[str, ...]) -> Left | None:
    """A left factor as bytes and scales; None where a scale is not the same all along the axes `inner` of a
    sum, these don't go over all of a group, or the bytes along the last of them don't lie side by side."""
    assert isinstance(left, Read)
    kernel, shape = call.kernel, call.kernel.buffers[left.buffer].shape
    *around, last = left.index
    assert isinstance(last, Affine)
    if isinstance(shape[-1], Dim) or shape[-1] % made.group or last.constant != 0:
        return None
    outer = Affine(tuple((axis, by // made.group) for axis, by in last.terms if not by % made.group))
    near = last - outer * made.group
    reach = sum(int(by) * (int(kernel.extents[axis]) - 1) for axis, by in near.terms)
    if reach != made.group - 1 or near.names != {*inner} or last.coefficient(inner[-1]) != 1:
        return None
    packing.passed |= made.arrays
    of_groups = (*shape[:-1], shape[-1] // made.group)
    shapes = shape, of_groups, of_groups
    arrays = [packing.alias(a, s) for a, s in zip(packing.all_shared(made.call), shapes, strict=True)]
    buffers = [Buffer(fresh(kernel, a.name), a.dtype, a.shape) for a in arrays]
    (numbers, scales, sums), at = buffers, (*around, outer)
    factor = op("mul", cast(read(numbers.name, left.index), "f32"), read(scales.name, at))
    return Left(factor, read(sums.name, at), dict(zip(buffers, arrays, strict=True)))
