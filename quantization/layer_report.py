"""How layers compare with float, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.lazy import load
from ..nn import Module
from ..runtime import no_grad
from ..runtime.levels import array_of
from .byte_points import points_of
from .calling import Call, calls_of
from .capture import record
from .converting import Quantized
from .graph_module import GraphModule
from .schemes import Layers
from .static_bytes import Prepared
from .swapped_layers import SWAPPED


@dataclass(frozen=True)
class LayerError:
    """How a layer's outputs differ from float's, with all that went wrong in the layers before it.

    decibels: signal to noise, 10 log10 of sum of y^2 / sum of error^2; infinite where nothing differs.
    most: the greatest difference.  saturated: the share of numbers that lie outside of what the bytes that
    the layer reads stand for; None where it reads no bytes of a range.
    """

    name: str
    decibels: float
    most: float
    saturated: float | None


class Report:
    """The layers of a quantised model, worst first.  str() is a table, `draw` a picture of bars."""

    def __init__(self, layers: Iterable[LayerError]):
        self.layers = sorted(layers, key=lambda each: each.decibels)

    def __iter__(self) -> Iterator[LayerError]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, name: str) -> LayerError:
        """A layer by its name.  Raises KeyError."""
        for each in self.layers:
            if each.name == name:
                return each
        raise KeyError(name)

    def __str__(self) -> str:
        width = max([5, *(len(each.name) for each in self.layers)])
        lines = [f"{'layer':<{width}}  signal/noise  greatest error  saturated"]
        for each in self.layers:
            share = "-" if each.saturated is None else f"{each.saturated:.2%}"
            lines.append(f"{each.name:<{width}}  {each.decibels:9.1f} dB  {each.most:14.4g}  {share:>9}")
        return "\n".join(lines)

    def draw(self) -> Any:
        """Bars of signal to noise, worst on top: a matplotlib figure, which `.savefig(path)` writes."""
        figure = load("matplotlib.figure", "demo").Figure(figsize=(7, 1 + 0.25 * len(self)), layout="tight")
        axes = figure.add_subplot()
        best = max([each.decibels for each in self.layers if np.isfinite(each.decibels)], default=0.0)
        axes.barh([each.name for each in self.layers], [min(each.decibels, best) for each in self.layers])
        axes.invert_yaxis()
        axes.set_xlabel("signal to noise, dB")
        return figure


def report(quantised: Module, float: Any, data: Any) -> Report:
    """Compare a quantised model, layer by layer, with the model of floats that it was made of.

    data: inputs, as of `quantize`.
    """
    return compare(quantised, float, calls_of(float, data))


def compare(quantised: Module, float: Any, calls: Iterable[Call]) -> Report:
    """`report`, from calls of the model."""
    errors: dict[str, np.ndarray] = {}
    outside: dict[str, np.ndarray] = {}
    reference: Any = float
    if isinstance(quantised, Quantized):
        names = [*quantised.names.values()]
    else:
        names = [name for name, each in quantised.named_modules() if isinstance(each, SWAPPED)]
    for args, kwargs in calls:
        if isinstance(quantised, Quantized) and not isinstance(reference, GraphModule):
            reference = GraphModule(record(float, args, kwargs))
        wanted = _outputs(reference, args, kwargs, names, None)
        found = _outputs(quantised, args, kwargs, names, outside)
        for name in names:
            if name not in wanted or name not in found:
                continue
            x, y = wanted[name], found[name]
            if x.shape == y.shape and x.size:
                x, y = x.astype(np.float64), y.astype(np.float64)
                now = np.array([(x * x).sum(), ((x - y) ** 2).sum(), np.abs(x - y).max()])
                old = errors.get(name, np.zeros(3))
                errors[name] = np.array([*(old + now)[:2], max(old[2], now[2])])
    if not errors:
        raise ArgumentError("report: the two models have no layer in common, or there is no data")
    return Report(
        LayerError(name, _decibels(*found[:2].tolist()), found[2].item(), _share(outside.get(name)))
        for name, found in errors.items()
    )


def _decibels(signal: float, noise: float) -> float:
    return 10 * log10(max(signal, 1e-300) / noise) if noise else inf


def _share(counts: np.ndarray | None) -> float | None:
    return None if counts is None else (counts[0] / max(counts[1], 1)).item()


def _outputs(
    model: Any, args: tuple, kwargs: dict[str, Any], names: Sequence[str], outside: Any
) -> dict[str, np.ndarray]:
    """What the layers of a model make, by name; of several calls of a layer the last."""
    found: dict[str, np.ndarray] = {}
    with no_grad():
        if isinstance(model, Prepared):
            model.run_in_float(args, kwargs, _watching(model, found, outside))
        elif isinstance(model, GraphModule):
            model.run(args, kwargs, _watching(model, found, outside))
        else:
            _run_hooked(model, args, kwargs, names, found)
    return found


def _watching(model: GraphModule, found: dict[str, np.ndarray], outside: Any) -> Callable[[int, Any], Any]:
    if isinstance(model, Quantized):
        names, ranges = model.names, model.ranges()
    else:
        paths = dict(zip(model.graph.params[model._count :], model.paths, strict=True))
        points = model.points if isinstance(model, Prepared) else points_of(model.graph, paths, Layers())
        names = {model._slots[layer.node.outputs[0]]: layer.name for layer in points.layers}
        ranges = {}

    def seen(slot: int, value: Any) -> Any:
        if slot in names:
            found[names[slot]] = array_of(value)
        if slot in ranges and outside is not None:
            low, high, layers = ranges[slot]
            x = array_of(value)
            now = np.array([np.count_nonzero((x < low) | (x > high)), x.size])
            for name in layers:
                outside[name] = outside.get(name, 0) + now
        return value

    return seen


def _run_hooked(
    model: Module, args: tuple, kwargs: dict[str, Any], names: Sequence[str], found: dict[str, np.ndarray]
) -> None:
    """Run a model, and note what the modules of these names make."""
    handles = []
    try:
        for name in names:

            def note(_: Any, given: Any, made: Any, name: str = name) -> None:
                found[name] = array_of(made.detach().float())

            handles.append(model.get_submodule(name).register_forward_hook(note))
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
