"""Collectives of data parallelism and sharding, and the update that follows them."""

from __future__ import annotations

from collections.abc import Sequence

from .collective_costs import all_gather, all_reduce
from .layer_costs import LayerCosts, ModelCosts
from .layer_time import LayerTimer
from .mesh_layout import Group, Layout, Mesh
from .rank_memory import parameters_on_rank
from .stage_cuts import Chunk


def shards_of(layout: Layout, mesh: Mesh) -> tuple[Group, Group]:
    """The ranks that have the same parameters; those that have the same experts."""
    group = layout.group(("cp", "dp"), mesh)
    return group, Group(group.size // layout.ep, max(1, group.per_node // layout.ep))


def _messages(timer: LayerTimer, layer: LayerCosts) -> float:
    return 1 if timer.layout.bucketed else max(layer.tensors, 1)


def sharding(timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk]) -> tuple[float, float]:
    """Seconds of gathering all parameters of a rank, and of scattering their gradients, layer by layer."""
    groups = shards_of(timer.layout, timer.mesh)
    gather = scatter = 0.0
    for layer, count in (run for chunk in chunks for run in chunk):
        for group, held in zip(groups, parameters_on_rank(layer, timer.layout), strict=True):
            if held:
                messages, precision = _messages(timer, layer), costs.precision
                gather += count * all_gather(timer.device, group, held * precision.element, messages)
                scatter += count * all_gather(timer.device, group, held * precision.gradient, messages)
    return gather, scatter


def reduced(
    timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk], there: float, back: float
) -> float:
    """Seconds of a step's collectives on gradients and updated parameters that nothing hides.

    What overlaps goes on beside the last micro-batch's backward, but for the last layer's part.  there, back:
    seconds of a micro-batch's forward and backward, which hide as much.
    """
    layout, groups = timer.layout, shards_of(timer.layout, timer.mesh)
    layers = sum(count for chunk in chunks for _, count in chunk)
    backward, after = 0.0, 0.0
    for layer, count in (run for chunk in chunks for run in chunk):
        for group, held in zip(groups, parameters_on_rank(layer, layout), strict=True):
            if not held:
                continue
            gradients, parameters = held * costs.precision.gradient, held * costs.precision.element
            if layout.zero == 0:
                backward += count * all_reduce(timer.device, group, gradients)
            elif layout.zero == 1:
                backward += count * all_gather(timer.device, group, gradients, _messages(timer, layer))
            if layout.zero in (1, 2):
                after += count * all_gather(timer.device, group, parameters, _messages(timer, layer))
    if not layout.overlap:
        return backward + after
    exposed = max(backward - back, backward / layers)
    return exposed + max(after - there, after / layers)  # the next step's first forward


def _held(chunks: Sequence[Chunk], layout: Layout) -> float:
    """Parameters that a rank updates."""
    shards = layout.dp * layout.cp if layout.zero else 1
    held = 0.0
    for layer, count in (run for chunk in chunks for run in chunk):
        dense, experts = parameters_on_rank(layer, layout)
        held += count * (dense / shards + experts / max(shards / layout.ep if layout.zero else 1, 1))
    return held


def updated(timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk], states: int) -> float:
    """Seconds of the update: gradients read, states and parameters read and written."""
    precision = costs.precision
    each = (
        precision.gradient
        + 2 * (states + precision.master)
        + (1 if precision.master else 2) * precision.element
    )
    return _held(chunks, timer.layout) * each / timer.streaming + timer.device.launch
