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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...runtime import Parameter, Tensor
from ...runtime.modes import unheard
from ...runtime.places import line_of
from ...runtime.printing import history, spelled
from .kinds import ATOMS, MISSING, Function, lookup
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
    """A record for handlers of the user's, whose code is looked at: it can't tell the time or the thread."""

    def __init__(self, *args: Any):
        made = logging.LogRecord(*args)
        for name, value in made.__dict__.items():
            if name not in _OF_THE_MOMENT:
                self.__dict__[name] = value


_OF_THE_MOMENT = ("created", "msecs", "relativeCreated", "thread", "threadName", "process", "processName",
                  "taskName")  # fmt: skip


def _moment(name: str) -> property:
    return property(lambda record: time.time(), doc=f"`{name}` differs from call to call.")


for _name in _OF_THE_MOMENT:
    setattr(Timeless, _name, _moment(_name))


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


class Sinks(Methods):
    """Notes what is printed, logged and warned of as effects."""

    users: Callable[[], Iterator[Any]]  # the frames that a plain run would have: see interpret.py

    def caller(self) -> Caller:
        """The user's line that runs now."""
        code, offset = self.place()
        filename, line = line_of((code, offset))
        for frame in self.users():
            found = frame.f_code if isinstance(frame, types.FrameType) else frame.program.code
            if found is code:
                scope = frame.f_globals if isinstance(frame, types.FrameType) else frame.globals
                return Caller(filename, line, code.co_name, scope)
        return Caller(filename, line, code.co_name, {})

    def sink(self, function: Any) -> Callable | None:
        """The method here that stands for a function whose calls are effects."""
        if function is builtins.print:
            return self._print
        if function is warnings.warn:
            return self._warn
        if type(function) is Function:
            code = function.__code__
            if code.co_filename == _LOGGING:
                found = _LOG_CALLS.get(code)
                return None if found is None else types.MethodType(found, self)
        return None

    # ---- text ----
    def text(self, value: Any) -> str:
        """`str(value)`, by way of the user's own `__str__`."""
        return value if type(value) in (str, LiftedText) else self.call(str, (value,))

    def form(self, value: Any) -> tuple[tuple | None, Any]:
        """A value for `printed`: a tensor's form and its values now, or None and the text."""
        if not issubclass(type(value), Tensor):
            return None, self.text(value)
        with unheard():
            past = history(value)
        heading = "Parameter containing:\n" if issubclass(type(value), Parameter) else ""
        return (heading, past), value.detach().clone()  # as it is now, whatever becomes of it

    # ---- print ----
    def _print(
        self, *values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False
    ) -> None:  # fmt: skip
        forms, given = [], []
        for value in values:
            form, text = self.form(value)
            forms.append(form)
            given.append(text)
        how = {"sep": sep, "end": end, "flush": self.plain(flush)}
        how = {k: v for k, v in how.items() if v != {"sep": " ", "end": "\n", "flush": False}[k]}
        if file is None:
            kind = type(sys.stdout)
            self.fact(sys, "attr", "stdout.__class__", "type({o}.stdout)", kind)
        else:
            kind = self.class_of(file)
            how["file"] = file
        write = lookup(kind, "write")
        if type(write) is Function and kind.__module__.partition(".")[0] not in WRITERS:
            if file is None:
                file = self.attribute(sys, "stdout")
            self._print_to(file, forms, given, how)
            return
        printed(tuple(forms), *given, **how)
        if file is None or not self.is_fresh(file):
            if file is not None and self.source(file) is None:
                self.refuse("something was printed to a file that nothing known leads to")
            self.effect(printed, tuple(forms), *given, **how)

    def _print_to(self, file: Any, forms: list, given: list, how: dict[str, Any]) -> None:
        """Print to an object of the user's, whose write() is looked at as any of the user's code."""
        if any(form is not None for form in forms):
            self.refuse("a tensor was printed to an object of the user's own, which gets its text")
        write = self.attribute(file, "write")
        sep, end = how.get("sep", " "), how.get("end", "\n")
        for number, (form, text) in enumerate(zip(forms, given, strict=True)):
            if number and sep is not None:
                self.call(write, (sep,))
            self.call(write, (text if form is None else shown(text, *form),))
        self.call(write, ("\n" if end is None else end,))
        if how.get("flush"):
            self.call(self.attribute(file, "flush"))

    # ---- warnings ----
    def _warn(
        self, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any
    ) -> None:  # fmt: skip
        message = self.plain(message)
        if rest or source is not None or self.plain(stacklevel) != 1:
            self.abandon("warnings.warn() of another line than its own")
            return warnings.warn(message, category, self.plain(stacklevel), source, **rest)
        filters = self.attribute(warnings, "filters")
        if not self.refused:  # looked at by C code, patterns and all
            seen = self.const(list(filters))
            self.check(f"{self.source(filters)} != {seen}", "the filters of warnings")
        for name in ("showwarning", "_showwarnmsg_impl", "formatwarning"):
            self.attribute(warnings, name)
        if issubclass(type(message), Warning):
            category = type(message)
            message = self.text(message)
        category = category or UserWarning
        at = self.caller()
        where = (at.filename, at.line, at.scope.get("__name__", "<unknown>"))
        if not issubclass(type(message), str):
            return self.natively("a warning was no text", warnings.warn, (message, category), {})
        _warned(message, category, *where, at.scope)
        self.name_globals(at.scope)
        self.effect(_warned, message, category, *where, at.scope)
        return None

    # ---- logging ----
    def log(self, logger: Any, level: Any, message: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """A message to a logger: read who gets it, note an effect for each."""
        level = self.plain(level)
        where = self.caller()[:3]
        if any(kwargs.values()):
            self.refuse("a log message with exc_info, stack_info, extra or stacklevel is more than its text")
            logger.log(level, message, *args, **kwargs)
            return
        handlers = self.enter(handlers_of, (logger, level), {})
        filters = self.enter(filters_of, (logger, handlers), {})
        factory = logging.getLogRecordFactory()
        self.fact(logging, "attr", "_logRecordFactory", "{o}._logRecordFactory", factory)
        if filters or factory is not logging.LogRecord:
            self.refuse("a logger has filters or makes records of its own, which may do anything")
            logger.log(level, message, *args, **kwargs)
            return
        if not handlers:
            self._last_resort(logger, level, message, args, where)
            return
        text, forms, args = self._message(message, args)
        name = self.attribute(logger, "name")
        for handler in handlers:
            if type(handler).__module__.partition(".")[0] in WRITERS:
                self._outlet(handler)
                emitted(handler, name, level, where, raw(text), forms, *map(raw, args))
                self.effect(emitted, handler, name, level, where, text, forms, *args)
                continue
            if any(form is not None for form in forms):
                self.refuse("a tensor was logged to a handler of the user's own")
            text, args = self.plain(text), self.result(tuple(map(self.plain, args)))
            record = self.new(Timeless(name, level, where[0], where[1], text, args, None, where[2]))
            self.call(self.attribute(handler, "handle"), (record,))

    def _message(self, message: Any, args: tuple) -> tuple[str, tuple, tuple]:
        """The format, its arguments and their forms; what is neither plain nor a tensor becomes text now."""
        text = self.text(message)
        if all(type(x) in ATOMS or type(x) in LIFTED or issubclass(type(x), Tensor) for x in args):
            forms = [self.form(x) if issubclass(type(x), Tensor) else (None, x) for x in args]
            return text, tuple([form for form, _ in forms]), tuple([x for _, x in forms])
        for x in map(self.plain, args):
            self.look_into(x)
        named = len(args) == 1 and issubclass(type(args[0]), dict) and args[0]
        try:
            return self.plain(text) % (args[0] if named else tuple(map(raw, args))), (), ()
        except (TypeError, ValueError, KeyError):
            self.refuse("a log message does not fit its arguments")
            return text, (), ()

    def _outlet(self, handler: Any) -> None:
        """Refuse a handler that formats or writes by code of the user's own."""
        for part, method in (("stream", "write"), ("formatter", "format")):
            kind = type(getattr(handler, part, None))
            own = type(lookup(kind, method)) is Function
            if own and kind.__module__.partition(".")[0] not in WRITERS:
                self.refuse(f"a log handler has a {part} of the user's own, which may do anything")

    def _last_resort(self, logger: Any, level: int, message: Any, args: tuple, where: tuple) -> None:
        """Without any handler on the way, logging shows warnings on stderr."""
        one: Any = logger
        while one:
            if one.handlers:  # whose levels are too high
                return
            one = one.parent if one.propagate else None
        last = self.attribute(logging, "lastResort")
        off = logger.disabled or logger.manager.disable >= level or level < logger.getEffectiveLevel()
        if last is None or off or level < last.level:
            return
        text, forms, args = self._message(message, args)
        emitted(last, logger.name, level, where, raw(text), forms, *map(raw, args))
        self.effect(emitted, last, logger.name, level, where, text, forms, *args)

    # ---- progress bars ----
    def bar(self, o: Any, name: str, function: Any, args: tuple, kwargs: Any) -> Any:
        """A method of a tqdm bar that was there: an effect, whose outcome nobody looks at."""
        if name not in BAR_METHODS or self.source(o) is None:
            return self.natively(BAR, function, (o, *args), kwargs)
        args = tuple(map(self._plain_or_text, args))
        kwargs = {k: self._plain_or_text(x) for k, x in kwargs.items()}
        function(o, *map(raw, args), **{k: raw(x) for k, x in kwargs.items()})
        self.written.touched.add(id(o))
        self.effect(function, o, *args, **kwargs)
        return None

    def _plain_or_text(self, value: Any) -> Any:
        return value if type(value) in ATOMS or type(value) in LIFTED else self.text(value)

    def attribute(self, o: Any, name: str, default: Any = MISSING) -> Any:
        """Read an attribute: not one of what an effect has changed unseen."""
        if self.written.touched and id(o) in self.written.touched and name not in BAR_METHODS:
            self.refuse(f"{type(o).__name__}.{name} was read after it had been changed by unknown code")
        return super().attribute(o, name, default)


def _warned(message: str, category: type, filename: str, line: int, module: str, scope: dict) -> None:
    registry = scope.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, filename, line, module, registry)


_LOGGING = logging.Logger.info.__code__.co_filename


def _at_level(level: int) -> Callable:
    def log(self: Sinks, logger: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        self.log(logger, level, message, args, kwargs)

    return log


def _at_given_level(self: Sinks, logger: Any, level: Any, message: Any, *args: Any, **kwargs: Any) -> None:
    self.log(logger, level, message, args, kwargs)


def _of_root(level: int) -> Callable:
    def log(self: Sinks, message: Any, *args: Any, **kwargs: Any) -> None:
        root = logging.getLogger()
        self.source(root) or self.pin(root)
        if not self.truth(self.attribute(root, "handlers")):
            self.refuse("logging sets itself up at its first message; call logging.basicConfig() before")
            logging.basicConfig()
        self.log(root, level, message, args, kwargs)

    return log


_LOG_CALLS: dict[types.CodeType, Callable] = {
    **{getattr(logging.Logger, name).__code__: _at_level(level) for name, level in LOG_LEVELS.items()
       if hasattr(logging.Logger, name)},
    **{getattr(logging, name).__code__: _of_root(level) for name, level in LOG_LEVELS.items()
       if hasattr(logging, name)},
    logging.Logger.log.__code__: _at_given_level,
}  # fmt: skip
