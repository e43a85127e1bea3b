"""Operators that run graphs: branches, and bodies of loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from ....runtime import ops
from ....runtime.allowance import afford
from ..declared import Kind, Node, OnnxError, Subgraph
from .registry import Value, axis_of, ints, is_host, number, operator, together


def _graph(node: Node, name: str) -> Subgraph:
    graph = node.attr(name)
    if not isinstance(graph, Subgraph):
        raise OnnxError(f"{node.op}: it has no {name}", str(node))
    return graph


@operator("If", raw=True, scoped=True)
def if_(scope: Any, node: Node, test: Value) -> tuple[Value, ...]:
    if np.prod(test.shape) != 1:
        raise OnnxError(
            f"{node.op}: the condition has the shape {[*test.shape]}, and is to be one", str(node)
        )
    found = scope.run(_graph(node, "then_branch" if number(test) else "else_branch"), ())
    if len(found) != len(node.outputs):
        raise OnnxError(f"{node.op}: its branch makes {len(found)} of {len(node.outputs)} outputs", str(node))
    return tuple(found)


def _stacked(steps: Sequence[Value], axis: int, kind: Kind, node: Node) -> Value:
    """What the steps made, side by side in a new axis.  Without steps, its kind tells the shape."""
    if not steps:
        sizes = [size if isinstance(size, int) else 0 for size in kind.shape or ()]
        sizes.insert(axis_of(axis, len(sizes) + 1, node), 0)
        afford(sizes, 8, node.op)
        return np.zeros(sizes, np.float32 if kind.dtype is None else kind.dtype)
    parts = together(*steps)
    axis = axis_of(axis, len(parts[0].shape) + 1, node)
    return np.stack(parts, axis) if is_host(parts[0]) else ops.FUNCTIONS["stack"](parts, axis)


def _shaped(value: Value, kind: Kind) -> Value:
    """One number in the shape, [] or [1], that a body declares."""
    return value.reshape((1,) if kind.shape is not None and len(kind.shape) == 1 else ())


@operator("Loop", raw=True, scoped=True)
def loop(
    scope: Any, node: Node, trips: Value = None, test: Value = None, *states: Value
) -> tuple[Value, ...]:
    """The states after the last trip, and what each trip made beside them.  A condition that was left out is
    true, whatever the body says of it."""
    body = _graph(node, "body")
    kinds, carried = [*body.inputs.values()], len(body.inputs) - 2
    made = [*body.outputs.values()][1 + carried :]
    if not 0 <= len(states) <= carried <= len(body.outputs) - 1 >= len(node.outputs):
        raise OnnxError(
            f"{node.op}: a body of {len(body.inputs)} inputs and {len(body.outputs)} outputs",
            f"for {len(states)} states and {len(node.outputs)} outputs of the loop",
            str(node),
        )
    if trips is None and test is None:
        raise OnnxError(f"{node.op}: without a number of trips and a condition it never ends", str(node))
    held = [*states, *[None] * (carried - len(states))]
    going = np.array(True) if test is None else test
    steps: list[list[Value]] = [[] for _ in made]
    for trip in count() if trips is None else range(number(trips)):
        if test is not None and not number(going):
            break
        scope.spend(node, body)
        first = _shaped(np.array(trip, np.int64), kinds[0])
        found = scope.run(body, [first, _shaped(going, kinds[1]), *held])
        going = found[0] if test is not None else going
        held = found[1 : 1 + carried]
        for kept, value in zip(steps, found[1 + carried :], strict=True):
            kept.append(value)
    return (*held, *(_stacked(kept, 0, kind, node) for kept, kind in zip(steps, made, strict=True)))


def _unstacked(x: Value, axis: int, is_backward: bool) -> list[Value]:
    """The slices of an axis, in the order in which they are read."""
    if is_host(x):
        along = np.moveaxis(x, axis, 0)
        found = [along[n, ...] for n in range(len(along))]
    else:
        found = [*ops.FUNCTIONS["unbind"](x, axis)]
    return found[::-1] if is_backward else found


def _scanned(
    scope: Any, node: Node, states: Sequence[Value], sequences: Sequence[list[Value]], axes: Sequence[int],
    backward: Sequence[int],
) -> list[Value]:  # fmt: skip
    """The states after the last step, and what each step made, stacked at axes."""
    body = _graph(node, "body")
    if len(body.inputs) != len(states) + len(sequences) or len(body.outputs) < len(states):
        raise OnnxError(
            f"{node.op}: a body of {len(body.inputs)} inputs and {len(body.outputs)} outputs",
            f"for {len(states)} states and {len(sequences)} sequences",
            str(node),
        )
    if len({*map(len, sequences)}) > 1:
        raise OnnxError(f"{node.op}: the sequences have {[*map(len, sequences)]} steps", str(node))
    kinds = [*body.outputs.values()][len(states) :]
    held = [*states]
    steps: list[list[Value]] = [[] for _ in kinds]
    for slices in zip(*sequences, strict=True):
        found = scope.run(body, [*held, *slices])
        held = found[: len(states)]
        for kept, value in zip(steps, found[len(states) :], strict=True):
            kept.append(value)
    for n, kept in enumerate(steps):
        held.append(_stacked(kept[::-1] if backward[n] else kept, axes[n], kinds[n], node))
    return held


def _listed(node: Node, name: str, wanted: int) -> Sequence[int]:
    """An attribute of a number for each of some sequences; zeros where it was left out."""
    found = node.attr(name, (0,) * wanted)
    if len(found) != wanted:
        raise OnnxError(f"{node.op}: {name} are {len(found)} for {wanted} sequences", str(node))
    return found


@operator("Scan", raw=True, scoped=True)
def scan(scope: Any, node: Node, *operands: Value) -> tuple[Value, ...]:
    wanted = node.attr("num_scan_inputs", 0)
    if node.opset < 9:
        lengths, *operands = operands
    if not 1 <= wanted <= len(operands):
        raise OnnxError(f"{node.op}: {wanted} of {len(operands)} inputs are sequences", str(node))
    states, sequences = operands[:-wanted], operands[-wanted:]
    if node.opset < 9:
        return _scanned_batch(scope, node, lengths, states, sequences)
    backward = _listed(node, "scan_input_directions", wanted)
    axes = _listed(node, "scan_input_axes", wanted)
    if wanted and len(sequences[0].shape):
        scope.spend(node, _graph(node, "body"), sequences[0].shape[axes[0]])
    slices = [
        _unstacked(x, axis_of(axis, len(x.shape), node), bool(turned))
        for x, axis, turned in zip(sequences, axes, backward, strict=True)
    ]
    made = len(_graph(node, "body").outputs) - len(states)
    out_axes, out_backward = (_listed(node, f"scan_output_{name}", made) for name in ("axes", "directions"))
    return tuple(_scanned(scope, node, states, slices, out_axes, out_backward))


def _scanned_batch(
    scope: Any, node: Node, lengths: Value, states: Sequence[Value], sequences: Sequence[Value]
) -> tuple[Value, ...]:
    """Scan as it was in opset 8: for each row of a batch, as many steps as its length says."""
    rows = sequences[0].shape[0]
    steps = sequences[0].shape[1]
    counts = ints(lengths, [steps] * rows) or []
    if len(counts) != rows or any(each.shape[0] != rows for each in (*states, *sequences)):
        raise OnnxError(f"{node.op}: not all have {rows} rows, with a length for each", str(node))
    if not rows or not 0 <= min(counts) <= max(counts) <= steps:
        raise OnnxError(f"{node.op}: the lengths {counts} of {steps} steps", str(node))
    backward = _listed(node, "directions", len(sequences))
    scope.spend(node, _graph(node, "body"), rows * steps)
    made = len(_graph(node, "body").outputs) - len(states)
    found = []
    for row, length in enumerate(counts):
        slices = [
            _unstacked(x[row, :length], 0, bool(turned))
            for x, turned in zip(sequences, backward, strict=True)
        ]
        own = _scanned(scope, node, [x[row, ...] for x in states], slices, (0,) * made, (0,) * made)
        found.append(own[: len(states)] + [_padded(x, steps) for x in own[len(states) :]])
    return tuple(_stacked(parts, 0, Kind(), node) for parts in zip(*found, strict=True))


def _padded(x: Value, length: int) -> Value:
    """A row's outputs with zeros up to the length of the longest."""
    lacking = (length - x.shape[0], *x.shape[1:])
    if is_host(x):
        return np.concatenate([x, np.zeros(lacking, x.dtype)])
    return ops.FUNCTIONS["cat"]((x, ops.FUNCTIONS["new_zeros"](x, lacking)), 0)
