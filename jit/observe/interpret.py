"""Interprets Python functions, so that every read, write and call of a run goes through one recorder.

`Interpreting` is the loop, to be laid over a class that has the recorder's operations (see `calls.py`).  Two
things keep a run as a plain one would be.

Errors: while the function handles one, so does the loop: the handler's operations run in a loop of their own
within the native `except` clause.  CPython then sets `__context__` and answers `sys.exc_info()` by itself.

Recursion: an interpreted call takes several native frames.  The interpreter counts the user's frames against
the user's limit, and raises the native one as it gets deeper.
"""

from __future__ import annotations
import __future__

import builtins
import sys
import types
from collections.abc import Callable, Generator, Iterator
from functools import reduce
from math import inf
from operator import or_
from time import perf_counter
from types import BuiltinFunctionType, CellType, FrameType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, ClassVar

from ...runtime.interrupts import from_outside
from ...runtime.places import is_internal, locals_of
from . import building, clauses, recursion  # noqa: F401 - they register their operations
from .facts import Abandoned
from .frames import NULL, UNBOUND, Frame, bind, clear, contents, program_of
from .handing import handed
from .instructions import (
    ENTER,
    LEAVE,
    NATIVE,
    OPERATIONS,
    YIELD,
    delegated,
    load_local,
    may_drop,
)
from .kinds import ITERATORS, UNSUPPORTED, heap_class, lookup
from .numbers import LIFTED, METHODS, TAKING, raw
from .resuming import resumed
from .tracebacks import entered, forged, is_machinery, is_own

_PUSH = OPERATIONS["push_exc_info"][0]
_NATIVE_PER_FRAME = 24  # native frames that one interpreted call may take, the recorder's own included
_TURNS = 512  # of loops, from one look at them to the next
_PER_OP = 16  # turns that an op is worth: what computes so often is no loop of Python's alone
_QUICK = 1e-4  # seconds: with less for a turn, nothing in it but Python takes time
_FUTURE = reduce(or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))
_GENERATOR = 0x20  # whose numbers wait


