"""`__torch_function__`: who answers a call in place of Lamina's own function.

Three may: classes derived from `Tensor`, objects that are no tensors but have the method (duck arrays), and
modes that the user opened.  `OPEN` is empty until the first of them is there, and edges look at nothing else
then: a plain program pays for one global where it pays at all.

An edge is where a public function begins: `refusing` around functions written in Python, the functions that
calls.py makes of records, the in-place forms, factories.  It asks `answered(function, args, kwargs)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import _getframe, exc_info
from typing import Any, NamedTuple
from weakref import ref

from ..ir.dtypes import home_of
from ..ir.errors import ArgumentError
from . import modes
from .places import is_internal

OPEN: list[str] = []  # why edges must ask: there were "classes", "objects", "modes"
UNSERVED: Any = modes.UNSERVED
_overriding: dict[type, bool] = {}

# Functions that take objects for what they are (to save them, say, or to call them): nobody answers in their
# place.  What they call asks as ever.
_UNHEARD_ROOMS = frozenset(
    "lamina.runtime." + room
    for room in ("batched", "checkpointing", "checkpoints.saving", "derivatives", "func", "generator",
                 "gradcheck", "printing", "threads")
)  # fmt: skip
_UNHEARD = frozenset(
    ("calculate_gain", "from_file", "from_numpy", "frombuffer", "is_tensor", "load_state_dict", "typename")
)
# Functions that read an object's values, whatever it is: a mode may answer, the object does not.
_HEARD_BY_MODES = frozenset(
    ("as_tensor", "asarray", "tensor", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor",
     "sparse_csr_tensor")
)  # fmt: skip


class Met(ArgumentError):
    """An object with `__torch_function__` was met inside of a function, which should have asked it."""


class Heard(NamedTuple):
    """Who may answer a function's calls."""

    by_modes: bool = True
    by_operands: bool = True


def hearers(function: Callable) -> Heard:
    """Who may answer the calls of a function that is written in Python."""
    room, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    if not room.startswith("lamina."):
        return Heard()
    if room in _UNHEARD_ROOMS or room.startswith("lamina.data.") or name == "__init__" or name in _UNHEARD:
        return Heard(by_modes=False, by_operands=False)
    return Heard(by_operands=name not in _HEARD_BY_MODES)


def overrides(kind: type) -> bool:
    """Whether objects of a class answer calls."""
    found = _overriding.get(kind)
    if found is None:
        method = getattr(kind, "__torch_function__", None)
        plain = home_of(kind).startswith("lamina.") and getattr(kind, "_is_tensor", False)
        off = getattr(method, "disabled", False) or getattr(
            getattr(method, "__func__", None), "disabled", False
        )
        # PyTorch's own tensors would answer by calling the same function again, without end.
        theirs = any((home_of(base), base.__name__) == ("torch", "Tensor") for base in kind.__mro__)
        found = method is not None and not plain and not off and not theirs
        if len(_overriding) > 4096:
            _overriding.clear()
        _overriding[kind] = found
    return found


def relevant(values: Iterable[Any], deep: int = 2) -> list[Any]:
    """The objects that may answer: one of each class, subclasses before what they derive from.

    deep: how many lists and tuples they may stand in.
    """
    found: list[Any] = []
    for x in values:
        if type(x) in (list, tuple):
            inner = relevant(x, deep - 1) if deep else []
        else:
            inner = [x] if overrides(type(x)) else []
        for y in inner:
            kind = type(y)
            if not any(type(z) is kind for z in found):
                at = next((i for i, z in enumerate(found) if issubclass(kind, type(z))), len(found))
                found.insert(at, y)
    return found


