"""Run a Code as a program does: its text compiled, its phases in parts, in an order that threads may take."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from lamina.ir.kernel import NUMPY
from lamina.passes.llvm.binding import Library, emit_object, host_target
from lamina.passes.llvm.code import Code
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs.program import Alias, Array, Call, Program
from lamina.passes.schedules.target import LEVELS, Target

emulator = None  # what runs code for machines of another kind: of emulated.py
CANARY = 4096  # elements around every array: a stray read poisons the result, a stray write is seen


def runs(target: Target) -> bool:
    """Whether this processor has what the target's code needs: elsewhere that ends the process."""
    has, same = llvm.get_host_cpu_features(), target.platform.machine == host_target().platform.machine
    return same and all(map(has.get, target.needs))


def without(target: Target) -> str:
    """Why a test that would run the target's code is skipped."""
    return f"this processor has no {target.name}"


LEVELS_HERE = tuple(filter(runs, LEVELS))  # whose code this processor runs, the widest first
each_level = pytest.mark.parametrize(  # of a test that runs its code
    "target",
    [
        pytest.param(level, id=level.name, marks=pytest.mark.skipif(not runs(level), reason=without(level)))
        for level in LEVELS
    ],
)


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy between two canaries."""
    whole = np.empty(array.size + 2 * CANARY, array.dtype)
    whole.view(np.uint8)[...] = 0xFF  # NaN, or -1
    inner = whole[CANARY : CANARY + array.size].reshape(array.shape)
    inner[...] = array
    return inner


def untouched(array: np.ndarray) -> bool:
    whole = array
    while whole.base is not None:
        whole = whole.base
    edges = np.concatenate([whole[:CANARY], whole[-CANARY:]]).view(np.uint8)
    return bool((edges == 0xFF).all())


def call_of(kernel, how=None) -> Call:
    def arrays(buffers):
        return tuple(Array(b.name, b.dtype, tuple(map(int, b.shape))) for b in buffers)

    return Call(kernel, arrays(kernel.inputs), arrays(kernel.outputs), how)


class Native:
    """A code's entries as functions.  The test is skipped where this processor does not run them."""

    def __init__(self, code: Code, target: Target):
        if not runs(target):
            pytest.skip(without(target))
        self.code = code
        self.library = Library([emit_object(text, target) for text in (*code.beside, code.text)], target)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.entries = [kind(self.library.address(phase.symbol)) for phase in code.phases]

    def __call__(self, *arrays: np.ndarray, parts: int = 3) -> None:
        """Each phase in `parts` parts, the last first where its units may run in any order."""
        scratch = np.full(self.code.scratch + 64, 0xFF, np.uint8)
        start = scratch.ctypes.data + -scratch.ctypes.data % 64
        pointers = [a.ctypes.data for a in arrays]
        values = [*pointers, start, *self.code.symbols]
        args = (ctypes.c_int64 * len(values))(*values)
        for phase, entry in zip(self.code.phases, self.entries, strict=True):
            cuts = [phase.units * k // parts for k in range(parts + 1)]
            ranges = list(zip(cuts, cuts[1:], strict=False))
            for low, high in ranges if phase.serial else reversed(ranges):
                entry(args, low, high)


def run_code(kernel, arrays, target, how=None) -> list[np.ndarray]:
    """The outputs that the code of a call gives; memory around each is checked to be as it was."""
    code = code_of(call_of(kernel, how), target)
    inputs = [guarded(a) for a in arrays]
    given = {b.name: a for b, a in zip(kernel.inputs, inputs, strict=True)}
    outputs = [
        given[b.inplace] if b.inplace else guarded(np.full(b.shape, 1, NUMPY[b.dtype]))
        for b in kernel.outputs
    ]
    if target.platform.machine != host_target().platform.machine:
        assert emulator is not None, f"nothing runs code for {target.name} here"
        same = emulator(code, [*inputs, *outputs], emulator.library(code, target))
        assert same, f"{kernel.name} writes outside its arrays"
        return outputs
    Native(code, target)(*inputs, *outputs)
    assert all(untouched(a) for a in (*inputs, *outputs)), f"{kernel.name} writes outside its arrays"
    return outputs


def run_program(program: Program, given: list[np.ndarray], target: Target) -> list[np.ndarray]:
    """A program's results, each of its calls by `run_code`."""
    values = dict(zip(program.params, given, strict=True)) | program.constants
    for step in program.steps:
        if isinstance(step, Alias):
            values[step.outputs[0]] = values[step.inputs[0]].reshape(step.outputs[0].shape)
            continue
        made = run_code(step.kernel, [values[a] for a in step.inputs], target, step.how)
        values.update(zip(step.outputs, made, strict=True))
    return [values[array] for array in program.results]
