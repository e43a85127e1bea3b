"""Processes below this one: who they are, that they end with it, and that none is left.

Linux tells all of it; elsewhere these do less, and say in their docstrings what.  Only the standard library
is used here: a watcher does not load Lamina.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LINUX = sys.platform == "linux"


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Get this signal when the parent ends, whatever ends it.  Nothing on systems other than Linux."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans(adopt: bool = True) -> None:
    """Become the parent of what processes below leave behind.  Nothing on systems other than Linux."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def state(pid: int) -> str:
    """The letter that Linux has for a process's state: R, S, D, T, Z; "" where there is none."""
    return _stat(pid)[0]


def _stat(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return "", 0
    return fields[0].decode(), int(fields[1])


def below(root: int) -> list[int]:
    """The processes below one, parents before children, zombies left out.  Empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    if _LINUX:
        for name in os.listdir("/proc"):
            if name.isdigit():
                letter, parent = _stat(int(name))
                if letter:
                    children.setdefault(parent, []).append(int(name))
    found, at = [root], 0
    while at < len(found):
        found += children.get(found[at], ())
        at += 1
    return [pid for pid in found[1:] if state(pid) not in ("", "Z")]


def reap() -> None:
    """Collect the status of children that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _tracks_resources(pid: int) -> bool:
    """Whether it is Python's, which unlinks what the others left when the last of them is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.resource_tracker" in file.read()
    except OSError:
        return False


def end_all_below(patience: float) -> None:
    """Wait that many seconds for the processes below this one, then kill them.  All are gone afterwards."""
    root, since = os.getpid(), time.monotonic()
    while left := below(root):
        passed = time.monotonic() - since
        for pid in left:
            if passed > patience and (not _tracks_resources(pid) or passed > patience + 2):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if passed > patience + 10:  # one that even SIGKILL does not end, as it waits for a disk that is gone
            return
        time.sleep(0.01)
        reap()
    reap()
