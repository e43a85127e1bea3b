"""What an asynchronous collective hands back: a promise of its results, under PyTorch's names."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.locks import fork_safe_lock

if TYPE_CHECKING:
    from .transport import Flight

FOLLOWED = 1 << 14  # bytes from which on a collective on its way is looked at
PAUSE, LONGEST = 50e-6, 2e-3  # seconds between looks at what is on its way


class Work:
    """A collective on its way: its tensors are neither read nor written until `wait` returns.

    result: the tensors that it writes.  then: what is done with what arrived, once.
    """

    def __init__(
        self,
        flight: Flight,
        result: Sequence[Any] = (),
        then: Callable[[], None] | None = None,
        source: list[int] | None = None,
    ):
        self._flight, self._result, self._then, self._source = flight, list(result), then, source
        self._lock = fork_safe_lock()

    def wait(self, timeout: datetime.timedelta | float | None = None) -> bool:
        """Return True once it is done.  Raises DistributedError where it never will be."""
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
        with self._lock:
            self._flight.wait(seconds or None)
            self._finish()
        return True

    def is_completed(self) -> bool:
        """Whether it is done, without waiting."""
        with self._lock:
            there = self._flight.error is not None or self._flight.arrived()
            if there and self._flight.error is None:
                self._finish()
        return there

    def is_success(self) -> bool:
        """Whether it is done, and went well."""
        return self.is_completed() and self._flight.error is None

    def exception(self) -> BaseException | None:
        """What it failed with."""
        return self._flight.error

    def result(self) -> list[Any]:
        """The tensors that it wrote."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Whom what was received came from."""
        assert self._source, "nothing was received yet"
        return self._source[0]

    def synchronize(self) -> None:
        """Wait for it."""
        self.wait()

    def get_future(self) -> Future:
        """The same as a future, for `then`."""
        return Future(self)

    def _finish(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


class Done(Work):
    """A collective that was over at once: recorded, or in a group of one."""

    def __init__(self, result: Sequence[Any] = ()):
        self._result = list(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[Any]:
        return self._result


class Future:
    """What a collective will give; `then(f)` makes one of f of this future, run where it is waited for."""

    def __init__(self, work: Work, step: Callable[[Future], Any] | None = None, before: Future | None = None):
        self._work, self._step, self._before = work, step, before
        self._value: list[Any] = []

    def wait(self) -> Any:
        """The value, once it is there."""
        if not self._value:
            if self._step is None:
                found: Any = self._work.result()
            else:
                assert self._before is not None
                found = self._step(self._before)
            self._value.append(found)
        return self._value[0]

    value = wait

    def done(self) -> bool:
        """Whether `wait` would not wait."""
        return bool(self._value) or self._work.is_completed()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what `callback` makes of this one."""
        return Future(self._work, callback, self)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback` with this future, once it is waited for."""
        value = self.wait()
        self._value = [value]
        callback(self)


class Progress:
    """A thread that looks at what is on its way while others compute: MPI moves nothing unless it is called.

    pending: works that nobody waited for yet.  The thread ends when there are none, and begins anew.
    """

    def __init__(self) -> None:
        self.pending: list[Work] = []
        self.lock = fork_safe_lock()
        self.thread: threading.Thread | None = None
        self.more = threading.Event()
        self.ended = False

    def follow(self, work: Work) -> None:
        """Look at this one until it is done."""
        with self.lock:
            self.pending.append(work)
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._run, name="lamina-progress", daemon=True)
                self.thread.start()
        self.more.set()

    def end(self) -> None:
        """Look at nothing any more: MPI is about to be left."""
        self.ended = True
        self.more.set()
        if self.thread is not None and self.thread.is_alive():
            self.thread.join(1.0)

    def _run(self) -> None:
        pause, idle = PAUSE, 0
        while not self.ended:
            with self.lock:
                pending = list(self.pending)
            done = [work for work in pending if _is_over(work)]
            if done:
                with self.lock:
                    self.pending = [work for work in self.pending if work not in done]
                pause, idle = PAUSE, 0
            if pending:
                time.sleep(pause)
                pause = min(pause * 1.1, LONGEST)
                continue
            self.more.clear()
            idle += 1
            if not self.more.wait(1.0) and idle > 5:
                with self.lock:
                    if not self.pending:
                        self.thread = None
                        return


def _is_over(work: Work) -> bool:
    if not work._lock.acquire(blocking=False):
        return False  # somebody waits for it
    try:
        return work._flight.done or work._flight.error is not None or work._flight.arrived()
    except Exception:  # whoever waits for it raises it
        return True
    finally:
        work._lock.release()


PROGRESS = Progress()


def followed(work: Work, nbytes: int) -> Work:
    """The work, which is looked at while nobody waits for it, where that takes no core from who computes."""
    if nbytes >= FOLLOWED and work._flight.goes_ahead:
        PROGRESS.follow(work)
    return work
