"""Calls that tell the outside something and get nothing back: print, logging, warnings, progress bars.

They happen in the recording run, and are noted as effects that say the same at a replay.  Their arguments are
turned into text when they are called; of a tensor, the values it has then are kept.
"""

from __future__ import annotations

import builtins
import logging
import sys
import time
import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ...runtime import Parameter, Tensor
from ...runtime.compound import Compound
from ...runtime.modes import unheard
from ...runtime.places import line_of
from ...runtime.printing import history, spelled
from .kinds import ATOMS, Function, lookup
from .methods import Methods
from .numbers import LIFTED, LiftedText, raw

# Modules whose output streams and log handlers write, and change nothing that a program looks at.
WRITERS = frozenset((
    "_io", "io", "logging", "codecs", "tempfile", "_pytest", "colorama", "ipykernel", "IPython", "idlelib",
    "tqdm", "rich", "encodings", "warnings",
))  # fmt: skip
LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "fatal": 50}
BAR = "a progress bar asks the clock; make it outside of the traced function, and call update() inside"
BAR_METHODS = frozenset((
    "update", "close", "refresh", "set_description", "set_description_str", "set_postfix", "clear",
    "set_postfix_str", "reset", "write", "display", "unpause",
))  # fmt: skip


class Caller(NamedTuple):
    """The line of the user's that makes a call."""

    filename: str
    line: int
    function: str
    scope: dict[str, Any]


# ---- what happens, in the recording run and at each replay ----
def shown(x: Tensor, heading: str, past: str | None) -> str:
    """A tensor's values as the text of the tensor that had this history."""
    with unheard():
        return heading + spelled(x, past)


def printed(forms: tuple, *values: Any, **how: Any) -> None:
    """Print texts, and tensors in the forms (heading, history) that go with them."""
    texts = [v if form is None else shown(v, *form) for form, v in zip(forms, values, strict=True)]
    print(*texts, **how)


class Quoted:
    """A tensor as an argument of a log message: its text, or its number."""

    def __init__(self, x: Tensor, form: tuple):
        self._x, self._form = x, form

    def __str__(self) -> str:
        return shown(self._x, *self._form)

    __repr__ = __str__

    def __float__(self) -> float:
        return float(self._x)

    def __int__(self) -> int:
        return int(self._x)


def emitted(
    handler: logging.Handler, name: str, level: int, where: tuple, text: str, forms: tuple, *args: Any
) -> None:
    """Have a log handler write the record of a message from the user's line `where`."""
    with unheard():
        given = tuple([v if form is None else Quoted(v, form) for form, v in zip(forms, args, strict=True)])
        record = logging.LogRecord(name, level, where[0], where[1], text, given, None, where[2])
        handler.handle(record)


class Timeless(logging.LogRecord):
    """A record for handlers of the user's, whose code is looked at: it can't tell the thread.

    When it was created is asked as a clock is; all else that is of the moment refuses the run.
    """

    def __init__(self, *args: Any):
        made = logging.LogRecord(*args)
        for name, value in made.__dict__.items():
            if name not in _OF_THE_MOMENT:
                self.__dict__[name] = value


_OF_THE_MOMENT = ("created", "msecs", "relativeCreated", "thread", "threadName", "process", "processName",
                  "taskName")  # fmt: skip


def _moment(name: str) -> property:
    return property(lambda record: time.ctime(), doc=f"`{name}` differs from call to call.")


for _name in _OF_THE_MOMENT:
    setattr(Timeless, _name, _moment(_name))
setattr(Timeless, "created", property(lambda record: time.time(), doc="The time."))  # noqa: B010 - as those


# ---- interpreted in place of what the standard library does with frames and locks ----
def handlers_of(logger: logging.Logger, level: int) -> list:
    """The handlers that a message of this level reaches; none where the logger is off."""
    found: list = []
    if logger.disabled or logger.manager.disable >= level:
        return found
    one: Any = logger
    while one and not one.level:
        one = one.parent
    if level < (one.level if one else 0):
        return found
    one = logger
    while one:
        for handler in one.handlers:
            if level >= handler.level:
                found.append(handler)
        one = one.parent if one.propagate else None
    return found


def filters_of(logger: logging.Logger, handlers: list) -> list:
    """The filters that a message meets on its way."""
    found = list(logger.filters)
    for handler in handlers:
        found.extend(handler.filters)
    return found


def caller(facts: Methods) -> Caller:
    """The user's line that runs now."""
    code, offset = facts.place()
    filename, line = line_of((code, offset))
    for frame in facts.users():
        found = frame.f_code if isinstance(frame, types.FrameType) else frame.program.code
        if found is code:
            scope = frame.f_globals if isinstance(frame, types.FrameType) else frame.globals
            return Caller(filename, line, code.co_name, scope)
    return Caller(filename, line, code.co_name, {})


def sink_of(facts: Methods, function: Any) -> Callable | None:
    """The method here that stands for a function whose calls are effects."""
    if function is builtins.print:
        return partial(_print, facts)
    if function is warnings.warn:
        return partial(_warn, facts)
    if type(function) is Function:
        code = function.__code__
        if code.co_filename == _LOGGING:
            found = _LOG_CALLS.get(code)
            return None if found is None else partial(found, facts)
    return None


