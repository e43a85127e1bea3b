"""`load` runs a file that `export` wrote: its own native code, or its graph compiled anew.

The second is for files of others, and runs nothing that is in them.  What such a file may cost is bounded by
what its graph's types say, before anything is computed: an author can spell arrays of any size in one line.
"""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Any

import numpy as np

from ..ir.dims import symbols_of
from ..ir.dtypes import bfloat16
from ..ir.errors import ArgumentError, DeviceError, LaminaError
from ..ir.graph import Graph, Value
from ..ir.memo import remember
from ..ir.placed import nodes_of, placed
from ..ir.specialise import specialise
from ..ir.text import parse
from ..ir.types import CPU, Device
from ..ir.verify import verify
from ..ir.where import Where
from ..nn.module import destination
from ..nn.resizing import TABLES as RESIZING
from ..runtime import Tensor, modes
from ..runtime.tensor import tensor_of
from .backend import compile_graph
from .lamina_model import (
    GRAPH,
    TABLES,
    WEIGHTS,
    Model,
    ModelError,
    Sizes,
    built,
    fitting,
    nbytes,
    physical_memory,
    read,
    result_count,
    tensors,
)  # fmt: skip

TABLES.update(RESIZING)

# Bytes that all arrays of a stranger's graph may have together: whichever is more, as far as there is memory.
LEAST_BYTES, BYTES_PER_BYTE_OF_FILE = 1 << 30, 256
LONGEST_NAME = 4096  # characters of a file's or of modules, where a node is from
MOST_WORK = 600e9  # nanoseconds that a call may take by the compiler's estimate, on one thread


