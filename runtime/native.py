"""Programs as native code: compiled or taken from the cache, loaded, and entered with checked arrays.

    run = Executable(program)
    y, = run(x, w)

A call that fits, which every call but the odd one does, goes through one function of native code: it checks
each array's type, shape, strides, alignment and writability, and that nothing which is overwritten overlaps
another array, and runs the program.  Any other call is looked at here: converted, copied, or refused.
"""

from __future__ import annotations

import math
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache, partial
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np

from ..ir.errors import ArgumentValueError, KernelError
from ..ir.kernel.types import NUMPY
from ..ir.meeting import Pending
from ..passes import cache as disk
from ..passes.llvm.binding import Library, host_target, identity, overlap
from ..passes.llvm.link import Linked, link
from ..passes.llvm.native_manifest import ARENA, MOST, POOL, Native, NativeManifest, Part
from ..passes.llvm.variant import Variant
from ..passes.programs.host_parts import Check, Land, Meet, OnHost, View
from ..passes.programs.memory_plan import Place
from ..passes.programs.program import Call, Program, Repeat
from ..passes.schedules.target import Target
from . import guard, memory, modes, workers
from .compiler import Compiler, Statistics
from .entry import Entry, takes_nothing
from .given import check_apart, check_count, dense
from .host_parts import check_of, collective_of, op_of, out_of_range
from .stored_programs import load, program_key

NO_LIMIT = 1 << 30  # threads

Arrays = Sequence[np.ndarray]


class Scratch:
    """Scratch memory for executables of which one runs at a time; a call beside it has an arena of its own.

    busy: the mark of the one that runs.  Those that are made while it is too small get a larger piece, twice
    as large at least; those made before keep theirs.
    """

    def __init__(self) -> None:
        self.busy = np.zeros(1, np.int64)
        self._largest = np.empty(0, np.uint8)

    def arena(self, nbytes: int) -> np.ndarray:
        if nbytes > self._largest.size:
            self._largest = memory.arena(max(nbytes, 2 * self._largest.size))
        return self._largest


