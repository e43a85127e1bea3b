"""The dictionaries inside a module, which keep its instance dictionary and the epoch true to them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from sys import getrefcount
from types import CodeType
from typing import Any

from ..runtime.graph import Owner
from .epoch import advance

# What a module keeps under these names: its members, and hooks.
MEMBERS = ("_parameters", "_buffers", "_modules")
HOOKS = ("_call_hooks", "_state_hooks")


class Plain:
    """What `Module` derives from, so that `fields` reaches the dictionary behind its `__dict__` property."""


# The instance dictionary of a module, by Python's own descriptor.
fields: Callable[[Any], dict[str, Any]] = Plain.__dict__["__dict__"].__get__
set_fields: Callable[[Any, dict[str, Any]], None] = Plain.__dict__["__dict__"].__set__


def _unkept() -> int:
    """How many references `is_kept` counts to a dictionary that its object alone holds."""
    alone = Plain()
    alone.name = None  # type: ignore[attr-defined]
    return getrefcount(fields(alone))


def is_kept(reach: Callable[[], Any]) -> bool:
    """Whether somebody besides a module, held weakly, holds its instance dictionary."""
    module = reach()
    return module is not None and getrefcount(fields(module)) > _UNKEPT


_UNKEPT = _unkept()


class Tracked(dict):
    """A dictionary whose every change advances the epoch."""

    __slots__ = ()

    def _put(self, key: Any, value: Any) -> None:
        advance()

    def _dropped(self, key: Any) -> None:
        advance()

    def __setitem__(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, value)
        self._put(key, value)

    def __delitem__(self, key: Any) -> None:
        dict.__delitem__(self, key)
        self._dropped(key)

    def pop(self, key: Any, *default: Any) -> Any:
        had = key in self
        found = dict.pop(self, key, *default)
        if had:
            self._dropped(key)
        return found

    def popitem(self) -> tuple[Any, Any]:
        key, value = dict.popitem(self)
        self._dropped(key)
        return key, value

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Tracked:  # type: ignore[misc]
        self.update(other)
        return self

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self):
        return (type(self), (), None, None, iter(self.items()))


class Names(set):
    """A set whose every change advances the epoch."""

    __slots__ = ()


def _telling(change: Callable) -> Callable:
    @functools.wraps(change)
    def told(self: Names, *args: Any) -> Any:
        before = frozenset(self)
        try:
            return change(self, *args)
        finally:
            if frozenset(self) != before:
                advance()

    return told


for _name in (
    "add", "discard", "remove", "pop", "clear", "update", "difference_update", "intersection_update",
    "symmetric_difference_update", "__ior__", "__iand__", "__isub__", "__ixor__",
):  # fmt: skip
    setattr(Names, _name, _telling(getattr(set, _name)))


PLAIN: list[CodeType] = []  # that of nn.Module's `__getattr__`, which stands above this module


def is_asked(kind: type) -> bool:
    """Whether a class of modules has a `__getattr__` of its own, not nn.Module's."""
    found: Any = kind.__getattr__  # type: ignore[attr-defined]
    return getattr(found, "__code__", None) is not PLAIN[0]


class Members(Tracked):
    """The parameters of a module by name, or its buffers, or its children; None for one that is left out.

    Each also stands in the module's instance dictionary, where Python finds it as fast as any attribute:
    reading `self.weight` there costs a tenth of a `__getattr__` written in Python.  Unless the class has a
    `__getattr__` of its own, which is to be asked for each.  The module is held weakly, or every module would
    be a cycle that only the garbage collector frees.
    """

    __slots__ = ("owner",)

    def __init__(self, *items: Any):
        self.owner: Callable[[], Any] = lambda: None
        dict.__init__(self, *items)

    def belong(self, module: Any) -> Members:
        """Make `module` the one whose attributes these are."""
        self.owner = Owner(module)
        if is_asked(type(module)):
            for name, value in self.items():
                if fields(module).get(name) is value:
                    del fields(module)[name]
        else:
            fields(module).update(self)
        return self

    def _put(self, key: str, value: Any) -> None:
        module = self.owner()
        if module is not None and not is_asked(type(module)):
            fields(module)[key] = value
        advance()

    def _dropped(self, key: str) -> None:
        module = self.owner()
        if module is not None:
            fields(module).pop(key, None)
        advance()
