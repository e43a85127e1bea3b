"""Connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentValueError, DTypeError, ShapeError
from ..runtime import Tensor, as_tensor, ops

# Stands for log(0): its exponential is 0 in every dtype with float32's range, and unlike -inf its differences
# are numbers, so that no gradient is a NaN.
NEVER = -1e30


def _lengths(call: str, given: Any, most: int, batch: int) -> np.ndarray:
    found = np.array(given.tolist() if isinstance(given, Tensor) else given, np.int64).reshape(-1)
    if len(found) != batch or found.min(initial=0) < 0 or found.max(initial=0) > most:
        raise ArgumentValueError(
            f"ctc_loss: {call} are {batch} numbers from 0 to {most}, not {found.tolist()}"
        )
    return found


def _labels(targets: Tensor, lengths: np.ndarray, blank: int) -> np.ndarray:
    """[N, 2 S + 1]: blank, label, blank, label, ..., blank; blanks to the end."""
    if targets.dtype.category != "int":
        raise DTypeError(f"ctc_loss: targets are numbers of classes, ints, not {targets.dtype.name}")
    batch, longest = len(lengths), int(lengths.max(initial=0))
    flat = np.array(targets.tolist(), np.int64)
    found = np.full((batch, 2 * longest + 1), blank, np.int64)
    at = 0
    for n, length in enumerate(lengths):
        row = flat[n] if flat.ndim == 2 else flat[at : at + length]
        found[n, 1 : 2 * length : 2] = row[:length]
        at += length
    return found


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of label sequences, summed over all ways to align them with the inputs.

    Shapes: log_probs [T, N, C], targets [N, S] or all in one row, lengths [N] -> [], or [N] unreduced;
    without N: [T, C], [S], [].  "mean" divides by the targets' lengths first.  zero_infinity: targets that
    can't be aligned count as 0.  Raises ShapeError, ArgumentValueError.
    Source: Graves et al. 2006, eq. 6 to 8.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentValueError(f"ctc_loss: reduction must be 'none', 'mean' or 'sum', not {reduction!r}")
    alone = log_probs.ndim == 2
    if alone:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    if log_probs.ndim != 3:
        raise ShapeError("ctc_loss: log_probs is [T, N, C] or [T, C]", f"log_probs: {log_probs._meta}")
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ArgumentValueError(f"ctc_loss: blank must be one of the {classes} classes, not {blank}")
    reach = _lengths("input_lengths", input_lengths, steps, batch)
    size = targets.shape[1] if targets.ndim == 2 else targets.shape[0]
    sizes = _lengths("target_lengths", target_lengths, size, batch)
    labels = _labels(targets, sizes, blank)
    width = labels.shape[1]
    # From two places before one may come where that is another label, not across a blank that must be.
    skips = np.zeros((batch, width), bool)
    skips[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    may_skip = as_tensor(skips)
    emitted = log_probs.gather(2, as_tensor(labels).unsqueeze(0).expand(steps, batch, width))
    start = as_tensor(np.arange(width)[None] < 2)
    alpha = ops.where(start, emitted[0], NEVER) if steps else emitted.sum(0)
    rows = [alpha]
    for t in range(1, steps):
        one = ops.pad(alpha, (1, 0), value=NEVER)[:, :width]
        two = ops.where(may_skip, ops.pad(alpha, (2, 0), value=NEVER)[:, :width], NEVER)
        alpha = ops.logsumexp(ops.stack([alpha, one, two]), 0) + emitted[t]
        rows.append(alpha)
    # Where each sequence ends: after its last label, or the blank behind it.
    every, pick = ops.stack(rows), np.arange(batch)
    last = every[as_tensor(np.maximum(reach - 1, 0)), as_tensor(pick)]
    ends = np.stack([2 * sizes, np.maximum(2 * sizes - 1, 0)], 1)
    both = last.gather(1, as_tensor(ends))
    both = ops.where(as_tensor(np.stack([sizes >= 0, sizes > 0], 1)), both, NEVER)
    losses = -ops.logsumexp(both, 1)
    losses = ops.where(losses > -NEVER / 2, 0.0 if zero_infinity else float("inf"), losses)
    if reduction == "mean":
        return (losses / as_tensor(np.maximum(sizes, 1)).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if alone else losses
