"""Which modules and optimizers a function names: in its variables, in what it is given, in what it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from ..nn import Module
from ..optim.optimizer import Optimizer
from ..runtime.places import is_internal

DEEPEST = 4  # containers and objects within one another that are looked into


def reached(function: Callable, given: Mapping[str, Any]) -> tuple[dict[str, Module], list[Optimizer]]:
    """The modules, by the names of what holds them, and the optimizers, each once; a module's own name is ''.

    given: what it is called with, by name.
    """
    modules: dict[str, Module] = {}
    optimizers: list[Optimizer] = []
    met: set[int] = set()

    def look(name: str, o: Any, depth: int) -> None:
        if depth > DEEPEST or id(o) in met:
            return
        if isinstance(o, Module):
            met.add(id(o))
            modules[name] = o
        elif isinstance(o, Optimizer):
            met.add(id(o))
            optimizers.append(o)
        elif isinstance(o, MethodType):
            look("self", o.__self__, depth)
            look(name, o.__func__, depth)
        elif isinstance(o, FunctionType):
            met.add(id(o))
            if not is_internal(o.__code__.co_filename):
                for inner, value in _named(o):
                    look(inner, value, depth)
        elif isinstance(o, (list, tuple, dict)):
            met.add(id(o))
            pairs = o.items() if isinstance(o, dict) else enumerate(o)
            for key, value in pairs:
                look(f"{name}.{key}", value, depth + 1)
        elif hasattr(o, "__dict__") and not isinstance(o, type) and _is_users(type(o)):
            met.add(id(o))
            for key, value in vars(o).items():
                look(f"{name}.{key}", value, depth + 1)

    look("", function, 0)
    for name, value in given.items():
        look(name, value, 0)
    return modules, optimizers


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's variables hold, by name: those of functions around it, globals, defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing was assigned yet
            continue
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(reversed(arguments), reversed(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_users(kind: type) -> bool:
    """Whether a class is written in Python outside of this package and the standard library's C code."""
    method = next((m for m in vars(kind).values() if isinstance(m, FunctionType)), None)
    return method is not None and not is_internal(method.__code__.co_filename)
