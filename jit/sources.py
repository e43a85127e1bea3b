"""Where the params of a recorded graph come from at each call, and how what a call returns is made.

A source names a place that is read anew at each call.  A maker says what a returned tensor is: one that the
caller or the program holds already, a view of it, or a new one around a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir.dims import Dim
from ..ir.views import Chain


@dataclass(frozen=True)
class Arg:
    """The tensor at that place among the leaves of the arguments."""

    index: int


@dataclass(frozen=True)
class Held:
    """A tensor that the function reaches otherwise: a parameter, a buffer, an optimizer's state."""

    index: int


@dataclass(frozen=True)
class Grad:
    """The gradient that a leaf has before the call."""

    of: Arg | Held


@dataclass(frozen=True)
class Number:
    """A hyper-parameter: `name` of what the optimizer's group at `group` of the recording says."""

    group: int
    name: str


@dataclass(frozen=True)
class Draw:
    """The state operand of a random op: the generator's own, moved on by `offset` counters."""

    generator: int
    offset: int | Dim


@dataclass(frozen=True)
class Answer:
    """An output of the host op that stands at `question`."""

    question: int
    index: int


@dataclass(frozen=True)
class Lifted:
    """A number that Python computes of what stands in slots: its expression, and the dtype needed."""

    expression: str
    dtype: str


@dataclass(frozen=True)
class Memory:
    """The NumPy array in a slot, which the run took for a tensor's memory."""

    index: int


Source = Arg | Held | Grad | Number | Draw | Answer | Lifted | Memory


@dataclass(frozen=True)
class Given:
    """A tensor that is there already."""

    source: Source


@dataclass(frozen=True)
class Fresh:
    """A new tensor around a result; `order`: its dimensions from outermost in memory, None if row by row."""

    result: int
    order: tuple[int, ...] | None


@dataclass(frozen=True)
class Made:
    """A returned tensor.

    base: what its memory is.  chain: the views that lead from there to it; linked: whether it knows that it
    is a view; shares: whether it counts writes with its base, as detach() does.  history: "none"; "leaf": it
    requires gradients and starts a history; "live": it has one; or a spent node, whose backward raises.
    apart: whether it is a view of what the run detached from the base, and not of the base itself.  inferred:
    whether it was made under inference_mode().
    """

    base: Given | Fresh
    chain: Chain
    linked: bool
    shares: bool
    history: Any
    apart: bool = False
    inferred: bool = False


Maker = Given | Made
