"""The one module that imports llvmlite: LLVM text to native code in this process."""

from __future__ import annotations

import _thread
import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ...ir.errors import KernelError
from ...ir.kernel.form import Buffer, Kernel
from ...ir.kernel.form import identity as neutral
from ...ir.kernel.interpret import check_arrays, check_indices
from ...ir.kernel.scalar import Expr
from ...ir.kernel.types import NUMPY
from ...ir.locks import hold_across_forks
from ..schedules.default import default_schedule, units
from ..schedules.steps import Schedule
from ..schedules.target import (
    AMX_PAIRS,
    AVX512,
    AVX512_PAIRS,
    BASELINE,
    CORES,
    DOTPROD,
    GOLDEN_COVE,
    LEVELS,
    NEON,
    TUNE,
    VNNI,
    Core,
    Target,
)
from . import headroom
from .helper import asked_options
from .units import lower, symbol

# Of the code generator: 1, 2 and 3 take equally long and give the same speed, 0 takes a third and gives half.
OPTIMISATION = 2
ELF = b"\x7fELF"  # what an object file begins with
WAIT = 1.0  # seconds from one look at who waits for LLVM's thread to the next

_LOCK = llvm.ffi.lib._lock._lock  # llvmlite holds it for the length of every call
hold_across_forks(_LOCK)


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function of llvmlite's in a thread of its own, where the main one calls it.

    Python raises interrupts in the main thread alone.  One that comes where llvmlite has freed something and
    not yet noted so would have it freed twice.  Who waits is interrupted; the thread goes on to its end.
    What frees code that nobody holds any more still runs wherever that happens: an interrupt there may leave
    llvmlite's lock taken, which is given back here.
    """

    @wraps(function)
    def call(*args: Any) -> Any:
        if threading.get_ident() != threading.main_thread().ident:
            return function(*args)
        if not headroom.is_there(headroom.LEAST):  # a thread that can't begin is waited for in vain
            return function(*args)
        while _LOCK._is_owned():  # and this thread is in no call of llvmlite's
            _LOCK.release()
        found: list[Any] = []
        running, process = threading.Lock(), os.getpid()
        running.acquire()

        def run() -> None:
            try:
                found.extend((function(*args), None))
            except BaseException as error:
                found.extend((None, error))
            running.release()

        # Not threading's: an interrupt while that waits for its thread to begin may come out as the same
        # error as that there are no more threads to be had.
        try:
            thread = _thread.start_new_thread(run, ())
        except RuntimeError:
            return function(*args)
        while not running.acquire(timeout=WAIT):
            if os.getpid() != process:  # a signal's handler forked, and the thread is not here
                raise KernelError("a process forked from one that makes machine code has none of it")
        _see_off(thread)
        answer, error = found
        if error is not None:
            raise error
        return answer

    return call


def _see_off(thread: int) -> None:
    """Let a thread that has done its work come to its end, before Python's own takes away what it still looks
    at.  Not for ever: another may have its number by now."""
    for _ in range(1000):
        if thread not in sys._current_frames():
            return
        time.sleep(0)


@cache
@apart
def _initialised() -> None:
    """Set LLVM up once, and let it find the C library's mathematics."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if llvm.address_of_symbol("sinf") is None:
        llvm.load_library_permanently("libm.so.6")


def tuned(cpu: str, level: Target) -> tuple[Core, str]:
    """The figures of a CPU of a level, and by whose model LLVM orders its instructions; "" for its own."""
    core = CORES.get(cpu, level.core)
    return core, "" if core is GOLDEN_COVE or cpu.startswith("znver") else level.tune


