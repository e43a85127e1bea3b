"""Operators that move elements, or tell how many there are."""

from __future__ import annotations

from math import prod

import numpy as np

from ....ir.shapes import broadcast_shapes
from ....runtime import ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from .registry import Value, as_host, as_tensor, axis_of, has_no_tensor, ints, is_host, operator
from .size_numbers import Sizes, sizes_of


@operator("Constant", raw=True)
def constant(node: Node) -> Value:
    for name, value in node.attrs.items():
        match name:
            case "value" | "sparse_value":
                return value
            case "value_float" | "value_floats":
                return np.array(value, np.float32)
            case "value_int" | "value_ints":
                return np.array(value, np.int64)
            case "value_string" | "value_strings":
                return np.array(value, object)
    raise OnnxError("Constant: it has no value", str(node))


@operator("Identity", raw=True)
def identity(node: Node, x: Value) -> Value:
    return x


@operator("Shape", raw=True)
def shape(node: Node, x: Value) -> Value:
    rank = len(x.shape)
    ends = [node.attr("start", 0), node.attr("end", rank)]
    start, end = [max(at + rank, 0) if at < 0 else min(at, rank) for at in ends]
    sizes = Sizes([x.shape[dim] for dim in range(start, end)])
    return sizes.array if is_host(x) else sizes


@operator("Size", raw=True)
def size(node: Node, x: Value) -> Value:
    count = Sizes([prod(x.shape)], False)
    return count.array if is_host(x) else count


@operator("Reshape", raw=True)
def reshape(node: Node, x: Value, to: Value) -> Value:
    sizes = ints(to) or []
    if not node.attr("allowzero", 0):
        if any(size == 0 and at >= len(x.shape) for at, size in enumerate(sizes)):
            raise OnnxError(
                f"Reshape: [{', '.join(map(str, x.shape))}] has no size for each 0 of {sizes}", str(node)
            )
        sizes = [x.shape[at] if size == 0 else size for at, size in enumerate(sizes)]
    return x.reshape(tuple(sizes))


def _axes(node: Node, axes: Value) -> list[int] | None:
    """The axes that a node names: an operand, or in older opsets an attribute."""
    return ints(axes) if axes is not None else (list(node.attrs["axes"]) if "axes" in node.attrs else None)


@operator("Squeeze", raw=True)
def squeeze(node: Node, x: Value, axes: Value = None) -> Value:
    named, rank = _axes(node, axes), len(x.shape)
    sizes = [*x.shape]
    asked = range(rank) if named is None else {axis_of(axis, rank, node) for axis in named}
    gone = {axis for axis in asked if sizes[axis] == 1}  # of others a tracer's sizes aren't asked
    if named is not None and gone != asked:
        raise OnnxError(f"Squeeze: not all of {sorted(asked)} are of size 1", f"shape: {sizes}", str(node))
    return x.reshape(tuple([sizes[axis] for axis in range(rank) if axis not in gone]))


@operator("Unsqueeze", raw=True)
def unsqueeze(node: Node, x: Value, axes: Value = None) -> Value:
    named = _axes(node, axes) or []
    rank = len(x.shape) + len(named)
    new, sizes = {axis_of(axis, rank, node) for axis in named}, [*x.shape]
    if len(new) < len(named):
        raise OnnxError(f"Unsqueeze: an axis is twice among {named}", str(node))
    for axis in sorted(new):
        sizes.insert(axis, 1)
    return x.reshape(tuple(sizes))


@operator("Flatten", raw=True)
def flatten(node: Node, x: Value) -> Value:
    axis = node.attr("axis", 1)
    axis += len(x.shape) if axis < 0 else 0
    return x.reshape((prod(x.shape[:axis]), prod(x.shape[axis:])))


@operator("Transpose", raw=True)
def transpose(node: Node, x: Value) -> Value:
    order = node.attr("perm", tuple(range(len(x.shape)))[::-1])
    return np.transpose(x, order) if is_host(x) else ops.FUNCTIONS["permute"](x, tuple(order))


@operator("Concat", host=lambda node, *parts: np.concatenate(parts, node.attr("axis", 0)))
def concat(node: Node, *parts: Value) -> Value:
    return ops.FUNCTIONS["cat"](parts, node.attr("axis", 1 if node.opset < 4 else 0))


def _followed(x: Value, *sizes: Value) -> Value:
    """A value as a tensor where it is moved by sizes: NumPy would ask a tracer's symbols for their values."""
    return as_tensor(x) if any([isinstance(each, Sizes) for each in sizes]) else x


@operator("Expand", raw=True)
def expand(node: Node, x: Value, to: Value) -> Value:
    wanted = ints(to) or []
    x = _followed(x, to)
    if is_host(x):
        to = broadcast_shapes(node.op, x.shape, tuple(wanted))
        afford(to, x.dtype.itemsize, node.op)
        return np.broadcast_to(x, to)
    shape = ops.FUNCTIONS["expand"](as_tensor(np.zeros((), np.bool_)), tuple(wanted))
    return ops.FUNCTIONS["broadcast_tensors"](x, shape)[0]  # which asks no size of a tracer's if it is 1


@operator("Tile", raw=True)
def tile(node: Node, x: Value, repeats: Value) -> Value:
    counts = tuple(ints(repeats) or ())
    x = _followed(x, repeats)
    if is_host(x) and min(counts, default=0) >= 0:
        afford((x.size, *counts), x.dtype.itemsize, node.op)
    return np.tile(x, counts) if is_host(x) else ops.FUNCTIONS["tile"](x, counts)


