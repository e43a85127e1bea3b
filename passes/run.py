"""Runs passes in order and verifies what each returns, so that the pass that broke a graph is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..ir.errors import ArgumentValueError, GraphError
from ..ir.graph import Graph
from ..ir.verify import verify

Pass = Callable[[Graph], Graph]


def run(graph: Graph, passes: Sequence[Pass], *, stop_after: int | str | None = None) -> Graph:
    """The graph after the passes.

    stop_after: a pass's name, or how many to run (0: none), to bisect.  Raises GraphError naming the pass,
    and what it broke; the text of the graph it was given is in the error's notes.
    """
    names = [name_of(p) for p in passes]
    if isinstance(stop_after, str):
        if stop_after not in names:
            raise ArgumentValueError(
                f"run(stop_after): no pass is called {stop_after!r}", f"the passes are: {', '.join(names)}"
            )
        stop_after = names.index(stop_after) + 1
    verify(graph)
    for number, step in enumerate(passes[:stop_after], 1):
        made = step(graph)
        try:
            if not isinstance(made, Graph):
                raise GraphError(f"it returned {type(made).__name__}, not a graph")
            verify(made)
        except GraphError as error:
            blamed = GraphError(
                f"pass {names[number - 1]} ({number} of {len(passes)}) broke the graph",
                error.rule,
                *error.details,
            )
            blamed.add_note(f"the graph before the pass:\n{graph}")
            raise blamed from None
        graph = made
    return graph


def name_of(step: Pass) -> str:
    """The name of a pass, with options or without."""
    return name_of(step.func) if isinstance(step, partial) else step.__name__
