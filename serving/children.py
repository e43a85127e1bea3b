"""Processes that are forked, say when they are ready, and are waited for."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable
from time import monotonic
from warnings import catch_warnings, simplefilter

LOG = logging.getLogger("lamina.serving")
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
FAILED = 1


class Child:
    """A forked process, of whoever made it.

    status: its exit status once it ended, as `waitstatus_to_exitcode` has it.  Who dies in the middle leaves
    children that see it by their parent's changed id, and end.
    """

    def __init__(self, run: Callable[[Callable[[], None]], int]):
        """Fork, and run a function in the child; it gets what tells the parent that it is ready."""
        self.started, self.ready = monotonic(), False
        self.status: int | None = None
        self._pipe, told = os.pipe()
        os.set_blocking(self._pipe, False)
        gc.freeze()  # what is shared stays so: a collection would write into it
        with catch_warnings():
            # Threads of compiled code rest, and begin anew in a child: lamina_model.py, runtime/workers.py.
            simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            os.close(told)
            return
        status = FAILED
        try:
            os.close(self._pipe)
            status = run(lambda: _tell(told))
        except KeyboardInterrupt:
            pass
        except BaseException:
            LOG.exception("process %d failed", os.getpid())
        finally:
            logging.shutdown()
            os._exit(status)

    def look(self) -> None:
        """Note whether it has become ready, and whether it has ended."""
        if self.status is not None:
            return
        if not self.ready:
            with contextlib.suppress(BlockingIOError):
                self.ready = os.read(self._pipe, 1) == b"r"
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
            os.close(self._pipe)

    def signal(self, number: int) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def age(self) -> float:
        return monotonic() - self.started


def _tell(pipe: int) -> None:
    with contextlib.suppress(OSError):  # a parent that died
        os.write(pipe, b"r")
        os.close(pipe)


def next_signal(seconds: float) -> int:
    """The next of the signals that are watched, which are blocked, or 0 after so long."""
    found = signal.sigtimedwait(WATCHED, seconds)
    return found.si_signo if found else 0


class Pace:
    """How soon a process that died is begun anew: at once, then later and later, and at last not at all.

    One that lived for a second before it died begins the count again.
    """

    LONG, MOST, LONGEST = 1.0, 5, 5.0

    def __init__(self) -> None:
        self.failures, self.at = 0, 0.0

    def died(self, child: Child) -> bool:
        """Whether another may be begun, at the time `at`."""
        lived = child.ready and child.age > self.LONG
        self.failures = 0 if lived else self.failures + 1
        self.at = monotonic() + (0 if self.failures <= 1 else min(self.LONGEST, 0.1 * 2**self.failures))
        return self.failures < self.MOST or child.ready
