"""Gives every array of a program a place in memory: a param, a result, a constant, or part of one arena.

Lifetimes decide.  Arrays that are never needed at once share bytes; a pointwise kernel writes over an operand
that dies there, and so does a collective whose result has its operand's shape; a result that overwrites a
param is written straight over it where nothing reads the old values any more and nothing after it can fail,
and is else copied when all is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from ...ir.dims import Dim, for_once, hint, hints, symbol
from ...ir.errors import GraphError
from ...ir.kernel.affine import Affine, Extent
from ...ir.kernel.form import Buffer, Kernel, Local, Stage, Store
from ...ir.kernel.scalar import Expr, Ref, ref
from ...ir.memo import MEMO
from ...ir.shapes import is_one
from .memory_plan import (
    MemoryPlan,
    Move,
    Place,
    aligned,
    beside,
    declared,
    failing,
    lanes_of,
    lanes_room,
    overwrites,
    room,
    roots,
    shares,
)
from .program import Alias, Array, Call, Program, Step, is_meeting


def plan_memory(
    program: Program,
    scratch: Callable[[Call], int] = lambda call: 0,
    guard: int = 0,
    prefix: str = "",
    spread: bool = True,
) -> MemoryPlan:
    """A place for every array.  scratch: the bytes that a call's code needs beside its arrays.

    guard: where not 0, nothing shares memory, and each array in the arena ends (1) or begins (2) beside a
    page that may not be touched.  prefix: what names of symbols in places begin with.  spread: whether runs
    of what repeats go to several threads; not where those of the loop around it do.  Raises GraphError for a
    program that overwrites one param with two results.
    """
    overwritten = [at for at in program.into if at is not None]
    if len(set(overwritten)) < len(overwritten):
        raise GraphError(
            f"program {program.name}: a param is overwritten by one result",
            f"into: {', '.join(map(str, program.into))}",
        )
    return _Planner(program).plan(scratch, guard, prefix, spread)


PAGE = 4096  # bytes
OFFSET, ARENA = "offset", "arena_size"  # symbols: where a slot begins, and the end of the last
BODY = "body"  # before those of what repeats, with its number


@dataclass(eq=False)
class _Slot:
    """Memory for arrays that follow one another: each is written in place of the one before."""

    nbytes: Any
    first: int
    last: int
    place: Place | None = None
    arrays: list[Array] = field(default_factory=list)


class _Planner:
    """Plans one program.  Times are the numbers of steps; the end is their count."""

    def __init__(self, program: Program):
        self.guard = 0
        self.steps = list(program.steps)
        self.program = program
        self.end = len(self.steps)
        self.root, self.beyond = roots(program)
        self.fixed = {self.root[a] for a in (*program.params, *program.constants)}
        self.first: dict[Array, int] = dict.fromkeys(self.fixed, -1)
        self.last: dict[Array, int] = dict.fromkeys(self.fixed, -1)
        for number, step in enumerate(self.steps):
            for array in step.outputs:
                self.first.setdefault(self.root[array], number)
            for array in (*step.inputs, *step.outputs):
                if array is not None:
                    self.last[self.root[array]] = number
            for array in beside(self.steps, number):  # whose memory is nobody's yet when this one writes
                self.last[self.root[array]] = min(number + 1, self.end)
        self.slots: dict[Array, _Slot] = {}
        for number, step in enumerate(self.steps):
            if is_meeting(step) and self.given(step) in self.fixed:
                self.hold_until_read(number)
        for array in program.results:
            self.last[self.root[array]] = self.end
        self.safe_after = max(failing(program), default=-1)

    def given(self, meeting: Step) -> Array:
        """The root of a collective's operand."""
        (array,) = meeting.inputs
        assert array is not None
        return self.root[array]

    def hold_until_read(self, number: int) -> None:
        """Let a collective's operand live until somebody reads, and so waits for, what becomes of it."""
        given = self.given(self.steps[number])
        end = self.first_read(self.steps[number].outputs[0], number)
        self.last[given] = max(self.last[given], end)
        if given in self.slots:
            self.slots[given].last = max(self.slots[given].last, end)

    def first_read(self, root: Array, after: int) -> int:
        """The first step after one that reads an array; the end where none does."""
        for number in range(after + 1, self.end):
            step = self.steps[number]
            if not isinstance(step, Alias) and any(a and self.root[a] is root for a in step.inputs):
                return number
        return self.end

    def plan(self, scratch: Callable[[Call], int], guard: int, prefix: str, spread: bool) -> MemoryPlan:
        self.guard = guard
        program = self.program
        for position, array in enumerate(program.params):
            self.slots[array] = _Slot(array.nbytes, -1, self.end, Place("param", position))
        for position, array in enumerate(program.constants):
            self.slots[array] = _Slot(array.nbytes, -1, self.end, Place("constant", position))
        if not self.guard:
            self.write_over_params()
        self.write_to_results()
        self.write_in_place()
        moves = self.moves_between()
        moves[self.end] = self.moves_at_end()
        planned = program.replace(steps=tuple(self.steps))
        bodies = {
            step: plan_memory(
                step.body, scratch, prefix=f"{prefix}{BODY}{n}_", spread=spread and is_one(shares(step))
            )
            for n, step in enumerate(planned.repeats)
        }
        offsets: dict[str, tuple[Extent, ...]] = {}
        known = dict(for_once())
        for body in bodies.values():
            offsets |= body.offsets
            known = body.known(known)
        with hints(known):
            lanes = {step: lanes_of(step, body.arena) if spread else 1 for step, body in bodies.items()}
        needed: dict[Step, Any] = {call: scratch(call) for call in planned.calls}
        needed |= {step: lanes_room(room(step, body.arena)[1], lanes[step]) for step, body in bodies.items()}
        temporary = {
            step: _Slot(needed[step], number, number)
            for number, step in enumerate(planned.steps)
            if step in needed and (isinstance(needed[step], Dim) or needed[step])
        }
        slots = {id(slot): slot for slot in (*self.slots.values(), *self.parked, *temporary.values())}
        unplaced = [slot for slot in slots.values() if slot.place is None]
        if any(isinstance(slot.nbytes, Dim) for slot in unplaced):
            with hints(known):
                arena, fences = _lay_out_sized(unplaced, offsets, prefix), ()
        else:
            arena, fences = _fence(unplaced, self.guard) if self.guard else (_lay_out(unplaced), ())
        for number, pairs in moves.items():
            moves[number] = tuple(_move(*pair) for pair in pairs)
        return MemoryPlan(
            planned,
            {a: _place(self.slots[self.root[a]]).plus(self.beyond[a]) for a in planned.arrays()},
            arena,
            {number: done for number, done in moves.items() if done},
            {step: (_place(slot), slot.nbytes) for step, slot in temporary.items()},
            fences,
            offsets,
            bodies,
            lanes,
        )

    # ---- places that are known
    def write_over_params(self) -> None:
        """Let a result be written straight over the param that it goes to."""
        for array, at in zip(self.program.results, self.program.into, strict=True):
            root = self.root[array]
            if at is None or root in self.slots or array.nbytes != root.nbytes:
                continue
            param, number = self.program.params[at], self.first[root]
            step = self.steps[number]
            # nothing after may fail: the caller's array would be left half changed
            may_write = isinstance(step, Call) or is_meeting(step)
            if number < self.safe_after or self.last[param] > number or not may_write:
                continue
            if self.last[param] == number:
                if not self.declare(number, step.outputs.index(root), param):
                    continue
            elif (links := self.written_in_turn(root, param)) is not None:
                self.slots |= dict.fromkeys(links, self.slots[param])
            elif any(step.outputs[n] is root for n, _ in overwrites(step)):
                continue
            self.slots[root] = self.slots[param]

    def written_in_turn(self, root: Array, param: Array) -> list[Array] | None:
        """Those from a param to a result that are each in place of the one before; None where not all."""
        links: list[Array] = []
        while root is not param:
            number = self.first.get(root, -1)
            step = self.steps[number] if number >= 0 else None
            if not isinstance(step, Call) or number < self.safe_after or root in self.fixed:
                return None
            over = dict(declared(step.kernel)).get(step.outputs.index(root))
            source = None if over is None else step.inputs[over]
            if source is None or self.root[source] is not source or self.last[source] != number:
                return None
            links.append(root)
            root = source
        return links[1:] if len(links) > 1 else None

    def write_to_results(self) -> None:
        """Let the others that a caller gets be written to the new array at once."""
        for position, (array, at) in enumerate(zip(self.program.results, self.program.into, strict=True)):
            root = self.root[array]
            if at is None and root not in self.slots and array.nbytes == root.nbytes:
                place = Place("result", position)
                self.slots[root] = _Slot(root.nbytes, self.first[root], self.end, place)

    def write_in_place(self) -> None:
        """Give each array that is left memory of its own, or that of an operand which dies as it is made."""
        for number, step in enumerate(self.steps):
            for n, array in enumerate(step.outputs):
                root = self.root[array]
                if root is not array:
                    continue
                source = None
                if (isinstance(step, Call) or is_meeting(step)) and not self.guard:
                    source = self.operand_to_overwrite(number, n)
                slot = self.slots.get(root) or _Slot(root.nbytes, number, self.last[root])
                if source is not None:
                    before = self.slots[source]
                    slot.first = before.first
                    slot.arrays += before.arrays
                    self.slots |= dict.fromkeys(before.arrays, slot)
                elif is_meeting(step):
                    self.hold_until_read(number)
                slot.arrays.append(root)
                self.slots[root] = slot

    def operand_to_overwrite(self, number: int, n: int) -> Array | None:
        """The operand, as a root, whose memory output `n` of a step takes over."""
        step = self.steps[number]
        taken = self.slots.get(step.outputs[n])
        if taken is not None and _place(taken).kind == "param":
            return None
        over = dict(overwrites(step))
        positions = [over[n]] if n in over else range(len(step.inputs))
        for position in positions:
            source = step.inputs[position]
            assert source is not None
            root = self.root[source]
            before = self.slots[root]
            if (
                root not in self.fixed
                and self.last[root] == number
                and before.place is None
                and before.last == number
                and self.declare(number, n, root)
            ):
                return root
        return None

    def declare(self, number: int, n: int, root: Array) -> bool:
        """Declare output `n` of a step in place of the operand with that root; whether it may be."""
        step = self.steps[number]
        positions = [
            i for i, array in enumerate(step.inputs) if array is not None and self.root[array] is root
        ]
        if len(positions) != 1 or root.nbytes != step.outputs[n].nbytes:
            return False
        (position,) = positions
        over = dict(overwrites(step))
        if n in over:
            return over[n] == position
        if is_meeting(step):
            given, made = step.inputs[0], step.outputs[0]
            assert given is not None
            alike = (given.dtype, given.shape, given.nbytes) == (made.dtype, made.shape, root.nbytes)
            self.steps[number] = replace(step, is_over=alike)
            return alike
        assert isinstance(step, Call)
        if position in over.values() or step.how is not None or step.bands is not None:
            return False
        if not may_be_in_place(step.kernel, n, position):
            return False
        self.steps[number] = replace(step, kernel=in_place(step.kernel, n, position))
        return True

    def slot(self, array: Array) -> _Slot:
        return self.slots[self.root[array]]

    # ---- copies
    def moves_between(self) -> dict[int, tuple]:
        """For kernels made in place whose operand is still needed: it is copied to where they write."""
        moves: dict[int, tuple] = {}
        for number, step in enumerate(self.steps):
            if not isinstance(step, Call):
                continue
            pairs = [(step.inputs[i], step.outputs[n]) for n, i in declared(step.kernel)]
            pairs = [(one, two) for one, two in pairs if self.slot(one) is not self.slot(two)]
            if pairs:
                moves[number] = tuple(
                    (self.slot(one), self.beyond[one], self.slot(two), two.nbytes) for one, two in pairs
                )
        return moves

    def moves_at_end(self) -> tuple:
        """Copies for results that are not where they go: params, constants, aliases, one array twice.

        A param that is read there and overwritten there is parked in the arena first.
        """
        self.parked: list[_Slot] = []
        moves, targets = [], set()
        for position, (array, at) in enumerate(zip(self.program.results, self.program.into, strict=True)):
            target = Place("result", position) if at is None else Place("param", at)
            slot, beyond = self.slot(array), self.beyond[array]
            if slot.place != target or beyond != 0:
                made = _Slot(array.nbytes, self.end, self.end, target)
                moves.append((slot, beyond, made, array.nbytes))
                targets.add(target)
        parking: dict[int, _Slot] = {}
        first = []
        for slot, *_ in moves:
            if slot.place in targets and id(slot) not in parking:
                parking[id(slot)] = _Slot(slot.nbytes, self.end, self.end)
                first.append((slot, 0, parking[id(slot)], slot.nbytes))
        self.parked = list(parking.values())
        return (*first, *((parking.get(id(s), s), b, t, n) for s, b, t, n in moves))


