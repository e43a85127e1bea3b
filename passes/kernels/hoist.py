"""What loops compute again at each step, computed once before them; and like loops side by side."""

from __future__ import annotations

from dataclasses import replace

from ...ir.kernel.form import Fold, Kernel, Local, Stage, Store
from ...ir.kernel.scalar import Cast, Expr, Op, Read, Ref, ref, walk
from ...ir.kernel.substitute import Substitution
from .word_costs import DIVISION, cost


def hoisted(kernel: Kernel) -> Kernel:
    """The kernel with what loops compute again at each step computed before them.

        out[i, r] = (x[i, r] / sqrt((t / 64.0))) for r:64
        ->
        t1 = sqrt((t / 64.0))
        out[i, r] = (x[i, r] / t1) for r:64

    Only what costs as much as a division is worth a name.
    """
    taken = set(kernel.buffers) | set(kernel.extents) | {n for s in kernel.stages for n in s.defines}
    instead: dict[Expr, Expr] = {}
    stages: list[Stage] = []

    def name() -> str:
        number = next(n for n in range(len(taken) + 1) if f"t{n or ''}" not in taken)
        taken.add(f"t{number or ''}")
        return f"t{number or ''}"

    def is_worth_a_name(expr: Op) -> bool:
        same = kernel.free_axes(expr) <= kernel.parallel_names
        return same and cost(expr) >= DIVISION and kernel.dtype_of(expr) is not None

    def take_out(value: Expr) -> None:
        waiting, seen = [value], set(instead)
        while waiting:
            expr = waiting.pop()
            if expr in seen or not isinstance(expr, (Op, Cast)):
                continue
            seen.add(expr)
            if isinstance(expr, Op) and is_worth_a_name(expr):
                local = Local(name(), (), expr)
                stages.append(local)
                instead[expr] = ref(local.name)
            else:
                waiting += reversed(expr.below)

    for stage in kernel.stages:
        if stage.axes and not isinstance(stage, Fold):
            take_out(stage.value)
            # an index stays as it is: native code checks ahead only what no stage computes
            indices = {e: e for e in walk(stage.value) if isinstance(e, Read)}
            stage = replace(stage, value=Substitution(exprs=indices | instead).expr(stage.value))
        stages.append(stage)
    return kernel.replace(stages=_in_order(kernel, stages)) if instead or len(stages) > 2 else kernel


def _in_order(kernel: Kernel, stages: list[Stage]) -> tuple[Stage, ...]:
    """The stages with loops over the same axes side by side, as far as what they need allows."""
    kernel = kernel.replace(stages=tuple(stages))
    needs = [_needed(kernel, stage) for stage in stages]
    waiting, done, ordered = list(range(len(stages))), set[str](), list[Stage]()

    def rank(n: int) -> tuple[int, int]:
        stage, last = stages[n], ordered[-1] if ordered else None
        together = last is not None and type(stage) is type(last) and stage.axes == last.axes
        if isinstance(stage, Store):
            return (3 if together else 4), n
        return (0 if together and stage.axes else 2 if stage.axes else 1), n

    while waiting:
        chosen = min((n for n in waiting if needs[n] <= done), key=rank)
        waiting.remove(chosen)
        done |= set(stages[chosen].defines)
        ordered.append(stages[chosen])
    return tuple(ordered)


def _needed(kernel: Kernel, stage: Stage) -> set[str]:
    """The stages that must come before one: those it refers to, and those that these need."""
    found = {e.name.removeprefix("right.") for e in walk(*stage.exprs) if isinstance(e, Ref)}
    return found - set(stage.defines)