class Executable:
    """A program in this process's memory, ready to run; any number of threads may call it.

    target: what it is compiled for, this machine by default.  threads: the most it may use, beside what
    set_num_threads says.  apart: tell this thread's profiler of each kernel.  sizes: what
    its symbols are, in a block of `for_sizes`.  Raises GraphError, KernelError
    for a program that can't be compiled or run here.
    """

    _scratch: Scratch | None = None  # where it shares its memory

    def __init__(
        self,
        program: Program,
        target: Target | None = None,
        threads: int | None = None,
        apart: bool = False,
        sizes: Mapping[str, int] | None = None,
    ):
        with Compiler(_usable(target)) as compiler:
            start = time.perf_counter()
            how: dict[str, Any] = {"guard": guard.MODE, "apart": apart, "sizes": sizes}
            linked = link(program, compiler.target, ready=compiler.add, **how)
            objects = compiler.objects()
        self._made(linked, objects, compiler, time.perf_counter() - start, threads)

    def _made(
        self,
        linked: Linked,
        objects: Sequence[bytes],
        compiler: Compiler,
        seconds: float,
        threads: int | None = None,
    ) -> None:
        self.statistics = Statistics(seconds, hits=compiler.hits, misses=compiler.misses)
        self._calls = linked.calls
        self._load(linked.manifest, linked.constants, objects, compiler.target, threads)

    @classmethod
    def of_programs(cls, programs: Sequence[Program], compiler: Compiler) -> list[Executable]:
        """Programs whose code is compiled all together: the text of one is written while others compile."""
        start = time.perf_counter()
        linked = [
            link(program, compiler.target, ready=compiler.add, guard=guard.MODE) for program in programs
        ]
        objects = iter(compiler.objects())
        seconds = time.perf_counter() - start
        made = [cls.__new__(cls) for _ in programs]
        for executable, one in zip(made, linked, strict=True):
            # what they took together stands with the first
            executable._made(one, [*islice(objects, len(one.texts))], compiler, seconds)
            seconds = 0.0
        return made

    @classmethod
    def of_linked(
        cls, linked: Linked, known: MutableMapping[tuple[str, ...], Any], scratch: Scratch
    ) -> Executable:
        """A program for this machine.  known: code made before, by its texts.  scratch: what it shares."""
        start = time.perf_counter()
        target = _usable(None)
        before = known.get(linked.texts)
        made = cls.__new__(cls)
        made._scratch = scratch
        if before is None:
            with Compiler(target) as compiler:
                for text in linked.texts:
                    compiler.add(text)
                objects = compiler.objects()
            made._made(linked, objects, compiler, time.perf_counter() - start)
            known[linked.texts] = made._library, made.objects
        else:
            library, objects = before
            made.statistics, made._calls = Statistics(time.perf_counter() - start), {}
            made._load(linked.manifest, linked.constants, objects, target, None, library=library)
        return made

    @classmethod
    def of_parts(
        cls,
        manifest: NativeManifest,
        constants: Arrays,
        objects: Sequence[bytes],
        target: Target | None = None,
        threads: int | None = None,
        arena: Callable[[int], np.ndarray] = memory.arena,
    ) -> Executable:
        """One that was compiled before.  Raises KernelError where the objects are not the manifest's.

        arena: gives that many bytes of scratch memory; calls that share it must not overlap.
        """
        made = cls.__new__(cls)
        made.statistics, made._calls = Statistics(), {}
        made._load(manifest, constants, objects, _usable(target), threads, arena)
        return made

    def _load(
        self,
        manifest: NativeManifest,
        constants: Arrays,
        objects: Sequence[bytes],
        target: Target,
        threads: int | None,
        arena: Callable[[int], np.ndarray] = memory.arena,
        library: Library | None = None,
    ) -> None:
        start = time.perf_counter()
        if threads is not None and threads < 1:
            raise ArgumentValueError(f"Executable(threads): at least 1, not {threads}")
        self.manifest, self.objects, self.target = manifest, tuple(objects), target
        self.constants = tuple(np.ascontiguousarray(value) for value in constants)
        self._library = library or Library(objects, target)
        self._most = threads or NO_LIMIT
        self._arena = arena
        if manifest.guard:
            guard.witness()
            self._arena = partial(guard.fenced, fences=manifest.fences)
        workers.settle()
        self._forks = self._most > 1 and manifest.nanoseconds > 2 * workers.LEAST_GRAIN
        results = [(NUMPY[dtype], shape) for dtype, shape in manifest.results]
        self._fresh = [
            (memory.maker(shape, dtype), shape, dtype)
            for (dtype, shape), into in zip(results, manifest.into, strict=True)
            if into is None
        ]
        self._written = manifest.written
        self._pick = _picker(manifest)
        self._parts = [self._runner(part) for part in manifest.parts]
        self._spare = threading.Lock()  # of the frame for calls that the quick entry does not take
        self._frame: Frame | None = None
        shared = None if manifest.guard else self._scratch
        self._quick = self._framed(self._arena if shared is None else shared.arena)
        only = manifest.parts[0] if len(manifest.parts) == 1 else None
        main = self._library.address(only.symbol) if isinstance(only, Native) and not self._calls else 0
        self._entry = Entry(manifest, main, self._quick.table, None if shared is None else shared.busy)
        self._enter = takes_nothing if manifest.guard else self._entry.function
        self._single = bool(main)
        found = self.statistics
        found.kernels, found.codes, found.arena = manifest.kernels, manifest.codes, manifest.arena
        found.load_seconds = time.perf_counter() - start

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results: new arrays, or the params that they were written over.

        Params that are not dense are copied; one that is overwritten is written back.  Raises ArgumentError,
        DTypeError, ShapeError, ArgumentValueError before anything runs, DimError for an index out of range,
        and what an op of the host raises; the params are then as they were.
        """
        if workers.asleep and self._forks:
            workers.wake()
        everything = (*arrays, *[make(shape, dtype) for make, shape, dtype in self._fresh])
        if status := self._enter(*everything):
            if status > 2:
                raise out_of_range(self.manifest.name, self.manifest.checks[status - 3])
            return self._careful(arrays, everything[len(arrays) :])
        if not self._single:
            try:
                self._quick.run(everything)
            finally:
                self._entry.leave()
        return self._pick(everything)

    def direct(self, otherwise: Callable, given: Sequence[bool], several: bool) -> Callable | None:
        """The same for a program that makes all its results anew, with less ado: one result as it is.

        otherwise: what is done with arrays that the quick entry does not take.  given: which of a call's
        arrays are there; the others are None.  several: whether results are a tuple.  None where there is
        more to a call than that.
        """
        if not self._single or self._written or not self._fresh:
            return None
        parts = [part for fresh in self._fresh for part in fresh]
        maker = straight(tuple(given), len(self._fresh), several, self._forks)
        return maker(self, self._enter, otherwise, *parts)

    # ---- calls that the quick entry does not take
    def _careful(self, arrays: Arrays, fresh: Arrays) -> tuple[np.ndarray, ...]:
        given = self._checked(arrays)
        if self._spare.locked():  # by another thread
            self._run_in(self._framed(self._arena), given, fresh)
        else:
            with self._spare:
                if self._frame is None:
                    self._frame = self._framed(self._arena)
                self._run_in(self._frame, given, fresh)
        for at in self._written:
            if given[at] is not arrays[at]:
                np.copyto(arrays[at], given[at])
        return self._pick((*arrays, *fresh))

    def _framed(self, arena: Callable[[int], np.ndarray]) -> Frame:
        manifest = self.manifest
        return Frame(manifest, self.constants, arena(manifest.arena), self._most, self._parts)

    def _run_in(self, frame: Frame, given: list[np.ndarray], fresh: Arrays) -> None:
        if self.manifest.guard:
            self._guarded(frame, given, fresh)
        else:
            frame.run_with((*given, *fresh))

    def _guarded(self, frame: Frame, given: list[np.ndarray], fresh: Arrays) -> None:
        """Run on copies between pages that may not be touched."""
        mode = self.manifest.guard
        copies = [guard.copy(array, mode) for array in given]
        copies += [guard.array(array.shape, array.dtype, mode) for array in fresh]
        frame.run_with(copies)
        written = [*((at, given[at]) for at in self._written), *enumerate(fresh, len(given))]
        for at, array in written:
            np.copyto(array, copies[at])

    def _checked(self, arrays: Arrays) -> list[np.ndarray]:
        """The arrays that native code may see: dense, aligned, the overwritten ones apart from all others."""
        check_count(self.manifest, arrays)
        given = [dense(self.manifest, at, array) for at, array in enumerate(arrays)]
        for at in check_apart(self.manifest, arrays, overlap):
            given[at] = arrays[at].copy()
        return given

    # ---- the parts
    def _runner(self, part: Part) -> Callable[[Frame, Arrays], None]:
        """What runs a part on a frame, given the params and the new results."""
        if isinstance(part, Native):
            run = _native(self._library.address(part.symbol), self.manifest)
            call = self._calls.get(part.symbol)
            return run if call is None else partial(_told, call, run)
        if isinstance(part, Meet):
            return _meet(part)
        if isinstance(part, Land):
            return _land(part)
        return _on_host(part) if isinstance(part, OnHost) else _check(part, self.manifest.name)


@cache
def straight(given: tuple[bool, ...], results: int, several: bool, forks: bool) -> Callable[..., Callable]:
    """What makes straight code that enters a program: a third of what loops over the arrays take.

    given, several: as of `direct`.  forks: whether it runs on several threads.  What is returned takes whose
    code it is, the entry, what is done otherwise, and for each result what makes it, its shape and its dtype.
    """
    arrays = ", ".join([f"x{n}" for n in range(len(given))])
    made = [f"make{n}, shape{n}, dtype{n}" for n in range(results)]
    outs = [f"y{n}" for n in range(results)]
    entered = ", ".join([*(f"x{n}" for n, there in enumerate(given) if there), *outs])
    lines = [
        f"def maker({', '.join(['executable', 'enter', 'otherwise', *made])}):",
        f"  def direct({arrays}):",
        *(["    if workers.asleep: workers.wake()"] if forks else []),
        *(f"    {y} = make{n}(shape{n}, dtype{n})" for n, y in enumerate(outs)),
        f"    if enter({entered}): return otherwise({arrays})",
        f"    return ({', '.join(outs)},)" if several else "    return y0",
        "  direct.executable = executable",  # the entry is gone with it
        "  return direct",
    ]
    scope: dict[str, Any] = {"workers": workers}
    exec("\n".join(lines), scope)
    return scope["maker"]


def _usable(target: Target | None) -> Target:
    """The target, this machine's own by default.  Raises KernelError if its code can't run here."""
    host = host_target()
    if sys.platform != "linux" or platform.machine() != host.platform.machine:
        raise KernelError(
            "native programs run on Linux, on x86-64 and AArch64",
            f"this is {sys.platform} on {platform.machine()}",
        )
    target = target or host
    if target.platform.machine != host.platform.machine or target.lanes > host.lanes:
        raise KernelError(f"code for {target.name} was asked for", f"this machine has {host.name}")
    return target


class Frame:
    """What one run at a time uses: the table that native code is given, and the arena."""

    def __init__(
        self,
        manifest: NativeManifest,
        constants: Arrays,
        arena: np.ndarray,
        most: int = NO_LIMIT,
        parts: Sequence[Callable[[Frame, Arrays], None]] = (),
    ):
        self.manifest, self.parts, self.constants, self.arena = manifest, parts, tuple(constants), arena
        self.table = np.zeros(manifest.slots, np.int64)
        self.table[POOL] = workers.pool().address
        self.table[MOST] = most
        self.table[ARENA] = memory.address(self.arena)
        if manifest.guard:
            self.table[manifest.first_number - 1] = guard.witness()
            self.constants = tuple(guard.copy(value, manifest.guard) for value in self.constants)
        self.table[manifest.first_number :] = manifest.numbers
        for n, constant in enumerate(self.constants):
            self.table[manifest.slot(Place("constant", n))] = memory.address(constant)
        self.address = memory.address(self.table)
        self._fresh = [n for n, into in enumerate(manifest.into) if into is None]
        self.flights: dict[int, Pending] = {}  # collectives that are on their way

    def run_with(self, everything: Arrays) -> None:
        """Run on dense arrays: the params, then the new results."""
        count = len(self.manifest.params)
        for at, array in enumerate(everything):
            place = Place("param", at) if at < count else Place("result", self._fresh[at - count])
            self.table[self.manifest.slot(place)] = memory.address(array)
        self.run(everything)

    def run(self, everything: Arrays) -> None:
        """Run the parts; the table knows the arrays already."""
        try:
            for part in self.parts:
                part(self, everything)
        finally:
            while self.flights:  # a part failed: what still comes goes to memory that is this frame's
                self.flights.popitem()[1].wait()

    def view(self, view: View, everything: Arrays) -> np.ndarray:
        """A part's array in this frame's memory."""
        place = view.place
        if place.kind == "arena":
            dtype = NUMPY[view.dtype]
            return np.ndarray(view.shape, dtype, self.arena, place.at)
        if place.kind == "constant":
            array = self.constants[place.at]
        elif place.kind == "param":
            array = everything[place.at]
        else:
            array = everything[len(self.manifest.params) + self._fresh.index(place.at)]
        # an alias has another shape, and may be a part of it
        first = place.beyond // array.itemsize
        return array.reshape(-1)[first : first + math.prod(view.shape)].reshape(view.shape)


def _picker(manifest: NativeManifest) -> Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]:
    """Chooses the results from the params and the new arrays."""
    positions, fresh = [], len(manifest.params)
    for into in manifest.into:
        positions.append(fresh if into is None else into)
        fresh += into is None
    if not positions:
        return lambda everything: ()
    chosen = itemgetter(*positions)
    return chosen if len(positions) > 1 else lambda everything: (chosen(everything),)


def _native(address: int, manifest: NativeManifest) -> Callable[[Frame, Arrays], None]:
    function = CFUNCTYPE(c_int64, c_void_p)(address)

    def run(frame: Frame, everything: Arrays) -> None:
        if number := function(frame.address):
            raise out_of_range(manifest.name, manifest.checks[number - 1])

    return run


def _told(call: Call | Repeat, run: Callable, frame: Frame, everything: Arrays) -> None:
    """Run a kernel or a loop, and tell this thread's profiler, if there is one."""
    timing = modes.local.timing
    if timing is None:
        return run(frame, everything)
    event = timing.begin(call.name, call)
    try:
        run(frame, everything)
    finally:
        timing.end(event)