@cache
@apart
def host_target() -> Target:
    """The widest level that this machine has, tuned to the machine."""
    has, triple = llvm.get_host_cpu_features(), llvm.get_default_triple()
    mine = (level for level in (*LEVELS, NEON) if level.platform.machine == triple.split("-")[0])
    level = next((level for level in mine if all(map(has.get, level.needs))), BASELINE)
    platform = replace(level.platform, triple=triple)
    cpu = llvm.get_host_cpu_name()
    if has.get("amx-tile") and cpu not in CORES:  # a hypervisor may call it by another's number
        cpu = TUNE
    core, tune = tuned(cpu, level)
    pairs = AVX512_PAIRS if level is AVX512 and has.get("avx512bf16") and core.pairs < 1 else ""
    matrix = AMX_PAIRS if level is AVX512 and has.get("amx-bf16") and _may_use_matrices() else ""
    quads = _quads(level, has)
    # A sum of products of i16 is one instruction of this CPU's, which LLVM else takes apart for its latency:
    # depthwise 3 x 3 kernels of bytes ran at 69 GOP/s in place of 83 (one thread, an Intel Xeon, 2026-11-27).
    whole = ",+fast-dpwssd" if quads and level is not NEON else ""
    return replace(
        level,
        cpu=cpu,
        features=has.flatten() + whole,
        tune=tune,
        platform=platform,
        pairs=pairs,
        matrix=matrix,
        byte_matrix=bool(matrix and has.get("amx-int8")),
        quads=quads,
        quads_signed=bool(quads) and level is NEON,
        core=core,
    )


def _quads(level: Target, has: Mapping[str, bool]) -> Mapping[int, str]:
    """What multiplies four bytes at once on a machine with these features."""
    if level is NEON:
        return DOTPROD if has.get("dotprod") else {}
    is_wide = level is AVX512
    return VNNI if has.get("avx512vnni" if is_wide else "avxvnni") and level is not BASELINE else {}


def _may_use_matrices() -> bool:
    """Ask Linux for AMX's registers, which it gives to a process and those that it forks."""
    syscall = ctypes.CDLL(None).syscall
    return syscall(ctypes.c_long(158), ctypes.c_long(0x1023), ctypes.c_long(18)) == 0


@cache
@apart
def _all_initialised() -> None:
    """Set LLVM up for machines of every kind."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _kind(target: Target) -> llvm.Target:
    """LLVM's code generators for machines of that kind."""
    _initialised()
    if target.platform.triple != llvm.get_default_triple():
        _all_initialised()
    return llvm.Target.from_triple(target.platform.triple)


def machine(target: Target) -> llvm.TargetMachine:
    """LLVM's code generator, held to the instructions that the target has."""
    return _kind(target).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=OPTIMISATION,
        jit=True,
        codemodel="jitdefault",
    )


# One for all objects, which are made one after the other: what it works out of a target's features, for each
# function's attributes, takes a tenth of all their time.
_emitter = cache(machine)


@apart
def engine(name: str, text: str, target: Target) -> llvm.ExecutionEngine:
    """The text as machine code in this process, which lives as long as the engine.

    Without LLVM's pass pipeline: on explicit vectors it gives the same speed for 2-10 times the wait.
    """
    headroom.require(headroom.to_compile(text), "compile")
    compiler = machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise KernelError(f"{name}: LLVM refuses the emitted text", str(error).strip()) from error
    made = llvm.create_mcjit_compiler(module, compiler)
    made.finalize_object()
    return made


