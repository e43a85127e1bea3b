"""Functions of C: `len` and its kin by Python's rules, pure ones as they are, others refused; NumPy's."""

from __future__ import annotations

import _abc
import _thread
import builtins
import functools
import math
import operator
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime import Size, Tensor
from .. import draws
from . import policy
from .class_checks import is_callable, is_instance, is_subclass
from .kinds import ATOMS, MISSING, Builtin, Function, lookup
from .methods import Methods
from .numbers import LIFTED, LiftedSize, is_number, raw, spelled
from .operators import BINARY, COMPARISONS, UNARY
from .sinks import sink_of, text_of

_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_SIZED = (list, tuple, dict, set, frozenset)
_BINARY = {run: symbol for symbol, (_, run, _) in BINARY.items()} | {pow: "**"}
_INPLACE = {run: symbol for symbol, (_, _, run) in BINARY.items()}
_COMPARE = {run: symbol for symbol, (_, run, _) in COMPARISONS.items()}
_UNARY = {run: symbol for symbol, (_, run) in UNARY.items()} | {operator.inv: "~"}


def unbound_of(function: Any, owner: Any) -> Any:
    """What a class of the owner's holds that a bound C method was made of; None if that can't be told."""
    for base in type(owner).__mro__:
        found = base.__dict__.get(function.__name__)
        if issubclass(type(found), _DESCRIPTORS) and found.__get__(owner, type(owner)) == function:
            return found
    return None