class Loaded:
    """An exported model: called with tensors, it returns tensors.

    native: whether the file's own code runs, or its graph was compiled anew.  graph: its text.  inputs: of
    each its name, dtype and shape, in which sizes that change are names.
    """

    _sizes: Sizes | None

    def __init__(self, path: Path, native: bool, max_bytes: int | None):
        self.path, self.native = path, native
        if native:
            model = Model(path, max_bytes=max_bytes)
            self.graph, self.inputs, self._run = model.graph, model.inputs, model.run
            self._sizes = model.sizes
            return
        graph, manifest, weights = graph_of(path, max_bytes)
        count = len(graph.params) - len(weights)
        sizes = self._sizes = Sizes(manifest) if "sizes" in manifest else None
        shapes = sizes.shapes if sizes else [tuple(shape) for _, _, shape in manifest["inputs"]]
        self.graph = str(graph)
        self.inputs = [(about[0], about[1], shape) for about, shape in zip(manifest["inputs"], shapes)]
        kept = [tensor_of(w) for w in weights]
        codes: dict[tuple, Any] = {} if sizes else {(): (compiled(path, graph, count), [])}

        def code_for(arrays: Sequence[np.ndarray]) -> Any:
            """The code for sizes that change: made for each set of them."""
            found = sizes.of(arrays) if sizes else {}
            key = tuple(found.values())
            if key not in codes:
                with blamed(path):
                    made = checked(specialise(graph, found), bytes_for(path, max_bytes))
                tables = sizes.tables(found, bytes_for(path, max_bytes)) if sizes else []
                return remember(codes, key, (compiled(path, made, count), tables))
            return codes[key]

        def run(*arrays: np.ndarray) -> Any:
            given = fitting(arrays, self.inputs)
            code, tables = code_for(given)
            results = code.run([*map(_own, given), *tables, *weights], [*(None,) * count, *kept])
            return built(manifest["outputs"], results)

        self._run = run

    def __call__(self, *inputs: Any) -> Any:
        """The model's outputs.  Raises TypeError, ValueError for what does not fit its inputs."""
        if modes.CHANGED:
            modes.tell("refuse", "an exported model ran")
        arrays = [x._data if isinstance(x, Tensor) else np.asarray(x) for x in inputs]
        return _tensors(self._run(*arrays))

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest of each size that changes, by its name."""
        return {name: (low, high) for name, low, high in self._sizes.ranges.values()} if self._sizes else {}

    def check(self, *inputs: Any) -> None:
        """Raises TypeError, ValueError for what a call would not take, and computes nothing."""
        arrays = fitting([x._data if isinstance(x, Tensor) else np.asarray(x) for x in inputs], self.inputs)
        if self._sizes:
            self._sizes.of(arrays)

    forward = __call__

    def train(self, mode: bool = True) -> Loaded:
        """Itself, with mode False.  Raises ArgumentError: what was exported can't be trained."""
        if mode:
            raise ArgumentError(
                "an exported model has no training mode: train the module that it was made of"
            )
        return self

    def eval(self) -> Loaded:
        """Itself."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> Loaded:
        """Itself, on the CPU.  Raises DeviceError, ArgumentError for another device or dtype."""
        device, dtype = destination(args, kwargs)
        if dtype is not None:
            raise ArgumentError(
                f"an exported model computes in the dtypes that it was exported with, not {dtype}"
            )
        if device is not None and Device(device).type != "cpu":
            raise DeviceError(f"an exported model takes and gives tensors of the CPU, not of {device}")
        return self

    def cpu(self) -> Loaded:
        """Itself."""
        return self

    def __reduce__(self) -> Any:
        raise ArgumentError("an exported model can't be copied or pickled: load it where it is needed")

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{name}: {dtype}[{', '.join(map(str, shape))}]" for name, dtype, shape in self.inputs
        )
        return f"<exported {self.path.name}({inputs})>"


def graph_of(path: Path, max_bytes: int | None = None) -> tuple[Graph, dict[str, Any], list[np.ndarray]]:
    """The graph in a file, the manifest and the weights, with nothing computed yet.  Raises ModelError.

    max_bytes: as for `load`.
    """
    manifest, members = read(path)
    with blamed(path):
        graph, weights = _understood(manifest, members, bytes_for(path, max_bytes))
        graph = with_places(graph, manifest)
    return graph, manifest, weights


def with_places(graph: Graph, manifest: Mapping[str, Any]) -> Graph:
    """The graph with where its nodes are from, if the file says so.  Raises ModelError."""
    nodes, places, count = manifest.get("nodes"), manifest.get("places"), len([*nodes_of(graph)])
    if nodes is None and places is None:  # an older file
        return graph
    if not (
        isinstance(places, list)
        and all(map(_is_place, places))
        and isinstance(nodes, list)
        and len(nodes) == count
        and all(type(n) is int and 0 <= n < len(places) for n in nodes)
    ):
        raise ModelError("its manifest is damaged: places of nodes")
    return placed(graph, [Where(*places[n]) for n in nodes])


def _is_place(x: Any) -> bool:
    if not isinstance(x, list) or len(x) != 3:
        return False
    file, line, modules = x
    texts = all(isinstance(text, str) and len(text) <= LONGEST_NAME for text in (file, modules))
    return texts and type(line) is int and 0 <= line < 1 << 31


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """What is wrong with a graph in this block is wrong with the file."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except (LaminaError, RecursionError, MemoryError) as error:
        raise ModelError(f"{path}: its graph is damaged: {error}") from error


def bytes_for(path: Path, max_bytes: int | None) -> int:
    """How many bytes the arrays of a file's graph may have together."""
    if max_bytes is not None:
        return max_bytes
    return min(max(LEAST_BYTES, BYTES_PER_BYTE_OF_FILE * os.path.getsize(path)), physical_memory())


def compiled(path: Path, graph: Graph, count: int) -> Any:
    """A graph of so many inputs, and weights, as code.  Raises ModelError."""
    try:
        code = compile_graph(graph, frozen=frozenset(range(count, len(graph.params))))
    except (LaminaError, RecursionError, MemoryError) as error:
        raise ModelError(f"{path}: its graph can't be compiled: {error}") from error
    work = sum(made.manifest.nanoseconds for made in (code.first, code.main) if made is not None)
    if work > MOST_WORK:  # windows and sums hide work from types
        seconds = f"{work / 1e9:,.0f} s, more than {MOST_WORK / 1e9:.0f}"
        raise ModelError(f"{path}: a call would take some {seconds}")
    return code