@cache
@apart
def identity(target: Target) -> str:
    """What beside its text decides what a module compiles to."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"LLVM {version} {target.platform.triple} {target.cpu} {target.features} {target.matrix}"


@apart
def emit_object(text: str, target: Target) -> bytes:
    """The text as an object file.  Raises KernelError where LLVM refuses it, or memory is short."""
    headroom.require(headroom.to_compile(text), "compile")
    emitter = _emitter(target)  # before: what sets LLVM up may run apart as well, and gives the lock back
    with _checked(text, llvm.create_context()) as module:
        with _LOCK, asked_options(text):  # which hold for all of the process
            return emitter.emit_object(module)


@apart
def emit_position_independent(texts: Iterable[str], target: Target) -> bytes:
    """The modules of these texts as one object file, fit for a shared object."""
    texts = [*texts]
    headroom.require(sum(map(headroom.to_compile, texts)), "compile")
    compiler = _kind(target).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )
    context = llvm.create_context()
    with _checked("", context, *texts) as whole:
        return compiler.emit_object(whole)


@contextmanager
def _checked(text: str, context: llvm.ContextRef, *others: str) -> Iterator[llvm.ModuleRef]:
    """The module of a text and of others that are linked to it, in a context of its own.  Raises KernelError.

    It is freed here: an error keeps its frames, and of what these hold the collector may free the context
    before the module, which ends the process.
    """
    try:
        module = llvm.parse_assembly(text, context)
    except RuntimeError as error:
        raise _refused(error) from error
    with module:
        try:
            for other in others:
                module.link_in(llvm.parse_assembly(other, context))
            module.verify()
        except RuntimeError as error:
            raise _refused(error) from error
        yield module


def _refused(error: RuntimeError) -> KernelError:
    return KernelError("LLVM refuses the emitted text", str(error).strip())


@cache
def _context() -> llvm.ContextRef:
    """That of the empty modules that libraries are made around.

    It outlives them all: llvmlite lets go of a module's context before the engine frees the module.
    """
    return llvm.create_context()


@apart
def _linked(objects: list[bytes], target: Target) -> llvm.ExecutionEngine:
    made = llvm.create_mcjit_compiler(llvm.parse_assembly("", _context()), machine(target))
    for data in objects:
        if not data.startswith(ELF):  # LLVM would end the process
            raise KernelError("this is no object file", f"it begins with {data[:4]!r}")
        made.add_object_file(llvm.ObjectFileRef.from_data(data))
    made.finalize_object()
    return made


class Library:
    """Object files linked into this process.  Their code is gone when the library is.

    Raises KernelError for what is no object file, and where memory is short.
    """

    def __init__(self, objects: Iterable[bytes], target: Target):
        objects = [*objects]
        headroom.require(headroom.to_link(sum(map(len, objects))), "link")
        self._engine = _linked(objects, target)
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """Where a function begins.  Raises KernelError if there is none of that name."""
        if symbol not in self._addresses:
            self._addresses[symbol] = self._address(symbol)
        return self._addresses[symbol]

    @apart
    def _address(self, symbol: str) -> int:
        found = self._engine.get_function_address(symbol)
        if not found:
            raise KernelError(f"the linked code has no function {symbol}")
        return found


class Compiled:
    """Machine code for one kernel under one schedule.  Keeps its engine, and so the code, alive."""

    def __init__(self, kernel: Kernel, schedule: Schedule | None = None, target: Target | None = None):
        target = target or host_target()
        self.kernel, self.schedule = kernel, schedule or default_schedule(kernel, target)
        self.text = lower(kernel, target, self.schedule)
        self.units = units(kernel, self.schedule)
        self._engine = engine(kernel.name, self.text, target)
        pointers = [ctypes.c_void_p] * len(kernel.buffers)
        function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_int64)
        self._function = function(self._engine.get_function_address(symbol(kernel)))
        self._indirect = _trusts_indices(kernel)

    def __call__(self, *arrays: np.ndarray, part: tuple[int, int] | None = None) -> None:
        """Run on arrays, inputs then outputs, written in place; `part` is a range of the units of work.

        Raises KernelError before native code is entered if an array does not fit its buffer in dtype, shape,
        strides or writability, or if an index that the code trusts is out of range.
        """
        kernel = self.kernel
        count = len(kernel.inputs)
        check_arrays(kernel, arrays, kernel.inputs + kernel.outputs)
        for array, buffer in zip(arrays, kernel.inputs + kernel.outputs, strict=True):
            _check_memory(kernel, array, buffer)
        _check_sharing(kernel, arrays)
        low, high = part or (0, self.units)
        if not 0 <= low <= high <= self.units:
            raise KernelError(
                f"{kernel.name}: there are {self.units} units of work", f"asked for: {low} to {high}"
            )
        if self._indirect:
            check_indices(kernel, *arrays[:count])
        if low == 0:
            for array, buffer in zip(arrays[count:], kernel.outputs, strict=True):
                _prepare(kernel, array, buffer)
        self._function(*(array.ctypes.data for array in arrays), low, high)


def run(
    kernel: Kernel, schedule: Schedule | None, *arrays: np.ndarray, target: Target | None = None
) -> list[np.ndarray]:
    """Compile, run on the inputs, and give the outputs: new arrays, or the inputs' own where in place."""
    compiled = Compiled(kernel, schedule, target)
    inputs = dict(zip((buffer.name for buffer in kernel.inputs), arrays, strict=False))
    outputs = [inputs[b.inplace] if b.inplace else _allocate(b) for b in kernel.outputs]
    compiled(*arrays, *outputs)
    return outputs


