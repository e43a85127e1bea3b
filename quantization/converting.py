"""A prepared model in bytes: quantize_affine at points, layers of bytes, dequantize_affine elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..ir.dtypes import float32, int8, int32, uint8
from ..ir.errors import ArgumentError
from ..ir.graph import Builder, Node, Value
from ..ir.ops.affine import (
    dequantize_affine,
    quantize_affine,
    quantized_conv1d,
    quantized_conv2d,
    quantized_linear,
)
from ..ir.types import type_of
from ..runtime import no_grad
from ..runtime.levels import array_of
from .byte_points import Layer
from .graph_module import GraphModule, Recorded, Weight
from .schemes import QuantizationError
from .static_bytes import HIGH, LOW, Prepared, quantize_weight

BYTE_LAYERS = {
    "linear": quantized_linear, "matmul": quantized_linear, "conv1d": quantized_conv1d,
    "conv2d": quantized_conv2d,
}  # fmt: skip


class Quantized(GraphModule):
    """A model that computes in bytes: its graph reads i8 weights, i32 biases and f32 scales.

    kept: the layers that stay in float, and why.  report: how its layers compare with float, where that was
    asked for.  Zero points are attributes of the graph; a state dict holds them as its extra state.
    """

    def __init__(self, recorded: Recorded, layers: Mapping[Value, str], kept: Mapping[str, str]):
        super().__init__(recorded)
        self.kept = dict(kept)
        self.report: Any = None
        self.names = {self._slots[v]: name for v, name in layers.items()}

    def get_extra_state(self) -> Any:
        return {"zero_points": {path: node.attrs["zero_point"] for path, node in self._with_zero_points()}}

    def set_extra_state(self, state: Any) -> None:
        wanted = state["zero_points"]
        now = self.get_extra_state()["zero_points"]
        if wanted.keys() != now.keys():
            raise QuantizationError("load_state_dict: the state is of another model, or of other layers")
        if wanted == now:
            return
        changed = {node: wanted[path] for path, node in self._with_zero_points()}
        nodes = [
            node.replace(attrs={**node.attrs, "zero_point": changed[node]}) if node in changed else node
            for node in self.graph.nodes
        ]
        self.graph = self.graph.replace(nodes=nodes)
        self._prepare()

    def ranges(self) -> dict[int, tuple[float, float, list[str]]]:
        """By the slots of what is quantised: what the bytes reach to, and which layers read them."""
        sources: dict[Value, int] = {}
        found: dict[int, tuple[float, float, list[str]]] = {}
        for path, node in self._with_zero_points():
            if node.op is quantize_affine:
                scale, zero = self.weight(path).item(), node.attrs["zero_point"]
                low, high = ((end - zero) * scale for end in (LOW - 0.5, HIGH + 0.5))
                slot, _ = self._operand(node.inputs[0])
                sources[node.outputs[0]] = slot
                found[slot] = low, high, []
        for node in self.graph.nodes:
            source = sources.get(node.inputs[0]) if node.inputs else None
            if source is None:
                continue
            sources.setdefault(node.outputs[0], source)  # bytes that are moved
            name = self.names.get(self._slots[node.outputs[0]])
            if name is not None:
                found[source][2].append(name)
        return found

    def _with_zero_points(self) -> Iterable[tuple[str, Node]]:
        """Nodes with a zero point, each with the path of the scale that this belongs to."""
        paths = dict(zip(self.graph.params[self._count :], self.paths, strict=True))
        for node in self.graph.nodes:
            if "zero_point" in node.attrs:
                scale: Any = node.inputs[3 if node.op.name.startswith("quantized_") else 1]
                yield paths[scale], node

    def extra_repr(self) -> str:
        count = len(self.names)
        return f"{count} layers of int8" + (f", {len(self.kept)} in float" if self.kept else "")


def convert(prepared: Prepared) -> Quantized:
    """The quantised model of a prepared one.

    Raises QuantizationError for one that saw no data, ArgumentError for what was not prepared.
    """
    if not isinstance(prepared, Prepared):
        raise ArgumentError(
            f"convert: a {type(prepared).__name__} is not prepared",
            "convert(prepare(model, data)), or quantize(model, data), which does both",
        )
    if not prepared.calibrated:
        raise QuantizationError("convert: the ranges are not known", "prepare(model, data) learns them")
    prepared.need_finite()
    with no_grad():
        return _Conversion(prepared).made()


class _Conversion:
    """Writes a prepared model's graph anew.

    bytes: what stands for a value in bytes.  scales, zeros: of each point.  weights: with the param, by what
    they are for ("float", "bytes", "bias", ...) and the path or layer that this is of: a weight may be read
    both as floats and as bytes, and names that are made for a layer may be those of a user's parameters.
    """

    def __init__(self, prepared: Prepared):
        self.prepared, self.points = prepared, prepared.points
        self.graph = prepared.graph
        self.count = prepared._count
        self.bytes: dict[Value, tuple[Value, int]] = {}
        self.scales: list[Value] = []
        self.zeros: list[int] = []
        self.weights: dict[tuple[str, str], tuple[Value, Weight]] = {}
        self.values: dict[Value, Value] = {}
        self.layers: dict[Value, str] = {}
        self.paths = prepared._weights()
        self.of_node = {layer.node: layer for layer in self.points.layers}

    def made(self) -> Quantized:
        with Builder(self.graph.name) as self.b:
            for param in self.graph.params[: self.count]:
                self.values[param] = self.b.param(param.type, param.hint)
            self._add_scales()
            for param in self.graph.params[: self.count]:
                self._quantize(param)
            for node in self.graph.nodes:
                self.b.where = node.where
                self._node(node)
            graph = self.b.finish([self._result(v) for v in self.graph.results])
        weights = self._used(graph)
        p = self.prepared
        graph = graph.replace(params=(*graph.params[: self.count], *weights))
        arrays = tuple(weights.values())
        recorded = Recorded(graph, arrays, p.arguments, p.outputs, p.argument_names, p.returned)
        made = Quantized(recorded, self.layers, self.points.kept)
        made.train(p.training)
        return made

    def _used(self, graph: Any) -> dict[Value, Weight]:
        used = {*graph.used()}
        return {param: weight for param, weight in self.weights.values() if param in used}

    # ---- weights
    def _param(self, key: tuple[str, str], path: str, array: np.ndarray, trained: bool = False) -> Value:
        """The graph's param for an array, which is made once for a key."""
        if key not in self.weights:
            kinds = {"float32": float32, "int8": int8, "int32": int32}
            kind = kinds.get(array.dtype.name)
            of = type_of(kind, array.shape) if kind else self._type_of(path)
            self.weights[key] = self.b.param(of, None), Weight(path, array, trained)
        return self.weights[key][0]

    def _type_of(self, path: str) -> Any:
        return next(v.type for v, each in self.paths.items() if each == path)

    def _add_scales(self) -> None:
        for at, name in enumerate(self.points.names):
            scale, zero = getattr(self.prepared.ranges, str(at)).scale()
            path = f"{name.replace('#', '_')}.input_scale"
            self.scales.append(self._param(("input_scale", name), path, np.array(array_of(scale))))
            self.zeros.append(int(zero.item()))

    def _integers(self, layer: Layer) -> tuple[Value, Value | None, Value]:
        """A layer's weight, bias and weight scale, as params."""
        p = self.prepared
        weight, scale = GraphModule.weight(p, layer.weight).detach(), p.weight_scale(layer.weight)
        if layer.node.op.name == "matmul":
            weight = weight.transpose(0, 1)
        whole = quantize_weight(weight, scale)
        bias = None
        if layer.bias is not None:
            steps = GraphModule.weight(p, layer.bias).detach().double() / (
                p.input_scale(layer)[0].double() * scale.double()
            )
            path = f"{layer.name.replace('#', '_')}.bias"
            bias = self._param(("bias", layer.name), path, np.rint(array_of(steps)).astype(np.int32))
        path = layer.weight
        return (
            self._param(("bytes", path), path, whole),
            bias,
            self._param(("scale", path), f"{path}_scale", np.array(array_of(scale))),
        )

    # ---- nodes
    def _quantize(self, value: Value) -> None:
        """Emit the bytes of a value, where it is a point."""
        for at, point in enumerate(self.points.values):
            if point is value:
                made = quantize_affine(
                    self.values[value], self.scales[at], zero_point=self.zeros[at], dtype=uint8
                )
                self.bytes[value] = made, at

    def _float(self, value: Value | None) -> Value | None:
        """What an operand is to a node that reads floats."""
        if value is None:
            return None
        if value in self.bytes:
            byte, at = self.bytes[value]
            return dequantize_affine(byte, self.scales[at], zero_point=self.zeros[at])
        if value in self.paths:
            path = self.paths[value]
            weight = GraphModule.weight(self.prepared, path)
            trained = any(path == name for name, _ in self.prepared.named_parameters())
            return self._param(("float", path), path, np.array(array_of(weight)), trained)
        return self.values.get(value, value)

    def _result(self, value: Value) -> Any:
        return self.values[value] if value in self.values else self._float(value)

    def _node(self, node: Node) -> None:
        layer = self.of_node.get(node)
        if layer is not None:
            made = self._layer(layer)
            self.layers[made] = layer.name
            self.values[node.outputs[0]] = made
        elif node.outputs[0] in self.points.moved and node.inputs[0] in self.bytes:
            byte, at = self.bytes[node.inputs[0]]
            again = self.b.emit(node.op, (byte,), node.attrs)
            self.bytes[node.outputs[0]] = again.outputs[0], at
            return
        else:
            again = self.b.emit(node.op, [self._float(v) for v in node.inputs], node.attrs)
            self.values.update(zip(node.outputs, again.outputs, strict=True))
        for value in node.outputs:
            self._quantize(value)

    def _layer(self, layer: Layer) -> Value:
        node = layer.node
        source: Any = node.inputs[0]
        byte, at = self.bytes[source]
        weight, bias, scale = self._integers(layer)
        how = {k: v for k, v in node.attrs.items() if k in ("stride", "padding", "dilation", "groups")}
        return self.b.emit(
            BYTE_LAYERS[node.op.name],
            (byte, weight, bias, self.scales[at], scale),
            {**how, "zero_point": self.zeros[at]},
        ).outputs[0]
