"""What a step takes under one layout, and what each rank holds meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .accelerators import Accelerator
from .collective_costs import sent_by_all_reduce, sent_by_gather
from .layer_costs import ModelCosts, states_of
from .layer_time import LayerTime, LayerTimer
from .mesh_layout import Layout, Mesh, PlanError
from .pipeline_schedule import closed_form
from .rank_memory import RankMemory, parameters_on_rank, rank_memory
from .shard_collectives import reduced, shards_of, updated
from .stage_cuts import Chunk, cut
from .stage_time import boundary, by_chunk, stage_of


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


WAY_OUT = "describe it as a transformer: --gpt"
KINDS = (
    "products", "attention", "pointwise", "recomputation", "tensor parallel", "context parallel", "experts",
    "pipeline sends", "pipeline bubble", "data parallel", "optimizer",
)  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """A step under a layout.

    memory: of the fullest rank.  seconds: by KINDS, of the slowest rank; data parallel is what no backward
    hides.  forward, backward: seconds of a micro-batch, by rank and chunk.  sent: bytes that a rank sends in
    a step, by axis.  links: by axis, whether its ranks are in one node.  flops: operations of the model in a
    step, on all devices; executed: with what is recomputed.  capacity: bytes of memory of a rank.
    """

    layout: Layout
    mesh: Mesh
    device: str
    batch: int
    micro_batches: int
    tokens: int
    memory: RankMemory
    capacity: float
    seconds: dict[str, float]
    forward: tuple[tuple[float, ...], ...]
    backward: tuple[tuple[float, ...], ...]
    sent: dict[str, float]
    links: dict[str, str]
    flops: float
    executed: float
    peak: float

    @property
    def step(self) -> float:
        """Seconds."""
        return sum(self.seconds.values())

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.capacity

    @property
    def utilisation(self) -> float:
        """Model FLOPs utilisation: the model's operations over what all devices could do at their peak."""
        return self.flops / (self.step * self.mesh.devices * self.peak)

    @property
    def achieved(self) -> float:
        """Operations a second of each device, those counted that are recomputed."""
        return self.executed / (self.step * self.mesh.devices)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.step


def fit(costs: ModelCosts, layout: Layout, mesh: Mesh, batch: int, optimizer: str) -> RankMemory:
    """What the fullest rank holds.  Raises PlanError where the layout does not suit mesh, model or batch."""
    micro_batches = suits(costs, layout, mesh, batch)
    states = states_of(optimizer)
    stages = enumerate(cut(costs, layout))
    held = (rank_memory(costs, layout, chunks, rank, micro_batches, states) for rank, chunks in stages)
    return max(held, key=lambda memory: memory.total)


def suits(costs: ModelCosts, layout: Layout, mesh: Mesh, batch: int) -> int:
    """The number of micro-batches.  Raises PlanError where the layout does not suit mesh, model or batch."""
    micro_batches = layout.check(mesh, batch)
    for name, size in (("heads", costs.heads), ("kv_heads", costs.kv_heads)):
        if size and size % layout.tp and not (name == "kv_heads" and layout.tp % size == 0):
            raise PlanError(f"plan(layout): tp must divide {name} ({layout.tp}, {size})")
    for size in costs.divisors:
        if size % layout.tp:
            raise PlanError(f"plan(layout): tp must divide the features of layers ({layout.tp}, {size})")
    if layout.ep > 1 and (not costs.experts or costs.experts % layout.ep):
        raise PlanError(f"plan(layout): ep must divide the experts ({layout.ep}, {costs.experts})")
    if layout.cp > 1 and not any(layer.context for layer in costs.layers):
        raise PlanError(
            f"plan(layout): cp needs a model whose keys and values are known ({layout.cp})", WAY_OUT
        )
    if layout.cp > 1 and costs.tokens % (2 * layout.cp):  # two pieces each, so that masks leave equal work
        raise PlanError(
            f"plan(layout): 2 x cp must divide the tokens of a sequence ({layout.cp}, {costs.tokens})"
        )
    return micro_batches


def predict(
    costs: ModelCosts, device: Accelerator, mesh: Mesh, layout: Layout, batch: int, optimizer: str = "adamw"
) -> Prediction:
    """A step of `batch` samples.  Raises PlanError where the layout does not suit mesh, model or batch."""
    micro_batches = suits(costs, layout, mesh, batch)
    if costs.precision.peak not in device.peak:
        rates = ", ".join(device.peak)
        raise PlanError(f"plan(precision): {device.name} has no {costs.precision.name}", f"it has: {rates}")
    if device.shared and layout.overlap:  # the cores that copy are those that compute
        layout = replace(layout, overlap=False)
    device = device.among(mesh.per_node)
    memory = fit(costs, layout, mesh, batch, optimizer)
    timer = LayerTimer(device, costs.precision, layout, mesh)
    known: dict[int, LayerTime] = {}
    ranks = [stage_of(timer, costs, chunks, known) for chunks in cut(costs, layout)]
    slowest = max(ranks, key=lambda rank: rank.seconds)
    whole = closed_form([rank.seconds for rank in ranks], layout.chunks, micro_batches)
    work = slowest.forward.plus(slowest.backward)
    again = slowest.again
    values = (
        work.products, work.attention, work.pointwise, again.compute, work.tensor + again.tensor,
        work.context + again.context, work.experts + again.experts, 2 * slowest.sends,
    )  # fmt: skip
    seconds = dict(zip(KINDS, (micro_batches * value for value in values), strict=False))
    seconds["pipeline bubble"] = whole - micro_batches * slowest.seconds
    once = max(
        reduced(timer, costs, rank.chunks, rank.forward.total, rank.backward.total + rank.again.total)
        for rank in ranks
    )
    seconds["data parallel"] = micro_batches * sum(slowest.sharded) + once
    states = states_of(optimizer)
    seconds["optimizer"] = max(updated(timer, costs, rank.chunks, states) for rank in ranks)
    recomputed = _recomputed(costs, layout)
    return Prediction(
        layout, mesh, device.name, batch, micro_batches, batch * costs.tokens, memory, device.memory, seconds,
        *by_chunk(ranks), sent_by_axis(timer, costs, slowest.chunks, micro_batches), links_of(layout, mesh),
        costs.flops * batch, (costs.flops + recomputed) * batch, device.peak[costs.precision.peak],
    )  # fmt: skip


def _recomputed(costs: ModelCosts, layout: Layout) -> float:
    """Operations of one sample that are done again."""
    blocks = [layer for layer in costs.layers if layer.block]
    if layout.recompute == "full":
        return sum(layer.flops for layer in blocks)
    if layout.recompute == "none":
        return 0.0
    return sum(p.flops for layer in blocks for p in layer.products if p.core and not p.unstored)
