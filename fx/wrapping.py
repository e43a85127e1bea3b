"""Functions that stay whole where they are traced, as those who wrote them asked."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from typing import Any

from ..ir.errors import StateError

NAMES: dict[tuple[int, str], dict[str, Any]] = {}  # (id of a module's names, name): the names
METHODS: list[tuple[type, str]] = []  # of classes
_wrapped: dict[int, Callable] = {}  # by their ids


def is_wrapped(function: Any) -> bool:
    """Whether `wrap` was told of a function."""
    return id(function) in _wrapped


def wrap(fn_or_name: str | Callable) -> Any:
    """Have a function recorded as one step where it is called with proxies.

    fn_or_name: a function, or the name of one in the module that says so.  Also a decorator.  To be called at
    the top of a module: raises NotImplementedError elsewhere, StateError for what is neither.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise StateError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    frame = frame.f_back
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    note_wrapped(frame.f_globals, name, None if isinstance(fn_or_name, str) else fn_or_name)
    return fn_or_name


def note_wrapped(names: dict[str, Any], name: str, function: Any = None) -> None:
    """Note a wrapped function by its place in a module's names."""
    NAMES[id(names), name] = names
    function = function or names.get(name) or getattr(builtins, name, None)
    if function is not None:
        _wrapped[id(function)] = function
