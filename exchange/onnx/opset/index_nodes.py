"""Operators that read and write at places which other operands name, or which the values tell."""

from __future__ import annotations

from math import prod

import numpy as np

from ....ir.dtypes import int64
from ....runtime import ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from ..element_types import element_type
from .registry import Value, as_host, as_tensor, axis_of, is_host, number, operator, together
from .size_numbers import Sizes

FAR = 1 << 40  # places: no dimension is as long

# How elements that meet in one place are combined: by Lamina's scatter_reduce, by NumPy.
REDUCTIONS = {
    "add": ("sum", np.add), "mul": ("prod", np.multiply),
    "max": ("amax", np.maximum), "min": ("amin", np.minimum),
}  # fmt: skip
MOST = 1 << 32  # elements that a number in a file may ask for


def _where(test: Value, x: Value, y: Value) -> Value:
    return np.where(test, x, y) if is_host(test) else ops.FUNCTIONS["where"](test, x, y)


def _known(node: Node, at: Value, length: int) -> Value:
    """Known places counted from the front, others as they are.  Raises OnnxError for known ones outside, and
    for what are no places: bytes would be taken as a mask."""
    if (at.dtype if is_host(at) else at.dtype.numpy) not in (np.int32, np.int64, object):
        raise OnnxError(f"{node.op}: an index of {at.dtype}: places are int32 or int64", str(node))
    if not is_host(at):
        return at
    outside = at[(at < -length) | (at >= length)]
    if outside.size:
        raise OnnxError(f"{node.op}: the index {outside[0]} is none of {length} places", str(node))
    return np.where(at < 0, at + length, at)


def _counted(node: Node, at: Value, length: int) -> Value:
    """Places counted from the front: for ops that take no negative ones, and refuse those that are left."""
    at = _known(node, at, length)
    return at if is_host(at) else _where(at < 0, at + length, at)


