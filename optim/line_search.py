"""The line search of LBFGS: a step along a direction that fulfils the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

DECREASE, CURVATURE = 1e-4, 0.9  # c1 and c2 of the conditions
SHORTEST = 1e-9  # a bracket that moves no element by more is not divided further
MOST = 25  # evaluations after the first


class Point(NamedTuple):
    """A step, the loss and the gradient there, and the slope of the loss along the direction."""

    step: float
    loss: float
    gradient: Any
    slope: float


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes is least, within [low, high]; else the middle.

    Source: Nocedal and Wright, Numerical optimization, 2006, equation 3.59.
    """
    a, b = (a, b) if a.step <= b.step else (b, a)
    bend = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    squared = bend * bend - a.slope * b.slope
    if not squared >= 0:
        return (low + high) / 2
    root = math.sqrt(squared)
    least = b.step - (b.step - a.step) * ((b.slope + root - bend) / (b.slope - a.slope + 2 * root))
    return min(max(least, low), high)


def strong_wolfe(
    at: Callable[[float], Point], start: Point, step: float, longest: float
) -> tuple[Point, int]:
    """The point that the search ends at, and how many were evaluated.

    at: the point of a step.  start: that of step 0.  step: the first to be tried.  longest: the greatest
    element of the direction.  Source: Nocedal and Wright, 2006, algorithms 3.5 and 3.6; the safeguards are
    those of Schmidt's minFunc, 2005.
    """

    def too_high(p: Point) -> bool:
        return p.loss > start.loss + DECREASE * p.step * start.slope

    def flat_enough(p: Point) -> bool:
        return abs(p.slope) <= -CURVATURE * start.slope

    # Longer steps, until two have a good one between them.
    before, new, tried = start, at(step), 0
    low = high = new
    while tried < MOST:
        if (
            too_high(new)
            or (tried > 1 and new.loss >= before.loss)
            or (not flat_enough(new) and new.slope >= 0)
        ):
            low, high = before, new
            break
        if flat_enough(new):
            return new, tried + 1
        shortest = new.step + 0.01 * (new.step - before.step)
        step = cubic_minimum(before, new, shortest, new.step * 10)
        before, new, tried = new, at(step), tried + 1
    else:
        low, high = start, new
    if not low.loss <= high.loss:
        low, high = high, low

    # The two closer together.
    stuck = False
    while tried < MOST and not abs(high.step - low.step) * longest < SHORTEST:
        left, right = sorted((low.step, high.step))
        step = cubic_minimum(low, high, left, right)
        margin = 0.1 * (right - left)
        near = min(right - step, step - left) < margin
        if near and (stuck or step >= right or step <= left):
            step = right - margin if abs(step - right) < abs(step - left) else left + margin
            stuck = False
        else:
            stuck = near
        new, tried = at(step), tried + 1
        if too_high(new) or new.loss >= low.loss:
            high = new
            if not low.loss <= high.loss:
                low, high = high, low
            continue
        if flat_enough(new):
            return new, tried + 1
        if new.slope * (high.step - low.step) >= 0:
            high = low
        low = new
    return low, tried + 1
