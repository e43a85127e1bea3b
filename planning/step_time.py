"""What a step takes under one layout, and what each rank holds meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .accelerators import Accelerator
from .collective_costs import all_gather, all_reduce, send, sent_by_all_reduce, sent_by_gather
from .layer_costs import LayerCosts, ModelCosts, states_of
from .layer_time import LayerTime, LayerTimer, Pass
from .mesh_layout import Group, Layout, Mesh, PlanError
from .pipeline_schedule import closed_form
from .rank_memory import RankMemory, parameters_on_rank, rank_memory
from .stage_cuts import Chunk, cut

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


class _Rank(NamedTuple):
    """A rank of the pipeline.  forward, backward, again: seconds of a micro-batch by kind, over all chunks.
    sharded: seconds, forward and backward, of gathering parameters and scattering gradients that no compute
    hides.  sends: of going on to the next rank.  shares: of each chunk, forward and backward.
    """

    chunks: Sequence[Chunk]
    forward: Pass
    backward: Pass
    again: Pass
    sharded: tuple[float, float]
    sends: float
    shares: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        passes = self.forward.total + self.backward.total + self.again.total
        return passes + sum(self.sharded) + 2 * self.sends


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
    ranks = [_rank(timer, costs, chunks, known) for chunks in cut(costs, layout)]
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
    reduced = max(_reduced(timer, costs, rank) for rank in ranks)
    seconds["data parallel"] = micro_batches * sum(slowest.sharded) + reduced
    seconds["optimizer"] = max(_updated(timer, costs, rank, states_of(optimizer)) for rank in ranks)
    recomputed = _recomputed(costs, layout)
    return Prediction(
        layout, mesh, device.name, batch, micro_batches, batch * costs.tokens, memory, device.memory, seconds,
        *_by_chunk(ranks), _sent(timer, costs, slowest, micro_batches), _links(layout, mesh),
        costs.flops * batch, (costs.flops + recomputed) * batch, device.peak[costs.precision.peak],
    )  # fmt: skip


def _rank(
    timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk], known: dict[int, LayerTime]
) -> _Rank:
    forward, backward, again, shares = Pass(), Pass(), Pass(), []
    for chunk in chunks:
        there = back = 0.0
        for layer, count in chunk:
            if id(layer) not in known:
                known[id(layer)] = timer.times(layer)
            time = known[id(layer)]
            forward = forward.plus(time.forward, count)
            backward = backward.plus(time.backward, count)
            again = again.plus(time.again, count)
            there += count * time.forward.total
            back += count * (time.backward.total + time.again.total)
        shares.append((there, back))
    sharded = (0.0, 0.0)
    if timer.layout.zero >= 2:
        gather, scatter = _sharding(timer, costs, chunks)
        if timer.layout.zero == 2:
            gather = 0.0
        free = timer.layout.overlap
        hidden = forward.total if free else 0.0, backward.total + again.total if free else 0.0
        sharded = max(gather - hidden[0], 0.0), max(gather + scatter - hidden[1], 0.0)
    return _Rank(chunks, forward, backward, again, sharded, _sends(timer, costs), tuple(shares))


def _sends(timer: LayerTimer, costs: ModelCosts) -> float:
    """Seconds in which a micro-batch's activations go on to the next rank, once for each chunk."""
    if timer.layout.pp == 1:
        return 0.0
    group = timer.layout.group(("pp",), timer.mesh)
    return timer.layout.chunks * send(timer.device, group.nodes == 1, _boundary(timer.layout, costs))


def _boundary(layout: Layout, costs: ModelCosts) -> float:
    """Bytes of a micro-batch between two ranks of the pipeline; tensor parallel ranks send a part each."""
    passed = max(layer.input for layer in costs.layers if layer.block)
    return passed * layout.micro_batch / (layout.cp * layout.tp)


def _shards(layout: Layout, mesh: Mesh) -> tuple[Group, Group]:
    """The ranks that have the same parameters; those that have the same experts."""
    group = layout.group(("cp", "dp"), mesh)
    return group, Group(group.size // layout.ep, max(1, group.per_node // layout.ep))


def _messages(timer: LayerTimer, layer: LayerCosts) -> float:
    return 1 if timer.layout.bucketed else max(layer.tensors, 1)


def _sharding(timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk]) -> tuple[float, float]:
    """Seconds of gathering all parameters of a rank, and of scattering their gradients, layer by layer."""
    groups = _shards(timer.layout, timer.mesh)
    gather = scatter = 0.0
    for layer, count in (run for chunk in chunks for run in chunk):
        for group, held in zip(groups, parameters_on_rank(layer, timer.layout), strict=True):
            if held:
                messages, precision = _messages(timer, layer), costs.precision
                gather += count * all_gather(timer.device, group, held * precision.element, messages)
                scatter += count * all_gather(timer.device, group, held * precision.gradient, messages)
    return gather, scatter