def _on_host(part: OnHost) -> Callable[[Frame, Arrays], None]:
    name, compute = op_of(part)

    def run(frame: Frame, everything: Arrays) -> None:
        timing = modes.local.timing
        event = None if timing is None else timing.begin(f"host.{name}")
        results = compute(*(view and frame.view(view, everything) for view in part.inputs))
        for view, result in zip(part.outputs, results, strict=True):
            np.copyto(frame.view(view, everything), result)
        if event is not None:
            timing.end(event)

    return run


def _meet(part: Meet) -> Callable[[Frame, Arrays], None]:
    name, start = collective_of(part)

    def run(frame: Frame, everything: Arrays) -> None:
        timing = modes.local.timing
        event = None if timing is None else timing.begin(f"begin.{name}")
        made = frame.view(part.output, everything)
        flight = start(made if part.input == part.output else frame.view(part.input, everything), made)
        if flight is not None:
            frame.flights[part.number] = flight
        if event is not None:
            timing.end(event)

    return run


def _land(part: Land) -> Callable[[Frame, Arrays], None]:
    def run(frame: Frame, everything: Arrays) -> None:
        flight = frame.flights.pop(part.number, None)
        if flight is None:
            return  # of a group of one
        timing = modes.local.timing
        event = None if timing is None else timing.begin("wait")
        flight.wait()
        if event is not None:
            timing.end(event)

    return run


