"""A model of an ONNX file as a module: its weights are parameters, its graph runs node by node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...nn import Buffer, Module, Parameter
from ...runtime import Tensor, tensor
from .byte_layers import DOMAIN, with_byte_layers
from .declared import Declared, Kind, OnnxError, Subgraph
from .opset import OPERATORS
from .opset.registry import Value, as_tensor
from .running import Model, Scope

FLOATS = ("float16", "float32", "float64", "bfloat16")  # what is trained
# Operands that are statistics, not weights, by operator.
STATISTICS = {"BatchNormalization": (3, 4)}
# Operands whose numbers are read while the graph runs: sizes, no weights.
READ = {"Resize": (1, 2), "Upsample": (1,), "MaxRoiPool": (1,), "RoiAlign": (1,)}


class OnnxModule(Module):
    """A model that came as an ONNX file: it is called with tensors, in the order of `inputs` or by name.

    Floating-point arrays of more than one element are parameters, under the names that they have in the file
    (those with dots in modules of modules), the statistics of norms buffers; all else stands in the graph.
    It trains, traces and exports as other modules do.

    inputs, outputs: by name, what they are.  Returns a tensor, or a tuple of them where there are several.
    """

    def __init__(self, declared: Declared):
        super().__init__()
        graph = declared.graph
        self.inputs: Mapping[str, Kind] = {
            name: kind for name, kind in graph.inputs.items() if name not in graph.constants
        }
        self.outputs: Mapping[str, Kind] = graph.outputs
        self._defaults = [name for name in graph.inputs if name in graph.constants]
        self._model = Model(declared)
        self._weights: dict[str, str] = {}  # at which path each is
        self._constants: dict[str, Value] = {}
        statistics, read = _operands(graph, STATISTICS), _operands(graph, READ)
        of_bytes = {name for node in graph.nodes if node.domain == DOMAIN for name in node.inputs[1:]}
        for name, value in graph.constants.items():
            if name in of_bytes:
                self._weights[name] = self._place(name, value, True)
            elif value.dtype.name not in FLOATS or value.size <= 1 or name in read:
                self._constants[name] = value
            else:
                self._weights[name] = self._place(name, value, name in statistics)

    def _place(self, name: str, value: np.ndarray, is_statistic: bool) -> str:
        """Enter an array under its name; returns the path at which it is then."""
        *path, leaf = [part or "_" for part in name.split(".")]
        module: Module = self
        for at, part in enumerate(path):
            inner = getattr(module, part, None)
            if not isinstance(inner, Module):
                if hasattr(module, part):  # a module's own word, or a weight of this name
                    path[at] = part = part + "_"
                inner = Module()
                module.add_module(part, inner)
            module = inner
        while hasattr(module, leaf):
            leaf += "_"
        kept = tensor(np.array(value))
        setattr(module, leaf, Buffer(kept) if is_statistic else Parameter(kept))
        return ".".join([*path, leaf])

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the graph.  Raises OnnxError for inputs that it does not take."""
        names = [*self.inputs]
        if len(inputs) > len(names):
            raise OnnxError(f"the model takes {len(names)} inputs, not {len(inputs)}: {', '.join(names)}")
        unknown = [name for name in named if name not in self.inputs and name not in self._defaults]
        missing = [
            name for name in names[len(inputs) :] if name not in named and not self.inputs[name].optional
        ]
        if unknown or missing:
            raise OnnxError(
                f"the model takes {', '.join(names)}",
                *(f"missing: {name}" for name in missing),
                *(f"not among them: {name}" for name in unknown),
            )
        scope = _Outermost(self, self._model, self._constants)
        for at, name in enumerate(names):
            value = inputs[at] if at < len(inputs) else named.get(name)
            scope.values[name] = self._input(name, self.inputs[name], value)
        for name in self._defaults:
            if name in named:
                scope.values[name] = named[name]
        found = [as_tensor(each) for each in scope.outputs(self._model.declared.graph.nodes, [*self.outputs])]
        return found[0] if len(found) == 1 else tuple(found)

    def _input(self, name: str, kind: Kind, value: Value) -> Value:
        """An input as it is used.  Raises OnnxError where it is another kind of thing."""
        if isinstance(value, np.ndarray):
            value = as_tensor(value)
        if isinstance(value, Tensor) and kind.shape is not None and not kind.sequence:
            fits = value.ndim == len(kind.shape)
            for dim, want in enumerate(kind.shape if fits else ()):
                if isinstance(want, int) and value.shape[dim] != want:
                    fits = False
            if not fits:
                wanted = ", ".join("?" if size is None else str(size) for size in kind.shape)
                raise OnnxError(f"the input {name!r} has the shape [{wanted}], not {[*value.shape]}")
        return value


class _Outermost(Scope):
    """The scope of a model's own graph, which reads its weights where they are in the module."""

    def __init__(self, module: OnnxModule, *rest: Any):
        super().__init__(*rest)
        self.module = module

    def weight(self, name: str) -> Value:
        path = self.module._weights.get(name)
        if path is None:
            return None
        owner: Value = self.module
        for part in path.split("."):
            owner = getattr(owner, part)
        return owner


def _operands(graph: Subgraph, places: Mapping[str, tuple[int, ...]]) -> set[str]:
    """The names that stand at these places of a graph's nodes, by operator."""
    return {
        node.inputs[at] for node in graph.nodes for at in places.get(node.op, ()) if at < len(node.inputs)
    }


def load(source: str | os.PathLike | bytes) -> OnnxModule:
    """A module of an ONNX file, or of its bytes, in evaluation mode.

    Opsets 7 to 28 are known.  Nothing in the file is run, and of other files those alone are read that stand
    beside it and hold its weights.  Raises OnnxError for what is no model and for operators that are not
    known, by name; ImportError without the package `onnx`.
    """
    from .reading import read  # noqa: PLC0415 - imports the package onnx, which is an extra

    return module_of(with_byte_layers(read(source)))


def module_of(declared: Declared) -> OnnxModule:
    """The module of a model that was read."""
    unknown = _unknown(declared)
    if unknown:
        raise OnnxError("the model has operators that are not known", *sorted(unknown))
    module = OnnxModule(declared)
    module.eval()
    return module


def _unknown(declared: Declared) -> set[str]:
    found = set()

    def walk(nodes: Any) -> None:
        for node in nodes:
            if (node.domain, node.op) not in OPERATORS and (node.domain, node.op) not in declared.functions:
                found.add(f"{node.domain}.{node.op}" if node.domain else node.op)
            for graph in node.graphs:
                walk(graph.nodes)

    walk(declared.graph.nodes)
    for function in declared.functions.values():
        walk(function.nodes)
    return found
