"""What the operations of compound statements do: errors, context managers, patterns, classes, imports.

The errors that are being handled are handled natively too (see `interpret.py`), so that contexts chain as
they do in a plain run and `sys.exc_info()` tells the truth to whoever asks.
"""

from __future__ import annotations

import operator
import sys
from types import FunctionType, MethodType
from typing import Any

from .class_checks import matches
from .frames import NULL, UNBOUND, Frame, contents
from .instructions import ENTER, LEAVE, operation
from .kinds import MISSING, lookup

if sys.version_info >= (3, 14):
    from string.templatelib import Interpolation, Template
else:
    Interpolation: Any = None  # no code of an earlier version makes them
    Template: Any = None

_MAPPING, _SEQUENCE, _MATCHES_SELF = 1 << 6, 1 << 5, 1 << 22  # bits of a class's __flags__
_ABSENT: Any = object()  # the default of a read that may fail


# ---- errors


@operation("raise")
def raise_(frame: Frame, stack: list[Any], count: int | None) -> None:
    observer = frame.observer
    if not count:
        error = sys.exception()
        if error is None:
            raise RuntimeError("No active exception to reraise")
        _again(frame, error)
    cause = stack.pop() if count == 2 else MISSING
    error = _exception(observer, stack.pop(), "exceptions must derive from BaseException")
    if cause is not MISSING:
        if cause is not None:
            cause = _exception(observer, cause, "exception causes must derive from BaseException")
        error.__cause__ = cause
    raise error


def _exception(observer: Any, value: Any, otherwise: str) -> BaseException:
    """The exception that `raise value` raises."""
    if issubclass(type(value), type) and issubclass(value, BaseException):
        made = observer.call(value)
        if not issubclass(type(made), BaseException):
            raise TypeError(
                f"calling {value!r} should have returned an instance of BaseException, not {type(made)!r}"
            )
        return made
    if issubclass(type(value), BaseException):
        return value
    raise TypeError(otherwise)


def _again(frame: Frame, error: BaseException) -> None:
    """Raise an error that this frame has been through: it keeps its context and traceback."""
    frame.again = error.__context__, error.__traceback__
    raise error


@operation("reraise")
def reraise(frame: Frame, stack: list[Any], _: Any) -> None:
    _again(frame, stack.pop())


@operation("push_exc_info")
def push_exc_info(frame: Frame, stack: list[Any], _: None) -> int:
    error = stack.pop()
    stack += [frame.handled[-1] if frame.handled else None, error]
    frame.handled.append(error)
    return ENTER


@operation("pop_except")
def pop_except(frame: Frame, stack: list[Any], _: None) -> int:
    stack.pop()
    frame.handled.pop()
    return LEAVE


@operation("check_match")
def check_match(frame: Frame, stack: list[Any], _: None) -> None:
    kinds = stack[-1]
    if issubclass(type(kinds), tuple):
        frame.observer.read_all(kinds)
    frame.observer.bases(type(stack[-2]))
    stack[-1] = _caught(type(stack[-2]), kinds)


def _caught(kind: type, kinds: Any) -> bool:
    """Whether `except kinds` catches errors of a class; `__subclasscheck__` has no say in it."""
    kinds = kinds if issubclass(type(kinds), tuple) else (kinds,)
    for each in kinds:
        if not (issubclass(type(each), type) and issubclass(each, BaseException)):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    return any(each in kind.__mro__ for each in kinds)


@operation("check_group_match")
def check_group_match(frame: Frame, stack: list[Any], _: None) -> int | None:
    """`except*`: from (error, kinds) to (rest, match), which now is the error that is handled."""
    kinds, error = stack.pop(), stack.pop()
    for kind in kinds if issubclass(type(kinds), tuple) else (kinds,):
        _caught(Exception, kind)
        if issubclass(kind, BaseExceptionGroup):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    rest, match = error, None
    if error is not None and isinstance(error, kinds):
        rest, match = None, error
        if not issubclass(type(error), BaseExceptionGroup):
            match = BaseExceptionGroup("", (error,))
    elif issubclass(type(error), BaseExceptionGroup):
        match, rest = error.split(kinds)
    stack += [rest, match]
    if match is None:
        return None
    frame.handled[-1] = match
    return LEAVE  # and in again, with the match


@operation("prepare_reraise_star")
def prepare_reraise_star(frame: Frame, stack: list[Any], _: None) -> None:
    """What leaves an `except*` block: the errors raised in it, and what of the first was not caught."""
    errors = [error for error in stack.pop() if error is not None]
    first = stack[-1]
    if not errors or not issubclass(type(first), BaseExceptionGroup):
        stack[-1] = errors[0] if errors else None
        return
    same = [error for error in errors if _metadata(error) == _metadata(first)]
    raised = [error for error in errors if not any(error is each for each in same)]
    leaves = {id(leaf) for error in same for leaf in _leaves(error)}
    left = first.split(lambda error: id(error) in leaves)[0]
    if left is not None:
        raised.append(left)
    stack[-1] = BaseExceptionGroup("", raised) if len(raised) > 1 else raised[0] if raised else None


