"""Inputs for the tests that are generated from the op records.

A record lists `Sample`s: operands by shape and domain, with the other arguments as the user would spell them.
The tests make arrays of them in every dtype the op takes and lay the operands out contiguous, transposed, as
strided slices and broadcast; what a record need only say is which sizes, domains and arguments matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Operand:
    """A tensor operand of a sample.

    low, high: the range of its values.  distinct: all elements differ (so that max has one winner and
    gradients exist).  category: "any" (the dtype under test), or "float", "float32", "int", "int8",
    "int32", "bool" whatever the dtype under test. away_from: values at which the op has a kink or a jump,
    kept at a distance of 0.05.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    category: str = "any"
    distinct: bool = False
    away_from: tuple[float, ...] = ()

    def array(self, generator: np.random.Generator, dtype: np.dtype) -> np.ndarray:
        """A contiguous array of such values in `dtype`.  Integers lie in [low, high); others are rounded."""
        if self.category == "bool" or (dtype.kind == "b" and self.category == "any"):
            return generator.integers(0, 2, self.shape).astype(np.bool_)
        if self.category in ("int8", "int32"):
            return generator.integers(int(self.low), int(self.high), self.shape).astype(self.category)
        if self.category == "float32":
            dtype = np.dtype(np.float32)
        if self.category == "int" or (dtype.kind in "iu" and self.category == "any"):
            dtype = dtype if self.category == "any" else np.dtype(np.int64)
            low = max(int(np.ceil(self.low)), 0) if dtype.kind == "u" else int(np.ceil(self.low))
            return generator.integers(low, max(int(self.high), low + 1), self.shape).astype(dtype)
        dtype = np.dtype(np.float32) if dtype.kind in "iub" else dtype
        count = int(np.prod(self.shape))
        if self.distinct:
            values = np.linspace(self.low, self.high, count) if count > 1 else np.full(count, self.low)
            values = generator.permutation(values).reshape(self.shape)
        else:
            values = generator.uniform(self.low, self.high, self.shape)
        for point in self.away_from:
            near = np.abs(values - point) < 0.05
            values = np.where(near, point + np.where(values < point, -0.05, 0.05) + (values - point), values)
        return np.asarray(values).astype(dtype)


@dataclass(frozen=True)
class Sample:
    """One call: operands in order (an Operand, None, a Python number, or a tuple of Operands for op(list)),
    keyword arguments as the user writes them.

    differentiable: whether gradients are checked at this sample (False at ties, jumps, or where a value is
    integral).
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = True


def sample(*args: Any, differentiable: bool = True, **kwargs: Any) -> Sample:
    """Spell a sample as the call it stands for; shapes may be given bare: sample((3, 4), dim=1)."""

    def operand(a):
        return Operand(a) if isinstance(a, tuple) and all(isinstance(n, int) for n in a) else a

    return Sample(tuple(map(operand, args)), kwargs, differentiable)


# The sizes that every op meets unless its record says why not: 0-d, empty, one element, a tail beside a
# vector of 16 lanes, and two vectors with a tail.
SIZES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (17,), (33,))


def unary_samples(**domain: Any) -> Callable[[], Iterable[Sample]]:
    """Samples of an elementwise op of one operand."""
    return lambda: [Sample((Operand(s, **domain),)) for s in (*SIZES, (3, 17), (2, 0, 3), (2, 3, 4))]


def binary_samples(first: dict[str, Any] | None = None, second: dict[str, Any] | None = None):
    """Samples of an elementwise op of two operands, broadcast in each way."""
    pairs = [(s, s) for s in SIZES] + [
        ((3, 17), (17,)), ((3, 1), (1, 33)), ((2, 3, 4), ()), ((), (5,)), ((0, 3), (3,)), ((4, 1, 3), (2, 1)),
    ]  # fmt: skip
    a, b = first or {}, second or first or {}
    return lambda: [Sample((Operand(s, **a), Operand(t, **b))) for s, t in pairs]
