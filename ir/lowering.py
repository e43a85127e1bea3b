"""How an op becomes kernels, stated as data in its record.

Five ways for an operator, and nothing else:

    pointwise(body)        one scalar body over the broadcast operands: body(*scalars, **attrs) -> scalar(s)
    kernel(build)          one kernel in the kernel form: build(k, *operands, **attrs) states its stages on a
                           KernelBuilder (ir/kernel/build.py); reductions, windows, contractions, movement,
                           folds
    decomposition(f)       a small graph of other ops: f(*values, **attrs) -> values, written with ops
    extern(reason)         host code behind a call: sort, LAPACK
    host_only(reason)      the result's shape depends on values, so a kernel cannot say it

and recurrence() for the node that passes make of what repeats (ir/recur.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Lowering:
    """How an op is lowered; one of the classes below."""


@dataclass(frozen=True)
class Pointwise(Lowering):
    """`body(*scalars, **attrs)`; with several outputs it returns a tuple."""

    body: Callable


@dataclass(frozen=True)
class KernelForm(Lowering):
    """`build(k, *operands, **attrs)` adds stages to the KernelBuilder `k`; operands can be read with [...]"""

    build: Callable


@dataclass(frozen=True)
class Decomposition(Lowering):
    """`function(*values, **attrs)` computes the op's outputs (hidden ones too) with other ops.

    flat: the same for targets whose programs have no loops, where it has some that are better left out.
    """

    function: Callable
    flat: Callable


@dataclass(frozen=True)
class NotLowered(Lowering):
    """`kind` is "extern", "host-only" or "whole"; the generated tests count these and print why."""

    kind: str
    reason: str


@dataclass(frozen=True)
class Recurrence(Lowering):
    """A program that runs several times: the node holds its graph."""


def pointwise(body: Callable) -> Pointwise:
    return Pointwise(body)


def kernel(build: Callable) -> KernelForm:
    return KernelForm(build)


def decomposition(function: Callable, flat: Callable | None = None) -> Decomposition:
    return Decomposition(function, flat or function)


def extern(reason: str) -> NotLowered:
    return NotLowered("extern", reason)


def host_only(reason: str) -> NotLowered:
    return NotLowered("host-only", reason)


def whole(reason: str) -> NotLowered:
    """Code that a target has of its own, for a node that a pass makes."""
    return NotLowered("whole", reason)


def recurrence() -> Recurrence:
    return Recurrence()