# ---- text ----
def text_of(facts: Methods, value: Any) -> str:
    """`str(value)`, by way of the user's own `__str__`."""
    return value if type(value) in (str, LiftedText) else facts.call(str, (value,))


def form_of(facts: Methods, value: Any) -> tuple[tuple | None, Any]:
    """A value for `printed`: a tensor's form and its values now, or None and the text."""
    if not issubclass(type(value), Tensor) or issubclass(type(value), Compound):
        return None, text_of(facts, value)
    with unheard():
        past = history(value)
    heading = "Parameter containing:\n" if issubclass(type(value), Parameter) else ""
    return (heading, past), value.detach().clone()  # as it is now, whatever becomes of it


# ---- print ----
def _print(
    facts: Methods, *values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False
) -> None:  # fmt: skip
    forms, given = [], []
    for value in values:
        form, text = form_of(facts, value)
        forms.append(form)
        given.append(text)
    how = {"sep": sep, "end": end, "flush": facts.plain(flush)}
    how = {k: v for k, v in how.items() if v != {"sep": " ", "end": "\n", "flush": False}[k]}
    if file is None:
        kind = type(sys.stdout)
        facts.fact(sys, "attr", "stdout.__class__", "type({o}.stdout)", kind)
    else:
        kind = facts.class_of(file)
        how["file"] = file
    write = lookup(kind, "write")
    if type(write) is Function and kind.__module__.partition(".")[0] not in WRITERS:
        if file is None:
            file = facts.attribute(sys, "stdout")
        _print_to(facts, file, forms, given, how)
        return
    if file is not None and facts.is_fresh(file):  # what is read of it later is text as it stands
        texts = [x if form is None else facts.call(str, (x,)) for form, x in zip(forms, given, strict=True)]
        print(*map(facts.plain, texts), **{name: facts.plain(value) for name, value in how.items()})
        return
    printed(tuple(forms), *given, **how)
    if file is not None and facts.source(file) is None:
        facts.refuse("something was printed to a file that nothing known leads to")
    facts.effect(printed, tuple(forms), *given, **how)


def _print_to(facts: Methods, file: Any, forms: list, given: list, how: dict[str, Any]) -> None:
    """Print to an object of the user's, whose write() is looked at as any of the user's code."""
    if any(form is not None for form in forms):
        facts.refuse("a tensor was printed to an object of the user's own, which gets its text")
    write = facts.attribute(file, "write")
    sep, end = how.get("sep", " "), how.get("end", "\n")
    for number, (form, text) in enumerate(zip(forms, given, strict=True)):
        if number and sep is not None:
            facts.call(write, (sep,))
        facts.call(write, (text if form is None else shown(text, *form),))
    facts.call(write, ("\n" if end is None else end,))
    if how.get("flush"):
        facts.call(facts.attribute(file, "flush"))


# ---- warnings ----
def _warn(
    facts: Methods, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any
) -> None:  # fmt: skip
    message = facts.plain(message)
    if rest or source is not None or facts.plain(stacklevel) != 1:
        facts.abandon("warnings.warn() of another line than its own")
        return warnings.warn(message, category, facts.plain(stacklevel), source, **rest)
    filters = facts.attribute(warnings, "filters")
    if not facts.refused:  # looked at by C code, patterns and all
        seen = facts.const(list(filters))
        facts.check(f"{facts.source(filters)} != {seen}", "the filters of warnings")
    for name in ("showwarning", "_showwarnmsg_impl", "formatwarning"):
        facts.attribute(warnings, name)
    if issubclass(type(message), Warning):
        category = type(message)
        message = text_of(facts, message)
    category = category or UserWarning
    at = caller(facts)
    where = (at.filename, at.line, at.scope.get("__name__", "<unknown>"))
    if not issubclass(type(message), str):
        return facts.natively("a warning was no text", warnings.warn, (message, category), {})
    _warned(message, category, *where, at.scope)
    facts.name_globals(at.scope)
    facts.effect(_warned, message, category, *where, at.scope)
    return None


