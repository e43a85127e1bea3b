"""Runs passes over graphs or over programs in order and verifies what each returns, so that the pass that
broke one is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ..ir.errors import ArgumentValueError, GraphError, KernelError
from ..ir.graph import Graph
from ..ir.kernel.verify import verify as verify_kernel
from ..ir.verify import verify
from .programs.program import Program
from .programs.program import verify as verify_program

Pass = Callable[[Graph], Graph]
ProgramPass = Callable[[Program], Program]
T = TypeVar("T", Graph, Program)


def run(graph: Graph, passes: Sequence[Pass], *, stop_after: int | str | None = None) -> Graph:
    """The graph after the passes.

    stop_after: a pass's name, or how many to run (0: none), to bisect.  Raises GraphError naming the pass,
    and what it broke; the text of the graph it was given is in the error's notes.
    """
    return _run(graph, passes, stop_after, verify)


def run_program(
    program: Program, passes: Sequence[ProgramPass], *, stop_after: int | str | None = None
) -> Program:
    """The program after the passes; as `run`.  Its kernels are verified after each, too."""
    return _run(program, passes, stop_after, verified)


def verified(program: Program) -> Program:
    """The program, if it is well made and each of its kernels is.  Raises GraphError."""
    verify_program(program)
    for kernel in dict.fromkeys(call.kernel for call in program.all_calls):
        try:
            verify_kernel(kernel)
        except KernelError as error:
            raise GraphError(
                f"program {program.name}: a kernel breaks a rule of its form", error.rule, *error.details
            ) from None
    return program


def _run(
    graph: T, passes: Sequence[Callable[[T], T]], stop_after: int | str | None, check: Callable[[T], object]
) -> T:
    kind = type(graph).__name__.lower()
    names = [name_of(p) for p in passes]
    if isinstance(stop_after, str):
        if stop_after not in names:
            raise ArgumentValueError(
                f"run(stop_after): no pass is called {stop_after!r}", f"the passes are: {', '.join(names)}"
            )
        stop_after = names.index(stop_after) + 1
    check(graph)
    for number, step in enumerate(passes[:stop_after], 1):
        made = step(graph)
        try:
            if not isinstance(made, type(graph)):
                raise GraphError(f"it returned {type(made).__name__}, not a {kind}")
            check(made)
        except GraphError as error:
            blamed = GraphError(
                f"pass {names[number - 1]} ({number} of {len(passes)}) broke the {kind}",
                error.rule,
                *error.details,
            )
            blamed.add_note(f"the {kind} before the pass:\n{graph}")
            raise blamed from None
        graph = made
    return graph


def name_of(step: Pass | ProgramPass) -> str:
    """The name of a pass, with options or without."""
    return name_of(step.func) if isinstance(step, partial) else step.__name__
