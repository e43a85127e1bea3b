"""Locks that a fork cannot leave taken."""

import os
import threading
from contextlib import AbstractContextManager

_others: list[AbstractContextManager] = []


def fork_safe_lock() -> threading.Lock:
    """Make a lock for a module, which is taken for the length of each fork.

    Only the forking thread goes on in the child: a lock that another one held would stay taken there for
    ever, and what it guards could be half changed. Worker processes of a loader are forked, so this matters.
    """
    made = threading.Lock()
    os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made


def hold_across_forks(lock: AbstractContextManager) -> None:
    """Have a lock of another library's taken for the length of each fork as well.

    It is taken after all of ours: who holds one of ours may wait for it, who holds it waits for nobody.
    """
    _others.append(lock)


def _take() -> None:
    for lock in _others:
        lock.__enter__()


def _give() -> None:
    for lock in reversed(_others):
        lock.__exit__(None, None, None)


os.register_at_fork(before=_take, after_in_parent=_give, after_in_child=_give)  # the first `before` runs last
