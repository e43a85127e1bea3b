"""Write a function as an ONNX model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count as count_from
from typing import Any

import numpy as np

from ...ir.by_pairs import to_pairs
from ...ir.dims import Dim
from ...ir.errors import ArgumentError
from ...ir.graph import Graph, Value
from ...ir.own_files import replacing
from ...ir.version import __version__
from ...jit import ExportError
from ...jit.dynamic import labels
from ...jit.export import Captured, arrays_of, captured, changed, compare, need_real, noise_of
from ...jit.sources import Held
from ...nn import Module
from ...passes.graphs.cse import cse
from ...passes.graphs.dce import dce
from ...passes.graphs.fold_constants import fold_constants
from ...passes.graphs.pair_complex import pair_complex
from ...runtime import Tensor
from ...runtime.modes import no_grad
from ...runtime.tensor import tensor_of
from .declared import STANDARD, Declared, Kind, Node, OnnxError, Subgraph, as_text
from .network import load
from .running import reads
from .writers import Writer
from .writers.graph_writer import SMALL

OPSETS = range(18, 27)
STEPS = (pair_complex, fold_constants, cse, dce)
MOST = (1 << 31) - (1 << 20)  # bytes of weights in a model; those of more lie beside it


def write(
    function: Callable,
    path: str | os.PathLike,
    *example: Any,
    dynamic: Mapping[Any, Any] | None = None,
    opset: int = 20,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Write what `function` does on arguments of these kinds as an ONNX model.

    function: a module, or a function of tensors, traced or not.  example: its arguments; all but tensors'
    values are part of the model.  dynamic: sizes that may be others than the example's, as of jit.export:
    `{"x": {0: "batch"}}`.  opset: of ONNX's operators, from 18 to 26.  input_names: of the tensors among the
    arguments, in order, by default those of the parameters.  output_names: of the tensors that are returned.

    Weights have the names of a module's parameters and are stored as they are now; those of more than 2 GB
    in a file beside the model's, `model.onnx.data`.  The model is run by ONNX Runtime, or else by Lamina, on
    the example and on others of its kind, before it appears under its name.

    Raises ExportError for a function that jit.export refuses, for ops that ONNX has nothing for, and where
    the model's results are not the function's; ArgumentError for names that are not one for each, ImportError
    without the package onnx.
    """
    if opset not in OPSETS:
        raise ArgumentError(
            f"export(opset): ONNX models are written in {OPSETS[0]} to {OPSETS[-1]}, not {opset!r}"
        )
    found = captured(function, path, example, dynamic)
    with found.known():
        declared = declared_of(found, opset, labels(function, example), input_names, output_names)
    _place(os.fspath(path), declared, found)


