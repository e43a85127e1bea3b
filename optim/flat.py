"""Small parameters updated as one: a whole step is a dozen NumPy calls, not a dozen for each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter, is_not, itemgetter
from typing import Any

import numpy as np

from ..ir.dtypes import float32, float64
from ..runtime import Tensor
from ..runtime.tensor import wrap

_COMPOUND = attrgetter("_compound")
_DATA, _META, _GRAD = attrgetter("_data"), attrgetter("_meta"), attrgetter("_edge.grad")
MOST = 65_536  # elements in all: beyond it the calls are no longer what a step costs, and copying would be


class Flat:
    """Room for the gradients, values and states of some parameters: each kind is one array.

    params, kinds: whose they are, in order, and their types.  states: per name the one array;
    `views`: per name and parameter its part.  The states that the optimizer hands out are these parts, so
    nothing is copied for them.
    """

    def __init__(self, params: Sequence[Tensor], names: tuple[str, ...]):
        dtype, total = params[0]._data.dtype, sum(p._data.size for p in params)
        self.params = tuple(params)
        self.kinds = tuple(map(_META, params))
        self.states = [np.zeros(total, dtype) for _ in names]
        self.views = [self._parts(array) for array in self.states]
        self.marks = list(map(id, chain(self.params, self.kinds, *self.views)))  # all live as long as this
        self.grad, self.value = np.empty(total, dtype), np.empty(total, dtype)
        self.grads, self.values = self._parts(self.grad), self._parts(self.value)

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

    def holds(self, params: Sequence[Tensor], kept: Sequence[Sequence[Tensor]]) -> bool:
        """Whether these are just the parameters, of the types they had, with the states that were handed out.

        `kept` holds a column for each name.  Asked at each step, and so by columns.
        """
        # Another type is another dtype or shape that was put in.
        if len(params) != len(self.params) or any(map(_COMPOUND, params)):
            return False
        found = chain(params, map(_META, params), *[map(_DATA, column) for column in kept])
        return list(map(id, found)) == self.marks

    def columns(self, params: list[Tensor], states: Any, names: tuple[str, ...]) -> tuple | None:
        """(gradients, parameters, states...) of all of them; None unless `params` are just these, each with a
        gradient.
        """
        if len(params) != len(self.params) or params[0] is not self.params[0]:
            return None
        try:
            grads = tuple(map(_GRAD, params))
            kept = [tuple(map(itemgetter(name), map(states.get, params))) for name in names]
        except (AttributeError, KeyError, TypeError):  # no leaf, or no state
            return None
        whole = all(map(is_not, grads, repeat(None))) and self.holds(params, kept)
        return (grads, self.params, *kept) if whole else None

    def covers(self, rows: list[tuple]) -> bool:
        """Whether `rows` (gradient, parameter, states...) are all of them."""
        _, params, *kept = zip(*rows)
        return self.holds(params, kept)

    def row(self, grads: list[np.ndarray], params: list[np.ndarray]) -> tuple:
        """The arrays of one row that stands for all: gradients and values gathered, states as they are."""
        copy(grads, self.grads)
        copy(params, self.values)
        return self.grad, self.value, *self.states

    def scatter(self, params: list[np.ndarray]) -> None:
        """Write the values back to the parameters' arrays."""
        copy(self.values, params)


def copy(sources: list[np.ndarray], targets: list[np.ndarray]) -> None:
    """Write each source over its target (np.concatenate takes over twice as long for a few small ones)."""
    for source, target in zip(sources, targets):  # of one length, and hot
        target[...] = source


def flat_for(params: Sequence[Tensor], names: tuple[str, ...]) -> Flat | None:
    """Room for these parameters, or None where it wouldn't pay."""
    kinds: set[Any] = {p.dtype for p in params}
    small = sum(p._data.size for p in params) <= MOST
    on_cpu = all([p.is_cpu for p in params])
    worth = len(params) > 2 and names and small and on_cpu and kinds in ({float32}, {float64})
    return Flat(params, names) if worth else None
