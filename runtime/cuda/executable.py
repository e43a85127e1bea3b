"""Programs on a GPU: compiled or taken from the cache, loaded, and run on arrays of the host or the device.

    run = Executable(program)
    y, = run(x, w)

A call queues everything on the machine's stream (copies in, launches, copies out) and waits once, at the end.
An array of the caller's that is overwritten is so only when everything before went well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from ...ir.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ...ir.kernel.types import NUMPY
from ...ir.text import parse
from ...passes import cache as disk
from ...passes.llvm.binding import overlap
from ...passes.programs.host_parts import Check, OnHost, View
from ...passes.programs.memory_plan import Move, Place
from ...passes.programs.program import Program
from ...passes.triton.launches import Launch, Launches, launch_list
from ...passes.triton.opening import Open
from ...passes.triton.target import Target
from ..compiler import Statistics
from ..given import check_apart, check_count, dense
from ..host_parts import check_of, op_of, out_of_range
from ..on_device import eager
from ..stored_programs import load, program_key
from ..triton_compiler import compiled
from .arrays import DeviceArray, uploaded
from .by_hand import kernel as kernel_by_hand
from .by_hand import lying
from .driver import Function, Stream
from .machine import Machine
from .machine import machine as machine_of
from .sizes_met import has_met_many

Given = np.ndarray | DeviceArray


@dataclass
class Run:
    """One call: where its memory is, by kind of place, and the arrays that hold it.

    own: those that neither the caller gave nor gets.
    """

    params: Sequence[DeviceArray]
    results: list[DeviceArray]
    bases: dict[str, list[int]]
    own: list[DeviceArray]

    def address(self, place: Place) -> int:
        if place.kind == "arena":
            return self.bases["arena"][0] + place.at
        return self.bases[place.kind][place.at] + place.beyond


def _overlap(one: Given, two: Given) -> bool:
    return isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and overlap(one, two)


class Executable:
    """A program on a device, ready to run; any number of threads may call it.

    garbage: a byte to fill results and scratch memory with before each call, so that what is read too early
    shows.  opens: which numbers its machine code takes as parameters, which is a little slower.

    Raises GraphError, KernelError for a program that can't be compiled for the device, DeviceError where
    there is none.
    """

    _garbage: int | None = None

    def __init__(
        self, program: Program, machine: Machine | None = None, garbage: int | None = None,
        opens: Open = Open.NOTHING,
    ):  # fmt: skip
        self._garbage = garbage
        start = time.perf_counter()
        machine = machine or machine_of()
        launches, constants = launch_list(program, Target.named(machine.target), opens)
        self._load(launches, constants, machine)
        self.statistics.compile_seconds = time.perf_counter() - start

    @classmethod
    def of_parts(
        cls, launches: Launches, constants: Sequence[np.ndarray], machine: Machine | None = None
    ) -> Executable:
        """One whose passes ran before."""
        made = cls.__new__(cls)
        made._load(launches, constants, machine or machine_of())
        return made

    def _load(self, launches: Launches, constants: Sequence[np.ndarray], machine: Machine) -> None:
        self.launches, self.constants, self.machine = launches, tuple(constants), machine
        binaries = compiled(launches.codes, Target.named(machine.target))
        functions = machine.functions(launches.codes, binaries)
        self._fixed = machine.for_all_streams(
            lambda: [
                uploaded(machine, value, dtype)
                for value, (dtype, _) in zip(constants, launches.constants, strict=True)
            ],
            lambda made: made,
        )
        self._written = launches.written
        self._into = (*launches.into, *[None] * (len(launches.results) - len(launches.into)))
        self._functions = functions
        self._steps = [self._step(part, functions) for part in launches.parts]
        self.statistics = Statistics(
            kernels=sum(isinstance(part, Launch) for part in launches.parts),
            codes=len(launches.codes),
            arena=launches.arena,
        )
        self.alone = self._alone()
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")

    @classmethod
    def of_sizes(cls, program: Program, machine: Machine, opens: Open = Open.NOTHING) -> Executable:
        """One for the sizes of a program; where others of its kind had many, by code for all of them.

        opens: at first, and as long as the code that this gives is there already.
        """
        start, target = time.perf_counter(), Target.named(machine.target)
        launches, constants = launch_list(program, target, opens)
        if not machine.has(launches.codes) and has_met_many(launches):
            launches, constants = launch_list(program, target, Open.SIZES)
        made = cls.of_parts(launches, constants, machine)
        made.statistics.compile_seconds = time.perf_counter() - start
        return made

    # ---- calls
    def __call__(self, *arrays: Given) -> tuple[np.ndarray, ...]:
        """The results: new arrays, or the params that they were written over.

        Arrays that are not dense are copied; one that is overwritten is written back.  Raises ArgumentError,
        DTypeError, ShapeError, ArgumentValueError before anything runs; DimError for an index out of range,
        OutOfMemoryError, DeviceError, and what an op of the host raises: the params are then as they were.
        """
        launches = self.launches
        with self._named():
            run = self._queued(arrays)
            found = [None if at is not None else np.empty(made.shape, NUMPY[made.dtype])
                     for made, at in zip(run.results, launches.into, strict=True)]  # fmt: skip
            for result, array in zip(run.results, found, strict=True):
                if array is not None:
                    result.copy_to(array)
            self._check_flags(found)
            made = [np.empty(run.params[at].shape, NUMPY[run.params[at].dtype]) for at in self._written]
            for at, array in zip(self._written, made, strict=True):
                run.params[at].copy_to(array)
            if self.machine.unseen:  # an op that is done by hand has noted what is wrong
                eager().synchronize(self.machine)
            self.machine.stream.synchronize()
        # All is here, and nothing can fail any more; one sweep, which no interrupt divides.
        list(map(np.copyto, [arrays[at] for at in self._written], made))
        results = []
        for array, at in zip(found[: len(found) - len(launches.checks)], launches.into, strict=False):
            result = array if at is None else arrays[at]
            assert isinstance(result, np.ndarray)
            results.append(result)
        return tuple(results)

    def on_device(self, *arrays: Given) -> tuple[DeviceArray, ...]:
        """The results, which stay on the device.  No param may be overwritten.

        Arrays of the host may be changed when this returns: it waits for their copies.
        """
        if self._written:
            raise ArgumentError(f"{self.launches.name} overwrites params, and leaves results on the host")
        with self._named():
            run = self._queued(arrays)
            count = len(run.results) - len(self.launches.checks)
            if self.launches.checks:
                self._check_flags([made.numpy() for made in run.results])
            elif not all(isinstance(x, DeviceArray) for x in arrays):
                self.machine.stream.synchronize()
        return tuple(run.results[:count])

    def _check_flags(self, found: Sequence[np.ndarray | None]) -> None:
        checks = self.launches.checks
        if not checks:
            return
        self.machine.stream.synchronize()
        for flag, kernel in zip(found[-len(checks) :], checks, strict=True):
            assert flag is not None
            if flag[0]:
                raise out_of_range(self.launches.name, kernel)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Have a device's error say in which program it came up."""
        try:
            yield
        except DeviceError as error:
            raise type(error)(error.rule, *error.details, f"in: {self.launches.name}") from error

    def _queued(self, arrays: Sequence[Given]) -> Run:
        """Queue the copies of the params and every step."""
        machine, launches = self.machine, self.launches
        machine.use()
        check_count(launches, arrays)
        given = [
            self._fits(at, x) if isinstance(x, DeviceArray) else dense(launches, at, x)
            for at, x in enumerate(arrays)
        ]
        if self._written:
            check_apart(launches, arrays, _overlap)  # every upload is a copy: only two that are written clash
        params = [
            x if isinstance(x, DeviceArray) else uploaded(machine, x, dtype)
            for x, (dtype, _) in zip(given, launches.params, strict=True)
        ]
        return self._begun([x.address for x in params], params)

    def queued(self, addresses: list[int]) -> list[DeviceArray]:
        """Queue every step on params that lie at those addresses, aligned and dense; the results, and flags.

        Nothing is looked at, and nothing waited for.
        """
        self.machine.use()
        with self._named():
            return self._begun(addresses).results

    def _alone(self) -> Callable[[list[int]], DeviceArray] | None:
        """What launches the one kernel of a program of one result, given its params' addresses, sooner than
        `queued`; None of any other program.
        """
        launches, machine = self.launches, self.machine
        if len(launches.parts) != 1 or len(launches.results) != 1 or launches.arena or launches.checks:
            return None
        (only,), ((dtype, shape),) = launches.parts, launches.results
        if not isinstance(only, Launch) or self._garbage is not None or self._written:
            return None
        function, grid = self._functions[only.code], launches.codes[only.code].grid
        numbers = launches.codes[only.code].numbers
        if any(function.scratch(grid)) or any(place.beyond for place in only.arguments):
            return None
        count, fixed, about = len(launches.params), [x.address for x in self._fixed], only.about
        base = {"param": 0, "result": count, "constant": count + 1}
        order = [base[place.kind] + place.at for place in only.arguments]
        pick = itemgetter(*order, order[0])  # once more, as of one alone it would make no tuple

        def run(addresses: list[int]) -> DeviceArray:
            made = DeviceArray(machine, dtype, shape)
            given = pick((*addresses, made.address, *fixed))[:-1]
            machine.stream.launch(function, grid, *given, *numbers, about=about)
            return made

        return run

    def run_at(self, addresses: list[int], params: Sequence[DeviceArray] = ()) -> Run:
        """A call on params at those addresses, with memory for its results and what lies between."""
        machine, launches = self.machine, self.launches
        results = [  # what overwrites a param has no memory of its own
            DeviceArray(machine, dtype, shape if at is None else (0,))
            for (dtype, shape), at in zip(launches.results, self._into, strict=True)
        ]
        arena = DeviceArray(machine, "u8", (launches.arena,))
        return Run(params, results, {
            "param": addresses, "result": [x.address for x in results],
            "constant": [x.address for x in self._fixed], "arena": [arena.address],
        }, [arena])  # fmt: skip

    def _begun(self, addresses: list[int], params: Sequence[DeviceArray] = ()) -> Run:
        """Queue every step."""
        run = self.run_at(addresses, params)
        if self._garbage is not None:
            for made in (*run.results, *run.own):
                self.machine.stream.fill(made.address, self._garbage, made.nbytes)
        for step in self._steps:
            step(run)
        return run

    def _fits(self, at: int, array: DeviceArray) -> DeviceArray:
        dtype, shape = self.launches.params[at]
        about = f"{self.launches.name}: {self.launches.names[at]} is {dtype}[{','.join(map(str, shape))}]"
        if at in self._written:
            raise ArgumentError(about, "it is overwritten: give an array of the host")
        if array.dtype != dtype:
            raise DTypeError(about, f"given: {array}")
        if array.shape != shape:
            raise ShapeError(about, f"given: {array}")
        if array.machine is not self.machine:
            raise DeviceError(about, f"the program runs on {self.machine.device}", f"given: {array}")
        return array

    # ---- steps
    def _step(
        self, part: Launch | Move | OnHost | Check, functions: Sequence[Function]
    ) -> Callable[[Run], None]:
        machine = self.machine
        if isinstance(part, Launch):
            function, grid = functions[part.code], self.launches.codes[part.code].grid
            numbers = self.launches.codes[part.code].numbers
            sizes = function.scratch(grid)
            spares: dict[Stream, list[DeviceArray | None]] = {}  # of one launch after another on a stream

            def launch(run: Run) -> None:
                stream = machine.stream
                if (spare := spares.get(stream)) is None:
                    spare = [DeviceArray(machine, "u8", (n,)) if n else None for n in sizes]
                    spares[stream] = spare
                scratch, profile = (0 if array is None else array.address for array in spare)
                stream.launch(
                    function, grid, *map(run.address, part.arguments), *numbers, about=part.about,
                    scratch=scratch, profile=profile,
                )  # fmt: skip
                if self._blocking:
                    stream.synchronize()

            return launch
        if isinstance(part, Move):
            return lambda run: machine.stream.copy(
                run.address(part.target), run.address(part.source), part.nbytes
            )
        if isinstance(part, Check):
            look = check_of(part, self.launches.name)
            return lambda run: look(*self._fetched(run, part.inputs))
        if (by_hand := self._by_hand(part)) is not None:
            return by_hand
        _, compute = op_of(part)

        def on_host(run: Run) -> None:
            results = compute(*self._fetched(run, part.inputs))
            for view, result in zip(part.outputs, results, strict=True):
                array = np.ascontiguousarray(result, NUMPY[view.dtype]).reshape(view.shape)
                if array.nbytes:
                    machine.stream.copy_in(run.address(view.place), array)

        return on_host

    def _by_hand(self, part: OnHost) -> Callable[[Run], None] | None:
        """The step of an op that `by_hand` has on the device; None of others, which are the host's."""
        (node,) = parse(part.text).nodes
        machine = self.machine
        types = [None if value is None else value.type for value in node.inputs]
        compute = None if node.op.traits.host else kernel_by_hand(node.op, types, node.attrs, machine)
        if compute is None:
            return None

        def order(run: Run) -> None:
            given = [
                view and lying(machine, run.address(view.place), view.shape, NUMPY[view.dtype])
                for view in part.inputs
            ]
            results = compute(*given)
            for view, made in zip(
                part.outputs, results if isinstance(results, tuple) else (results,), strict=True
            ):
                machine.stream.copy(run.address(view.place), made.address, made.nbytes)

        return order

    def _fetched(self, run: Run, views: Sequence[View | None]) -> list[np.ndarray | None]:
        """Arrays of the host with what those places hold, once it is there."""
        found = [None if view is None else np.empty(view.shape, NUMPY[view.dtype]) for view in views]
        for view, array in zip(views, found, strict=True):
            if view is not None and array is not None and array.nbytes:
                self.machine.stream.copy_out(array, run.address(view.place))
        self.machine.stream.synchronize()
        return found


# ---- whole programs in the cache
def store_program(key: str, executable: Executable) -> None:
    """Keep an executable's launches for later processes.  key: for all that it was made from."""
    disk.default().put(program_key(Launches, key), executable.launches.pack(executable.constants))


def load_program(
    key: str, machine: Machine | None = None, made: type[Executable] = Executable
) -> Executable | None:
    """The executable stored under a key, or None; one that can't be used is forgotten."""
    unpacked = load(program_key(Launches, key), Launches.unpack)
    if unpacked is None:
        return None
    launches, constants, _ = unpacked
    has_met_many(launches)
    return made.of_parts(launches, constants, machine)
