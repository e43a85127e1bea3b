"""Operators on sequences, which are Python's lists and stay as they are, and on what may be left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime import ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from .registry import Value, axis_of, ints, is_host, number, operator, together

PER_PART = 512  # bytes that a tensor takes beside its elements


def _sequence(node: Node, value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise OnnxError(f"{node.op}: a sequence is wanted, not {type(value).__name__}", str(node))
    return value


def _place(node: Node, position: Value, count: int) -> int:
    """A position from the front, one of `count`; the last unless given.  Raises OnnxError."""
    at = number(position, -1)
    if not -count <= at < count:
        raise OnnxError(f"{node.op}: the position {at} is none of {count}", str(node))
    return at % count


@operator("SequenceEmpty", raw=True)
def sequence_empty(node: Node) -> list[Value]:
    return []


@operator("SequenceConstruct", raw=True)
def sequence_construct(node: Node, *values: Value) -> list[Value]:
    return [*values]


@operator("SequenceInsert", raw=True)
def sequence_insert(node: Node, sequence: Value, value: Value, position: Value = None) -> list[Value]:
    found = _sequence(node, sequence)
    count = len(found)
    at = number(position, count)
    if not -count <= at <= count:
        raise OnnxError(f"{node.op}: the position {at} is none of a sequence of {count}", str(node))
    at += count if at < 0 else 0
    return [*found[:at], value, *found[at:]]


@operator("SequenceErase", raw=True)
def sequence_erase(node: Node, sequence: Value, position: Value = None) -> list[Value]:
    found = _sequence(node, sequence)
    at = _place(node, position, len(found))
    return [*found[:at], *found[at + 1 :]]


@operator("SequenceAt", raw=True)
def sequence_at(node: Node, sequence: Value, position: Value) -> Value:
    found = _sequence(node, sequence)
    return found[_place(node, position, len(found))]


@operator("SequenceLength", raw=True)
def sequence_length(node: Node, sequence: Value) -> np.ndarray:
    return np.array(len(_sequence(node, sequence)), np.int64)


@operator("SequenceMap", raw=True, scoped=True)
def sequence_map(scope: Any, node: Node, sequence: Value, *more: Value) -> tuple[list[Value], ...]:
    """The outputs of the body for each element, and those beside it in other sequences; tensors go to all."""
    body, count = node.attrs["body"], len(_sequence(node, sequence))
    if any(isinstance(each, list) and len(each) != count for each in more):
        raise OnnxError(f"{node.op}: the sequences don't all have {count} elements", str(node))
    scope.spend(node, body, count)
    every = [
        scope.run(body, [value, *(each[n] if isinstance(each, list) else each for each in more)])
        for n, value in enumerate(sequence)
    ]
    return tuple([made[n] for made in every] for n in range(len(body.outputs)))


@operator("SplitToSequence", raw=True)
def split_to_sequence(node: Node, x: Value, sizes: Value = None) -> list[Value]:
    axis = axis_of(node.attr("axis", 0), len(x.shape), node)
    length, shape = x.shape[axis], tuple(x.shape)
    each = 1 if sizes is None else number(sizes) if not len(sizes.shape) else None
    if each is None:
        parts = ints(sizes)
    elif each > 0:
        afford((length // each,), PER_PART, node.op)
        parts = [min(each, length - begin) for begin in range(0, length, each)]
    else:
        raise OnnxError(f"{node.op}: parts of {each} elements", str(node))
    if min(parts, default=0) < 0 or sum(parts) != length:
        raise OnnxError(f"{node.op}: {parts} are not the {length} of the axis {axis}", str(node))
    if is_host(x):
        found = np.split(x, np.cumsum(parts)[:-1], axis) if parts else []
    else:
        found = ops.FUNCTIONS["split"](x, parts, axis) if parts else []
    if sizes is None and not node.attr("keepdims", 1):
        return [part.reshape(shape[:axis] + shape[axis + 1 :]) for part in found]
    return [*found]


@operator("ConcatFromSequence", raw=True)
def concat_from_sequence(node: Node, sequence: Value) -> Value:
    parts = together(*_sequence(node, sequence))
    if not parts:
        raise OnnxError(f"{node.op}: the sequence is empty", str(node))
    is_new = node.attr("new_axis", 0)
    axis = axis_of(node.attrs["axis"], len(parts[0].shape) + bool(is_new), node)
    if is_host(parts[0]):
        return np.stack(parts, axis) if is_new else np.concatenate(parts, axis)
    return ops.FUNCTIONS["stack" if is_new else "cat"](parts, axis)


@operator("Optional", raw=True)
def optional(node: Node, x: Value = None) -> Value:
    return x


@operator("OptionalGetElement", raw=True)
def optional_get_element(node: Node, x: Value = None) -> Value:
    if x is None:
        raise OnnxError(f"{node.op}: there is no element", str(node))
    return x


@operator("OptionalHasElement", raw=True)
def optional_has_element(node: Node, x: Value = None) -> np.ndarray:
    return np.array(x is not None)
