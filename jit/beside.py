"""Compiles beside the program: one thread for all traced functions, one job after another, at a low priority.

Two jobs at once would only be ready later, as Python runs one thread at a time and LLVM compiles in one.  The
thread ends with its last job, and is a daemon: a program that ends does not wait for what is left.  A forked
child has none of it: whoever handed a job in hands it in again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable

from ..ir.locks import fork_safe_lock

# 5 leaves a caller three quarters of a core that both want.  On a loaded machine of two cores eager calls
# took 1.3 times as long beside a compilation as alone, at 0 twice as long, at 10 1.2 times, but for twice as
# long (Xeon, 2026-11-21): who is descheduled may hold the lock that Python's threads share.
NICER = 5

_lock = fork_safe_lock()  # held for a moment at a time
_jobs: deque[Callable[[], None]] = deque()
_at_work: list[threading.Thread] = []


def have_done(job: Callable[[], None]) -> None:
    """Have a job done in the background; here and now where the system has no more threads."""
    with _lock:
        _jobs.append(job)
        if any(thread.is_alive() for thread in _at_work):
            return
        thread = threading.Thread(target=_beside, daemon=True, name="lamina compiles")
        try:
            thread.start()
        except RuntimeError:
            started = False
        else:
            started, _at_work[:] = True, [thread]
    if not started:
        _work()


def _beside() -> None:
    _step_back()
    _work()


def _work() -> None:
    while (job := _next()) is not None:
        job()


def _next() -> Callable[[], None] | None:
    with _lock:
        if _jobs:
            return _jobs.popleft()
        _at_work.clear()  # who has a job from here on begins another thread
        return None


def _step_back() -> None:
    """Lower this thread's priority: Linux keeps one for each thread, elsewhere it is the process's."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICER)


def _in_child() -> None:
    _jobs.clear()
    _at_work.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
