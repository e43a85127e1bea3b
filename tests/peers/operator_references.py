"""Who is right where Lamina and PyTorch differ: references that are neither of them.

Of results, the function that an entry of the database holds as its `ref` (NumPy's or SciPy's, run in
float64).  Of a write into out=, what PyTorch's own function returns.  Of gradients, the slopes of PyTorch's
function by differences.  A reference is asked only where the two differ, and speaks for Lamina only where all
of Lamina's numbers lie within tolerance of it and PyTorch's do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from operator_forms import copied, flat

WIDER = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
         torch.complex64: torch.complex128}  # fmt: skip
STEPS = 0.4 / 1.5 ** np.arange(12)  # of differences, in sizes of what is moved
EPS = float(np.finfo(np.float64).eps)
MOST = 100  # elements of a gradient whose slopes are looked at


def of_entry(entry: Any, sample: Any) -> Iterator[list]:
    """The results that the entry's `ref` gives of a sample in float64, if it has one that takes it."""
    if not callable(entry.ref):
        return
    wide = sample.transform(lambda x: x.to(WIDER.get(x.dtype, x.dtype)) if torch.is_tensor(x) else x).numpy()
    try:
        found = entry.ref(wide.input, *wide.args, **wide.kwargs)
    except Exception:  # it takes other arguments than PyTorch's function
        return
    yield flat(found)


def rounded(truth: Any, like: torch.Tensor) -> torch.Tensor | None:
    """A reference's result in the dtype of PyTorch's.

    None where it is none of numbers like PyTorch's: what shape and kind a result has is PyTorch's to say.
    """
    if torch.is_tensor(truth):  # PyTorch's own
        return truth.detach()
    values = torch.as_tensor(np.asarray(truth))
    kinds = [x.is_complex() + 2 * x.is_floating_point() for x in (values, like)]
    return values.to(like.dtype) if values.shape == like.shape and kinds[0] == kinds[1] > 0 else None


def slope(around: Callable[[float], tuple[float, float, float]], steps: np.ndarray) -> tuple[float, float]:
    """The derivative by steps that shrink by one factor, and how far that is from certain: inf at a kink.

    around: f(h) - f(-h), f(h) - 2 f(0) + f(-h), and what the former may be off by rounding.
    Source: Ridders, Accurate computation of F'(x) and F'(x) F''(x), 1982.
    """
    shrink = (steps[0] / steps[1]) ** 2
    best, error, column, turns = np.nan, np.inf, [], []
    for h in steps:
        rise, bend, rounding = around(h)
        turns.append(bend / h)
        row = [rise / (2 * h)]
        for k, before in enumerate(column):
            row.append(row[k] + (row[k] - before) / (shrink ** (k + 1) - 1))
            doubt = max(abs(row[-1] - row[k]), abs(row[-1] - before)) + rounding / h
            if doubt < error:
                best, error = row[-1], doubt
        column = row
    # How much steeper it is on the right: of a smooth function that shrinks with h, so that nothing is left.
    factor = steps[-2] / steps[-1]
    turn = (factor * turns[-1] - turns[-2]) / (factor - 1)
    return best, error if abs(turn) <= 1e-4 * max(abs(best), 1.0) else np.inf


def slopes_decide(
    call: Callable[[Any], list],
    arguments: Any,
    place: int,
    weights: dict[int, np.ndarray],
    sides: tuple[np.ndarray, np.ndarray],
    where: np.ndarray,
    limit: float,
) -> bool:
    """Whether the slopes of a function of PyTorch's are Lamina's gradient and not PyTorch's.

    place: which of the arguments' tensors that want gradients it is.  weights: the cotangents, by the place
    of the result.  sides: the two gradients, complex ones as pairs.  where: the elements at which they differ
    by more than `limit`.  At each of them Lamina's must be the slope, and at one PyTorch's surely not be it.
    Where differences don't settle to eight digits, as at kinks, nothing is decided.
    """
    refuted = False
    spots = np.argwhere(where)
    if len(spots) > MOST:
        spots = spots[np.random.default_rng(0).choice(len(spots), MOST, replace=False)]
    for spot in map(tuple, spots):
        size = abs(float(_moved(arguments, place, spot, 0.0)[1]))

        def around(h: float, spot: tuple = spot) -> tuple[float, float, float]:
            ends = [call(_moved(arguments, place, spot, step)[0]) for step in (h, 0.0, -h)]
            high, middle, low = ([y.detach().numpy() for y in end] for end in ends)
            rise = bend = rounding = 0.0
            for n, w in weights.items():
                rise += float(np.vdot(w, high[n] - low[n]).real)
                bend += float(np.vdot(w, (high[n] - middle[n]) - (middle[n] - low[n])).real)
                rounding += EPS * float(np.abs(w * high[n])[high[n] != low[n]].sum())
            return rise, bend, rounding

        with np.errstate(all="ignore"):
            found, doubt = slope(around, STEPS * max(size, 0.1))
        mine, theirs = (abs(float(side[spot]) - found) for side in sides)
        if not (mine <= limit + doubt and doubt <= 1e-8 * max(abs(found), 1.0)):
            return False
        refuted = refuted or theirs > limit + 8 * doubt
    return refuted


def _moved(arguments: Any, place: int, spot: tuple, step: float) -> tuple[Any, float]:
    """The arguments with a real number of one of them moved, and that number as it was."""
    made = copied(arguments)
    moved = [x for x in flat(made) if isinstance(x, torch.Tensor) and x.requires_grad][place].detach()
    reals = torch.view_as_real(moved) if moved.is_complex() else moved
    before = float(reals[spot])
    reals[spot] = before + step
    return made, before
