"""Stores: values by key that the processes of a job share, under PyTorch's names.

Programs agree by them on ports and addresses before ranks can meet, and `init_process_group(store=...)` meets
by one.  Values are bytes; nothing is unpickled.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, DistributedError
from ..ir.locks import fork_safe_lock
from ..runtime import modes
from .store_table import Op, Request, Table, shown

DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)  # as PyTorch's


class QueueEmptyError(DistributedError):
    """A queue of a store has nothing to give, and it was not to be waited for."""


def seconds(timeout: Any, default: datetime.timedelta) -> float:
    """Seconds of a timeout; `default` for None.  Raises ArgumentError for what is none, or not above 0."""
    if timeout is None:
        timeout = default
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        timeout = datetime.timedelta(seconds=timeout)
    if not isinstance(timeout, datetime.timedelta) or timeout <= datetime.timedelta():
        raise ArgumentError(f"timeout: a datetime.timedelta above 0, not {timeout!r}")
    return timeout.total_seconds()


class Store:
    """Values by key.  What asks waits for keys so long as `timeout` says, and then raises DistributedError.

    Keys are str, values str or bytes; what comes back is bytes.  Abstract: a kind of store has `ask`.
    """

    def __init__(self, timeout: Any = None):
        _refuse_recording()
        self._limit = seconds(timeout, DEFAULT_TIMEOUT)

    def ask(self, request: Request, limit: float) -> list[bytes] | None:
        """The answer to a request, or None where it has not come for `limit` seconds.

        Raises DistributedError.
        """
        raise DistributedError(
            f"{type(self).__name__} is no store by itself", "TCPStore, FileStore or HashStore is"
        )

    @property
    def timeout(self) -> datetime.timedelta:
        """How long keys are waited for."""
        return datetime.timedelta(seconds=self._limit)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Say how long keys are waited for."""
        self._limit = seconds(timeout, DEFAULT_TIMEOUT)

    def _asked(
        self, op: Op, keys: Sequence[Any] = (), values: Sequence[Any] = (), limit: float = 0.0
    ) -> list[bytes]:
        _refuse_recording()
        request = Request(op, [_key(key) for key in keys], [_value(value) for value in values])
        request.check()
        if (answer := self.ask(request, limit or self._limit)) is None:
            raise DistributedError(
                f"{self!r}: nobody set {', '.join(map(shown, request.keys[:5]))} "
                f"for {limit or self._limit:g} s",
                *([f"this is rank {os.environ['RANK']}"] if "RANK" in os.environ else []),
            )
        return answer

    def set(self, key: str, value: str | bytes) -> None:
        """Put a value under a key, instead of the one before."""
        self._asked(Op.SET, [key], [value])

    def get(self, key: str) -> bytes:
        """The value of a key, once there is one."""
        return self._asked(Op.GET, [key])[0]

    def add(self, key: str, amount: int) -> int:
        """Add to the number under a key, 0 where there is none.  Returns the sum, which is kept as text."""
        if not isinstance(amount, int):
            raise ArgumentError(f"add(amount): an int, not {amount!r}")
        return int(self._asked(Op.ADD, [key], [str(amount)])[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Put a value behind the one under a key."""
        self._asked(Op.APPEND, [key], [value])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Put the desired value where the expected one is, or for "" where there is none.

        Returns what is there then; the expected value where there is nothing.
        """
        return self._asked(Op.COMPARE, [key], [expected_value, desired_value])[0]

    def delete_key(self, key: str) -> bool:
        """Take a key away; whether there was one."""
        return self._asked(Op.DELETE, [key]) == [b"1"]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys are there, without waiting."""
        return self._asked(Op.CHECK, _several(keys)) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Return once all of these keys are there."""
        self._asked(
            Op.WAIT, _several(keys), limit=self._limit if timeout is None else seconds(timeout, timeout)
        )

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._asked(Op.COUNT)[0])

    def list_keys(self) -> list[str]:
        """All keys."""
        return [key.decode("utf-8", "backslashreplace") for key in self._asked(Op.KEYS)]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of these keys, once all are there."""
        return self._asked(Op.GET, _several(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Put values under keys, all at once."""
        if len(_several(keys)) != len(_several(values)):
            raise ArgumentValueError(f"multi_set: as many values as keys, not {len(values)} for {len(keys)}")
        self._asked(Op.SET, keys, values)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        self._asked(Op.PUSH, [key], [value])

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue, once there is one.

        Raises QueueEmptyError where there is none and it is not to be waited for.
        """
        if block:
            return self._asked(Op.POP, [key])[0]
        if not (taken := self._asked(Op.TAKE, [key])):
            raise QueueEmptyError(f"{self!r}: the queue {key!r} is empty")
        return taken[0]

    def queue_len(self, key: str) -> int:
        """How many values a queue has."""
        return int(self._asked(Op.LENGTH, [key])[0])

    def barrier(self, key: str, world_size: int, timeout: datetime.timedelta | None = None) -> None:
        """Return once so many have called it with this key, which is used once."""
        if self.add(f"{key}/arrived", 1) >= world_size:
            self.set(f"{key}/all", "")
        self.wait([f"{key}/all"], timeout)

    def has_extended_api(self) -> bool:
        """True: there are append, multi_get and multi_set."""
        return True

    def clone(self) -> Store:
        """A store of the same keys, for another thread: this one, which any number may use at once."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> Any:
        raise ArgumentError(
            f"a {type(self).__name__} can't be pickled",
            "make one in the other process, by the same host or path",
        )


class HashStore(Store):
    """A store of this process alone, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()
        self._changed = threading.Condition(fork_safe_lock())

    def ask(self, request: Request, limit: float) -> list[bytes] | None:
        with self._changed:
            answer = waited(lambda: self._table.answer(request), limit, self._changed.wait)
            self._changed.notify_all()
            return answer


class PrefixStore(Store):
    """A store with keys of its own within another: `prefix/key` there."""

    def __init__(self, prefix: str, store: Store):
        if not isinstance(prefix, str) or not isinstance(store, Store):
            raise ArgumentError(
                f"PrefixStore(prefix, store): a str and a Store, not {prefix!r} and {store!r}"
            )
        super().__init__()
        self.prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        """The store that the keys are in."""
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        below = self._store
        return below._underlying_non_prefix_store if isinstance(below, PrefixStore) else below

    @property
    def timeout(self) -> datetime.timedelta:
        """The other store's."""
        return self._store.timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Say how long keys are waited for, here and in the other store."""
        self._store.set_timeout(timeout)
        super().set_timeout(timeout)

    def ask(self, request: Request, limit: float) -> list[bytes] | None:
        start = f"{self.prefix}/".encode()
        answer = self._store.ask(request._replace(keys=[start + key for key in request.keys]), limit)
        if request.op is Op.KEYS and answer is not None:
            return [key.removeprefix(start) for key in answer if key.startswith(start)]
        return answer

    def __repr__(self) -> str:
        return f"PrefixStore({self.prefix!r}, {self._store!r})"


def waited(
    attempt: Callable[[], list[bytes] | None], limit: float, pause: Callable[[float], Any]
) -> list[bytes] | None:
    """What an attempt gives once it gives something; None after `limit` seconds.

    pause: waits until it may be worth another, so many seconds at most.
    """
    end = time.monotonic() + limit
    while (answer := attempt()) is None and (left := end - time.monotonic()) > 0:
        pause(left)
    return answer


def _refuse_recording() -> None:
    if modes.CHANGED:
        modes.tell("refuse", "a store was asked, which others change")


def _several(keys: Any) -> Any:
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence):
        raise ArgumentError(f"keys: a list of str, not {keys!r}")
    return keys


def _key(key: Any) -> bytes:
    if not isinstance(key, str):
        raise ArgumentError(f"a store's key is a str, not {key!r}")
    return key.encode("utf-8", "surrogateescape")


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ArgumentError(f"a store's value is a str or bytes, not {type(value).__name__}")
    return bytes(value)
