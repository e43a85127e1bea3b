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

from ..kernels.index_check import index_check
from .memory_plan import failing
from .program import Array, Call, Program, Step


def with_checks(program: Program) -> tuple[Program, dict[Array, str]]:
    """The program with its checks, and the name of the kernel behind each flag.

    A kernel that `index_check` makes no check of has none: its indices are looked at by the interpreter.
    """
    steps: list[Step] = []
    flags: dict[Array, str] = {}
    unchecked = failing(program)
    for number, step in enumerate(program.steps):
        if number in unchecked and isinstance(step, Call) and (check := index_check(step.kernel)):
            kernel, positions = check
            flag = Array("bad", "bool", (1,))
            steps.append(Call(kernel, tuple(step.inputs[n] for n in positions), (flag,)))
            flags[flag] = step.name
        steps.append(step)
    return (program.replace(steps=tuple(steps)) if flags else program), flags
