"""What `functools.cache` and `lru_cache` keep: a result that is there is a fact, a call of it an effect.

A replay asks for the kept object without calling anything (`kept`), and calls the function last of all, so
that its hits are counted and its entries stay in order.  A call that is the first with its arguments fills
the cache; only calls after it can be replayed.
"""

from __future__ import annotations

import gc
from itertools import repeat
from operator import is_
from typing import Any

from ..facts import holds_nan
from .kinds import MISSING, PINNED, Function, lookup

MOST = 1000  # entries of a cache that are gone through at each call


def call(observer: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call a function that keeps what it returned."""
    args, kwargs = observer.bare(args, kwargs)
    name = getattr(function, "__name__", "a function")
    if not all(_is_told_apart(observer, value) for value in (*args, *kwargs.values())):
        why = f"{name}() keeps what it returned (functools.cache) for objects that are others at each call"
        return observer.natively(f"{why}: call it outside", function, args, kwargs)
    key = _stored(function, args, kwargs)
    if key is MISSING:
        observer.recorder.notice("once", f"{name}() kept what it returned for the first time")
        return function(*args, **kwargs)
    found = function(*args, **kwargs)
    observer.source(function)
    observer.fact(function, "kept", id(key), f"{observer.const(kept)}({{o}}, {observer.const(key)})", found)
    observer.effect(function, *args, **kwargs)
    return found


def _is_told_apart(observer: Any, value: Any) -> bool:
    """Whether an argument finds the same entry at a later call, and no Python of the user's runs for that."""
    if observer.by_value(value):
        return not holds_nan(value)
    if type(value) is tuple:
        return all(_is_told_apart(observer, each) for each in value)
    if any(type(lookup(type(value), name)) is Function for name in ("__hash__", "__eq__")):
        return False
    return issubclass(type(value), PINNED) or observer.is_known(value) and observer.captured(value)


def _parts(function: Any) -> tuple[list[Any], dict[Any, Any], Any]:
    """Keys, results and links in turn (none where there is no limit), the table, and what divides a key."""
    held = gc.get_referents(function)
    at = max(at for at, each in enumerate(held) if type(each) is object)
    return held[1 : at - 2], held[at - 2], held[at]


def _stored(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The very key under which a cache keeps the result for these arguments; MISSING where it doesn't."""
    entries, table, mark = _parts(function)
    values = (*args, *kwargs.values())
    key: Any = (*args, mark, *(part for item in kwargs.items() for part in item)) if kwargs else args
    if function.cache_parameters()["typed"]:
        key = (*key, *map(type, values))
    elif not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        (key,) = args
    if len(entries) > 3 * MOST or key not in table:
        return MISSING
    return next(each for each in table if each is key or each == key)


def kept(function: Any, key: Any) -> Any:
    """What a cache keeps under a key, which is told by identity."""
    entries, table, _ = _parts(function)
    if not entries:
        return table.get(key, MISSING)
    for at, same in enumerate(map(is_, entries[::3], repeat(key))):
        if same:
            return entries[3 * at + 1]
    return MISSING
