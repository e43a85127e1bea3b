"""A model as a graph: recorded once in evaluation mode, norms folded into the layers before them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir.errors import LaminaError
from ..ir.graph import Graph, Value
from ..ir.interpret import interpret
from ..jit.export import BEFORE, ExportError, captured
from ..jit.pytree import flatten
from ..jit.trace import TracedFunction
from ..nn import Module
from ..passes.graphs.freeze import freeze
from ..runtime import Tensor
from ..runtime.levels import array_of
from ..runtime.tensor import tensor_of
from .calling import by_place
from .graph_module import Leaf, Recorded, Weight
from .schemes import QuantizationError

LAYERS = ("conv1d", "conv2d", "linear", "matmul")
NOWHERE = "model.quantised"  # a path that nothing is written to


def record(
    model: Any, args: tuple, kwargs: Mapping[str, Any], dynamic: Mapping[Any, Any] | None = None
) -> Recorded:
    """What a model computes of such arguments.

    dynamic: sizes that change, by argument and dimension, as of jit.export; by default the first dimension of
    all tensors that have the same, where the model allows it.
    Raises QuantizationError for a model that can't be recorded: one that asks for values, draws random
    numbers, or writes what it is given.
    """
    while isinstance(model, TracedFunction):
        model = model.__wrapped__
    args, kwargs = _recordable((args, dict(kwargs)))

    def run(args: tuple, kwargs: dict[str, Any]) -> Any:
        return model(*args, **kwargs)

    wanted = _nested(model, args, kwargs, dynamic) if dynamic is not None else _batch(args, kwargs)
    modes = {each: each.training for each in model.modules()} if isinstance(model, Module) else {}
    try:
        for each in modes:
            each.training = False
        try:
            found = captured(run, NOWHERE, (args, kwargs), wanted)
        except LaminaError:
            if dynamic is not None or not wanted:
                raise
            found = captured(run, NOWHERE, (args, kwargs), {})
    except ExportError as error:
        said = (line.replace("export: run", "the model") for line in (error.rule, *error.details))
        raise QuantizationError(
            "quantize: the model can't be recorded as one graph",
            *said,
            'the schemes "int8-dynamic", "int8-weights", "int4-weights" and "bfloat16" need no recording',
        ) from None
    finally:
        for each, was in modes.items():
            each.training = was
    with found.known():
        graph = found.graph
        for step in BEFORE:
            graph = step(graph)
        count = len(found.arrays)
        first, rest = freeze(graph, frozenset(range(count, len(graph.params))))
    arrays = [np.asarray(found.call.array(source), order="C") for source in found.recording.sources[count:]]
    known = {id(x): (path, True) for path, x in model.named_parameters()} if isinstance(model, Module) else {}
    if isinstance(model, Module):
        known |= {id(x): (path, False) for path, x in model.named_buffers()}
    paths = {}
    for source, param in zip(found.recording.sources[count:], graph.params[count:], strict=True):
        paths[param] = known.get(id(found.call.tensor(source)), (None, False))
    handed = rest.params[count:]
    names = _names(rest, first, handed, paths)
    weights = tuple(
        Weight(name, np.array(array), trained)
        for (name, trained), array in zip(names, interpret(first, *arrays), strict=True)
    )
    shape, _ = flatten(found.expected)
    return Recorded(rest, weights, _structure((args, kwargs), [0]), found.outputs, by_place(model), shape)


def _recordable(given: Any) -> Any:
    """Arguments of which each tensor is another, and a batch of one repeated: it can't stand for others."""
    tensors = _tensors(given)
    times = 2 if tensors and all(x.ndim and x.shape[0] == 1 for x in tensors) else 1

    def copied(x: Any) -> Any:
        if isinstance(x, Tensor):
            array = array_of(x)
            return tensor_of(np.repeat(array, 2, axis=0) if times == 2 else array.copy())
        if type(x) in (tuple, list):
            return type(x)(map(copied, x))
        return {name: copied(each) for name, each in x.items()} if type(x) is dict else x

    return copied(given)


def _tensors(x: Any) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    items = x.values() if type(x) is dict else x if type(x) in (tuple, list) else ()
    return [t for item in items for t in _tensors(item)]


def _structure(x: Any, count: list[int]) -> Any:
    if isinstance(x, Tensor):
        count[0] += 1
        return Leaf(count[0] - 1)
    if type(x) in (tuple, list):
        return type(x)([_structure(each, count) for each in x])
    return {name: _structure(each, count) for name, each in x.items()} if type(x) is dict else x


# ---- sizes that change
def _batch(args: tuple, kwargs: dict[str, Any]) -> dict[Any, Any]:
    """The first dimension of all tensors that have that of the first one."""
    tensors = _tensors((args, kwargs))
    batch = next((x.shape[0] for x in tensors if x.ndim), 0)
    if batch < 2:
        return {}

    def of(x: Any) -> Any:
        if isinstance(x, Tensor):
            return {0: "batch"} if x.ndim and x.shape[0] == batch else None
        if type(x) in (tuple, list):
            return {at: said for at, each in enumerate(x) if (said := of(each)) is not None} or None
        items = x.items() if type(x) is dict else ()
        return {name: said for name, each in items if (said := of(each)) is not None} or None

    return {at: said for at, said in ((0, of(args)), (1, of(kwargs))) if said}


def _nested(model: Any, args: tuple, kwargs: dict[str, Any], dynamic: Mapping[Any, Any]) -> dict[Any, Any]:
    """What is said by the model's arguments, said by their places among (args, kwargs)."""
    forward = model.forward if isinstance(model, Module) else model
    names = [*inspect.signature(forward).parameters]
    positional: dict[Any, Any] = {}
    named: dict[Any, Any] = {}
    for key, said in dynamic.items():
        if key in kwargs:
            named[key] = said
        else:
            positional[names.index(key) if key in names[: len(args)] else key] = said
    return {at: said for at, said in ((0, positional), (1, named)) if said}


# ---- names
def _names(
    graph: Graph, first: Graph, handed: tuple[Value, ...], paths: Mapping[Value, tuple[str | None, bool]]
) -> list[tuple[str, bool]]:
    """For each weight its path, and whether it is trained: a model's own, or that of the layer it is for."""
    makers = {v: node for node in first.nodes for v in node.outputs}

    def origin(value: Value) -> str | None:
        """The path of the first weight that a value is made of."""
        while value in makers:
            operands = [v for v in makers[value].inputs if v is not None and (v in paths or v in makers)]
            if not operands:
                return None
            value = operands[0]
        return paths[value][0] if value in paths else None

    layers: dict[Value, str] = {}
    ours = {*handed}
    for node in graph.nodes:
        if node.op.name in LAYERS and node.inputs[1] in ours:
            weight = origin(node.inputs[1])
            if weight is not None:
                layers.setdefault(node.inputs[1], weight)
                if len(node.inputs) > 2 and node.inputs[2] in ours:
                    layers.setdefault(node.inputs[2], f"{weight.removesuffix('.weight')}.bias")
    found: list[tuple[str, bool]] = []
    taken: set[str] = set()
    for at, value in enumerate(handed):
        own, trained = paths.get(value, (None, False))
        name = own or layers.get(value) or f"computed.{at}"
        trained = trained or value in layers
        while name in taken or any(each.startswith(f"{name}.") for each in taken):
            name += "_"
        taken.add(name)
        found.append((name, trained))
    return found