@operator("Gather", raw=True)
def gather(node: Node, x: Value, at: Value) -> Value:
    axis = axis_of(node.attr("axis", 0), len(x.shape), node)
    if is_host(x) and is_host(at):
        afford((*at.shape, *x.shape[:axis], *x.shape[axis + 1 :]), x.dtype.itemsize, node.op)
        return np.take(x, at, axis)
    x, length = as_tensor(x), x.shape[axis]
    if is_host(at):
        at = np.where(at < 0, at + length, at)
        if at.ndim == 0:
            return ops.FUNCTIONS["select"](x, axis, int(at))
        at = as_tensor(at)
    else:
        at = ops.FUNCTIONS["where"](at < 0, at + length, at)
    found = ops.FUNCTIONS["index_select"](x, axis, at.reshape((-1,)))
    return found.reshape((*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]))


def _between(x: Value, axis: int, low: int, high: int, is_table: bool) -> Value:
    """x[low:high] of an axis, in numbers that a tracer follows: it does not look into slices.

    is_table: of constants, which are read at places, so that the size is high - low, not the least of others.
    """
    size = x.shape[axis]
    ends = []
    for end in (low, high):  # comparisons are guards, where the least of two would be a symbol of its own
        end = end + size if end < 0 else end
        end = 0 if end < 0 else end
        ends.append(size if end > size else end)
    low, high = ends
    if is_table and high > low:
        return ops.FUNCTIONS["index_select"](x, axis, ops.arange(low, high))
    return ops.FUNCTIONS["narrow"](x, axis, low, high - low if high > low else 0)


@operator("Slice", raw=True)
def slice_(
    node: Node, x: Value, starts: Value = None, ends: Value = None, axes: Value = None, steps: Value = None
) -> Value:
    if node.opset < 10:
        starts, ends, axes = (
            np.array(node.attrs[n]) if n in node.attrs else None for n in ("starts", "ends", "axes")
        )
    begins, ends_at = ints(starts) or [], ints(ends) or []
    named, by = ints(axes, range(len(begins))) or [], ints(steps, [1] * len(begins)) or []
    is_table = is_host(x)
    x = _followed(x, starts, ends)
    follows = not is_host(x) and (isinstance(starts, Sizes) or isinstance(ends, Sizes))
    slices = [slice(None)] * len(x.shape)
    for axis, low, high, step in zip(named, begins, ends_at, by, strict=True):
        axis = axis_of(axis, len(x.shape), node)
        if step == 0:
            raise OnnxError("Slice: a step of 0", str(node))
        if step < 0 and high < -x.shape[axis]:
            high = None
        if step == 1 and follows:
            x = _between(x, axis, low, high, is_table)
        else:
            slices[axis] = slice(low, high, step)
    if is_host(x):
        return x[tuple(slices)]
    turned = [axis for axis, part in enumerate(slices) if part.step is not None and part.step < 0]
    for axis in turned:  # tensors are sliced forwards
        places = range(*slices[axis].indices(x.shape[axis]))
        slices[axis] = slice(None)
        x = ops.FUNCTIONS["index_select"](x, axis, as_tensor(np.array([*places], np.int64)))
    return x[tuple(slices)]


@operator("Split", raw=True)
def split(node: Node, x: Value, sizes: Value = None) -> tuple[Value, ...]:
    axis = axis_of(node.attr("axis", 0), len(x.shape), node)
    length, count = x.shape[axis], len(node.outputs)
    parts = ints(sizes) if sizes is not None else node.attr("split")
    if parts is None:
        each = -(-length // count)
        parts = [max(0, min(each, length - n * each)) for n in range(count)]
    if sum(parts) != length:
        raise OnnxError(f"Split: {[*parts]} are not the {length} of the axis {axis}", str(node))
    if is_host(x):
        return tuple(np.split(x, np.cumsum(parts)[:-1], axis))
    return tuple(ops.FUNCTIONS["split"](x, [*parts], axis))


@operator("ConstantOfShape", raw=True)
def constant_of_shape(node: Node, sizes: Value) -> Value:
    value = node.attr("value", np.zeros(1, np.float32))
    if isinstance(sizes, Sizes) and not has_no_tensor(value):
        return ops.FUNCTIONS["expand"](as_tensor(value.reshape(())), tuple(sizes.numbers))
    if prod(ints(sizes) or ()) > 1 << 20 and value.dtype != object:
        return ops.FUNCTIONS["expand"](as_tensor(value.reshape(())), tuple(ints(sizes) or ()))
    return np.full(tuple(ints(sizes) or ()), value.reshape(-1)[0], value.dtype)


@operator("Range", raw=True)
def range_(node: Node, start: Value, limit: Value, step: Value) -> Value:
    if isinstance(start, Sizes) or isinstance(limit, Sizes) or isinstance(step, Sizes):
        told = [sizes_of(each) for each in (start, limit, step)]
        if None not in told and all(len(each.numbers) == 1 and each.kind == "int64" for each in told):
            return ops.arange(*[each.numbers[0] for each in told])  # a tracer follows where it ends
    low, high, by = (as_host(each).reshape(()) for each in (start, limit, step))
    count = max(0, int(np.ceil((high - low) / by)))
    afford((count,), 2 * low.dtype.itemsize, node.op)
    return (low + np.arange(count) * by).astype(low.dtype)