class BuiltinFunctions(Methods):
    """Calls functions written in C."""

    _native_limit: int

    def builtin(self, function: Any, args: tuple, kwargs: Any) -> Any:
        """Call a C function or a method of a C class."""
        owner = getattr(function, "__self__", None)
        if owner is None or issubclass(type(owner), types.ModuleType):
            if type(function) in (types.MethodDescriptorType, types.WrapperDescriptorType):
                if not args:
                    return function(*args, **kwargs)
                run = functools.partial(function, args[0])
                return self.method(args[0], function.__name__, function, run, args[1:], kwargs)
            return self._function(function, args, kwargs)
        if issubclass(type(owner), type) and type(function) is Builtin:
            return self._static(owner, function, args, kwargs)
        if type(owner) is frozenset and self.is_known(function) and self.captured(function):
            self.source(owner) or self.is_fresh(owner) or self.pin(owner)  # bound once and for all
        unbound = unbound_of(function, owner)
        return self.method(owner, function.__name__, unbound, function, args, kwargs)

    # ---- functions ----
    def _function(self, function: Any, args: tuple, kwargs: Any) -> Any:
        sink = sink_of(self, function)
        if sink is not None:
            return sink(*args, **kwargs)
        if not kwargs and (number := self.of_numbers(function, args)) is not MISSING:
            return number
        rule = _RULES.get(function)
        if rule is not None and not (kwargs and function not in _WITH_KEYWORDS):
            return rule(self, *args, **kwargs)
        if function in _BINARY and len(args) == 2:
            return self.binary(_BINARY[function], *args)
        if function in _INPLACE and len(args) == 2:
            return self.binary(_INPLACE[function], *args, inplace=True)
        if function in _COMPARE and len(args) == 2:
            return self.compare(_COMPARE[function], *args)
        if function in _UNARY and len(args) == 1:
            return self.unary(_UNARY[function], *args)
        args, kwargs = self.bare(args, kwargs)
        home, name = function.__module__ or "", function.__name__
        if (
            name in policy.LIST_WRITERS
            and home in policy.PURE_MODULES
            and args
            and issubclass(type(args[0]), list)
        ):
            return self._orders(function, args, kwargs)
        if function in policy.PURE_BUILTINS or (
            home in policy.PURE_MODULES and name not in policy.IMPURE_IN_PURE
        ):
            return self._pure(function, args, kwargs)
        if name == "_count_elements" and args and issubclass(type(args[0]), dict):
            return self._count(*args)
        if home.partition(".")[0] == "numpy":
            return self.numpy(function, args, kwargs)
        if home == "_abc":
            return function(*args, **kwargs)
        if function in policy.CLOCKS and not args and not kwargs:
            return self.numbers.clock(
                policy.reason_against(home, name), function(), f"{self.const(function)}()"
            )
        return self.natively(policy.reason_against(home, name), function, args, kwargs)

    def _pure(self, function: Any, args: tuple, kwargs: Any) -> Any:
        asked = _ASKED.get(function)
        if asked is not None and args and not issubclass(type(args[0]), (np.ndarray, np.generic)):
            tensor = issubclass(type(args[0]), Tensor)
            method = self.patched(args[0], asked) if tensor else lookup(type(args[0]), asked)
            if type(method) is Function:
                return self.call(self.special(args[0], asked), args, kwargs)
        return self.in_c(function, args, kwargs)

    def _reduce(self, function: Any, items: Any, *start: Any) -> Any:
        iterator = self.iterator(items, unseen=True)
        try:
            found = start[0] if start else self.next_of(iterator)
        except StopIteration:
            return functools.reduce(function, ())  # raises
        for item in self.each(iterator):
            found = self.call(function, (found, item))
        return found

    def _orders(self, function: Any, args: tuple, kwargs: Any) -> Any:
        """heappush, insort and their kin, which order the list that they are given."""
        held = args[0]
        self.read_all(held)
        self.look_into(*held, *args[1:])
        if kwargs.get("key") is not None:
            self.refuse(f"{function.__name__}() with a key orders a list in C code")
        self.drops_all(held, [*held])
        self.writes_to(held)
        result = function(*args, **kwargs)
        self.effect_on(held, "a list was changed", function, *args[1:], **kwargs)
        return self.result(result)

    def _count(self, counts: dict, items: Any) -> None:
        """What Counter.update does in C."""
        for item in self.unpack(items):
            self.set_item(counts, item, self.binary("+", self.call(counts.get, (item, 0)), 1))

    def numpy(self, function: Any, args: tuple, kwargs: Any) -> Any:
        """Call a function of NumPy's: a function of the arrays and values that it is given."""
        home, name = getattr(function, "__module__", None) or "numpy", getattr(function, "__name__", "")
        args, kwargs = self.bare(args, kwargs)
        self.read_numpys_settings()
        if home.startswith("numpy.random"):
            self.refuse(f"numpy.random.{name}() {policy.DENIED_MODULES['numpy.random']}")
        elif name in policy.NUMPY_DENIED:
            self.refuse(f"numpy.{name}() reads or writes more than it is given; do it outside")
        elif kwargs.get("out") is not None:
            self.refuse(f"numpy.{name}(out=...) changes an array in place: take the result instead")
        elif issubclass(type(function), Builtin) and name == "at":
            self.refuse("a ufunc's at() changes an array in place")
        self.read_deep(*args, *kwargs.values())
        for value in (*args, *kwargs.values()):
            if issubclass(type(value), Tensor):
                self.refuse(f"numpy.{name}() was given a tensor, whose values NumPy then computes with; use "
                            "Lamina's op")  # fmt: skip
            elif callable(value) and not issubclass(type(value), type):
                self.refuse(f"numpy.{name}() was given a function to call")
        return self.result(function(*args, **kwargs))

    def draw(self, name: str, generator: Any, draw: Any, args: tuple) -> Any:
        """A number that a generator of Python's or NumPy's draws, an input of what follows."""
        if not self.refused and not self.is_known(generator) and draws.is_everybodys(generator):
            self.pin(generator)
        known = self.is_known(generator) and draws.is_generator(generator)
        self.same(generator)
        found = draw(generator, *args)
        home, _, of = name.rpartition(".")
        why = policy.reason_against(home, of)
        if not known or not draws.fits(found, args):
            self.refuse(why)
            return found
        asked = self.recorder.asked
        self.recorder.draw(name, generator, draw, args, found)
        return self.numbers.answer(found, asked, why if draws.is_wide(of, args) else None)

    def _static(self, owner: type, function: Any, args: tuple, kwargs: Any) -> Any:
        """A static or class method of a C class, as `dict.fromkeys`."""
        name = function.__name__
        if name == "__new__" and args:
            return self.make_bare(owner, args[0], args[1:], kwargs)
        if name == "__init_subclass__" or name == "__subclasshook__":
            return function(*args, **kwargs)
        if name == "__class_getitem__":  # which keeps what it is given
            return self.result(function(*args, **kwargs))
        if owner.__module__ == "datetime" and name in ("now", "today", "utcnow"):
            return self.natively(f"datetime.{name}() {policy.DENIED_MODULES['time']}", function, args, kwargs)
        plain = owner.__module__ in _PLAIN_HOMES
        if plain and type(lookup(type(owner), "__call__")) is not Function:
            given = [self.watch(self.plain(value), True) for value in args]
            return self.result(function(*given, **{k: self.plain(v) for k, v in kwargs.items()}))
        why = policy.reason_against(owner.__module__, f"{owner.__name__}.{name}")
        return self.natively(why, function, args, kwargs)

    def make_bare(self, base: type, kind: type, args: tuple, kwargs: Any) -> Any:
        """`base.__new__(kind, ...)` of a C class."""
        args, kwargs = self.bare(args, kwargs)
        if base is object:
            return self.fresh.instance(object.__new__(kind))
        if issubclass(base, (dict, set, list, deque, BaseException)):
            return self.fresh.instance(base.__new__(kind, *args, **kwargs))
        if base is tuple and len(args) == 1 and not kwargs:
            return self.filled(functools.partial(tuple.__new__, kind), self.unpack(args[0], lift=True))
        if base in (tuple, frozenset) or base in ATOMS:
            given = [self.watch(self.plain(value), base not in (tuple,)) for value in args]
            return self.new(base.__new__(kind, *given, **kwargs))
        return self.natively(policy.reason_against(base.__module__, f"{base.__name__}.__new__"), base.__new__,
                             (kind, *args), kwargs)  # fmt: skip

    # ---- len, getattr and their kin ----
    def _len(self, o: Any) -> int:
        kind = type(o)
        if kind is LiftedSize:  # how many dimensions there are is no size
            return len(o)
        if kind in ATOMS or issubclass(kind, Tensor) and self.patched(o, "__len__") is None:
            sizes = self.sizes.shape(o) if issubclass(kind, Tensor) else None
            return sizes[0] if sizes else len(o)
        if issubclass(kind, _SIZED) or kind.__name__ == "deque":
            method = lookup(kind, "__len__")
            if type(method) is not Function:
                found = self.read_length(o, lift=not self.is_written(o))
                return found if type(found) in LIFTED else len(o)
        method = self.special(o, "__len__")
        if type(method) is Function:
            return self.call(method, (o,))
        if issubclass(kind, np.ndarray):
            self.read_all(o)
        elif not self.is_fresh(o) and kind is not range:
            self.refuse(f"len() of a {kind.__name__} from outside")
        return len(raw(o))  # which raises for a number

    def _concat(self, function: Callable, a: Any, b: Any) -> Any:
        sequences = (a, b) if issubclass(type(a), Tensor) else (a,)
        if any(lookup(type(o), "__getitem__") is MISSING for o in sequences):
            return function(a, b)  # raises
        return self.binary("+", a, b, inplace=function is operator.iconcat)

    def _length_hint(self, o: Any, *default: Any) -> int:
        self.look_into(*default)
        if default and not issubclass(type(self.index(default[0])), int):
            return operator.length_hint((), *default)  # raises
        if self.special(o, "__len__") is not MISSING:
            return self._len(o)
        why = f"operator.length_hint() asks a {type(o).__name__} from C code"
        return self.natively(why, operator.length_hint, (o, *default), {})

    def _getattr(self, o: Any, name: Any, *default: Any) -> Any:
        if not issubclass(type(name), str):
            return getattr(o, name)  # raises
        if not default:
            return self.attribute(o, name)
        try:
            return self.attribute(o, name, *default)
        except AttributeError:
            return default[0]

    def _hasattr(self, o: Any, name: Any) -> bool:
        if not issubclass(type(name), str):
            return hasattr(o, name)  # raises
        try:
            self.attribute(o, name)
        except AttributeError:
            return False
        return True

    def _id(self, o: Any) -> int:
        if type(o) in ATOMS or self.source(o) is None or not self.captured(o):
            self.refuse("id() of an object that may be another at each call")
        return id(o)

    def _repr(self, o: Any) -> str:
        return self.converted(o, "r") if type(o) in LIFTED else self._text(o, "__repr__", repr)

    def _ascii(self, o: Any) -> str:
        text: Any = self._repr(o)
        escaped = raw(text).encode("ascii", "backslashreplace").decode()
        if type(text) not in LIFTED:
            return escaped
        return self.told(escaped, f"{text.expression}.encode('ascii', 'backslashreplace').decode()")

    def _format(self, o: Any, spec: Any = "") -> str:
        if type(o) in LIFTED:
            return self.formatted(o, None, spec)
        if not issubclass(type(spec), str):
            return self.natively("format() takes a text as how", format, (o, spec), {})
        if (asked := self.patched(o, "__format__")) is not None:
            return self.call(asked, (o, spec))
        method = lookup(type(o), "__format__")
        if type(method) is Function and not issubclass(type(o), Tensor):
            return self.call(self.special(o, "__format__"), (o, spec))
        if method is object.__format__ and not spec:
            return text_of(self, o)
        return self._text(o, "__format__", lambda x: format(x, spec))

    def _text(self, o: Any, name: str, natively: Callable) -> str:
        o = self.plain(o)
        if (asked := self.patched(o, name)) is not None:
            return self.call(asked, (o,))
        if issubclass(type(o), (Tensor, np.generic)) or type(o) in ATOMS:
            return natively(o)
        method = self.special(o, name)
        if type(method) is Function:
            return self.call(method, (o,))
        if method is object.__repr__ or method is object.__format__:
            self.refuse(f"the text of a {type(o).__name__} shows its address")
        self.show(o)
        return natively(o)

    def _iter(self, o: Any, *sentinel: Any) -> Any:
        if sentinel:
            why = "iter() with a sentinel calls a function from C code"
            return self.natively(why, iter, (o, *sentinel), {})
        return self.iterator(o)

    def _next(self, iterator: Any, *default: Any) -> Any:
        try:
            return self.next_of(iterator)
        except StopIteration:
            if default:
                return default[0]
            raise

    def _attributes_of(self, *given: Any) -> Any:
        if not given:
            return self.natively("vars() hands out all locals; name the one that is wanted", vars, (), {})
        try:
            return self.attribute(given[0], "__dict__")
        except AttributeError:
            raise TypeError("vars() argument must have __dict__ attribute") from None

    def _hash(self, o: Any) -> int:
        method = self.special(o, "__hash__") if type(o) not in ATOMS else None
        if type(method) is Function:
            return self.call(method, (o,))
        if not self.by_value(o) and (self.source(o) is None or not self.captured(o)):
            self.refuse(f"hash() of a {type(o).__name__} hangs on an address")
        elif issubclass(type(o), (tuple, frozenset)):
            self.read_all(o, deep=True)
        return hash(o)

    def _import(
        self, name: Any, scope: Any = None, names: Any = None, fromlist: Any = (), level: Any = 0
    ) -> Any:  # fmt: skip
        return self.import_name(name, {} if scope is None else scope, fromlist, level)

    def _any(self, items: Any) -> bool:
        return self._first(items, True)

    def _all(self, items: Any) -> bool:
        return not self._first(items, False)

    def _first(self, items: Any, wanted: bool) -> bool:
        """Whether any of the items is true, or false."""
        for item in self.each(self.iterator(items, unseen=True)):
            if self.truth(item) is wanted:
                return True
        return False

    def _sum(self, items: Any, start: Any = 0) -> Any:
        """`sum`; as long as there are numbers alone, C adds them: it rounds floats otherwise from 3.12 on."""
        if issubclass(type(start), (str, bytes, bytearray)):
            return sum((), start)  # raises
        numbers: list | None = []
        found = start
        if not issubclass(type(start), (int, float, complex)):
            numbers = None
        for item in self.each(self.iterator(items, unseen=True)):
            if numbers is not None and issubclass(type(item), (int, float, complex)):
                numbers.append(item)
                continue
            if numbers is not None:
                found, numbers = (self._summed(numbers, start) if numbers else start), None
            found = self.binary("+", found, item)
        return self._summed(numbers, start) if numbers else found

    def _summed(self, numbers: list, start: Any) -> Any:
        """The sum of numbers alone, some of which may be lifted."""
        given = [start, *numbers]
        total = sum(map(raw, numbers), raw(start))
        if not any(type(x) in LIFTED for x in given) or self.refused:
            return total
        if not all(map(is_number, [*map(raw, given), total])):
            return sum(map(self.plain, numbers), self.plain(start))
        first, *rest = map(spelled, given)
        text = f"{self.const(sum)}(({', '.join(rest)},), {first})"
        made = self.numbers.computed(total, text, closed=False)
        self.sizes.of_function(sum, given, made)
        return made

    def _divmod(self, a: Any, b: Any) -> Any:
        if type(a) in LIFTED or type(b) in LIFTED:
            if type(raw(a)) is type(raw(b)) is int and raw(b):
                return self.filled(tuple, (self.binary("//", a, b), self.binary("%", a, b)))
        return self._pure(divmod, (self.plain(a), self.plain(b)), {})

    def _prod(self, items: Any) -> Any:
        """`math.prod` of ints, some of which are lifted."""
        if type(items) in (list, tuple, Size, LiftedSize) and not self.refused:
            values = self.unpack(items, lift=True)
            if any(type(x) in LIFTED for x in values) and all(type(raw(x)) is int for x in values):
                return functools.reduce(lambda a, b: self.binary("*", a, b), values)
        return self._pure(math.prod, (self.plain(items),), {})

    def _extreme(self, function: Callable, *args: Any, **named: Any) -> Any:
        """`max(items)` or `min(items)` of numbers some of which are lifted; of some items `default=` says
        nothing."""
        if named:
            if (
                [*named] == ["default"]
                and len(args) == 1
                and type(args[0]) in (list, tuple, Size, LiftedSize)
            ):
                if any([type(x) in LIFTED for x in self.unpack(args[0], lift=True)]):
                    return self._extreme(function, *args)
            return self._pure(function, *self.bare(args, named))
        if len(args) == 1 and not self.refused:
            items = args[0] if type(args[0]) is LiftedSize else self.plain(args[0])
            values = self.unpack(items, lift=True)
            if len(values) == 1 and type(values[0]) in LIFTED:
                return values[0]
            if len(values) > 1 and (found := self.of_numbers(function, tuple(values))) is not MISSING:
                return found
            args = (self.new([*map(self.plain, values)]),)
        args = tuple(map(self.plain, args))
        if len(args) > 1:  # which are compared themselves
            self.look_into(*args)
            return self.result(function(*args))
        return self._pure(function, args, {})

    def _thread_id(self) -> int:
        return self.fact(_thread, "asked", "get_ident", "{o}.get_ident()", _thread.get_ident())

    def _recursion_limit(self) -> int:
        limit = self._native_limit or sys.getrecursionlimit()  # interpreting moves it
        return self.fact(sys, "asked", "limit", "{o}.getrecursionlimit()", limit)

    def _process_id(self) -> int:
        import_of = sys.modules["posix" if "posix" in sys.modules else "nt"]
        return self.fact(import_of, "asked", "getpid", "{o}.getpid()", import_of.getpid())

    def _exc_info(self) -> tuple:
        return self.result(sys.exc_info())

    def _exception(self) -> BaseException | None:
        return self.result(sys.exception())

    def _fspath(self, o: Any) -> Any:
        if type(o) in (str, bytes):
            return o
        return self.call(self.special(o, "__fspath__"), (o,))


