"""Split off what a program computes of frozen params (weights) alone: it need not run at every call.

    program net(%x: f32[4,8], %w: f32[3,8]) -> (%y) {
      %p: f32[8,3] = pack(%w)
      %y: f32[4,3] = matmul(%x, %p)
    }
    ->
    program net_prologue(%w: f32[3,8]) -> (%p) {
      %p: f32[8,3] = pack(%w)
    }
    program net(%x: f32[4,8], %w: f32[3,8], %p: f32[8,3]) -> (%y) {
      %y: f32[4,3] = matmul(%x, %p)
    }

Packed and relaid weights, folded batch norms and Winograd transforms are ordinary calls, so this is a plain
split by dataflow.  What costs more to read back than to do again stays: copies that only repeat elements,
other shapes of the same elements, and what says so itself (`Again`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ir.dims import Dim
from ...ir.errors import GraphError
from ...ir.kernel.form import Kernel, Store
from ...ir.kernel.scalar import Cast, Const, Expr, Read
from ...ir.op import Traits
from ..graphs.dce import leading_to
from ..schedules.steps import Again
from .program import Alias, Array, Call, Host, Program, Step


def prologue(program: Program, frozen: frozenset[int], of_one_call: bool = False) -> tuple[Program, Program]:
    """(what depends on frozen params and constants alone, the rest).

    frozen: positions of params.  of_one_call: whether sizes stay as they are for as long as what the first
    gives is used.  The first takes these, in order; its results are further params of the
    second, behind those it had.  Raises GraphError for a frozen param that the program overwrites.
    """
    for at in program.into:
        if at in frozen:
            raise GraphError(
                f"prologue: a param that {program.name} overwrites is not frozen", f"{program.params[at]}"
            )
    weights = tuple(program.params[i] for i in sorted(frozen))
    fixed: set[Array] = {*weights, *program.constants}
    early = []
    read = {array for step in program.steps for array in step.inputs}.union(program.results)
    for step in program.steps:
        if read.isdisjoint(step.outputs):
            continue  # it runs for what it refuses
        if movable(step, of_one_call) and all(array in fixed for array in step.inputs):
            early.append(step)
            fixed.update(step.outputs)
    kept = {step for step in program.steps if fixed.isdisjoint(step.outputs)}
    # Backwards, as a cheap step that stays reads what the one before it gives.
    wanted = {array for step in kept for array in step.inputs} | {*program.results}
    for step in reversed(early):
        if cheap_again(step) and not wanted.isdisjoint(step.outputs):
            kept.add(step)
            wanted.update(step.inputs)
    again = {array for step in kept for array in step.outputs}
    handed = tuple(a for step in early for a in step.outputs if a in wanted and a not in again)
    first, rest = leading_to(early, handed), tuple(step for step in program.steps if step in kept)
    return (
        Program(f"{program.name}_prologue", weights, first, handed, _constants(program, first, ())),
        program.replace(
            params=(*program.params, *handed),
            steps=rest,
            constants=_constants(program, rest, program.results),
        ),
    )


def movable(step: Step, of_one_call: bool = False) -> bool:
    """Whether a step may run earlier, and once for many calls: it is of the same size at the next."""
    if isinstance(step, Host) and _stays(step.op.traits):
        return False
    if of_one_call:
        return True
    if isinstance(step, Call) and step.kernel.symbols:
        return False
    return not any(isinstance(n, Dim) for array in step.outputs for n in array.shape)


def _stays(traits: Traits) -> bool:
    """Whether each call runs the op: it draws, depends on values, or meets processes that call it too."""
    return traits.random or traits.host or traits.meets


def cheap_again(step: Step) -> bool:
    """Whether to read what a step gives costs as much: a view, a filling, a copy that repeats elements."""
    if isinstance(step, Call):
        says_so = step.how is not None and step.how.has(Again)
        return not step.inputs or says_so or _repeats(step.kernel)
    return isinstance(step, Alias)


def _repeats(kernel: Kernel) -> bool:
    """Whether each store only copies, and elements of what is read stand at several places of the result.

    Padding, which copies each element once, is not among these: a weight with padded channels is larger too,
    and worth keeping.
    """
    for stage in kernel.stages:
        if not isinstance(stage, Store) or stage.combine or not _copies(stage.value):
            return False
        read = kernel.free_axes(stage.value)
        others = (axis.extent for axis in (*kernel.parallel, *stage.axes) if axis.name not in read)
        if all(not isinstance(n, Dim) and n == 1 for n in others):
            return False
    return True


def _copies(value: Expr) -> bool:
    """Whether a value is an element as it was read, a number, or either in another dtype."""
    if isinstance(value, (Read, Cast)):
        return all(_copies(part) for part in value.below)
    return isinstance(value, Const)


def _constants(program: Program, steps: Iterable[Step], results: Iterable[Array]) -> dict[Array, np.ndarray]:
    """Those of the program's constants that these steps read, or that are results."""
    used = {array for step in steps for array in step.inputs} | {*results}
    return {array: data for array, data in program.constants.items() if array in used}
