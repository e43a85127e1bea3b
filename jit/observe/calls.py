"""The policy for every call: interpreted, run as it is, turned into an effect, or refused with a reason.

Python functions are interpreted, the standard library's too, so that what they read becomes facts: little of
it needs a rule of its own.  Everything ends in C code, for which the tables in policy.py say what is known.
Lamina's own functions run natively (library.py).
"""

from __future__ import annotations

import builtins
import copy
import functools
import importlib.util
import operator
import sys
import types
import weakref
from collections.abc import Callable
from re import Pattern
from typing import Any

import numpy as np

from ...ir.op import as_now
from ...runtime import Tensor, creation
from ...runtime.overriding import relevant
from ...runtime.places import is_internal
from ...runtime.refusal import Edge, refuse, unwrapped
from ..draws import is_numpys
from . import cached
from .copies import copied, deeply_copied, through_c
from .decode import ASYNCHRONOUS
from .handing import handed
from .kinds import ATOMS, MISSING, TRANSPARENT, UNSUPPORTED, Builtin, Function, Method, lookup
from .library import Library
from .numbers import raw
from .policy import AS_IF_C, is_vouched, reason_against
from .signatures import misfits
from .sinks import BAR, bar, sink_of
from .tracebacks import clean, is_own

_C_CALLABLES = (
    Builtin, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)  # fmt: skip
# What dataclasses and reprlib put around a `__repr__`.
_GUARDED_TEXTS = frozenset((
    "_recursive_repr.<locals>.wrapper", "recursive_repr.<locals>.decorating_function.<locals>.wrapper",
))  # fmt: skip
_ORDERED = type(
    functools.cmp_to_key(operator.sub)
)  # what makes sort keys; it calls back when they are compared
_DISPATCHER = type(np.concatenate)  # of NumPy's functions with an array protocol

_NOT_LOOKED_INTO = ("numpy", "re", "json", "copy", "tqdm")  # whose functions are told by which they are


