"""Calls of classes: what makes an object, and whose code runs meanwhile."""

from __future__ import annotations

import collections
import contextvars
import functools
import io
import itertools
import types
import weakref
from typing import Any

import numpy as np

from ...runtime import Tensor
from ...runtime.modes import _Mode
from ..facts import indefinite
from . import policy, reads
from .builtin_functions import BuiltinFunctions
from .kinds import (
    ATOMS,
    MISSING,
    PINNED,
    VIEWS,
    Builtin,
    Function,
    heap_class,
    is_iterable,
    lookup,
    of_lamina,
)
from .numbers import LIFTED, LiftedSize, raw

# What C code asks of an object that has not the special method of a class of numbers.
_ASKED_NEXT = {int: ("__index__",), float: ("__index__",), complex: ("__float__", "__index__")}
_HANDING = (map, zip, enumerate, reversed)  # hand on what they go through
_BOTH_WAYS = (list, tuple, dict, collections.deque, types.MappingProxyType)  # that C code goes through


def written_in_c(kind: type) -> bool:
    """Whether a class was made by C code: it then has a `__new__` of its own that is no Python."""
    own = kind.__dict__.get("__new__")
    return not heap_class(kind) or (issubclass(type(own), Builtin) and own.__self__ is kind)


class Instances(BuiltinFunctions):
    """Makes instances by Python's rules: the metaclass, `__new__`, `__init__`."""

    def instantiate(self, kind: type, args: tuple, kwargs: Any) -> Any:
        """Call a class."""
        if heap_class(kind):
            self._made_mortal(kind)
        if self.refused:
            return self.call(kind, args, kwargs)
        if kind is type and len(args) == 1 and not kwargs:
            return self.class_of(args[0])
        if kind is type or issubclass(kind, type):
            return self.natively("a class is made in each call; make it outside", kind, args, kwargs)
        if kind is bool and len(args) == 1 and not kwargs:
            return self.truth(args[0])
        if kind in policy.SCALARS:
            number = MISSING if kwargs else self.of_numbers(kind, args)
            return self._scalar(kind, args, kwargs) if number is MISSING else number
        if kind in (slice, range, object, type(None)):
            args = tuple(map(self.plain, args))
            for value in args if kind is range else ():
                if type(lookup(type(value), "__index__")) is Function:
                    return self.natively("range() asks for __index__ of the user's own", kind, args, kwargs)
                if not issubclass(type(value), Tensor):  # which tells of itself
                    self.read_value(value)
            made = kind(*args, **kwargs)
            return made if type(made) in ATOMS else self.new(made)
        if kind is super:
            if not args:
                return self.natively("super() without arguments was called from afar", kind, args, kwargs)
            return self.new(super(*args))
        if kind in policy.CONSUMERS:
            return self._consumer(kind, args, kwargs)
        if issubclass(kind, BaseException) and type(lookup(kind, "__init__")) is not Function:
            if type(lookup(kind, "__new__")) is not Function:
                return self.new(kind(*args, **kwargs))
        called = lookup(type(kind), "__call__")
        if type(called) is Function:
            self.class_attribute(type(kind), "__call__")
            return self.call(called, (kind, *args), kwargs)
        return self.construct(kind, args, kwargs)

    def _made_mortal(self, kind: type) -> None:
        """Refuse before an object is made whose death runs code of the user's; that it doesn't is a fact."""
        mortal = lookup(kind, "__del__") not in (MISSING, _Mode.__del__)  # a mode's tidies up interrupts
        if mortal:
            self.abandon(f"{indefinite(kind)} is made, whose __del__ runs when nobody holds it")
        elif not (of_lamina(kind) or self.is_fresh(kind)):
            self.fact(kind, "dies", 0, "(lookup({o}, '__del__') is not MISSING)", False)

    def construct(self, kind: type, args: tuple, kwargs: Any) -> Any:
        """`type.__call__`: what a class does when it is called, unless its metaclass says otherwise."""
        if written_in_c(kind):
            return self._of_c(kind, args, kwargs)
        make = self.class_attribute(kind, "__new__")
        start = self.class_attribute(kind, "__init__")
        make = make.__func__ if issubclass(type(make), staticmethod) else make
        if type(make) is Function:
            made = self.call(make, (kind, *args), kwargs)
        elif make is object.__new__:
            if (args or kwargs) and start is object.__init__:
                return kind(*args, **kwargs)  # raises
            abstract = getattr(kind, "__abstractmethods__", None)
            made = kind(*args, **kwargs) if abstract else self.fresh.instance(object.__new__(kind))
        else:
            base = getattr(make, "__self__", None)
            if not issubclass(type(base), type):
                why = f"{kind.__name__}.__new__ is C code that nobody here knows"
                return self.natively(why, kind, args, kwargs)
            made = self.make_bare(base, kind, args, kwargs if base is not dict else {})
        if kind not in type(made).__mro__:  # `__subclasscheck__` has no say in it
            return made
        if not self.is_known(made) and type(made) not in ATOMS:
            self.new(made)
        if type(start) is Function:
            answer = self.call(start, (made, *args), kwargs)
            if answer is not None:
                raise TypeError(f"__init__() should return None, not '{type(answer).__name__}'")
        elif start is not object.__init__ and start is not MISSING:
            self.method(made, "__init__", start, functools.partial(start, made), args, kwargs)
        return made

    def _scalar(self, kind: type, args: tuple, kwargs: Any) -> Any:
        """int(x), float(x), str(x) and their kin."""
        misnamed = kind is str and not kwargs.keys() <= {"object", "encoding", "errors"}
        if kwargs.get("object") is not None and not args:
            return self.natively("str() of an object by name", kind, args, kwargs)
        if not args or misnamed or (kind is bool and (len(args) > 1 or kwargs)):
            return kind(*args, **kwargs)
        if kind is str and len(args) == 1 and not kwargs and type(args[0]) in LIFTED:
            return self.converted(args[0], "s")
        value = self.plain(args[0])
        args = (value, *map(self.plain, args[1:]))
        self.look_into(*args[1:], *kwargs.values())
        if kind is complex and len(args) > 1 and type(value) not in ATOMS:
            return self.natively(f"complex() of a {type(value).__name__} and more", kind, args, kwargs)
        simple = issubclass(type(value), (Tensor, np.generic)) or type(value) in ATOMS
        if simple and self.patched(value, policy.SCALARS[kind]) is None:
            asked = self.recorder.asked
            found = kind(*args, **kwargs)
            return self.numbers.answer(found, asked) if kind in (float, int) else found
        if issubclass(type(value), np.ndarray):
            if id(value) in self.fresh.shown and len(args) == 1 and not kwargs:
                return self._scalar(kind, self.fresh.shown[id(value)][1:], {})
            self.read_all(value)
            return kind(*args, **kwargs)
        if (args[1:] or kwargs) and heap_class(type(value)):
            return self.natively(
                f"{kind.__name__}() of a {type(value).__name__} and more", kind, args, kwargs
            )
        method = self.special(value, policy.SCALARS[kind])
        if type(method) is Function:
            found = self.call(method, (value,))
            if not issubclass(type(raw(found)), kind):
                answering = {policy.SCALARS[kind]: lambda _: raw(found)}
                return kind(type(type(value).__name__, (), answering)())  # raises
            return found
        if kind is str and not args[1:]:
            return self._text_of(value)
        if kind is bytes and type(self.special(value, "__index__")) is Function:
            return kind(self.index(value))
        if kind is bytes or issubclass(type(value), (list, tuple)):
            return kind(self.watch(value, True), *args[1:], **kwargs)
        if kind is int and lookup(type(value), "__index__") is MISSING is not lookup(
            type(value), "__trunc__"
        ):
            return self.natively("int() of what has a __trunc__ warns from C code", kind, args, kwargs)
        for name in _ASKED_NEXT.get(kind, ()):
            if type(self.special(value, name)) is Function:
                return kind(self.plain(self.call(lookup(type(value), name), (value,))))
        self.read_deep(value)
        return kind(*args, **kwargs)

    def _text_of(self, value: Any) -> str:
        """`str(value)` where its class has no `__str__` in Python."""
        own = lookup(type(value), "__str__")
        if own is object.__str__ or issubclass(type(value), PINNED):
            return self.call(repr, (value,))
        self.show(value)
        return str(value)

    def _consumer(self, kind: Any, args: tuple, kwargs: Any) -> Any:
        """Classes of C that go through what they are given: list, zip, map, chain and their kin."""
        if kind in (list, tuple) and len(args) == 1 and not kwargs and type(args[0]) is LiftedSize:
            return self.filled(kind, self.unpack(args[0], lift=True))
        if kind in _HANDING and not self.refused:
            args = tuple([self.filled(tuple, x.items) if type(x) is LiftedSize else x for x in args])
        given = list(map(self.plain, args))
        if kind is not dict:
            kwargs = {k: self.plain(v) for k, v in kwargs.items()}
        most = 1 if kind is reversed or issubclass(kind, dict) else len(given)
        if len(given) > most + (kind.__name__ == "defaultdict") or (kind is reversed and kwargs):
            return kind(*given, **kwargs)  # raises
        if kind.__name__ == "defaultdict":
            factory = given.pop(0) if given else None
            made = self.new(kind(factory))
            update = functools.partial(dict.update, made)
            self.method(made, "update", dict.update, update, tuple(given), kwargs)
            return made
        if issubclass(kind, dict):
            pairs = self._pairs(kind, given[0]) if given else {}
            items = [*dict.items(pairs)] if issubclass(type(pairs), dict) else pairs
            if kind is dict:
                return self.filled_map([*items, *kwargs.items()])
            return self.new(kind([(k, self.plain(v)) for k, v in items], **kwargs))
        first = 0
        if kind in (list, tuple) and len(given) == 1 and not kwargs:
            return self.filled(kind, self.unpack(given[0], lift=True))
        if kind is map and len(given) > 1 or kind in (zip, enumerate):
            self.look_into(*kwargs.values())
            return self._lifting(kind, given, kwargs)
        if kind in policy.WITH_FUNCTION_FIRST and given:
            given[0], first = self.trampoline(given[0]), 1
        for name in ("func", "key"):
            if callable(kwargs.get(name)):
                kwargs[name] = self.trampoline(kwargs[name])
        for name, value in kwargs.items():
            if name not in ("func", "key"):
                self.look_into(value)
        if kind is itertools.starmap:
            given[1:] = [self._iterables(self.iterator(x)) for x in given[1:]]
        asks = kind in (filter, itertools.filterfalse) and args[0] is None or kind is itertools.compress
        strict = asks or kind in (set, frozenset) or kind.__name__ in ("accumulate", "groupby", "bytearray")
        for at in range(first, len(given)):
            if at and kind in (itertools.accumulate, itertools.groupby):
                given[at] = self.trampoline(given[at])
            elif kind is reversed:
                return self._reversed(given[0])
            elif kind is bytearray and type(self.special(given[at], "__index__")) is Function:
                given[at] = self.index(given[at])  # so many bytes, whatever it gives as it is gone through
            elif kind is not itertools.repeat:
                asked = reads.asked_by(reads.name_of(kind), at)
                way = self.watch if asked is None else functools.partial(self.for_c, asked=asked)
                given[at] = way(given[at], strict=strict)
            elif at:
                self.look_into(given[at])
        if kind is itertools.groupby and given and not is_iterable(args[0]):
            return kind(*args, **kwargs)  # raises
        if kind in policy.BY_IDENTITY:
            given[0] = self.new(self.without_nan(given[0]))
        made = self.new(kind(*given, **kwargs))
        return self.of_table(made, *given) if strict else made

    def _iterables(self, items: Any) -> Any:
        """The same items, which C code goes through."""

        def each() -> Any:
            for item in self.each(items):
                yield self.watch(item, True) if type(item) in (list, tuple) else self.new(self.unpack(item))

        return self.new(each())

    def _lifting(self, kind: Any, given: list, kwargs: Any) -> Any:
        """zip, enumerate or map, which hands lifted numbers on as they are."""
        ways = [self.lazily(x) for x in given]
        handing = any(way is not None for way in ways)
        if kind is map:
            ways[0] = self.new(lambda *args: self.call(given[0], self._from_c(args)))
        full = reads.name_of(kind)
        for at, (x, way) in enumerate(zip(given, ways, strict=True)):
            if way is None:
                goes_through = "__iter__" in reads.reads(full, "of", at)
                ways[at] = self.watch(x, False) if goes_through else self.for_c(x, reads.WHOLE, False)
        made = self.new(kind(*ways, **kwargs))
        if handing or kind is map:
            self.shadow.handing.add(id(made))
        return made

    def _reversed(self, o: Any) -> Any:
        method = lookup(type(o), "__reversed__")
        if type(method) is Function:
            return self.call(self.special(o, "__reversed__"), (o,))
        if type(o) is tuple and self._places(o) is not None:
            made = self.new(reversed(tuple(self.unpack(o, lift=True))))
            self.shadow.handing.add(id(made))
            return made
        if type(o) is types.MappingProxyType and heap_class(type(self.behind(o))):
            return self.natively("reversed() of a proxy of the user's own", reversed, (o,), {})
        if type(o) in VIEWS and self.is_fresh(o):
            self.open_view(o)
        elif self.changing(o):
            self.go_through_keys(o)
        elif issubclass(type(o), _BOTH_WAYS):
            self.read_all(o)
            self.open(o)
        elif type(self.special(o, "__getitem__")) is Function:
            return self.natively(f"reversed() of a {type(o).__name__} calls its __getitem__ from C code",
                                 reversed, (o,), {})  # fmt: skip
        elif type(o) is range:
            self.read_value(o)
        elif not self.is_fresh(o) and type(o) not in ATOMS:
            self.refuse(f"reversed() of a {type(o).__name__} from outside")
        return self.new(reversed(o))

    def _of_c(self, kind: type, args: tuple, kwargs: Any) -> Any:
        """A class written in C."""
        args, kwargs = self.bare(args, kwargs)
        values = (*args, *kwargs.values())
        home = kind.__module__
        if issubclass(kind, weakref.ref):
            self.abandon("a weak reference is made in each call, and tells what the recorder holds on to")
        if kind in policy.HOLDERS or issubclass(kind, (functools.partial, weakref.ref, types.ModuleType)):
            return self.fresh.made_here(kind(*args, **kwargs))
        if kind in (io.StringIO, io.BytesIO, contextvars.ContextVar):
            return self.new(kind(*args, **kwargs))
        if all(type(x) in ATOMS for x in values) and home in policy.CONSTANT_MAKERS:
            return self.result(kind(*args, **kwargs))
        if home in ("datetime", "decimal", "_decimal") and all(
            type(x) in ATOMS or type(x).__module__ in ("datetime", "decimal", "_decimal") for x in values
        ):
            return self.result(kind(*args, **kwargs))
        if home.partition(".")[0] == "numpy":
            return self.numpy(kind, args, kwargs)
        if home == "_thread" or kind.__name__ in ("lock", "RLock"):
            return self.new(kind(*args, **kwargs))
        return self.natively(policy.reason_against(home, kind.__name__), kind, args, kwargs)
