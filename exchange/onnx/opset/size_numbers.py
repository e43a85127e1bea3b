"""What exporters compute of shapes, in Python's numbers: a size that changes stays a symbol to a tracer.

NumPy would ask what such a number is.  Whatever is not here goes on with arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, prod, sqrt
from typing import Any

import numpy as np

from ..declared import Node

MOST = 64  # numbers of a vector that are computed one by one
WHOLE, REAL = ("int64", "int32"), ("float32", "float64")
NAMES = {1: "float32", 6: "int32", 7: "int64", 11: "float64"}  # of the types that numbers are cast to


class Sizes:
    """Numbers that follow from sizes: a vector, or one number.  kind: the name of their dtype."""

    def __init__(self, numbers: list[Any], is_vector: bool = True, kind: str = "int64"):
        self.numbers, self.is_vector, self.kind = numbers, is_vector, kind

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.numbers),) if self.is_vector else ()

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.kind)

    @property
    def array(self) -> np.ndarray:
        numbers = np.array(self.numbers, self.kind)
        return numbers if self.is_vector else numbers.reshape(())

    def with_numbers(self, numbers: list[Any]) -> Sizes:
        return Sizes(numbers, self.is_vector, self.kind)


def sizes_of(value: Any) -> Any:
    """A value as such numbers, or truth values as an array; None for others."""
    if isinstance(value, Sizes):
        return value
    if not isinstance(value, np.ndarray) or value.ndim > 1 or value.size > MOST:
        return None
    name = value.dtype.name
    if name in WHOLE or name in REAL or name == "bool":
        return Sizes(value.reshape(-1).tolist(), value.ndim == 1, name)
    return None


# ---- number by number
def _pairs(x: Sizes, y: Sizes) -> list[tuple[Any, Any]] | None:
    """The numbers side by side, one of them as often as there are of the other."""
    count = max(len(x.numbers), len(y.numbers))
    if len(x.numbers) not in (1, count) or len(y.numbers) not in (1, count) or not count:
        return None
    left, right = x.numbers * (count // len(x.numbers)), y.numbers * (count // len(y.numbers))
    return [*zip(left, right, strict=True)]


def _zipped(whole: Callable, real: Callable | None = None) -> Callable[..., Sizes | None]:
    """An operator of two numbers.  real: of floating-point ones; the same unless given."""

    def each(node: Node, x: Sizes, y: Sizes) -> Sizes | None:
        pairs = _pairs(x, y)
        if pairs is None or x.kind != y.kind or x.kind == "bool":
            return None
        function = whole if x.kind in WHOLE or real is None else real
        made = [function(a, b) for a, b in pairs]
        if any([each is None for each in made]):  # `in` would ask for their values
            return None
        return Sizes(made, x.is_vector or y.is_vector, x.kind)

    return each


def _compared(function: Callable) -> Callable[..., Any]:
    """A comparison: its answers are known, and hold for all sizes that a recording serves."""

    def each(node: Node, x: Sizes, y: Sizes) -> np.ndarray | None:
        pairs = _pairs(x, y)
        if pairs is None:
            return None
        answers = [True if function(a, b) else False for a, b in pairs]
        return np.array(answers) if x.is_vector or y.is_vector else np.array(answers[0])

    return each


def _mapped(function: Callable, kinds: tuple[str, ...] = REAL + WHOLE) -> Callable[..., Sizes | None]:
    def each(node: Node, x: Sizes) -> Sizes | None:
        return x.with_numbers([function(n) for n in x.numbers]) if x.kind in kinds else None

    return each


def _cast(node: Node, x: Sizes) -> Sizes | None:
    kind = NAMES.get(node.attr("to"))
    if kind is None or x.kind == "bool":
        return None
    if (kind in WHOLE) == (x.kind in WHOLE):
        return Sizes(x.numbers, x.is_vector, kind)
    return Sizes([int(n) if kind in WHOLE else float(n) for n in x.numbers], x.is_vector, kind)


def _where(node: Node, test: Sizes, x: Sizes, y: Sizes) -> Sizes | None:
    count = max(len(each.numbers) for each in (test, x, y))
    if test.kind != "bool" or x.kind != y.kind or any(len(e.numbers) not in (1, count) for e in (test, x, y)):
        return None
    tests, left, right = (each.numbers * (count // len(each.numbers)) for each in (test, x, y))
    made = [a if chosen else b for chosen, a, b in zip(tests, left, right, strict=True)]
    return Sizes(made, test.is_vector or x.is_vector or y.is_vector, x.kind)


def _extreme(function: Callable) -> Callable[..., Sizes | None]:
    def each(node: Node, *parts: Sizes) -> Sizes | None:
        found: Sizes | None = parts[0]
        for part in parts[1:]:
            found = None if found is None else _zipped(function)(node, found, part)
        return found

    return each


# ---- vectors
def _gather(node: Node, x: Sizes, at: Sizes) -> Sizes | None:
    if not x.is_vector or any(not -len(x.numbers) <= n < len(x.numbers) for n in at.numbers):
        return None
    return Sizes([x.numbers[n] for n in at.numbers], at.is_vector, x.kind)


def _slice(node: Node, x: Sizes, *rest: Sizes) -> Sizes | None:
    if node.opset < 10 or len(rest) < 2 or not all(len(each.numbers) == 1 for each in rest):
        return None
    low, high, step = rest[0].numbers[0], rest[1].numbers[0], rest[3].numbers[0] if len(rest) > 3 else 1
    return Sizes(x.numbers[low:high:step], True, x.kind) if step > 0 and x.is_vector else None


def _alone(node: Node, x: Sizes, axes: Sizes | None = None) -> Sizes | None:
    return Sizes(x.numbers, False, x.kind) if len(x.numbers) == 1 else None


def _vector(node: Node, x: Sizes, axes: Sizes | None = None) -> Sizes | None:
    return None if x.is_vector else Sizes(x.numbers, True, x.kind)


def _concat(node: Node, *parts: Sizes) -> Sizes | None:
    if not all(part.is_vector and part.kind == parts[0].kind for part in parts):
        return None
    return Sizes([n for part in parts for n in part.numbers], True, parts[0].kind)


def _reshape(node: Node, x: Sizes, to: Sizes) -> Sizes | None:
    if to.numbers == [-1]:
        return Sizes(x.numbers, True, x.kind)
    return Sizes(x.numbers, False, x.kind) if not to.numbers and len(x.numbers) == 1 else None


def _folded(function: Callable) -> Callable[..., Sizes | None]:
    def each(node: Node, x: Sizes, axes: Sizes | None = None) -> Sizes | None:
        if not x.numbers or x.kind == "bool":
            return None
        return Sizes([function(x.numbers)], bool(node.attr("keepdims", 1)), x.kind)

    return each


def _split(node: Node, x: Sizes, sizes: Sizes | None = None) -> tuple[Sizes, ...] | None:
    parts = node.attr("split") if sizes is None else sizes.numbers
    if parts is None:
        each = -(-len(x.numbers) // len(node.outputs))
        parts = [each] * len(node.outputs)
    if not x.is_vector or sum(parts) != len(x.numbers) or min(parts) < 0:
        return None
    ends = [sum(parts[: n + 1]) for n in range(len(parts))]
    return tuple([Sizes(x.numbers[end - n : end], True, x.kind) for n, end in zip(parts, ends, strict=True)])


def _quotient(a: int, b: int) -> int | None:
    """ONNX cuts off what Python rounds down."""
    if b == 0:
        return None
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


COMPUTED: dict[str, Callable[..., Any]] = {
    "Add": _zipped(lambda a, b: a + b), "Sub": _zipped(lambda a, b: a - b),
    "Mul": _zipped(lambda a, b: a * b), "Div": _zipped(_quotient, lambda a, b: a / b if b else None),
    "Mod": _zipped(lambda a, b: a % b if b > 0 else None, lambda a, b: None),
    "Min": _extreme(lambda a, b: min(a, b)), "Max": _extreme(lambda a, b: max(a, b)),
    "Neg": _mapped(lambda a: -a), "Abs": _mapped(lambda a: abs(a)),
    "Sqrt": _mapped(lambda a: sqrt(a) if a >= 0 else float("nan"), REAL),
    "Floor": _mapped(lambda a: float(floor(a)), REAL), "Ceil": _mapped(lambda a: float(ceil(a)), REAL),
    "Equal": _compared(lambda a, b: a == b), "Less": _compared(lambda a, b: a < b),
    "Greater": _compared(lambda a, b: a > b), "LessOrEqual": _compared(lambda a, b: a <= b),
    "GreaterOrEqual": _compared(lambda a, b: a >= b), "Where": _where,
    "Gather": _gather, "Slice": _slice, "Cast": _cast, "Squeeze": _alone, "Unsqueeze": _vector,
    "Shape": lambda node, x: None if node.attrs else np.array(x.shape, np.int64),
    "Concat": _concat, "Reshape": _reshape, "Split": _split, "Identity": lambda node, x: x,
    "ReduceProd": _folded(prod), "ReduceSum": _folded(sum), "ReduceMax": _folded(max),
    "ReduceMin": _folded(min),
}  # fmt: skip


# Raw operators that take sizes by `ints`, beside what they move.
TAKING = frozenset(
    (
        "Reshape",
        "Expand",
        "Slice",
        "Tile",
        "Split",
        "ConstantOfShape",
        "Pad",
        "Resize",
        "Range",
        "CenterCropPad",
    )
)


def with_sizes(node: Node, operands: list[Any], is_raw: bool, has_host: bool) -> list[Any]:
    """The operands, sizes among them, as the operator's function takes them: as such, or as arrays."""
    only = all(each is None or isinstance(each, (Sizes, np.ndarray)) for each in operands)
    if only and has_host or is_raw and node.op not in TAKING:
        return [each.array if isinstance(each, Sizes) else each for each in operands]
    if is_raw and isinstance(operands[0], Sizes) and node.op not in ("ConstantOfShape", "Range"):
        return [operands[0].array, *operands[1:]]
    return operands


def computed(node: Node, operands: Sequence[Any]) -> Any:
    """What a node makes of sizes, if it is computed here: one operand is such numbers, and all can be."""
    function = COMPUTED.get(node.op)
    if function is None or node.domain:
        return None
    numbers = [sizes_of(each) for each in operands]
    return None if None in numbers or not numbers else function(node, *numbers)
