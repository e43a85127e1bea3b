"""Exceptions of Python and NumPy that a bad argument caused inside the package, told as Lamina's own.

Rules refuse most bad arguments before anything runs.  What none foresaw fails somewhere inside, and is caught
at the edge of the package: around a record's call (calls.py), a module's (nn/module.py), and by `refusing`
around functions and methods written in Python.  A call that succeeds pays for none of it but the wrapper.

An exception that passed through code of the user's (a hook, a dataset, a distance) is the user's and stays as
it is; so do those that are no consequence of an argument: files that are missing, warnings.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from types import FunctionType, TracebackType
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError, DimError, LaminaError, OutOfMemoryError
from ..ir.op import as_now
from . import modes
from .modes import CHANGED, local
from .overriding import OPEN, UNSERVED, Met, answered, hearers, met_late
from .places import STANDS_FOR, is_internal, is_pythons
from .tensor import NUMBERS, OPERANDS, Tensor, tensor_of

# What is told as what, the first that fits.  Others stay as they are.
TOLD: tuple[tuple[type[Exception], type[LaminaError]], ...] = (
    (MemoryError, OutOfMemoryError),
    (RecursionError, ArgumentValueError),
    (np.exceptions.ComplexWarning, ArgumentError),  # an error in this package (runtime/__init__.py)
    (IndexError, DimError),
    (KeyError, ArgumentValueError),
    (AttributeError, ArgumentError),
    (TypeError, ArgumentError),
    (ValueError, ArgumentValueError),
    (ArithmeticError, ArgumentValueError),
    (UnboundLocalError, ArgumentValueError),  # a variable that no branch set
)
_PLACES = [os.path.dirname(os.path.abspath(str(m.__file__))) for m in (np, ml_dtypes)]
_PLACES.append(os.path.join(os.path.dirname(_PLACES[0]), "scipy"))  # which is not loaded for this
_LIBRARIES = tuple(place + os.sep for place in _PLACES)


def _is_users(traceback: TracebackType | None) -> bool:
    """Whether an exception came from or through code that is neither Lamina's nor a library's below it."""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = code.co_filename
        if code in STANDS_FOR:
            return True
        if not (is_internal(name) or is_pythons(name) or name.startswith(_LIBRARIES)):
            return True
        traceback = traceback.tb_next
    return False


Told = tuple[LaminaError, Exception | None]  # what is raised, and from which: nothing where all is said


def told(error: Exception, call: str, arguments: Mapping[str, Any]) -> Told | None:
    """The error that says which argument of `call` was the reason; None for one that stays as it is."""
    if isinstance(error, LaminaError) or _is_users(error.__traceback__):
        return None
    if isinstance(error, RecursionError) and _is_deep():
        return None  # whoever called had recursed already
    if isinstance(error, AttributeError) and (error.name is None or hasattr(type(error.obj), "__getattr__")):
        return None  # said on purpose, or by an object that answers look-ups itself
    kind = next((mine for theirs, mine in TOLD if isinstance(error, theirs)), None)
    if kind is None:
        return None
    reason = str(error) or type(error).__name__
    if isinstance(error, KeyError):
        reason = f"no such key: {reason}"
    elif isinstance(error, RecursionError):
        reason = "an argument is nested too deeply, or holds itself"
    names = [name for name, value in arguments.items() if value is getattr(error, "obj", error)]
    if isinstance(error, AttributeError) and names:  # which attribute it lacks says what is needed
        needed = "a tensor" if hasattr(Tensor, error.name) else f"something with a {error.name}"
        lacks = f"{call}: {names[0]} must be {needed}, not {type(arguments[names[0]]).__name__}"
        return kind(lacks, *_lines(arguments)), None
    elif reason.startswith(f"{call}()"):
        rule = reason
    else:
        rule = f"{call}: {reason}"
    return kind(rule, *_lines(arguments)), error


def _lines(arguments: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {_shown(value)}" for name, value in arguments.items()]


def _is_deep() -> bool:
    """Whether the stack above is half as deep as it may be."""
    frame, left = sys._getframe(), sys.getrecursionlimit() // 2
    while frame is not None and left:
        frame, left = frame.f_back, left - 1
    return frame is not None


def _shown(value: Any) -> str:
    """An argument in an error: a tensor's type, a short constant's text, the kind of anything else."""
    meta = getattr(value, "_meta", None)
    if meta is not None:
        return str(meta)
    if value is None or type(value) in (bool, int, float, str, bytes):
        if isinstance(value, int) and abs(value) >> 128:
            return "an int of many digits"
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    return f"of type {type(value).__name__}"


def given(function: Callable, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments of a call by their names, as far as they fit the function's signature."""
    try:
        bound = signature(function).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return {f"argument {n}": value for n, value in enumerate(args)} | kwargs
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if isinstance(value, tuple) and bound.signature.parameters[name].kind.name == "VAR_POSITIONAL":
            found |= {f"{name}[{n}]": item for n, item in enumerate(value)}
        elif bound.signature.parameters[name].kind.name == "VAR_KEYWORD":
            found |= value
        else:
            found[name] = value
    return found


