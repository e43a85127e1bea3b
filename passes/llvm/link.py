"""A program as native code: the text of every kernel once, and of the main function that runs them in order.

    i64 @lamina_main_0(ptr %table)

The result is 0, or the number of the check that found an index out of range, from 1 on.  `table` is all that
a call gives: the pool to fork through, the number of threads it may use, and a pointer for every array that
is not in the arena.  A program with ops of the host has several such parts, between which Python runs those
ops on the same memory.  What the runtime must know beside the code is the manifest, which is plain data: a
cached or exported program is its manifest, its constants and its objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...ir.dims import Dim, hint
from ...ir.errors import KernelError
from ...ir.kernel.affine import Extent
from ...ir.kernel.types import NUMPY
from ...ir.recur import is_split
from ..programs.host_parts import Check, OnHost, check, on_host
from ..programs.manifest import LIMIT, Manifest
from ..programs.memory_plan import (
    ALIGNMENT,
    MemoryPlan,
    Move,
    Place,
    aligned,
    begins_aligned,
    room,
    roots,
    shares,
    verify,
)
from ..programs.plan_memory import plan_memory
from ..programs.program import Alias, Array, Call, Host, Program, Repeat
from ..programs.with_checks import with_checks
from ..schedules.steps import Bound, Collapse
from ..schedules.target import Target
from .code import Code
from .generate import code_for_sizes, code_of
from .pool import LAUNCH

UNROLLED = 600  # lines of text of a scheduled kernel

MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
UMIN = "declare i64 @llvm.umin.i64(i64, i64)"
# A thread that does runs of a loop takes the first lane that is free, and gives it back.
LANES_TEXT = """\
declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @lamina_take_lane(ptr %taken, i64 %lanes) nounwind {
entry:
  br label %look
look:
  %now = load atomic i64, ptr %taken monotonic, align 8
  %free = xor i64 %now, -1
  %lane = call i64 @llvm.cttz.i64(i64 %free, i1 0)
  %some = icmp ult i64 %lane, %lanes
  br i1 %some, label %try, label %look
try:
  %bit = shl i64 1, %lane
  %before = atomicrmw or ptr %taken, i64 %bit acquire
  %had = and i64 %before, %bit
  %mine = icmp eq i64 %had, 0
  br i1 %mine, label %end, label %look
end:
  ret i64 %lane
}
define internal void @lamina_give_lane(ptr %taken, i64 %lane) nounwind {
  %bit = shl i64 1, %lane
  %rest = xor i64 %bit, -1
  %before = atomicrmw and ptr %taken, i64 %rest release
  ret void
}"""
POOL, MOST, ARENA, FIRST = 0, 1, 2, 3  # the table's fixed entries, and the first array's


@dataclass(frozen=True)
class Native:
    """Steps of the program as one native function."""

    symbol: str


Part = Native | OnHost | Check


@dataclass(frozen=True)
class NativeManifest(Manifest):
    """What the runtime must know of a program to run it.

    nanoseconds: the whole on one thread, roughly.  kernels: the calls; codes: the distinct ones, with those
    of the checks.  guard: how memory is guarded (`runtime/guard.py`), and fences: the pages of the arena that
    may not be touched.  numbers: what the main function reads of the table, as it depends on sizes.
    """

    FORMAT = 3  # of the table and the pool too

    parts: tuple[Part, ...]
    nanoseconds: float | Dim
    kernels: int
    codes: int
    guard: int = 0
    fences: tuple[int, ...] = ()
    numbers: tuple[int | Dim, ...] = ()

    def slot(self, place: Place) -> int:
        """The entry of the table that a place is counted from."""
        return _slot(place, len(self.params), len(self.results))

    @property
    def slots(self) -> int:
        """Entries of the table."""
        return self.first_number + len(self.numbers)

    @property
    def first_number(self) -> int:
        """The entry of the first of the numbers.

        The one before, in a program that guards, is the address of the running kernel's name.
        """
        return FIRST + len(self.params) + len(self.results) + len(self.constants) + bool(self.guard)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The native functions that it needs."""
        return tuple(part.symbol for part in self.parts if isinstance(part, Native))

    def is_sound(self) -> bool:
        return (
            super().is_sound()
            and all(0 <= count < LIMIT for count in (self.kernels, self.codes))
            and all(re.fullmatch(r"\w+", symbol) for symbol in self.symbols)
            and 0 <= self.nanoseconds < math.inf
            and not self.numbers  # such programs are of one process
        )


