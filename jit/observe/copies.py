"""`copy.copy` and `copy.deepcopy`, in a form that can be looked at: the library's go by way of C and `id`."""

from __future__ import annotations

import copy
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...runtime import Tensor
from ...runtime.tensor import fields
from .kinds import ATOMS, PINNED

_AS_THEY_ARE = (*ATOMS, *PINNED, range, types.EllipsisType, property)


def copied(x: Any) -> Any:
    """`copy.copy(x)`."""
    kind = type(x)
    if kind is list or kind is set or kind is dict:
        return x.copy()
    if kind in _AS_THEY_ARE or issubclass(kind, type) or kind is tuple or kind is frozenset:
        return x
    own = getattr(kind, "__copy__", None)
    if own is not None:
        return own(x)
    if not plainly_made(kind):
        return through_c(copy.copy, x)
    made = object.__new__(kind)
    made.__dict__.update(x.__dict__)
    return made


def deeply_copied(x: Any, done: list) -> Any:
    """`copy.deepcopy(x)`; done: pairs of what was met and its copy."""
    kind = type(x)
    if kind in _AS_THEY_ARE or issubclass(kind, type):
        return x
    for before, made in done:
        if before is x:
            return made
    if kind is list:
        found: Any = []
        done.append((x, found))
        for item in x:
            found.append(deeply_copied(item, done))
        return found
    if kind is dict:
        found = {}
        done.append((x, found))
        for key, value in x.items():
            found[deeply_copied(key, done)] = deeply_copied(value, done)
        return found
    if kind is OrderedDict:
        found = OrderedDict()
        done.append((x, found))
        for key, value in x.items():
            found[deeply_copied(key, done)] = deeply_copied(value, done)
        for name, value in x.__dict__.items():
            setattr(found, name, deeply_copied(value, done))
        return found
    if kind is tuple:
        items = [deeply_copied(item, done) for item in x]
        for before, made in done:  # which a tuple that holds itself has entered meanwhile
            if before is x:
                return made
        if all(type(a) in ATOMS or a is b for a, b in zip(x, items)):
            return x
        found = tuple(items)
        done.append((x, found))
        return found
    if kind is Tensor and is_bare(x) and not x.requires_grad and x.grad is None and x.is_contiguous():
        found = x.clone()
        done.append((x, found))
        return found
    own = getattr(kind, "__deepcopy__", None)
    if own is not None:
        return own(x, {})
    if not plainly_made(kind):
        return through_c(copy.deepcopy, x)
    found = object.__new__(kind)
    done.append((x, found))
    found.__dict__.update(deeply_copied(x.__dict__, done))
    return found


def is_bare(x: Tensor) -> bool:
    """Whether nothing of the user's hangs on a tensor; a recorder says no of those that it has not made."""
    return not fields(x)


def through_c(copier: Callable, x: Any) -> Any:
    """Copy by the library's own way; a recorder refuses it."""
    return copier(x)


def plainly_made(kind: type) -> bool:
    """Whether objects of a class are what is in their `__dict__`, and are copied as that."""
    own: Any = kind  # whose methods are looked at as they stand
    return (
        bool(kind.__flags__ & 1 << 9)
        and own.__new__ is object.__new__
        and kind.__dictoffset__ != 0
        and own.__reduce_ex__ is object.__reduce_ex__
        and own.__reduce__ is object.__reduce__
        and kind.__basicsize__ == _PLAIN_SIZE
        and not hasattr(kind, "__setstate__")
        and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
    )


class _Plain:
    pass


_PLAIN_SIZE = _Plain.__basicsize__  # one without slots
