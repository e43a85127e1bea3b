"""`export` writes a traced function as one file that runs with NumPy alone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from ..ir.by_pairs import to_pairs
from ..ir.dims import symbol
from ..ir.errors import ArgumentError
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.interpret import interpret
from ..ir.lazy import load
from ..ir.op import REGISTRY
from ..ir.own_files import is_replaceable, replacing
from ..ir.types import type_of
from ..passes.graphs.cse import cse
from ..passes.graphs.dce import dce
from ..passes.graphs.fold_constants import fold_constants
from ..passes.graphs.fold_conv_bn import fold_conv_bn
from ..passes.graphs.freeze import freeze
from ..passes.graphs.pair_complex import pair_complex
from ..passes.graphs.simplify import simplify
from ..passes.pipeline import optimise
from ..runtime import Size, Tensor
from ..runtime.modes import no_grad
from ..runtime.tensor import tensor_of
from . import artifact, backend, pytree, tuning
from .artifact import ExportError, Sizes
from .dynamic import Wanted, labels, marked, named, opened
from .loaded import Loaded, graph_of
from .recording import Ready, Recording
from .replay import Call
from .repro import plain
from .sources import Arg, Fresh, Given, Held, Made, Memory, Source
from .trace import TracedFunction, trace

NEVER = -1  # the slot of the first argument that a function never came to; of others those below it
STORED = Held, Memory  # sources that a file has as they are now
# What is done before weights are frozen: norms fold while each is one node, and nothing is fused yet.
BEFORE = (fold_constants, simplify, cse, fold_conv_bn, fold_constants, simplify, cse, dce)
# Ops that round to the steps of a scale.  What lies at a half falls to either side as its sum is added up,
# and the layers after it make more of that: eager and compiled, an EfficientNet of bytes differed by 29 dB,
# less than by what 8 bits cost it (23 dB).  A file that computes something else differs by about 0 dB.
ROUNDING = {"quantize_affine", "_fake_quantize"}
BYTES = {"i8", "u8"}
NOISE = 10**-1.2  # of the sum of squares: 12 dB
# Where anybody's function calls `round`: of a thousand numbers one may have fallen to the other side, 30 dB.
# As sums differ by some units in the last place, of a hundred thousand about one does.
FEW = 10**-3.0


# By the suffix of a path: the module, above this one, whose `write` makes such a file of a function, the
# path, the example and `dynamic`.
FORMATS = {".onnx": "exchange.onnx.writing", ".so": "exchange.c_library.writing"}
WITHOUT_CODE = {".onnx"}  # those without levels of CPUs
ROOT = __name__.partition(".")[0]
GPU_CODE = f"{ROOT}.jit.gpu_code"  # loaded where a file is to have such


def export(
    function: Callable,
    path: str | os.PathLike | None = None,
    *example: Any,
    levels: Sequence[str] | None = None,
    dynamic: Mapping[Any, Any] | None = None,
    targets: Sequence[str] = ("cpu",),
    **options: Any,
) -> Callable | None:
    """Write what `function` does on arguments of these kinds as one file.

    function: a traced function or module, or one to be traced.  example: its arguments; their types, shapes
    and all values but tensors' are part of the model.  levels: of the CPU, by
    default all of machines of this kind: x86-64-v4, -v3 and -v2, or armv8-a.  dynamic: sizes that may be
    others than the example's, by argument and dimension, with a name, or a name, the least and the greatest:
    `{"x": {0: "batch", 1: ("time", 1, 4096)}}`.  Equal names are one size.  Sizes are from 1 on, or from what
    the function needs; what else it needs of them (`time % 4 == 0`) is looked at when the model is called.
    targets: architectures of GPUs that the file is to have code for as well, `["cpu", "sm_80", "sm_90"]`: the
    CPU's is always there.  It takes Triton and no GPU.

    The file takes the tensors among the arguments, in order, as arrays, and returns what the function
    returns.  Weights are stored as they are now, batch norms folded into the convolutions before them.  It is
    tried in a fresh process before it appears under its name.  A path that ends in `.onnx` becomes an ONNX
    model (docs/onnx.md), one that ends in `.so` a C library (docs/c_library.md).  options: of an ONNX model
    opset, input_names and output_names, of a C library name, header and weights.

    Of a plain function alone, it is that function: PyTorch's compiler is told by `@export` to keep one.

    Raises ExportError for a function that writes its arguments or captured tensors, asks for values, draws
    random numbers or needs ops without kernels, and where the file's results are not the function's; for a
    size that can't change, and where the function does something else for sizes that `dynamic` says; for a
    GPU also where an op has no kernel there, or sizes change.  Raises ArgumentError, DimError for what names
    no size.
    """
    if path is None:
        if not isinstance(function, FunctionType) or levels or dynamic or options or [*targets] != ["cpu"]:
            raise ArgumentError("export(function, path): path is missing, where the file is written")
        return function
    suffix = Path(os.fsdecode(path)).suffix
    if (module := FORMATS.get(suffix)) is not None:
        if levels is not None and suffix in WITHOUT_CODE:
            raise ArgumentError(f"export(levels): {os.fspath(path)} holds no code for levels of CPUs")
        if [*targets] != ["cpu"]:
            raise ArgumentError(f"export(targets): {os.fspath(path)} holds no code for GPUs; a .lam file can")
        options |= {} if levels is None else {"levels": levels}
        return import_module(f"{ROOT}.{module}").write(function, path, *example, dynamic=dynamic, **options)
    if options:
        raise ArgumentError(f"export({', '.join(options)}): {os.fspath(path)} is of a format without such")
    chosen = levels_of(levels)
    architectures = _architectures(targets, dynamic)
    found = captured(function, path, example, dynamic)
    with found.known():
        unfused, weights = frozen(found.graph, found.recording, found.call)
        graph = optimise(unfused)
    count = len(graph.params) - len(weights)
    gpus = {name: load(GPU_CODE).gpu_code(unfused, count, name) for name in architectures}
    with replacing(os.fspath(path)) as file:
        with found.known():
            artifact.write(
                file, graph, labels(function, example), weights, found.outputs, chosen, sizes=found.sizes,
                gpus=gpus,
            )  # fmt: skip
        file.flush()
        for arrays, expected in ((found.arrays, found.expected), *found.others()):
            _tried(file.name, arrays, expected, noise_of(graph))
    return None


def _architectures(targets: Sequence[str], dynamic: Mapping[Any, Any] | None) -> tuple[str, ...]:
    """The GPUs' architectures that a file is to have code for.  Raises ArgumentError, ExportError."""
    if [*targets] == ["cpu"]:
        return ()
    found = load(GPU_CODE).architectures(targets)
    if found and dynamic:
        raise ExportError(
            f"export(targets): code for {', '.join(found)} is of the example's sizes, and dynamic is given",
            "leave targets out, or write a file without dynamic for each set of sizes",
        )
    return found


