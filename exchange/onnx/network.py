"""A model of an ONNX file as a module: its weights are parameters, its graph runs node by node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...ir.errors import ArgumentValueError
from ...nn import Buffer, Module, Parameter
from ...runtime import Tensor, tensor
from ...runtime.allowance import bounded, machine_memory
from .byte_layers import DOMAIN, with_byte_layers
from .declared import Declared, Kind, OnnxError, Subgraph
from .folding import folded, is_weight
from .opset import OPERATORS
from .opset.registry import Value, as_tensor
from .running import Model, Scope

MOST_NODES = 1 << 24  # nodes that loops may run in one call
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
    most_bytes: by how much a call may let the process grow that runs it node by node, or is recorded; three
    quarters of the machine's memory unless given.  most_nodes: how many nodes its loops may run.
    """

    def __init__(self, declared: Declared, most_bytes: int | None = None, most_nodes: int = MOST_NODES):
        super().__init__()
        self.most_bytes, self.most_nodes = most_of(most_bytes), most_nodes
        declared, computed = folded(declared, self.most_bytes)
        graph = declared.graph
        self.inputs: Mapping[str, Kind] = {
            name: kind for name, kind in graph.inputs.items() if name not in graph.constants
        }
        self.outputs: Mapping[str, Kind] = graph.outputs
        self._defaults = [name for name in graph.inputs if name in graph.constants]
        constants: dict[str, Value] = {}
        paths: dict[str, str] = {}
        statistics, read = _operands(graph, STATISTICS), _operands(graph, READ)
        of_bytes = {name for node in graph.nodes if node.domain == DOMAIN for name in node.inputs[1:]}
        for name, value in graph.constants.items():
            if name in of_bytes:
                paths[name] = self._place(name, value, True)
            elif not is_weight(value) or name in read or name in computed:
                constants[name] = value
            else:
                paths[name] = self._place(name, value, name in statistics)
        self._model = Model(declared, constants, paths)

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
        scope = _Outermost(self, self._model, self._model.constants)
        scope.left[0] = self.most_nodes
        for at, name in enumerate(names):
            value = inputs[at] if at < len(inputs) else named.get(name)
            scope.values[name] = self._input(name, self.inputs[name], value)
        for name in self._defaults:
            if name in named:
                scope.values[name] = named[name]
        with bounded(self.most_bytes):
            values = scope.outputs(self._model.declared.graph.nodes, [*self.outputs])
            found = [as_tensor(each) for each in values]
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
        path = self.model.paths.get(name)
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


def most_of(most_bytes: int | None) -> int:
    """What a call may take: three quarters of the machine's memory unless given."""
    if most_bytes is not None and most_bytes <= 0:
        raise ArgumentValueError(f"most_bytes is above 0, not {most_bytes}")
    return machine_memory() * 3 // 4 if most_bytes is None else most_bytes


def load(
    source: str | os.PathLike | bytes, *, most_bytes: int | None = None, most_nodes: int = MOST_NODES
) -> OnnxModule:
    """A module of an ONNX file, or of its bytes, in evaluation mode.

    Opsets 7 to 28 are known.  Nothing in the file is run, and of other files those alone are read that stand
    beside it and hold its weights.  most_bytes, most_nodes: what a call may take (OnnxModule), which raises
    OutOfMemoryError where it would be more, and OnnxError for longer loops.  Raises OnnxError for what is no
    model and for operators that are not known, by name; ImportError without the package `onnx`.
    """
    from .reading import read  # noqa: PLC0415 - imports the package onnx, which is an extra

    with bounded(most_of(most_bytes)):
        return module_of(with_byte_layers(read(source)), most_bytes, most_nodes)


def module_of(declared: Declared, most_bytes: int | None = None, most_nodes: int = MOST_NODES) -> OnnxModule:
    """The module of a model that was read."""
    unknown = _unknown(declared)
    if unknown:
        raise OnnxError("the model has operators that are not known", *sorted(unknown))
    module = OnnxModule(declared, most_bytes, most_nodes)
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
