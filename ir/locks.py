"""Locks that a fork cannot leave taken."""

import os
import threading
import weakref
from contextlib import AbstractContextManager

PATIENCE = 0.02  # seconds that a fork waits for a lock while it holds others

_ours: list[weakref.ref[threading.Lock]] = []  # outer ones first, as far as is known
_others: list[AbstractContextManager] = []
_taken: list[threading.Lock] = []
_forking = threading.Lock()  # or two threads that fork at once would let go of each other's


def fork_safe_lock() -> threading.Lock:
    """Make a lock which is taken for the length of each fork.

    Only the forking thread goes on in the child: a lock that another one held would stay taken there for
    ever, and what it guards could be half changed. Worker processes of a loader are forked, so this matters.
    """
    made = threading.Lock()
    _ours.append(weakref.ref(made, _ours.remove))
    return made


def hold_across_forks(lock: AbstractContextManager) -> None:
    """Have a lock of another library's taken for the length of each fork as well.

    It is taken after all of ours: who holds one of ours may wait for it, who holds it waits for nobody.
    """
    _others.append(lock)


def _take() -> None:
    """Take all locks.

    A thread may hold one and wait for a second that is already taken here.  So after a while all are let go,
    and the one that could not be had is taken first from then on: the order becomes that of the threads.
    """
    _forking.acquire()
    while not _all_taken():
        pass
    for lock in _others:
        lock.__enter__()


def _all_taken() -> bool:
    waiting = [*_ours]
    while waiting:
        for reference in waiting:
            lock = reference()
            if lock is None:
                continue
            if not lock.acquire(timeout=PATIENCE if _taken else -1):
                _release()
                if reference in _ours:
                    _ours.remove(reference)
                    _ours.insert(0, reference)
                return False
            _taken.append(lock)
        held = {*map(id, _taken)}
        waiting = [each for each in _ours if id(each()) not in held and each() is not None]  # made meanwhile
    return True


def _release() -> None:
    while _taken:
        _taken.pop().release()


def _give() -> None:
    for lock in reversed(_others):
        lock.__exit__(None, None, None)
    _release()
    _forking.release()


os.register_at_fork(before=_take, after_in_parent=_give, after_in_child=_give)