def _understood(
    manifest: dict[str, Any], members: dict[str, bytes], max_bytes: int
) -> tuple[Graph, list[np.ndarray]]:
    """The graph and its weights, if both are what the manifest says, and no larger than allowed.

    Raises ModelError, GraphError.
    """
    stored = tensors(members[WEIGHTS])
    if missing := [name for name in manifest["weights"] if name not in stored]:
        raise ModelError(f"it is damaged: it lacks the weights {', '.join(missing)[:200]}")
    weights = [_own(stored[name]) for name in manifest["weights"]]
    constants = {n[len("graph/") :]: _own(a) for n, a in stored.items() if n.startswith("graph/")}
    try:
        text = members[GRAPH].decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"its graph is damaged: {error}") from None
    graph = parse(text, constants)
    names = {name for name, *_ in manifest.get("sizes", ())}
    if any(not symbols_of(n) <= names for v in _values(graph) for n in v.type.shape):
        raise ModelError("its graph has sizes that its manifest doesn't know")
    if not names:
        checked(graph, max_bytes)
    arrays = [*(x[1:] for x in manifest["inputs"]), *(x[2:] for x in manifest.get("tables", ()))]
    wanted = [(dtype, tuple(map(str, shape))) for dtype, shape in arrays]
    wanted += [(tensor_of(w).dtype.short, tuple(map(str, w.shape))) for w in weights]
    if [(p.dtype.short, tuple(map(str, p.shape))) for p in graph.params] != wanted:
        raise ModelError("it is damaged: its graph does not take its inputs and weights")
    if result_count(manifest["outputs"]) > len(graph.results):
        raise ModelError("it is damaged: its graph has fewer results than it returns")
    return graph, weights


def checked(graph: Graph, max_bytes: int) -> Graph:
    """The graph, if its sizes are known, and its arrays no larger than allowed.

    Raises ModelError, GraphError.
    """
    needs = 0
    for value in _values(graph):  # before they are verified: that runs the rules of types, on these sizes
        kind = value.type
        if kind.device != CPU or not all(isinstance(n, int) for n in kind.shape):
            raise ModelError(f"its graph holds {kind}: an exported one's sizes are known, and on the CPU")
        needs += nbytes(kind.dtype.short, kind.shape)
    if needs > max_bytes:
        raise ModelError(
            f"the arrays of its graph have {needs:,} bytes together, more than max_bytes={max_bytes:,}: "
            "if you trust it, load(path, native=False, max_bytes=…) allows more"
        )
    verify(graph)
    return graph


def _values(graph: Graph) -> Iterator[Value]:
    """What a graph and those nested in it hold, but for what is written in them as a number."""
    yield from graph.params
    yield from graph.constants.values()
    for node in graph.nodes:
        yield from node.outputs
        for attr in node.attrs.values():
            if isinstance(attr, Graph):
                yield from _values(attr)


def _own(array: np.ndarray) -> np.ndarray:
    """A file's array as Lamina has it: NumPy alone knows no bfloat16, and has its 16 bits."""
    return array.view(bfloat16.numpy) if array.dtype == np.uint16 else array


def _tensors(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return tensor_of(_own(x))
    if isinstance(x, dict):
        return {key: _tensors(value) for key, value in x.items()}
    return type(x)(map(_tensors, x)) if isinstance(x, (list, tuple)) else x


def load(
    path: str | os.PathLike | IO[bytes], map_location: Any = None, *, native: bool = True,
    max_bytes: int | None = None,
) -> Loaded:  # fmt: skip
    """The model in a file that `export` or `save` wrote.

    native: run the code in the file, which can do whatever its author wanted; False compiles the graph in it
    anew, for files of others.  max_bytes: of memory that the file may ask for.  By default a native one may
    have what the machine has; a graph's arrays may have 1 GiB together or 256 times the file's size, and a
    call of it may be estimated at ten minutes.  Raises ModelError for a file that is no model, is damaged,
    asks for more, or holds no code for this machine; FileNotFoundError.
    map_location: the CPU.  Raises DeviceError for another.
    """
    if map_location is not None and Device(map_location).type != "cpu":
        raise DeviceError(
            f"load(map_location): an exported model takes and gives tensors of the CPU, not of {map_location}"
        )
    if isinstance(path, (str, os.PathLike)):
        return Loaded(Path(path), native, max_bytes)
    folder = mkdtemp()  # as long as the model, whose code is in the file
    try:
        file = Path(folder) / "model"
        file.write_bytes(path.read())
        found = Loaded(file, native, max_bytes)
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(found, shutil.rmtree, folder)
    return found


__all__ = ["Loaded", "ModelError", "load"]
