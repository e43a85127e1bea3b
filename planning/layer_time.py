"""What a layer takes on a rank: kernels by peak and bandwidth, collectives by alpha and beta."""

from __future__ import annotations

from typing import NamedTuple

from .accelerators import Accelerator
from .collective_costs import all_gather, all_reduce, all_to_all, sent_by_all_reduce, sent_by_gather
from .layer_costs import LayerCosts, Precision, Product
from .mesh_layout import Layout, Mesh

# A backward of a product is two: of each factor's gradient.  That of fused attention makes the scores again.
BACKWARD, FUSED_BACKWARD = 2.0, 2.5


class Pass(NamedTuple):
    """Seconds of one pass of a micro-batch, by kind."""

    products: float = 0
    attention: float = 0
    pointwise: float = 0
    tensor: float = 0
    context: float = 0
    experts: float = 0

    @property
    def compute(self) -> float:
        return self.products + self.attention + self.pointwise

    @property
    def total(self) -> float:
        return sum(self)

    def plus(self, other: Pass, count: float = 1) -> Pass:
        """This pass and another one, so many times."""
        return Pass(*(a + count * b for a, b in zip(self, other, strict=True)))


class LayerTime(NamedTuple):
    """again: what the backward recomputes first."""

    forward: Pass
    backward: Pass
    again: Pass


class LayerTimer:
    """Times layers of a model under one layout on one device."""

    def __init__(self, device: Accelerator, precision: Precision, layout: Layout, mesh: Mesh):
        self.device, self.precision, self.layout, self.mesh = device, precision, layout, mesh
        self.peak = device.peak[precision.peak]
        self.streaming = device.bandwidth * device.streaming
        self.tensor = layout.group(("tp",), mesh)
        self.context = layout.group(("cp",), mesh)
        self.experts = layout.experts_group(mesh)

    def times(self, layer: LayerCosts) -> LayerTime:
        """Seconds of a layer's passes over a micro-batch."""
        forward, backward = self._forward(layer), self._backward(layer)
        again = Pass()
        if layer.block and self.layout.recompute == "full":
            again = forward
        elif layer.block and self.layout.recompute == "selective":
            scores = sum(self._product(p, 1.0) for p in layer.products if p.core and not p.unstored)
            again = Pass(attention=scores, pointwise=self._streamed(layer.core_traffic / self.layout.tp))
        return LayerTime(forward, backward, again)

    def _forward(self, layer: LayerCosts) -> Pass:
        plain = sum(self._product(p, 1.0) for p in layer.products if not p.core)
        core = sum(self._product(p, 1.0) for p in layer.products if p.core)
        return Pass(plain, core, self._pointwise(layer, 1), *self._collectives(layer, 1))

    def _backward(self, layer: LayerCosts) -> Pass:
        plain = sum(self._product(p, BACKWARD) for p in layer.products if not p.core)
        core = sum(
            self._product(p, FUSED_BACKWARD if p.unstored else BACKWARD) for p in layer.products if p.core
        )
        return Pass(plain, core, self._pointwise(layer, 2), *self._collectives(layer, 2))

    def _product(self, p: Product, passes: float) -> float:
        """Operations at the rate of large products, and bytes that are not hidden behind them."""
        layout = self.layout
        rows, inner, columns, times = p.rows / layout.cp, p.inner, p.columns, p.times
        if p.weighted:
            rows *= layout.micro_batch
        else:
            times *= layout.micro_batch
        if p.experts:
            rows, times = rows * layout.ep, times / layout.ep
        if p.split == "columns":
            columns /= layout.tp
        elif p.split == "inner":
            inner /= layout.tp
        elif p.split == "times":
            times /= layout.tp
        share = self.device.attention if p.unstored else self.device.products
        elements = (p.unstored != "left") * rows * inner + inner * columns
        elements += (p.unstored != "result") * rows * columns
        flops = 2 * rows * inner * columns * times * p.share
        moved = self.precision.element * elements * times / self.streaming
        return passes * max(flops / (self.peak * share) + moved, self.device.launch)

    def _streamed(self, nbytes: float) -> float:
        return nbytes * self.layout.micro_batch / (self.layout.cp * self.streaming)

    def _pointwise(self, layer: LayerCosts, passes: int) -> float:
        """A backward reads gradients beside what was saved: twice the bytes, and twice the kernels."""
        whole = self.layout.tp if self.layout.sequence_parallel else 1
        nbytes = (layer.split_traffic + layer.core_traffic) / self.layout.tp + layer.whole_traffic / whole
        return passes * max(self._streamed(nbytes), layer.kernels * self.device.launch)

    def _collectives(self, layer: LayerCosts, passes: int) -> tuple[float, float, float]:
        """Seconds of those of tensor, context and expert parallelism in a pass: a backward's context gathers
        keys and values again, and scatters their gradients.
        """
        each = self.layout.micro_batch / self.layout.cp
        tensor = layer.exchanges * all_reduce(self.device, self.tensor, each * layer.exchanged)
        gathered = self.layout.micro_batch * layer.context / self.layout.tp
        context = passes * all_gather(self.device, self.context, gathered) if layer.context else 0.0
        routed = self._routed(layer)
        experts = 2 * all_to_all(self.device, self.experts, routed) if layer.routed else 0.0
        return tensor, context, experts

    def _routed(self, layer: LayerCosts) -> float:
        """Bytes that one rank gives to experts: tensor parallel ranks send a part each."""
        parts = self.layout.tp if self.layout.sequence_parallel else 1
        return layer.routed * self.layout.micro_batch / (self.layout.cp * parts)

    def sent(self, layer: LayerCosts) -> tuple[float, float, float]:
        """Bytes that a rank sends in a forward and a backward, by tensor, context and expert parallelism."""
        each = self.layout.micro_batch / self.layout.cp
        passes = 3 if layer.block and self.layout.recompute == "full" else 2
        tensor = passes * layer.exchanges * sent_by_all_reduce(self.tensor, each * layer.exchanged)
        gathered = self.layout.micro_batch * layer.context / self.layout.tp
        context = (passes + 1) * sent_by_gather(self.context, gathered)
        return tensor, context, 2 * passes * sent_by_gather(self.experts, self._routed(layer))