# ---- from a recording to a model
def declared_of(
    found: Captured,
    opset: int,
    inputs: Sequence[str],
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Declared:
    """The model of a function.  Raises ExportError."""
    count = len(found.arrays)
    need_real(*found.graph.params[:count], *found.graph.results)
    weights = zip(found.recording.sources[count:], _weight_names(found, count), strict=True)
    inputs = _names("input_names", input_names, inputs)
    outputs = _names("output_names", output_names, _output_names(len(found.graph.results)))
    if output_names is not None and (both := {*inputs} & {*outputs}):
        raise ArgumentError(f"export: {', '.join(sorted(both))} is the name of an input and of an output")
    return model_of_graph(
        found.graph,
        opset,
        inputs,
        {name: np.asarray(found.call.array(source), order="C") for source, name in weights},
        outputs,
        found.sizes.words if found.sizes else str,
        getattr(found.function, "__name__", type(found.function).__name__),
    )


def model_of_graph(
    graph: Graph,
    opset: int,
    inputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    words: Callable[[Any], str] = str,
    name: str = "model",
) -> Declared:
    """A graph as a model.

    inputs: the names of the first params, weights: those of the others, with their arrays.  outputs: the
    names of the results.  words: what a size that changes is called.  Raises ExportError.
    """
    for step in STEPS:
        graph = step(graph)
    w = Writer(opset)
    for param, said in zip(graph.params, [*inputs, *weights], strict=True):
        w.names[param] = w.declare(said, param.dtype)
    results = [w.declare(said, value.dtype) for said, value in zip(outputs, graph.results, strict=True)]
    given, captured = graph.params[: len(inputs)], graph.params[len(inputs) :]
    arrays = {w.names[p]: to_pairs(array) for p, array in zip(captured, weights.values(), strict=True)}
    for param in given:
        sizes = {n.text: (w.names[param], d) for d, n in enumerate(param.shape) if isinstance(n, Dim)}
        w.origins = {n: at for n, at in sizes.items() if n.isidentifier()} | w.origins
    w.write_graph(graph)
    nodes = _leading_to(_giving(w, graph.results, results), results)
    used = {each for node in nodes for each in reads(node)}
    constants = {each: array for each, array in (arrays | w.constants).items() if each in used}
    small = [each for each in constants if each in w.constants and constants[each].nbytes <= SMALL]
    nodes = (*(_constant(opset, each, constants.pop(each)) for each in small), *nodes)
    kinds = {w.names[param]: _kind(param, words) for param in given}
    returned = {said: _kind(value, words) for said, value in zip(results, graph.results, strict=True)}
    main = Subgraph(as_text(name), nodes, kinds, returned, constants)
    return Declared(main, {STANDARD: opset}, {}, f"lamina {__version__}")


def _constant(opset: int, name: str, array: np.ndarray) -> Node:
    """A node that gives a value: among the weights there are the user's alone, and what is large."""
    return Node("Constant", STANDARD, opset, (), (name,), {"value": array}, name)


def _names(what: str, given: Sequence[str] | None, usual: Sequence[str]) -> Sequence[str]:
    if given is None:
        return usual
    if isinstance(given, str) or len(given) != len(usual) or len({*given}) < len(given) or "" in given:
        raise ArgumentError(
            f"export({what}): {len(usual)} different names are wanted, not {given!r}",
            f"there are {', '.join(usual) or 'none'}",
        )
    return given


def _output_names(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output{n}" for n in range(count)]


def _kind(value: Value, words: Callable[[Any], str]) -> Kind:
    """What an input or output is, its sizes by the user's names."""
    return Kind(value.dtype.numpy, tuple(n if isinstance(n, int) else words(n) for n in value.shape))


def _weight_names(found: Captured, count: int) -> list[str]:
    """What the captured tensors are called: as in their modules, else w0, w1 and so on."""
    known = {id(x): path for path, x in _tensors_of(found.function)}
    names: dict[str, None] = {}
    for source in found.recording.sources[count:]:
        path = known.get(id(found.call.tensor(source))) if isinstance(source, Held) else None
        others = (f"w{n}" for n in count_from(0))
        names[next(name for name in others if name not in names) if path is None else path] = None
    return [*names]


def _tensors_of(function: Callable) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a module, and of those that a function holds."""
    for prefix, module in _modules_of(function):
        for path, x in (*module.named_parameters(), *module.named_buffers()):
            yield f"{prefix}{path}", x


def _modules_of(function: Any, depth: int = 4) -> Iterator[tuple[str, Module]]:
    if isinstance(function, Module):
        yield "", function
    elif isinstance(function, partial) and depth:
        for each in (function.func, *function.args, *function.keywords.values()):
            yield from _modules_of(each, depth - 1)
    elif inspect.ismethod(function) and isinstance(function.__self__, Module):
        yield "", function.__self__
    elif inspect.isfunction(function):
        inside = inspect.getclosurevars(function)
        held = {**inside.globals, **inside.nonlocals}
        modules = {name: x for name, x in held.items() if isinstance(x, Module)}
        for name, module in modules.items():
            yield "" if len(modules) == 1 else f"{name}.", module


def _giving(w: Any, results: Sequence[Value], names: Sequence[str]) -> list[Node]:
    """The nodes with the results under the names of outputs: those that make them are renamed, or copied."""
    made = {name for node in w.nodes for name in node.outputs}
    renamed: dict[str, str] = {}
    copies = []
    for value, output in zip(results, names, strict=True):
        name = w.name_of(value)
        if name in made and name not in renamed:
            renamed[name] = output
        else:
            copies.append(
                Node("Identity", STANDARD, w.opset, (renamed.get(name, name),), (output,), {}, output)
            )
    return [*(_renamed(node, renamed) for node in w.nodes), *copies]


def _leading_to(nodes: Sequence[Node], names: Iterable[str]) -> tuple[Node, ...]:
    """The nodes that the values of some names come from."""
    wanted, kept = {*names}, []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted |= reads(node)
    return tuple(reversed(kept))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    def inside(value: Any) -> Any:
        if not isinstance(value, Subgraph):
            return value
        return replace(value, nodes=tuple(_renamed(each, names) for each in value.nodes))

    return replace(
        node,
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(names.get(name, name) for name in node.outputs),
        attrs={name: inside(value) for name, value in node.attrs.items()},
    )


# ---- the file
def _place(path: str, declared: Declared, found: Captured) -> None:
    """Write the model and try it; then it appears under its name, and its weights beside it."""
    from .protobufs import model_of, write_weights  # noqa: PLC0415 - it imports onnx, an extra

    weights = declared.graph.constants
    with replacing(path) as file:
        if sum(array.nbytes for array in weights.values()) <= MOST:
            file.write(model_of(declared).SerializeToString())
            file.flush()
            _tried(file.name, found)
            return
        beside = f"{os.path.realpath(path)}.data"
        with replacing(beside) as data:
            write_weights(data, weights)
            data.flush()
            file.write(model_of(declared, os.path.basename(data.name)).SerializeToString())
            file.flush()
            _tried(file.name, found)
        file.seek(0)
        file.truncate()
        file.write(model_of(declared, os.path.basename(beside)).SerializeToString())


def _tried(path: str, found: Captured) -> None:
    """Run a model on the example, on others of its kind and of other sizes.  Raises ExportError."""
    run = _runner(path)
    for arrays, expected in _trials(found):
        results = run(arrays)
        wanted = arrays_of(expected)
        for a, b in zip(wanted, results, strict=True):
            if a.dtype != b.dtype:
                raise ExportError(f"export: the model returns {b.dtype}, not {a.dtype}")
            a, b = _comparable(a, b)
            compare([a], [b], noise_of(found.graph))


def _trials(found: Captured) -> Iterator[tuple[list[np.ndarray], Any]]:
    """Arguments, and what the function gives for them: the example, that in another order, other sizes."""
    yield found.arrays, found.expected
    rng = np.random.default_rng(0)
    arguments, arrays = changed(
        found.example, lambda x: rng.permutation(x._data.reshape(-1)).reshape(x.shape)
    )
    if len(arrays) == len(found.arrays):
        with no_grad():
            yield arrays, found.function(*arguments)
    yield from found.others()


def _comparable(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two results as `compare` takes them: of bfloat16, equal within two units in the last place."""
    if a.dtype.name != "bfloat16" or a.shape != b.shape:
        return a, b
    a, b = a.astype(np.float32), b.astype(np.float32)
    near = np.abs(a - b) <= 2.0**-6 * np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return a, np.where(near, a, b)


def _runner(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """What runs a model: ONNX Runtime, or Lamina where that is not there or lacks a kernel."""
    try:
        import onnxruntime  # noqa: PLC0415 - an extra
    except ImportError:
        return _by_lamina(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return _by_lamina(path)
    except Exception as error:
        raise ExportError(
            f"export: ONNX Runtime does not take the model: {type(error).__name__}", str(error)
        ) from None
    given = session.get_inputs()
    if any(
        "bfloat16" in each.type for each in (*given, *session.get_outputs())
    ):  # of which Python has no arrays
        return _by_lamina(path)
    names = [each.name for each in given]

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            return session.run(None, dict(zip(names, arrays, strict=True)))
        except Exception as error:
            raise ExportError(
                f"export: ONNX Runtime does not run the model: {type(error).__name__}", str(error)
            ) from None

    return run


def _by_lamina(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    model = load(path)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with no_grad():
            try:
                return arrays_of(model(*map(tensor_of, arrays)))
            except OnnxError as error:
                raise ExportError("export: the model does not run", str(error)) from None

    return run
