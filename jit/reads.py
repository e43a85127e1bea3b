"""What Python a function reads: found by looking through its code, before it runs.

From the function's globals, closure, defaults and arguments everything is followed that its code, or code it
names, can reach by name: modules and their attributes, user objects, containers, other functions.  What is
found becomes facts (facts.py), and tensors whose values a call reads live.

This sees names, not what a run really read: an attribute is followed where any code looked through names one
like it.  What can't be followed is refused: a program then runs eagerly, with the reason.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain
from typing import Any

import numpy as np

from ..data import DataLoader
from ..nn import Module
from ..nn.members import fields
from ..optim.lr_scheduler import LRScheduler
from ..optim.optimizer import Optimizer
from ..runtime import Generator, Tensor
from ..runtime.places import is_internal
from .facts import IMMUTABLE, PLAIN, Fact, absent

# What is no function of its arguments: it differs from call to call, or does something besides returning.
DENIED_MODULES = frozenset((
    "asyncio", "concurrent", "ctypes", "datetime", "glob", "io", "logging", "multiprocessing", "os",
    "pathlib", "pickle", "queue", "random", "secrets", "select", "shelve", "shutil", "signal", "socket",
    "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "warnings",
))  # fmt: skip
DENIED_BUILTINS = frozenset((
    "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "globals", "id", "input", "locals",
    "open", "print", "setattr", "vars",
))  # fmt: skip
# Modules whose functions compute and do nothing else, so that their code need not be looked through.
PURE_MODULES = frozenset((
    "abc", "builtins", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "itertools",
    "lamina", "math", "ml_dtypes", "numbers", "numpy", "operator", "reprlib", "string", "types", "typing",
))  # fmt: skip
DENIED_IN = {
    "numpy": frozenset(
        ("random", "save", "savez", "savetxt", "load", "loadtxt", "fromfile", "memmap", "seterr")
    ),
}
LARGEST = 4096  # plain values in a container, bytes of an array: more is not compared at each call
MOST_CODE = 400  # functions looked through


TRANSPARENT: set[type] = set()  # classes whose objects stand for the function they wrap


class Refusal(Exception):
    """Why a function can't be recorded, as one sentence."""