def _check(part: Check, name: str) -> Callable[[Frame, Arrays], None]:
    look = check_of(part, name)
    return lambda frame, everything: look(*(frame.view(view, everything) for view in part.inputs))


# ---- whole programs in the cache
def _program_key(key: str, target: Target) -> str:
    return program_key(NativeManifest, str(guard.MODE), identity(target), key)


def store_program(key: str, executable: Executable) -> None:
    """Keep an executable for later processes.  key: the caller's, for all that it was made from."""
    data = executable.manifest.pack(executable.constants, executable.objects)
    disk.default().put(_program_key(key, executable.target), data)


def load_program(key: str, target: Target | None = None, threads: int | None = None) -> Executable | None:
    """The executable stored under a key for this target, or None; one that can't be used is forgotten."""
    target = _usable(target)
    start = time.perf_counter()
    made = load(
        _program_key(key, target),
        lambda data: Executable.of_parts(*NativeManifest.unpack(data), target, threads),
    )
    if made is not None:
        made.statistics.hits = 1
        made.statistics.load_seconds = time.perf_counter() - start
    return made


class Resizable:
    """Code for all sizes of a variant, in this process's memory."""

    def __init__(
        self,
        variant: Variant,
        constants: Arrays,
        objects: Sequence[bytes],
        target: Target,
        library: Library,
        scratch: Scratch,
    ):
        self.variant, self.constants, self.objects = variant, tuple(constants), tuple(objects)
        self.target, self._library, self._scratch = target, library, scratch

    @classmethod
    def of(cls, variant: Variant, made: Executable) -> Resizable:
        """The code of an executable, which was made for some of the sizes and shares scratch memory."""
        assert made._scratch is not None
        return cls(variant, made.constants, made.objects, made.target, made._library, made._scratch)

    def at(self, sizes: Mapping[str, int]) -> Executable:
        """What runs at these sizes; it shares the scratch memory with those of others."""
        made = Executable.__new__(Executable)
        made._scratch, made.statistics, made._calls = self._scratch, Statistics(), {}
        manifest = self.variant.manifest(sizes)
        made._load(manifest, self.constants, self.objects, self.target, None, library=self._library)
        return made

    def store(self, key: str) -> None:
        """Keep it for later processes.  key: as of `store_program`."""
        constants = [value.tobytes() for value in self.constants]
        data = disk.pack(self.variant.json().encode(), *constants, *self.objects)
        disk.default().put(_program_key(f"variant {key}", self.target), data)

    @classmethod
    def stored(cls, key: str, scratch: Scratch) -> Resizable | None:
        """What was stored under a key for this machine, or None; what can't be used is forgotten.

        scratch: memory that it shares with others.
        """
        target = _usable(None)

        def made(data: bytes) -> Resizable:
            text, *pieces = disk.unpack(data)
            variant = Variant.from_json(text)
            constants, objects = variant.fixed.unpacked(pieces)
            return cls(variant, constants, objects, target, Library(objects, target), scratch)

        return load(_program_key(f"variant {key}", target), made)
