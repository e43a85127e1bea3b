"""How tensors come from one stage to the next, and gradients back: by messages, or in one process.

A link carries the tensors of one microbatch after the other, in an order that both its ends know.  At the
first of a step the sender tells ahead which they are, so that steps may have batches of different sizes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.dtypes import EVERY
from ...ir.errors import DistributedError, ShapeError
from ...ir.types import Type, type_of
from ...runtime import Tensor, ops
from ...runtime import tensor as make_tensor
from ..groups import ProcessGroup
from ..messages import irecv, isend
from ..work import Work

HEADER = 64  # numbers that say which tensors come
TAG = 1 << 14  # of messages between stages; those of programs begin at 0


@dataclass(frozen=True)
class Coming:
    """A tensor that a microbatch consists of between two stages; back goes its gradient, if it needs one."""

    type: Type
    needs_grad: bool

    @classmethod
    def of(cls, x: Tensor) -> Coming:
        """What `x` is, for others."""
        return cls(type_of(x.dtype, tuple(x.shape)), x.requires_grad)

    def __str__(self) -> str:
        return f"{self.type}{' with a gradient' if self.needs_grad else ''}"


def listed(coming: Sequence[Coming]) -> str:
    """Several of them, for errors."""
    return ", ".join(map(str, coming)) or "nothing"


def _header(coming: Sequence[Coming]) -> np.ndarray:
    numbers = [len(coming)]
    for one in coming:
        shape = [int(n) for n in one.type.shape]
        numbers += [EVERY.index(one.type.dtype), int(one.needs_grad), len(shape), *shape]
    if len(numbers) > HEADER:
        raise ShapeError(
            f"a stage hands on {len(coming)} tensors, which are more than a message tells of",
            "stack them, or let fewer pass between stages",
        )
    return np.array(numbers + [0] * (HEADER - len(numbers)), np.int64)


def _read(numbers: list[int]) -> list[Coming]:
    count, at, found = numbers[0], 1, []
    for _ in range(count):
        dtype, needs_grad, ndim = numbers[at : at + 3]
        shape = tuple(numbers[at + 3 : at + 3 + ndim])
        found.append(Coming(type_of(EVERY[dtype], shape), bool(needs_grad)))
        at += 3 + ndim
    return found


class Sender:
    """The end of a link that tensors are sent from.

    said: what a microbatch consists of, as the other end knows it; None until the first of a step.  sent:
    what is on its way, which nobody writes.
    """

    def __init__(self, name: str, group: ProcessGroup, to: int, number: int):
        self.name, self.group, self.to, self.tag = name, group, to, TAG + number
        self.said: list[Coming] | None = None
        self.sent: list[Work] = []

    def begin(self, known: list[Coming] | None = None) -> None:
        """Begin a step.  known: what both ends know without being told."""
        self.said = known

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Send the tensors of the next microbatch.  Raises ShapeError where they differ from those before."""
        coming = [Coming.of(x) for x in tensors]
        if self.said is None:
            self._send(make_tensor(_header(coming)))
            self.said = coming
        elif coming != self.said:
            raise ShapeError(
                f"{self.name}: all microbatches of a step consist of the same types",
                f"before: {listed(self.said)}",
                f"now: {listed(coming)}",
            )
        for x in tensors:
            self._send(x.detach())

    def _send(self, x: Tensor) -> None:
        work = isend(x, group=self.group, group_dst=self.to, tag=self.tag)
        assert work is not None
        self.sent = [w for w in self.sent if not w.is_completed()]
        self.sent.append(work)

    def settle(self) -> None:
        """Wait until all has left."""
        for work in self.sent:
            work.wait()
        self.sent = []


class Receiver:
    """The end of a link that tensors come to.

    said: what a microbatch consists of.  expected: what it must consist of, where somebody said so.
    begun: microbatches that are received already, in order.
    """

    def __init__(self, name: str, group: ProcessGroup, source: int, number: int):
        self.name, self.group, self.source, self.tag = name, group, source, TAG + number
        self.said: list[Coming] | None = None
        self.expected: list[Type] | None = None
        self.begun: deque[list[tuple[Tensor, Work]]] = deque()

    def begin(self, known: list[Coming] | None = None) -> None:
        """Begin a step.  known: what both ends know without being told."""
        self.said = known

    def look_ahead(self, count: int) -> None:
        """Begin to receive the next `count` microbatches, if it is known what they consist of."""
        while self.said is not None and len(self.begun) < count:
            self._receive()

    def _receive(self) -> None:
        if self.said is None:
            told = make_tensor(np.zeros(HEADER, np.int64))
            self._begin(told).wait()
            self.said = _read(told.tolist())
            if self.expected is not None and [c.type for c in self.said] != self.expected:
                raise DistributedError(
                    f"{self.name}: what comes differs from what its input_args said",
                    f"comes: {listed(self.said)}",
                    f"said: {', '.join(map(str, self.expected))}",
                )
        into = [ops.empty(c.type.shape, dtype=c.type.dtype) for c in self.said]
        self.begun.append([(x, self._begin(x)) for x in into])

    def _begin(self, x: Tensor) -> Work:
        work = irecv(x, group=self.group, group_src=self.source, tag=self.tag)
        assert work is not None
        return work

    def get(self) -> list[Tensor]:
        """The tensors of the next microbatch."""
        if not self.begun:
            self._receive()
        found = []
        for x, work in self.begun.popleft():
            work.wait()
            found.append(x)
        return found


class Local:
    """Both ends of a link between stages of one process, in the words of a Sender and a Receiver."""

    def __init__(self) -> None:
        self.said: list[Coming] | None = None
        self.expected: list[Type] | None = None
        self.held: deque[list[Tensor]] = deque()

    def begin(self, known: list[Coming] | None = None) -> None:
        """Begin a step."""
        self.said = known

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Hold the tensors of the next microbatch."""
        if self.said is None:
            self.said = [Coming.of(x) for x in tensors]
        self.held.append([x.detach() for x in tensors])

    def settle(self) -> None:
        """Nothing is on its way."""

    def look_ahead(self, count: int) -> None:
        """Nothing is on its way."""

    def get(self) -> list[Tensor]:
        """The tensors of the next microbatch."""
        return self.held.popleft()