class Reads:
    """The facts, tensors, modules and optimizers that a function reaches.

    facts: in the order found.  tensors: by id, with how they are reached.  modules: those whose attributes
    the epoch of `nn` watches.  Raises Refusal.
    """

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.tensors: dict[int, tuple[Tensor, str]] = {}
        self.modules: dict[int, Module] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.names: set[str] = set()  # of attributes, in all code looked through
        self._codes: dict[types.CodeType, None] = {}
        self._done: set[tuple] = set()
        self._open: list[tuple[Any, str, str]] = []  # objects whose attributes are looked up by name
        self._kept: list[Any] = []  # what ids stand for stays alive
        self._weak: set[int] = set()

    # ---- from the outside ----
    def function(self, function: Callable, arguments: Iterable[tuple[str, Any]]) -> None:
        """Follow a function and the objects it is given."""
        for path, value in arguments:
            if not isinstance(value, (*PLAIN, *IMMUTABLE, Tensor)):
                self._weak.add(id(value))
                self.follow(value, path, "")
        self.follow(function, getattr(function, "__name__", "the function"), "")
        before = None
        while before != (found := (len(self.names), len(self._open))):  # new code names more attributes
            before = found
            for item in tuple(self._open):
                self._attributes(*item)

    # ---- values ----
    def follow(self, value: Any, path: str, place: str) -> None:
        """Note what `value` is made of.  Its identity is the caller's business."""
        if value is absent or isinstance(value, (*PLAIN, *IMMUTABLE, Enum)) or type(value) in _INERT:
            return
        if isinstance(value, Tensor):
            if type(value).__module__.partition(".")[0] != "lamina":
                raise Refusal(f"{path} is of a class of the user's own that derives from Tensor")
            self.tensors.setdefault(id(value), (value, path))
            return
        if ("followed", id(value)) in self._done:
            return
        self._done.add(("followed", id(value)))
        self._kept.append(value)
        self._of_kind(value, path, place)

    def _of_kind(self, value: Any, path: str, place: str) -> None:
        if isinstance(value, Module):
            self._module(value, path)
        elif isinstance(value, Optimizer):
            self._optimizer(value, path)
        elif isinstance(value, DataLoader):
            raise Refusal(f"{path} is a DataLoader, which hands out other batches each time; loop over it "
                          "outside of the traced function")  # fmt: skip
        elif isinstance(value, LRScheduler):
            raise Refusal(f"{path} is a schedule, whose step is an effect in Python{_at(place)}; "
                          "step it outside of the traced function")  # fmt: skip
        elif type(value) in TRANSPARENT:
            self.follow(value.__wrapped__, path, place)
        elif isinstance(value, types.ModuleType):
            self._python_module(value, path, place)
        elif isinstance(value, types.FunctionType):
            self._function(value, path)
        elif isinstance(value, types.MethodType):
            self.follow(value.__self__, f"the object of {path}", place)
            self.follow(value.__func__, path, place)
        elif isinstance(value, functools.partial):
            self.follow((value.func, value.args, value.keywords), path, place)
        elif isinstance(value, type):
            self._class(value, path, place)
        elif isinstance(value, (tuple, list, dict, set, frozenset, deque)):
            self._container(value, path, place)
        elif isinstance(value, np.ndarray):
            self._array(value, path, place)
        elif isinstance(value, (Generator, np.generic, np.dtype)):
            return
        elif type(value) is weakref.ref:
            self._slot(f"what {path} refers to", "$o()", value(), place, o=value)
        elif isinstance(value, (types.BuiltinFunctionType, np.ufunc, *_DESCRIPTORS)):
            self._builtin(value, path, place)
        elif isinstance(value, (property, staticmethod, classmethod, functools.cached_property)):
            for part in ("fget", "__func__", "func"):
                self.follow(getattr(value, part, None), path, place)
        elif getattr(type(value), "__dictoffset__", 0) or hasattr(type(value), "__slots__"):
            self._object(value, path, place)
        else:
            raise Refusal(f"{path} is a {type(value).__name__}, whose changes can't be seen{_at(place)}")

    def _fact(self, text: str, read: str, seen: Any, test: str, place: str, **names: Any) -> None:
        key = (read, *map(id, names.values()))
        if key not in self._done:
            self._done.add(key)
            self._kept.append(names)
            self.facts.append(Fact(text, read, test, seen, names, place))

    def _slot(self, text: str, read: str, value: Any, place: str, **names: Any) -> None:
        """A place in the heap: what it holds is a fact, and is followed."""
        plain = isinstance(value, (*PLAIN, *IMMUTABLE))
        self._fact(text, read, value, "value" if plain else "is", place, **names)
        self.follow(value, text, place)

    def _hold(self, value: Any) -> tuple[str, Any]:
        """How facts name an object: objects among the arguments are held weakly, as a method's own is."""
        if id(value) in self._weak:
            try:
                return "$o()", weakref.ref(value)
            except TypeError:
                pass
        return "$o", value

    # ---- kinds ----
    def _function(self, function: types.FunctionType, path: str) -> None:
        code = function.__code__
        home = _top(function.__globals__.get("__name__"))
        if is_internal(code.co_filename) or (home in PURE_MODULES and home != "lamina"):
            self.follow(getattr(function, "__wrapped__", None), path, "")  # a user's, under no_grad() say
            return
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            seen = getattr(function, name)
            self._fact(f"{path}.{name}", f"$f.{name}", seen, "is", "", f=function)
            if name != "__code__":
                self.follow(seen, f"{path}.{name}", "")
        if code.co_flags & _SUSPENDS:
            raise Refusal(f"{path} is a generator or a coroutine, which stops in the middle")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                value = absent
            self._slot(name, "$c.cell_contents", value, _place(code, None), c=cell)
        self._code(code, function.__globals__, set(code.co_freevars))

    def _code(self, code: types.CodeType, scope: dict[str, Any], outer: set[str]) -> None:
        if code in self._codes:
            return
        self._codes[code] = None
        if len(self._codes) > MOST_CODE:
            raise Refusal(f"it names more than {MOST_CODE} functions, too many to look through")
        before: Any = None  # what the instruction before loaded, where that is a global
        for step in dis.get_instructions(code):
            name, what, owner, before = step.opname, step.argval, before, None
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                self._global(what, scope, _place(code, step))
                before = scope.get(what)
            elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                raise Refusal(f"the global {what} is assigned ({_place(code, step)})")
            elif name in ("STORE_DEREF", "DELETE_DEREF") and what in outer:
                raise Refusal(f"{what}, of an enclosing function, is assigned ({_place(code, step)})")
            elif name == "IMPORT_NAME":
                found = sys.modules.get(what)
                if found is not None:
                    self.follow(found, what, _place(code, step))
            elif "ATTR" in name or name in ("LOAD_METHOD", "IMPORT_FROM"):
                self.names.add("*" if what in _ANY_NAME else what)
                if isinstance(owner, types.ModuleType) and what in DENIED_IN.get(owner.__name__, ()):
                    raise Refusal(f"{owner.__name__}.{what} is used, whose results differ from call to call "
                                  f"({_place(code, step)})")  # fmt: skip
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, scope, outer & set(constant.co_freevars))

    def _global(self, name: str, scope: dict[str, Any], place: str) -> None:
        if name in scope:
            self._slot(f"the global {name}", f"$g.get({name!r}, absent)", scope[name], place, g=scope)
            return
        self._fact(f"the global {name}", f"$g.get({name!r}, absent)", absent, "is", place, g=scope)
        found = getattr(builtins, name, absent)
        if name in DENIED_BUILTINS:
            raise Refusal(
                f"{name}() does more than to return a value, or returns another each time ({place})"
            )
        if name in ("getattr", "hasattr", "dir"):
            self.names.add("*")
        self.follow(found, name, place)

    def _python_module(self, module: types.ModuleType, path: str, place: str) -> None:
        top = _top(module.__name__)
        if top in DENIED_MODULES or module.__name__ == "numpy.random":
            raise Refusal(f"the module {module.__name__} is used, whose results differ from call to call or "
                          f"which does more than to return them{_at(place)}")  # fmt: skip
        if top not in PURE_MODULES or not _trusted(module):
            self._open.append((module, module.__name__, place))

    def _attributes(self, value: Any, path: str, place: str) -> None:
        """Follow the attributes of an object that the code looked through names."""
        own = value.__dict__
        wanted = own.keys() if "*" in self.names and not isinstance(value, (type, types.ModuleType)) else ()
        held, pinned = self._hold(value)
        reach = f"{held}.__dict__.get"
        for name in sorted({*wanted, *self.names} - {"*"}):
            if (id(value), name) in self._done:
                continue
            self._done.add((id(value), name))
            found = own.get(name, absent)
            if found is absent and isinstance(value, (type, types.ModuleType)):
                continue
            if name.startswith("__") and isinstance(value, type):
                continue
            self._slot(f"{path}.{name}", f"{reach}({name!r}, absent)", found, place, o=pinned)

    def _module(self, module: Module, path: str) -> None:
        for name, each in module.named_modules(prefix=path):
            if id(each) in self.modules:
                continue
            self.modules[id(each)] = each
            self._done.add(("followed", id(each)))
            self._kept.append(each)
            for tensor_name, tensor in chain(each._parameters.items(), each._buffers.items()):
                if tensor is not None:
                    self.tensors.setdefault(id(tensor), (tensor, f"{name}.{tensor_name}"))
            for hook in (*each._call_hooks.values(),):
                self.follow(hook.function, f"a hook of {name}", "")
            for attribute, value in tuple(fields(each).items()):
                if attribute not in _OWN and not isinstance(value, (Module, Tensor)):
                    self.follow(value, f"{name}.{attribute}", "")
            self._class(type(each), type(each).__name__, "", instance=True)

    def _class(self, kind: type, path: str, place: str, instance: bool = False) -> None:
        if kind.__name__ in _ANY_NAME:
            self.names.add("*")
        for base in chain(kind.__mro__, type(kind).__mro__):
            if (
                base.__module__ in ("builtins", "abc")
                or _top(base.__module__) in PURE_MODULES
                and not _user(base)
            ):
                continue
            if ("class", id(base)) in self._done:
                continue
            self._done.add(("class", id(base)))
            self._kept.append(base)
            self._open.append((base, base.__qualname__, place))
            if "__getattribute__" in vars(base):
                raise Refusal(f"{base.__qualname__} has a __getattribute__, behind which nothing is seen")
            for name, value in tuple(vars(base).items()):
                called = name in ("forward", "__call__", "__getattr__", "__new__")
                if called or (name.startswith("__") and isinstance(value, types.FunctionType) and
                              (name != "__init__" or not instance)):  # fmt: skip
                    read = f"$o.__dict__.get({name!r}, absent)"
                    self._slot(f"{base.__qualname__}.{name}", read, value, place, o=base)

    def _object(self, value: Any, path: str, place: str) -> None:
        kind = type(value)
        if _top(kind.__module__) in DENIED_MODULES:
            raise Refusal(f"{path} is a {kind.__module__}.{kind.__name__}, which does more than to compute"
                          f"{_at(place)}")  # fmt: skip
        if not hasattr(value, "__dict__"):
            if hasattr(kind, "__slots__") and _user(kind):
                raise Refusal(f"{path} is a {kind.__name__}, whose slots can't be followed{_at(place)}")
            if isinstance(kind, type) and _top(kind.__module__) in PURE_MODULES:
                return
            raise Refusal(f"{path} is a {kind.__name__}, whose changes can't be seen{_at(place)}")
        held, pinned = self._hold(value)
        self._fact(f"the class of {path}", f"{held}.__class__", kind, "is", place, o=pinned)
        self._class(kind, kind.__name__, place, instance=True)
        if not _user(kind):
            self.names_of(value, path, place)
        self._open.append((value, path, place))

    def names_of(self, value: Any, path: str, place: str) -> None:
        """Every attribute of an object whose class is not the user's, as its code was not looked through."""
        held, pinned = self._hold(value)
        for name, found in tuple(vars(value).items()):
            self._slot(f"{path}.{name}", f"{held}.__dict__.get({name!r}, absent)", found, place, o=pinned)

    def _container(self, value: Any, path: str, place: str) -> None:
        if type(value) not in (tuple, list, dict, set, frozenset, OrderedDict, defaultdict, deque) and not (
            isinstance(value, tuple)
        ):
            if isinstance(value, dict) and _top(type(value).__module__) == "lamina":
                value = dict(value)
            else:
                self._object(value, path, place)
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        if len(items) > LARGEST:
            raise Refusal(f"{path} holds {len(items)} items, too many to compare at each call{_at(place)}")
        if not isinstance(value, (tuple, frozenset)):
            self._fact(f"what {path} holds", "$v", _snapshot(value), "value", place, v=value)
        for number, item in enumerate(items):
            self.follow(item, f"{path}[{number}]", place)

    def _array(self, value: np.ndarray, path: str, place: str) -> None:
        if value.nbytes > LARGEST or value.dtype.hasobject:
            raise Refusal(
                f"{path} is a NumPy array of {value.nbytes} bytes, too large to be compared at each call"
                f"{_at(place)}; make it a tensor"
            )
        seen = (value.dtype.str, value.shape, value.tobytes())
        self._fact(path, "($v.dtype.str, $v.shape, $v.tobytes())", seen, "value", place, v=value)

    def _builtin(self, value: Any, path: str, place: str) -> None:
        home = _top(getattr(value, "__module__", None) or "builtins")
        owner = getattr(value, "__self__", None)
        if home in DENIED_MODULES or (home not in PURE_MODULES and not isinstance(owner, types.ModuleType)):
            raise Refusal(f"{path} is code that can't be looked through{_at(place)}")
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self.follow(owner, f"the object of {path}", place)

    def _optimizer(self, optimizer: Optimizer, path: str) -> None:
        self.optimizers[id(optimizer)] = optimizer
        if _user(type(optimizer)):
            self._class(type(optimizer), type(optimizer).__name__, "", instance=True)
        for hook in (*optimizer._before, *optimizer._after):
            self.follow(hook, f"a hook of {path}", "")
        for number, group in enumerate(optimizer.param_groups):
            for name, value in group.items():
                where = f"{path}.param_groups[{number}][{name!r}]"
                for each in value if name == "params" else (value,):
                    if isinstance(each, Tensor):
                        self.tensors.setdefault(id(each), (each, where))
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    self.tensors.setdefault(id(value), (value, f"{path}.state[...][{name!r}]"))


