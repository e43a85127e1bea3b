"""What traced functions are compiled for: this machine's CPU, or a CUDA device.

A target says which passes a program gets, how weights are made ready, and how a program is made to run; all
else in `jit` is the same for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.graph import Graph
from ..ir.lazy import load
from ..ir.types import Device
from ..passes.graphs import fuse
from ..passes.graphs.fuse import Limits
from ..passes.llvm.binding import host_target, identity
from ..passes.llvm.link import link
from ..passes.llvm.sized import Sized
from ..passes.pipeline import Options, program_passes, to_program
from ..passes.programs.memory_plan import MemoryPlan
from ..passes.programs.program import Array, Program
from ..passes.programs.prologue import prologue
from ..passes.triton import toolchain
from ..passes.triton.launches import launch_list, launch_plan
from ..passes.triton.target import ANY
from ..passes.triton.target import Target as Architecture
from ..runtime import compiler, guard, native, workers
from ..runtime.cuda import executable as cuda
from .garbage import GARBAGE, Garbage


class Executable(Protocol):
    """A program that runs: arrays to results, those with `into` written over params."""

    statistics: compiler.Statistics

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]: ...


Compiler = Callable[[Sequence[Program]], Sequence[Executable]]
LINES_PER_NODE = 20  # of LLVM's text, for each node of a graph: 33 for a ResNet's step, 14 for a GPT's


class Target(Protocol):
    """name: as the user says it.  language: of the code that is made.  limits: of fused kernels.  images: as
    `Options` has it.
    """

    name: str
    language: str
    limits: Limits

    @property
    def images(self) -> float: ...

    def check(self) -> None:
        """Raises DeviceError, MissingLibraryError where nothing can be compiled for it or run on it."""

    def identity(self) -> str:
        """What tells programs for this target from those for others, on other machines too."""

    def passes(self, options: Options) -> Sequence[Callable[[Program], Program]]:
        """The passes over programs."""

    def program(self, graph: Graph, into: tuple[int | None, ...], options: Options) -> Program: ...

    def split(self, program: Program, frozen: frozenset[int]) -> tuple[Program, Program]:
        """What is made of frozen params alone, and the rest.

        What is handed over are arrays: results of the first that are params of the second.
        """

    def compiler(self, nodes: int) -> AbstractContextManager[Compiler]:
        """What makes programs run, given all of them together.

        nodes: of the graph that they will be made of, so that it can get ready meanwhile.
        """

    def sized(self, program: Program) -> Sized:
        """A program of symbols, ready for their sizes; within blocks of `hints` and `limits`."""

    def apart(self, program: Program, sizes: Mapping[str, int] | None = None) -> Executable | None:
        """One that tells this thread's profiler of each kernel; None where that can't be.

        sizes: what the program's symbols are, in a block of `for_sizes`.
        """

    def kept(self, executable: Executable) -> Callable[..., tuple]:
        """Runs the program of the weights, and gives what the other one is to be handed."""

    def store(self, key: str, executable: Executable) -> None: ...

    def load(self, key: str) -> Executable | None: ...

    def source(self, program: Program) -> tuple[str, ...]: ...

    def plan(self, program: Program) -> MemoryPlan: ...

    def tried(self, program: Program, alone: bool = False) -> Callable[..., tuple[np.ndarray, ...]]:
        """The program to be looked at: its results and scratch memory hold garbage at first.

        alone: with nothing beside it, on one thread.
        """


def suited(options: Options, target: Target) -> Options:
    """The options, with what a target is to be given."""
    return replace(options, limits=target.limits, images=target.images)


class Cpu:
    """LLVM's code for this machine."""

    name, language, limits = "cpu", "llvm", fuse.CPU

    @property
    def images(self) -> float:
        return host_target().core.images

    def check(self) -> None:
        pass

    def identity(self) -> str:
        return f"{self.name} {identity(host_target())}"

    def passes(self, options: Options) -> Sequence[Callable[[Program], Program]]:
        return program_passes(host_target(), options)

    def program(self, graph: Graph, into: tuple[int | None, ...], options: Options) -> Program:
        return to_program(graph, into, host_target(), options)

    def split(self, program: Program, frozen: frozenset[int]) -> tuple[Program, Program]:
        return prologue(program, frozen)

    @contextmanager
    def compiler(self, nodes: int) -> Iterator[Compiler]:
        with compiler.Compiler(host_target(), expected=LINES_PER_NODE * nodes) as made:
            if not workers.library.cache_info().currsize:
                made.foresee(workers.text())  # which the first program to be loaded would wait for
            yield lambda programs: native.Executable.of_programs(programs, made)

    def sized(self, program: Program) -> Sized:
        return Sized(program, host_target(), guard.MODE)

    def apart(self, program: Program, sizes: Mapping[str, int] | None = None) -> Executable | None:
        return native.Executable(program, apart=True, sizes=sizes)

    def kept(self, executable: Executable) -> Callable[..., tuple]:
        return executable

    def store(self, key: str, executable: Executable) -> None:
        assert isinstance(executable, native.Executable)
        native.store_program(key, executable)

    def load(self, key: str) -> Executable | None:
        return native.load_program(key)

    def source(self, program: Program) -> tuple[str, ...]:
        return link(program, host_target()).texts

    def plan(self, program: Program) -> MemoryPlan:
        return link(program, host_target()).plan

    def tried(self, program: Program, alone: bool = False) -> Callable[..., tuple[np.ndarray, ...]]:
        return Garbage(program, threads=1 if alone else None)


