"""Answer `torch.futures`: values that arrive later, and what is done with them once they are there."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..ir.errors import StateError
from ..ir.locks import fork_safe_lock

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that some thread sets once, or an exception that it raises instead.

    devices: where its tensors lie; they are waited for where they are read, so nothing is asked of it.
    """

    def __init__(self, *, devices: Sequence[Any] | None = None):
        self._changed = threading.Condition(fork_safe_lock())
        self._value: T | None = None
        self._error: BaseException | None = None
        self._done = False
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Whether the value, or an exception, is there."""
        return self._done

    def wait(self) -> T:
        """Wait for the value and return it, or raise the exception that was set."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The value that is there, or the exception raised.  Raises StateError before."""
        if not self._done:
            raise StateError("Future.value(): nothing was set yet", "wait() waits for it")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def set_result(self, result: T) -> None:
        """Set the value, and do what waits for it.  Raises StateError where there is one already."""
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an exception, which `wait` and `value` raise."""
        assert isinstance(result, Exception), f"{result} is of type {type(result)}, not an Exception."
        self._complete(None, result)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """The future of what `callback` makes of this one, which it is called with once that is done."""
        made: Future[S] = Future()

        def complete() -> None:
            try:
                found = callback(self)
            except Exception as error:
                said = f"Got the following error when running the callback: {type(error).__name__}: {error}"
                failed = RuntimeError(said)
                failed.__cause__ = error
                made.set_exception(failed)
            else:
                made.set_result(found)

        self._when_done(complete)
        return made

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback` with this future once it is done; what it raises is only warned of."""

        def call() -> None:
            try:
                callback(self)
            except Exception as error:
                warnings.warn(f"a callback of a future raised {type(error).__name__}: {error}", stacklevel=2)

        self._when_done(call)

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise StateError(
                    "Attempting to mark a completed Future as complete again. "
                    "Note that a Future can only be marked completed once."
                )
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback()

    def _when_done(self, callback: Callable[[], None]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of all of these, which is done once each is; it raises what the first of them raised."""
    made: Future[list[Future]] = Future()
    missing, lock = [len(futures)], fork_safe_lock()

    def complete() -> None:
        failed = next((error for f in futures if (error := f._error) is not None), None)
        if failed is not None:
            made._complete(None, failed)
        else:
            made.set_result(list(futures))

    def one_more() -> None:
        with lock:
            missing[0] -= 1
            last = not missing[0]
        if last:
            complete()

    for future in futures:
        future._when_done(one_more)
    if not futures:
        complete()
    return made


def wait_all(futures: list[Future]) -> list[Any]:
    """Wait for all of them and return their values, or raise what the first of them raised."""
    return [future.wait() for future in collect_all(futures).wait()]