class Calls(Library):
    """Makes calls while a run is recorded.  `interpret.py` supplies `enter`.

    freely: makes those that follow once the recording is refused; it is given a list, which it empties, and
    the names of its last values.
    """

    freely: Callable[[Any, list[Any], tuple[str, ...]], Any] = staticmethod(handed)

    def call(self, function: Any, args: tuple | list = (), kwargs: Any = types.MappingProxyType({})) -> Any:
        """`function(*args, **kwargs)`.  args: a list, for a Python function, is emptied, and kwargs too."""
        if self.refused:
            return self.freely(function, [*map(raw, args), *map(raw, kwargs.values())], tuple(kwargs))
        kind = type(function)
        if kind is Method:
            if self.is_known(function):  # another may stand there next time
                for name in ("__func__", "__self__"):
                    self.fact(function, "attr", name, f"{{o}}.{name}", getattr(function, name))
            elif not self.is_known(function) and not self.is_fresh(function):
                self.source(function.__func__)
            if type(args) is not list or type(function.__func__) is not Function:
                return self.call(function.__func__, (function.__self__, *args), kwargs)
            args.insert(0, function.__self__)
            return self.call(function.__func__, args, kwargs)
        if is_vouched(function):
            return self._vouched(function, args, kwargs)
        if kind is Function:
            inner = unwrapped(function)
            if inner is function or "out" in kwargs:  # of which what `refusing` stands around knows nothing
                return self._python(function, args, kwargs)
            return self._at_the_edge(function.edge, function, inner, args, kwargs)
        if issubclass(kind, type):
            return self.instantiate(function, args, kwargs)
        if kind in _C_CALLABLES or issubclass(kind, Builtin):
            owner = getattr(function, "__self__", None)
            if issubclass(type(owner), np.ufunc):
                return self.numpy(function, args, kwargs)
            if misfits(function, args, kwargs):
                return self.natively(f"{function.__name__}() takes other arguments", function, args, kwargs)
            return self.builtin(function, args, kwargs)
        if kind is np.ufunc or kind is _DISPATCHER:
            self.same(function)
            return self.numpy(function, args, kwargs)
        return self._object(self.plain(function), kind, args, kwargs)

    # ---- functions written in Python ----
    def _at_the_edge(self, edge: Edge, function: Any, inner: Any, given: tuple | list, kwargs: Any) -> Any:
        """Call what `refusing` stands around, with what that does before and after."""
        edge.check([*map(raw, given)], {name: raw(value) for name, value in kwargs.items()})
        first = given[:1]
        if edge.takes_out and edge.lifts([*map(raw, given)]):
            if type(raw(given[0])) in (bool, int, float):
                return self.call(function, (self.call(creation.tensor, tuple(given[:1])), *given[1:]), kwargs)
            why = f"{edge.call} was given a number or an array, of which it makes a tensor"
            return self.natively(why, function, tuple(given), kwargs)
        if (now := as_now(inner, tuple(given), kwargs)) is not None:
            given, kwargs = now
        args, named = [*given], dict(kwargs)
        try:
            made = self._python(inner, given, kwargs)
        except Exception as error:
            faulty = is_own(error.__traceback__) and not misfits(inner, args, named)
            if faulty or relevant([*args, *named.values()]):
                raise
            error.__traceback__ = clean(error.__traceback__)
            refuse(error, edge.call, inner, tuple(map(raw, args)), {k: raw(v) for k, v in named.items()})
        finally:
            del args, named
        found = edge.leave(made, first)
        if found is not made:
            self.refuse(f"{edge.call} was given no tensor")
        return found

    def _python(self, function: types.FunctionType, given: tuple | list, kwargs: Any) -> Any:
        args = tuple(given)
        sink, filename = sink_of(self, function), function.__code__.co_filename
        top = (function.__module__ or "").partition(".")[0]
        if sink is not None or top in _NOT_LOOKED_INTO or is_internal(filename):
            self.same(function)
        if sink is not None:
            return sink(*args, **kwargs)
        if function is through_c:
            why = f"copying a {type(args[1]).__name__} goes through C code; make the copy outside"
            return self.natively(why, args[0], args[1:], {})
        if is_internal(filename):
            return self.library(function, args, kwargs)
        if top == "numpy":
            return self.numpy(function, args, kwargs)
        home = function.__globals__.get("__name__")
        if function.__code__.co_qualname in _GUARDED_TEXTS and home in ("dataclasses", "reprlib"):
            if len(args) != 1 or kwargs:
                return self.natively("__repr__() takes no arguments", function, args, kwargs)
            return self._guarded_text(function, *args)
        if top in ("re", "json", "copy"):
            found = self._as_if_c(function, args, kwargs)
            if found is not MISSING:
                return found
        if top == "tqdm":
            if args and not issubclass(type(args[0]), type) and type(args[0]).__module__.startswith("tqdm"):
                return bar(self, args[0], function.__name__, function, args[1:], kwargs)
            return self.natively(BAR, function, args, kwargs)
        del args
        return self.user(function, given, kwargs)

    def _guarded_text(self, function: types.FunctionType, o: Any) -> str:
        """A `__repr__` that tells by the object's address that it is inside itself, and says ... then."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        if ("told", id(o)) in self.busy:
            return cells["fillvalue"].cell_contents if "fillvalue" in cells else "..."
        self.busy.add(("told", id(o)))
        try:
            return self.call(cells["user_function"].cell_contents, (o,))
        finally:
            self.busy.discard(("told", id(o)))

    def _as_if_c(self, function: types.FunctionType, args: tuple, kwargs: Any) -> Any:
        """Call one of the standard library's that keeps a cache or leads to C code; MISSING: it is none."""
        if function is copy.copy and len(args) == 1:
            return self.enter(copied, args, {})
        if function is copy.deepcopy and len(args) == 1:
            return self.enter(deeply_copied, (args[0], self.new([])), {})
        names = AS_IF_C.get(function.__module__, ())
        values = [*map(self.plain, args), *map(self.plain, kwargs.values())]
        callables = [x for x in values if callable(x) and not issubclass(type(x), Pattern)]
        if function.__qualname__ not in names or (callables and function.__module__ != "re"):
            return MISSING
        if callables:
            return self.in_c(function, args, kwargs)
        for value in values:
            if issubclass(type(value), Pattern):
                self.same(value)
            else:
                self.read_deep(value)
        return self.result(function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :]))))

    def user(self, function: types.FunctionType, args: tuple | list, kwargs: Any) -> Any:
        """Interpret a function, and note what calling it reads of the function itself."""
        code = function.__code__
        self.read_function(function)
        if code.co_flags & ASYNCHRONOUS:
            why = f"{function.__qualname__} is a coroutine, which others run"
            return self.natively(why, function, args, kwargs)
        answer = self.enter(function, args, kwargs)
        if answer is UNSUPPORTED:
            why = f"{function.__qualname__} has code that can't be interpreted"
            return self.natively(why, function, args, kwargs)
        return answer

    def read_function(self, function: types.FunctionType) -> None:
        """Note what calling a function reads of the function itself."""
        code = function.__code__
        if not self.is_fresh(function):
            self.source(function)
            self.fact(function, "attr", "__code__", "{o}.__code__", code)
            for name in ("__defaults__", "__kwdefaults__"):
                given = getattr(function, name)
                self.fact(function, "attr", name, f"{{o}}.{name}", given)
                if given:
                    self.read_all(given)
            self.known.name_cells(function)
            for number, cell in enumerate(function.__closure__ or ()):
                if not self.captured(function):
                    self.fact(function, "closure", number, f"{{o}}.__closure__[{number}]", cell)
                elif not self.is_known(cell) and not self.is_fresh(cell):
                    self.pin(cell)
                elif not self.captured(cell):  # that of a function in a slot too
                    read = f"{self.const(function)}.__closure__[{number}]"
                    self.note(read, cell, True, f"a variable of {function.__qualname__}")
            if not self.captured(function):
                self.fact(function, "attr", "__globals__", "{o}.__globals__", function.__globals__)
            self.name_globals(function.__globals__)

    def _vouched(self, function: Any, args: tuple, kwargs: Any) -> Any:
        """Call what the user vouches for: a function of its arguments."""
        self.source(function)
        self.same(function)
        args, kwargs = self.bare(args, kwargs)
        self.read_deep(*args, *kwargs.values())
        answer = function(*args, **kwargs)
        if not self._plain_data(answer):
            name = getattr(function, "__name__", function)
            self.refuse(f"{name}() is vouched for, but returns a {type(answer).__name__}: only plain values, "
                        "tensors and arrays are kept")  # fmt: skip
        return self.result(answer)

    def _plain_data(self, value: Any) -> bool:
        if type(value) in ATOMS or issubclass(type(value), (Tensor, np.ndarray, np.generic)):
            return True
        if type(value) in (list, tuple, set, frozenset):
            return all(map(self._plain_data, value))
        return type(value) is dict and all(map(self._plain_data, (*value, *value.values())))

    # ---- objects ----
    def _object(self, function: Any, kind: type, args: tuple, kwargs: Any) -> Any:
        if kind in TRANSPARENT:
            return self.call(self.attribute(function, "__wrapped__"), args, kwargs)
        if issubclass(type(function), functools.partial):
            return self._partial(function, args, kwargs)
        if issubclass(type(function), weakref.ref):
            if not self.source(function):
                if not self.is_fresh(function):
                    self.refuse("a weak reference that nothing known leads to")
                return function()
            return self.fact(function, "refers", 0, "{o}()", function())
        if kind is functools._lru_cache_wrapper:
            return cached.call(self, function, args, kwargs)
        if kind in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
            return self._getter(function, kind, args)
        if kind is staticmethod:
            return self.call(function.__func__, args, kwargs)
        if kind is _ORDERED:
            self.same(function)
            return self.result(function(*args, **kwargs))
        if type(lookup(kind, "__call__")) is Function:
            return self.call(self.special(function, "__call__"), (function, *args), kwargs)
        if kind.__module__.partition(".")[0] == "numpy":
            self.same(function)
            return self.numpy(function, args, kwargs)
        if kind is types.GenericAlias:
            self.same(function)
            return self.call(function.__origin__, args, kwargs)
        if not callable(function):
            return function(*args, **kwargs)  # raises
        home = getattr(function, "__module__", None) or kind.__module__
        name = getattr(function, "__name__", kind.__name__)
        if args and not kwargs and is_numpys(args[0]) and vars(type(args[0])).get(name) is function:
            return self.draw(f"numpy.random.{name}", args[0], function, tuple(map(self.plain, args[1:])))
        return self.natively(reason_against(home, name), function, args, kwargs)

    def _partial(self, function: functools.partial, args: tuple, kwargs: Any) -> Any:
        if not self.is_fresh(function):
            self.source(function)
            for name in ("func", "args", "keywords"):
                value = getattr(function, name)
                self.fact(function, "attr", name, f"{{o}}.{name}", value)
                if name != "func":
                    self.read_all(value)
        return self.call(function.func, (*function.args, *args), {**function.keywords, **kwargs})

    def _getter(self, getter: Any, kind: type, args: tuple) -> Any:
        """operator.itemgetter and its kin, which say by `__reduce__` what they get."""
        self.same(getter)
        o = args[0]
        given = getter.__reduce__()[1]
        if kind is operator.methodcaller:
            made = getter.__reduce__()
            named = made[0].keywords if issubclass(type(made[0]), functools.partial) else {}
            name, *rest = (*made[0].args, *given) if issubclass(type(made[0]), functools.partial) else given
            return self.call(self.attribute(o, name), tuple(rest), named)
        if kind is operator.itemgetter:
            found = [self.plain(self.item(o, key)) for key in given]
        else:
            found = [self.plain(functools.reduce(self.attribute, path.split("."), o)) for path in given]
        return found[0] if len(found) == 1 else self.new(tuple(found))

    # ---- imports ----
    def import_name(self, name: str, scope: dict[str, Any], fromlist: Any, level: int) -> Any:
        """`import name`: the module that is loaded under it is a fact."""
        module = builtins.__import__(name, scope, None, fromlist, level)
        if self.refused:
            return module
        whole = name
        if level:
            package = scope.get("__package__") or scope.get("__name__")
            whole = importlib.util.resolve_name("." * level + name, package)
        if self.source(sys.modules) is None:
            self.pin(sys.modules, "sys.modules")
        for each in {whole, whole.partition(".")[0] if not fromlist and not level else whole}:
            if each in sys.modules:
                self.dict_item(sys.modules, each, sys.modules[each])
        return module
