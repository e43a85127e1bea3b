"""Where every array of a program is in memory, and the check that no read finds anything but what it should.

    plan of net: arena of 128 bytes
      %x at param 0
      %h at arena+0
      %y at result 0, in place of %h
      at the end: result 0 -> param 0

plan_memory.py makes such plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from ...ir.dims import Dim, evaluate, hint
from ...ir.errors import GraphError
from ...ir.kernel.affine import Extent
from ...ir.kernel.form import Kernel
from ...ir.kernel.types import NUMPY
from ...ir.printing import Namer
from ...ir.recur import is_split
from ..kernels.index_check import CHECK, index_check, tested, trusted
from .program import Alias, Array, Call, Host, Program, Repeat, Step, is_meeting, is_on_host

ALIGNMENT = 64  # bytes: a cache line, and an AVX-512 register
# Of a loop whose runs don't hang on one another.  Memory that no thread comes to is never touched.
LANES, LEAST_LANES, LANES_BYTES = 32, 4, 32 << 20


@dataclass(frozen=True)
class Place:
    """Where an array begins.  kind: param, result, constant or arena; at: its position, or a byte offset in
    the arena; beyond: bytes from the beginning of the param, result or constant on.  Where sizes are symbols
    the bytes are formulas (`Dim`), until they are evaluated.
    """

    kind: str
    at: int
    beyond: int = 0

    @property
    def start(self) -> Any:
        """Bytes from the beginning of the memory that it is in."""
        return self.at if self.kind == "arena" else self.beyond

    def plus(self, nbytes: Any) -> Place:
        """The place that many bytes on."""
        if self.kind == "arena":
            return Place("arena", self.at + nbytes)
        return Place(self.kind, self.at, self.beyond + nbytes)

    def at_sizes(self, sizes: Mapping[str, int]) -> Place:
        """The place where symbols are these sizes."""
        return Place(self.kind, evaluate(self.at, sizes), evaluate(self.beyond, sizes))

    def __str__(self) -> str:
        if self.kind == "arena":
            return f"arena+{self.at}"
        return f"{self.kind} {self.at}" + (f"+{self.beyond}" if self.beyond != 0 else "")


@dataclass(frozen=True)
class Move:
    """Bytes copied from one place to another."""

    source: Place
    target: Place
    nbytes: int

    def at(self, sizes: Mapping[str, int]) -> Move:
        """The copy where symbols are these sizes."""
        return Move(self.source.at_sizes(sizes), self.target.at_sizes(sizes), evaluate(self.nbytes, sizes))

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where everything in a program is.

    program: the one planned for, its kernels declaring what they do in place.  moves: copies before a step,
    by the number of the step; those at the number of steps come last.  scratch: where that of a step begins,
    and its bytes.  arena: bytes.  fences: offsets of the pages in the arena that may not be touched, in a
    plan that guards memory.  offsets: symbols in the places of a program of symbols, each the greatest of
    some formulas of sizes and of the symbols before it.  bodies: the plans of what repeats, whose arenas are
    in its scratch (`room`).  lanes: of what repeats how many runs there may be at once.
    """

    program: Program
    places: Mapping[Array, Place]
    arena: Any
    moves: Mapping[int, tuple[Move, ...]] = field(default_factory=dict)
    scratch: Mapping[Step, tuple[Place, int]] = field(default_factory=dict)
    fences: tuple[int, ...] = ()
    offsets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    bodies: Mapping[Repeat, MemoryPlan] = field(default_factory=dict)
    lanes: Mapping[Repeat, int] = field(default_factory=dict)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Those inside of what repeats, too."""
        return (*self.program.calls, *(call for body in self.bodies.values() for call in body.calls))

    def known(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """What the symbols in places are where those of the program are these sizes, which stand first."""
        known = dict(sizes)
        for name, ends in self.offsets.items():
            known[name] = max([evaluate(end, known) for end in ends])
        return known

    def at(self, sizes: Mapping[str, int]) -> MemoryPlan:
        """The plan where symbols are these sizes."""
        known = self.known(sizes)
        program = self.program.at(sizes)
        became: dict[Step, Any] = dict(zip(self.program.steps, program.steps, strict=True))
        bodies = {became[step]: body.at(known) for step, body in self.bodies.items()}
        arrays = zip(self.program.arrays(), program.arrays(), strict=True)
        return MemoryPlan(
            program,
            {made: self.places[array].at_sizes(known) for array, made in arrays},
            evaluate(self.arena, known),
            {number: tuple([move.at(known) for move in moves]) for number, moves in self.moves.items()},
            {
                became[step]: (place.at_sizes(known), evaluate(n, known))
                for step, (place, n) in self.scratch.items()
            },
            self.fences,
            bodies=bodies,
            lanes={became[step]: lanes for step, lanes in self.lanes.items()},
        )

    def arguments(self, step: Step) -> tuple[tuple[Place | None, ...], tuple[Place, ...]]:
        """The places of a step's inputs (None: an operand left out) and outputs.

        The input that an output is in place of is where that output is: if the two are apart, a move goes
        before.
        """
        outputs = tuple(self.places[array] for array in step.outputs)
        inputs = [None if array is None else self.places[array] for array in step.inputs]
        for n, source in overwrites(step):
            inputs[source] = outputs[n]
        return tuple(inputs), outputs

    def replace(self, **changes: Any) -> MemoryPlan:
        return replace(self, **changes)

    def __str__(self) -> str:
        program, namer = self.program, Namer()
        names = {array: namer.name(array.name) for array in program.arrays()}
        lines = [f"plan of {program.name}: arena of {self.arena} bytes"]
        lines += [f"  %{names[a]} at {self.places[a]}" for a in (*program.params, *program.constants)]
        for number, step in enumerate(program.steps):
            lines += [f"  before {step.name}: {move}" for move in self.moves.get(number, ())]
            over = {n: step.inputs[i] for n, i in overwrites(step)}
            for n, array in enumerate(step.outputs):
                source = over.get(n)
                note = "" if source is None else f", in place of %{names[source]}"
                note = f", the memory of %{names[step.inputs[0]]}" if isinstance(step, Alias) else note
                lines.append(f"  %{names[array]} at {self.places[array]}{note}")
            if step in self.scratch:
                place, nbytes = self.scratch[step]
                lines.append(f"  scratch of {step.name} at {place}: {nbytes} bytes")
        lines += [f"  at the end: {move}" for move in self.moves.get(len(program.steps), ())]
        return "\n".join(lines)


def failing(program: Program) -> frozenset[int]:
    """The numbers of the steps that can raise: ops of the host, checks, and kernels that are to be checked.

    No kernel is whose indices are elements of an array that an earlier one has had checked.
    """
    root, _ = roots(program)
    below: set[tuple[Array, Extent]] = set()  # arrays of indices, and what all of them are below
    found, checked = set[int](), set[tuple]()
    for number, step in enumerate(program.steps):
        if is_on_host(step) and not is_meeting(step):  # after which nothing could be as it was
            found.add(number)
        elif isinstance(step, Call) and step.kernel.name == CHECK:
            found.add(number)
            checked.add((step.kernel, step.inputs))
        elif isinstance(step, Call) and any(trusted(step.kernel)):
            check = index_check(step.kernel)
            about = tested(step.kernel) if check else None
            checks = [(step.inputs[at], size, is_whole) for at, size, is_whole in about or ()]
            if about is None or any((root[array], size) not in below for array, size, _ in checks):
                if check is None or (check[0], tuple(step.inputs[n] for n in check[1])) not in checked:
                    found.add(number)
                below |= {
                    (root[array], size)
                    for array, size, is_whole in checks
                    if is_whole and array.nbytes == root[array].nbytes
                }
    return frozenset(found)


def are_apart(one: Place, size: Any, two: Place, other: Any) -> bool:
    """Whether two pieces of memory have no byte in common; False where sizes that are formulas may tell."""
    if (one.kind, one.kind != "arena" and one.at) != (two.kind, two.kind != "arena" and two.at):
        return True
    if any(isinstance(n, Dim) for n in (one.start, size, two.start, other)):
        return False
    return one.start + size <= two.start or two.start + other <= one.start


def aligned(nbytes: Any) -> Any:
    return (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def shares(step: Repeat) -> Any:
    """In how many parts a program that repeats can be done, in any order: blocks of rows, or its runs."""
    if is_split(step.rows):
        return (step.every + (step.rows - 1)) // step.rows
    return 1 if step.kept else step.count  # a run begins with what the one before it made


def lanes_of(step: Repeat, arena: Any) -> int:
    """How many parts of a program that repeats there may be at once, on a thread and with an arena each."""
    count, (_, top) = shares(step), room(step, arena)
    most = min(LANES, max(LEAST_LANES, LANES_BYTES // max(1, hint(top))))
    return most if isinstance(count, Dim) else min(most, count)


def lanes_room(top: Any, lanes: int) -> Any:
    """Bytes of scratch: `room` for each lane, behind a word that tells which of them are taken."""
    return top if lanes == 1 else ALIGNMENT + lanes * top


def room(step: Repeat, arena: Any) -> tuple[dict[int, Any], Any]:
    """What a run of a program that repeats has beside its operands: the bytes, which begin with its arena.

    The outputs, by number, that its runs can't write straight to where they belong, and where in the scratch
    two buffers for each begin, which runs write in turn: of a state the next reads what it was, and elements
    of some sizes begin where nothing may be written (`ALIGNMENT`).
    """
    buffers: dict[int, Any] = {}
    top = aligned(arena)
    for n, (made, is_whole) in enumerate(zip(step.body.results, step.is_whole, strict=True)):
        if not is_whole or not begins_aligned(step, made):
            buffers[n] = top
            top = top + 2 * aligned(made.nbytes)
    return buffers, top


def begins_aligned(step: Repeat, made: Array) -> bool:
    """Whether what each run makes of an output, or of some of its rows, may be written where it belongs."""
    nbytes = made.nbytes
    if is_split(step.rows):
        nbytes = prod(made.shape[1:]) * NUMPY[made.dtype].itemsize
    rest = nbytes % ALIGNMENT
    return not isinstance(rest, Dim) and rest == 0


def declared(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """(output, input), by position, for each output that the kernel writes in place."""
    names = [buffer.name for buffer in kernel.inputs]
    for n, buffer in enumerate(kernel.outputs):
        if buffer.inplace is not None:
            yield n, names.index(buffer.inplace)


def overwrites(step: Step) -> Iterator[tuple[int, int]]:
    """(output, input), by position, for each output that a step writes in place."""
    if isinstance(step, Call):
        yield from declared(step.kernel)
    elif isinstance(step, Host) and step.is_over:
        yield 0, 0


def beside(steps: Sequence[Step], number: int) -> list[Array]:
    """What calls before may still read and write while a step runs, that are in step or in bands with it."""
    step = steps[number]
    if not isinstance(step, Call):
        return []
    if step.bands is not None:
        members = [one for one in steps[:number] if isinstance(one, Call) and one.bands is step.bands]
        return [array for one in members for array in (*one.inputs, *one.outputs)]
    if not step.in_step:
        return []
    before = next(one for one in reversed(steps[:number]) if not isinstance(one, Alias))
    return [array for array in (*before.inputs, *before.outputs) if array is not None]


def roots(program: Program) -> tuple[dict[Array, Array], dict[Array, Any]]:
    """For every array the one whose memory it has, itself or what it is an alias of, and from which of its
    bytes on.
    """
    found: dict[Array, Array] = {array: array for array in program.arrays()}
    beyond: dict[Array, Any] = dict.fromkeys(found, 0)
    for step in program.steps:
        if isinstance(step, Alias):
            (source,), (view,) = step.inputs, step.outputs
            found[view] = found[source]
            beyond[view] = beyond[source] + step.nbytes_before
    return found, beyond


# ---- the verifier -----------------------------------------------------------------------------------------
def verify(plan: MemoryPlan) -> MemoryPlan:
    """The plan, if every read finds what was written for it.

    The program is followed step by step with a note of what each range of bytes holds.  Raises GraphError
    where an array is gone when it is read, where a step's outputs or scratch lie over what it reads without
    being in place of it, where a caller's array is overwritten that should not be, or before something that
    may fail.
    """
    return _Memory(plan).follow()


class _Memory:
    def __init__(self, plan: MemoryPlan):
        self.plan, self.program = plan, plan.program
        # by memory: from which byte to which it holds which array, from which of the array's bytes on
        self.held: dict[tuple[str, int], list[tuple[int, int, Array, int]]] = {}
        self.root, self.beyond = roots(plan.program)
        self.overwritten = False
        program = plan.program
        self.owners = {
            "param": program.params,
            "result": program.results,
            "constant": tuple(program.constants),
        }

    def refuse(self, rule: str, *details: str) -> GraphError:
        return GraphError(f"plan of {self.program.name}: {rule}", *details)

    def range(self, place: Place, nbytes: int) -> tuple[tuple[str, int], int, int]:
        if place.kind == "arena":
            if place.at < 0 or place.at + nbytes > self.plan.arena:
                raise self.refuse(f"{nbytes} bytes at {place} are not inside the arena")
            return ("arena", 0), place.at, place.at + nbytes
        owner = self.owners[place.kind][place.at]
        if place.beyond < 0 or place.beyond + nbytes > owner.nbytes:
            raise self.refuse(f"{nbytes} bytes at {place} are not inside {owner}")
        return (place.kind, place.at), place.beyond, place.beyond + nbytes

    def write(self, place: Place, array: Array | None, nbytes: int, beyond: int = 0) -> None:
        """Note that the bytes hold `array` now (None: nothing of use), from its byte `beyond` on."""
        memory, low, high = self.range(place, nbytes)
        if low % ALIGNMENT and not self.plan.fences:
            raise self.refuse(f"{place} is written to, and not aligned", f"by: {array}")
        if place.kind == "constant" or (place.kind == "param" and place.at not in self.program.into):
            raise self.refuse(f"{place} is written over", f"by: {array}")
        self.overwritten = self.overwritten or place.kind == "param"
        kept = [e for e in self.held.get(memory, []) if e[1] <= low or e[0] >= high]
        self.held[memory] = kept + ([(low, high, array, beyond)] if array is not None else [])

    def read(self, place: Place, array: Array, by: str) -> None:
        held = self.holding(place, array.nbytes)
        if array.nbytes and held != (self.root[array], self.beyond[array]):
            raise self.refuse(f"{array} is not at {place} any more", f"read by: {by}")

    def holding(self, place: Place, nbytes: int) -> tuple[Array, int] | None:
        """The array that all of these bytes are of, and the byte of it that is their first."""
        memory, low, high = self.range(place, nbytes)
        for start, end, array, beyond in self.held.get(memory, []):
            if start <= low and high <= end:
                return array, beyond + low - start
        return None

    def apart(self, one: Place, size: int, two: Place, other: int) -> bool:
        memory, low, high = self.range(one, size)
        where, start, end = self.range(two, other)
        return memory != where or high <= start or end <= low or low == high or start == end

    def follow(self) -> MemoryPlan:
        plan, program = self.plan, self.program
        for array in (*program.params, *program.constants):
            memory, low, high = self.range(plan.places[array], array.nbytes)
            self.held[memory] = [(low, high, array, 0)]
        may_fail = failing(program)
        for number, step in enumerate(program.steps):
            if self.overwritten and number in may_fail:
                raise self.refuse(f"{step.name} may fail after a param was overwritten")
            inputs, outputs = plan.arguments(step)
            if isinstance(step, Alias):
                (source,) = inputs
                if source is None or source.plus(step.nbytes_before) != outputs[0]:
                    raise self.refuse("an alias is where its source is", f"{step.outputs[0]} at {outputs[0]}")
                continue
            self.move(number)
            for array, place in zip(step.inputs, inputs, strict=True):
                if array is not None and place is not None:
                    self.read(place, array, step.name)
            self.apart_in_step(step, inputs, outputs)
            for array in beside(program.steps, number):
                for place, made in zip(outputs, step.outputs, strict=True):
                    if not self.apart(place, made.nbytes, plan.places[array], array.nbytes):
                        raise self.refuse(
                            f"{step.name} writes over what it is in step or in bands with", f"over: {array}"
                        )
            if isinstance(step, Repeat):
                verify(plan.bodies[step])
            if step in plan.scratch:
                self.write(plan.scratch[step][0], None, plan.scratch[step][1])
            for array, place in zip(step.outputs, outputs, strict=True):
                self.write(place, array, array.nbytes)
        self.move(len(program.steps))
        for position, (array, at) in enumerate(zip(program.results, program.into, strict=True)):
            self.read(Place("result", position) if at is None else Place("param", at), array, "the caller")
        return plan

    def move(self, number: int) -> None:
        """Follow the copies before a step; what they copy is seen from what their source holds."""
        for move in self.plan.moves.get(number, ()):
            held = self.holding(move.source, move.nbytes)
            if held is None and move.nbytes:
                raise self.refuse("a copy takes what was overwritten", f"copy: {move}")
            array, beyond = held or (None, 0)
            self.write(move.target, array, move.nbytes, beyond)

    def apart_in_step(self, step: Step, inputs: tuple[Place | None, ...], outputs: tuple[Place, ...]) -> None:
        """What a step writes lies over nothing else that it reads or writes, but where it is in place."""
        shared = set(overwrites(step))
        is_host = is_on_host(step) and not is_meeting(step)  # it reads copies
        written = [(place, array.nbytes) for place, array in zip(outputs, step.outputs, strict=True)]
        if step in self.plan.scratch:
            written.append(self.plan.scratch[step])
        for n, (place, nbytes) in enumerate(written):
            others = [(at, a, i) for i, (at, a) in enumerate(zip(inputs, step.inputs, strict=True))]
            for at, array, i in others:
                if at is None or array is None or (n, i) in shared or is_host:
                    continue
                if not self.apart(place, nbytes, at, array.nbytes):
                    raise self.refuse(f"{step.name} writes over its operand {array}", f"at: {place}")
            for at, size in written[:n]:
                if not self.apart(place, nbytes, at, size):
                    raise self.refuse(f"{step.name} writes two things to one place", f"at: {place}")
