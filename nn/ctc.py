"""Connectionist temporal classification."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, DTypeError, ShapeError
from ..ir.ops.alignments import NEVER
from ..runtime import Tensor, ops, tensor
from ..runtime.modes import unheard


def _lengths(call: str, given: Any, most: int, batch: int) -> Tensor:
    """[N].  They are looked at unheard: what is gathered by them is refused by compiled code as well."""
    lengths = given if isinstance(given, Tensor) else tensor(given, dtype=int64)
    if lengths.dtype.category != "int":
        raise DTypeError(f"ctc_loss: {call} must be integers, not {lengths.dtype}")
    lengths = lengths.reshape(-1).to(int64)
    with unheard():
        found = lengths.tolist()
    if len(found) != batch or not all(0 <= n <= most for n in found):
        raise ArgumentValueError(f"ctc_loss: {call} are {batch} numbers from 0 to {most}, not {found}")
    return lengths


def _labels(targets: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """[N, 2 S + 1]: blank, label, blank, label, ..., blank; blanks to the end."""
    if targets.dtype.category != "int":
        raise DTypeError(f"ctc_loss: targets are numbers of classes, ints, not {targets.dtype.name}")
    batch, targets = sizes.shape[0], targets.to(int64)
    if targets.ndim == 2:
        there = ops.arange(targets.shape[1], device=targets.device) < sizes.unsqueeze(1)
    else:
        longest = ops.arange(int(sizes.max()) if batch else 0, device=targets.device)
        there = longest < sizes.unsqueeze(1)
        places = (sizes.cumsum(0) - sizes).unsqueeze(1) + longest
        targets = ops.pad(targets, (0, 1))[ops.where(there, places, targets.shape[0])]
    rows = ops.where(there, targets, blank)
    blanks = ops.full_like(rows, blank)
    return ops.pad(ops.stack([blanks, rows], 2).reshape(batch, 2 * rows.shape[1]), (0, 1), value=blank)


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
    can't be aligned count as 0.  The gradient is that of log-probabilities made by log_softmax.
    Raises ShapeError, ArgumentValueError.
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
    reach = _lengths("input_lengths", input_lengths, steps, batch).to(log_probs.device)
    size = targets.shape[1] if targets.ndim == 2 else targets.shape[0]
    sizes = _lengths("target_lengths", target_lengths, size, batch).to(log_probs.device)
    labels = _labels(targets.to(log_probs.device), sizes, blank)
    width = labels.shape[1]
    # From two places before one may come where that is another label, not across a blank that must be.
    another = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    may_skip = ops.pad(another, (2 - max(0, 2 - width), 0), value=False)
    emitted = log_probs.gather(2, labels.unsqueeze(0).expand(steps, batch, width))
    # Where each sequence ends: after its last label, or the blank behind it.
    if steps:
        at = ops.where(reach == 0, 0, reach - 1).reshape(1, batch, 1).expand(1, batch, width)
        last = ops.ctc_paths(emitted, may_skip.to(emitted.dtype)).gather(0, at).squeeze(0)
    else:
        last = emitted.sum(0)
    ends = ops.stack([2 * sizes, ops.where(sizes == 0, 0, 2 * sizes - 1)], 1)
    real = ops.stack([sizes >= 0, sizes > 0], 1)
    both = ops.where(real, last.gather(1, ends), NEVER)
    losses = -ops.logsumexp(both, 1)
    # To the gradient PyTorch adds e^log_probs, which that of a log_softmax takes away again.  e^60 is more
    # than any probability, and its sums are finite in float32.
    mass = log_probs.clamp(max=60.0).exp().sum(2)
    at = ops.arange(steps, device=mass.device).unsqueeze(1)
    mass = ops.where(at < reach, mass, 0.0).sum(0)
    losses = losses + (mass - mass.detach())
    # Without inputs there is no first row: nothing but no label can come of them.
    losses = ops.where(reach == 0, ops.where(sizes == 0, 0.0, -NEVER), losses)
    losses = ops.where(losses > -NEVER / 2, 0.0 if zero_infinity else float("inf"), losses)
    if reduction == "mean":
        return (losses / sizes.clamp(min=1).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if alone else losses
