"""What the arena of a program holds, step by step, and what is in it where it is fullest."""

from __future__ import annotations

from dataclasses import dataclass

from .memory_plan import MemoryPlan, roots
from .program import Array, Step


@dataclass(frozen=True)
class Held:
    """An array in the arena: its bytes, the steps that make it and read it last, and the user's line."""

    array: Array
    nbytes: int
    first: int
    last: int
    where: tuple[str, int] | None


@dataclass(frozen=True)
class MemoryUse:
    """steps: of the program.  bytes: in use at each of them.  peak: where most are.  held: what is in use
    then, the largest first; scratch: bytes that the step's own code uses beside it.
    """

    steps: tuple[Step, ...]
    bytes: tuple[int, ...]
    peak: int
    held: tuple[Held, ...]
    scratch: int


def memory_use(plan: MemoryPlan) -> MemoryUse:
    """What a plan's arena holds.  Arrays that are made in place of one another are bytes that count once."""
    program, (root, _) = plan.program, roots(plan.program)
    steps, end = program.steps, len(program.steps)
    first: dict[Array, int] = {}
    last: dict[Array, int] = {}
    for number, step in enumerate(steps):
        first |= {root[array]: number for array in step.outputs if root[array] is array}
        last |= {root[array]: number for array in (*step.inputs, *step.outputs) if array is not None}
    last |= {root[array]: end for array in program.results}
    kept = [array for array in first if plan.places[array].kind == "arena"]
    used = []
    for number, step in enumerate(steps):
        spans = sorted(
            (plan.places[array].at, plan.places[array].at + array.nbytes)
            for array in kept
            if first[array] <= number <= last[array]
        )
        total = behind = 0
        for low, high in spans:
            total += max(high - max(low, behind), 0)
            behind = max(behind, high)
        used.append(total + _scratch(plan, step))
    peak = max(range(end), key=used.__getitem__, default=0)
    held = [
        Held(array, array.nbytes, first[array], last[array], getattr(steps[first[array]], "where", None))
        for array in kept
        if first[array] <= peak <= last[array]
    ]
    held.sort(key=lambda one: -one.nbytes)
    return MemoryUse(steps, tuple(used), peak, tuple(held), _scratch(plan, steps[peak]) if steps else 0)


def _scratch(plan: MemoryPlan, step: Step) -> int:
    return plan.scratch[step][1] if step in plan.scratch else 0
