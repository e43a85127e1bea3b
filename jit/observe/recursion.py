"""Python's limit of recursion while runs are interpreted: one for all threads, which the user may set.

An interpreted call takes several native frames.  So the limit is raised for as long as a run goes on, by what
the deepest of them needs, and the last one to end leaves it as it was.  Where an interrupt keeps a run from
telling that it ends, the next one does.
"""

from __future__ import annotations

import os
import sys
from threading import get_ident
from typing import Any
from weakref import ref

from ...ir.locks import fork_safe_lock

_lock = fork_safe_lock()
_runs: dict[ref, tuple[int, int]] = {}  # the thread, and its deeper frames
_users = _ours = 0  # what the user set, and what it was set to here


def raised(run: Any, more: int) -> int:
    """Have a run go deeper by so many native frames; return the limit that the user set."""
    global _users
    with _lock:
        if sys.getrecursionlimit() != _ours:  # who else sets it is the user
            _users = sys.getrecursionlimit()
        _runs[ref(run, _dropped)] = get_ident(), more
        _settle()
        return _users


def ended(run: Any) -> None:
    """Let the limit be what the other runs need, or what the user set."""
    with _lock:
        _dropped(ref(run))
        if sys.getrecursionlimit() == _ours:
            _settle()


def _dropped(run: ref) -> None:
    _runs.pop(run, None)


def _settle() -> None:
    global _ours
    # Of a copy: where objects are made, a run that was suspended may be closed, and end.
    _ours = _users + max((more for _, more in _runs.copy().values()), default=0)
    sys.setrecursionlimit(_ours)


def _in_child() -> None:
    """Let go of the runs of threads that a forked child doesn't have."""
    for run, (thread, _) in _runs.copy().items():
        if thread != get_ident():
            _dropped(run)
    with _lock:
        if sys.getrecursionlimit() == _ours:
            _settle()


os.register_at_fork(after_in_child=_in_child)
