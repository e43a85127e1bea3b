"""What exporters compute of shapes, in Python's numbers: a size that changes stays a symbol to a tracer.

NumPy would ask what such a number is.  Whatever is not here goes on with arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..declared import Node

MOST = 64  # numbers of a vector that are computed one by one


class Sizes:
    """Numbers of int64: a vector, or one number."""

    def __init__(self, numbers: list[int], is_vector: bool = True):
        self.numbers, self.is_vector = numbers, is_vector

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.numbers),) if self.is_vector else ()

    @property
    def array(self) -> np.ndarray:
        numbers = np.array(self.numbers, np.int64)
        return numbers if self.is_vector else numbers.reshape(())


def sizes_of(value: Any) -> Sizes | None:
    """A value as such numbers; None for one that is none."""
    if isinstance(value, Sizes):
        return value
    if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim <= 1 and value.size <= MOST:
        return Sizes(value.reshape(-1).tolist(), value.ndim == 1)
    return None


def _zipped(function: Callable[[int, int], int]) -> Callable[..., Sizes | None]:
    def each(node: Node, x: Sizes, y: Sizes) -> Sizes | None:
        count = max(len(x.numbers), len(y.numbers))
        if {len(x.numbers), len(y.numbers)} - {1, count}:
            return None
        pairs = zip(x.numbers * (count // len(x.numbers)), y.numbers * (count // len(y.numbers)), strict=True)
        return Sizes([function(a, b) for a, b in pairs], x.is_vector or y.is_vector)

    return each


def _gather(node: Node, x: Sizes, at: Sizes) -> Sizes | None:
    if not x.is_vector or any(not -len(x.numbers) <= n < len(x.numbers) for n in at.numbers):
        return None
    return Sizes([x.numbers[n] for n in at.numbers], at.is_vector)


def _slice(node: Node, x: Sizes, *rest: Sizes) -> Sizes | None:
    if node.opset < 10 or len(rest) < 2 or not all(len(each.numbers) == 1 for each in rest):
        return None
    low, high, step = rest[0].numbers[0], rest[1].numbers[0], rest[3].numbers[0] if len(rest) > 3 else 1
    return Sizes(x.numbers[low:high:step]) if step > 0 and x.is_vector else None


def _cast(node: Node, x: Sizes) -> Sizes | None:
    return x if node.attr("to") == 7 else None  # to int64, which it is


def _alone(node: Node, x: Sizes, axes: Sizes | None = None) -> Sizes | None:
    return Sizes(x.numbers, False) if len(x.numbers) == 1 else None


def _vector(node: Node, x: Sizes, axes: Sizes | None = None) -> Sizes | None:
    return None if x.is_vector else Sizes(x.numbers)


def _concat(node: Node, *parts: Sizes) -> Sizes | None:
    if not all(part.is_vector for part in parts):
        return None
    return Sizes([n for part in parts for n in part.numbers])


def _reshape(node: Node, x: Sizes, to: Sizes) -> Sizes | None:
    return Sizes(x.numbers) if to.numbers == [-1] else None


def _product(node: Node, x: Sizes, axes: Sizes | None = None) -> Sizes | None:
    return None if node.attr("keepdims", 1) else Sizes([prod(x.numbers)], False)


COMPUTED: dict[str, Callable[..., Sizes | None]] = {
    "Add": _zipped(operator.add), "Sub": _zipped(operator.sub), "Mul": _zipped(operator.mul),
    "Div": _zipped(lambda a, b: a // b), "Gather": _gather, "Slice": _slice, "Cast": _cast,
    "Squeeze": _alone, "Unsqueeze": _vector, "Concat": _concat, "Reshape": _reshape, "ReduceProd": _product,
    "Identity": lambda node, x: x,
}  # fmt: skip


# Raw operators that take sizes by `ints`, beside what they move.
TAKING = frozenset(("Reshape", "Expand", "Slice", "Tile", "Split", "ConstantOfShape", "Pad", "Resize"))


def with_sizes(node: Node, operands: list[Any], is_raw: bool, has_host: bool) -> list[Any]:
    """The operands as the operator's function takes them: sizes as such, or as arrays."""
    if not any(isinstance(each, Sizes) for each in operands):
        return operands
    only = all(each is None or isinstance(each, (Sizes, np.ndarray)) for each in operands)
    if only and has_host or is_raw and node.op not in TAKING:
        return [each.array if isinstance(each, Sizes) else each for each in operands]
    if is_raw and isinstance(operands[0], Sizes) and node.op != "ConstantOfShape":
        return [operands[0].array, *operands[1:]]
    return operands


def computed(node: Node, operands: Sequence[Any]) -> Sizes | None:
    """What a node makes of sizes, if it is computed here: one operand is such numbers, all can be."""
    function = COMPUTED.get(node.op)
    if function is None or node.domain or not any(isinstance(each, Sizes) for each in operands):
        return None
    numbers = [sizes_of(each) for each in operands]
    return None if None in numbers or not numbers else function(node, *numbers)
