"""Put a step forward to where what only it still reads can be let go of.

    %b: f32[1024] = sum(%g)                       %b: f32[1024] = sum(%g)
    %h: f32[4096,256] = matmul(%g, %w)            %w.1: f32[256] = adam(%w, %b)
    ...                                     ->    %h: f32[4096,256] = matmul(%g, %w)
    %w.1: f32[256] = adam(%w, %b)                 ...

A training step says its updates last of all, as people write it, so that each gradient would be kept until
then, and the cotangents that the gradients of biases are fused with.  A step is put forward, with what it
needs and nothing else has computed yet, if fewer bytes are then held.  Where it writes a result over a param
it stays behind all that reads the param's old values, and behind what may fail.
"""

from __future__ import annotations

from collections import deque

from ...ir.dims import hint
from .memory_plan import failing, roots
from .plan_memory import may_be_in_place
from .program import Alias, Array, Call, Program, Step, is_meeting

MOST = 16  # steps that are put forward for one's sake


def shorten_lifetimes(program: Program) -> Program:
    """The program with its steps in an order that holds fewer bytes at once, where there is one."""
    steps = _Order(program).steps()
    return program if steps == program.steps else program.replace(steps=steps)


class _Order:
    """Steps are known by their numbers in the program; `done` is the order so far.

    readers: by root, of steps that are not done.  free: roots whose memory is not the arena's.
    """

    def __init__(self, program: Program):
        self.program = program
        self.root, _ = roots(program)
        self.free = {self.root[array] for array in (*program.params, *program.constants, *program.results)}
        self.failing = failing(program)
        self.last_failing = max(self.failing, default=-1)
        self.maker: dict[Array | None, int] = {
            array: n for n, step in enumerate(program.steps) for array in step.outputs
        }
        self.met = {self.root[a] for step in program.steps if is_meeting(step) for a in step.outputs}
        self.reads = [frozenset(self.root[a] for a in step.inputs if a is not None) for step in program.steps]
        self.readers: dict[Array, set[int]] = {}
        for number, read in enumerate(self.reads):
            for array in read if not isinstance(program.steps[number], Alias) else ():
                self.readers.setdefault(array, set()).add(number)
        self.over: dict[int, list[Array]] = {}  # params that a step writes straight over
        self.copied: set[Array] = set()  # results that are made elsewhere, and copied at the end
        for array, at in zip(program.results, program.into, strict=True):
            root = self.root[array]
            if at is None or root not in self.maker:
                continue
            number, param = self.maker[root], program.params[at]
            if self.is_over(program.steps[number], root, param):
                self.over.setdefault(number, []).append(param)
            else:
                self.copied.add(root)
        self.done: dict[int, None] = {}

    def is_over(self, step: Step, output: Array, param: Array) -> bool:
        if not isinstance(step, Call) or output.nbytes != param.nbytes:
            return False
        positions = [n for n, array in enumerate(step.inputs) if self.root[array] is param]
        n = step.outputs.index(output)
        return not positions or (
            len(positions) == 1 and step.how is None and may_be_in_place(step.kernel, n, positions[0])
        )

    def steps(self) -> tuple[Step, ...]:
        for number in range(len(self.program.steps)):
            if number not in self.done:
                self.take(number)
        return tuple([self.program.steps[number] for number in self.done])

    def take(self, number: int) -> None:
        """Do a step, and then whatever has become worth doing."""
        waiting = deque(self.do(number))
        while waiting:
            for candidate in self.last_readers(waiting.popleft()):
                for one in self.forward(candidate):
                    waiting.extend(self.do(one))

    def do(self, number: int) -> list[Array]:
        """Do a step; the roots that somebody may now be the last to read."""
        step = self.program.steps[number]
        self.done[number] = None
        for array in self.reads[number]:
            self.readers.get(array, set()).discard(number)
        touched = [self.root[array] for array in (*step.inputs, *step.outputs) if array is not None]
        if number == self.last_failing:  # what waited for it
            for one in self.over:
                touched += [self.root[array] for array in self.program.steps[one].inputs if array is not None]
        return list(dict.fromkeys(touched))

    def last_readers(self, array: Array) -> list[int]:
        """The only step left that reads it, where that would let go of it or may at last write over it."""
        left = list(self.readers.get(array, ()))
        return (
            left if len(left) == 1 and (array not in self.free or array in self.over.get(left[0], ())) else []
        )

    def forward(self, number: int) -> list[int]:
        """The step and what it needs, in order, if they may be done now and fewer bytes are then held."""
        needed: set[int] = set()
        waiting = [number]
        while waiting:
            one = waiting.pop()
            if one in self.done or one in needed:
                continue
            needed.add(one)
            if len(needed) > MOST or not self.may(one, needed):
                return []
            waiting += [self.maker[a] for a in self.program.steps[one].inputs if a in self.maker]
        return sorted(needed) if self.gain(needed) > 0 else []

    def may(self, number: int, among: set[int]) -> bool:
        step = self.program.steps[number]
        if number in self.failing or not isinstance(step, (Call, Alias)):
            return False
        if any(a in self.met for a in self.reads[number]):
            return False  # it would wait for other processes
        if number not in self.over:
            return True
        is_safe = self.last_failing < 0 or self.last_failing in self.done
        return is_safe and all(self.readers.get(param, set()) <= {number} for param in self.over[number])

    def gain(self, numbers: set[int]) -> int:
        """Bytes that are let go of, less those that are held instead."""
        read = {array for number in numbers for array in self.reads[number]} - self.free
        made = {self.root[array] for number in numbers for array in self.program.steps[number].outputs}
        gone = {array for array in read if self.readers.get(array, set()) <= numbers}
        kept = (made - read - self.free) | (made & self.copied) | ((made & read) - gone)
        return sum(_bytes(array) for array in gone - made) - sum(_bytes(array) for array in kept)


def _bytes(array: Array) -> int:
    return hint(array.nbytes)
