"""A function's twin: the same code, in which the functions that it calls by name may be others.

Nothing of the user's is changed for that.  The twin has globals of its own, which pass every read and write
on to the function's, but where the code reads a name only to call it at once; and cells of its own for such
variables of enclosing functions.  Where the code could tell, there is no twin.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple, Protocol

from ..runtime.places import is_internal, is_pythons
from .observe.frames import UNBOUND, contents
from .observe.policy import is_vouched
from .observe.tracebacks import HIDDEN


class Redirects(Protocol):
    """Says what is called in place of functions."""

    def instead(self, function: FunctionType) -> Callable:
        """What is called in place of a function that a global name stands for."""

    def call(self, function: Any, values: list[Any], names: tuple[str, ...]) -> Any:
        """Call one that a variable of an enclosing function stands for, with what a list holds."""

    def runs(self, function: FunctionType) -> bool:
        """Whether a function has been called so already: a frame more for each call of it may be too many."""


# Code that asks for these looks at frames or at names, and must run in the frame that it has.
_GLOBALS = frozenset(("globals", "locals", "vars", "dir", "eval", "exec", "breakpoint", "inspect"))
_ATTRIBUTES = frozenset((
    "_getframe", "_getframemodulename", "f_back", "f_globals", "f_locals", "set_trace", "warn",
    "warn_explicit",
))  # fmt: skip
_CHANGES = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_BUILD_CLASS"))
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# What the interpreter, and `warnings`, read of a frame's globals past all methods.
_READ_NATIVELY = ("__builtins__", "__name__", "__package__", "__spec__", "__loader__", "__file__", "__path__")
_NULL_FOLLOWS = sys.version_info >= (3, 13)  # what is called, in CPython's order of the stack
_ALWAYS_NAMED = sys.version_info >= (3, 14)  # CALL_FUNCTION_EX takes a dictionary, or a null for it


class _Known(NamedTuple):
    """What a code object shows.  tells: of where it runs.  called: names that it reads only to call them."""

    code: CodeType
    tells: bool
    called: frozenset[str]


# By identity, as equal code may stand in different files.
_KNOWN: dict[int, _Known] = {}
_MOST = 4096


def can_be_answered(function: Any) -> bool:
    """Whether calls of a function of the user's may go by way of another frame."""
    if type(function) is not FunctionType:
        return False
    code = function.__code__
    if code.co_flags & _SUSPENDED or is_internal(code.co_filename) or is_pythons(code.co_filename):
        return False
    return not is_vouched(function) and not _known(code).tells


def twin(function: Any, redirects: Redirects) -> Any:
    """What to call in place of a function; itself where nothing that it calls by name can be redirected."""
    if type(function) is not FunctionType or function.__code__.co_flags & _SUSPENDED:
        return function
    real, code = function.__globals__, function.__code__
    called = _known(code).called
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    found = {n: contents(cells[n]) if n in cells else real.get(n) for n in called}
    answered = {n for n, f in found.items() if can_be_answered(f) and not (n in cells and redirects.runs(f))}
    if not answered or type(real) is not dict:
        return function
    scope = _Scope(function, called, redirects)
    closure = tuple([_redirected(cell, redirects) if n in answered else cell for n, cell in cells.items()])
    made = FunctionType(code, scope, function.__name__, function.__defaults__, closure or None)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def lookups(twin: FunctionType) -> int:
    """How many globals a twin has looked up so far."""
    scope: Any = twin.__globals__
    return scope.lookups


def _redirected(cell: CellType, redirects: Redirects) -> CellType:
    """A cell with what calls the function that the variable holds by then."""

    def redirected(*args: Any, **kwargs: Any) -> Any:
        values, names = [*args, *kwargs.values()], tuple(kwargs)
        del args, kwargs
        return redirects.call(cell.cell_contents, values, names)

    return CellType(in_the_name_of(cell.cell_contents, redirected))


def in_the_name_of(function: Any, redirected: Callable) -> Callable:
    """What is called in place of a function, by its name in Python's own errors."""
    redirected.__module__ = getattr(function, "__module__", None) or redirected.__module__
    redirected.__qualname__ = getattr(function, "__qualname__", redirected.__qualname__)
    return redirected


