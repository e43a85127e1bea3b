"""Locks: one that was there before a run is taken for the whole of a call that is served.

What a run reads and writes between `acquire` and `release` belongs together for other threads.  A served call
reads all before its work and writes all after it, so the lock is taken before and given back at the end:
longer than the run held it, which no other thread can tell, as long as it is the only one.  Locks that the
run made itself are nothing to others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TAKES = frozenset(("__enter__", "acquire"))
_GIVES = frozenset(("__exit__", "release"))
METHODS = _TAKES | _GIVES | {"_is_owned", "locked"}
# How `acquire` is called that waits for as long as it takes, and that does not wait.
_WAITING = ((), {}), ((True,), {}), ((), {"blocking": True})
_TRYING = ((False,), {}), ((), {"blocking": False})


class Locks:
    """The lock of others that this run has taken, and how many times it holds it now."""

    def __init__(self) -> None:
        self.taken: Any = None
        self.depth = 0

    def let_go(self) -> None:
        self.taken = None


def asked(rules: Any, lock: Any, name: str, run: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A method of a lock was called."""
    if not rules.refused and (why := _why_not(rules, lock, name, (args, kwargs))) is not None:
        rules.refuse(why)
    result = run(*args, **kwargs)
    if not rules.refused and not rules.is_fresh(lock):
        if name in _TAKES and result:
            rules.locks.taken = lock
            rules.locks.depth += 1
        elif name in _GIVES:
            rules.locks.depth -= 1
    return result


def _why_not(rules: Any, lock: Any, name: str, given: tuple) -> str | None:
    """Why a run with this call can't be replayed; None where it can."""
    taken, depth = rules.locks.taken, rules.locks.depth
    waits = name == "__enter__" or (name == "acquire" and given in _WAITING)
    if rules.is_fresh(lock):
        return "it waits for another thread" if waits and _is_held(lock) else None
    if depth and lock is taken:
        return None if waits or name != "acquire" or given in _TRYING else _ASKS
    if name in _GIVES:
        return "it gives back a lock that it has not taken"
    if not waits:
        return _ASKS
    if taken is not None and lock is not taken:
        return "it takes two locks, and a served call would hold both at once"
    return None if rules.source(lock) is not None else "it takes a lock that nothing known leads to"


_ASKS = "it asks a lock whether another thread holds it, or for how long"


def _is_held(lock: Any) -> bool:
    """Whether a lock that the run made can't be taken."""
    if not lock.acquire(False):
        return True
    lock.release()
    return False
