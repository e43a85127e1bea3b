"""int8 by calibration: scales, and the prepared model, which looks at numbers and rounds them.

    prepare: the recorded graph; at each point numbers are looked at, and rounded to what bytes stand for
    convert: quantize_affine at each point, layers of bytes, dequantize_affine before what reads floats

Both compute scales by the same functions, so that training meets the integers that the converted model has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..ir.dtypes import int8
from ..ir.graph import Value
from ..nn import Buffer, Module
from ..runtime import Tensor, no_grad, ops
from ..runtime.levels import array_of
from ..runtime.tensor import tensor_of
from .byte_points import Layer, points_of
from .graph_module import GraphModule, Recorded
from .observers import Observer, observer
from .schemes import Layers, QuantizationError, not_finite

LOW, HIGH = 0, 255  # of activations, u8
MOST = 127  # of weights, i8: symmetric, so that a sign costs nothing
LEAST_SCALE = 1e-12  # of a channel whose weights are all 0
MOST_BIAS = 2.0**30  # steps of a bias: half of what 32 bits hold is left to the sums


# ---- scales
def activation_scale(low: Any, high: Any) -> tuple[Any, Any]:
    """The scale and zero point, a whole f32, of numbers from `low` to `high`: 0 is one of the steps."""
    low, high = ops.FUNCTIONS["clamp"](low, max=0.0), ops.FUNCTIONS["clamp"](high, min=0.0)
    span = high - low
    scale = ops.FUNCTIONS["where"](span > 0, span, 1.0) / (HIGH - LOW)
    return scale, ops.FUNCTIONS["clamp"](ops.FUNCTIONS["round"](-low / scale), LOW, HIGH)


def weight_scale(weight: Tensor, bias: Tensor | None, input_scale: Tensor) -> Tensor:
    """A scale for each output channel: the greatest weight is 127 steps, and the bias fits into 31 bits.

    Shapes: [o, ...], [o], [] -> [o].
    """
    flat = weight.reshape(weight.shape[0], -1)
    scale = ops.FUNCTIONS["amax"](ops.FUNCTIONS["abs"](flat), 1) / MOST
    if bias is not None:
        scale = ops.FUNCTIONS["maximum"](scale, ops.FUNCTIONS["abs"](bias) / (input_scale * MOST_BIAS))
    return ops.FUNCTIONS["clamp"](scale, min=LEAST_SCALE)


def _along(scale: Tensor, ndim: int) -> Tensor:
    return scale.reshape(-1, *(1,) * (ndim - 1))


def quantize_weight(weight: Tensor, scale: Tensor) -> np.ndarray:
    """Steps of a weight, with a scale for each output channel: i8 from -127 to 127."""
    steps = ops.FUNCTIONS["quantize_affine"](weight, _along(scale, weight.ndim), low=-MOST, dtype=int8)
    return np.array(array_of(steps), order="C")


# ---- prepared
class Point(Module):
    """What stands between a value and the layers that read it: it learns the range, and rounds.

    observing: whether ranges follow what is seen, as a moving average.  Shapes: [...] -> [...].
    """

    def __init__(self):
        super().__init__()
        self.low = Buffer(tensor_of(np.zeros((), np.float32)))
        self.high = Buffer(tensor_of(np.zeros((), np.float32)))
        self.observing = False

    def limit(self, low: float, high: float) -> None:
        """Set the range."""
        with no_grad():
            self.low.fill_(low)
            self.high.fill_(high)

    def scale(self) -> tuple[Tensor, Tensor]:
        return activation_scale(self.low, self.high)

    def forward(self, x: Tensor) -> Tensor:
        if self.observing and self.training:
            with no_grad():
                seen = x.detach()
                self.low.copy_(self.low + 0.01 * (ops.FUNCTIONS["amin"](seen) - self.low))
                self.high.copy_(self.high + 0.01 * (ops.FUNCTIONS["amax"](seen) - self.high))
        scale, zero_point = self.scale()
        return ops.FUNCTIONS["fake_quantize_per_tensor_affine"](x, scale, zero_point, LOW, HIGH)


class Prepared(GraphModule):
    """A model that rounds as its quantised self will, and trains: gradients go straight through.

    Its weights are the model's, norms folded into the layers before them, so that it starts where the model
    is; what the model did in training alone (dropout, statistics of batches) is left out.  `convert` makes
    the quantised model of it.

    faking: whether numbers are rounded.  points: of the graph.  report: of the layers, as of calibration.
    """

    def __init__(self, recorded: Recorded, chosen: Layers):
        super().__init__(recorded)
        self.chosen = chosen
        self.faking = True
        self.calibrated = False
        self.points = points_of(self.graph, self._weights(), chosen)
        self.ranges = Module()
        for at in range(len(self.points.values)):
            self.ranges.add_module(str(at), Point())
        self._look_up()
        self.need_finite()

    def _weights(self) -> dict[Value, str]:
        return dict(zip(self.graph.params[self._count :], self.paths, strict=True))

    def need_finite(self) -> None:
        """Raises QuantizationError for a layer with a weight, bias or range that has no scale."""
        for layer in self.points.layers:
            point = getattr(self.ranges, str(layer.point))
            weights = [("the weight", layer.weight), ("the bias", layer.bias)]
            numbers = [
                (what, super(Prepared, self).weight(path)) for what, path in weights if path is not None
            ]
            for what, x in (*numbers, ("the range", point.low), ("the range", point.high)):
                if not np.isfinite(array_of(x)).all():
                    raise not_finite(what, layer.name)

    def _look_up(self) -> None:
        """Which point a slot has, and which layers read a weight."""
        self._at = {self._slots[v]: str(n) for n, v in enumerate(self.points.values)}
        self._layers: dict[str, list[Layer]] = {}
        for layer in self.points.layers:
            self._layers.setdefault(layer.weight, []).append(layer)

    def __getstate__(self) -> dict[str, Any]:
        own = super().__getstate__()
        for name in ("points", "_at", "_layers"):
            own.pop(name, None)
        return own

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.points = points_of(self.graph, self._weights(), self.chosen)
        self._look_up()

    # ---- running
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(args, kwargs, self._seen if self.faking else None)

    def _seen(self, slot: int, value: Any) -> Any:
        point = self._at.get(slot)
        return value if point is None else getattr(self.ranges, point)(value)

    def weight(self, path: str) -> Any:
        weight = super().weight(path)
        layers = self._layers.get(path)
        if layers is None or not self.faking:
            return weight
        turned = layers[0].node.op.name == "matmul"
        rows = weight.transpose(0, 1) if turned else weight
        scale = _along(self.weight_scale(path), rows.ndim)
        zero = ops.FUNCTIONS["zeros_like"](scale)
        faked = ops.FUNCTIONS["_fake_quantize"](rows, scale, zero, quant_min=-MOST, quant_max=MOST)
        return faked.transpose(0, 1) if turned else faked

    def weight_scale(self, path: str) -> Tensor:
        """The scales of a weight's output channels, for all layers that read it."""
        with no_grad():
            found: Any = None
            for layer in self._layers[path]:
                weight = super().weight(path)
                if layer.node.op.name == "matmul":
                    weight = weight.transpose(0, 1)
                bias = None if layer.bias is None else super().weight(layer.bias)
                scale = weight_scale(weight, bias, self.input_scale(layer)[0])
                found = scale if found is None else ops.FUNCTIONS["maximum"](found, scale)
            return found

    def input_scale(self, layer: Layer) -> tuple[Tensor, Tensor]:
        """The scale and zero point of what a layer reads."""
        return getattr(self.ranges, str(layer.point)).scale()

    def run_in_float(self, args: tuple, kwargs: dict[str, Any], seen: Callable[[int, Any], Any]) -> None:
        """Run the graph, rounding nothing.  seen: as of `run`."""
        faking, self.faking = self.faking, False
        try:
            with no_grad():
                self.run(args, kwargs, seen)
        finally:
            self.faking = faking

    # ---- calibration
    def calibrate(self, calls: Iterable[tuple[tuple, dict[str, Any]]], kind: str) -> int:
        """Learn the ranges from calls of the model in float; how many there were.

        Raises QuantizationError for numbers that are not finite, and for no data.
        """
        make: Callable[[], Observer] = observer(kind)
        seen = [make() for _ in self.points.values]
        filled: set[int] = set()

        def look(slot: int, value: Any) -> Any:
            if slot in self._at:
                at = int(self._at[slot])
                x = array_of(value)
                if x.size:
                    if not np.isfinite(x).all():
                        name = self.points.names[at]
                        raise QuantizationError(
                            f"quantize: what {name} reads is not finite for this data",
                            f"leave such data out; skip={name!r} leaves the layer in float",
                        )
                    seen[at].see(x)
                    filled.add(at)
            return value

        count = 0
        for args, kwargs in calls:
            self.run_in_float(args, kwargs, look)
            count += 1
        if not count:
            raise QuantizationError("quantize(data): there is none", "give some inputs of the model")
        for at, each in enumerate(seen):
            if at not in filled:
                name = self.points.names[at]
                raise QuantizationError(
                    f"quantize: {name} reads no numbers for this data",
                    f"give inputs that reach it; skip={name!r} leaves it in float",
                )
            low, high = each.range()
            getattr(self.ranges, str(at)).limit(low, high)
        self.calibrated = True
        return count

    def observe(self, on: bool = True) -> Prepared:
        """Have ranges follow what is seen in training, or stay."""
        for point in self.ranges.children():
            point.observing = on
        return self