def levels_of(levels: Sequence[str] | None) -> tuple[str, ...]:
    """The levels that a file is to have code for.  Raises ArgumentError."""
    chosen = tuple(dict.fromkeys(levels or artifact.own_levels()))
    if unknown := set(chosen) - artifact.LEVELS.keys():
        raise ArgumentError(f"export(levels): {', '.join(unknown)} is none of {', '.join(artifact.LEVELS)}")
    return chosen


@dataclass(frozen=True)
class Captured:
    """A function as a graph of what it computes.

    function: as the user wrote it.  recording: with a param for each tensor among the arguments, in order,
    before those of captured tensors, and what is returned for its results.  outputs: the structure of that.
    arrays: of the example.  expected: what the function gives for it.  wanted, sizes: of those that change.
    """

    function: Callable
    example: tuple[Any, ...]
    recording: Recording
    call: Call
    outputs: Any
    arrays: list[np.ndarray]
    expected: Any
    wanted: Wanted
    sizes: Sizes | None

    @property
    def graph(self) -> Graph:
        """Of the arguments, then of what is captured; what is returned are its results."""
        return self.recording.graph

    def known(self) -> AbstractContextManager[None]:
        """What is so of the sizes is known within this."""
        return self.sizes.known() if self.sizes else nullcontext()

    def others(self) -> Iterator[tuple[list[np.ndarray], Any]]:
        """Arguments of other sizes, and what the function gives for them."""
        for others in self.sizes.others() if self.sizes else ():
            arguments, arrays = _resized(self.example, self.wanted, self.sizes, others)
            with no_grad():
                yield arrays, self.function(*arguments)


