"""Kernels that passes make of random graphs: composed, fused, cut and filled as in a GPU's program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "passes"))
from fusing import Maker
from fusing import arrays_for as few_arrays
from generate import arrays_for, pure_graph

from lamina.ir.dtypes import float16, float32, float64
from lamina.ir.kernel import Kernel, interpret
from lamina.passes.graphs.fuse import fuse
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
