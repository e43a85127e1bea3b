"""Memory that holds garbage until it is written, so that what is read too early, or never written, shows.

Memory that was freed often holds the right values still, of the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir.kernel.interpret import interpret as interpret_kernel
from ..ir.kernel.types import NUMPY
from ..passes.programs.memory_plan import MemoryPlan, Place, declared
from ..passes.programs.program import Alias, Call, Host, Repeat, run_host, run_repeat
from ..runtime import memory
from ..runtime.native import Executable

GARBAGE = 0x7F  # in every byte: 3.4e38 in a float32, a NaN in a half


class Garbage(Executable):
    """An executable whose results and scratch memory hold garbage at first."""

    def _load(self, manifest, constants, objects, target, threads, arena=None, library=None) -> None:
        super()._load(manifest, constants, objects, target, threads, _arena, library)
        self._fresh: list[tuple[Callable[..., Any], tuple[int, ...], np.dtype]] = [
            (_array, shape, dtype) for _, shape, dtype in self._fresh
        ]


def _arena(nbytes: int) -> np.ndarray:
    made = memory.arena(nbytes)
    made[:] = GARBAGE
    return made


def _array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    made = memory.maker(shape, dtype)(shape, dtype)
    made.reshape(-1).view(np.uint8)[:] = GARBAGE
    return made


def planned(plan: MemoryPlan, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of a memory plan carried out by the interpreter: kernels by their text, on the bytes that
    the plan gives them.  Params that are overwritten are written.
    """
    program = plan.program
    places: dict[tuple[str, int], np.ndarray] = {("arena", 0): np.full(plan.arena, GARBAGE, np.uint8)}
    for n, array in enumerate(arrays):
        places["param", n] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for n, data in enumerate(program.constants.values()):
        places["constant", n] = np.array(data).reshape(-1).view(np.uint8)
    for n, result in enumerate(program.results):
        places["result", n] = np.full(result.nbytes, GARBAGE, np.uint8)

    def bytes_at(place: Place, count: int) -> np.ndarray:
        held = places[("arena", 0) if place.kind == "arena" else (place.kind, place.at)]
        return held[place.start : place.start + count]

    def read(place: Place, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        count = prod(shape) * NUMPY[dtype].itemsize
        return bytes_at(place, count).copy().view(NUMPY[dtype]).reshape(shape)

    def move(number: int) -> None:
        for m in plan.moves.get(number, ()):
            bytes_at(m.target, m.nbytes)[:] = bytes_at(m.source, m.nbytes).copy()

    for number, step in enumerate(program.steps):
        move(number)
        if isinstance(step, Alias):
            continue
        inputs, outputs = plan.arguments(step)
        own = dict(declared(step.kernel)) if isinstance(step, Call) else dict.fromkeys(range(len(outputs)))
        for n, (array, place) in enumerate(zip(step.outputs, outputs, strict=True)):
            if n not in own:  # written before all is read
                bytes_at(place, array.nbytes)[:] = GARBAGE
        given = [
            None if a is None or at is None else read(at, a.dtype, a.shape)
            for a, at in zip(step.inputs, inputs, strict=True)
        ]
        if isinstance(step, Host):
            made: Sequence[np.ndarray] = run_host(step, given)
        elif isinstance(step, Repeat):
            body = plan.bodies[step]
            made = run_repeat(step, given, lambda _, *arrays, plan=body: planned(plan, arrays))
        else:
            if step in plan.scratch:
                place, count = plan.scratch[step]
                bytes_at(place, count)[:] = GARBAGE
            made = interpret_kernel(step.kernel, *given)
        for array, place, data in zip(step.outputs, outputs, made, strict=True):
            bytes_at(place, array.nbytes)[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    move(len(program.steps))
    return tuple(
        read(Place("result", n) if at is None else Place("param", at), r.dtype, r.shape)
        for n, (r, at) in enumerate(zip(program.results, program.into, strict=True))
    )
