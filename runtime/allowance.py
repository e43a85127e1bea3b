"""A bound on the memory that ops take inside of a block: each is asked before its kernel runs.

    with bounded(1 << 30):
        model(x)

What is alive is not counted but measured: when results have come to an eighth of the bound, the memory that
the process has is read, so that what was freed may be taken again.  Machine code of traced functions is not
asked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod

from ..ir.errors import OutOfMemoryError
from ..ir.op import Op
from ..ir.types import Type
from . import modes

BEFORE_MEASURING = 8  # one part in so many of the bound
IN_ALL = 1024  # times the bound, what all results of a block may come to, one after the other
BELOW = 1 << 12  # bytes of a result that nobody counts


def machine_memory() -> int:
    """The bytes of memory that this machine has; 8 GiB where it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 33


def _own() -> int:
    """The bytes that this process alone has, without what it maps of files; 0 where that is not told."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            _, resident, shared, *_ = file.read(256).split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class Allowance:
    """What a block may take.  most: bytes.  first: what the process had as the block began.  unmeasured: of
    results since the process's memory was read last; left: of all results that may still come."""

    __slots__ = ("first", "left", "most", "unmeasured")

    def __init__(self, most: int):
        self.most, self.first = most, _own()
        self.unmeasured, self.left = 0, IN_ALL * most

    def ask(self, op: Op, types: Sequence[Type | None], outs: Sequence[Type]) -> None:
        """Raise OutOfMemoryError unless an op's results may be made.

        Where values tell how many elements they have, that is as many places as operands have elements.
        """
        if op.traits.host:
            self.take(sum(x.size * max(x.ndim, 1) * 8 for x in types if x is not None), op.name)
        elif not op.traits.view:
            for each in outs:
                nbytes = each.size * each.dtype.numpy.itemsize
                if nbytes > BELOW:
                    self.take(nbytes, op.name)

    def take(self, nbytes: int, what: str) -> None:
        """Raise OutOfMemoryError unless there may be so many bytes more."""
        self.unmeasured += nbytes
        self.left -= nbytes
        if self.unmeasured * BEFORE_MEASURING <= self.most and self.left >= 0:
            return
        grown = max(_own() - self.first, 0)
        self.unmeasured = nbytes
        if grown + nbytes > self.most or self.left < 0:
            self.unmeasured = 0
            raise OutOfMemoryError(
                f"{what} is to make {nbytes:,} bytes, and {self.most:,} are allowed",
                f"taken since the call began: {grown:,}"
                if self.left >= 0
                else f"all results together come to more than {IN_ALL} times as many",
            )


class bounded(modes._Mode):
    """Let ops on this thread take no more than so many bytes at a time, for the length of the block.

    Raises OutOfMemoryError, before memory is asked for, from the op whose result would be too much.
    """

    def __init__(self, most_bytes: int):
        self._changes = {"allowance": Allowance(most_bytes)}


def afford(shape: Sequence[int], itemsize: int, what: str) -> None:
    """Raise OutOfMemoryError where this block's bound does not hold an array that no op makes."""
    if modes.CHANGED and modes.local.allowance is not None:
        modes.local.allowance.take(prod(shape) * itemsize, what)
