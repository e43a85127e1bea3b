"""What passes between interpreted Python and C code: arguments going in, callbacks coming back, results."""

from __future__ import annotations

import functools
import gc
import itertools
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from types import GenericAlias
from typing import Any

import numpy as np

from ...runtime import Tensor
from . import reads
from .kinds import ATOMS, ITERATORS, MISSING, PINNED, VIEWS, Function, Method, heap_class, lookup
from .numbers import raw
from .operators import Operators
from .policy import BY_IDENTITY
from .tracebacks import HANDS_ON

# What C code calls on its own account when it compares, adds, prints or goes through objects.
_CALLED_BY_C = (
    "__add__", "__radd__", "__lt__", "__gt__", "__le__", "__ge__", "__eq__", "__hash__", "__bool__",
    "__len__", "__iter__", "__repr__", "__str__", "__index__", "__int__", "__float__", "__contains__",
    "__getitem__",
)  # fmt: skip
_ASKED_OF_TENSORS = (*_CALLED_BY_C, "__ne__", "__complex__", "__floor__", "__ceil__", "__trunc__")
_AS_THEY_ARE = (Tensor, *PINNED)
# Whose texts show what they hold.
_SHOWN_WHOLE = (functools.partial, staticmethod, classmethod, itertools.repeat, GenericAlias)
_SHOWN = (list, tuple, dict, set, frozenset, deque, *_SHOWN_WHOLE)
_OPEN = (list, tuple, dict, set, frozenset, slice, deque, Method, *VIEWS)


def harmless(value: Any) -> bool:
    """Whether C code that looks at a value runs no Python of the user's."""
    return (
        type(value) in ATOMS
        or issubclass(type(value), (Tensor, np.ndarray, np.generic, *PINNED, *ITERATORS))
        or issubclass(type(value), _OPEN)
        or not any(type(lookup(type(value), name)) is Function for name in _CALLED_BY_C)
    )


