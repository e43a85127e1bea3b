"""Layers between DequantizeLinear and QuantizeLinear become layers of bytes, as a model is loaded.

    DequantizeLinear(x) ─┐
    DequantizeLinear(w) ─┼─ Conv ─>        becomes        x, w, b ── QuantizedConv ─>
    DequantizeLinear(b) ─┘

with one scale for each output channel of `w`, or one for all.  What is computed are the same sums, exactly,
where Conv of what the bytes stand for rounds.  What other operators read is dequantised once (`folding.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.dtypes import from_numpy_dtype
from .declared import STANDARD, Declared, Node, Subgraph

DOMAIN = "lamina"  # of operators that no file has
BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
WORDS = (np.dtype(np.int16), np.dtype(np.uint16))
FOLDED = ("int8", "uint8", "int16", "uint16", "int32")  # smaller ones would take up eight times as much
LAYERS = {"Conv": "QuantizedConv", "Gemm": "QuantizedLinear", "MatMul": "QuantizedLinear"}


def with_byte_layers(declared: Declared) -> Declared:
    """The model with layers of bytes where it has what they are made of; inner graphs stay as they are."""
    graph = declared.graph
    found = _Layers(graph)
    nodes = [found.changed(node) for node in graph.nodes]
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return declared
    read, kept = {*graph.outputs}, []
    for node in reversed(nodes):
        idle = node.op in (*COMPUTED, "QuantizeLinear") and read.isdisjoint(node.outputs)
        if found.made.keys() >= {*node.outputs} or idle:
            continue
        kept.append(node)
        read |= _reads(node)
    constants = {
        name: array
        for name, array in {**graph.constants, **found.made}.items()
        if name in read or name in graph.inputs
    }
    return replace(declared, graph=replace(graph, nodes=tuple(kept[::-1]), constants=constants))


def _reads(node: Node) -> set[str]:
    names = {*node.inputs}
    for graph in node.graphs:
        names |= {*graph.outputs}.union(*map(_reads, graph.nodes))
    return names


class _Layers:
    """What is known of a graph's names.  made: constants that take the place of nodes."""

    def __init__(self, graph: Subgraph):
        self.constants = {n: a for n, a in graph.constants.items() if n not in graph.inputs}
        self.makers = {name: node for node in graph.nodes for name in node.outputs}
        self.taken = {*graph.constants, *graph.inputs, *self.makers}
        self.made: dict[str, np.ndarray] = {}

    def known(self, name: str, depth: int = 4) -> np.ndarray | None:
        """The elements of a value that follows from the file alone."""
        if name in self.constants:
            return self.constants[name]
        node = self.makers.get(name)
        if node is None or depth == 0 or node.domain != STANDARD:
            return None
        if node.op == "Constant":
            value = node.attrs.get("value")
            return value if isinstance(value, np.ndarray) else None
        compute, counts = COMPUTED.get(node.op, (None, ()))
        operands = [self.known(each, depth - 1) for each in node.inputs] if len(node.inputs) in counts else []
        if compute is None or not operands or not all(map(_are_numbers, operands)):
            return None
        return compute(node, *operands)

    def dequantised(self, name: str) -> Node | None:
        """The DequantizeLinear that makes a value, where it is one of numbers of 8 or 32 bits."""
        node = self.makers.get(name)
        if node is None or (node.domain, node.op) != (STANDARD, "DequantizeLinear"):
            return None
        if len(node.inputs) not in (2, 3) or type(node.attr("axis", 1)) is not int:
            return None  # the operator says what is wrong with it
        return None if node.attr("block_size", 0) or node.attr("output_dtype", 0) else node

    def changed(self, node: Node) -> Node:
        """A node, as a layer of bytes where it is one, and as a rounding where it undoes a quantising."""
        if node.op == "DequantizeLinear":
            return self.rounding(node) or node
        layer = self.layer(node) if node.domain == STANDARD and node.op in LAYERS else None
        return layer or node

    def rounding(self, node: Node) -> Node | None:
        """What quantises to 16 bits and back, which kernels do not store; None for other nodes."""
        if len(node.inputs) not in (2, 3) or node.domain != STANDARD:
            return None  # the operator says what is wrong with it
        maker = self.makers.get(node.inputs[0])
        if maker is None or maker.op != "QuantizeLinear" or maker.inputs[1:] != node.inputs[1:]:
            return None
        zero = self.known(node.inputs[2]) if len(node.inputs) > 2 else None
        scale = self.known(node.inputs[1])
        if zero is None or scale is None or zero.dtype not in WORDS or scale.size != 1 or zero.size != 1:
            return None
        if scale.dtype != np.float32 or node.attr("output_dtype", 0) or maker.attr("precision", 0):
            return None
        limits = np.iinfo(zero.dtype)
        attrs = {"scale": float(scale.reshape(())), "zero_point": int(zero.reshape(())),
                 "low": int(limits.min), "high": int(limits.max)}  # fmt: skip
        return replace(node, op="Rounded", domain=DOMAIN, inputs=maker.inputs[:1], attrs=attrs)

    def layer(self, node: Node) -> Node | None:
        """The layer of bytes that a node is; None where it is another."""
        if len(node.inputs) not in (2, 3):
            return None
        image, rows = self.dequantised(node.inputs[0]), self.dequantised(node.inputs[1])
        if image is None or rows is None or len(image.inputs) < 3:
            return None
        scale, zero = self.known(image.inputs[1]), self.known(image.inputs[2])
        if (
            scale is None
            or zero is None
            or scale.size != 1
            or zero.size != 1
            or scale.dtype != np.float32
            or zero.dtype not in BYTES
        ):
            return None
        found = self.weight(node, rows)
        if found is None:
            return None
        weight, by_output = found
        steps = by_output.astype(np.float64) * float(scale.reshape(()))
        bias = self.bias(node, steps, len(weight))
        if bias is False or node.op == "Gemm" and not _is_linear(node):
            return None
        name = rows.inputs[0].removesuffix(".weight")
        while f"{name}.weight" in self.made:  # a weight of several layers
            name += "_"
        arrays = {"weight": weight, "bias": bias, "input_scale": scale.reshape(()), "weight_scale": by_output}
        names = {
            part: self.free(f"{name}.{part}", array) for part, array in arrays.items() if array is not None
        }
        self.made |= {names[part]: array for part, array in arrays.items() if array is not None}
        inputs = (image.inputs[0], *(names.get(part, "") for part in arrays))
        attrs = {**node.attrs, "zero_point": int(zero.reshape(())), "signed": int(zero.dtype == np.int8)}
        return replace(node, op=LAYERS[node.op], domain=DOMAIN, inputs=inputs, attrs=attrs)

    def free(self, name: str, array: np.ndarray) -> str:
        """A name for a constant that is no other value's of the model: others may read that one."""
        while (name in self.taken and not _same(self.constants.get(name), array)) or (
            name in self.made and not _same(self.made[name], array)
        ):
            name += "_"
        return name

    def weight(self, node: Node, rows: Node) -> tuple[np.ndarray, np.ndarray] | None:
        """A layer's weight, i8 with outputs first, and a scale for each."""
        weight, scale = self.known(rows.inputs[0]), self.known(rows.inputs[1])
        zero = self.known(rows.inputs[2]) if len(rows.inputs) > 2 else None
        if weight is None or scale is None or weight.dtype not in BYTES or scale.dtype != np.float32:
            return None
        if len(rows.inputs) > 2 and zero is None:
            return None
        if weight.dtype == np.uint8:
            if zero is None or (zero != 128).any():
                return None
            weight = (weight.astype(np.int16) - 128).astype(np.int8)
        elif zero is not None and zero.any():
            return None
        if weight.ndim < 2 or node.op != "Conv" and weight.ndim != 2:
            return None
        turned = node.op == "MatMul" or (node.op == "Gemm" and not node.attr("transB", 0))
        outputs = 1 if turned else 0
        if scale.size == 1:
            scale = np.full(weight.shape[outputs], scale.reshape(()), np.float32)
        elif scale.shape != (weight.shape[outputs],) or rows.attr("axis", 1) not in (
            outputs,
            outputs - weight.ndim,
        ):
            return None
        return np.ascontiguousarray(weight.T if turned else weight), np.array(scale)

    def bias(self, node: Node, steps: np.ndarray, count: int) -> Any:
        """A layer's bias in steps, None where it has none, False where that can't be said."""
        if len(node.inputs) < 3 or not node.inputs[2]:
            return None
        real = self.known(node.inputs[2])
        if not _are_numbers(real) or real.size != count:
            return False
        with np.errstate(all="ignore"):  # of a scale that is nothing
            whole = np.rint(real.reshape(-1).astype(np.float64) / steps)
        return whole.astype(np.int32) if np.abs(whole).max(initial=0.0) < 2.0**31 else False


