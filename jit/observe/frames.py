"""The frame of an interpreted function: its variables, stack and errors, and how arguments get into it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

from .decode import decode
from .numbers import raw

_LOCALS_ARE_COPIED = sys.version_info >= (3, 13)
# The frame of a generator that ends while it is held: from then on it holds its caller's too, or none.
_GENERATORS_KEEP_THEIR_CALLER = sys.version_info >= (3, 12)
UNBOUND: Any = type("Unbound", (), {"__slots__": (), "__repr__": lambda self: "unbound"})()  # holds no value
NULL: Any = type("Null", (), {"__slots__": (), "__repr__": lambda self: "null"})()  # the empty slot of a call


class Program(NamedTuple):
    """A code object made ready: what runs, and what a frame and a traceback need of it.

    operations: (handler, argument, whether lifted numbers may pass through it).  variables: names of locals,
    cells and free variables, as bytecode numbers them.
    """

    code: CodeType
    operations: list[tuple[Any, Any, bool]]
    offsets: list[int]
    handlers: dict[int, tuple[int, int, bool]]
    variables: tuple[str, ...]
    simple: int  # how many positional arguments a function without others takes; -1: it has others
    generator: bool


# By identity: equal code objects may stand in different files.  Those that were met first are dropped first.
_PROGRAMS: dict[int, tuple[CodeType, Program | None]] = {}
MOST = 4096


def program_of(code: CodeType, operations: dict[str, tuple[Any, bool]]) -> Program | None:
    """The program of a code object, made once; None where it cannot be interpreted.

    operations: the handler of each name that `decode` uses, and whether lifted numbers may pass through it.
    """
    found = _PROGRAMS.get(id(code))
    if found is not None:
        return found[1]
    while len(_PROGRAMS) >= MOST:
        _PROGRAMS.pop([*_PROGRAMS][0], None)
    made = _prepared(code, operations)
    _PROGRAMS[id(code)] = code, made
    return made


def _prepared(code: CodeType, operations: dict[str, tuple[Any, bool]]) -> Program | None:
    decoded = decode(code)
    if decoded is None:
        return None
    ready = [(operations[name][0], argument, operations[name][1]) for name, argument in decoded.operations]
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    others = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return Program(
        code,
        ready,
        decoded.offsets,
        decoded.handlers,
        code.co_varnames + cells + code.co_freevars,
        -1 if others else code.co_argcount,
        bool(code.co_flags & inspect.CO_GENERATOR),
    )


class Variables:
    """The variables of a frame as a traceback holds them, which may keep them beyond the frame's end.

    back: those of its caller, or the caller's native frame, which CPython's frames keep from their end on.
    """

    __slots__ = ("__weakref__", "back", "ended", "values")

    def __init__(self, values: list[Any]):
        self.values, self.ended = values, False
        self.back: Variables | FrameType | None = None

    def __del__(self) -> None:
        if self.ended:
            clear(self.values)


def clear(values: list[Any], each: Callable[[], None] | None = None) -> None:
    """Let go of variables in CPython's order; each: called after each."""
    for at in range(len(values)):
        values[at] = UNBOUND
        if each is not None:
            each()


