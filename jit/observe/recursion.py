"""Python's limit of recursion while runs are interpreted: one for all threads, which the user may set.

An interpreted call takes several native frames.  So the limit is raised for as long as a run goes on, by what
the deepest of them needs, and the last one to end leaves it as it was.  Where an interrupt keeps a run from
telling that it ends, the next one does.
"""

from __future__ import annotations

import sys
import threading
from typing import Any
from weakref import WeakKeyDictionary

_lock = threading.Lock()
_runs: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # and how much more each needs than the user allows
_users = _ours = 0  # what the user set, and what it was set to here


def raised(run: Any, more: int) -> int:
    """Have a run go deeper by so many native frames; return the limit that the user set."""
    global _users
    with _lock:
        if sys.getrecursionlimit() != _ours:  # who else sets it is the user
            _users = sys.getrecursionlimit()
        _runs[run] = more
        _settle()
        return _users


def ended(run: Any) -> None:
    """Let the limit be what the other runs need, or what the user set."""
    with _lock:
        _runs.pop(run, None)
        if sys.getrecursionlimit() == _ours:
            _settle()


def _settle() -> None:
    global _ours
    _ours = _users + max(_runs.values(), default=0)
    sys.setrecursionlimit(_ours)