def _place(slot: _Slot) -> Place:
    assert slot.place is not None
    return slot.place


def _move(source: _Slot, beyond: int, target: _Slot, nbytes: int) -> Move:
    return Move(_place(source).plus(beyond), _place(target), nbytes)


def _lay_out(slots: list[_Slot]) -> int:
    """Give slots offsets, the largest first, each the lowest that is free while it lives.  The arena's bytes.

    Largest first wastes little: what is placed later fits the gaps.
    """
    slots = sorted(slots, key=lambda slot: (-slot.nbytes, slot.first))
    spans = np.zeros((len(slots), 4), np.int64)  # first and last step, first byte and the one after the last
    top = 0
    for count, slot in enumerate(slots):
        placed = spans[:count]
        beside = placed[(placed[:, 0] <= slot.last) & (placed[:, 1] >= slot.first)]
        at = 0
        for low, high in sorted(beside[:, 2:].tolist()):
            if low - at >= slot.nbytes:
                break
            at = max(at, high)
        slot.place = Place("arena", at)
        spans[count] = slot.first, slot.last, at, at + aligned(slot.nbytes)
        top = max(top, at + aligned(slot.nbytes))
    return top


def _lay_out_sized(slots: list[_Slot], offsets: dict[str, tuple[Extent, ...]], prefix: str) -> Extent:
    """The same for slots whose sizes are formulas: what lies above what is chosen for the sizes of once.

    Each offset is a symbol, the greatest of some formulas: the ends of the slots that lie below it while it
    lives.  So no two ever meet, whatever their sizes are, and for the sizes of once nothing is wasted.
    """
    sizes = [slot.nbytes for slot in slots]
    for slot in slots:
        slot.nbytes = hint(slot.nbytes)
    _lay_out(slots)
    order = sorted(range(len(slots)), key=lambda n: (_place(slots[n]).at, n))
    ends: list[Extent] = []
    below: list[set[int]] = []  # of each slot in that order
    top = set(range(len(order)))
    for at, n in enumerate(order):
        slot = slots[n]
        found = {
            other
            for other, m in enumerate(order[:at])
            if slots[m].first <= slot.last and slots[m].last >= slot.first
        }
        below.append(found | {deep for other in found for deep in below[other]})
        direct = found - {deep for other in found for deep in below[other]}
        name = f"{prefix}{OFFSET}{at}"
        offsets[name] = tuple([ends[other] for other in sorted(direct)]) or (0,)
        top -= direct
        slot.nbytes, slot.place = sizes[n], Place("arena", cast("int", symbol(name)))
        ends.append(symbol(name) + aligned(sizes[n]))
    offsets[prefix + ARENA] = tuple([ends[at] for at in sorted(top)]) or (0,)
    return symbol(prefix + ARENA)


