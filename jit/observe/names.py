"""The names that Lamina's own Python looks up: whoever replaces one of them changes what Lamina's code does.

Library code runs natively, where nobody sees what it reads.  So the names of functions and classes that code
of `nn` looks up, in its module or as attributes of modules, are found by going through its bytecode once.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from functools import cache
from typing import Any

from ...ir.dtypes import home_of
from ...runtime.places import PACKAGE, is_internal
from ...runtime.refusal import unwrapped
from .frames import contents
from .kinds import Function, lookup

_FOLLOWED = ("nn/", "optim/")
_LOOKS_UP = ("LOAD_GLOBAL", "LOAD_NAME")
_READS = ("LOAD_ATTR", "LOAD_METHOD")


def room_of(filename: str) -> str:
    """A file of the package by its path in it: `nn/linear.py`."""
    return filename[len(PACKAGE) :].replace("\\", "/") if filename.startswith(PACKAGE) else ""


@cache
def looked_up(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The global names in a code object and those inside it, each with the attributes read of it."""
    found: dict[str, dict[str, None]] = {}
    before = None
    for step in dis.get_instructions(code):
        if step.opname in _LOOKS_UP:
            before = step.argval
            found.setdefault(before, {})
            continue
        if step.opname in _READS and before is not None:
            found[before][step.argval] = None
        if step.opname not in ("CACHE", "PUSH_NULL", "NOP"):
            before = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for name, attributes in looked_up(constant):
                found.setdefault(name, {}).update(dict.fromkeys(attributes))
    return tuple([(name, tuple(attributes)) for name, attributes in found.items()])


@cache
def library_names(code: types.CodeType, home: str) -> tuple[tuple[types.ModuleType, str], ...]:
    """(module, name): what code of Lamina's module `home` and the code of `nn` below it looks up.

    Only functions, classes and modules count: other globals of the library are constants of it.
    """
    found: dict[tuple[str, str], tuple[types.ModuleType, str]] = {}
    seen: set[types.CodeType] = set()

    def note(module: types.ModuleType, name: str) -> Any:
        value = vars(module).get(name)
        if issubclass(type(value), (Function, type, types.ModuleType)):
            found[module.__name__, name] = module, name
            if type(value) is Function:
                inner = unwrapped(value)
                follow(inner.__code__, sys.modules.get(inner.__module__))
        return value

    def follow(code: types.CodeType, module: types.ModuleType | None) -> None:
        if code in seen or module is None or not is_internal(code.co_filename):
            return
        seen.add(code)
        if not room_of(code.co_filename).startswith(_FOLLOWED):
            return
        for name, attributes in looked_up(code):
            value = note(module, name)
            if issubclass(type(value), types.ModuleType) and value.__name__.startswith("lamina"):
                for attribute in attributes:
                    note(value, attribute)

    follow(code, sys.modules.get(home))
    return tuple(found.values())


def _called(value: Any) -> Any:
    """What a method or a partial call runs."""
    while issubclass(type(value), (functools.partial, types.MethodType)):
        value = value.func if issubclass(type(value), functools.partial) else value.__func__
    return value


def runs_user_code(value: Any) -> bool:
    """Whether a value is a callable of the user's."""
    value = _called(value)
    if type(value) is Function:
        return not is_librarys(value)
    if issubclass(type(value), type) or library_class(type(value)):
        return False
    return type(lookup(type(value), "__call__")) is Function


def wraps_user(function: types.FunctionType) -> bool:
    """Whether a function of the library's stands around one of the user's, as under `@no_grad()`."""
    seen, waiting = {function}, [function]  # closures may hold themselves
    while waiting:
        for cell in waiting.pop().__closure__ or ():
            value = _called(contents(cell))
            if type(value) is Function and is_internal(value.__code__.co_filename):
                waiting += {value} - seen
                seen.add(value)
            elif runs_user_code(value):
                return True
    return False


def is_librarys(value: Any) -> bool:
    """Whether what a name stands for is no code of a user's."""
    if type(value) is Function:
        if is_internal(value.__code__.co_filename):
            return not wraps_user(value)
        top = (value.__module__ or "").partition(".")[0]
        return top in sys.stdlib_module_names or top == "numpy"
    if issubclass(type(value), type):
        return library_class(value) or value.__module__.partition(".")[0] in sys.stdlib_module_names
    return issubclass(type(value), (types.ModuleType, types.BuiltinFunctionType))


@cache
def _module_is_internal(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or is_internal(file)


def library_class(kind: type) -> bool:
    """Whether a class is one of Lamina's own: its tests and examples are users."""
    home = home_of(kind)
    return issubclass(type(home), str) and home.partition(".")[0] == "lamina" and _module_is_internal(home)
