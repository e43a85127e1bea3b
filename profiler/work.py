"""What ops and kernels have to compute and to move, read off their kernels.

Each arithmetic word on floating-point numbers is one operation; comparisons, choices and moves are none.  A
sum of n products is 2 n then; a convolution takes what its definition does, however it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..ir.errors import LaminaError
from ..ir.graph import Builder
from ..ir.kernel.form import Kernel, Reduce
from ..ir.kernel.scalar import Op as Word
from ..ir.kernel.scalar import walk
from ..ir.kernel.types import is_floating
from ..ir.op import Op
from ..ir.types import Type
from ..passes.kernels.product import products
from ..passes.pipeline import Options, optimise, to_program
from ..passes.programs.program import Call, Program, Repeat
from ..passes.schedules.cost import traffic
from ..passes.triton.target import ANY

NONE = frozenset(("select", "max", "min", "abs", "neg", "copysign"))  # words that compute nothing
REMEMBERED = 4096  # ops on operands of certain types
PLAIN = Options(fold_norms=False, winograd=False, fuse=False, layouts=False)


class Work(NamedTuple):
    """Operations on floating-point numbers, and the bytes of all arrays read or written, each once."""

    flops: int
    nbytes: int


NOTHING = Work(0, 0)


def work_of_kernel(kernel: Kernel) -> Work:
    """What a kernel of known extents has to do.  Of sums whose index divides, what is 0 is no work."""
    points, flops = prod(int(axis.extent) for axis in kernel.parallel), 0
    passed = {product.stage: product.passed for product in products(kernel)}
    for stage in kernel.stages:
        inner = prod(int(axis.extent) for axis in stage.axes)
        words = [e for e in set(walk(*stage.exprs)) if isinstance(e, Word)]
        each = sum(_counts(kernel, e) for e in words)
        if isinstance(stage, Reduce) and _is_floating(kernel, stage.value) and stage.combine not in NONE:
            each += 1
        flops += points * inner * each // (passed.get(stage, 1) if isinstance(stage, Reduce) else 1)
    return Work(flops, int(sum(traffic(kernel))))


def _counts(kernel: Kernel, e: Word) -> bool:
    return e.name not in NONE and _is_floating(kernel, e)


def _is_floating(kernel: Kernel, e: Any) -> bool:
    dtype = kernel.dtype_of(e)
    return dtype is not None and is_floating(dtype)


def work_of_step(step: Call | Repeat) -> Work:
    """What a kernel, or all runs of a loop, have to do."""
    if isinstance(step, Call):
        return work_of_kernel(step.kernel)
    each = _work_of_program(step.body)
    return Work(int(step.count) * each.flops, int(step.count) * each.nbytes)


def _work_of_program(program: Program) -> Work:
    works = [work_of_step(step) for step in (*program.calls, *program.repeats)]
    return Work(sum(w.flops for w in works), sum(w.nbytes for w in works))


def work_of_op(op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any]) -> Work:
    """What an op has to do for operands of these types; nothing where it has no kernels, as for views."""
    key = op, tuple(types), repr(attrs)  # repr tells 1 from 1.0 and True
    if key not in _known:
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[key] = _work_of_op(op, types, attrs)
    return _known[key]


def _work_of_op(op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any]) -> Work:
    if op.traits.view or op.traits.host or not types:
        return NOTHING
    try:
        with Builder(op.name) as b:
            operands = [None if t is None else b.param(t) for t in types]
            made = b.emit(op, operands, dict(attrs))
            graph = optimise(b.finish(list(made.outputs)), PLAIN)
        program = to_program(graph, (None,) * len(graph.results), ANY, PLAIN)
    except LaminaError:  # what runs in NumPy alone, or on types that kernels don't have
        return NOTHING
    return _work_of_program(program)


_known: dict[tuple, Work] = {}