def _fence(slots: list[_Slot], guard: int) -> tuple[int, tuple[int, ...]]:
    """Give each slot pages of its own between two that may not be touched: the arena's bytes, and those."""
    fences, at = [0], PAGE
    for slot in slots:
        pages = -(-slot.nbytes // PAGE) * PAGE
        slot.place = Place("arena", at + (pages - slot.nbytes if guard == 1 else 0))
        fences.append(at + pages)
        at += pages + PAGE
    return at, tuple(fences)


@lru_cache(MEMO)
def may_be_in_place(kernel: Kernel, output: int, source: int) -> bool:
    """Whether that output may be in place of that input, and had better be.

    y[i, j] = x[i, j] + b[j] -> y inplace x: only for pointwise kernels whose reads keep the order of the
    axes, since a kernel in place is computed once a point and never through transposed registers.
    """
    out, given = kernel.outputs[output], kernel.inputs[source]
    return (
        (given.dtype, given.shape, given.layout) == (out.dtype, out.shape, out.layout)
        and _is_pointwise(kernel, out)
        and _reads_where_it_writes(kernel, out, given)
    )


@lru_cache(MEMO)
def in_place(kernel: Kernel, output: int, source: int) -> Kernel:
    """The kernel with that output in place of that input, where it may be.

    Not verified: a kernel may get several such outputs, and is proven when code is made of it.
    """
    out, outputs = kernel.outputs[output], list(kernel.outputs)
    outputs[output] = Buffer(out.name, out.dtype, out.shape, out.layout, kernel.inputs[source].name)
    return _stores_last(kernel).replace(outputs=tuple(outputs))


def _stores_last(kernel: Kernel) -> Kernel:
    """A pointwise kernel that has read all it needs before it writes.

    y[i] = a[i] + b[i]; z[i] = b[i] - a[i] -> v = a[i] + b[i]; w = b[i] - a[i]; y[i] = v; z[i] = w
    """
    stages: list[Stage] = [stage for stage in kernel.stages if isinstance(stage, Local)]
    stores: list[Stage] = []
    several, taken = len(kernel.stores) > 1, {*kernel.buffers, *kernel.extents, *kernel.dtypes}
    for store in kernel.stores:
        if several and kernel.dtype_of(store.value) is not None and not isinstance(store.value, Ref):
            name = f"{store.buffer}_value"
            while name in taken:  # another's, or that of another part of the buffer
                name += "_"
            taken.add(name)
            stages.append(Local(name, (), store.value))
            store = replace(store, value=ref(name))
        stores.append(store)
    return kernel.replace(stages=(*stages, *stores))


def _reads_where_it_writes(kernel: Kernel, out: Buffer, given: Buffer) -> bool:
    """Whether every point reads of `given` only the elements that it stores in `out`."""
    at = {kernel.moving(store.index) for store in kernel.stores if store.buffer == out.name}
    reads = [access for _, access in kernel.reads if access.buffer == given.name]
    return all({kernel.moving(access.index)} == at for access in reads)


def _is_pointwise(kernel: Kernel, out: Buffer) -> bool:
    if (
        not all(isinstance(s, (Store, Local)) and not s.axes for s in kernel.stages)
        or not kernel.is_order_free
    ):
        return False
    order = [store.index for store in kernel.stores if store.buffer == out.name][0]
    ranks = {name: n for n, part in enumerate(order) if isinstance(part, Affine) for name in part.names}
    for _, access in kernel.reads:
        if any(isinstance(part, Expr) for part in access.index):
            return False
        seen = [ranks.get(name, -1) for part in access.index for name in part.names]
        if seen != sorted(seen):
            return False
    return True
