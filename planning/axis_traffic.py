"""What a rank sends in a step along each axis of a layout, and by which links."""

from __future__ import annotations

from collections.abc import Sequence

from .collective_costs import sent_by_all_reduce, sent_by_gather
from .layer_costs import ModelCosts
from .layer_time import LayerTimer
from .mesh_layout import Layout, Mesh
from .rank_memory import parameters_on_rank
from .shard_collectives import shards_of
from .stage_cuts import Chunk
from .stage_time import boundary


def sent_by_axis(
    timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk], micro_batches: int
) -> dict[str, float]:
    """Bytes that a rank sends in a step, by axis."""
    layout, groups = timer.layout, shards_of(timer.layout, timer.mesh)
    sent = dict.fromkeys(("tp", "cp", "ep", "pp", "dp"), 0.0)
    for layer, count in (run for chunk in chunks for run in chunk):
        for axis, nbytes in zip(("tp", "cp", "ep"), timer.sent(layer), strict=True):
            sent[axis] += count * micro_batches * nbytes
        for group, held in zip(groups, parameters_on_rank(layer, layout), strict=True):
            gradients = held * costs.precision.gradient
            gather = sent_by_gather(group, held * costs.precision.element)
            scatter = sent_by_gather(group, gradients)
            each = (
                sent_by_all_reduce(group, gradients),
                scatter + gather,
                micro_batches * scatter + gather,
                micro_batches * (scatter + 2 * gather),
            )
            sent["dp"] += count * each[layout.zero]
    if layout.pp > 1:
        sent["pp"] = 2 * micro_batches * layout.chunks * boundary(layout, costs)
    return {axis: nbytes for axis, nbytes in sent.items() if nbytes}


def links_of(layout: Layout, mesh: Mesh) -> dict[str, str]:
    """By axis: whether its ranks are in one node."""
    groups = {axis: layout.group((axis,), mesh) for axis in ("tp", "cp", "pp", "dp")}
    groups["ep"] = layout.experts_group(mesh)
    return {
        axis: "within a node" if group.nodes == 1 else f"{group.per_node} in a node, {group.nodes} nodes"
        for axis, group in groups.items()
        if group.size > 1
    }