def _along(at: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """NumPy's key of the elements at places of an axis."""
    key = [*np.indices(at.shape, sparse=True)]
    key[axis] = at
    return tuple(key)


def _check_along(node: Node, x: Value, at: Value, axis: int) -> None:
    """Raises OnnxError unless there is a place for each of an index's elements, but for the axis."""
    fits = len(at.shape) == len(x.shape) > 0
    if not fits or any([at.shape[d] > x.shape[d] for d in range(len(x.shape)) if d != axis]):
        raise OnnxError(f"{node.op}: an index of shape {[*at.shape]} for data of {[*x.shape]}", str(node))


@operator("GatherElements", raw=True)
def gather_elements(node: Node, x: Value, at: Value) -> Value:
    axis = axis_of(node.attr("axis", 0), len(x.shape), node)
    _check_along(node, x, at, axis)
    x, at = together(x, _counted(node, at, x.shape[axis]))
    return x[_along(at, axis)] if is_host(x) else ops.FUNCTIONS["gather"](x, axis, at)


def _reduction(node: Node) -> str:
    reduction = node.attr("reduction", "none")
    if reduction != "none" and reduction not in REDUCTIONS:
        raise OnnxError(
            f"{node.op}: the reduction {reduction!r} is none of {', '.join(REDUCTIONS)}", str(node)
        )
    return reduction


def _written(x: np.ndarray, key: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    out = np.array(x)
    if reduction == "none":
        out[key] = updates
    else:
        REDUCTIONS[reduction][1].at(out, key, updates)
    return out


def _scattered(x: Value, axis: int, at: Value, updates: Value, reduction: str) -> Value:
    """Elements sent to places of an axis."""
    x, at, updates = together(x, at, updates)
    if is_host(x):
        return _written(x, _along(at, axis), updates, reduction)
    if reduction == "none":
        return ops.FUNCTIONS["scatter"](x, axis, at, updates)
    return ops.FUNCTIONS["scatter_reduce"](x, axis, at, updates, REDUCTIONS[reduction][0])


@operator("Scatter", "ScatterElements", raw=True)
def scatter_elements(node: Node, x: Value, at: Value, updates: Value) -> Value:
    axis = axis_of(node.attr("axis", 0), len(x.shape), node)
    _check_along(node, x, at, axis)
    if tuple(updates.shape) != tuple(at.shape):
        raise OnnxError(
            f"{node.op}: updates of shape {[*updates.shape]} for an index of {[*at.shape]}", str(node)
        )
    return _scattered(x, axis, _counted(node, at, x.shape[axis]), updates, _reduction(node))


def _coordinates(node: Node, x: Value, at: Value, first: int = 0) -> list[Value]:
    """What the last axis of an index holds: places of the axes of x from `first` on, an array of each."""
    depth = at.shape[-1] if len(at.shape) else 0
    if not 1 <= depth <= len(x.shape) - first:
        raise OnnxError(
            f"{node.op}: an index of shape {[*at.shape]} for {[*x.shape[first:]]}",
            "its last axis holds a place of each of the data's first axes",
            str(node),
        )
    return [_known(node, at[..., d], x.shape[first + d]) for d in range(depth)]


@operator("GatherND", raw=True)
def gather_nd(node: Node, x: Value, at: Value) -> Value:
    batch = node.attr("batch_dims", 0)
    if not 0 <= batch < max(1, len(at.shape)) or tuple(x.shape[:batch]) != tuple(at.shape[:batch]):
        raise OnnxError(
            f"{node.op}: {[*x.shape]} and {[*at.shape]} don't begin with the same {batch} axes of a batch",
            str(node),
        )
    places = _coordinates(node, x, at, batch)
    rows = np.indices(tuple(at.shape[:batch]), sparse=True)
    inner = (1,) * (len(at.shape) - 1 - batch)
    x, *key = together(x, *(row.reshape(row.shape + inner) for row in rows), *places)
    found = x[tuple(key)]
    return np.asarray(found, x.dtype) if is_host(x) else found


@operator("ScatterND", raw=True)
def scatter_nd(node: Node, x: Value, at: Value, updates: Value) -> Value:
    reduction, places = _reduction(node), _coordinates(node, x, at)
    wanted = (*at.shape[:-1], *x.shape[len(places) :])
    if tuple(updates.shape) != wanted:
        raise OnnxError(f"{node.op}: updates of shape {[*updates.shape]}, not {[*wanted]}", str(node))
    x, updates, *key = together(x, updates, *places)
    if is_host(x):
        return _written(x, tuple(key), updates, reduction)
    if reduction == "none":
        return ops.FUNCTIONS["index_put"](x, tuple(key), updates)
    return _reduced_rows(x, key, updates, REDUCTIONS[reduction][0])


def _reduced_rows(x: Value, key: list[Value], updates: Value, reduction: str) -> Value:
    """Slices reduced into those at places: x as a list of slices, each place as the number of one."""
    sizes, rest = x.shape[: len(key)], prod(x.shape[len(key) :])
    flat: Value = 0
    for at, size in zip(key, sizes, strict=True):
        inside = as_tensor(np.arange(size))[at]  # refuses places outside, which a sum of them would hide
        flat = flat * size + inside
    rows = ops.FUNCTIONS["expand"](flat.reshape((-1, 1)), (prod(flat.shape), rest))
    slices, updates = x.reshape((prod(sizes), rest)), updates.reshape(rows.shape)
    return ops.FUNCTIONS["scatter_reduce"](slices, 0, rows, updates, reduction).reshape(x.shape)


@operator("TensorScatter", raw=True)
def tensor_scatter(node: Node, x: Value, updates: Value, starts: Value = None) -> Value:
    """A cache with new elements from a place of an axis on, which each row of the batch has of its own."""
    axis, mode = axis_of(node.attr("axis", -2), len(x.shape), node), node.attr("mode", "linear")
    if mode not in ("linear", "circular"):
        raise OnnxError(f"{node.op}: the mode {mode!r} is neither linear nor circular", str(node))
    shape = tuple(updates.shape)
    fits = len(shape) == len(x.shape) and shape[axis] <= x.shape[axis]
    if axis == 0 or not fits or shape != (*x.shape[:axis], shape[axis], *x.shape[axis + 1 :]):
        raise OnnxError(
            f"{node.op}: an update of shape {[*shape]} along the axis {axis} of {[*x.shape]}", str(node)
        )
    starts = np.zeros(shape[0], np.int64) if starts is None else starts
    if tuple(starts.shape) != shape[:1]:
        raise OnnxError(f"{node.op}: {[*starts.shape]} starts for a batch of {shape[0]}", str(node))
    first, step = together(starts, np.arange(shape[axis]))
    at = first.reshape((-1, 1)) + step
    at = at % x.shape[axis] if mode == "circular" else _unsigned(node, at, x.shape[axis])
    at = at.reshape((shape[0],) + (1,) * (axis - 1) + (shape[axis],) + (1,) * (len(shape) - 1 - axis))
    at = np.broadcast_to(at, shape) if is_host(at) else ops.FUNCTIONS["expand"](at, shape)
    return _scattered(x, axis, at, updates, "none")


def _unsigned(node: Node, at: Value, length: int) -> Value:
    """Places as they are.  Raises OnnxError for known ones outside; ops refuse the others."""
    if is_host(at) and at.size and not 0 <= at.min() <= at.max() < length:
        raise OnnxError(f"{node.op}: places from {at.min()} to {at.max()} in a cache of {length}", str(node))
    return at


@operator("Compress", raw=True)
def compress(node: Node, x: Value, test: Value) -> Value:
    axis = node.attr("axis")
    if axis is None:
        x, axis = x.reshape((-1,)), 0
    axis = axis_of(axis, len(x.shape), node)
    kept = np.flatnonzero(test) if is_host(test) else ops.FUNCTIONS["nonzero"](test).reshape((-1,))
    x, kept = together(x, kept)
    return np.take(x, kept, axis) if is_host(x) else ops.FUNCTIONS["index_select"](x, axis, kept)


@operator("NonZero", host=lambda node, x: np.argwhere(x).T)
def nonzero(node: Node, x: Value) -> Value:
    return ops.FUNCTIONS["permute"](ops.FUNCTIONS["nonzero"](x), (1, 0))


@operator("Unique", raw=True)
def unique(node: Node, x: Value) -> tuple[Value, ...]:
    """The distinct elements or slices, where each stood first, which one each was, and how many there are."""
    axis, shape = node.attr("axis"), tuple(x.shape)
    # Ranks in place of elements: NumPy finds slices that are the same among numbers alone, without NaN.
    ranks = np.unique(as_host(x), return_inverse=True)[1].reshape(shape)
    if axis is None:
        x, ranks, axis = x.reshape((-1,)), ranks.reshape(-1), 0
    axis = axis_of(axis, len(shape) or 1, node)
    _, first, inverse, counts = np.unique(ranks, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        first, inverse, counts = first[order], np.argsort(order)[inverse], counts[order]
    y = np.take(x, first, axis) if is_host(x) else ops.FUNCTIONS["index_select"](x, axis, as_tensor(first))
    return y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@operator("OneHot", raw=True)
def one_hot(node: Node, at: Value, depth: Value, values: Value) -> Value:
    """Of two values the second at each place of a new axis, else the first: places outside have none."""
    count, shape = int(number(depth)), tuple(at.shape)
    axis = axis_of(node.attr("axis", -1), len(shape) + 1, node)
    if not 0 <= count * max(1, prod(shape)) <= MOST or tuple(values.shape) != (2,):
        raise OnnxError(f"{node.op}: {[*values.shape]} values at {count} places for {[*shape]}", str(node))
    at, values = together(at, values)
    if is_host(at):
        afford((count, *shape), 8 + values.dtype.itemsize, node.op)
    at = at.astype(np.int64) if is_host(at) else at.to(int64)
    at = at.reshape((*shape[:axis], 1, *shape[axis:]))
    afford((count,), 8, node.op)
    every = np.arange(count).reshape((-1,) + (1,) * (len(shape) - axis))
    every = every if is_host(at) else as_tensor(every)
    return _where(_where(at < 0, at + count, at) == every, values[1], values[0])


@operator("Trilu", raw=True)
def trilu(node: Node, x: Value, k: Value = None) -> Value:
    if len(x.shape) < 2:
        raise OnnxError(f"{node.op}: {[*x.shape]} is no matrix", str(node))
    diagonal, name = number(k, 0), "triu" if node.attr("upper", 1) else "tril"
    if is_host(x):
        return getattr(np, name)(x, min(max(diagonal, -x.shape[-2]), x.shape[-1]))
    # no further than places are counted; of sizes that a tracer follows nothing is asked
    return ops.FUNCTIONS[name](x, diagonal if isinstance(k, Sizes) else min(max(diagonal, -FAR), FAR))


@operator("EyeLike", raw=True)
def eye_like(node: Node, x: Value) -> Value:
    if len(x.shape) != 2:
        raise OnnxError(f"{node.op}: {[*x.shape]} is no matrix", str(node))
    rows, columns = x.shape
    own = x.dtype if is_host(x) else x.dtype.numpy
    kind = element_type(node.attrs["dtype"]) if "dtype" in node.attrs else own
    afford((int(rows), int(columns)), kind.itemsize if isinstance(kind, np.dtype) else 8, node.op)
    return np.eye(rows, columns, min(max(node.attr("k", 0), -rows), columns), kind)


@operator("ReverseSequence", raw=True)
def reverse_sequence(node: Node, x: Value, lengths: Value) -> Value:
    """The first elements of each sequence of a batch in reverse, as many as its length says."""
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    if len(x.shape) < 2 or {time, batch} != {0, 1} or tuple(lengths.shape) != (x.shape[batch],):
        raise OnnxError(
            f"{node.op}: {[*lengths.shape]} lengths for {[*x.shape]}",
            f"the axis of time is to be {time}, that of the batch {batch}",
            str(node),
        )
    x, lengths, steps, rows = together(x, lengths, np.arange(x.shape[time]), np.arange(x.shape[batch]))
    across = (1, -1) if time == 0 else (-1, 1)
    lengths, steps, rows = lengths.reshape(across), steps.reshape(across[::-1]), rows.reshape(across)
    at = _where(steps < lengths, lengths - 1 - steps, steps)
    return x[(at, rows) if time == 0 else (rows, at)]
