"""Networks of bytes, compiled for targets of every kind: what they give is compared with their graphs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np

from lamina.ir.dtypes import bfloat16, float32, from_numpy_dtype, uint8
from lamina.ir.graph import Builder, Graph
from lamina.ir.interpret import interpret as interpret_graph
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.generate import code_of
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.program import Program, interpret
from lamina.passes.schedules.target import (
    AMX_PAIRS,
    AVX2,
    AVX512,
    BASELINE,
    DOTPROD,
    GOLDEN_COVE,
    NEON,
    VNNI,
    Target,
)
from lamina.runtime.native import Executable

QUADS = replace(
    AVX512, name="avx512 vnni", features="+avx512vnni", quads=VNNI, needs=(*AVX512.needs, "avx512vnni")
)
MATRICES = replace(
    QUADS,
    name="amx",
    features="+avx512vnni,+amx-tile,+amx-bf16,+amx-int8",
    needs=(*QUADS.needs, "amx-int8"),
    matrix=AMX_PAIRS,
    byte_matrix=True,
    core=GOLDEN_COVE,
)
AVX_QUADS = replace(AVX2, name="avx vnni", features="+avxvnni", quads=VNNI, needs=(*AVX2.needs, "avxvnni"))
SDOT = replace(NEON, name="neon dotprod", features="+dotprod", quads=DOTPROD, quads_signed=True)
TARGETS = (MATRICES, QUADS, AVX512, AVX_QUADS, AVX2, BASELINE, SDOT, NEON)
HERE = host_target()


def i8(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-128, 128, shape).astype(np.int8)


def u8(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(0, 256, shape).astype(np.uint8)


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def bf16(*shape: int, seed: int = 0) -> np.ndarray:
    return f32(*shape, seed=seed).astype(bfloat16.numpy)


def op(name: str, *args, **kwargs):
    return REGISTRY[name](*args, **kwargs)


def to_bytes(x, scale: float, dtype=uint8, zero: int = 0):
    """Round to steps of `scale`, half to even, and clamp."""
    low, high = (0, 255) if dtype is uint8 else (-128, 127)
    return op("cast", op("clamp", op("round", x / scale) + float(zero), float(low), float(high)), dtype)


def scaled(sums, scale, bias=None):
    """i32 sums as floats, and a bias."""
    y = op("cast", sums, float32) * scale
    return y if bias is None else y + bias


def graph_of(function: Callable, arrays: Sequence[np.ndarray]) -> Graph:
    with Builder("net") as builder:
        params = [builder.param(type_of(from_numpy_dtype(a.dtype), a.shape)) for a in arrays]
        result = function(*params)
        results = result if isinstance(result, tuple) else (result,)
        return builder.finish(list(results))


def compiled(
    function: Callable, arrays: Sequence[np.ndarray], target: Target, weights: int = 0
) -> tuple[Graph, Program]:
    """The graph of a function, and its program; weights: how many of the last params are kept."""
    graph = graph_of(function, arrays)
    options = Options(frozen=frozenset(range(len(arrays) - weights, len(arrays))), verify=True)
    return graph, to_program(optimise(graph, options), (None,) * len(graph.results), target, options)


def same(
    function: Callable, arrays: Sequence[np.ndarray], target: Target, weights: int = 0, terms: int = 4
) -> Program:
    """The program, whose meaning is the graph's, whose code is proved, and which gives the same where it can
    run here.  terms: of the sums of floats among its results."""
    graph, program = compiled(function, arrays, target, weights)
    wanted = interpret_graph(graph, *arrays)
    for want, found in zip(wanted, interpret(program, *arrays), strict=True):
        equal(found, want, terms, f"{target.name}: the program\n{program}")
    for call in program.calls:
        code_of(call, target)
    if runs_here(target):
        for want, found in zip(wanted, Executable(program, target)(*arrays), strict=True):
            equal(found, want, terms, f"{target.name}: its code\n{program}")
    return program


def equal(found: np.ndarray, wanted: np.ndarray, terms: int, what: str) -> None:
    """Integers are the same; of floats each addition rounds a partial sum, which is no larger than the
    largest of them is."""
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(found, wanted, what)
        return
    eps = 2.0**-23 if wanted.dtype == np.float32 else 2.0**-7
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    atol = (terms + 4) * eps / 2 * np.abs(wanted).max(initial=1.0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=what)


def runs_here(target: Target) -> bool:
    has = llvm.get_host_cpu_features()
    return (
        target.platform.machine == HERE.platform.machine
        and all(map(has.get, target.needs))
        and (HERE.byte_matrix or not target.byte_matrix)
    )
