"""Write the main function of a program, which runs its kernels in order.

    i64 @lamina_main_0(ptr %table)

The result is 0, or the number of the check that found an index out of range, from 1 on.  Calls of kernels
are not text where there are many, but numbers that one loop goes over (`CALLS_TEXT`): those of a GPT's
training step took a sixth of LLVM's time as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Extent
from ...ir.kernel.types import NUMPY
from ...ir.recur import is_split
from ..programs.host_parts import Land, check, meet, on_host
from ..programs.in_bands import SLACK
from ..programs.memory_plan import (
    ALIGNMENT,
    MemoryPlan,
    Move,
    Place,
    aligned,
    are_apart,
    begins_aligned,
    room,
    roots,
    shares,
)
from ..programs.program import Alias, Array, Bands, Call, Host, Repeat, Step, is_meeting
from .bands_text import Member, bands_text
from .code import Code
from .in_turn import MEMCPY, in_turn, may_be_in_turn
from .native_manifest import ARENA, FIRST, MOST, POOL, Native, Part, slot_of
from .pool import LAUNCH, LIMIT

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
CALLS = "declare void @lamina_calls(ptr, ptr, ptr, ptr)"
ALONE = -1  # for the time of what one thread does
LONG_RUN = 500_000  # nanoseconds of a run that threads may share as well as they share runs
FEW = 4  # calls between other steps that are quicker as text, as in programs of one kernel


def _value(name: str, word: str) -> str:
    """The text of a value that three words at a pointer tell: the sum of two entries of the table, each 0 for
    none, and a number."""
    return f"""\
  %{name}.entry = load i64, ptr {word}, align 8
  %{name}.more.at = getelementptr i64, ptr {word}, i64 1
  %{name}.more = load i64, ptr %{name}.more.at, align 8
  %{name}.number.at = getelementptr i64, ptr {word}, i64 2
  %{name}.number = load i64, ptr %{name}.number.at, align 8
  %{name}.a.at = getelementptr i64, ptr %table, i64 %{name}.entry
  %{name}.a = load i64, ptr %{name}.a.at, align 8
  %{name}.b.at = getelementptr i64, ptr %table, i64 %{name}.more
  %{name}.b = load i64, ptr %{name}.b.at, align 8
  %{name}.no.a = icmp eq i64 %{name}.entry, 0
  %{name}.a0 = select i1 %{name}.no.a, i64 0, i64 %{name}.a
  %{name}.no.b = icmp eq i64 %{name}.more, 0
  %{name}.b0 = select i1 %{name}.no.b, i64 0, i64 %{name}.b
  %{name}.ab = add i64 %{name}.a0, %{name}.b0
  %{name} = add i64 %{name}.ab, %{name}.number
  %{name}.beyond = getelementptr i64, ptr {word}, i64 3"""


# A module of its own.  Does the calls between two pointers: of each the number of its arguments and of its
# phases, the values of the arguments, and for each phase its function, its units and its time.
CALLS_TEXT = f"""\
define weak_odr void @lamina_calls(ptr %table, ptr %first, ptr %end, ptr %args) nounwind noinline {{
entry:
  %pool = load ptr, ptr %table, align 8
  %most.at = getelementptr i64, ptr %table, i64 {MOST}
  %most = load i64, ptr %most.at, align 8
  %launch.at = getelementptr i8, ptr %pool, i64 {LAUNCH}
  %launch = load ptr, ptr %launch.at, align 8
  br label %call
call:
  %at = phi ptr [%first, %entry], [%time.beyond, %next]
  %arguments = load i64, ptr %at, align 8
  %phases.at = getelementptr i64, ptr %at, i64 1
  %phases = load i64, ptr %phases.at, align 8
  %words = getelementptr i64, ptr %at, i64 2
  br label %argument
argument:
  %n = phi i64 [0, %call], [%n.after, %argument]
  %word = phi ptr [%words, %call], [%value.beyond, %argument]
{_value("value", "%word")}
  %slot = getelementptr i64, ptr %args, i64 %n
  store i64 %value, ptr %slot, align 8
  %n.after = add i64 %n, 1
  %one.more = icmp ult i64 %n.after, %arguments
  br i1 %one.more, label %argument, label %phase
phase:
  %m = phi i64 [1, %argument], [%m.after, %again]
  %function.at = phi ptr [%value.beyond, %argument], [%time.beyond, %again]
  %function = load ptr, ptr %function.at, align 8
  %units.at = getelementptr i64, ptr %function.at, i64 1
{_value("units", "%units.at")}
{_value("time", "%units.beyond")}
  %is.alone = icmp eq i64 %time, {ALONE}
  br i1 %is.alone, label %alone, label %dealt
alone:
  call void %function(ptr %args, i64 0, i64 %units)
  br label %done
dealt:
  call void %launch(ptr %pool, ptr %function, ptr %args, i64 %units, i64 %time, i64 %most)
  br label %done
done:
  %another = icmp ult i64 %m, %phases
  br i1 %another, label %again, label %next
again:
  %m.after = add i64 %m, 1
  br label %phase
next:
  %is.last = icmp eq ptr %time.beyond, %end
  br i1 %is.last, label %last, label %call
last:
  ret void
}}"""


Span = tuple[Place, Any]  # where memory begins, and its bytes
Words = tuple[int, int, int]  # two entries of the table, and a number


@dataclass(frozen=True)
class _Task:
    """A call to be written.  phases: the functions, their units and their time, which may be ALONE."""

    values: tuple[Words, ...]
    phases: tuple[tuple[str, Words, Words], ...]

    def words(self) -> Iterator[str | int]:
        yield from (len(self.values), len(self.phases), *chain(*self.values))
        for symbol, units, time in self.phases:
            yield from (f"ptrtoint (ptr @{symbol} to i64)", *units, *time)


class Main:
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
        self.tables: list[str] = []  # of words
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.tasks: list[_Task] = []  # that are yet to be written
        self.gathered: list[tuple[Call, _Task]] = []  # calls in bands that are yet to be written
        self.latest: Call | None = None  # that of the last of these, where it may be joined by another
        self.words: list[str | int] = []  # of the part
        self.declared: dict[str, None] = {}
        self.width = self.count = 0
        self.freed = _freed(plan) if plan.fences else {}
        self.flying: dict[int, tuple[Span, Span]] = {}  # collectives: what they read and what they write
        self.met = 0

    def write(self) -> tuple[tuple[Part, ...], str]:
        program = self.plan.program
        for number, step in enumerate(program.steps):
            if (
                self.gathered
                and not isinstance(step, Alias)
                and self.gathered[0][0].bands is not bands_of(step)
            ):
                self.by_bands()
            if self.flying:
                self.land(*self.touched(number, step))
            self.copy(self.plan.moves.get(number, ()))
            if isinstance(step, Call):
                if (part := check(step, self.plan.places, self.sizes)) is not None:
                    self.cut(part)
                self.call(step)
                if step.outputs[0] in self.flags:
                    self.test(step.outputs[0])
            elif is_meeting(step):
                self.meet(step)
            elif isinstance(step, Host):
                self.cut(on_host(step, self.plan.places))
            elif isinstance(step, Repeat):
                self.repeat(step)
            else:
                assert isinstance(step, Alias)
            if self.apart and (self.lines or self.tasks) and isinstance(step, Call | Repeat):
                self.calls[f"{self.entry}_{len(self.functions)}"] = step
                self.cut(None)
            for array in self.freed.get(number, ()):
                self.land([], [(self.plan.places[array], array.nbytes)])
                self.poison(self.plan.places[array], array.nbytes)
        if self.gathered:
            self.by_bands()
        for number in list(self.flying):
            self.land_one(number)
        self.copy(self.plan.moves.get(len(program.steps), ()))
        self.cut(None)
        return tuple(self.parts), "\n".join([*self.declared, *self.tables, *self.bodies, *self.functions, ""])

    def meet(self, step: Host) -> None:
        """Begin a collective: what follows runs while its arrays are on their way."""
        (given,), (made,) = step.inputs, step.outputs
        assert given is not None
        self.cut(meet(step, self.plan.places, self.met))
        places = self.plan.places
        self.flying[self.met] = (places[given], given.nbytes), (places[made], made.nbytes)
        self.met += 1

    def land(self, read: Sequence[Span], written: Sequence[Span]) -> None:
        """Wait for the collectives that write what is read, or read or write what is written."""
        for number, (given, made) in list(self.flying.items()):
            pairs = [(a, made) for a in read] + [(a, b) for a in written for b in (given, made)]
            if not all(are_apart(*a, *b) for a, b in pairs):
                self.land_one(number)

    def land_one(self, number: int) -> None:
        self.cut(Land(number))
        del self.flying[number]

    def touched(self, number: int, step: Step) -> tuple[list[Span], list[Span]]:
        """The memory that a step and the copies before it read, and what they write."""
        moves = self.plan.moves.get(number, ())
        read: list[Span] = [(move.source, move.nbytes) for move in moves]
        written: list[Span] = [(move.target, move.nbytes) for move in moves]
        if not isinstance(step, Alias):
            inputs, outputs = self.plan.arguments(step)
            for at, array in zip(inputs, step.inputs, strict=True):
                if at is not None and array is not None:
                    read.append((at, array.nbytes))
            written += [(at, array.nbytes) for at, array in zip(outputs, step.outputs, strict=True)]
            if step in self.plan.scratch:
                written.append(self.plan.scratch[step])
        return read, written

    def cut(self, part: Part | None) -> None:
        """End the native part here, and let Python do its own."""
        self.do_calls()
        if self.lines:
            symbol = self.symbol
            if self.words:
                words = ", ".join(f"i64 {word}" for word in self.words)
                self.tables.append(
                    f"@{symbol}.calls = private constant [{len(self.words)} x i64] [{words}], align 8"
                )
            args = f"  %args = alloca [{max(self.width, 1)} x ptr], align 64"
            self.functions.append(_function(f"i64 @{symbol}(ptr %table)", [args, *self.lines], "ret i64 0"))
            self.parts.append(Native(symbol))
            self.lines, self.words, self.width = [], [], 0
        if part is not None:
            self.parts.append(part)

    @property
    def symbol(self) -> str:
        """Of the part that is being written."""
        return f"{self.entry}_{len(self.functions)}"

    def do_calls(self) -> None:
        """Write the calls that were told since the last were written."""
        tasks, self.tasks = self.tasks, []
        if len(tasks) <= FEW:
            for task in tasks:
                self.do(task)
            return
        self.declared[CALLS] = None
        first = len(self.words)
        for task in tasks:
            self.words += task.words()
        ends = (
            f"ptr getelementptr (i64, ptr @{self.symbol}.calls, i64 {at})" for at in (first, len(self.words))
        )
        self.lines.append(f"  call void @lamina_calls(ptr %table, {', '.join(ends)}, ptr %args)")

    def do(self, task: _Task) -> None:
        """Write one call as text; what it takes of the table is loaded once."""
        loaded: dict[int, str] = {}
        for n, words in enumerate(task.values):
            value = self.value(words, loaded)
            at = self.name(f"getelementptr i64, ptr %args, i64 {n}")
            self.lines.append(f"  store i64 {value}, ptr {at}, align 8")
        for symbol, units, time in task.phases:
            if time == (0, 0, ALONE):
                self.lines.append(f"  call void @{symbol}(ptr %args, i64 0, i64 {self.value(units)})")
            else:
                self.launch(symbol, "%args", self.value(units), self.value(time), "%most")

    def value(self, words: Words, loaded: dict[int, str] | None = None) -> str:
        """A number, or the address of an array as one.  loaded: the entries of the table that are."""
        *entries, number = words
        loaded = {} if loaded is None else loaded
        for entry in entries:
            if entry and entry not in loaded:
                loaded[entry] = self.entry_read(entry)
        parts = [loaded[entry] for entry in entries if entry]
        parts += [str(number)] if number or not parts else []
        while len(parts) > 1:
            parts[:2] = [self.name(f"add i64 {parts[0]}, {parts[1]}")]
        return parts[0]

    def entry_read(self, slot: int) -> str:
        return self.name(f"load i64, ptr {self.name(f'getelementptr i64, ptr %table, i64 {slot}')}, align 8")

    def say(self, *lines: str) -> None:
        self.do_calls()
        self.lines += lines

    def name(self, value: str) -> str:
        self.do_calls()
        self.count += 1
        self.lines.append(f"  %v{self.count} = {value}")
        return f"%v{self.count}"

    def number(self, number: Extent) -> str:
        """A number that depends on sizes: in the text, or in the table where that is for several."""
        slot = self.entry_of(number)
        return self.entry_read(slot) if slot else str(number)

    def entry_of(self, number: Extent) -> int:
        """The entry of the table that such a number has, or 0 where it stands in the text."""
        if self.numbers is None or self.is_open and not isinstance(number, Dim):
            return 0
        at = self.formulas.get(number, len(self.numbers)) if self.is_open else len(self.numbers)
        if at == len(self.numbers):
            self.numbers.append(number)
            self.formulas[number] = at
        return self.first_number + at

    def slot(self, place: Place) -> int:
        return slot_of(place, len(self.plan.program.params), len(self.plan.program.results))

    def begins_later(self, place: Place) -> bool:
        """Whether an array may begin beyond what its entry of the table points at."""
        return place.start != 0 or place.kind == "arena" and self.numbers is not None

    def pointer(self, place: Place) -> str:
        at = self.name(f"getelementptr ptr, ptr %table, i64 {self.slot(place)}")
        pointer = self.name(f"load ptr, ptr {at}, align 8")
        if self.begins_later(place):
            return self.name(f"getelementptr i8, ptr {pointer}, i64 {self.number(place.start)}")
        return pointer

    def words_of(self, number: Extent, slot: int = 0) -> Words:
        """The words of a number, added to an entry of the table if one is told."""
        entry = self.entry_of(number)
        return (slot, entry, 0) if entry else (slot, 0, int(number))

    def words_at(self, place: Place) -> Words:
        """Those of a pointer."""
        slot = self.slot(place)
        return self.words_of(place.start, slot) if self.begins_later(place) else (slot, 0, 0)

    def copy(self, moves: tuple[Move, ...]) -> None:
        for move in moves:
            if isinstance(move.nbytes, Dim) or move.nbytes:
                self.declared[MEMCPY] = None
                pair = f"ptr {self.pointer(move.target)}, ptr {self.pointer(move.source)}"
                count = self.number(move.nbytes)
                self.say(f"  call void @llvm.memcpy.p0.p0.i64({pair}, i64 {count}, i1 false)")

    def poison(self, place: Place, nbytes: int) -> None:
        self.declared["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"] = None
        self.say(f"  call void @llvm.memset.p0.i64(ptr {self.pointer(place)}, i8 -1, i64 {nbytes}, i1 false)")

    def note(self, name: str) -> None:
        """Say which kernel runs, for who dies of it."""
        slot = self.first_number - 1
        label = f"@{self.entry}_name{len(self.declared)}"
        self.declared[f'{label} = private constant [{len(name) + 1} x i8] c"{name}\\00"'] = None
        word = self.name(f"load ptr, ptr {self.name(f'getelementptr ptr, ptr %table, i64 {slot}')}, align 8")
        self.say(f"  store ptr {label}, ptr {word}, align 8")

    def test(self, flag: Array) -> None:
        """Leave with the check's number if its flag is set."""
        self.checks.append(self.flags[flag])
        bad = self.name(f"trunc i8 {self.name(f'load i8, ptr {self.pointer(self.plan.places[flag])}')} to i1")
        number = len(self.checks)
        self.say(
            f"  br i1 {bad}, label %bad{number}, label %good{number}",
            f"bad{number}:",
            f"  ret i64 {number}",
            f"good{number}:",
        )

    def repeat(self, step: Repeat) -> None:
        """Have a function do the runs of the body: all, or on each thread some, or those of some rows."""
        symbol = f"{self.entry}_runs{self.count}"
        self.do_calls()
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
        time = time_of_runs(step, self.plan.bodies[step], self.codes)
        alone = None
        if isinstance(step.count, int) and not isinstance(time, Dim) and time >= step.count * LONG_RUN:
            alone = self.if_idle(count)
            self.lines += [
                f"  call void @{symbol}(ptr %table, i64 0, i64 {count})",
                f"  br label %done{alone}",
                f"together{alone}:",
            ]
        self.launch(symbol, "%table", count, self.number(time), most)
        if alone:
            self.lines += [f"  br label %done{alone}", f"done{alone}:"]

    def if_idle(self, count: str) -> str:
        """Begin what is done where runs, shared among threads, would leave many of them idle: more than a
        fifth, as eight runs do of six threads.  Then threads share the kernels of each run.
        """
        at = self.name(f"getelementptr i8, ptr %pool, i64 {LIMIT}")
        held = self.name(f"load i32, ptr {at}, align 4")
        limit = self.name(f"zext i32 {held} to i64")
        threads = self.name(f"call i64 @llvm.umin.i64(i64 {limit}, i64 %most)")
        upper = self.name(f"add i64 {count}, {self.name(f'sub i64 {threads}, 1')}")
        rounds = self.name(f"udiv i64 {upper}, {threads}")
        idle = self.name(f"sub i64 {self.name(f'mul i64 {rounds}, {threads}')}, {count}")
        many = self.name(f"icmp ugt i64 {self.name(f'shl i64 {idle}, 2')}, {count}")
        label = str(self.count)
        self.lines += [f"  br i1 {many}, label %alone{label}, label %together{label}", f"alone{label}:"]
        return label

    def runs(self, step: Repeat, symbol: str) -> None:
        """What a thread does: the runs %lo to %hi, or all runs of the blocks of rows %lo to %hi.

        Each run calls the function of the body, whose table says where its arrays are.
        """
        plan, lanes, split = self.plan.bodies[step], self.plan.lanes[step], is_split(step.rows)
        sizes = None if self.numbers is None or self.is_open else self.sizes
        body = Main(plan, self.codes, {}, f"{symbol}_body", False, 0, sizes, self.is_open)
        parts, _ = body.write()
        self.declared |= body.declared
        self.tables += body.tables
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
        values = [self.words_at(place) for place in (*inputs, *outputs) if place is not None]
        values.append(self.words_at(scratch[0]) if scratch else (0, 0, 0))
        values += [self.words_of(value) for value in code.symbols]
        phases = list[tuple[str, Words, Words]]()
        for phase in code.phases:
            if not isinstance(phase.units, Dim) and not phase.units:
                continue
            self.declared[f"declare void @{phase.symbol}(ptr, i64, i64)"] = None
            units = self.words_of(phase.units)
            alone = phase.serial or phase.units == 1 and self.numbers is None
            time = (0, 0, ALONE) if alone else self.words_of(_whole(phase.nanoseconds))
            phases.append((phase.symbol, units, time))
        if not phases:
            return
        if step.bands is not None:
            self.gathered.append((step, _Task(tuple(values), tuple(phases))))
            self.latest = None
            return
        task, before = _Task(tuple(values), tuple(phases)), self.latest
        self.latest = step
        if step.in_step and self.tasks and before and before.outputs[0] in step.inputs:
            if may_be_in_turn(self.codes[before], code):
                task = self.together(before, step, (self.tasks.pop(), task))
        self.width = max(self.width, len(task.values))
        self.tasks.append(task)

    def together(self, first: Call, second: Call, tasks: tuple[_Task, _Task]) -> _Task:
        """Two tasks as one: units of each in turn."""
        symbol, passing = f"{self.entry}_in_turn{len(self.bodies)}", second.in_step
        assert passing is not None
        (own,), (other,) = self.codes[first].phases, self.codes[second].phases
        written = sum(array is not None for array in first.inputs)
        read = second.inputs.index(first.outputs[0])
        read -= second.inputs[:read].count(None)
        self.declared[MEMCPY] = None
        counts = len(tasks[0].values), len(tasks[1].values)
        self.bodies.append(in_turn(symbol, (own.symbol, other.symbol), counts, (written, read), passing))
        time = self.words_of(_whole(own.nanoseconds + other.nanoseconds))
        values = (*tasks[0].values, *tasks[1].values)
        return _Task(values, ((symbol, tasks[0].phases[0][1], time),))

    def by_bands(self) -> None:
        """Write the calls that are gathered, which are done band by band."""
        gathered, self.gathered = self.gathered, []
        (bands,) = {call.bands for call, _ in gathered}
        assert bands is not None
        symbol = f"{self.entry}_bands{len(self.bodies)}"
        members, values, time = list[Member](), [(0, 0, 0)], 0
        for call, task in gathered:
            ((phase, (*_, units), (*_, nanoseconds)),) = task.phases
            arrays = [array for array in (*call.inputs, *call.outputs) if array is not None]
            parts = [
                (n, a.nbytes // a.shape[0] - 2 * SLACK) for n, a in enumerate(arrays) if a in bands.passed
            ]
            members.append(Member(phase, len(task.values), tuple(parts), units // bands.count))
            values += task.values
            time += nanoseconds
        self.declared |= dict.fromkeys((MEMCPY, LANES_TEXT, UMIN))
        self.bodies.append(bands_text(symbol, members, bands.lanes))
        self.do_calls()
        self.width = max(self.width, len(values))
        self.do(_Task(tuple(values), ()))
        most = self.name(f"call i64 @llvm.umin.i64(i64 %most, i64 {bands.lanes})")
        self.launch(symbol, "%args", str(bands.count), str(time), most)

    def launch(self, symbol: str, args: str, units: str, time: str, most: str) -> None:
        """Deal units out over threads."""
        self.lines.append(
            f"  call void %launch(ptr %pool, ptr @{symbol}, ptr {args}, i64 {units}, i64 {time}, i64 {most})"
        )


def bands_of(step: Step) -> Bands | None:
    return step.bands if isinstance(step, Call) else None


def _element(array: Array) -> Extent:
    """The bytes of an array for each element of its first dimension."""
    return math.prod(array.shape[1:]) * NUMPY[array.dtype].itemsize


def _function(signature: str, lines: list[str], end: str) -> str:
    """A function that calls others.

    Not optimised: what only loads, stores and calls takes a third of LLVM's time so, and runs as fast (an
    LSTM's loop over 32 steps is no quicker with all passes; EPYC "Zen 4", 2026-11-26).
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


def time_of(plan: MemoryPlan, codes: Mapping[Call, Code]) -> Extent:
    """What all of a program takes on one thread, roughly."""
    phases = [phase for call in plan.program.calls for phase in codes[call].phases]
    return sum(map(_whole, [phase.nanoseconds for phase in phases])) + sum(
        time_of_runs(step, body, codes) for step, body in plan.bodies.items()
    )


def time_of_runs(step: Repeat, body: MemoryPlan, codes: Mapping[Call, Code]) -> Extent:
    """What all runs take.  Where sizes are symbols, by what takes longest: all together is a long formula."""
    times = [_whole(phase.nanoseconds) for call in body.program.calls for phase in codes[call].phases]
    times += [time_of_runs(inside, its, codes) for inside, its in body.bodies.items()]
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
