"""Code of an exported model for GPUs: cubins, and which of them are launched on what.

    {"cubins": "sm_90.cubins", "kernels": [{"name": "k3f9a…", "at": 0, "size": 9312, …}],
     "main": {"steps": [["launch", 0, 128, [["param", 0, 0], ["result", 0, 0]], "matmul_relu"]], …}, …}

It is compiled on any machine with Triton; jit/lamina_model_cuda.py, which files carry, runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, GraphError, KernelError
from ..ir.graph import Graph
from ..ir.kernel.text import parse
from ..passes.graphs import fuse
from ..passes.pipeline import Options, optimise, to_program
from ..passes.programs.host_parts import Check, OnHost
from ..passes.programs.memory_plan import Move, Place
from ..passes.programs.program import Array, Program
from ..passes.programs.prologue import prologue
from ..passes.triton.binary import Binary
from ..passes.triton.code import Code
from ..passes.triton.launches import Launch, Launches, launch_list
from ..passes.triton.target import ANY, NAMES, Target
from ..runtime.triton_compiler import compiled
from .artifact import ExportError, GpuCode, name_of_op

CPU = "cpu"


def architectures(targets: Sequence[str]) -> tuple[str, ...]:
    """The GPUs' architectures among the targets of a file, each once.  Raises ArgumentError."""
    known = [CPU, *(name for name in NAMES if Target.named(name).backend == "cuda")]
    if isinstance(targets, str) or not set(targets) <= {*known}:
        raise ArgumentError(
            f"export(targets): {targets!r} is a list of {', '.join(known)}", 'targets=["cpu", "sm_90"]'
        )
    return tuple(name for name in dict.fromkeys(targets) if name != CPU)


def gpu_code(graph: Graph, count: int, name: str) -> GpuCode:
    """The code of a model for an architecture.

    graph: of so many inputs, then weights, before anything is fused; its sizes are known.  Raises ExportError
    for what has no kernels there, MissingLibraryError without Triton.
    """
    target = Target.named(name)
    try:
        first, main, weights = _programs(graph, count)
        parts = {"prologue": launch_list(first, target), "main": launch_list(main, target)}
    except (GraphError, KernelError) as error:
        raise ExportError(f"export(targets): {error.rule}", *error.details) from error
    _need_kernels(parts)
    codes = {code.name: code for launches, _ in parts.values() for code in launches.codes}
    binaries = compiled(codes.values(), target)
    numbers = {code: number for number, code in enumerate(codes)}
    kernels, cubins = [], b""
    for code, binary in zip(codes.values(), binaries, strict=True):
        kernels.append(_kernel(code, binary, len(cubins)))
        cubins += binary.code + bytes(-len(binary.code) % 8)
    about: dict[str, Any] = {"cubins": f"{name}.cubins", "kernels": kernels}
    constants: dict[str, np.ndarray] = {}
    for part, (launches, values) in parts.items():
        names = [f"{name}/{part}/{n}" for n in range(len(values))]
        constants |= dict(zip(names, values, strict=True))
        about[part] = _program(launches, names, numbers)
    position = {param: n for n, param in enumerate(weights)}
    about["frozen"] = [position[param] for param in first.params]
    about["kept"] = [position[param] for param in main.params[count:] if param in position]
    return GpuCode(about, cubins, constants)


def _programs(graph: Graph, count: int) -> tuple[Program, Program, tuple[Array, ...]]:
    """What is made of the weights alone, the rest, each with those weights that it reads, and the weights.

    The rest takes the inputs, weights, and what the first gives.
    """
    frozen = frozenset(range(count, len(graph.params)))
    options = Options(frozen=frozen, limits=fuse.GPU, images=0.0)
    made = optimise(graph, options)
    program = to_program(made, (None,) * len(made.results), ANY, options)
    first, main = prologue(program, frozen)
    return _needed(first, 0), _needed(main, count), first.params


def _needed(program: Program, inputs: int) -> Program:
    """The program without params that it does not read, but for its first ones."""
    read = {array for step in program.steps for array in step.inputs} | {*program.results}
    return program.replace(params=tuple(p for n, p in enumerate(program.params) if n < inputs or p in read))


def _need_kernels(parts: Mapping[str, tuple[Launches, Any]]) -> None:
    """Raise ExportError for a program of which the host runs a part."""
    for launches, _ in parts.values():
        for part in launches.parts:
            if isinstance(part, (OnHost, Check)):
                what = parse(part.text).name if isinstance(part, Check) else name_of_op(part)
                raise ExportError(
                    f"export(targets): {what} has no kernel for a GPU that a file can hold",
                    "leave it out of the traced function, or export for CPUs alone",
                )


def _kernel(code: Code, binary: Binary, at: int) -> dict[str, Any]:
    """What the manifest says of a kernel, whose cubin begins there."""
    if code.numbers or binary.num_ctas != 1 or binary.profile_scratch[0]:
        raise ExportError(f"export(targets): {code.name} is launched with more than a file can say")
    return {
        "name": binary.name,
        "at": at,
        "size": len(binary.code),
        "aligned": [*code.aligned],
        "threads": 32 * binary.num_warps,
        "shared": binary.shared,
        "scratch": binary.global_scratch[0],
    }


def _program(launches: Launches, constants: list[str], numbers: Mapping[str, int]) -> dict[str, Any]:
    """What the manifest says of a program.  numbers: of kernels, by the names of their codes."""
    steps: list[list[Any]] = []
    for part in launches.parts:
        if isinstance(part, Move):
            steps.append(["copy", _place(part.source), _place(part.target), part.nbytes])
        elif isinstance(part, Launch):
            code = launches.codes[part.code]
            places = [*map(_place, part.arguments)]
            steps.append(["launch", numbers[code.name], code.grid, places, part.about])
    return {
        "params": [[dtype, [*shape]] for dtype, shape in launches.params],
        "results": [[dtype, [*shape]] for dtype, shape in launches.results],
        "constants": constants,
        "arena": launches.arena,
        "checks": len(launches.checks),
        "steps": steps,
    }


def _place(place: Place) -> list[Any]:
    return [place.kind, place.at, place.beyond]