def _slot(place: Place, params: int, results: int) -> int:
    before = {"arena": ARENA, "param": FIRST, "result": FIRST + params, "constant": FIRST + params + results}
    return before[place.kind] + (0 if place.kind == "arena" else place.at)


@dataclass(frozen=True, eq=False)
class Linked:
    """A program ready for LLVM.

    texts: one module each, the distinct codes first, the main function last.  calls: of the native parts of
    one that is linked apart, by symbol.
    """

    manifest: NativeManifest
    plan: MemoryPlan
    texts: tuple[str, ...]
    calls: Mapping[str, Call | Repeat] = field(default_factory=dict)

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        return tuple(self.plan.program.constants.values())

    def with_manifest(self, manifest: NativeManifest) -> Linked:
        return replace(self, manifest=manifest)


def link(
    program: Program,
    target: Target,
    entry: str = "lamina_main",
    ready: Callable[[str], None] = lambda text: None,
    guard: int = 0,
    apart: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Linked:
    """The text of a program.

    sizes: what its symbols are.  Numbers that depend on them stand in the table then, and not in the text of
    the main function, which is the same for all sizes unless their kernels have codes of their own.

    entry: the main function's name, which the number of the part follows.  ready: told each text as soon as
    it is known, so that it can be compiled while the next is written.  guard: as of `plan_memory`.  apart:
    make a part of each call, so that Python sees it begin and end.  Raises GraphError, KernelError for a
    program that can't be planned, or whose kernels have no code.
    """
    codes: dict[Call, Code] = {}
    texts: dict[str, None] = {}

    def scratch(call: Call) -> int:
        code = code_of(call, target) if sizes is None else code_for_sizes(call, sizes, target)
        codes[call] = code
        text = module_text(call, code)
        if text not in texts:
            texts[text] = None
            ready(text)
        return code.scratch

    program, checks = with_checks(program if sizes is None else program.at(sizes))
    plan = verify(plan_memory(program, scratch, guard))
    main = _Main(plan, codes, checks, entry, apart, guard, sizes)
    linked = _linked(main, [*texts])
    ready(linked.texts[-1])
    return linked


def link_planned(
    plan: MemoryPlan, codes: Mapping[Call, Code], checks: dict[Array, str], entry: str = "lamina_main"
) -> Linked:
    """The text of a program of symbols for all sizes that its codes serve; its manifest is of formulas.

    checks: the names of the kernels behind flags.
    """
    texts = dict.fromkeys(module_text(call, code) for call, code in codes.items())
    return _linked(_Main(plan, codes, checks, entry, False, 0, is_open=True), [*texts])


def _linked(main: _Main, texts: list[str]) -> Linked:
    parts, text = main.write()
    time = _time(main.plan, main.codes)
    manifest = NativeManifest.of(
        main.plan,
        parts,
        tuple(main.checks),
        nanoseconds=time if isinstance(time, Dim) else float(time),
        kernels=len(main.plan.calls) - len(main.flags),
        codes=len(texts),
        guard=main.guard,
        fences=main.plan.fences,
        numbers=tuple(main.numbers or ()),
    )
    return Linked(manifest, main.plan, (*texts, text), main.calls)


def _time(plan: MemoryPlan, codes: Mapping[Call, Code]) -> Extent:
    """What all of a program takes on one thread, roughly."""
    phases = [phase for call in plan.program.calls for phase in codes[call].phases]
    return sum(map(_whole, [phase.nanoseconds for phase in phases])) + sum(
        _time_of_runs(step, body, codes) for step, body in plan.bodies.items()
    )


def _time_of_runs(step: Repeat, body: MemoryPlan, codes: Mapping[Call, Code]) -> Extent:
    """What all runs take.  Where sizes are symbols, by what takes longest: all together is a long formula."""
    times = [_whole(phase.nanoseconds) for call in body.program.calls for phase in codes[call].phases]
    times += [_time_of_runs(inside, its, codes) for inside, its in body.bodies.items()]
    count = step.count * (shares(step) if is_split(step.rows) else 1)
    if not any(isinstance(time, Dim) for time in times):
        return count * sum(times)
    longest = max(times, key=hint)
    return count * longest * -(-sum(map(hint, times)) // max(1, hint(longest)))


def _freed(plan: MemoryPlan) -> dict[int, list[Array]]:
    """The arrays of the arena that nothing reads after a step, by the step's number."""
    program, (root, _) = plan.program, roots(plan.program)
    last: dict[Array, int] = {}
    for number, step in enumerate(program.steps):
        last |= {root[array]: number for array in (*step.inputs, *step.outputs) if array is not None}
    for array in program.results:
        last.pop(root[array], None)
    freed: dict[int, list[Array]] = {}
    for array, number in last.items():
        if plan.places[array].kind == "arena":
            freed.setdefault(number, []).append(array)
    return freed


def module_text(call: Call, code: Code) -> str:
    """The text of a code for LLVM, with the options that it is to be compiled with.

    Its entries are declared mergeable: codes may share one, which equal names say is equal.
    """
    text = code.text
    for symbol in dict.fromkeys(phase.symbol for phase in code.phases):  # phases too may share one
        plain = f"define void @{symbol}("
        if plain not in text:
            raise KernelError(
                f"{code.kernel.name}: the code does not define its phase", f"missing: {plain}..."
            )
        text = text.replace(plain, f"define weak_odr void @{symbol}(", 1)
    return f"; -disable-lsr\n{text}" if _says_addresses(call, code) else text


def _says_addresses(call: Call, code: Code) -> bool:
    """Whether LLVM had better leave addresses as they are written.

    Loop strength reduction takes two thirds of the time for what is unrolled far, and the more so the more is
    (40 of 60 ms for a first convolution's rows, EPYC, 2026-11-25).  Rows and long unrolled loops run as fast
    or faster without it, up to 1.6 times; the sums of windows lose 3 to 18 %, Winograd's functions 2 %.
    """
    how = call.how
    if how is None or how.sums_inputs:
        return False
    if how.has(Bound):
        return bool(how.peeled)
    return not how.has(Collapse) and code.text.count("\n") > UNROLLED


class _Main:
    """Writes the main function, and cuts it where Python must run something."""

    def __init__(
        self,
        plan: MemoryPlan,
        codes: Mapping[Call, Code],
        flags: dict[Array, str],
        entry: str,
        apart: bool,
        guard: int,
        sizes: Mapping[str, int] | None = None,
        is_open: bool = False,
    ):
        self.sizes, self.guard, self.is_open = sizes or {}, guard, is_open
        self.numbers: list[Extent] | None = None if sizes is None and not is_open else []
        self.formulas: dict[Extent, int] = {}  # those in the table, and where
        program = plan.program
        self.first_number = FIRST + len(program.params) + len(program.results) + len(program.constants)
        self.first_number += bool(guard)
        self.plan, self.codes, self.flags, self.entry, self.apart = plan, codes, flags, entry, apart
        self.calls: dict[str, Call | Repeat] = {}
        self.checks: list[str] = []
        self.parts: list[Part] = []
        self.bodies: list[str] = []  # the texts of what repeats
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.width = self.count = 0
        self.freed = _freed(plan) if plan.fences else {}

    def write(self) -> tuple[tuple[Part, ...], str]:
        program = self.plan.program
        for number, step in enumerate(program.steps):
            self.copy(self.plan.moves.get(number, ()))
            if isinstance(step, Call):
                if (part := check(step, self.plan.places, self.sizes)) is not None:
                    self.cut(part)
                self.call(step)
                if step.outputs[0] in self.flags:
                    self.test(step.outputs[0])
            elif isinstance(step, Host):
                self.cut(on_host(step, self.plan.places))
            elif isinstance(step, Repeat):
                self.repeat(step)
            else:
                assert isinstance(step, Alias)
            if self.apart and self.lines and isinstance(step, Call | Repeat):
                self.calls[f"{self.entry}_{len(self.functions)}"] = step
                self.cut(None)
            for array in self.freed.get(number, ()):
                self.poison(self.plan.places[array], array.nbytes)
        self.copy(self.plan.moves.get(len(program.steps), ()))
        self.cut(None)
        return tuple(self.parts), "\n".join([*self.declared, *self.bodies, *self.functions, ""])

    def cut(self, part: Part | None) -> None:
        """End the native part here, and let Python do its own."""
        if self.lines:
            symbol = f"{self.entry}_{len(self.functions)}"
            args = f"  %args = alloca [{max(self.width, 1)} x ptr], align 64"
            self.functions.append(_function(f"i64 @{symbol}(ptr %table)", [args, *self.lines], "ret i64 0"))
            self.parts.append(Native(symbol))
            self.lines, self.width = [], 0
        if part is not None:
            self.parts.append(part)

    def name(self, value: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {value}")
        return f"%v{self.count}"

    def number(self, number: Extent) -> str:
        """A number that depends on sizes: in the text, or in the table where that is for several."""
        if self.numbers is None or self.is_open and not isinstance(number, Dim):
            return str(number)
        at = self.formulas.get(number, len(self.numbers)) if self.is_open else len(self.numbers)
        if at == len(self.numbers):
            self.numbers.append(number)
            self.formulas[number] = at
        slot = self.first_number + at
        return self.name(f"load i64, ptr {self.name(f'getelementptr i64, ptr %table, i64 {slot}')}, align 8")

    def pointer(self, place: Place, loaded: dict[int, str] | None = None) -> str:
        """Loaded where it is needed: held in registers, thousands of them would only be spilled.

        loaded: the entries of the table that the same step has loaded.
        """
        program = self.plan.program
        slot = _slot(place, len(program.params), len(program.results))
        loaded = {} if loaded is None else loaded
        if slot not in loaded:
            at = self.name(f"getelementptr ptr, ptr %table, i64 {slot}")
            loaded[slot] = self.name(f"load ptr, ptr {at}, align 8")
        if place.start != 0 or place.kind == "arena" and self.numbers is not None:
            return self.name(f"getelementptr i8, ptr {loaded[slot]}, i64 {self.number(place.start)}")
        return loaded[slot]

    def copy(self, moves: tuple[Move, ...]) -> None:
        for move in moves:
            if isinstance(move.nbytes, Dim) or move.nbytes:
                self.declared[MEMCPY] = None
                pair = f"ptr {self.pointer(move.target)}, ptr {self.pointer(move.source)}"
                count = self.number(move.nbytes)
                self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({pair}, i64 {count}, i1 false)")

    def poison(self, place: Place, nbytes: int) -> None:
        self.declared["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"] = None
        self.lines.append(
            f"  call void @llvm.memset.p0.i64(ptr {self.pointer(place)}, i8 -1, i64 {nbytes}, i1 false)"
        )

    def note(self, name: str) -> None:
        """Say which kernel runs, for who dies of it."""
        slot = self.first_number - 1
        label = f"@{self.entry}_name{len(self.declared)}"
        self.declared[f'{label} = private constant [{len(name) + 1} x i8] c"{name}\\00"'] = None
        word = self.name(f"load ptr, ptr {self.name(f'getelementptr ptr, ptr %table, i64 {slot}')}, align 8")
        self.lines.append(f"  store ptr {label}, ptr {word}, align 8")

    def test(self, flag: Array) -> None:
        """Leave with the check's number if its flag is set."""
        self.checks.append(self.flags[flag])
        bad = self.name(f"trunc i8 {self.name(f'load i8, ptr {self.pointer(self.plan.places[flag])}')} to i1")
        number = len(self.checks)
        self.lines += [
            f"  br i1 {bad}, label %bad{number}, label %good{number}",
            f"bad{number}:",
            f"  ret i64 {number}",
            f"good{number}:",
        ]

    def repeat(self, step: Repeat) -> None:
        """Have a function do the runs of the body: all, or on each thread some, or those of some rows."""
        symbol = f"{self.entry}_runs{self.count}"
        outside, self.lines = self.lines, []
        self.runs(step, symbol)
        self.bodies.append(_function(f"void @{symbol}(ptr %table, i64 %lo, i64 %hi)", self.lines, "ret void"))
        self.lines = outside
        lanes = self.plan.lanes[step]
        count = self.number(shares(step) if is_split(step.rows) else step.count)  # of what %lo, %hi number
        if lanes == 1:
            self.lines.append(f"  call void @{symbol}(ptr %table, i64 0, i64 {count})")
            return
        self.lines.append(f"  store i64 0, ptr {self.pointer(self.plan.scratch[step][0])}, align 8")
        self.declared[UMIN] = None
        most = self.name(f"call i64 @llvm.umin.i64(i64 %most, i64 {lanes})")
        time = self.number(_time_of_runs(step, self.plan.bodies[step], self.codes))
        self.launch(symbol, "%table", count, time, most)

    def runs(self, step: Repeat, symbol: str) -> None:
        """What a thread does: the runs %lo to %hi, or all runs of the blocks of rows %lo to %hi.

        Each run calls the function of the body, whose table says where its arrays are.
        """
        plan, lanes, split = self.plan.bodies[step], self.plan.lanes[step], is_split(step.rows)
        sizes = None if self.numbers is None or self.is_open else self.sizes
        body = _Main(plan, self.codes, {}, f"{symbol}_body", False, 0, sizes, self.is_open)
        parts, _ = body.write()
        self.declared |= body.declared
        self.bodies += [*body.bodies, *body.functions]
        (inputs, outputs), scratch = self.plan.arguments(step), self.plan.scratch.get(step)
        buffers, top = room(step, plan.arena)
        table = self.name(f"alloca [{body.first_number + len(body.numbers or ())} x i64], align 64")

        def put(slot: int, value: str) -> None:
            at = self.name(f"getelementptr i64, ptr {table}, i64 {slot}")
            self.lines.append(f"  store {value}, ptr {at}, align 8")

        def plus(pointer: str, nbytes: str) -> str:
            return self.name(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

        def loop(low: str) -> tuple[str, str, str]:
            """Begin one: its index, where that is held, and its label."""
            label, at = f"loop{self.count}", counters.pop()
            self.lines += [f"  store i64 {low}, ptr {at}, align 8", f"  br label %{label}", f"{label}:"]
            return self.name(f"load i64, ptr {at}, align 8"), at, label

        def end(index: str, at: str, label: str, high: str) -> None:
            following = self.name(f"add i64 {index}, 1")
            self.lines.append(f"  store i64 {following}, ptr {at}, align 8")
            more = self.name(f"icmp ult i64 {following}, {high}")
            self.lines += [f"  br i1 {more}, label %{label}, label %done{label}", f"done{label}:"]

        def copied(target: str, source: str, nbytes: str) -> None:
            self.declared[MEMCPY] = None
            self.lines.append(
                f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)"
            )

        counters = [self.name("alloca i64, align 8") for _ in range(1 + split)]
        taken = below = self.pointer(scratch[0]) if scratch else "null"
        lane = ""
        if lanes > 1:
            self.declared[LANES_TEXT] = None
            lane = self.name(f"call i64 @lamina_take_lane(ptr {taken}, i64 {lanes})")
            below = plus(plus(taken, str(ALIGNMENT)), self.name(f"mul i64 {lane}, {self.number(top)}"))
        put(POOL, "ptr %pool")
        put(MOST, "i64 %most")
        put(ARENA, f"ptr {below}")
        for n, number in enumerate(body.numbers or ()):
            put(body.first_number + n, f"i64 {self.number(number)}")
        given = [self.pointer(place) for place in inputs if place is not None]
        made = [self.pointer(place) for place in outputs]
        for n in range(step.states.stop, len(given)):
            put(FIRST + n, f"ptr {given[n]}")
        results = step.body.results
        elements = [self.number(_element(array)) for array in step.inputs[: step.sequences]]
        parts_of = [
            self.number(_element(array)) if is_whole else ""
            for array, is_whole in zip(step.outputs, step.is_whole, strict=True)
        ]
        own = {n: self.number(results[n].nbytes) for n in buffers}
        rooms = {n: plus(below, self.number(at)) for n, at in buffers.items()}
        apart = {n: self.number(aligned(results[n].nbytes)) for n in buffers}
        count = self.number(step.count)
        last = self.name(f"sub i64 {count}, 1")
        low, high, block = "%lo", "%hi", None
        if split:
            low, high = "0", count
            rows = [self.number(_element(array)) for array in step.body.params[: step.states.stop]]
            rows_made = [self.number(_element(array)) for array in results]
            size = self.number(step.rows)
            beyond = self.name(f"sub i64 {self.number(step.every)}, {size}")
            self.declared[UMIN] = None
            block = loop("%lo")
            first = self.name(f"mul i64 {block[0]}, {size}")
            first = self.name(f"call i64 @llvm.umin.i64(i64 {first}, i64 {beyond})")  # the last overlaps
            for n, nbytes in enumerate(rows):
                given[n] = plus(given[n], self.name(f"mul i64 {first}, {nbytes}"))
            made = [plus(x, self.name(f"mul i64 {first}, {n}")) for x, n in zip(made, rows_made, strict=True)]
        for n in step.states:
            put(FIRST + n, f"ptr {given[n]}")
        each = loop(low)
        run = each[0]
        at = self.name(f"sub i64 {last}, {run}") if step.back else run
        odd = self.name(f"and i64 {run}, 1")
        is_last = self.name(f"icmp eq i64 {run}, {last}")
        for n, nbytes in enumerate(elements):
            put(FIRST + n, f"ptr {plus(given[n], self.name(f'mul i64 {at}, {nbytes}'))}")
        written, later, at_last = [], [], []
        for n, is_whole in enumerate(step.is_whole):
            target = plus(made[n], self.name(f"mul i64 {at}, {parts_of[n]}")) if is_whole else made[n]
            place = target
            if n in buffers:
                place = plus(rooms[n], self.name(f"mul i64 {odd}, {apart[n]}"))
                if is_whole:
                    later.append((target, place, own[n]))
                elif split and not begins_aligned(step, results[n]):
                    at_last.append((target, place, own[n]))
                else:
                    place = self.name(f"select i1 {is_last}, ptr {target}, ptr {place}")
            written.append(place)
            put(FIRST + len(step.inputs) + n, f"ptr {place}")
        for part in parts:
            assert isinstance(part, Native)
            self.lines.append(f"  call i64 @{part.symbol}(ptr {table})")
        for copy in later:
            copied(*copy)
        for n, position in enumerate(step.states):
            put(FIRST + position, f"ptr {written[n]}")
        end(*each, high)
        for copy in at_last:
            copied(*copy)
        if block is not None:
            end(*block, "%hi")
        if lanes > 1:
            self.lines.append(f"  call void @lamina_give_lane(ptr {taken}, i64 {lane})")

    def call(self, step: Call) -> None:
        code = self.codes[step]
        if self.plan.fences:
            self.note(step.name)
        inputs, outputs = self.plan.arguments(step)
        scratch = self.plan.scratch.get(step)
        loaded: dict[int, str] = {}
        values = [f"ptr {self.pointer(place, loaded)}" for place in (*inputs, *outputs) if place is not None]
        values.append(f"ptr {self.pointer(scratch[0], loaded)}" if scratch else "ptr null")
        values += [f"i64 {self.number(value)}" for value in code.symbols]
        self.width = max(self.width, len(values))
        for n, value in enumerate(values):
            at = self.name(f"getelementptr ptr, ptr %args, i64 {n}")
            self.lines.append(f"  store {value}, ptr {at}, align 8")
        for phase in code.phases:
            if not isinstance(phase.units, Dim) and not phase.units:
                continue
            self.declared[f"declare void @{phase.symbol}(ptr, i64, i64)"] = None
            units = self.number(phase.units)
            if phase.serial or phase.units == 1 and self.numbers is None:
                self.lines.append(f"  call void @{phase.symbol}(ptr %args, i64 0, i64 {units})")
            else:
                time = self.number(_whole(phase.nanoseconds))
                self.launch(phase.symbol, "%args", units, time, "%most")

    def launch(self, symbol: str, args: str, units: str, time: str, most: str) -> None:
        """Deal units out over threads."""
        self.lines.append(
            f"  call void %launch(ptr %pool, ptr @{symbol}, ptr {args}, i64 {units}, i64 {time}, i64 {most})"
        )


def _element(array: Array) -> Extent:
    """The bytes of an array for each element of its first dimension."""
    return math.prod(array.shape[1:]) * NUMPY[array.dtype].itemsize


def _function(signature: str, lines: list[str], end: str) -> str:
    """A function that calls others.

    Not optimised: thousands of lines that only load, store and call, which take a third of the time so (130
    ms for a GPT's training step, EPYC, 2026-11-25) and run as fast.
    """
    head = [
        f"define {signature} nounwind noinline optnone {{",
        "  %pool = load ptr, ptr %table, align 8",
        f"  %most.at = getelementptr i64, ptr %table, i64 {MOST}",
        "  %most = load i64, ptr %most.at, align 8",
        f"  %launch.at = getelementptr i8, ptr %pool, i64 {LAUNCH}",
        "  %launch = load ptr, ptr %launch.at, align 8",
    ]
    return "\n".join([*head, *lines, f"  {end}", "}"])


def _whole(time: float | Dim) -> Extent:
    return time if isinstance(time, Dim) else round(time)
