"""A call's arguments as a key of a memo, and where among them its operands stand."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from ..ir.dtypes import DType
from ..ir.op import Op
from ..ir.types import Device, Type
from .storage import Literal
from .tensor import Tensor, wrap

_AS_IS = frozenset((int, str, type(None), type(Ellipsis), DType, Device, Type))


_PLAIN = frozenset((int, float, bool, str, type(None), type(Ellipsis)))


def spelled(a: Any) -> Any:
    """An argument as part of a key: it tells 1 from 1.0, from True and from 1 of a class of its own.

    And 0.0 from -0.0.  Tensors count by their types, sequences by what they hold.
    """
    kind = type(a)
    if kind is Tensor:
        return a._meta
    if kind in _AS_IS:
        return a
    if kind is bool:
        return (bool, a)
    if kind is float:
        return (kind, a) if a > 0 or a < 0 else (kind, repr(a))
    if isinstance(a, (tuple, list)):
        return (kind, *[x._meta if type(x) is Tensor else x if type(x) is int else spelled(x) for x in a])
    return a._meta if isinstance(a, Tensor) else (kind, a)


def is_constant(arg: Any) -> bool:
    """Whether an argument will always mean what it means now."""
    if isinstance(arg, tuple):
        return _PLAIN.issuperset(map(type, arg)) or all([is_constant(item) for item in arg])
    return arg is None or arg is Ellipsis or isinstance(arg, (int, float, complex, str, DType, Device))


# What stands in a memo for plan and picker, by identity: a key that was met once, and one that has no picker.
ONCE: Any = [None, None]
UNKNOWN: Any = [None, None]


def told_apart(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict] | None:
    """The arguments, with another tensor in each place where one stands twice.  None: there can't be one."""
    every = (*args, *kwargs.values())
    tensors = [
        x for a in every for x in (a if isinstance(a, (tuple, list)) else (a,)) if isinstance(x, Tensor)
    ]
    if len({id(x) for x in tensors}) == len(tensors):
        return args, kwargs
    if not all([type(x) is Tensor for x in tensors]):
        return None

    def other(x: Any) -> Any:
        if type(x) is tuple or type(x) is list:
            return type(x)(map(other, x))
        return wrap(x._data, x._meta) if isinstance(x, Tensor) else x

    return tuple(map(other, args)), {name: other(x) for name, x in kwargs.items()}


def straight(args: tuple, kwargs: dict) -> tuple:
    """The operands of a call whose arguments are these, and nothing else."""
    return args


def _listed(args: tuple, kwargs: dict) -> tuple:
    """The operands of a call that has them all in its first argument, a sequence."""
    return tuple(args[0])


def picker(op: Op, args: tuple, kwargs: dict[str, Any], operands: tuple) -> Callable | None:
    """A function of arguments that finds the operands among them, for all calls of this one's key.

    None where this call can't tell: it has something that is no constant, a tensor twice, or one that is no
    operand (linspace reads its); or an operand was computed of the arguments.
    """
    leaves: list[tuple[Any, Any]] = []  # (where a tensor stands among the arguments, the tensor)
    for at, arg in (*enumerate(args), *kwargs.items()):
        several = isinstance(arg, (tuple, list))
        items = [((at, n), x) for n, x in enumerate(arg)] if several else [(at, arg)]
        leaves += [(where, x) for where, x in items if isinstance(x, Tensor)]
        if not all([isinstance(x, Tensor) or is_constant(x) for _, x in items]):
            return None
    given, wanted = [id(x) for _, x in leaves], [id(x) for x in operands]
    if op.variadic and given == wanted and args and isinstance(args[0], (tuple, list)):
        return _listed if len(args[0]) == len(operands) else None
    if len(set(given)) < len(given) or not set(given) <= set(wanted):
        return None
    found = {id(x): at for at, x in leaves}
    if not all([x is None or id(x) in found or _is_number(x) for x in operands]):
        return None
    places = [found.get(id(x)) for x in operands]
    if places == list(range(len(operands))):  # the arguments begin with them
        count = len(operands)
        if count == len(args) and not kwargs:
            return straight
        return lambda args, kwargs: args[:count]
    if len(places) > 1 and all([type(at) is int for at in places]):
        several = itemgetter(*places)
        return lambda args, kwargs: several(args)
    parts = [(x, None) if at is None else (None, at) for x, at in zip(operands, places, strict=True)]

    def pick(args: tuple, kwargs: dict) -> tuple:
        picked = []
        for x, at in parts:
            if type(at) is tuple:
                at, n = at
                x = (args[at] if type(at) is int else kwargs[at])[n]
            elif at is not None:
                x = args[at] if type(at) is int else kwargs[at]
            picked.append(x)
        return tuple(picked)

    return pick


def _is_number(x: Tensor) -> bool:
    """Whether an operand is what a Python number among the arguments was turned into."""
    return type(x._storage) is Literal and x._storage.number is None