class Callbacks(Operators):
    """Hands values to C code, and takes back what it calls and what it returns."""

    def natively(self, why: str, function: Callable, args: tuple, kwargs: Any) -> Any:
        """Refuse the recording, and make the call all the same, so that the run's result is true."""
        self.refuse(why)
        return function(*map(raw, args), **{k: raw(v) for k, v in kwargs.items()})

    def bare(self, args: tuple, kwargs: Any) -> tuple[tuple, dict[str, Any]]:
        """The arguments of a call, lifted numbers made plain."""
        return tuple(map(self.plain, args)), {name: self.plain(value) for name, value in kwargs.items()}

    def trampoline(self, value: Any) -> Any:
        """A callable for C code to call, which leads back into the recorder; None stays None."""
        if value is None:
            return value
        return self.new(lambda *args, **kwargs: self.plain(self.call(value, self._from_c(args), kwargs)))

    def _from_c(self, args: tuple) -> tuple:
        """The arguments of a callback, of which C code may just have made some."""
        for value in args:
            if issubclass(type(value), (tuple, list, re.Match)):
                self.result(value)
        return args

    def watch(self, value: Any, strict: bool, ordered: bool = True) -> Any:
        """An iterable for C code to go through: facts now, a user's iterator driven through the recorder.

        strict: C code looks into the items, to compare or to add them.  ordered: their order matters.
        """
        kind = type(value)
        self.own_specials(value)
        if kind in ATOMS or issubclass(kind, (Tensor, type)):
            return value
        if issubclass(kind, (np.ndarray, dict)):
            self.read_all(value, deep=strict)
            self.open(value)
            return value  # of a dictionary, whose keys are no lifted numbers
        if id(value) in self.shadow.handing:
            return self.drive(value, strict)
        if issubclass(kind, ITERATORS) or kind in VIEWS:
            if not self.is_fresh(value):
                self.refuse(f"a {kind.__name__} from outside was gone through, which is used up by that")
            self.goes_on(value)
            self.open_view(value)
            return self.drive(iter(value), strict) if strict and kind not in VIEWS else value
        if kind in (list, tuple, set, frozenset, deque):
            if ordered:
                self.in_order(value)
            self.read_all(value)
            self.open(value)
            if strict:
                self.look_into(*value)
            return value
        if kind in (Function, Method):
            return self.trampoline(value)
        if not any(type(lookup(kind, name)) is Function for name in ("__iter__", "__getitem__")):
            if strict or lookup(kind, "__iter__") is not MISSING:
                self.read_deep(value)
            elif not harmless(value):  # C code takes it for a number, or for a truth
                self.look_into(value)
            return value
        return self.drive(self.iterator(value), strict)

    def for_c(self, value: Any, asked: reads.Methods | None, strict: bool, ordered: bool = True) -> Any:
        """A value for C code, or what stands in for it where C code calls it or goes through it.

        asked: what C code asks of it, None where that isn't known.  strict, ordered: see `watch`.
        """
        called = callable(value) and not issubclass(type(value), (type, Tensor))
        if called and (asked is None or "__call__" in asked):
            return self.trampoline(value)
        value = self.plain(value)
        if asked is None or "__iter__" in asked or not (called or heap_class(type(value))):
            return self.watch(value, strict, ordered)
        self.own_specials(value)
        if not issubclass(type(value), (Tensor, type)):
            self.look_into(value)  # it is looked at, and stays what it is
        return value

    def own_specials(self, *values: Any) -> None:
        """C code may ask values for numbers or truths: of tensors, Lamina's own methods must answer."""
        for value in values:
            if self.refused or not issubclass(type(value), Tensor):
                continue
            for name in _ASKED_OF_TENSORS:
                if self.patched(value, name) is not None:
                    self.refuse(f"C code asks a tensor by {name}, where a function of the user's stands")
                    break

    def look_into(self, *values: Any) -> None:
        """C code is going to compare, add or print values."""
        for value in values:
            self.own_specials(value)
            if not harmless(value):
                self.refuse(f"a {type(value).__name__} was compared, added or printed by C code")
            elif not self.refused:
                if type(value) not in ATOMS:  # C code compares what is in containers by identity first
                    self.asks_for_nan(value)
                self.read_deep(value)

    def show(self, value: Any, within: tuple[int, ...] = ()) -> None:
        """C code is going to make the text of a value, with all that is in it.  within: what it is in."""
        if self.refused or type(value) in ATOMS or issubclass(type(value), Tensor) or id(value) in within:
            return
        if issubclass(type(value), np.ndarray):
            self.read_print_options()
        if issubclass(type(value), BaseException):
            if lookup(type(value), "__str__") is not BaseException.__str__ and not self.is_fresh(value):
                self.refuse(f"the text of a {type(value).__name__} is made by C code")
            args = self.attribute(value, "args")
            self.read_all(args)
            for item in args:
                self.show(item, (*within, id(value)))
        elif type(value) in (Function, Method) or lookup(type(value), "__repr__") is object.__repr__:
            self.refuse(f"the text of a {type(value).__name__} shows its address")
        else:
            self.look_into(value)
            self.in_order(value)
            self.read_settings(value)
            inside = [*value, *value.values()] if issubclass(type(value), dict) else value
            if issubclass(type(value), _SHOWN_WHOLE):
                inside = gc.get_referents(value)
            for item in inside if issubclass(type(value), _SHOWN) else ():
                self.show(item, (*within, id(value)))

    def drive(self, iterator: Iterator, strict: bool) -> Iterator:
        """The same items, each taken through the recorder; strict: and open to C code."""

        def items() -> Iterator:
            for value in self.each(iterator):
                if strict:
                    self.look_into(value)
                elif type(value) is tuple:
                    self.read_all(value, deep=True)
                yield self.plain(value)

        return self.new(items())

    def without_nan(self, items: Iterable) -> Iterator:
        """The same items for C code that looks for them by identity first."""
        for item in items:
            self.asks_for_nan(item)
            yield item

    def result(self, value: Any) -> Any:
        """What C code or the library returned: new, with what is in it, unless it is known."""
        if type(value) in ATOMS or issubclass(type(value), _AS_THEY_ARE):
            return value
        left, met = [value], set()  # which may hold itself, or be nested without end
        while left:
            x = left.pop()
            if type(x) in ATOMS or issubclass(type(x), _AS_THEY_ARE) or id(x) in met:
                continue
            if self.is_known(x) or self.is_fresh(x):
                continue
            met.add(id(x))
            self.mark_made(x)
            if issubclass(type(x), (list, tuple)):
                left += reversed(x)
            elif issubclass(type(x), dict):
                left += reversed(x.values())
            if type(x) is OrderedDict:  # a state of modules has attributes
                left += x.__dict__.values()
        return value

    def mark_made(self, value: Any) -> None:
        """Mark an object that a call made as new."""
        self.new(value)

    def in_c(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """Call a pure C function: callbacks come back to the recorder, everything else is read now."""
        loose = "key" in kwargs and kwargs["key"] is not None
        if function.__module__ == "_bisect":
            if args and type(args[0]) not in (list, tuple):
                why = f"{function.__name__}() asks a {type(args[0]).__name__} for its items"
                return self.natively(why, function, args, kwargs)
            for value in args[1:] if loose else ():  # the key is asked of the items alone
                self.look_into(value)
        name, given = reads.name_of(function), []
        for at, value in enumerate(args):
            if len(args) > 1 and type(value) is tuple:  # perhaps one of those that are compared
                self.asks_for_nan(value)
            asked = reads.asked_by(name, at)
            given.append(self.for_c(value, asked, not loose, function is not sorted or loose))
        named = {}
        for name, value in kwargs.items():
            if name in ("key", "func") and callable(value):
                named[name] = self.trampoline(value)
            else:
                self.look_into(value)
                named[name] = self.plain(value)
        if function in BY_IDENTITY and given:
            given[0] = self.new(self.without_nan(given[0]))
        return self.result(function(*given, **named))


HANDS_ON.add(Callbacks.natively.__code__)
