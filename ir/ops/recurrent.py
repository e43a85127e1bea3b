"""What layers of recurrent networks share: types, and neighbours in time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..dims import Dim, same
from ..errors import DTypeError, ShapeError
from ..recur import MOST, order
from ..types import Type
from .create import zeros_like
from .join import cat, stack
from .reduce import sum
from .view import reshape

LAYER_SIZES = {
    "0-d": "a sequence has dimensions",
    "broadcast": "nothing is broadcast",
    "1": "the gates are a multiple of the state",
}


def check_layer(
    op: str, gates: int, projected: Type, weight: Type, bias: Type | None, **states: Type
) -> None:
    """Raise ShapeError, DTypeError unless these are the operands of a layer with so many gates."""
    first = next(iter(states.values()))
    for name, t in ({"projected": projected, "weight": weight, "bias": bias} | states).items():
        if t is not None and (t.dtype is not first.dtype or not t.dtype.is_floating_point):
            raise DTypeError(
                f"{op}: operands of one floating dtype are needed, not {t.dtype.name} and {first.dtype.name}",
                f"{name}: {t}",
            )
    if projected.ndim != 3 or first.ndim != 2:
        raise ShapeError(f"{op}: projected must be [t, b, {gates} * h], and a state [b, h]")
    if not isinstance(projected.shape[0], Dim) and not 0 < projected.shape[0] <= MOST:
        raise ShapeError(f"{op}: a sequence must have at least one step, and at most {MOST}")
    rows, size = first.shape
    wanted: dict[str, tuple[Type, tuple]] = {
        "projected": (projected, (projected.shape[0], rows, size * gates))
    }
    wanted |= {name: (state, (rows, size)) for name, state in states.items()}
    wanted["weight"] = weight, (size * gates, size)
    if bias is not None:
        wanted["bias"] = bias, (size * gates,)
    for name, (t, shape) in wanted.items():
        if t.ndim != len(shape) or not all(map(same, t.shape, shape)):
            raise ShapeError(f"{op}: {name} must be of shape {list(shape)}, not {list(t.shape)}")


# Rows of a batch that go through all steps together, and then the next on this thread or another: a step is
# too short to be shared between threads.  Eight rows are two blocks of four: of an LSTM of 128 that takes two
# threads 240 microseconds in place of 359, and one 0 to 3 % more (a GRU 186, 277 and 9 %; an Intel Xeon,
# 2026-11-28).  Not where the hidden weight, of more elements, is far from a core.
TOGETHER, FEW, NEAR = 8, 4, 1 << 16


def rows_together(state: Any, weight: Any, split: bool) -> int | Dim:
    """How many rows of a state a block of `recur` has; 0 for all.  split: whether there may be blocks."""
    rows, size = state.shape[0], prod(weight.shape)
    if not split or isinstance(size, Dim) or size > NEAR:
        return 0
    count = (rows + (TOGETHER - 1)) // TOGETHER
    if not isinstance(count, Dim) and count < 2:
        return FEW if rows == 2 * FEW else 0
    return (rows + (count - 1)) // count


def times(sequence: Any, back: bool) -> range:
    """The times of an array as a layer meets them; none where no step has anything to do."""
    return order(len(sequence) if sequence.size else 0, back)


def before(states: Any, first: Any, back: bool) -> Any:
    """The state that each step began with: `states` are those that it made."""
    if back:
        return cat([states[1:], first[None]])
    return cat([first[None], states[:-1]])


def after(states: Any, back: bool) -> tuple[Any, Any]:
    """Its transpose: cotangents of the states that steps made, and of the first."""
    zeros = zeros_like(states[:1])
    if back:
        return cat([zeros, states[:-1]]), states[-1]
    return cat([states[1:], zeros]), states[0]


def weight_and_bias(
    to_hidden: Any, states: Any, first: Any, back: bool, needs_weight: bool, needs_bias: bool
) -> tuple[Any, Any]:
    """The gradients of a hidden weight and bias: one product for all steps but the first.

    to_hidden: of the hidden products, [t, b, g].  states: those that the steps made, [t, b, h]; first: the
    one that the first of them began with.
    """
    flat, weight = _flat(to_hidden), None
    if needs_weight:
        rows = first.shape[0]
        rest, made = (flat[:-rows], _flat(states)[rows:]) if back else (flat[rows:], _flat(states)[:-rows])
        weight = rest.mT @ made + to_hidden[-1 if back else 0].mT @ first
    return weight, sum(flat, 0) if needs_bias else None


def _flat(sequence: Any) -> Any:
    steps, rows, size = sequence.shape
    return reshape(sequence, (steps * rows, size))


def in_time(found: Mapping[int, Any]) -> Any:
    """What was found for each time as a sequence."""
    return stack([found[t] for t in sorted(found)])
