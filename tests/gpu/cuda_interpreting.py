"""Whole programs on the fake driver: what an executable loads is run by its source, watched block by block.

What this shows is that a program launches the right kernels on the right memory in the right order, and that
their sources are right.  The machine code is compiled and loaded, but nothing here can run it.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from weakref import WeakKeyDictionary

import launched_forms
import launched_sources  # sets TRITON_INTERPRET: before anything else that could import triton
from fake_cuda import Fake, Launch
from watched_memory import watch

from lamina.passes.triton.code import Code
from lamina.runtime.cuda.driver import Graph, Stream
from lamina.runtime.cuda.machine import Machine
from lamina.runtime.cuda.solver import Calls


class Programs(launched_sources.Sources):
    """Runs what machines load.  A kernel may touch the blocks that were in use when it was launched."""

    def __init__(self, fake: Fake):
        super().__init__(fake)
        # Of each launch that did not run yet, by its stream's number.
        self._blocks: defaultdict[int, deque[list[tuple[int, int]]]] = defaultdict(deque)
        self._now: list[tuple[int, int]] = []
        self._launching = threading.Lock()
        self._machines: dict[Machine, None] = {}
        self._captured: int | None = None  # launches of the graph that is being made
        load, launch = Machine.functions, Stream.launch
        Machine.SPARE = 0  # or a block that nobody has is in use

        def loading(machine, codes, binaries):
            for code, binary in zip(codes, binaries, strict=True):
                self.add(code, binary)
            self._machines[machine] = None
            return load(machine, codes, binaries)

        def launching(stream, *arguments, **keywords):
            if self._captured is not None:
                self._captured += 1
                return launch(stream, *arguments, **keywords)
            with self._launching:  # of several threads' launches the first noted is the first queued
                self._blocks[fake.stream(stream.handle)].append(self._live())
                try:
                    launch(stream, *arguments, **keywords)
                except BaseException:
                    self._blocks[fake.stream(stream.handle)].pop()
                    raise

        begin, again = Graph.__init__, Graph.launch
        counts: WeakKeyDictionary[Graph, int] = WeakKeyDictionary()

        def capturing(graph, stream, work):  # what is captured does not run
            self._captured = 0
            try:
                begin(graph, stream, work)
                counts[graph] = self._captured
            finally:
                self._captured = None

        def replaying(graph, stream):
            with self._launching:
                self._blocks[fake.stream(stream.handle)].extend([self._live()] * counts[graph])
                again(graph, stream)

        queue = Calls.queue

        def queueing(calls, *arguments):
            with self._launching:
                self._machines[calls._at] = None
                blocks = self._blocks[fake.stream(calls._stream.handle)]
                blocks.append(self._live())
                try:
                    queue(calls, *arguments)
                except BaseException:
                    blocks.pop()
                    raise

        Machine.functions, Stream.launch, Calls.queue = loading, launching, queueing
        Graph.__init__, Graph.launch = capturing, replaying
        watch(lambda: self._now, fake.touched)

    def _live(self) -> list[tuple[int, int]]:
        blocks = [b for machine in self._machines for b in [*machine.allocator._live]]
        return [(b.address, b.nbytes) for b in blocks if b.nbytes]

    def _launched(self, launch: Launch) -> None:
        self._now = self._blocks[launch.stream].popleft()
        super()._launched(launch)

    def _blocks_of(self, launch: Launch) -> list[tuple[int, int]]:
        return self._now


class ByForms(Programs):
    """The same, sooner: kernels whose forms are known run as native code of the CPU."""

    def __init__(self, fake: Fake):
        launched_forms.note_forms()
        super().__init__(fake)

    def _runs_otherwise(self, launch: Launch, code: Code, parts: list[bytes]) -> bool:
        pointers = sum(kind[0] == "*" for kind in code.parameters)
        arguments = [launched_sources.number(*each) for each in zip(code.parameters, parts)]
        several = any(machine.apart for machine in self._machines)
        touched = self._fake.touched if several else None
        return launched_forms.runs(launch, arguments, pointers, self._now, touched)


def interpret_launches(fake: Fake, by_forms: bool = False) -> list[str]:
    """Have the fake run what programs launch: the kernels' names, in the order in which they ran."""
    return (ByForms if by_forms else Programs)(fake).ran
