"""What one rank of a pipeline does with a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .collective_costs import send
from .layer_costs import ModelCosts
from .layer_time import LayerTime, LayerTimer, Pass
from .mesh_layout import Layout
from .shard_collectives import sharding
from .stage_cuts import Chunk


class Stage(NamedTuple):
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


def stage_of(
    timer: LayerTimer, costs: ModelCosts, chunks: Sequence[Chunk], known: dict[int, LayerTime]
) -> Stage:
    """Time the chunks of a rank.  known: times of layers by their ids, which are filled in."""
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
        gather, scatter = sharding(timer, costs, chunks)
        if timer.layout.zero == 2:
            gather = 0.0
        free = timer.layout.overlap
        hidden = forward.total if free else 0.0, backward.total + again.total if free else 0.0
        sharded = max(gather - hidden[0], 0.0), max(gather + scatter - hidden[1], 0.0)
    return Stage(chunks, forward, backward, again, sharded, _sends(timer, costs), tuple(shares))


def _sends(timer: LayerTimer, costs: ModelCosts) -> float:
    """Seconds in which a micro-batch's activations go on to the next rank, once for each chunk."""
    if timer.layout.pp == 1:
        return 0.0
    group = timer.layout.group(("pp",), timer.mesh)
    return timer.layout.chunks * send(timer.device, group.nodes == 1, boundary(timer.layout, costs))


def boundary(layout: Layout, costs: ModelCosts) -> float:
    """Bytes of a micro-batch between two ranks of the pipeline; tensor parallel ranks send a part each."""
    passed = max(layer.input for layer in costs.layers if layer.block)
    return passed * layout.micro_batch / (layout.cp * layout.tp)


def by_chunk(ranks: Sequence[Stage]) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
    """Seconds of each rank's and chunk's forward and backward, with what is sent."""
    there, back = [], []
    for rank in ranks:
        chunks = len(rank.shares)
        more = [(waits + rank.sends) / chunks for waits in rank.sharded]
        there.append(tuple(share[0] + more[0] for share in rank.shares))
        back.append(tuple(share[1] + more[1] for share in rank.shares))
    return tuple(there), tuple(back)
