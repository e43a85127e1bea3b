"""Places of the heap as keys, and what containers hold, read without any Python of a user's class."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from .kinds import ATOMS, heap_class


def key_of(k: Any) -> Any:
    """What tells a key from others: itself where it is plain, else its identity."""
    if type(k) in ATOMS:
        return type(k), k
    if type(k) is tuple and all(type(x) in ATOMS for x in k):
        return tuple([(type(x), x) for x in k])
    return id(k)


def place_of(o: Any, kind: str, key: Any) -> tuple:
    """A place of the heap: whose, what kind of one, and which of those."""
    return id(o), kind, key_of(key)


def size_of(o: Any) -> int:
    """How many items a container holds, whatever `__len__` its class may have: C code does not ask that."""
    for base in (list, tuple, deque, dict, set, frozenset):
        if issubclass(type(o), base):
            return base.__len__(o)
    return len(o)


def copied(o: Any) -> Any:
    """What a container holds, in another; no Python of a user's class runs for it."""
    if not heap_class(type(o)):
        return o.copy() if hasattr(o, "copy") else o
    if issubclass(type(o), OrderedDict):
        return OrderedDict([(k, dict.__getitem__(o, k)) for k in OrderedDict.__iter__(o)])
    if issubclass(type(o), deque):
        return deque(deque.__iter__(o), o.maxlen)
    base = next((base for base in (dict, list, set) if issubclass(type(o), base)), None)
    return o if base is None else base.copy(o)
