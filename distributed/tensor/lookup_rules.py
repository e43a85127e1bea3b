"""Embeddings, cross entropy and dropout: what looks at places in the whole."""

from __future__ import annotations

from typing import Any

from ...ir.op import REGISTRY
from ...runtime import Tensor, no_grad, ops
from ...runtime.dispatch import run_general
from ..collectives import broadcast
from ..device_mesh import DeviceMesh
from .dtensor import DTensor, dtensor_of
from .parts import coordinate, local_offset, part_along
from .placement_types import Placement, Placements, Replicate, Shard
from .redistribution import narrowed
from .strategies import INSTEAD, Call, Family, P, R, Way, enter


# ---- embeddings
def _embedding(call: Call) -> list[Way]:
    """Places apart; or features apart; or rows apart, where each rank has zeros for those of others."""
    ndim = len(call.shapes[0] or ())
    found: list[Way] = [((Shard(d), R), (Shard(d),)) for d in range(ndim)]
    return [*found, ((R, Shard(1)), (Shard(ndim),)), ((R, Shard(0)), (P,))]


def _embedded(call: Call, locals_: tuple, attrs: dict[str, Any]) -> Any:
    places, weight = locals_
    cut = call.ins[1] or ()
    if not any(isinstance(p, Shard) and p.dim == 0 for p in cut):
        return run_general(call.op, locals_, attrs)
    rows = (call.shapes[1] or ())[0]
    begin, count = part_along(rows, 0, call.mesh, cut, coordinate(call.mesh))
    padding = attrs["padding_idx"]
    here = None if padding is None or not begin <= padding < begin + count else padding - begin
    outside = ops.logical_or(places < begin, places >= begin + count)
    if not count:  # nothing to look up in, but the same history
        nothing = ops.zeros((*places.shape, weight.shape[1]), dtype=weight.dtype)
        return nothing + weight.sum()
    within = ops.masked_fill(places - begin, outside, 0)
    found = run_general(call.op, (within, weight), {"padding_idx": here})
    return ops.masked_fill(found, outside.unsqueeze(-1), 0)


enter(Family(_embedding, run=_embedded), "embedding")


# ---- cross entropy
def _cross_entropy(call: Call) -> list[Way]:
    """Examples apart; their sum is then partial."""
    scores, targets = call.shapes[0] or (), call.shapes[1] or ()
    if call.attrs["reduction"] == "mean":
        return []
    classes = 1 if len(scores) > 1 else 0
    weight = None if call.operands[2] is None else R
    found: list[Way] = []
    for d in range(len(scores)):
        if d == classes:
            continue
        at = d if len(targets) == len(scores) else d - (d > classes)
        out: Placement = Shard(d - (d > classes)) if call.attrs["reduction"] == "none" else P
        found.append(((Shard(d), Shard(at), weight), (out,)))
    return found


def _mean_of_examples(input: Tensor, target: Tensor, weight: Any = None, **attrs: Any) -> Any:
    """The mean of a cross entropy as a sum over examples, divided by how many count."""
    every = (input, target) if weight is None else (input, target, weight)
    if attrs["reduction"] != "mean" or weight is not None or not all(isinstance(x, DTensor) for x in every):
        return NotImplemented
    assert isinstance(input, DTensor) and isinstance(target, DTensor)
    if all(isinstance(p, Replicate) for p in (*input._placements, *target._placements)):
        return NotImplemented
    op = REGISTRY["softmax_cross_entropy"]
    total = run_general(op, (input, target, None), {**attrs, "reduction": "sum"})
    if target.dtype.inexact:
        classes = 1 if input.ndim > 1 else 0
        return total / max(input._meta.size // max(input._meta.shape[classes], 1), 1)
    return total / (target != attrs["ignore_index"]).sum()


enter(Family(_cross_entropy), "softmax_cross_entropy")
INSTEAD["softmax_cross_entropy"] = _mean_of_examples


# ---- dropout
def agreed_state(state: Tensor, mesh: DeviceMesh) -> Tensor:
    """The state of a generator that the mesh's first rank has: so that all draw the same numbers."""
    with no_grad():
        found = state.detach().clone()
        for m in range(mesh.ndim):
            if mesh.shape[m] > 1:
                group = mesh.get_group(m)
                broadcast(found, group.ranks[0], group)
    return found


def part_of(whole: Tensor, mesh: DeviceMesh, places: Placements) -> Tensor:
    """What this rank has of a tensor that it has whole."""
    at = local_offset(whole.shape, mesh, places)
    for d, begin in enumerate(at):
        length = part_along(whole.shape[d], d, mesh, places, coordinate(mesh))[1]
        whole = narrowed(whole, d, begin, length)
    return whole


def _dropout(input: DTensor, state: Tensor, p: float) -> Any:
    """The same elements are dropped as of the whole in one process."""
    if isinstance(state, DTensor):
        return NotImplemented
    places = tuple([q if isinstance(q, Shard) else R for q in input._placements])
    mesh = input._mesh
    ones = ops.ones(input._meta.shape, dtype=input.dtype)
    with no_grad():
        kept = run_general(REGISTRY["random_dropout"], (ones, agreed_state(state, mesh)), {"p": p})
        kept = kept[0] if isinstance(kept, tuple) else kept
        mine = part_of(kept, mesh, places).clone()
    return input * dtensor_of(mine, input._meta.shape, mesh, places)


INSTEAD["random_dropout"] = _dropout
