"""Which layers each rank of a pipeline holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .layer_costs import LayerCosts, ModelCosts
from .mesh_layout import Layout, PlanError


class Run(NamedTuple):
    """Equal layers in a row."""

    layer: LayerCosts
    copies: int


Chunk = tuple[Run, ...]


def cut(costs: ModelCosts, layout: Layout) -> list[list[Chunk]]:
    """The chunks of each rank: [rank][chunk].

    Repeated layers are cut into pp x chunks parts; what comes before them goes to the first, what comes after
    to the last.  Of equal layers the first and the last part have the fewest, down to none, as they have more
    beside.  Raises PlanError where there are not enough layers.
    """
    parts = layout.pp * layout.chunks
    if parts == 1:
        return [[_runs(costs.layers)]]
    blocks = [number for number, layer in enumerate(costs.layers) if layer.block]
    alike = bool(blocks) and all(costs.layers[number] is costs.layers[blocks[0]] for number in blocks)
    spare = (blocks[0] > 0) + (blocks[-1] < len(costs.layers) - 1) if alike else 0
    needed = max(parts - spare, 1) if parts > 2 else parts
    if len(blocks) < needed:
        raise PlanError(
            "plan(layout): a pipeline needs a repeated layer for each of its parts "
            f"({len(blocks)} < {needed})",
            f"model: {costs.name}",
            f"layout: {layout}",
        )
    edges = _edges([costs.layers[number] for number in blocks], parts, alike)
    blocks.append(blocks[-1] + 1)
    starts = [0, *(blocks[edge] for edge in edges), len(costs.layers)]
    cuts = [_runs(costs.layers[a:b]) for a, b in zip(starts, starts[1:], strict=False)]
    return [cuts[rank :: layout.pp] for rank in range(layout.pp)]


def _edges(blocks: Sequence[LayerCosts], parts: int, alike: bool) -> list[int]:
    """Where parts after the first begin."""
    if alike:
        each, more = divmod(len(blocks), parts)
        inner = sorted(range(parts), key=lambda part: -min(part, parts - 1 - part))[:more]
        sizes = [each + (part in inner) for part in range(parts)]
        return [sum(sizes[:part]) for part in range(1, parts)]
    return _balanced([block.flops or block.parameters for block in blocks], parts)


def _balanced(weights: Sequence[float], parts: int) -> list[int]:
    """Cut so that the heaviest part is as light as bisection finds it, and none is empty."""
    low, high = max(weights), sum(weights)
    best = list(range(1, parts))
    for _ in range(40):
        bound = (low + high) / 2
        edges = _filled(weights, parts, bound)
        if edges is None:
            low = bound
        else:
            best, high = edges, bound
    return best


def _filled(weights: Sequence[float], parts: int, bound: float) -> list[int] | None:
    """Fill parts one after the other up to a bound; None where they don't hold all."""
    edges: list[int] = []
    held = 0.0
    for number, weight in enumerate(weights):
        must = len(weights) - number == parts - len(edges) - 1  # each part left takes one of those left
        if number and (must or held + weight > bound):
            if len(edges) == parts - 1:
                return None
            edges.append(number)
            held = 0.0
        held += weight
    return edges if held <= bound else None


def _runs(layers: Sequence[LayerCosts]) -> Chunk:
    runs: list[Run] = []
    for layer in layers:
        if runs and runs[-1].layer is layer:
            runs[-1] = Run(layer, runs[-1].copies + 1)
        else:
            runs.append(Run(layer, 1))
    return tuple(runs)