_R = BuiltinFunctions
_RULES: dict[Any, Callable] = {
    builtins.len: _R._len, builtins.getattr: _R._getattr, builtins.hasattr: _R._hasattr,
    builtins.setattr: lambda self, o, name, value: self.set_attribute(o, name, value),
    builtins.delattr: lambda self, o, name: self.delete_attribute(o, name),
    builtins.isinstance: is_instance, builtins.issubclass: is_subclass,
    builtins.callable: is_callable, builtins.id: _R._id, builtins.repr: _R._repr,
    builtins.ascii: _R._ascii, builtins.format: _R._format, builtins.iter: _R._iter,
    builtins.next: _R._next, builtins.vars: _R._attributes_of, builtins.hash: _R._hash,
    builtins.__import__: _R._import, builtins.any: _R._any, builtins.all: _R._all,
    builtins.sum: _R._sum, builtins.divmod: _R._divmod, math.prod: _R._prod, functools.reduce: _R._reduce,
    builtins.max: lambda self, *args, **named: self._extreme(max, *args, **named),
    builtins.min: lambda self, *args, **named: self._extreme(min, *args, **named),
    operator.getitem: lambda self, o, k: self.item(o, k),
    operator.setitem: lambda self, o, k, v: self.set_item(o, k, v),
    operator.delitem: lambda self, o, k: self.delete_item(o, k),
    operator.contains: lambda self, o, x: self.contains(o, x),
    operator.length_hint: _R._length_hint,
    operator.concat: lambda self, a, b: self._concat(operator.concat, a, b),
    operator.iconcat: lambda self, a, b: self._concat(operator.iconcat, a, b),
    operator.truth: lambda self, o: self.truth(o),
    operator.not_: lambda self, o: not self.truth(o),
    operator.is_: lambda self, a, b: self.identical(a, b),
    operator.is_not: lambda self, a, b: not self.identical(a, b),
    operator.abs: lambda self, a: self.call(abs, (a,)),
    _thread.get_ident: _R._thread_id,
    sys.getrecursionlimit: _R._recursion_limit,
    sys.exc_info: _R._exc_info, sys.exception: _R._exception, os.fspath: _R._fspath,
    _abc._abc_instancecheck: lambda self, kind, o: is_instance(self, o, kind),
    _abc._abc_subclasscheck: lambda self, kind, other: is_subclass(self, other, kind),
}  # fmt: skip
_WITH_KEYWORDS = frozenset((builtins.sum, builtins.max, builtins.min, builtins.__import__))
for _home in ("posix", "nt"):
    if _home in sys.modules:
        _RULES[sys.modules[_home].getpid] = _R._process_id
# Modules whose classes' static and class methods make values of values.
_PLAIN_HOMES = ("builtins", "datetime", "collections", "itertools", "_decimal", "decimal")
# The method of an object that a pure function asks first.
_ASKED: dict[Any, str] = {
    builtins.abs: "__abs__", builtins.round: "__round__", builtins.divmod: "__divmod__",
}  # fmt: skip
