"""What must come of any text: it is refused by an error of the kind it promises, or it is a graph or a kernel
that prints back to itself, verifies or is refused, and computes what it declares.
"""

from __future__ import annotations

from math import prod

import numpy as np
from driver import Wrong

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import kernel as kernels
from lamina.ir.dims import Dim, symbols_of
from lamina.ir.errors import GraphError, KernelError, LaminaError
from lamina.ir.graph import Graph
from lamina.ir.interpret import interpret
from lamina.ir.kernel.affine import Affine
from lamina.ir.kernel.form import Fold, Kernel, Store
from lamina.ir.kernel.scalar import Read, walk
from lamina.ir.kernel.types import NUMPY
from lamina.ir.specialise import specialise
from lamina.ir.text import parse
from lamina.ir.verify import verify
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.programs.program_text import constants_of, program_text
from lamina.passes.programs.program_text import parse as parse_program
from lamina.passes.run import verified

SMALL = 20_000  # elements of all values of a graph, points of all stages of a kernel: what is run, too


def judge_graph(text: str) -> str:
    """ "refused", "parsed" (and refused by verify), "verified" (too large to run), "raised" or "ran".

    Raises Wrong, and whatever internal error there is.
    """
    try:
        graph = parse(text, TABLES)
    except GraphError as error:
        told(error)
        return "refused"
    again = str(graph)
    if str(parse(again, graph.constants)) != again:
        raise Wrong("the text of the graph is not read back as it was")
    try:
        verify(graph)
    except GraphError as error:
        told(error)
        return "parsed"
    names = {s for p in graph.params for d in p.shape for s in symbols_of(d)}
    if names:
        sizes = {name: 2 + k % 3 for k, name in enumerate(sorted(names))}
        try:
            graph = specialise(graph, sizes)
        except LaminaError:
            return "verified"
    if not is_small(graph):
        return "verified"
    arrays = [array_for(p.type.dtype.numpy, p.shape) for p in graph.params]
    try:
        results = interpret(graph, *arrays)
    except LaminaError as error:
        told(error)
        return "raised"
    host = any(node.op.traits.host for node in graph.nodes)
    for value, array in zip(graph.results, results, strict=True):
        if array.dtype != value.dtype.numpy or (array.shape != value.shape and not host):
            raise Wrong(f"a result declared {value.type} is {array.dtype}{list(array.shape)}")
    return "ran"


DATA = {"c": np.arange(35, dtype=np.float32).reshape(5, 7)}  # of the random programs
TABLES = {name: np.ones(shape, np.float32) for name, shape in (("table", 3), ("c", (2, 3)), ("w", (3, 3)))}


def is_small(graph: Graph) -> bool:
    """Whether every value has known sizes, and they are few elements."""
    values = {*graph.params, *graph.used(), *(v for node in graph.nodes for v in node.outputs)}
    if any(isinstance(d, Dim) or d < 0 for v in values for d in v.shape):
        return False
    nested = [a for node in graph.nodes for a in node.attrs.values() if isinstance(a, Graph)]
    return sum(prod(v.shape) for v in values) <= SMALL and all(map(is_small, nested))


