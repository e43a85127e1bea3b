"""Small parameters updated as one: an optimizer's whole step on a handful of arrays is a dozen NumPy calls, not a
dozen for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_, methodcaller
from typing import Any

import numpy as np

from ..ir.dtypes import float32, float64
from ..runtime import Tensor
from ..runtime.tensor import wrap

_DATA, _FLATTENED = attrgetter("_data"), methodcaller("reshape", -1)
MOST = 65_536  # elements in all: beyond it the calls are no longer what a step costs, and copying would be


class Flat:
    """Room for the gradients and values of some parameters, and the states that an optimizer keeps for them, each
    as one array.

    params: whose they are, in order.  states: per name the one array; `views`: per name and parameter its part.
    The states that the optimizer hands out are these parts, so nothing is copied for them.
    """

    def __init__(self, params: Sequence[Tensor], names: tuple[str, ...]):
        dtype, total = params[0]._data.dtype, sum(p._data.size for p in params)
        self.params = tuple(params)
        self.states = [np.zeros(total, dtype) for _ in names]
        self.views = [self._parts(array) for array in self.states]
        self.grad, self.value = np.empty(total, dtype), np.empty(total, dtype)
        self.values = self._parts(self.value)

    def _parts(self, array: np.ndarray) -> list[np.ndarray]:
        """The stretch of each parameter, in its shape."""
        parts, start = [], 0
        for p in self.params:
            size = p._data.size
            parts.append(array[start : start + size].reshape(p._data.shape))
            start += size
        return parts

    def initial(self, state: int, number: int, value: Tensor) -> Tensor:
        """State `state` of parameter `number`, starting from `value`."""
        part = self.views[state][number]
        part[...] = value._data
        return wrap(part, value._meta)

    def covers(self, rows: list[tuple]) -> bool:
        """Whether `rows` are just these parameters in this order, with the states that were handed out."""
        if len(rows) != len(self.params):
            return False
        _, params, *states = zip(*rows)  # noqa: B905 - rows are of one length
        same = all(map(is_, params, self.params))
        return same and all(all(map(is_, map(_DATA, column), parts)) for column, parts in zip(states, self.views))  # noqa: B905

    def row(self, grads: list[np.ndarray], params: list[np.ndarray]) -> tuple:
        """The arrays of one row that stands for all: gradients and values gathered, states as they are."""
        np.concatenate(list(map(_FLATTENED, grads)), out=self.grad)
        np.concatenate(list(map(_FLATTENED, params)), out=self.value)
        return self.grad, self.value, *self.states

    def scatter(self, params: list[np.ndarray]) -> None:
        """Write the values back to the parameters' arrays."""
        for array, part in zip(params, self.values):  # noqa: B905
            array[...] = part


def flat_for(params: Sequence[Tensor], names: tuple[str, ...]) -> Flat | None:
    """Room for these parameters, or None where it wouldn't pay."""
    kinds: set[Any] = {p.dtype for p in params}
    small = sum(p._data.size for p in params) <= MOST
    return Flat(params, names) if len(params) > 2 and names and small and kinds in ({float32}, {float64}) else None
