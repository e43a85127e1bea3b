"""A plan as text: tables whose numbers have units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .layer_costs import ModelCosts
from .step_time import Prediction

if TYPE_CHECKING:
    from .step_plan import Plan

PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def spelled(number: float, unit: str) -> str:
    """A number with its unit: 1.23 GB, 456 TFLOP."""
    for size, prefix in PREFIXES:
        if abs(number) >= size * 0.9995:
            return (
                f"{number / size:.3g} {prefix}{unit}"
                if number < 999.5 * size
                else f"{number / size:.0f} {prefix}{unit}"
            )
    return f"{number:.3g} {unit}"


def seconds(number: float) -> str:
    """A time: 12.3 s, 4.56 ms, 7.89 us."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if number == 0:
            return "0 s"
        if number >= size * 0.9995:
            return f"{number / size:.3g} {unit}" if number < 1000 else f"{number:.0f} s"
    return f"{number * 1e6:.3g} us"


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table whose first columns are set to the left; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            word.ljust(width) if place < left else word.rjust(width)
            for place, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def text_of(plan: Plan) -> str:
    """The whole plan."""
    costs, mesh, device = plan.costs, plan.mesh, plan.device
    each = f"{costs.tokens} tokens a {costs.sample}, " if costs.tokens > 1 else ""
    lines = [
        f"{costs.name}: {spelled(costs.parameters, ' parameters')}, {each}"
        f"{spelled(costs.flops, 'FLOP')} a {costs.sample} forward and backward, {costs.precision.name}, "
        f"{plan.optimizer}",
        f"{mesh.devices} x {device.name}: {mesh.nodes} node{'s' * (mesh.nodes > 1)} of {mesh.per_node}, "
        f"{spelled(device.among(mesh.per_node).memory, 'B')} each; {plan.batch} {costs.sample}s a step",
        *(f"assumed: {note}" for note in costs.notes),
    ]
    lines += ["", *_layers(costs)]
    if plan.best:
        lines += ["", *_chosen(plan, plan.best[0])]
    if plan.searched is not None:
        lines += ["", *_searched(plan)]
    return "\n".join(lines)


def _layers(costs: ModelCosts) -> list[str]:
    """A row for each kind of layer."""
    kinds = Counter(map(id, costs.layers))
    rows = [(f"of one {costs.sample}", "layers", "parameters", "forward", "saved for backward", "input")]
    for layer in {id(layer): layer for layer in costs.layers}.values():
        sizes = (layer.saved, layer.input)
        numbers = (
            spelled(layer.parameters, ""),
            spelled(layer.flops, "FLOP"),
            *(spelled(n, "B") for n in sizes),
        )
        rows.append((layer.name, str(kinds[id(layer)]), *numbers))
    return table(rows)


def _chosen(plan: Plan, best: Prediction) -> list[str]:
    verdict = "" if best.fits else f" - DOES NOT FIT in {spelled(best.capacity, 'B')}"
    memory = [
        ("memory of the fullest rank", ""),
        *((k, spelled(v, "B")) for k, v in best.memory._asdict().items()),
    ]
    memory.append(("total", spelled(best.memory.total, "B")))
    parts = sorted(best.seconds.items(), key=lambda pair: -pair[1])
    times = [("time of a step", "", "")]
    times += [(kind, seconds(s), f"{s / best.step:.1%}") for kind, s in parts if s]
    times.append(("total", seconds(best.step), ""))
    lines = [f"layout: {best.layout}{verdict}", _micro_batches(best, plan.costs.sample), ""]
    lines += _beside(table(memory), table(times))
    rows = [("axis", "sent by a rank in a step", "ranks")]
    rows += [(axis, spelled(nbytes, "B"), best.links.get(axis, "")) for axis, nbytes in best.sent.items()]
    lines += ["", *table(rows)] if len(rows) > 1 else []
    if best.layout.zero == 3:
        lines += [
            "",
            "assumed: parameters are gathered a layer at a time, beside the work before it; the best case",
        ]
    again = best.executed / best.flops - 1
    lines += [
        "",
        f"{spelled(best.flops, 'FLOP')} a step{f', and {again:.0%} more recomputed' if again else ''}; "
        f"{spelled(best.achieved, 'FLOP/s')} of each device; model FLOPs utilisation {best.utilisation:.1%}",
        spelled(best.tokens_per_second, " tokens/s" if plan.costs.tokens > 1 else f" {plan.costs.sample}s/s"),
    ]
    if plan.measured:
        lines += ["", *_measured(best, plan)]
    return lines


def _micro_batches(best: Prediction, sample: str) -> str:
    size, count = best.layout.micro_batch, best.micro_batches
    samples = f"{size} {sample}{'s' * (size > 1)}"
    return f"{count} micro-batch{'es' * (count > 1)} of {samples} for each data parallel rank"


def _measured(best: Prediction, plan: Plan) -> list[str]:
    rows = [("measured", "predicted", "measured", "predicted / measured")]
    for kind, ran in (plan.measured or {}).items():
        predicted = best.step if kind == "step" else best.seconds.get(kind, 0.0)
        rows.append((kind, seconds(predicted), seconds(ran), f"{predicted / ran:.2f}"))
    return table(rows)


def _searched(plan: Plan) -> list[str]:
    searched = plan.searched
    assert searched is not None
    lines = [f"{searched.tried} layouts looked at, {searched.fitting} fit"]
    if plan.best:
        rows = [("step", "MFU", "memory", "bubble", "layout (the quickest of each division)")]
        for p in plan.best:
            bubble = f"{p.seconds['pipeline bubble'] / p.step:.1%}"
            rows.append(
                (seconds(p.step), f"{p.utilisation:.1%}", spelled(p.memory.total, "B"), bubble, str(p.layout))
            )
        lines += _last_left(rows)
    if searched.refused:
        rows = [("layouts", "why they don't fit")]
        lines += ["", *_last_left(rows + [(str(n), why) for why, n in searched.refused.most_common()])]
    if searched.nearest is not None:
        layout, memory = searched.nearest
        parts = ", ".join(f"{kind} {spelled(n, 'B')}" for kind, n in memory._asdict().items() if n)
        lines.append(f"the least of those too large: {spelled(memory.total, 'B')} for {layout} ({parts})")
    return lines


def _last_left(rows: Sequence[Sequence[str]]) -> list[str]:
    numbers = table([row[:-1] for row in rows], left=0)
    return [f"{number}  {row[-1]}" for number, row in zip(numbers, rows, strict=True)]


def _beside(left: list[str], right: list[str]) -> list[str]:
    width = max(map(len, left)) + 4
    height = max(len(left), len(right))
    left, right = (side + [""] * (height - len(side)) for side in (left, right))
    return [f"{a.ljust(width)}{b}".rstrip() for a, b in zip(left, right, strict=True)]
