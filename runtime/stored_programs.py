"""Whole programs in the cache, for later processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..ir.errors import LaminaError
from ..passes import cache as disk
from ..passes.programs.manifest import Manifest
from .interrupts import let_through

T = TypeVar("T")


def program_key(kind: type[Manifest], *parts: str) -> str:
    """The entry of a program with such a manifest.  parts: all that it was made from."""
    return disk.key(kind.__name__, str(kind.FORMAT), *parts)


def load(name: str, make: Callable[[bytes], T]) -> T | None:
    """What is made of an entry, or None if there is none; one that nothing can be made of is forgotten."""
    cache = disk.default()
    data = cache.get(name)
    if data is None:
        return None
    try:
        return make(data)
    except (ValueError, KeyError, TypeError, RecursionError, MemoryError, OSError, LaminaError) as error:
        let_through(error)
        cache.forget(name)
        return None
