"""Triton source to binaries: from the cache, or compiled in helpers, several at a time.

A kernel takes 0.1 to 1 s, nearly all of it on one core, so helpers share a program's kernels.  This process
never loads Triton, but where it can't begin another: Triton is slow to load, is an interpreter and nothing
else under TRITON_INTERPRET, and ends its process where its C++ asserts.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from ..ir.errors import KernelError, LaminaError
from ..ir.lazy import load
from ..passes import cache as disk
from ..passes.triton.binary import Binary
from ..passes.triton.code import Code
from ..passes.triton.target import Target
from ..passes.triton.toolchain import identity
from . import compile_helpers
from .compile_helpers import DiedError, Helper

FORMAT = 4  # of what is in the cache, and of the options that made it
HELPERS = 8  # at most: each holds some 120 MB
# Kernels that wait, for each helper at work, before another is begun: that takes as long as two kernels
WORTH_A_HELPER = 3
ATTEMPTS = 2

Progress = Callable[[int, int], None]  # kernels that are done, of all so far


def compiled(codes: Iterable[Code], target: Target, progress: Progress | None = None) -> tuple[Binary, ...]:
    """The binaries of some codes.  Raises what `Compiler.binaries` does."""
    with Compiler(target, progress=progress) as compiler:
        for code in codes:
            compiler.add(code)
        return compiler.binaries()


class Compiler:
    """Compiles codes as they come, while the caller writes the next.  Used with `with`, on one thread.

    cache: the process's by default.  helpers: at most so many, by default as many as there are cores with
    nothing to do.  progress: called on the caller's thread.  Raises MissingLibraryError where there is no
    Triton.
    """

    def __init__(
        self,
        target: Target,
        cache: disk.Cache | None = None,
        helpers: int | None = None,
        progress: Progress | None = None,
    ):
        self.target, self.cache, self.progress = target, cache or disk.default(), progress
        self.hits = self.misses = 0
        self._identity = identity(target)
        self._most = _free_cores() if helpers is None else max(helpers, 1)
        self._keys: list[str] = []  # in the order in which they were added
        self._asked: set[str] = set()
        self._made: dict[str, Binary | LaminaError] = {}
        self._news = threading.Condition()
        self._workers: list[_Worker] = []
        self.jobs: SimpleQueue[tuple[str, Code] | None] = SimpleQueue()
        self.stopped = False

    def add(self, code: Code) -> None:
        """Have a code compiled, sooner or later."""
        key = self._key(code)
        self._keys.append(key)
        if key in self._asked:
            return
        self._asked.add(key)
        found = self._cached(key)
        if found is not None:
            self.hits += 1
            with self._news:
                self._made[key] = found
            return
        self.misses += 1
        self.jobs.put((key, code))
        if self.jobs.qsize() > WORTH_A_HELPER * len(self._workers) and len(self._workers) < self._most:
            self._workers.append(_Worker(self))

    def binaries(self) -> tuple[Binary, ...]:
        """The binaries of all codes, in the order of `add`.

        Raises KernelError for a code that Triton refuses, or whose compilation ended its process twice: the
        first of them, after all others are made.
        """
        total, told = len(self._asked), -1
        while True:
            with self._news:
                self._news.wait_for(lambda: len(self._made) > told)  # noqa: B023 - called at once
                told = len(self._made)
            if self.progress is not None:
                self.progress(told, total)
            if told == total:
                break
        results = []
        for key in self._keys:
            made = self._made[key]
            if isinstance(made, LaminaError):
                raise made
            results.append(made)
        return tuple(results)

    def _key(self, code: Code) -> str:
        numbers = (str(number) for number in (FORMAT, code.num_warps, code.num_stages))
        own = (code.name, code.source, ",".join(code.parameters), str(code.aligned), self.target.name)
        return disk.key("triton", self._identity, *numbers, *own)

    def _cached(self, key: str) -> Binary | None:
        data = self.cache.get(key)
        if data is None:
            return None
        try:
            return Binary.unpacked(data)
        except (ValueError, TypeError):
            self.cache.forget(key)
            return None

    def _keep(self, key: str, made: Binary | LaminaError) -> None:
        if isinstance(made, Binary):
            self.cache.put(key, made.packed())
        with self._news:
            self._made[key] = made
            self._news.notify()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *error: object) -> None:
        unfinished = len(self._made) < len(self._asked)
        self.stopped = True
        for worker in self._workers:
            if unfinished and worker.helper is not None:
                worker.helper.process.kill()
            self.jobs.put(None)
        for worker in self._workers:
            worker.thread.join()


class _Worker:
    """A thread that hands a compiler's jobs to a helper, one at a time, until there are no more."""

    def __init__(self, compiler: Compiler):
        self.compiler = compiler
        self.helper: Helper | None = None
        self.thread = threading.Thread(target=self._run, name="lamina-compile", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        compiler = self.compiler
        while (job := compiler.jobs.get()) is not None and not compiler.stopped:
            key, code = job
            try:
                compiler._keep(key, self._compile(code))
            except LaminaError as error:
                compiler._keep(key, error)
            except Exception as error:  # the caller waits for an answer
                what = f"{type(error).__name__}: {error}"
                compiler._keep(key, KernelError(f"{code.name}: compiling it failed", what))
        if self.helper is not None:
            if self.helper.is_alive:
                compile_helpers.give(self.helper)
            else:
                self.helper.end()

    def _compile(self, code: Code) -> Binary:
        target, ends = self.compiler.target, ()
        for _ in range(ATTEMPTS):
            if not self.compiler.stopped:
                self.helper = self.helper or compile_helpers.take()
            if self.compiler.stopped:  # asked again: whoever stops us ends the helper that he sees
                break
            if self.helper is None:  # no processes here
                return load("lamina.passes.triton.compiler").compile_code(code, target)
            try:
                return self.helper.compile(code, target)
            except DiedError as error:
                ends = error.args
                self.helper.end()
                self.helper = None
        raise KernelError(
            f"{code.name}: Triton failed to compile it for {target.name}, {ATTEMPTS} times", *ends
        )


def _free_cores() -> int:
    """How many helpers would have a core of their own; one at least."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores - round(os.getloadavg()[0]), HELPERS))