def captured(
    function: Callable, path: str | os.PathLike, example: tuple[Any, ...], dynamic: Mapping[Any, Any] | None
) -> Captured:
    """Record a function that a file at `path` is to hold.  Raises what `export` does."""
    if not is_replaceable(os.fspath(path)):
        raise ExportError(f"export: {os.fspath(path)} is a folder, a pipe or a device", "name a file")
    wanted = named(function, example, dynamic or {})
    plain = function.__wrapped__ if isinstance(function, TracedFunction) else function
    traced = function if isinstance(function, TracedFunction) and not wanted else trace(plain)
    with no_grad(), marked(_tensors(example), wanted) if wanted else nullcontext():
        expected = traced.call_for_code(*example)
    recording, call = _recorded(traced, example, sized=not wanted)
    recording, arrays = _in_order(recording, call, example)
    graph, outputs = _pure(recording)
    recording, sizes = replace(recording, graph=graph), None
    if wanted:
        recording, sizes = _opened(recording, call, example, wanted, traced)
    return Captured(plain, example, recording, call, outputs, arrays, expected, wanted, sizes)


def tune_file(
    path: str | os.PathLike,
    seconds: float,
    out: str | os.PathLike | None = None,
    told: Callable[[tuning.Tuned], None] = tuning.shown,
) -> list[tuning.Tuned]:
    """Search schedules for an exported model on this machine, and write it with those; what was found.

    The code of the level that this machine runs is made anew, the others' and GPUs' stay as they were.
    seconds: of the search.  out: the file to write, `path` itself unless given.  told: hears of each kernel.
    Raises ExportError for a file without code for this machine, or where the new one computes something else
    (it is tried in a fresh process before it appears), ModelError for one that is damaged.
    """
    source, made = Path(path), os.fspath(path if out is None else out)
    if not is_replaceable(made):
        raise ExportError(f"tune: {made} is a folder, a pipe or a device", "name a file")
    graph, manifest, weights = graph_of(source)
    if "sizes" in manifest:
        raise ExportError(f"tune: {path} takes sizes that change, and schedules are searched for known ones")
    names = dict(zip(manifest["weights"], weights, strict=True))
    gpus = artifact.gpus_in(source)
    usable = [level for level in manifest["levels"] if level in artifact.levels_here()]
    if not usable:
        raise ExportError(
            f"tune: {path} has no code for this machine", f"levels: {', '.join(manifest['levels'])}"
        )
    level = min(usable, key=artifact.levels_here().index)
    count = len(graph.params) - len(weights)
    _, _, main = artifact.programs(graph, count, artifact.LEVELS[level])
    _, found = tuning.tune(main, seconds, backend.version(), told, artifact.LEVELS[level])
    arrays = [tuning.drawn(dtype, tuple(shape)) for _, dtype, shape in manifest["inputs"]]
    expected = Loaded(source, False, None)(*arrays)
    with replacing(made) as file:
        inputs = [name for name, *_ in manifest["inputs"]]
        levels = list(manifest["levels"])
        artifact.write(file, graph, inputs, names, manifest["outputs"], levels, {level: found}, gpus=gpus)
        file.flush()
        _tried(file.name, arrays, expected, noise_of(graph))
    return found