class _Scope(dict):
    """The globals of a function with some that it calls redirected: all is found as it stands by then."""

    __slots__ = ("_builtins", "_called", "_real", "_redirects", "lookups")

    def __init__(self, function: Any, called: frozenset[str], redirects: Redirects):
        real = function.__globals__
        super().__init__({name: real[name] for name in _READ_NATIVELY if name in real})
        dict.__setitem__(self, "__builtins__", function.__builtins__)
        # As a warning makes it; else each call would have one of its own, and warn again of the same.
        dict.__setitem__(self, "__warningregistry__", real.setdefault("__warningregistry__", {}))
        self._real, self._builtins = real, function.__builtins__
        self._called, self._redirects = called, redirects
        self.lookups = 0

    def __missing__(self, name: str) -> Any:
        self.lookups += 1
        found = self._real.get(name, UNBOUND)
        if found is UNBOUND:
            return self._builtins[name]
        if type(found) is FunctionType and name in self._called and can_be_answered(found):
            return self._redirects.instead(found)
        return found


def _passed_on(name: str) -> Callable:
    def method(self: _Scope, *args: Any) -> Any:
        return getattr(self._real, name)(*args)

    return method


for _name in ("get", "keys", "values", "items", "setdefault", "pop", "popitem", "update", "clear", "copy",
              "__contains__", "__iter__", "__len__", "__setitem__", "__delitem__", "__repr__"):  # fmt: skip
    setattr(_Scope, _name, _passed_on(_name))


# ---- what code only calls ----------------------------------------------------------------------------------
def _known(code: CodeType) -> _Known:
    known = _KNOWN.get(id(code))
    if known is None:
        while len(_KNOWN) >= _MOST:
            _KNOWN.pop([*_KNOWN][0], None)
        tells = any(map(_tells, _all_of(code)))
        known = _KNOWN[id(code)] = _Known(code, tells, frozenset() if tells else _only_called(code))
    return known


def _all_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _all_of(constant)


def _tells(code: CodeType) -> bool:
    """Whether code may look at frames or at names."""
    steps = dis.get_instructions(code)
    return any(step.argval in (_GLOBALS if "GLOBAL" in step.opname else _ATTRIBUTES) for step in steps
               if type(step.argval) is str)  # fmt: skip


def _only_called(code: CodeType) -> frozenset[str]:
    """The names that code reads only to call what they stand for; none where it would show whose they are."""
    called: set[str] = set()
    read: set[str] = set(code.co_cellvars)
    for each in _all_of(code):
        if each is not code and each.co_name not in _COMPREHENSIONS:
            return frozenset()  # a function that it makes has them too
        steps = [*dis.get_instructions(each)]
        for at, step in enumerate(steps):
            if step.opname in _CHANGES:
                return frozenset()
            if step.opname == "LOAD_GLOBAL":
                (called if (step.arg or 0) & 1 and _is_called(steps[at + 1 :]) else read).add(step.argval)
            elif type(step.argval) is str and step.argval in each.co_freevars:
                null = at + 1 if _NULL_FOLLOWS else at - 1
                direct = step.opname == "LOAD_DEREF" and each is code and steps[null].opname == "PUSH_NULL"
                rest = steps[at + 1 + _NULL_FOLLOWS :]
                (called if direct and _is_called(rest) else read).add(step.argval)
    return frozenset(called - read)


def _is_called(steps: list[dis.Instruction]) -> bool:
    """Whether the value that was loaded before is called in straight code, and touched by nothing else."""
    above = 0  # values that lie on it
    for step in steps:
        if above and above == _given(step) or step.opname in ("PRECALL", "CALL") and above == step.arg == 0:
            return True
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False
        above += dis.stack_effect(step.opcode, step.arg, jump=False)
        if above <= 0:  # an operator, an attribute or an item of it
            return False
    return False


def _given(step: dis.Instruction) -> int | None:
    """How many values a call takes besides what it calls; None for other instructions."""
    count = step.arg or 0
    match step.opname:
        case "PRECALL" | "CALL":
            return count
        case "CALL_KW":
            return count + 1  # their names
        case "CALL_FUNCTION_EX":
            return 2 if _ALWAYS_NAMED else 1 + (count & 1)
    return None


HIDDEN.add(__file__)
