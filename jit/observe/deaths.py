"""Whether anybody would notice that an object dies: by `__del__`, a weak reference, a generator's `finally`.

What a run takes out of a place may have been held there alone.  Its death would run code that the recorder
does not hear, and at a replay it comes later than it should.
"""

from __future__ import annotations

import functools
import gc
import types
import weakref
from typing import Any

import numpy as np

from ...runtime import Tensor
from ...runtime.graph import Owner
from ...runtime.modes import _Mode
from ..facts import indefinite
from .kinds import ATOMS, MISSING, PINNED, Function, Method, lookup

MOST_LOOKED_AT = 10_000  # objects that one death is followed through


class Reach(weakref.ref):
    """A weak reference of the recorder's own, which no user holds."""

    __slots__ = ()


class Unkept(dict):
    """A table that takes nothing in: after a refusal the run must hold no more than a plain one would."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Leave it."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value, which is left."""
        return default


class Dropped(list):
    """A list that takes nothing in."""

    def append(self, value: Any) -> None:
        """Leave it."""


# Of these we know that nobody notices; what they hold is left alone.
SILENT = frozenset((*ATOMS, np.ndarray, types.ModuleType, types.CodeType, types.BuiltinFunctionType))
_HOLDS = (functools.partial, property, staticmethod, classmethod)  # though pinned by identity
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def is_watched(o: Any) -> bool:
    """Whether there are weak references to an object that are none of the library's own."""
    return type(o).__weakrefoffset__ != 0 and any(
        not issubclass(type(r), (Reach, Owner)) for r in weakref.getweakrefs(o)
    )


def noticed(value: Any) -> str | None:
    """What would notice that an object dies, in words, if nobody else held it; None where nothing would."""
    if type(value) in SILENT:
        return None
    seen: set[int] = set()
    left = [value]
    while left:
        o = left.pop()
        kind = type(o)
        if kind in SILENT or issubclass(kind, (type, types.ModuleType)) or id(o) in seen:
            continue
        if issubclass(kind, Tensor):  # its history is not followed
            if is_watched(o):
                return f"is or holds {indefinite(kind)}, to which there are weak references"
            continue
        seen.add(id(o))
        if len(seen) > MOST_LOOKED_AT:
            return "holds more than can be looked through"
        if issubclass(kind, _RUNNING):
            if gc.get_referents(o):  # one that ended holds nothing
                return f"is or holds {indefinite(kind)} that is closed when nobody holds it"
            continue
        if lookup(kind, "__del__") not in (MISSING, _Mode.__del__):
            return f"is or holds {indefinite(kind)}, whose __del__ runs when nobody holds it"
        if is_watched(o):
            return f"is or holds {indefinite(kind)}, to which there are weak references"
        if kind is Function:
            left += [*(o.__closure__ or ()), o.__defaults__, o.__kwdefaults__, o.__dict__]
        elif kind is Method or not issubclass(kind, PINNED) or issubclass(kind, _HOLDS):
            left += gc.get_referents(o)
    return None


def in_cell(cell: types.CellType) -> Any:
    """What a variable of an enclosing function holds, None where it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def in_slot(slot: Any, o: Any) -> Any:
    """What an object's slot holds, None where it holds nothing."""
    try:
        return slot.__get__(o)
    except AttributeError:
        return None