# ---- from a recording to a graph of inputs and weights -----------------------------------------------------
def _recorded(traced: TracedFunction, example: tuple, sized: bool) -> tuple[Recording, Call]:
    """The recording that serves these arguments, and the call that it serves.  Raises ExportError.

    sized: as of `recorded_for`.
    """
    found = traced.recorded_for(example, sized)
    if found is None:
        raise ExportError(f"export: {traced._name} could not be recorded", *traced.explain().splitlines())
    recording, call = found
    if recording.questions or recording.outcome.asks:
        how = recording.questions[0].how if recording.questions else "item"
        raise ExportError(
            f"export: {traced._name} asks for a value while it runs: {how}",
            "choose between tensors with where(condition, a, b)",
        )
    if recording.leaves is None:
        raise ExportError(
            f"export: {traced._name} returns what a file can't hold", "return tensors and numbers"
        )
    if recording.outcome.effects:
        raise ExportError(
            f"export: {traced._name} changes what Python sees, which an exported model can't",
            "leave out what it prints, appends and assigns",
        )
    if recording.written:
        sources = [recording.sources[i] for i in recording.written]
        what = "an argument" if any(isinstance(s, Arg) for s in sources) else "a captured tensor"
        raise ExportError(
            f"export: {traced._name} writes {what}",
            "an exported model has no state; call .eval() on modules that keep statistics",
        )
    for source in recording.sources:
        if not isinstance(source, (Arg, *STORED)):
            raise ExportError(
                f"export: {traced._name} needs {_described(source)}",
                "an exported model takes tensors only: pass it as an argument, or call .eval()",
            )
    return recording, call


def _described(source: Any) -> str:
    names = {"Draw": "random numbers", "Grad": "a gradient", "Number": "an optimizer's hyper-parameter"}
    return names.get(type(source).__name__, "a value that is asked for")


def _in_order(recording: Recording, call: Call, example: tuple) -> tuple[Recording, list[np.ndarray]]:
    """The recording with one param for each tensor among the arguments, in their order, and their arrays.

    A recording has them in the order in which they are used, and those alone that are.  Raises ExportError.
    """
    given = _given(call, example)
    if len({id(x._data) for x in given.values()}) < len(_tensors(example)):
        raise ExportError(
            "export: two of the arguments are one tensor, and a file can't tell if they always will be",
            "give a clone() for one of them",
        )
    known = dict(zip(recording.sources, recording.graph.params, strict=True))
    params: dict[Source, Value] = {}
    for source, x in given.items():
        params[source] = known.get(
            source, Value(recording.types.get(source, x._meta), f"unused{len(params)}")
        )
    for source, param in known.items():
        params.setdefault(source, param)
    graph = recording.graph.replace(params=tuple(params.values()))
    arrays = [np.asarray(x._data, order="C") for x in given.values()]
    return replace(recording, graph=graph, sources=tuple(params)), arrays


def _tensors(example: tuple) -> list[Tensor]:
    return [x for x in pytree.flatten((example, {}))[1] if isinstance(x, Tensor)]


def _given(call: Call, example: tuple) -> dict[Arg, Tensor]:
    """The tensors among the arguments, in order; also those that the function never came to."""
    slots = {id(x): i for i, x in reversed([*enumerate(call.S)])}
    return {Arg(slots.get(id(x), NEVER - i)): x for i, x in enumerate(_tensors(example))}


def _opened(
    recording: Recording, call: Call, example: tuple, wanted: Wanted, traced: TracedFunction
) -> tuple[Recording, Sizes]:
    """The recording with the user's sizes for symbols.  Raises ExportError."""
    given = _given(call, example)
    met = {id(x): recording.types.get(s, x._meta).shape for s, x in given.items() if s.index > NEVER}
    graph, sizes = opened(recording, met, wanted, traced.explain(detail=True).splitlines())
    names = {said.name: symbol(name) for name, said in sizes.ranges.items()}
    params = [*graph.params]
    for at, x in enumerate(given.values()):
        if id(x) not in met:  # which the function never came to
            own = {dim: names[said.name] for y, dim, said in wanted if y is x}
            shape = tuple([own.get(dim, n) for dim, n in enumerate(x.shape)])
            params[at] = Value(type_of(x.dtype, shape, x._meta.device), params[at].hint)
    return replace(recording, graph=graph.replace(params=tuple(params))), sizes


def _resized(
    example: tuple, wanted: Wanted, sizes: Sizes, others: Mapping[str, int]
) -> tuple[list[Any], list[np.ndarray]]:
    """The example's arguments at other sizes, what is in them repeated or left out, and their arrays."""
    by_name = {said.name: others[name] for name, said in sizes.ranges.items()}

    def change(x: Tensor) -> np.ndarray:
        array = np.asarray(x._data)
        for y, dim, said in wanted:
            if y is x:
                array = np.take(array, np.arange(by_name[said.name]) % array.shape[dim], axis=dim)
        return array

    return changed(example, change)


