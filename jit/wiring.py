"""Which arrays the programs of a graph take: that of its weights, and that of a call."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..passes.programs.program import Array, Host, Program, Repeat


@dataclass(frozen=True)
class Wiring:
    """Positions of the graph's params, and what runs.

    first: of what the program of the weights takes.  first_key: equal where that does the same.  main: of
    what a call's takes; negative ones count the weights' results from the end.  kernels: names, those of the
    weights' program first.
    """

    first: Sequence[int]
    first_key: str
    main: Sequence[int]
    kernels: Sequence[Sequence[str]]

    @classmethod
    def of(cls, params: Sequence[Array], weights: Program, main: Program) -> Wiring:
        """params: the graph's."""
        position = {array: i for i, array in enumerate(params)}
        handed = {array: -1 - j for j, array in enumerate(weights.results)}
        return cls(
            [position[a] for a in weights.params] if weights.results else [],
            hashlib.sha256(repr(_structure(weights)).encode()).hexdigest(),
            [handed[a] if a in handed else position[a] for a in main.params],
            [[step.name for step in p.steps if step.name != "alias"] for p in (weights, main)],
        )

    @property
    def takes_weights(self) -> bool:
        """Whether a call takes what the program of the weights makes."""
        return any(at < 0 for at in self.main)


def _structure(program: Program) -> tuple:
    """What a program does, whatever its arrays are called."""
    numbers: dict[Any, int] = {array: n for n, array in enumerate((*program.params, *program.constants))}
    steps = []
    for step in program.steps:
        for array in step.outputs:
            numbers[array] = len(numbers)
        kind: Any = step if isinstance(step, Host) else getattr(step, "kernel", getattr(step, "offset", None))
        if isinstance(step, Repeat):
            kind = _structure(step.body), step.count, step.sequences, step.kept, step.back, step.rows
        places = tuple([numbers.get(array) for array in (*step.inputs, *step.outputs)])
        types = tuple([(array.dtype, array.shape) for array in step.outputs])
        steps.append((kind, getattr(step, "how", None), places, types))
    constants = tuple([(a.dtype, a.shape, data.tobytes()) for a, data in program.constants.items()])
    return tuple(steps), constants, tuple([numbers[array] for array in program.results])
