"""Cross entropy of scores that are cut along the classes: what each rank sends is a number per example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ....ir.errors import ArgumentValueError
from ....runtime import Tensor, ops
from .. import strategies
from ..dtensor import DTensor, dtensor_of
from ..parts import coordinate, part_along
from ..placement_types import Partial, Replicate, Shard

_on: ContextVar[bool] = ContextVar("loss_parallel", default=False)


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Compute `cross_entropy` of DTensors that are cut along the classes without gathering them, inside.

    Such scores come of a `ColwiseParallel(use_local_output=False)` as the last layer.
    """
    before = _on.set(True)
    try:
        yield
    finally:
        _on.reset(before)


def _cross_entropy(input: Tensor, target: Tensor, weight: Any = None, **attrs: Any) -> Any:
    """In parts, where asked for; otherwise what was entered before."""
    classes = 1 if input.ndim > 1 else 0
    cut = isinstance(input, DTensor) and any(p == Shard(classes) for p in input._placements)
    if not _on.get() or not cut or target.dtype.inexact:
        return _gathered(input, target, weight, **attrs)
    assert isinstance(input, DTensor)
    if weight is not None:
        raise ArgumentValueError(
            "cross_entropy(weight) inside of loss_parallel(): weights of classes are not built",
            f"input: {input.shown()}",
            "leave loss_parallel() out",
        )
    if not isinstance(target, DTensor):
        whole = tuple([Replicate()] * input._mesh.ndim)
        target = dtensor_of(target, target.shape, input._mesh, whole)
    ignored = target == attrs["ignore_index"]
    safe = ops.masked_fill(target, ignored, 0)
    most = input.detach().amax(classes, keepdim=True)
    shifted = input - most
    rest = shifted.exp().sum(classes).log()
    loss = rest - _picked(shifted, safe, classes)
    smooth = attrs["label_smoothing"]
    if smooth:
        loss = loss * (1 - smooth) + (rest - shifted.mean(classes)) * smooth
    loss = ops.masked_fill(loss, ignored, 0)
    if attrs["reduction"] == "none":
        return loss
    total = loss.sum()
    return total if attrs["reduction"] == "sum" else total / ops.logical_not(ignored).sum()


def _picked(x: DTensor, target: DTensor, classes: int) -> DTensor:
    """The score of each example's class, which one rank has: of others' zeros, a partial sum."""
    mesh = x._mesh
    rest = [p if isinstance(p, Shard) and p.dim != classes else None for p in x._placements]
    places = tuple([Replicate() if p is None else Shard(p.dim - (p.dim > classes)) for p in rest])
    there = target.placed(places)._stored
    x = x.placed(tuple([Replicate() if isinstance(p, Partial) else p for p in x._placements]))
    begin, count = part_along(x._meta.shape[classes], classes, mesh, x._placements, coordinate(mesh))
    outside = ops.logical_or(there < begin, there >= begin + count)
    after = tuple(
        [Partial() if p == Shard(classes) else q for p, q in zip(x._placements, places, strict=True)]
    )
    shape = target._meta.shape
    if not count:  # nothing to pick of, but the same history
        nothing = ops.zeros(there.shape, dtype=x.dtype) + x._stored.sum()
        return dtensor_of(nothing, shape, mesh, after)
    within = ops.masked_fill(there - begin, outside, 0).unsqueeze(classes)
    found = ops.masked_fill(x._stored.gather(classes, within).squeeze(classes), outside, 0)
    return dtensor_of(found, shape, mesh, after)


_gathered = strategies.INSTEAD["softmax_cross_entropy"]
strategies.INSTEAD["softmax_cross_entropy"] = _cross_entropy