def answered(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What those answer who override a call; UNSERVED where nobody does.  Ask `OPEN` first.

    Raises ArgumentError (a TypeError) where all who could do not want to.
    """
    if modes.CHANGED:
        stack = modes.local.functions
        if stack:
            return _asked_mode(stack, function, args, kwargs)
        if modes.local.unanswered:
            return answered_below(function, args, kwargs)
    found = relevant((*args, *kwargs.values()) if kwargs else args)
    if not found:
        return answered_below(function, args, kwargs)
    return asked(found, function, args, kwargs)


def answered_below(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The call with plain tensors in the places of those whose class answers below gradients (below.py)."""
    if "dispatches" not in OPEN or not _dispatching((*args, *kwargs.values())):
        return UNSERVED
    if any(callable(x) and not isinstance(x, TENSOR[0]) for x in args):  # which is to see the instances
        return UNSERVED
    return BELOW[0](function, args, kwargs)


def _dispatching(values: Iterable[Any], deep: int = 2) -> bool:
    return any(
        _dispatching(x, deep - 1)
        if type(x) in (list, tuple) and deep
        else getattr(type(x), "_dispatches", False)
        for x in values
    )


BELOW: list[Callable] = []  # below.py's `called` and `outer`, which stand above this module


def asked(found: list[Any], function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What the first of these answers that does."""
    _refuse_recording()
    kinds = tuple(map(type, found))
    for x in found:
        result = type(x).__torch_function__(function, kinds, args, kwargs)
        if result is not NotImplemented:  # maybe of a method that no edge stands around
            return BELOW[1](result) if "dispatches" in OPEN else result
    name = getattr(function, "__name__", repr(function))
    raise ArgumentError(
        f"no implementation found for 'lamina.{name}' on types that implement __torch_function__: "
        f"{[kind.__name__ for kind in kinds]}"
    )


def _refuse_recording() -> None:
    if modes.CHANGED and modes.local.hook is not None:
        modes.tell("refuse", "__torch_function__ answers the program's calls")


class _popped(modes._Mode):
    """While a mode answers, those further out are the ones that hear its calls."""

    def __init__(self, stack: tuple):
        self._changes = {"functions": stack}


def _asked_mode(stack: tuple, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    _refuse_recording()
    *outer, last = stack
    mode = last()
    kinds = tuple(map(type, relevant((*args, *kwargs.values()))))
    with _popped(tuple(outer)):
        result = mode.__torch_function__(function, kinds, args, kwargs)
    if result is NotImplemented:
        raise ArgumentError(f"{type(mode).__name__}.__torch_function__ returned NotImplemented")
    return result


def met(function: Callable, args: tuple, kwargs: dict[str, Any], up: int = 2) -> Any:
    """The same where a function fails on what may be a duck array: the first one tells edges to ask.

    up: how many frames above is who called the function.  Raises Met where that was one of Lamina's, whose
    edge then asks.
    """
    if modes.CHANGED and modes.local.values is not None:
        return modes.local.values(function, args, kwargs)
    if "objects" not in OPEN:
        if modes.local.unanswered or not (found := relevant((*args, *kwargs.values()))):
            return UNSERVED
        OPEN.append("objects")
        if is_internal(_getframe(up).f_code.co_filename):
            raise Met(f"{type(found[0]).__name__} was met inside of a function")
        return asked(found, function, args, kwargs)
    return UNSERVED


def of_foreign(operator: Callable, args: tuple) -> Any:
    """What a Python operator gives of an operand that no op takes: what is answered for it, else
    NotImplemented, so that Python asks the operand's class."""
    found = answered(operator, args, {}) if OPEN else UNSERVED
    if found is UNSERVED:
        found = met(operator, args, {}, up=3)
    return NotImplemented if found is UNSERVED else found


def met_late(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The same where a function has failed, maybe as a duck array was met further in."""
    if modes.local.unanswered or not (found := relevant((*args, *kwargs.values()))):
        return UNSERVED
    if isinstance(found[0], TENSOR[0]):
        return UNSERVED  # which was asked before
    if "objects" not in OPEN:
        OPEN.append("objects")
    elif not isinstance(exc_info()[1], Met):
        return UNSERVED  # the failure was what somebody answered
    if is_internal(_getframe(2).f_code.co_filename):
        raise Met(f"{type(found[0]).__name__} was met inside of a function")
    return asked(found, function, args, kwargs)


TENSOR: list[type] = []  # tensor.py's class, which stands above this module


# ---- blocks ------------------------------------------------------------------------------------------------
class DisableTorchFunctionSubclass(modes._Mode):
    """A block in which tensors of derived classes are plain ones, and duck arrays are no operands."""

    _changes = {"unanswered": True}


class DisableTorchFunction(modes._Mode):
    """The same, in which modes do not answer either."""

    _changes = {"unanswered": True, "functions": ()}


class TorchFunctionMode(modes._Mode):
    """A block in which `__torch_function__(self, func, types, args, kwargs)` answers all calls.

    While it does, the calls that it makes go to modes further out.  A thread's state holds modes weakly, so
    that one whose block an interrupt ended ends with it.
    """

    def __torch_function__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if "modes" not in OPEN:
            OPEN.append("modes")
        self._changes = {"functions": (*modes.local.functions, ref(self))}
        super().__enter__()
        return self

    def clone(self) -> modes._Mode:
        return self