def _metadata(error: BaseException) -> tuple[Any, ...]:
    notes = getattr(error, "__notes__", None)
    return id(notes), id(error.__traceback__), id(error.__cause__), id(error.__context__)


def _leaves(error: Any) -> list[BaseException]:
    if not issubclass(type(error), BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


@operation("stop_iteration_error")
def stop_iteration_error(frame: Frame, stack: list[Any], _: None) -> None:
    """From 3.12 on a generator turns the StopIteration that leaves it into a RuntimeError."""
    error = stack[-1]
    if issubclass(type(error), StopIteration):
        made = RuntimeError("generator raised StopIteration")
        made.__cause__ = made.__context__ = error
        stack[-1] = made


@operation("cleanup_throw")
def cleanup_throw(frame: Frame, stack: list[Any], _: None) -> None:
    """An error thrown into a `yield from`: a StopIteration is its result."""
    error = stack[-1]
    if not issubclass(type(error), StopIteration):
        _again(frame, stack.pop())
    stack[-3:] = [None, error.value]


# ---- context managers


def _method(frame: Frame, value: Any, name: str) -> Any:
    """A special method of a context manager, bound; an error in CPython's words where there is none."""
    found = frame.observer.special(value, name)
    if found is MISSING:
        with value:  # raises before it enters anything
            raise AssertionError("a context manager without its methods was entered")
    if type(found) is FunctionType:
        return frame.observer.new(MethodType(found, value))
    get = lookup(type(found), "__get__")
    return found if get is MISSING else frame.observer.new(get(found, value, type(value)))


@operation("before_with")
def before_with(frame: Frame, stack: list[Any], _: None) -> None:
    value = stack.pop()
    enter, leave = _method(frame, value, "__enter__"), _method(frame, value, "__exit__")
    stack.append(leave)
    stack.append(frame.observer.call(enter))


@operation("load_special")
def load_special(frame: Frame, stack: list[Any], name: str) -> None:
    stack[-1:] = [_method(frame, stack[-1], name), NULL]


@operation("call_exit")
def call_exit(frame: Frame, stack: list[Any], _: None) -> None:
    error = stack[-1]
    stack.append(frame.observer.call(stack[-4], (type(error), error, error.__traceback__)))


@operation("call_exit_method")
def call_exit_method(frame: Frame, stack: list[Any], _: None) -> None:
    """From 3.14 on the method has the slot of its object above it."""
    error = stack[-1]
    stack.append(frame.observer.call(stack[-5], (type(error), error, error.__traceback__)))


# ---- patterns


@operation("get_length")
def get_length(frame: Frame, stack: list[Any], _: None) -> None:
    stack.append(frame.observer.call(len, (stack[-1],)))


@operation("match_sequence")
def match_sequence(frame: Frame, stack: list[Any], _: None) -> None:
    stack.append(bool(matches(frame.observer, stack[-1]) & _SEQUENCE))


@operation("match_mapping")
def match_mapping(frame: Frame, stack: list[Any], _: None) -> None:
    stack.append(bool(matches(frame.observer, stack[-1]) & _MAPPING))


@operation("match_keys")
def match_keys(frame: Frame, stack: list[Any], _: None) -> None:
    """The values under keys, or None where one is absent."""
    keys, value = stack[-1], stack[-2]
    observer = frame.observer
    found, seen = [], set()
    if keys and type(value) is not dict:
        get, absent = observer.attribute(value, "get"), object()
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        if type(value) is dict:
            if not observer.contains(value, key):
                stack.append(None)
                return
            found.append(observer.item(value, key))
        else:
            found.append(observer.call(get, (key, absent)))
            if found[-1] is absent:
                stack.append(None)
                return
    stack.append(observer.new(tuple(found)) if found else ())


@operation("match_class")
def match_class(frame: Frame, stack: list[Any], count: int | None) -> None:
    """The attributes that a class pattern names, or None where the value does not match."""
    names, kind, value = stack.pop(), stack.pop(), stack.pop()
    count, observer = count or 0, frame.observer
    if not issubclass(type(kind), type):
        _match_natively(value, kind)
    if not observer.truth(observer.call(isinstance, (value, kind))):
        stack.append(None)
        return
    found, wanted = [], []
    if count:
        wanted = _positional(observer, kind, count)
        if wanted is None:
            found, wanted = [value], []
    for name in (*wanted, *names):
        if name in wanted and name in names or (*wanted, *names).count(name) > 1:
            raise TypeError(f"{kind.__name__}() got multiple sub-patterns for attribute {name!r}")
    for name in (*wanted, *names):
        got = observer.attribute(value, name, _ABSENT)
        if got is _ABSENT:
            stack.append(None)
            return
        found.append(got)
    stack.append(observer.new(tuple(found)) if found else ())


def _match_natively(value: Any, kind: Any) -> None:
    """Raise CPython's error of a class pattern that names no class."""
    match value:
        case kind():
            pass


def _positional(observer: Any, kind: type, count: int) -> Any:
    """The attributes of positional sub-patterns; None where the only one stands for the value itself."""
    given = observer.attribute(kind, "__match_args__", _ABSENT)
    itself = given is _ABSENT and bool(kind.__flags__ & _MATCHES_SELF)
    given = () if given is _ABSENT else given
    if type(given) is not tuple:
        raise TypeError(f"{kind.__name__}.__match_args__ must be a tuple (got {type(given).__name__})")
    observer.read_all(given)
    allowed = 1 if itself else len(given)
    if allowed < count:
        plural = "" if allowed == 1 else "s"
        raise TypeError(f"{kind.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)")
    for name in given[:count]:
        if not issubclass(type(name), str):
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
    return None if itself else given[:count]


# ---- the namespaces of classes


def _from_names(frame: Frame, name: str) -> Any:
    """What a class body's namespace holds."""
    if type(frame.names) is dict:
        return frame.names.get(name, MISSING)
    try:
        return frame.observer.item(frame.names, name)
    except KeyError:
        return MISSING


@operation("load_name")
def load_name(frame: Frame, stack: list[Any], name: str) -> None:
    found = _from_names(frame, name)
    if found is MISSING:
        found = frame.observer.load_global(frame.globals, frame.builtins, name)
    stack.append(found)


@operation("store_name")
def store_name(frame: Frame, stack: list[Any], name: str) -> None:
    operator.setitem(frame.names, name, frame.observer.plain(stack.pop()))


@operation("delete_name")
def delete_name(frame: Frame, stack: list[Any], name: str) -> None:
    if _from_names(frame, name) is MISSING:
        raise NameError(f"name '{name}' is not defined", name=name)
    del frame.names[name]


@operation("load_names")
def load_names(frame: Frame, stack: list[Any], _: None) -> None:
    stack.append(frame.names)


@operation("load_class_cell")
def load_class_cell(frame: Frame, stack: list[Any], number: int) -> None:
    """3.11: a free variable of a class body, which its namespace may hide."""
    stack.append(frame.names)
    load_cell_or_from(frame, stack, number)


@operation("load_cell_or_from")
def load_cell_or_from(frame: Frame, stack: list[Any], number: int) -> None:
    name = frame.program.variables[number]
    names = stack.pop()
    if name in names:
        stack.append(names[name])
    elif contents(frame.locals[number]) is UNBOUND:
        raise frame.unbound(number)
    else:
        stack.append(frame.observer.load_cell(frame.locals[number]))


@operation("load_global_or_from")
def load_global_or_from(frame: Frame, stack: list[Any], name: str) -> None:
    names = stack.pop()
    if name in names:
        stack.append(names[name])
    else:
        stack.append(frame.observer.load_global(frame.globals, frame.builtins, name))


@operation("setup_annotations")
def setup_annotations(frame: Frame, stack: list[Any], _: None) -> None:
    if "__annotations__" not in frame.names:
        frame.names["__annotations__"] = {}


# ---- imports


@operation("import_name")
def import_name(frame: Frame, stack: list[Any], name: str) -> None:
    fromlist, level = stack.pop(), stack.pop()
    stack.append(frame.observer.import_name(name, frame.globals, fromlist, level))


@operation("import_from")
def import_from(frame: Frame, stack: list[Any], name: str) -> None:
    module = stack[-1]
    found = frame.observer.attribute(module, name, _ABSENT)
    if found is _ABSENT:
        found = sys.modules.get(f"{getattr(module, '__name__', '')}.{name}", _ABSENT)
    if found is _ABSENT:
        exec(compile(f"from {module.__name__} import {name}", __file__, "exec"), {})  # raises
    stack.append(found)


# ---- template strings, from 3.14 on


@operation("build_interpolation")
def build_interpolation(frame: Frame, stack: list[Any], argument: int) -> None:
    spec = stack.pop() if argument & 1 else ""
    text, value = stack.pop(), stack.pop()
    conversion = {0: None, 1: "s", 2: "r", 3: "a"}[argument >> 2]
    stack.append(frame.observer.new(Interpolation(value, text, conversion, spec)))


@operation("build_template")
def build_template(frame: Frame, stack: list[Any], _: None) -> None:
    parts, texts = stack.pop(), stack.pop()
    pieces: list[Any] = [texts[0]]
    for part, text in zip(parts, texts[1:], strict=True):
        pieces += [part, text]
    stack.append(frame.observer.new(Template(*pieces)))
