"""Runs functions as instrumented copies of their syntax trees: the front-end that knows no bytecode.

It serves Pythons whose bytecode the interpreter does not know, and is the interpreter's differential test.
`Copying` is to be laid over a class that has the recorder's operations (see `calls.py`).
"""

from __future__ import annotations

import ast
import builtins
import sys
import weakref
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any, NamedTuple

from ...runtime.places import is_internal
from .evaluation import Evaluation, empty
from .kinds import UNSUPPORTED
from .located import FUTURE, Unsupported, locate
from .nodes import settle
from .numbers import LIFTED
from .rewriting import BUILTINS, CELL, CODES, GLOBALS, HELPS, RECORDER, rewrite
from .tracebacks import clean, is_machinery

_NATIVE_PER_FRAME = 24  # native frames that one call of a copy may take, the recorder's own included
_VARIADIC = 0x4 | 0x8 | 0x20  # *args, **kwargs, generator: their numbers land in containers or wait
_ASYNCHRONOUS = 0x80 | 0x100 | 0x200
_OF_THE_FRAME = {
    builtins.locals, builtins.globals, builtins.vars, builtins.dir, builtins.eval, builtins.exec,
    sys._getframe,
}  # fmt: skip


class Copy(NamedTuple):
    """code: what runs.  codes: of the functions and classes that it makes."""

    code: CodeType
    codes: tuple[CodeType, ...]


# By identity: equal code objects may stand in different files.  The reference tells when an id is free again.
_COPIES: dict[int, tuple[weakref.ref[CodeType], Copy | str]] = {}


def copy_of(code: CodeType) -> Copy | str:
    """The copy of a function's code, made once; where it has no source or can't be copied, why."""
    found = _COPIES.get(id(code))
    if found is not None:
        return found[1]
    key = id(code)
    try:
        made: Copy | str = _copied(code)
    except Unsupported as why:
        made = str(why)
    _COPIES[key] = weakref.ref(code, lambda gone: _COPIES.pop(key, None)), made
    return made