def array_for(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Small whole numbers of both signs."""
    numbers = np.arange(prod(shape)) * 7 % 5 - (0 if dtype.kind in "bu" else 2)
    return numbers.astype(dtype).reshape(shape)


def judge_kernel(text: str) -> str:
    """As `judge_graph`, for the text of a kernel; a verified one touches nothing outside of its buffers."""
    try:
        kernel = kernels.parse(text)
    except KernelError as error:
        told(error)
        return "refused"
    again = str(kernel)
    if str(kernels.parse(again)) != again:
        raise Wrong("the text of the kernel is not read back as it was")
    try:
        kernels.verify(kernel)
    except KernelError as error:
        told(error)
        return "parsed"
    kernel = kernels.bind(kernel, **{name: 2 + k % 3 for k, name in enumerate(kernel.symbols)})
    if not few_points(kernel):
        return "verified"
    in_bounds(kernel)
    arrays = [array_for(NUMPY[b.dtype], b.shape) for b in kernel.inputs]
    try:
        results = kernels.interpret(kernel, *arrays)
    except KernelError as error:
        told(error)
        return "raised"
    for buffer, array in zip(kernel.outputs, results, strict=True):
        if array.dtype != NUMPY[buffer.dtype] or array.shape != buffer.shape:
            raise Wrong(f"the output {buffer} is {array.dtype}{list(array.shape)}")
    return "ran"


def few_points(kernel: Kernel) -> bool:
    points = [prod(a.extent for a in kernel.parallel + s.axes) for s in kernel.stages]
    folds = [prod(a.extent for a in s.axes) for s in kernel.stages if isinstance(s, Fold)]
    sizes = [prod(b.shape) for b in kernel.buffers.values()]
    return sum(points) + sum(sizes) <= SMALL and sum(folds) <= 500


def in_bounds(kernel: Kernel) -> None:
    """Visit every point: affine accesses that promise to be in bounds are, and elements are written once."""
    written = {b.name: np.zeros(b.shape, np.int64) for b in kernel.outputs}
    for stage in kernel.stages:
        empty = any(a.extent == 0 for a in kernel.parallel + stage.axes)
        if any(a.extent == 0 for a in kernel.parallel) or (empty and not isinstance(stage, Fold)):
            continue
        axes = kernel.parallel + (() if empty else stage.axes)  # of a fold over nothing, what it begins with
        grid = {
            a.name: np.arange(a.extent).reshape([-1 if d == k else 1 for d in range(len(axes))])
            for k, a in enumerate(axes)
        }
        first = stage.init if isinstance(stage, Fold) and empty else stage.exprs

        def at(part: Affine, grid=grid) -> np.ndarray:
            return part.constant + sum(
                (grid[n] * c for n, c in part.terms), np.zeros((1,) * len(grid), np.int64)
            )

        accesses = [(e.buffer, e.index) for e in walk(*first) if isinstance(e, Read) and e.other is None]
        if isinstance(stage, Store):
            accesses.append((stage.buffer, stage.index))
        for buffer, index in accesses:
            for part, size in zip(index, kernel.buffers[buffer].shape, strict=True):
                if isinstance(part, Affine) and not (at(part).min() >= 0 and at(part).max() < size):
                    raise Wrong(f"a verified kernel leaves {kernel.buffers[buffer]} at {part}")
        if isinstance(stage, Store) and stage.combine is None:
            shape = tuple(a.extent for a in axes)
            index = tuple(np.broadcast_to(at(part), shape) for part in stage.index)
            if index:
                np.add.at(written[stage.buffer], index, 1)
            else:
                written[stage.buffer] += prod(shape)
    for buffer in kernel.outputs:
        if any(s.combine for s in kernel.stores if s.buffer == buffer.name):
            continue
        counts = written[buffer.name]
        if counts.size and (counts.max() > 1 or (counts.min() < 1 and not buffer.inplace)):
            raise Wrong(
                f"a verified kernel writes elements of {buffer} {counts.min()} to {counts.max()} times"
            )


def judge_program(text: str) -> str:
    """As `judge_graph`, for the text of a program, whose kernels are verified as well."""
    try:
        program = parse_program(text, DATA)
    except (GraphError, KernelError) as error:
        told(error)
        return "refused"
    again = program_text(program)
    if program_text(parse_program(again, constants_of(program))) != again:
        raise Wrong("the text of the program is not read back as it was")
    try:
        verified(program)
    except GraphError as error:
        told(error)
        return "parsed"
    if sum(array.size for array in program.arrays()) > SMALL or not all(
        few_points(call.kernel) for call in program.calls
    ):
        return "verified"
    for call in program.calls:
        in_bounds(call.kernel)
    arrays = [array_for(NUMPY[p.dtype], p.shape) for p in program.params]
    try:
        results = interpret_program(program, *arrays)
    except LaminaError as error:
        told(error)
        return "raised"
    for array, result in zip(program.results, results, strict=True):
        if result.dtype != NUMPY[array.dtype] or result.shape != array.shape:
            raise Wrong(f"the result {array} is {result.dtype}{list(result.shape)}")
    return "ran"


def told(error: LaminaError) -> None:
    """An error is text of a reasonable size, whatever it was raised about."""
    if len(str(error)) > 20_000:
        raise Wrong(f"an error of {len(str(error))} characters")
