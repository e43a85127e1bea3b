"""Locks that a fork cannot leave taken, whatever interrupts it, and that a thread may take twice.

A collection of garbage may begin wherever an object is made, so while a lock is held as well.  What it ends
is anybody's code: a `__del__` that computes, a generator that is closed, which may come to the same lock in
the same thread.  So what a lock guards is right wherever an object is made in it.

For the length of a fork its thread takes all locks: only that thread goes on in the child, where a lock that
another one held would stay taken for ever, and what it guards could be half changed.

A signal's handler may raise between any two steps of Python code, and Python only prints what a hook of a
fork raises, and forks all the same.  So what must not be interrupted is one step of Python each, a call of C
functions that call C functions: taking a lock and noting it (`list.extend`), forgetting it and giving it back
(`iter(list.pop, None)`).  What runs after the fork has no step of Python at all.  An interrupt before it
begins the taking anew; a KeyboardInterrupt is raised again where the fork returns, in the parent.
"""

import _thread
import os
import sys
import threading
import weakref
from collections import deque
from functools import partial
from itertools import takewhile
from operator import attrgetter, call, methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property:  # the name of what it stands for
        """functools' of Python 3.12: until then it holds a lock, one for all objects of a class, while a
        value is computed, and in a child that is forked meanwhile nobody gives it back."""

        def __init__(self, function: Any):
            self.func, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self.func(instance)
            return value


PATIENCE = 0.02  # seconds that a fork waits for a lock while it holds others

_ours: dict[weakref.ref[_thread.RLock], int] = {}  # and ranks: the outer the lower, as far as is known
_others: list = []  # with acquire() and release()
_forking = threading.Lock()  # or two threads that fork at once would wait for each other's

_wait = methodcaller("acquire")
_try = methodcaller("acquire", True, PATIENCE)
_release = methodcaller("release")


class _Owed(threading.local):
    """What a thread is to do after its fork: iterating does it, each item once, without a step of Python.

    steps: makes the iterator.
    """

    steps = staticmethod(partial(iter, ()))
    __iter__ = property(attrgetter("steps"))


_held, _interrupts = _Owed(), _Owed()
_give = partial(deque, _held, 0)  # of no length: it keeps nothing of what it iterates over
_interrupt = partial(deque, _interrupts, 0)


def fork_safe_lock() -> _thread.RLock:
    """Make a lock which is taken for the length of each fork."""
    made = _thread.RLock()
    _ours[weakref.ref(made, _ours.pop)] = 0
    return made


def hold_across_forks(lock: threading.Lock) -> None:
    """Have a lock of another library's taken for the length of each fork as well.

    It is taken after all of ours: who holds one of ours may wait for it, who holds it waits for nobody.
    """
    _others.append(lock)


def _take() -> None:
    """Take all locks, however often that is interrupted.

    A thread may hold one and wait for a second that is already taken here.  So after a while all are given
    back, and the one that could not be had is taken first from then on: the order becomes the threads' own.
    """
    interrupt, done = None, False
    while not done:
        try:
            done = _all_taken()
        except BaseException as error:
            interrupt = error
    if isinstance(interrupt, KeyboardInterrupt):
        _interrupts.steps = partial(map, call, iter([None, _thread.interrupt_main].pop, None))
    elif interrupt is not None:
        raise interrupt  # Python prints it: there is no way to raise it where the fork returns


def _all_taken() -> bool:
    """Take all locks, or none; whether it did."""
    _give()  # what an attempt that was interrupted took
    taken: list = [None]
    _held.steps = partial(map, _release, iter(taken.pop, None))
    taken.extend(takewhile(_wait, (_forking,)))
    while waiting := _not_in(taken):  # some may be made meanwhile
        alone = len(taken) == 2  # with _forking: waiting for one keeps nobody from going on
        first, rest = (waiting[:1], waiting[1:]) if alone else ([], waiting)
        taken.extend(takewhile(_wait, first))
        before = len(taken)
        taken.extend(takewhile(_try, rest))
        if len(taken) - before < len(rest):
            missing = weakref.ref(rest[len(taken) - before])
            _give()
            _ours[missing] = min(_ours.values()) - 1
            return False
    taken.extend(takewhile(_wait, _others))
    return True


def _not_in(taken: list) -> list[_thread.RLock]:
    """Our locks that are not among these."""
    held, references = {*map(id, taken)}, sorted(_ours, key=lambda reference: _ours.get(reference, 0))
    return [lock for reference in references if (lock := reference()) is not None and id(lock) not in held]


def _heal() -> None:
    """Make new, in the child, what a fork that was interrupted from the first did not take."""
    every: list[Any] = [_forking, *_not_in([])]
    for lock in every:
        if lock.acquire(False):
            lock.release()
        else:
            lock._at_fork_reinit()


os.register_at_fork(before=_take, after_in_parent=_give, after_in_child=_give)
os.register_at_fork(after_in_parent=_interrupt, after_in_child=_heal)
