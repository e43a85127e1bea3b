"""A whole call: its arguments are taken note of, then the function is interpreted."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from ...nn import Module
from ...runtime.places import Place, locals_of, stand_for
from .calls import Calls
from .interpret import Interpreting
from .kinds import Builtin, Function, Method, lookup


class Interpreter(Interpreting, Calls):
    """Runs a function so that all it reads, writes and calls is noted."""

    def run(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function with every argument taken note of.  A lifted number may come back."""
        names = argument_names(function, len(args))
        self.guards.entry = entry_of(function)
        values = (*args, *kwargs.values())
        slots = [self.guards.slot() for _ in values]  # the first ones
        given = [*map(self.argument, (*names, *kwargs), values, slots)]
        if not self.is_known(function):
            named = issubclass(type(function), (Function, Method, Builtin))
            self.pin(function, function.__name__ if named else type(function).__name__)
        return self.call(function, tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :])))


def argument_names(function: Callable, count: int) -> list[str]:
    """What a reader calls the positional arguments of a call."""
    names: list[str] = []
    if issubclass(type(function), (Function, Method, partial)):
        with contextlib.suppress(TypeError, ValueError):
            given = inspect.signature(function).parameters.values()
            names = [p.name for p in given if p.kind in _POSITIONAL]
    elif (entry := entry_of(function)) is not None:  # an object, whose class answers
        code = entry[0]
        names = [*code.co_varnames[1 : code.co_argcount]]
    return [*names[:count], *(f"args[{i}]" for i in range(len(names), count))]


def entry_of(function: Any) -> Place | None:
    """The first line of what runs when a function, a method or a module is called; None for other code."""
    if issubclass(type(function), Module):
        function = lookup(type(function), "forward")
    elif type(function) not in (Function, Method):
        function = lookup(type(function), "__call__")
    function = function.__func__ if type(function) is Method else function
    return (function.__code__, 0) if type(function) is Function else None


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _stands_for(native: Any) -> Place:
    """The user's place that a frame of the interpreter's loop runs."""
    found = locals_of(native)
    frame = found["frame"]
    at = found.get("at", frame.at)  # no variable yet where a generator goes on in a handler
    return frame.program.code, frame.program.offsets[min(at, len(frame.program.offsets) - 1)]


stand_for(Interpreting._level.__code__, _stands_for)