def _reduced(timer: LayerTimer, costs: ModelCosts, rank: _Rank) -> float:
    """Seconds of a step's collectives on gradients and updated parameters that nothing hides.

    What overlaps goes on beside the last micro-batch's backward, but for the last layer's part.
    """
    layout, groups = timer.layout, _shards(timer.layout, timer.mesh)
    layers = sum(count for chunk in rank.chunks for _, count in chunk)
    backward, after = 0.0, 0.0
    for layer, count in (run for chunk in rank.chunks for run in chunk):
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
    exposed = max(backward - rank.backward.total - rank.again.total, backward / layers)
    return exposed + max(after - rank.forward.total, after / layers)  # the next step's first forward


def _held(rank: _Rank, layout: Layout) -> float:
    """Parameters that a rank updates."""
    shards = layout.dp * layout.cp if layout.zero else 1
    held = 0.0
    for layer, count in (run for chunk in rank.chunks for run in chunk):
        dense, experts = parameters_on_rank(layer, layout)
        held += count * (dense / shards + experts / max(shards / layout.ep if layout.zero else 1, 1))
    return held


def _updated(timer: LayerTimer, costs: ModelCosts, rank: _Rank, states: int) -> float:
    """Seconds of the update: gradients read, states and parameters read and written."""
    precision = costs.precision
    each = (
        precision.gradient
        + 2 * (states + precision.master)
        + (1 if precision.master else 2) * precision.element
    )
    return _held(rank, timer.layout) * each / timer.streaming + timer.device.launch


def _recomputed(costs: ModelCosts, layout: Layout) -> float:
    """Operations of one sample that are done again."""
    blocks = [layer for layer in costs.layers if layer.block]
    if layout.recompute == "full":
        return sum(layer.flops for layer in blocks)
    if layout.recompute == "none":
        return 0.0
    return sum(p.flops for layer in blocks for p in layer.products if p.core and not p.unstored)


def _by_chunk(ranks: Sequence[_Rank]) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
    """Seconds of each rank's and chunk's forward and backward, with what is sent."""
    there, back = [], []
    for rank in ranks:
        chunks = len(rank.shares)
        more = [(waits + rank.sends) / chunks for waits in rank.sharded]
        there.append(tuple(share[0] + more[0] for share in rank.shares))
        back.append(tuple(share[1] + more[1] for share in rank.shares))
    return tuple(there), tuple(back)


def _sent(timer: LayerTimer, costs: ModelCosts, rank: _Rank, micro_batches: int) -> dict[str, float]:
    """Bytes that the slowest rank sends in a step, by axis."""
    layout, groups = timer.layout, _shards(timer.layout, timer.mesh)
    sent = dict.fromkeys(("tp", "cp", "ep", "pp", "dp"), 0.0)
    for layer, count in (run for chunk in rank.chunks for run in chunk):
        for axis, nbytes in zip(("tp", "cp", "ep"), timer.sent(layer), strict=True):
            sent[axis] += count * micro_batches * nbytes
        for group, held in zip(groups, parameters_on_rank(layer, layout), strict=True):
            gradients = held * costs.precision.gradient
            gather = sent_by_gather(group, held * costs.precision.element)
            scatter = sent_by_gather(group, gradients)
            sent["dp"] += (
                count
                * {
                    0: sent_by_all_reduce(group, gradients),
                    1: scatter + gather,
                    2: micro_batches * scatter + gather,
                    3: micro_batches * (scatter + 2 * gather),
                }[layout.zero]
            )
    if layout.pp > 1:
        sent["pp"] = 2 * micro_batches * layout.chunks * _boundary(layout, costs)
    return {axis: nbytes for axis, nbytes in sent.items() if nbytes}


def _links(layout: Layout, mesh: Mesh) -> dict[str, str]:
    """By axis: whether its ranks are in one node."""
    groups = {axis: layout.group((axis,), mesh) for axis in ("tp", "cp", "pp", "dp")}
    groups["ep"] = layout.experts_group(mesh)
    return {
        axis: "within a node" if group.nodes == 1 else f"{group.per_node} in a node, {group.nodes} nodes"
        for axis, group in groups.items()
        if group.size > 1
    }