def _copied(code: CodeType) -> Copy:
    if code.co_flags & _ASYNCHRONOUS:
        raise Unsupported("it is asynchronous")
    located = locate(code)
    made, codes = rewrite(located, code)
    # A function around it has what the copy refers to as variables, so that its globals are the user's own.
    given = [
        RECORDER,
        HELPS,
        GLOBALS,
        BUILTINS,
        CODES,
        *code.co_freevars,
        *(CELL + name for name in code.co_freevars),
    ]
    around = ast.FunctionDef(
        "around",
        ast.arguments([], [ast.arg(name) for name in given], None, [], [], None, []),
        [made],
        [],
        None,
    )
    if sys.version_info >= (3, 12):
        around.type_params = []
    tree = ast.Module([ast.copy_location(around, located.node)], [])
    settle(tree)
    try:
        whole = compile(tree, code.co_filename, "exec", code.co_flags & FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Unsupported(f"its copy does not compile: {error}") from None
    outer = next(each for each in whole.co_consts if type(each) is CodeType)
    inner = next(each for each in outer.co_consts if type(each) is CodeType and each.co_name == "copy")
    return Copy(inner.replace(co_name=code.co_name, co_qualname=code.co_qualname), codes)


class Copying:
    """Runs copies.  The recorder's operations are methods of `self`."""

    evaluation: Evaluation | None = None
    depth = 0  # the user's frames that are running
    _limit = 0  # how deep they may go
    _native_limit = 0

    def enter(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a Python function; UNSUPPORTED where it has no source, or a construct that can't be copied."""
        if self.refused:  # type: ignore[attr-defined]
            return function(*args, **kwargs)
        code = function.__code__
        copy = copy_of(code)
        if issubclass(type(copy), str):
            return UNSUPPORTED
        run = self._copied(function, copy)
        if self.depth == 0:
            self._outermost()
        elif not self.depth & 15:
            self._deeper()
        self.depth += 1
        try:
            found = run(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = clean(error.__traceback__)
            raise
        finally:
            self.depth -= 1
            if self.depth == 0:
                sys.setrecursionlimit(self._native_limit)
        return self.new(found) if type(found) is GeneratorType else found  # type: ignore[attr-defined]

    def _copied(self, function: FunctionType, copy: Copy) -> FunctionType:
        """The copy as a function that takes the arguments as the function itself does."""
        if self.evaluation is None:
            self.evaluation = Evaluation(self)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        given = {
            RECORDER: self,
            HELPS: self.evaluation,
            GLOBALS: function.__globals__,
            BUILTINS: function.__builtins__,
            CODES: copy.codes,
        }
        variables = [
            cells[name]
            if name in cells
            else CellType(cells[name[len(CELL) :]] if name.startswith(CELL) else given[name])
            for name in copy.code.co_freevars
        ]
        run = FunctionType(
            copy.code, function.__globals__, function.__name__, function.__defaults__, tuple(variables)
        )
        run.__kwdefaults__, run.__qualname__ = function.__kwdefaults__, function.__qualname__
        return run

    def _outermost(self) -> None:
        self._native_limit = sys.getrecursionlimit()
        self._limit, native = self._native_limit, sys._getframe()
        while native is not None:
            native, self._limit = native.f_back, self._limit - 1
        sys.setrecursionlimit(self._native_limit + 32 * _NATIVE_PER_FRAME)

    def _deeper(self) -> None:
        """Let the native stack grow with the user's, and no further than his limit."""
        if self.depth >= self._limit:
            raise RecursionError("maximum recursion depth exceeded")
        sys.setrecursionlimit(self._native_limit + (self.depth + 32) * _NATIVE_PER_FRAME)

    # ---- calls

    def call(self, function: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006
        """Call anything; what depends on the frame it stands in is looked at here."""
        if self.lifts and any(type(x) in LIFTED for x in (*args, *kwargs.values())):  # type: ignore[attr-defined]
            args, kwargs = self._passed(function, args, kwargs)
        kind = type(function)
        if kind is BuiltinFunctionType and function in _OF_THE_FRAME or function is super and not args:
            frame = _frame()
            if frame is not None:
                return self._in_frame(function, args, kwargs, frame)
        return super().call(function, args, kwargs)  # type: ignore[misc]

    def _passed(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments of a call, lifted numbers made plain unless the function can take them."""
        inner = function.__func__ if type(function) is MethodType else function
        if type(inner) is FunctionType:
            code = inner.__code__
            if is_internal(code.co_filename) or not code.co_flags & _VARIADIC:
                return args, kwargs
        plain = self.plain  # type: ignore[attr-defined]
        return tuple(map(plain, args)), {name: plain(value) for name, value in kwargs.items()}

    def _in_frame(self, function: Any, args: tuple, kwargs: dict[str, Any], frame: FrameType) -> Any:
        """A call of what looks at the frame that calls it, which is a copy's."""
        if function is super:
            return super().call(super, own_super(frame), kwargs)  # type: ignore[misc]
        if function in (vars, dir) and args:
            return super().call(function, args, kwargs)  # type: ignore[misc]
        self.refuse(f"{function.__name__}() was called")  # type: ignore[attr-defined]
        if function is globals:
            return frame.f_globals
        if function is sys._getframe:
            frames = [each for each in _frames() if not is_machinery(each.f_code.co_filename)]
            return frames[args[0] if args else 0]
        bindings = variables(frame)
        if function in (locals, vars):
            return bindings
        if function is dir:
            return sorted(bindings)
        source, *scopes = args or (None,)
        if args and (not scopes or scopes[0] is None) and kwargs.get("globals") is None:
            local = scopes[1] if len(scopes) > 1 else kwargs.get("locals")
            rest = {name: value for name, value in kwargs.items() if name not in ("globals", "locals")}
            return function(source, frame.f_globals, bindings if local is None else local, **rest)
        return function(*args, **kwargs)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frame() -> FrameType | None:
    """The frame that a call stands in, if it is a copy's."""
    for frame in _frames():
        if RECORDER in frame.f_code.co_freevars:
            return frame
        if not is_machinery(frame.f_code.co_filename):
            return None
    return None


def variables(frame: FrameType) -> dict[str, Any]:
    """What `locals()` gives in a copy's frame: the user's own variables."""
    found = {name: value for name, value in frame.f_locals.items() if "." not in name}
    for name, cell in frame.f_locals.items():
        if name.startswith(CELL) and not empty(cell):
            found[name[len(CELL) :]] = cell.cell_contents
    return found


def own_super(frame: FrameType) -> tuple[Any, Any]:
    """The arguments that `super()` takes from where it stands."""
    code, found = frame.f_code, frame.f_locals
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    if code.co_varnames[0] not in found:
        raise RuntimeError("super(): arg[0] deleted")
    cell = found.get(CELL + "__class__")
    if cell is None:
        raise RuntimeError("super(): __class__ cell not found")
    if empty(cell):
        raise RuntimeError("super(): empty __class__ cell")
    return cell.cell_contents, found[code.co_varnames[0]]