def changed(example: tuple, change: Callable[[Tensor], np.ndarray]) -> tuple[list[Any], list[np.ndarray]]:
    """The example's arguments with other arrays in their tensors, and these arrays."""
    arrays: list[np.ndarray] = []

    def of(x: Any) -> Any:
        if isinstance(x, (tuple, list)) and not isinstance(x, Size):
            items = [*map(of, x)]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
        if type(x) in pytree.DICTS:
            return type(x)((key, of(value)) for key, value in x.items())
        if not isinstance(x, Tensor):
            return x
        arrays.append(np.asarray(change(x), order="C"))
        return tensor_of(arrays[-1])

    return [*map(of, example)], arrays


def _pure(recording: Recording) -> tuple[Graph, Any]:
    """The recording's graph with just what is returned as its results, and their structure as JSON."""
    graph = recording.graph
    results: list[Value] = []
    params = dict(zip(recording.sources, graph.params, strict=True))
    from_base: dict[Value, int] = {}
    with Builder.extending(graph) as b:
        leaves: list[Any] = []
        for leaf in recording.leaves or ():
            maker: Any = recording.makers[leaf.at] if isinstance(leaf, Ready) else leaf
            if isinstance(maker, Given):  # seen as what it is where it is used, too
                maker = Made(maker, (), False, False, "none")
            if not isinstance(maker, Made):
                if maker is not None and not isinstance(maker, (bool, int, float, str)):
                    raise ExportError(f"export: a {type(maker).__name__} among the results can't be stored")
                leaves.append(["value", maker])
                continue
            base = maker.base
            at = recording.first + base.result if isinstance(base, Fresh) else None
            value = params.get(base.source) if at is None else graph.results[at]
            if value is None:
                raise ExportError("export: a captured tensor is returned as it is", "return its clone()")
            for name, attrs in maker.chain:
                value = b.emit(REGISTRY[name], (value,), dict(attrs)).outputs[0]
            if value not in from_base:
                from_base[value] = len(results)
                results.append(value)
            leaves.append(from_base[value])
        made = b.finish(results)
    return made, _tree(recording.shape, iter(leaves))


def _tree(shape: Any, leaves: Any) -> Any:
    """A structure as `lamina_model` reads it: a result's number, or ["tuple", ...], ["dict", [key, ...]]."""
    if shape is None:
        return next(leaves)
    kind, names, items = shape
    if kind in (tuple, list):
        return [kind.__name__, *(_tree(item, leaves) for item in items)]
    if not all(isinstance(name, str) for name in names):
        raise ExportError("export: the keys of a returned dict must be strings", f"keys: {names}")
    return ["dict", *([name, _tree(item, leaves)] for name, item in zip(names, items, strict=True))]


def need_real(*values: Value) -> None:
    """Refuse complex numbers among what goes in and comes out.  Raises ExportError."""
    if any(v.dtype.is_complex for v in values):
        raise ExportError(
            "export: complex numbers go in or come out, and a file takes and gives real ones",
            "view_as_complex(x) of pairs, and return view_as_real(y)",
        )


def frozen(graph: Graph, recording: Recording, call: Call) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of inputs, then weights, before anything is fused, and the weights by name."""
    sources = recording.sources
    frozen = frozenset(i for i, source in enumerate(sources) if isinstance(source, STORED))
    need_real(*graph.results, *(p for i, p in enumerate(graph.params) if i not in frozen))
    for step in (pair_complex, *BEFORE):
        graph = step(graph)
    first, rest = freeze(graph, frozen)
    arrays = [to_pairs(np.asarray(call.array(sources[i]), order="C")) for i in sorted(frozen)]
    values = interpret(first, *arrays)
    count = len(rest.params) - len(values)
    names = [f"input{i}" if i < count else f"weight{i - count}" for i in range(len(rest.params))]
    renamed = {p: Value(p.type, name) for p, name in zip(rest.params, names, strict=True)}
    nodes = []
    for node in rest.nodes:
        nodes.append(node.replace(inputs=tuple(v if v is None else renamed.get(v, v) for v in node.inputs)))
    rest = rest.replace(
        name="model",
        params=renamed.values(),
        nodes=nodes,
        results=[renamed.get(v, v) for v in rest.results],
    )
    return rest, dict(zip(names[count:], values, strict=True))


# ---- trying the file ---------------------------------------------------------------------------------------
_TRIAL = """
import io, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import lamina_model
assert "lamina" not in sys.modules
given = np.load(io.BytesIO(sys.stdin.buffer.read()))
flat = []
def leaves(x):
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        for item in x:
            leaves(item)
    elif isinstance(x, np.ndarray):
        flat.append(x)
