"""The table of operators, and what their functions need of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.dtypes import float32, float64, from_numpy_dtype, int32, int64
from ....runtime import Tensor, tensor
from ....runtime.allowance import afford
from ..declared import STANDARD, Node, OnnxError
from .size_numbers import Sizes

KINDS = {"int64": int64, "int32": int32, "float32": float32, "float64": float64}  # of `Sizes`
FEW = 1 << 12  # elements of arrays that NumPy computes with, whatever comes of them
Value = Any  # a Tensor, a host value (NumPy array), Sizes, a list of these, or None


@dataclass(frozen=True)
class Operator:
    """function: of a node and its operands.  host: the same of host values alone.  raw: the function takes
    host values too.  scoped: it takes the scope before them, in which a node's graphs run."""

    function: Callable[..., Value]
    host: Callable[..., Value] | None = None
    raw: bool = False
    scoped: bool = False


OPERATORS: dict[tuple[str, str], Operator] = {}


def operator(
    *names: str, domain: str = STANDARD, host: Callable | None = None, raw: bool = False, scoped: bool = False
) -> Callable[[Callable], Callable]:
    """Enter a function for operators of these names."""

    def enter(function: Callable) -> Callable:
        for name in names:
            if (domain, name) in OPERATORS:
                raise ValueError(f"{name} is entered twice")
            OPERATORS[domain, name] = Operator(function, host, raw, scoped)
        return function

    return enter


def is_host(value: Value) -> bool:
    return value is None or isinstance(value, (np.ndarray, np.generic))


def on_host(node: Node, operands: Sequence[Value]) -> bool:
    """Whether NumPy computes with host values: with few, and those that there are no tensors of.

    Else ops do, which are asked for the memory of their results.
    """
    arrays = [each for each in operands if each is not None]
    if sum([each.size for each in arrays]) <= FEW:
        return True
    if not any(map(has_no_tensor, arrays)):
        return False
    try:
        shape = np.broadcast_shapes(*[each.shape for each in arrays])
    except (ValueError, RuntimeError):  # no elementwise operator, or of more dimensions than NumPy meets
        shape = (sum([each.size for each in arrays]),)
    afford(shape, 8, node.op)
    return True


def has_no_tensor(value: Value) -> bool:
    """Whether Lamina has no tensors of an array's elements: of strings, of numbers of less than a byte."""
    return isinstance(value, np.ndarray) and from_numpy_dtype(value.dtype) is None


def together(*values: Value) -> list[Value]:
    """Values that one op takes: arrays where all are such, or where one can't be else; or tensors."""
    if all(map(is_host, values)) or any(map(has_no_tensor, values)):
        return [value if value is None else as_host(value) for value in values]
    return [*map(as_tensor, values)]


def as_tensor(value: Value) -> Value:
    """A host value as a tensor; as they are: None, lists, and arrays of which Lamina has no tensors."""
    if isinstance(value, Sizes):
        return tensor([*value.numbers] if value.is_vector else value.numbers[0], dtype=KINDS[value.kind])
    if isinstance(value, (np.ndarray, np.generic)) and from_numpy_dtype(value.dtype) is not None:
        return tensor(np.asarray(value))
    return value


def as_host(value: Value) -> np.ndarray:
    """A value's elements, whatever it is."""
    if isinstance(value, Sizes):
        return value.array
    return value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)


def ints(value: Value, default: Sequence[int] | None = None) -> list[int] | None:
    """The elements of a vector of numbers (axes, sizes), as Python's."""
    if value is None:
        return None if default is None else [*default]
    if isinstance(value, Sizes):
        return [*value.numbers]
    return [int(each) for each in as_host(value).reshape(-1)]


def number(value: Value, default: Any = None) -> Any:
    """The one element of a value, as Python's."""
    if value is None:
        return default
    if isinstance(value, Sizes) and len(value.numbers) == 1:
        return value.numbers[0]
    array = as_host(value)
    if array.size != 1:
        raise OnnxError(f"one number is wanted, not an array of the shape {[*array.shape]}")
    return array.reshape(-1)[0].item()


def axis_of(axis: int, rank: int, node: Node) -> int:
    """An axis from the front.  Raises OnnxError where there is none."""
    if not -rank <= axis < max(rank, 1):
        raise OnnxError(f"{node.op}: the axis {axis} is none of {rank} dimensions", str(node))
    return axis % rank if rank else 0
