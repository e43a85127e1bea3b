"""Programs with a check before each kernel that trusts indices from data.

    %y: f32[3,4] = gather(%t, %r)
    ->
    %bad: bool[1] = index_check(%r)
    %y: f32[3,4] = gather(%t, %r)

A kernel whose indices an earlier one has had checked, as the gradient of a gather has, needs no check.

It is a pass of its own, since a program means the same with its checks; what is done about a flag that is set
is the business of whoever runs it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..kernels.index_check import index_check
from .memory_plan import failing
from .program import Array, Call, Program, Step


def with_checks(program: Program) -> tuple[Program, dict[Array, str]]:
    """The program with its checks, and the name of the kernel behind each flag.

    A kernel that `index_check` makes no check of has none: its indices are looked at by the interpreter.
    Where params are overwritten, indices are checked as soon as they are there: nothing fails afterwards.
    """
    steps: list[Step] = []
    flags: dict[Array, str] = {}
    early = any(at is not None for at in program.into)
    known: set[tuple] = set()
    unchecked = failing(program)
    for number, step in enumerate(program.steps):
        if number in unchecked and isinstance(step, Call) and (check := index_check(step.kernel)):
            kernel, positions = check
            inputs = tuple(step.inputs[n] for n in positions)
            if not early or (kernel, inputs) not in known:
                known.add((kernel, inputs))
                flag = Array("bad", "bool", (1,))
                steps.insert(_first(steps, inputs) if early else len(steps), Call(kernel, inputs, (flag,)))
                flags[flag] = step.name
        steps.append(step)
    return (program.replace(steps=tuple(steps)) if flags else program), flags


def _first(steps: Sequence[Step], inputs: Collection[Array | None]) -> int:
    """The place behind all steps that make these arrays."""
    return next((n + 1 for n in range(len(steps))[::-1] if not set(inputs).isdisjoint(steps[n].outputs)), 0)