def flags_of(function: Callable) -> tuple[tuple[int, str], ...]:
    """The arguments of a function that are True or False where they are left out: place and name.

    The place of one that is given by name alone is beyond all.
    """
    named = enumerate(signature(function).parameters.values())
    found = ((sys.maxsize if p.kind is p.KEYWORD_ONLY else at, p) for at, p in named)
    return tuple((at, p.name) for at, p in found if type(p.default) is bool)


def require_flag(call: str, name: str, value: Any) -> None:
    """Refuse what is no bool, nor a number that stands for one.  Raises ArgumentError."""
    if not isinstance(value, (bool, int, np.bool_)) and not getattr(value, "ndim", 1) == 0:
        raise ArgumentError(f"{call}({name}): must be a bool, not {type(value).__name__}")


def require_flags(call: str, flags: tuple, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """`require_flag` for each of these arguments of a call."""
    for at, name in flags:
        value = args[at] if at < len(args) else kwargs.get(name, False)
        if value is not None and type(value) is not bool:
            require_flag(call, name, value)


_TENSORS = {Tensor}


def _of_lamina(call: str, made: Any, args: Sequence[Any]) -> Any:
    """What a function written with ops made, as tensors: given none, ops compute with NumPy's arrays.

    Raises ArgumentError where what stands in the place of a tensor is nothing that an op takes.
    """
    if isinstance(made, (tuple, list)):
        if _TENSORS.issuperset(map(type, made)):
            return made
        parts = [_of_lamina(call, part, args) for part in made]
        if all(map(operator.is_, parts, made)):
            return made
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    if not isinstance(made, (np.ndarray, np.generic)):
        return made
    for x in args[:1]:
        if not isinstance(x, OPERANDS):
            raise ArgumentError(f"{call}: must be given tensors, not {type(x).__name__}")
    return tensor_of(made)


# Functions that make what they were told to in the dtype of `out`.
FILLING = frozenset(("rand", "randn", "randint", "randperm", "fft_fftfreq", "fft_rfftfreq"))
# out.py's: into(name, function, args, kwargs, out) calls a function and leaves its results in tensors.
writer_of_out: list[Callable] = []


def refusing(
    function: Callable, call: str | None = None, takes_out: bool = False, home: str | None = None
) -> Callable:
    """The function, whose inner failures are errors that name it and its arguments.

    call: the name; without, the function's, and for a constructor that of the object's class.
    takes_out: it has `out=` besides its own arguments.  home: the module that offers it by that name, where
    pickles find it.
    """
    name = call or function.__name__
    room = getattr(function, "__module__", None) or ""
    flags = flags_of(function) if room.startswith(("lamina.runtime", "lamina.ir")) else ()
    first = flags[0][0] if flags else 0
    lifts = takes_out and name in OF_NUMBERS
    fills = takes_out and name in FILLING  # in the dtype that `out` has
    by_modes, by_operands = hearers(function)
    steps_of = vars(function).get("steps_of") if type(function) is FunctionType else None  # resolved.py's

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if steps_of is not None and args and type(args[0]) is Tensor and not (CHANGED and local.watched):
            try:
                known = steps_of[args[0]._meta]
                single, steps = known[(args[1:], *kwargs.items())] if kwargs else known[args[1:]]
            except (KeyError, TypeError):
                steps = None
            if steps is not None:
                if single is not None:
                    return single(args[0], *steps)
                made = []  # a comprehension would make a cell of `args`, in each call of any function
                for apply, attrs in steps:
                    made.append(apply(args[0], *attrs))
                return tuple(made)
        if (
            OPEN
            and by_modes
            and (by_operands or modes.local.functions)
            and (found := answered(wrapper, args, kwargs)) is not UNSERVED
        ):
            return found
        if flags and (kwargs or len(args) > first):
            require_flags(name, flags, args, kwargs)
        if takes_out and "out" in kwargs:
            out = kwargs.pop("out")
            if out is not None:
                if fills and kwargs.get("dtype") is None and hasattr(out, "dtype"):
                    kwargs["dtype"] = out.dtype
                # Not by `wrapper`: who looks through closures for code of the user's would go in circles.
                return writer_of_out[0](name, _without_out(function, name), args, kwargs, out)
        kind = type(args[0]) if takes_out and args else Tensor
        if kind is not Tensor and (lifts or kind is np.ndarray) and _is_lifted(args, lifts):
            args = (tensor_of(args[0]), *args[1:])
        try:
            made = function(*args, **kwargs) if kwargs else function(*args)
            return made if not takes_out or type(made) is Tensor else _of_lamina(name, made, args)
        except Exception as error:
            if (now := as_now(function, args, kwargs)) is not None:
                return wrapper(*now[0], **now[1])
            if not by_operands:
                if isinstance(error, Met):  # from now on what it calls asks
                    return function(*args, **kwargs)
            elif (found := met_late(wrapper, args, kwargs)) is not UNSERVED:
                return found
            refuse(error, name, function, args, kwargs)

    if home is not None:
        wrapper.__module__, wrapper.__qualname__ = home, name
    vars(wrapper)["edge"] = Edge(name, flags, first, takes_out, lifts)
    return wrapper


_without_out = functools.cache(refusing)  # of functions that take `out`, which are some hundred


def _is_lifted(args: Sequence[Any], numbers: bool) -> bool:
    """Whether the first argument becomes a tensor: an array, or a number (`numbers`) without tensors."""
    kind = type(args[0])
    alone = numbers and kind in NUMBERS and not any([isinstance(x, Tensor) for x in args])
    return alone or kind is np.ndarray


OF_NUMBERS = frozenset(("div",))  # functions written with ops that take two numbers, as PyTorch's do


class Edge(NamedTuple):
    """What `refusing` does around a function, for who calls the function itself."""

    call: str
    flags: tuple[tuple[int, str], ...]
    first: int  # the place of the first flag
    takes_out: bool
    takes_numbers: bool

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse what the wrapper refuses before the call."""
        if self.flags and (kwargs or len(args) > self.first):
            require_flags(self.call, self.flags, args, kwargs)

    def lifts(self, args: Sequence[Any]) -> bool:
        """Whether the wrapper makes a tensor of the first argument."""
        return bool(args) and _is_lifted(args, self.takes_numbers)

    def leave(self, made: Any, args: Sequence[Any]) -> Any:
        """What the wrapper returns of what the function made: that itself, mostly."""
        return _of_lamina(self.call, made, args) if self.takes_out else made


WRAPPER = refusing(len).__code__


def unwrapped(function: Any) -> Any:
    """What `refusing` stands around; anything else as it is."""
    if type(function) is FunctionType and function.__code__ is WRAPPER:
        return vars(function)["__wrapped__"]
    return function


def refuse(error: Exception, call: str, function: Callable, args: tuple, kwargs: dict) -> NoReturn:
    """Raise what a call failed with, told as an error of its arguments."""
    arguments = given(function, args, kwargs)
    this = arguments.pop("self", None)
    if this is not None and not hasattr(this, "_meta"):  # an object's method: tensors are operands
        kind = type(this).__name__
        call = kind if call == "__init__" else f"{kind}.{call}"
    else:
        arguments = given(function, args, kwargs)
    mine = told(error, call, arguments)
    try:
        if mine is None:
            raise error
        raise mine[0] from mine[1]
    finally:
        del error, mine  # this frame stands in their traceback: they would hold themselves, and the arguments


def refusing_methods(classes: Iterable[Any], *names: str) -> None:
    """Make the constructors of Lamina's classes among these refuse, inherited ones too, and more methods."""
    for cls in classes:
        for base in cls.__mro__ if isinstance(cls, type) else ():
            if not base.__module__.startswith("lamina."):
                continue
            for name in ("__init__", *names):
                method = vars(base).get(name)
                if isinstance(method, FunctionType) and not hasattr(method, "__wrapped__"):
                    setattr(base, name, refusing(method))


def refusing_names(namespace: dict[str, Any], room: str, spared: tuple[str, ...] = ()) -> None:
    """Make the public functions with arguments refuse that a module holds and `room` wrote: "lamina.nn".

    spared: those that are one op, which refuses by itself; the wrapper takes 100 ns.
    """
    for name, value in list(namespace.items()):
        if isinstance(value, FunctionType) and value.__module__.startswith(room) and name[0] != "_":
            if name in spared:
                continue
            if not hasattr(value, "__wrapped__") and signature(value).parameters:
                namespace[name] = refusing(value, name, home=namespace["__name__"])