# ---- logging ----
def log(facts: Methods, logger: Any, level: Any, message: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """A message to a logger: read who gets it, note an effect for each."""
    level = facts.plain(level)
    where = caller(facts)[:3]
    if any(kwargs.values()):
        facts.refuse("a log message with exc_info, stack_info, extra or stacklevel is more than its text")
        logger.log(level, message, *args, **kwargs)
        return
    handlers = facts.enter(handlers_of, (logger, level), {})
    filters = facts.enter(filters_of, (logger, handlers), {})
    factory = logging.getLogRecordFactory()
    facts.fact(logging, "attr", "_logRecordFactory", "{o}._logRecordFactory", factory)
    if filters or factory is not logging.LogRecord:
        facts.refuse("a logger has filters or makes records of its own, which may do anything")
        logger.log(level, message, *args, **kwargs)
        return
    if not handlers:
        _last_resort(facts, logger, level, message, args, where)
        return
    text, forms, args = _message(facts, message, args)
    name = facts.attribute(logger, "name")
    for handler in handlers:
        if type(handler).__module__.partition(".")[0] in WRITERS:
            _outlet(facts, handler)
            emitted(handler, name, level, where, raw(text), forms, *map(raw, args))
            facts.effect(emitted, handler, name, level, where, text, forms, *args)
            continue
        if any(form is not None for form in forms):
            facts.refuse("a tensor was logged to a handler of the user's own")
        text, args = facts.plain(text), facts.result(tuple(map(facts.plain, args)))
        record = facts.new(Timeless(name, level, where[0], where[1], text, args, None, where[2]))
        facts.call(facts.attribute(handler, "handle"), (record,))


def _message(facts: Methods, message: Any, args: tuple) -> tuple[str, tuple, tuple]:
    """The format, its arguments and their forms; what is neither plain nor a tensor becomes text now."""
    text = text_of(facts, message)
    if all(type(x) in ATOMS or type(x) in LIFTED or issubclass(type(x), Tensor) for x in args):
        forms = [form_of(facts, x) if issubclass(type(x), Tensor) else (None, x) for x in args]
        return text, tuple([form for form, _ in forms]), tuple([x for _, x in forms])
    for x in map(facts.plain, args):
        facts.look_into(x)
    named = len(args) == 1 and issubclass(type(args[0]), dict) and args[0]
    try:
        return facts.plain(text) % (args[0] if named else tuple(map(raw, args))), (), ()
    except (TypeError, ValueError, KeyError):
        facts.refuse("a log message does not fit its arguments")
        return text, (), ()


def _outlet(facts: Methods, handler: Any) -> None:
    """Refuse a handler that formats or writes by code of the user's own."""
    for part, method in (("stream", "write"), ("formatter", "format")):
        kind = type(getattr(handler, part, None))
        own = type(lookup(kind, method)) is Function
        if own and kind.__module__.partition(".")[0] not in WRITERS:
            facts.refuse(f"a log handler has a {part} of the user's own, which may do anything")


def _last_resort(facts: Methods, logger: Any, level: int, message: Any, args: tuple, where: tuple) -> None:
    """Without any handler on the way, logging shows warnings on stderr."""
    one: Any = logger
    while one:
        if one.handlers:  # whose levels are too high
            return
        one = one.parent if one.propagate else None
    last = facts.attribute(logging, "lastResort")
    off = logger.disabled or logger.manager.disable >= level or level < logger.getEffectiveLevel()
    if last is None or off or level < last.level:
        return
    text, forms, args = _message(facts, message, args)
    emitted(last, logger.name, level, where, raw(text), forms, *map(raw, args))
    facts.effect(emitted, last, logger.name, level, where, text, forms, *args)


# ---- progress bars ----
def bar(facts: Methods, o: Any, name: str, function: Any, args: tuple, kwargs: Any) -> Any:
    """A method of a tqdm bar that was there: an effect, whose outcome nobody looks at."""
    if name not in BAR_METHODS or facts.source(o) is None:
        return facts.natively(BAR, function, (o, *args), kwargs)
    args = tuple(map(partial(_plain_or_text, facts), args))
    kwargs = {k: _plain_or_text(facts, x) for k, x in kwargs.items()}
    function(o, *map(raw, args), **{k: raw(x) for k, x in kwargs.items()})
    facts.written.touched[id(o)] = BAR_METHODS
    facts.effect(function, o, *args, **kwargs)
    return None


def _plain_or_text(facts: Methods, value: Any) -> Any:
    return value if type(value) in ATOMS or type(value) in LIFTED else text_of(facts, value)


def _warned(message: str, category: type, filename: str, line: int, module: str, scope: dict) -> None:
    registry = scope.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, filename, line, module, registry)


_LOGGING = logging.Logger.info.__code__.co_filename


def _at_level(level: int) -> Callable:
    def logs(facts: Methods, logger: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        log(facts, logger, level, message, args, kwargs)

    return logs


def _at_given_level(facts: Methods, logger: Any, level: Any, message: Any, *args: Any, **kwargs: Any) -> None:
    log(facts, logger, level, message, args, kwargs)


def _of_root(level: int) -> Callable:
    def logs(facts: Methods, message: Any, *args: Any, **kwargs: Any) -> None:
        root = logging.getLogger()
        facts.source(root) or facts.pin(root)
        if not facts.truth(facts.attribute(root, "handlers")):
            facts.refuse("logging sets itself up at its first message; call logging.basicConfig() before")
            logging.basicConfig()
        log(facts, root, level, message, args, kwargs)

    return logs


_LOG_CALLS: dict[types.CodeType, Callable] = {
    **{getattr(logging.Logger, name).__code__: _at_level(level) for name, level in LOG_LEVELS.items()
       if hasattr(logging.Logger, name)},
    **{getattr(logging, name).__code__: _of_root(level) for name, level in LOG_LEVELS.items()
       if hasattr(logging, name)},
    logging.Logger.log.__code__: _at_given_level,
}  # fmt: skip