class Frame:
    """A running function.

    handled: the exceptions whose handlers it is in, innermost last.  again: an error that is raised anew,
    with the context and the traceback that it keeps.  thrown: an error to raise where it was suspended.
    names: the namespace of a class body.  shown: what `locals()` gave.  kept: the variables as tracebacks
    hold them, weakly.  selected: what a mask selects, where it goes at once into an item.
    """

    __slots__ = (
        "again", "at", "back", "builtins", "closure", "depth", "globals", "handled", "kept", "locals",
        "names", "observer", "owned", "program", "selected", "shown", "stack", "thrown", "value",
    )  # fmt: skip

    def __init__(self, observer: Any, program: Program, function: FunctionType, values: list[Any]):
        self.observer, self.program, self.locals = observer, program, values
        whole: Any = function  # not every description of Python's types knows __builtins__
        self.globals, self.builtins = function.__globals__, whole.__builtins__
        self.closure = function.__closure__ or ()
        self.stack: list[Any] = []
        self.handled: list[BaseException] = []
        self.at = self.depth = 0
        self.again: tuple[Any, Any] | None = None
        self.thrown: BaseException | None = None
        self.back: Frame | None = None
        self.names: Any = None
        self.shown: dict[str, Any] | None = None
        self.value: Any = None
        self.selected: Any = None
        self.kept: ref[Variables] | None = None
        self.owned: Variables | None = None

    def taken(self) -> Any:
        """What it returned or yielded, which it holds no longer."""
        value, self.value = self.value, None
        return value

    def variables(self) -> Variables:
        """Its variables, for a traceback to keep."""
        kept = None if self.kept is None else self.kept()
        if kept is None:
            kept = Variables(self.locals)
            self.kept = ref(kept)
        return kept

    def leave(self, caller: Callable[[], Any], each: Callable[[], None] | None = None) -> None:
        """Let go of all, as CPython does where a frame ends: the stack, then the variables in order.

        What a traceback keeps lives on with it.  caller: gives the native frame below the outermost one.
        each: called after each variable.
        """
        self.stack.clear()  # errors on it know frames that know the stack
        self.handled.clear()
        self.selected = None
        kept = None if self.kept is None else self.kept()
        if kept is None:
            clear(self.locals, each)
        else:
            kept.ended, self.locals = True, []
            if _GENERATORS_KEEP_THEIR_CALLER or not self.program.generator:
                kept.back = caller() if self.back is None else self.back.variables()

    def stay(self) -> None:
        """End, and let the variables live on with the native frame that ran this one, which is kept."""
        self.stack.clear()
        self.handled.clear()
        self.selected = None
        self.owned = Variables(self.locals)
        self.owned.ended = True

    def unbound(self, number: int) -> NameError:
        """The error of a variable that holds nothing, in CPython's words."""
        name = self.program.variables[number]
        if name in self.program.code.co_freevars:
            return NameError(
                f"cannot access free variable '{name}' where it is not associated with a value in enclosing "
                "scope",
                name=name,
            )
        return UnboundLocalError(
            f"cannot access local variable '{name}' where it is not associated with a value"
        )

    def bindings(self) -> dict[str, Any]:
        """What `locals()` gives: every variable that holds a value.

        Before Python 3.13 it is the same dictionary each time, and what else was put there stays.
        """
        if self.names is not None:
            return self.names
        bound = self.bound()
        if _LOCALS_ARE_COPIED:
            return bound
        if self.shown is None:
            self.shown = {}
        for name in self.program.variables:
            if name not in bound:
                self.shown.pop(name, None)
        self.shown.update(bound)
        return self.shown

    def bound(self) -> dict[str, Any]:
        """The variables that hold a value, in the order of the bytecode's numbers."""
        enclosed = {*self.program.code.co_cellvars, *self.program.code.co_freevars}
        found = {}
        for name, value in zip(self.program.variables, self.locals, strict=True):
            if name in enclosed and type(value) is CellType:
                value = contents(value)
            if value is not UNBOUND:
                found[name] = raw(value)
        return found


def contents(cell: CellType) -> Any:
    """What a cell holds; UNBOUND where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def bind(
    function: FunctionType, program: Program, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]
) -> Any:
    """The variables of a call, cells not yet made; None where the arguments do not fit the parameters.

    Containers that the call makes, for `*args` and `**kwargs`, come second: (variables, made).
    """
    code = program.code
    count = len(program.variables)
    if program.simple == len(args) and not kwargs:
        return [*args, *[UNBOUND] * (count - len(args))], ()
    positional, only = code.co_argcount, code.co_kwonlyargcount
    defaults, named_defaults = function.__defaults__ or (), function.__kwdefaults__
    values = [*args[:positional], *[UNBOUND] * (count - min(len(args), positional))]
    place, made = positional + only, []
    if code.co_flags & inspect.CO_VARARGS:
        values[place] = tuple(args[positional:])
        made.append(values[place])
        place += 1
    elif len(args) > positional:
        return None
    if kwargs or code.co_flags & inspect.CO_VARKEYWORDS:
        rest = {}
        names = code.co_varnames
        for name, value in kwargs.items():
            try:
                number = names.index(name, code.co_posonlyargcount, positional + only)
            except ValueError:
                rest[name] = value
                continue
            if values[number] is not UNBOUND:
                return None
            values[number] = value
        if code.co_flags & inspect.CO_VARKEYWORDS:
            if not all(isinstance(name, str) for name in rest):
                return None
            values[place] = rest
            made.append(rest)
        elif rest:
            return None
    for number, value in enumerate(defaults, positional - len(defaults)):
        if values[number] is UNBOUND:
            values[number] = value
    for number in range(positional, positional + only):
        if values[number] is UNBOUND and named_defaults:
            values[number] = named_defaults.get(code.co_varnames[number], UNBOUND)
    for number in range(positional + only):
        if values[number] is UNBOUND:
            return None
    return values, made