class Cuda:
    """Triton's code, run through the CUDA driver.  Params come from the host and results go there."""

    language, limits, images = "triton", fuse.GPU, 0.0

    def __init__(self, ordinal: int):
        self.name, self.ordinal = f"cuda:{ordinal}", ordinal

    def check(self) -> None:
        cuda.machine_of(self.ordinal).check()
        toolchain.identity(self.architecture)

    @property
    def architecture(self) -> Architecture:
        return Architecture.named(cuda.machine_of(self.ordinal).target)

    def identity(self) -> str:
        return f"{self.name} {self.architecture.name}"  # which decides on schedules

    def passes(self, options: Options) -> Sequence[Callable[[Program], Program]]:
        return program_passes(ANY, options)

    def program(self, graph: Graph, into: tuple[int | None, ...], options: Options) -> Program:
        return to_program(graph, into, ANY, options)

    def split(self, program: Program, frozen: frozenset[int]) -> tuple[Program, Program]:
        """Frozen params that the rest reads are handed over too: they are copied to the device once.

        Params that are not read are left out, for each costs a copy.
        """
        weights, main = prologue(program, frozen)
        read = _read(main)
        results = (*weights.results, *(param for param in weights.params if param in read))
        weights = weights.replace(results=results, into=(None,) * len(results))
        return _needed(weights), _needed(main)

    @contextmanager
    def compiler(self, nodes: int) -> Iterator[Compiler]:
        machine = cuda.machine_of(self.ordinal)
        yield lambda programs: [cuda.Executable.of_sizes(program, machine) for program in programs]

    def sized(self, program: Program) -> Sized:
        raise NotImplementedError("launches are of sizes that are known")

    def apart(self, program: Program, sizes: Mapping[str, int] | None = None) -> Executable | None:
        return None  # kernels run on after they are launched

    def kept(self, executable: Executable) -> Callable[..., tuple]:
        assert isinstance(executable, cuda.Executable)
        return executable.on_device

    def store(self, key: str, executable: Executable) -> None:
        assert isinstance(executable, cuda.Executable)
        cuda.store_program(key, executable)

    def load(self, key: str) -> Executable | None:
        return cuda.load_program(key, cuda.machine_of(self.ordinal))

    def source(self, program: Program) -> tuple[str, ...]:
        launches, _ = launch_list(program, self.architecture)
        return tuple(code.source for code in launches.codes)

    def plan(self, program: Program) -> MemoryPlan:
        return launch_plan(program, self.architecture)[0]

    def tried(self, program: Program, alone: bool = False) -> Callable[..., tuple[np.ndarray, ...]]:
        return cuda.Executable(program, cuda.machine_of(self.ordinal), garbage=GARBAGE)


class OnCuda(Cuda):
    """The same for tensors that are in the device's memory: nothing is copied to it or from it."""

    def __init__(self, ordinal: int):
        super().__init__(ordinal)
        self.name = f"cuda:{ordinal}, tensors there"

    def split(self, program: Program, frozen: frozenset[int]) -> tuple[Program, Program]:
        return prologue(program, frozen)

    @contextmanager
    def compiler(self, nodes: int) -> Iterator[Compiler]:
        made, machine = load("lamina.runtime.cuda.resident").Resident, cuda.machine_of(self.ordinal)
        yield lambda programs: [made.of_sizes(program, machine) for program in programs]

    def kept(self, executable: Executable) -> Callable[..., tuple]:
        return executable

    def load(self, key: str) -> Executable | None:
        made = load("lamina.runtime.cuda.resident").Resident
        return cuda.load_program(key, cuda.machine_of(self.ordinal), made)


@cache
def resident(place: Device) -> Target:
    """The target for tensors on a device."""
    return OnCuda(place.index or 0)


def _read(program: Program) -> set[Array | None]:
    return {array for step in program.steps for array in step.inputs} | {*program.results}


def _needed(program: Program) -> Program:
    """The program without the params that it neither reads nor overwrites."""
    read = _read(program)
    kept = [n for n, param in enumerate(program.params) if param in read or n in program.into]
    return program.replace(
        params=tuple(program.params[n] for n in kept),
        into=tuple(None if at is None else kept.index(at) for at in program.into),
    )


CPU = Cpu()


@cache
def target_of(name: str) -> Target:
    """The target of a name: "cpu", "cuda", "cuda:1".  Raises ArgumentError for others."""
    found = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if found is None:
        raise ArgumentError(f"target is 'cpu', 'cuda' or 'cuda:N', not {name!r}")
    return CPU if name == "cpu" else Cuda(int(found[1] or 0))