def _allocate(buffer: Buffer) -> np.ndarray:
    """An array with the buffer's shape and strides.  Poisoned, so that a hole is seen."""
    shape, strides = tuple(map(int, buffer.shape)), [*map(int, buffer.strides)]
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)] if 0 not in shape else []
    before, after = -sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    memory = np.empty(before + after + 1, NUMPY[buffer.dtype])
    memory.view(np.uint8)[...] = 1 if buffer.dtype == "bool" else 0xFF
    return np.lib.stride_tricks.as_strided(memory[before:], shape, [s * memory.itemsize for s in strides])


def _prepare(kernel: Kernel, array: np.ndarray, buffer: Buffer) -> None:
    """Fill an output that accumulates with the identity of how it does."""
    combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
    if combine and not buffer.inplace:
        array[...] = 0 if combine == "set" else neutral(combine, buffer.dtype)


def _trusts_indices(kernel: Kernel) -> bool:
    reads = [access.index for _, access in kernel.reads if access.other is None]
    return any(isinstance(p, Expr) for index in (*reads, *(s.index for s in kernel.stores)) for p in index)


def _check_memory(kernel: Kernel, array: np.ndarray, buffer: Buffer) -> None:
    """Raise KernelError unless the array lies in memory as the buffer says."""
    wanted = tuple(stride * array.itemsize for stride in buffer.strides)
    same = all(
        n == 1 or have == want for n, have, want in zip(array.shape, array.strides, wanted, strict=True)
    )
    if not same and math.prod(array.shape):
        raise KernelError(
            f"{kernel.name}: an array has the strides of its buffer",
            f"buffer: {buffer}, in bytes ({', '.join(map(str, wanted))})",
            f"array: strides ({', '.join(map(str, array.strides))})",
        )
    if not array.flags.aligned:
        raise KernelError(
            f"{kernel.name}: an array's address is a multiple of its element size", f"buffer: {buffer}"
        )
    if buffer in kernel.outputs and not array.flags.writeable:
        raise KernelError(f"{kernel.name}: an output is read-only", f"buffer: {buffer}")


def _check_sharing(kernel: Kernel, arrays: tuple[np.ndarray, ...]) -> None:
    """Raise KernelError unless outputs share memory with exactly the inputs they are declared in place of."""
    buffers = kernel.inputs + kernel.outputs
    for k in range(len(kernel.inputs), len(buffers)):
        for other in range(k):
            one, two = buffers[k], buffers[other]
            if one.inplace == two.name and other < len(kernel.inputs):
                if arrays[k].ctypes.data != arrays[other].ctypes.data:
                    raise KernelError(
                        f"{kernel.name}: {one.name} is in place of {two.name}: they are one memory"
                    )
            elif overlap(arrays[k], arrays[other]):
                raise KernelError(
                    f"{kernel.name}: {one.name} and {two.name} overlap in memory",
                    "an output overlaps no other array",
                )


def overlap(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two arrays share an element, or may where that is too hard to tell."""
    if not np.may_share_memory(one, two):
        return False
    try:
        return np.shares_memory(one, two, max_work=10_000)
    except np.exceptions.TooHardError:
        return True