class Interpreting:
    """Runs functions by their bytecode.  The recorder's operations are methods of `self`."""

    # Of the recorder below.
    abandon: Any
    attribute: Any
    call: Any
    filled: Any
    sliced: Any
    filled_map: Any
    abandoned: bool
    fresh: Any
    is_known: Any
    new: Any
    numbers: Any
    plain: Any
    raised: Any
    recorder: Any
    refuse: Any
    refused: str | None
    repeatable: bool
    shadow: Any

    frame: Frame | None = None  # the innermost running one
    clock = staticmethod(perf_counter)
    most_turns = inf  # of loops that compute nothing, from which on none is worth its recording
    turns = 0  # jumps back in the bytecode, and calls
    leaving = False  # whether loops go on natively, as nothing is recorded and Python takes the time
    _looked = 0.0  # when that was last asked
    raised_here = False  # whether an operation of the machinery's raised what ends the run
    _limit = 0  # how deep the user's frames may go
    _native_limit = 0  # of recursion, as the user set it, while this moves it

    def enter(self, function: FunctionType, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a Python function; UNSUPPORTED where its bytecode cannot be interpreted.

        args: a list, and the named ones with it, is emptied: the frame alone holds them then.
        """
        self._turns()  # a call may be a loop's of C code
        if self.refused:
            values, names = [*map(raw, args), *map(raw, kwargs.values())], tuple(kwargs)
            if type(args) is list:
                args.clear()
                kwargs.clear()
            del args, kwargs
            return handed(function, values, names)
        program = program_of(function.__code__, OPERATIONS)
        if program is None:
            return UNSUPPORTED
        bound = bind(function, program, args, kwargs)
        if bound is None:
            found = function(*args, **kwargs)  # raises CPython's own error
            self.refuse(f"the arguments of {function.__qualname__} were taken in an unknown way")
            return found
        frame = Frame(self, program, function, self._with_containers(*bound))
        if type(args) is list:
            args.clear()
            kwargs.clear()
        del bound, args, kwargs
        if program.generator:
            generator = self._generate(frame)
            for name in ("__name__", "__qualname__"):
                setattr(generator, name, getattr(function, name))
            self.shadow.handing.add(id(generator))
            return self.new(generator)
        self._run(frame)
        return frame.taken()

    # ---- the loop

    def _run(self, frame: Frame) -> int:
        """Run a frame until it returns or yields, and tell which; the value is `frame.value`."""
        held = sys.getrefcount(frame)
        back = self.frame
        frame.back = back
        self.fresh.suspended.discard(id(frame))
        outermost = back is None and not self._native_limit  # else it is begun as another ends
        self.frame, signal = frame, None
        try:
            if outermost:
                self._outermost()
            frame.depth = 0 if back is None else back.depth + 1
            if frame.depth and not frame.depth & 15:
                self._deeper(frame.depth)
            signal = self._level(frame, 0)
            while signal == NATIVE:
                frame.value = resumed(frame)
                if frame.value is not NULL:
                    break
                signal = self._level(frame, 0)
            return signal
        except Abandoned:
            clear(frame.locals)  # the run is made again: an error in its clause would hold itself by them
            raise
        finally:
            self.frame = back
            try:
                if signal == YIELD:
                    if closes_visibly(frame):
                        self.fresh.suspended.add(id(frame))
                elif signal is not None and sys.getrefcount(frame) > held:
                    frame.stay()  # an error of native code was kept, and with it the frames that called that
                else:
                    frame.leave(self._caller, self.fresh.prune if self.fresh.suspended else None)
                frame.back = None  # a suspended generator must not hold on to who ran it
            finally:
                if outermost:
                    self._native_limit = 0
                    recursion.ended(self)

    def _outermost(self) -> None:
        self._native_limit = self._limit = recursion.raised(self, 32 * _NATIVE_PER_FRAME)
        native: FrameType | None = sys._getframe()
        while native is not None:
            native, self._limit = native.f_back, self._limit - 1

    def _deeper(self, depth: int) -> None:
        """Let the native stack grow with the user's, and no further than his limit."""
        if depth >= self._limit:
            raise RecursionError("maximum recursion depth exceeded")
        recursion.raised(self, (depth + 32) * _NATIVE_PER_FRAME)

    def _level(self, frame: Frame, depth: int) -> int:
        """Run operations while so many errors are being handled; return the signal that ended it."""
        stack, handled, variables = frame.stack, frame.handled, frame.locals
        numbers = self.numbers
        append = stack.append
        _, operations, _, handlers, *_ = frame.program
        while True:
            while len(handled) > depth:
                signal = self._handling(frame, handled[depth], depth)
                if signal != LEAVE:
                    return signal
            at = frame.at
            try:
                if frame.thrown is not None:
                    at -= 1
                    error, frame.thrown = frame.thrown, None
                    if depth:
                        raise error
                    _thrown(error)
                while True:
                    handler, argument, lifts = operations[at]
                    if handler is load_local:  # a third of all operations: worth no call
                        if variables[argument] is not UNBOUND:  # kept nowhere else: what is dropped must die
                            append(variables[argument])
                            at += 1
                            continue
                    if numbers.about and not lifts:
                        self._make_plain(stack)
                    if self.fresh.suspended:
                        drops = may_drop(handler, argument, stack, variables)
                        target = handler(frame, stack, argument)
                        if drops and (handler not in _LOOPS or target is not None):
                            self.fresh.prune()
                    else:
                        target = handler(frame, stack, argument)
                        if self.fresh.suspended:
                            self.fresh.prune()
                    if target is None:
                        at += 1
                    elif target >= 0:
                        if target <= at and self._turns() and not (depth or self.fresh.suspended):
                            frame.at = target
                            return NATIVE
                        at = target
                    else:
                        frame.at = at + 1
                        if target != ENTER:
                            return target
                        break
            except Abandoned:
                raise
            except BaseException as error:
                found = handlers.get(at)
                if found is None:
                    self.raised_here = self.raised_here or is_own(error.__traceback__)
                elif from_outside(error):
                    self._stopped_from_outside(error)
                if frame.again is not None:
                    error.__context__, error.__traceback__ = frame.again
                    frame.again = None
                else:
                    error.__traceback__ = entered(error.__traceback__, frame, at, found is None)
                if found is None:
                    raise
                target, height, pushed = found
                del stack[height:]
                if pushed:
                    stack.append(at)
                if not self.is_known(error):
                    self.new(error)  # C code made it
                    self.raised(error)
                stack.append(error)
                frame.at = target
                if operations[target][0] is _PUSH:
                    _PUSH(frame, stack, None)
                    frame.at = target + 1
                    signal = self._level(frame, depth + 1)
                    if signal != LEAVE:
                        return signal

    def _turns(self) -> bool:
        """Count a jump back, or a call; whether frames are to go on natively."""
        self.turns += 1
        if not self.turns % _TURNS:
            now, before = self.clock(), self._looked
            self._looked = now
            if self.refused:  # and calls are answered for from here, which takes longer than what is let go
                self.leaving = self.leaving or now - before < _TURNS * _QUICK
            elif self.turns > self.most_turns + _PER_OP * len(self.recorder.steps):
                self.refuse(f"{self.turns} turns of loops took longer to record than may pay off")
        return self.leaving

    def _handling(self, frame: Frame, error: BaseException, depth: int) -> int:
        """Go on in the handler of an error, which is made the native current one."""
        kept = error.__context__, error.__traceback__
        try:
            raise error
        except BaseException as current:
            current.__context__, current.__traceback__ = kept
            return self._level(frame, depth + 1)

    @property
    def may_be_faulty(self) -> bool:
        """Whether the error that ended the run may be the machinery's own, and the run can be made again."""
        return self.raised_here and self.repeatable and not self.fresh.generators

    def _stopped_from_outside(self, error: BaseException) -> None:
        """Go on without recording: what a function does about an interrupt it does not do each time."""
        self.recorder.once = f"a {type(error).__name__} stopped it, which it caught"
        self.refuse(self.recorder.once)

    def _make_plain(self, stack: list[Any]) -> None:
        for place, value in enumerate(stack):
            if type(value) in LIFTED:
                stack[place] = self.plain(value)

    def passed(
        self, function: Any, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...] | list[Any], dict[str, Any]]:
        """The arguments of a call, lifted numbers made plain unless the function can take them."""
        given = (*args, *kwargs.values())
        if not any(type(value) in LIFTED for value in given) or self._takes_lifted(function):
            return args, kwargs
        named = {name: self.plain(value) for name, value in kwargs.items()}
        if type(args) is list:
            args[:] = map(self.plain, args)
            return args, named
        return tuple(map(self.plain, args)), named

    def _takes_lifted(self, function: Any) -> bool:
        inner = function.__func__ if type(function) is MethodType else function
        if heap_class(type(inner)) and type(called := lookup(type(inner), "__call__")) is FunctionType:
            inner = called  # that of an object
        if type(inner) is FunctionType:
            return is_internal(inner.__code__.co_filename) or not inner.__code__.co_flags & _GENERATOR
        if type(inner) is BuiltinFunctionType:
            owner = type(inner.__self__)
            if owner in (ModuleType, NoneType):
                return inner in TAKING
            return inner.__name__ in METHODS.get(owner, ())
        if type(inner) is type:
            return inner in TAKING or heap_class(inner)
        return False

    def _with_containers(self, values: list[Any], made: tuple[Any, ...]) -> list[Any]:
        """The variables of a call; the tuple and the dictionary that it makes may hold lifted numbers."""
        for at, value in enumerate(values) if made else ():
            if any(value is each for each in made):
                values[at] = (
                    self.filled(tuple, value) if type(value) is tuple else self.filled_map(value.items())
                )
        return values

    # ---- generators

    def _generate(self, frame: Frame) -> Generator[Any, Any, Any]:
        """A native generator that runs a frame from yield to yield."""
        while (signal := self._run(frame)) == YIELD:
            goes_on = False
            while not goes_on:
                try:
                    frame.stack.append((yield raw(frame.taken()) if self.refused else frame.taken()))
                except BaseException as error:
                    if self.abandoned:  # what it would do now is done in the run that is made anew
                        return None
                    frame.thrown = error  # and in no variable here, which its traceback would lead to
                goes_on = frame.thrown is None or self._throw(frame)
        return (yield from frame.taken()) if signal == NATIVE else self.plain(frame.taken())

    def _throw(self, frame: Frame) -> bool:
        """Throw an error into a suspended frame; False where what it yields from yielded once more."""
        error, frame.thrown = frame.thrown, None
        argument = frame.program.operations[frame.at - 1][1]
        if argument is not None:  # a `yield from`: the error goes to what it draws from
            source = frame.stack[-1]
            try:
                if issubclass(type(error), GeneratorExit):
                    close = self.attribute(source, "close", None)
                    if close is not None:
                        self.call(close)
                else:
                    throw = self.attribute(source, "throw", None)
                    if throw is not None:
                        frame.value = self.call(throw, (error,))
                        return False
            except StopIteration as end:
                if not issubclass(type(error), GeneratorExit):
                    frame.at = delegated(frame.stack, argument, end)
                    return True
                error = end
            except BaseException as other:
                error = other
        frame.stack.append(None)  # what `yield` would have given
        frame.thrown = error
        del error  # its traceback may lead here, and the circle would keep all frames
        return True

    # ---- calls that depend on the calling frame

    def users(self) -> Iterator[Frame | FrameType]:
        """The frames that a plain run would have, innermost first: interpreted ones and native ones."""
        native: FrameType | None = sys._getframe()
        while native is not None:
            if native.f_code is _RUN:
                yield locals_of(native)["frame"]
            elif not is_machinery(native.f_code.co_filename):
                yield native
            native = native.f_back

    def _caller(self) -> FrameType | None:
        """The native frame that called the outermost interpreted one."""
        return next((each for each in self.users() if type(each) is FrameType), None)

    def _locals(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.refuse("locals() was called")
        return frame.bindings()

    def _globals(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.refuse("globals() was called")
        return frame.globals

    def _vars(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.call(vars, args, kwargs) if args else self._locals(frame, args, kwargs)

    def _dir(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.call(dir, args, kwargs) if args else sorted(self._locals(frame, args, kwargs))

    def _evaluate(self, function: Any, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """eval and exec, in the scopes of the calling frame where none are given."""
        self.refuse(f"{function.__name__}() was called")
        source, *scopes = args or (None,)
        if type(source) in (str, bytes):  # with what its module imports from __future__, not this one
            text = source.lstrip() if function is eval else source
            source = compile(text, "<string>", function.__name__, frame.program.code.co_flags & _FUTURE, True)
            args = (source, *scopes)
        if args and (not scopes or scopes[0] is None) and kwargs.get("globals") is None:
            local = scopes[1] if len(scopes) > 1 else kwargs.get("locals")
            rest = {name: value for name, value in kwargs.items() if name not in ("globals", "locals")}
            return function(source, frame.globals, frame.bindings() if local is None else local, **rest)
        return function(*args, **kwargs)

    def _frame_of(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """sys._getframe, with a forged frame for an interpreted one."""
        self.abandon("sys._getframe() was called")
        users = list(self.users())
        if len(args) > 1 or kwargs or args and not 0 <= args[0] < len(users):
            return sys._getframe(*args, **kwargs)
        found = users[args[0] if args else 0]
        return forged(found, True) if isinstance(found, Frame) else found

    def _build_class(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A class statement: its body is interpreted, and its metaclass called."""
        body, name, *given = args
        program = program_of(body.__code__, OPERATIONS)
        if program is None:
            self.refuse(f"the body of class {name} cannot be interpreted")
            return builtins.__build_class__(*args, **kwargs)
        bases: Any = types.resolve_bases(given)
        kind, names, named = types.prepare_class(name, tuple(bases), kwargs)
        inner = Frame(self, program, body, [UNBOUND] * len(program.variables))
        inner.names = names
        self.new(names)
        self._run(inner)
        if bases is not given:
            names["__orig_bases__"] = tuple(given)
        made = self._make_class(kind, (name, tuple(bases), names), named)
        cell = inner.value
        if issubclass(type(made), type) and type(cell) is CellType and contents(cell) is not made:
            if contents(cell) is UNBOUND:
                raise RuntimeError(
                    f"__class__ not set defining {name!r} as {made!r}. Was __classcell__ propagated to "
                    "type.__new__?"
                )
            raise TypeError(f"__class__ set to {contents(cell)!r} defining {name!r} as {made!r}")
        return self.new(made)

    def _make_class(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The class; natively where no Python code of the user's has a say in it."""
        _, bases, names = args
        hooks = [lookup(base, "__init_subclass__") for base in bases if issubclass(type(base), type)]
        hooks += [lookup(type(value), "__set_name__") for value in names.values()]
        if kind is type and not any(issubclass(type(hook), (FunctionType, classmethod)) for hook in hooks):
            return type(*args, **kwargs)
        return self.call(kind, args, kwargs)

    own_calls: ClassVar[dict[Any, Callable[..., Any]]] = {
        builtins.locals: _locals,
        builtins.globals: _globals,
        builtins.vars: _vars,
        builtins.dir: _dir,
        builtins.eval: lambda self, *call: self._evaluate(eval, *call),
        builtins.exec: lambda self, *call: self._evaluate(exec, *call),
        builtins.__build_class__: _build_class,
        sys._getframe: _frame_of,
    }


def _thrown(error: BaseException) -> None:
    """Raise what is thrown into a generator that handles none: the context is no matter of its caller's."""
    context = error.__context__
    try:
        raise error
    except BaseException:
        error.__context__ = context
        raise


def closes_visibly(frame: Frame) -> bool:
    """Whether closing a suspended frame runs code of the user's: inside of try, with, `yield from`."""
    at = frame.at - 1
    found = frame.program.handlers.get(at)
    if found is not None and frame.program.operations[found[0]][0] is not _END_OF_GENERATOR:
        return True
    return frame.program.operations[at][1] is not None and type(frame.stack[-1]) not in ITERATORS


_LOOPS = frozenset(OPERATIONS[name][0] for name in ("for_each", "for_each_kept"))
_END_OF_GENERATOR = OPERATIONS["stop_iteration_error"][0]  # around all of a generator, from 3.12 on
_RUN = Interpreting._run.__code__
