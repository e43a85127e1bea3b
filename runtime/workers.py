"""The process's thread pool for native programs: one, begun when the first program wants it.

Its workers are threads of the system that never hold Python's lock; they sleep when there is nothing to do
and end with the process.  A forked child has none of them: its pool begins anew when it is used.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from functools import cache
from typing import Any

from ..ir.locks import fork_safe_lock
from ..passes.llvm import blas_jobs
from ..passes.llvm import pool as layout
from ..passes.llvm.binding import Library, host_target
from . import sharing, threads
from .compiler import compiled

# Looks at the ticket before a worker sleeps: 200 microseconds, the gaps inside a program and between its
# calls.  With 75, an LSTM whose steps take 80 on one thread woke its worker in each: a fifth of its median.
SPIN = 8000
# A fork is worth its while where each thread gets this many fork-joins' worth of work, as schedules/cost.py
# tells it: by 2,300 nanoseconds an MLP's 9.9 microseconds are 5.6, 19.4 of digits on eight images 14.4, and a
# DS-CNN's 26.5 on one 21.3; by 4,600 they stay what they are (EPYC "Zen 5", 2026-11-28).  No more than
# MOST_GRAIN where a fork seems dearer: on an Intel Xeon with cores far from each other (600 ns) a DS-CNN on
# eight images takes 206 microseconds by 7,000 in place of 232 by 27,500 (2026-11-28).  USUAL_GRAIN where it
# could not be measured, as the worker did not run.
GRAIN_PER_FORK = 10
LEAST_GRAIN, USUAL_GRAIN, MOST_GRAIN = 2_000, 3_000, 6_000  # nanoseconds
MEASURED_FOR = 3_000_000  # nanoseconds at most: as long as a thread just made may take to run
SLOW_FORK = 5_000  # nanoseconds: so slow only where the worker did not run
APART = 1_000_000_000  # nanoseconds from one measurement to the next


def immortal(thing: object) -> None:
    """Never free it: threads of the system, or functions that outlive everything, run its code."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Pool:
    """A pool's memory, and the functions that work on it.  `address` is what a program is given."""

    def __init__(self, library: Library):
        self._memory = ctypes.create_string_buffer(layout.SIZE + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        immortal(self._memory)
        self._resize = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(
            library.address("lamina_pool_resize")
        )
        self._enlist = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(
            library.address("lamina_pool_enlist")
        )
        self._fork_join = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            library.address("lamina_pool_fork_join")
        )
        self._worker = library.address("lamina_pool_worker")
        self._launch = library.address("lamina_pool_launch")
        self._lock = fork_safe_lock()
        self.fork_nanoseconds, self.measured = 0.0, 0
        self.reset()

    def reset(self) -> None:
        """A pool without workers, as after a fork: whatever the others did is not going on here."""
        ctypes.memset(self.address, 0, layout.SIZE)
        self._word(layout.LIMIT, ctypes.c_int32).value = 1
        self._word(layout.SPIN).value = SPIN
        self._word(layout.GRAIN).value = USUAL_GRAIN
        self._word(layout.LAUNCH).value = self._launch

    def _word(self, offset: int, kind: Any = ctypes.c_int64) -> Any:
        return kind.from_address(self.address + offset)

    @property
    def limit(self) -> int:
        """How many threads may run, the caller's own included."""
        return self._word(layout.LIMIT, ctypes.c_int32).value

    @property
    def workers(self) -> int:
        """The threads that exist beside the callers'."""
        return self._word(layout.ALIVE, ctypes.c_int32).value

    @property
    def grain(self) -> int:
        """Nanoseconds of work that are worth a thread."""
        return self._word(layout.GRAIN).value

    @grain.setter
    def grain(self, nanoseconds: int) -> None:
        self._word(layout.GRAIN).value = nanoseconds

    def resize(self, limit: int) -> None:
        """Let that many threads run: workers are made, or told to end when they next have nothing to do."""
        with self._lock:
            self._resize(self.address, limit)
            while self.workers < limit - 1:
                self._enlist(self.address, 1)
                if not _thread(self._worker, self.address):  # the system has no more: with those there are
                    self._enlist(self.address, -1)
                    self._resize(self.address, self.workers + 1)
                    return

    def calibrate(self) -> None:
        """Measure what a fork and join costs now, and set the grain from it.

        The least of several, since cores may be near or far and the machine busy with other things; no longer
        than three milliseconds, in which workers just made must begin to run.
        """
        if self.limit < 2:
            return
        counter = ctypes.create_string_buffer(128)
        address = -(-ctypes.addressof(counter) // 64) * 64
        least, begun = float("inf"), time.perf_counter_ns()
        for batch in range(200):
            start = time.perf_counter_ns()
            self._fork_join(self.address, address, 5)
            now = time.perf_counter_ns()
            least = min(least, (now - start) / 5)
            if now - begun > MEASURED_FOR or (batch >= 40 and least < SLOW_FORK):
                break
        self.fork_nanoseconds, self.measured = least, time.perf_counter_ns()
        found = min(max(GRAIN_PER_FORK * least, LEAST_GRAIN), MOST_GRAIN)
        self.grain = int(found) if least < SLOW_FORK else USUAL_GRAIN


def _thread(function: int, argument: int) -> bool:
    """Begin a thread of the system at an address; whether it began.  It gets no signals."""
    library = ctypes.CDLL(None)
    handle = ctypes.c_ulong()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        failed = library.pthread_create(
            ctypes.byref(handle), None, ctypes.c_void_p(function), ctypes.c_void_p(argument)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not failed:
        library.pthread_detach(handle)
    return not failed


def most_threads() -> int:
    """As many as set_num_threads allows, and the process may run at once."""
    available = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(threads.get_num_threads(), available))


def text() -> str:
    """The pool's code, as LLVM's text."""
    platform = host_target().platform
    return layout.text(platform) + blas_jobs.text(platform)


@cache
def library() -> Library:
    """The pool's code, which lives as long as the process."""
    target = host_target()
    made = Library(compiled([text()], target), target)
    immortal(made)
    return made


_pool: Pool | None = None
_making = fork_safe_lock()
asleep = True  # whether `wake` must be called before anything can run on several threads: also after a fork


def pool() -> Pool:
    """The process's pool.  Before `wake` it has no workers, and launches run on their caller's thread."""
    global _pool
    with _making:
        if _pool is None:
            _pool = Pool(library())
            threads.listeners.append(_resized)
            os.register_at_fork(after_in_child=_forked)
        return _pool


def wake() -> None:
    """Begin the workers that set_num_threads allows, and measure what they cost.  About a millisecond."""
    global asleep
    ours = pool()
    with _making:
        if asleep:
            ours.resize(most_threads())
            ours.calibrate()
            sharing.share(library(), ours.address)
            asleep = False


def settle() -> None:
    """Do again what could not be done when the workers began: measure what a fork costs, if the machine was
    too busy; and share them with NumPy's products."""
    if asleep:
        return
    ours = pool()
    if ours.fork_nanoseconds > SLOW_FORK and time.perf_counter_ns() > ours.measured + APART:
        ours.calibrate()
    with _making:
        if sharing.jobs() is None:
            sharing.share(library(), ours.address)


def _resized(count: int) -> None:
    if _pool is not None and not asleep:
        _pool.resize(most_threads())
        if not _pool.fork_nanoseconds:
            _pool.calibrate()


def _forked() -> None:
    global asleep
    asleep = True
    if _pool is not None:
        _pool.reset()