def _same(a: np.ndarray | None, b: np.ndarray) -> bool:
    return a is not None and a.dtype == b.dtype and np.array_equal(a, b)


def _is_linear(node: Node) -> bool:
    return not node.attr("transA", 0) and node.attr("alpha", 1.0) == 1 and node.attr("beta", 1.0) == 1


def _dequantised(node: Node, x: np.ndarray, scale: np.ndarray, zero: Any = None) -> np.ndarray | None:
    axis = node.attr("axis", 1)
    if type(axis) is not int or x.dtype.name not in FOLDED or node.attr("block_size", 0):
        return None
    if zero is not None and zero.shape != scale.shape and not zero.size == scale.size == 1:
        return None
    if scale.size == 1:
        scale, zero = scale.reshape(()), None if zero is None else zero.reshape(())
    elif -x.ndim <= axis < x.ndim and scale.shape == (x.shape[axis],):
        shape = [-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]
        scale, zero = scale.reshape(shape), None if zero is None else zero.reshape(shape)
    else:
        return None
    with np.errstate(all="ignore"):
        real = x.astype(np.float32) if zero is None else x.astype(np.float32) - zero.astype(np.float32)
        return (real * scale.astype(np.float32)).astype(scale.dtype)


def _product(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """A product that is as large as the first factor: another could be of any size."""
    if a.dtype != b.dtype or b.size != 1 and b.shape != a.shape or b.ndim > a.ndim:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(a * b, a.dtype)


def _transposed(node: Node, x: np.ndarray) -> np.ndarray | None:
    order = node.attr("perm", tuple(reversed(range(x.ndim))))
    fits = isinstance(order, tuple) and sorted(order) == [*range(x.ndim)]
    return np.transpose(x, order) if fits else None


def _reshaped(node: Node, x: np.ndarray, shape: np.ndarray) -> np.ndarray | None:
    sizes = shape.tolist() if shape.dtype == np.int64 and shape.ndim == 1 else [0]
    return x.reshape(sizes) if min(sizes, default=1) > 0 and math.prod(sizes) == x.size else None


def _are_numbers(x: Any) -> bool:
    return isinstance(x, np.ndarray) and from_numpy_dtype(x.dtype) is not None


# What makes of known values, of so many, others that are known; None for what the operator would refuse.
COMPUTED: dict[str, tuple[Callable[..., np.ndarray | None], tuple[int, ...]]] = {
    "DequantizeLinear": (_dequantised, (2, 3)),
    "Mul": (_product, (2,)),
    "Transpose": (_transposed, (1,)),
    "Identity": (lambda node, x: x, (1,)),
    "Reshape": (_reshaped, (2,)),
}