_ANY_NAME = ("__dict__", "attrgetter", "methodcaller")  # what reaches attributes by a text
_OWN = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_call_hooks", "_state_hooks")
_SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200  # CO_GENERATOR, COROUTINE, ITERABLE_COROUTINE, ASYNC_GENERATOR
_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_FIELD = type(vars(namedtuple("_Field", "field"))["field"])  # of a named tuple
_INERT = {
    object,
    _FIELD,
    types.NotImplementedType,
    types.GenericAlias,
    types.UnionType,
    types.MappingProxyType,
}


def _snapshot(value: Any) -> Any:
    """A copy of a container, of the same class, to compare it with later."""
    if isinstance(value, defaultdict):
        made: Any = defaultdict(value.default_factory)
        made.update(value)
        return made
    return type(value)(value)


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _user(kind: type) -> bool:
    """Whether a class is a user's: Lamina's tests, demos and examples are."""
    top, file = _top(kind.__module__), getattr(sys.modules.get(kind.__module__), "__file__", None)
    return top not in PURE_MODULES or bool(top == "lamina" and file and not is_internal(file))


def _trusted(module: types.ModuleType) -> bool:
    """Whether a module is the one that its name says, and not a user's own of that name."""
    file = getattr(module, "__file__", None)
    return file is None or is_internal(file) or _top(module.__name__) != "lamina"


def _place(code: types.CodeType, step: dis.Instruction | None) -> str:
    line = code.co_firstlineno
    if step is not None and step.positions is not None and step.positions.lineno is not None:
        line = step.positions.lineno
    return f"{os.path.basename(code.co_filename)}:{line}"


def _at(place: str) -> str:
    return f" ({place})" if place else ""
