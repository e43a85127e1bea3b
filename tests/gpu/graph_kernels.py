"""Kernels that passes make of random graphs, and of the graphs that some records stand for: composed, fused,
cut and filled as in a GPU's program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "passes"))
sys.path.append(str(Path(__file__).parents[1] / "ops"))
from checks import first_dtype
from fusing import Maker
from fusing import arrays_for as few_arrays
from generate import arrays_for, pure_graph
from harness import cases

from lamina.ir.dtypes import float16, float32, float64
from lamina.ir.graph import Builder
from lamina.ir.kernel import Kernel, interpret
from lamina.ir.lowering import Decomposition
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.fuse import GPU, fuse
from lamina.passes.pipeline import Options, optimise
from lamina.passes.programs.build_program import build_program
from lamina.passes.programs.program import Alias, Call, Host, Program
from lamina.passes.programs.split_calls import split_calls
from lamina.passes.triton.generate import programs_of


def graph_kernels(first: int, count: int) -> Iterator[tuple[str, Kernel, list[np.ndarray]]]:
    """Every call of `count` random graphs with the arrays that reach it.  Graphs are of two kinds: of all
    types with special numbers, and of reductions, products and functions.
    """
    for seed in range(first, first + count):
        if seed % 2:
            graph = pure_graph(seed)
            arrays = arrays_for(graph, seed)
        else:
            graph = Maker(seed, dtype=(float32, float64, float16)[seed // 2 % 3]).graph(12)
            arrays = few_arrays(graph, seed)
        program = split_calls(build_program(fuse(graph)), programs_of)
        for number, (kernel, given) in enumerate(_calls(program, arrays)):
            yield f"graph {seed} call {number} {kernel.name}", kernel, given


DECOMPOSED = sorted(name for name, op in REGISTRY.items() if isinstance(op.lower, Decomposition))


def decomposed_kernels(
    names: Sequence[str] = DECOMPOSED,
) -> Iterator[tuple[str, Kernel, list[np.ndarray]]]:
    """The calls of a record's largest sample, which are other records'."""
    for name in names:
        op = REGISTRY[name]
        for case in cases(op, first_dtype(op), count=1):
            with Builder(name) as b:
                params = [None if t is None else b.param(t, f"x{k}") for k, t in enumerate(case.types)]
                graph = b.finish(b.emit(op, params, case.attrs).visible)
            program = build_program(optimise(graph, Options(limits=GPU)), (None,) * len(graph.results))
            arrays = [x for x in case.operands if x is not None]
            seen = set()  # a loop that is written out has the same ones many times
            for kernel, given in _calls(split_calls(program, programs_of), arrays):
                if kernel not in seen:
                    seen.add(kernel)
                    yield f"{name} call {len(seen)} {kernel.name}", kernel, given


def _calls(program: Program, given: list[np.ndarray]) -> Iterator[tuple[Kernel, list[np.ndarray]]]:
    values = dict(zip(program.params, map(np.ascontiguousarray, given), strict=True)) | dict(
        program.constants
    )
    for step in program.steps:
        if isinstance(step, Alias):
            (source,), (out,) = step.inputs, step.outputs
            flat = values[source].reshape(-1)[step.offset : step.offset + out.size]
            values[out] = flat.reshape(out.shape)
        elif isinstance(step, Call):
            arrays = [np.ascontiguousarray(values[x]).reshape(x.shape) for x in step.inputs]
            yield step.kernel, arrays
            values |= zip(step.outputs, interpret(step.kernel, *arrays), strict=True)
        else:
            assert isinstance(step, Host)
            return  # what is behind it is not reached
