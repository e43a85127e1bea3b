"""What a repeated program computes of what is the same at each run is computed once, before it.

    program net(%x: f32[9,4,2], %h: f32[4], %w: f32[3,8]) -> (%y) {
      %y: f32[9,4] = repeat.step(%x, %h, %w)          step: %p = pack(%w), then what reads %p
    }
    ->
    program net(%x: f32[9,4,2], %h: f32[4], %w: f32[3,8]) -> (%y) {
      %p: f32[8,3] = pack(%w)
      %y: f32[9,4] = repeat.step(%x, %h, %w, %p)
    }

That is what `prologue` splits off, with what repeats in the place of the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..graphs.dce import leading_to
from .program import Array, Program, Repeat, Step
from .prologue import prologue


def within(program: Program, change: Callable[[Repeat], Program]) -> Program:
    """The program with other bodies for what repeats, and what they need not do at each run before it.

    change: gives a body for the one of a step; its first params are those that were.
    """
    if not program.repeats:
        return program
    steps: list[Step] = []
    constants = dict(program.constants)
    for step in program.steps:
        if isinstance(step, Repeat):
            step = _without_constants(replace(step, body=change(step)), constants)
            same = frozenset(range(step.states.stop, len(step.inputs)))
            first, body = prologue(step.body, same, of_one_call=True)
            before, made = _in_place(first, step.inputs[step.states.stop :])
            steps += before
            step = replace(
                step,
                body=body.replace(steps=leading_to(body.steps, body.results)),
                inputs=(*step.inputs, *made),
            )
            step = _needed(step)
        steps.append(step)
    return program.replace(steps=tuple(steps), constants=constants)


def _without_constants(step: Repeat, constants: dict[Array, np.ndarray]) -> Repeat:
    """The step with the constants of its body among those of the program."""
    own = step.body.constants
    constants |= own
    body = step.body.replace(params=(*step.body.params, *own), constants={})
    return replace(step, body=body, inputs=(*step.inputs, *own))


def _in_place(program: Program, arrays: tuple[Array, ...]) -> tuple[list[Step], list[Array]]:
    """The steps of a program on these arrays, and its results."""
    became: dict[Any, Any] = dict(zip(program.params, arrays, strict=True))
    steps: list[Step] = [
        replace(step, inputs=tuple([became.get(array, array) for array in step.inputs]))
        for step in program.steps
    ]
    return steps, [became.get(array, array) for array in program.results]


def _needed(step: Repeat) -> Repeat:
    """The step without operands, behind the states, that its body does not read."""
    read = {array for one in step.body.steps for array in one.inputs} | {*step.body.results}
    kept = [n for n, p in enumerate(step.body.params) if n < step.states.stop or p in read]
    body = step.body.replace(params=tuple(step.body.params[n] for n in kept))
    return replace(step, body=body, inputs=tuple(step.inputs[n] for n in kept))
