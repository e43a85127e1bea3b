"""What a rank has to hold, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .layer_costs import LayerCosts, ModelCosts
from .mesh_layout import Layout
from .pipeline_schedule import in_flight
from .stage_cuts import Chunk


class RankMemory(NamedTuple):
    """Bytes.  optimizer: states, and the float32 copy of parameters in halves.  activations: saved for
    backward by all micro-batches that are under way.  workspace: what is there for a moment.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    workspace: float

    @property
    def total(self) -> float:
        return sum(self)


def parameters_on_rank(layer: LayerCosts, layout: Layout) -> tuple[float, float]:
    """How many parameters of a layer a rank has, were they not sharded: those of experts apart."""
    return layer.split / layout.tp + layer.whole, layer.expert / (layout.tp * layout.ep)


def saved_by(layer: LayerCosts, layout: Layout, recompute: str) -> float:
    """Bytes that a layer saves for backward of one micro-batch on one rank."""
    whole = layout.tp if layout.sequence_parallel else 1
    each = layout.micro_batch / layout.cp
    if recompute == "full" and layer.block:
        return each * layer.input / whole
    core = 0 if recompute == "selective" else layer.core_saved
    return each * ((layer.split_saved + core) / layout.tp + layer.whole_saved / whole)


def rank_memory(
    costs: ModelCosts, layout: Layout, chunks: Sequence[Chunk], rank: int, micro_batches: int, states: int
) -> RankMemory:
    """What a rank of the pipeline holds at most.  states: bytes that the optimizer keeps for a parameter.

    Source of the sharding: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion
    Parameter Models", section 5.
    """
    runs = [run for chunk in chunks for run in chunk]
    dense = sum(parameters_on_rank(layer, layout)[0] * count for layer, count in runs)
    experts = sum(parameters_on_rank(layer, layout)[1] * count for layer, count in runs)
    if costs.tied and layout.pp > 1 and rank == layout.pp - 1:
        dense += costs.tied / layout.tp  # the logits' copy of the embedding
    shards = layout.dp * layout.cp
    sharded = dense / shards + experts / (shards / layout.ep)
    precision = costs.precision

    def held(level: int) -> float:
        return sharded if layout.zero >= level else dense + experts

    saved = sum(saved_by(layer, layout, layout.recompute) * count for layer, count in runs)
    waiting = in_flight(rank, layout.pp, layout.chunks, micro_batches) / layout.chunks
    return RankMemory(
        held(3) * precision.element,
        held(2) * precision.gradient,
        held(1) * (states + precision.master),
        saved * waiting,
        _workspace(costs, layout, [layer for layer, _ in runs]),
    )


def _workspace(costs: ModelCosts, layout: Layout, layers: Sequence[LayerCosts]) -> float:
    """What the backward of one layer needs: what it does again, whole parameters, a gradient of a result."""
    precision = costs.precision
    again = gathered = result = 0.0
    for layer in layers:
        if layer.block and layout.recompute != "none":
            kept = saved_by(layer, layout, layout.recompute)
            again = max(again, saved_by(layer, layout, "none") - kept)
        whole = sum(parameters_on_rank(layer, layout))
        if layout.zero == 3:  # this layer's and the next one's
            gathered = max(gathered, whole * (2 * precision.element + precision.gradient))
        elif layout.zero == 2:
            gathered = max(gathered, whole * precision.gradient)
        for product in layer.products:
            stored = 0 if product.unstored == "result" else product.rows * product.columns * product.times
            parts = layout.tp if product.split in ("columns", "times") else 1
            result = max(result, precision.element * stored * layout.micro_batch / (parts * layout.cp))
    return again + gathered + result
