"""All layouts of a model on a mesh that are worth looking at, and why those that don't fit don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from .accelerators import Accelerator
from .layer_costs import ModelCosts
from .mesh_layout import Layout, Mesh, PlanError
from .rank_memory import RankMemory
from .step_time import Prediction, fit, predict

LONG = 16384  # tokens: context parallelism is looked at from here on
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
CHUNKS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Searched:
    """What a search found.

    best: the quickest layout of each division into dp, tp, pp, cp and ep, the quickest first.  tried: how
    many layouts.  fitting: how many fit.  refused: why others don't, and how often.  nearest: of those that
    need too much memory the one that needs least, if any does.
    """

    best: tuple[Prediction, ...]
    tried: int
    fitting: int
    refused: Counter[str]
    nearest: tuple[Layout, RankMemory] | None


def search(
    costs: ModelCosts, device: Accelerator, mesh: Mesh, batch: int, optimizer: str, count: int = 10
) -> Searched:
    """Look at every layout of `candidates`.  Raises PlanError for a precision that the device lacks."""
    capacity = device.among(mesh.per_node).memory
    best: dict[tuple[int, ...], Prediction] = {}
    refused: Counter[str] = Counter()
    nearest: tuple[Layout, RankMemory] | None = None
    tried = fitting = 0
    for layout in candidates(costs, mesh, batch):
        tried += 1
        try:
            memory = fit(costs, layout, mesh, batch, optimizer)
        except PlanError as error:
            refused[error.rule.removeprefix("plan(layout): ").partition(" (")[0]] += 1
            continue
        if memory.total > capacity:
            refused[f"needs more than {capacity / 1e9:.4g} GB"] += 1
            if nearest is None or memory.total < nearest[1].total:
                nearest = layout, memory
            continue
        fitting += 1
        prediction = predict(costs, device, mesh, layout, batch, optimizer)
        key = (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep)
        if key not in best or prediction.step < best[key].step:
            best[key] = prediction
    ordered = sorted(best.values(), key=lambda prediction: prediction.step)
    return Searched(tuple(ordered[:count]), tried, fitting, refused, nearest)


def candidates(costs: ModelCosts, mesh: Mesh, batch: int) -> Iterator[Layout]:
    """Layouts whose sizes divide the mesh and the batch.

    Tensor parallelism stays within a node, as it waits for every message; what is sharded beyond optimizer
    states, which a pipeline's every micro-batch would gather anew, goes without a pipeline.
    """
    again = ["none", "full"]
    if any(layer.core_saved for layer in costs.layers):
        again.insert(1, "selective")
    long = costs.tokens if any(layer.context for layer in costs.layers) else 0
    contexts = [c for c in (1, 2, 4, 8, 16, 32) if c == 1 or long >= LONG * c // 2]
    stages = [p for p in divisors(mesh.devices) if p == 1 or p <= costs.blocks + 2]
    for tp, cp, pp in product(divisors(mesh.per_node), contexts, stages):
        if mesh.devices % (tp * cp * pp):
            continue
        dp = mesh.devices // (tp * cp * pp)
        if batch % dp:
            yield Layout(dp, tp, pp, cp)  # refused, and counted so
            continue
        experts = [e for e in divisors(dp * cp) if e == 1 or (costs.experts and costs.experts % e == 0)]
        sharding = (0, 1, 2, 3) if pp == 1 else (0, 1)
        micro_batches = [b for b in MICRO_BATCHES if batch // dp % b == 0]
        chunks = [v for v in CHUNKS if v == 1 or (pp > 1 and pp * v <= costs.blocks + 2)]
        for ep, zero, micro, v, recompute in product(experts, sharding, micro_batches, chunks, again):
            if (zero and dp * cp == 1) or (v > 1 and batch // (dp * micro) % pp):
                continue
            yield Layout(dp, tp, pp, cp, ep, micro, v, zero, recompute)


def divisors(number: int) -> list[int]:
    """All of them, the least first."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})