leaves(lamina_model.run(*[given[str(i)] for i in range(len(given.files))]))
results = io.BytesIO()
np.savez(results, *flat)
sys.stdout.buffer.write(results.getvalue())
"""


def _tried(part: str, arrays: Sequence[np.ndarray], expected: Any, noise: float) -> None:
    """Run the file in a fresh process and compare.  Raises ExportError."""
    given = io.BytesIO()
    np.savez(given, **{str(i): plain(a) for i, a in enumerate(arrays)})
    command = [sys.executable, "-c", _TRIAL, part]
    done = subprocess.run(command, input=given.getvalue(), capture_output=True, timeout=600)
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines()
        raise ExportError("export: the file does not run in a fresh process", *said[-3:])
    with np.load(io.BytesIO(done.stdout)) as got:
        compare([plain(a) for a in arrays_of(expected)], [got[name] for name in got.files], noise)


def arrays_of(returned: Any) -> list[np.ndarray]:
    """The arrays of the tensors among what a function returned."""
    return [x._data for x in pytree.flatten(returned)[1] if isinstance(x, Tensor)]


def noise_of(graph: Graph) -> float:
    """What share of the sum of squares the differences of a file's results may have, beyond what sums round.

    `NOISE` where a graph, or a kernel in it, rounds to the steps of a scale: by ops that say so, or by
    `round` and a cast to bytes; `FEW` where it rounds otherwise; 0 where it does not.
    """
    nodes = [*_nodes(graph)]
    names = {node.op.name for node in nodes}
    rounded = "round" in names
    if names & ROUNDING or rounded and any(map(_makes_bytes, nodes)):
        return NOISE
    return FEW if rounded else 0.0


def _makes_bytes(node: Node) -> bool:
    """Whether a node makes bytes of floats."""
    from_floats = any(x is not None and x.dtype.is_floating_point for x in node.inputs)
    return from_floats and any(out.dtype.short in BYTES for out in node.outputs)


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of kernels in it."""
    for node in graph.nodes:
        yield node
        for attr in node.attrs.values():
            if isinstance(attr, Graph):
                yield from _nodes(attr)


def compare(expected: Sequence[np.ndarray], results: Sequence[np.ndarray], noise: float = 0.0) -> None:
    """Raise ExportError where a file's results are not the function's.  noise: as `noise_of` says."""
    for n, (a, b) in enumerate(zip(expected, results, strict=True)):
        if a.shape != b.shape or not (_close(a, b) or noise and _near(a, b, noise)):
            difference = np.abs(a.astype(np.float64) - b).max() if a.shape == b.shape and a.size else "shapes"
            raise ExportError(
                f"export: result {n} of the file is not the function's",
                f"largest difference: {difference}",
                "this is a fault of Lamina's: please report it with the text of traced.explain()",
            )


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind not in "f" or not a.size:
        return bool(np.array_equal(a, b))
    # Folding norms rounds each weight once more, Winograd each tile: some units in the last place of the
    # largest number, for each layer.
    bound = 4096 * float(np.finfo(a.dtype).eps) * float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=0, atol=max(bound, 1e-30), equal_nan=True))


def _near(a: np.ndarray, b: np.ndarray, noise: float) -> bool:
    """Whether two results differ by no more than such a share, and are not finite at the same places."""
    if not (a.dtype.kind == b.dtype.kind == "f"):
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(np.where(finite, 0.0, a), np.where(np.isfinite(b), 0.0, b), equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    return bool(((a - b) ** 2).sum() <= noise * (a * a).sum())


__all__ = ["ExportError", "export"]
