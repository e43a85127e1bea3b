"""Composites that come down to ops of their first operand, each remembered as the calls that they are.

`x.chunk(2, 1)` is two slices, `x.flatten()` a reshape: which ones follows from the type of x and the other
arguments.  So a composite that says so (`by_type`) is applied to a graph's value, which has a type and
nothing else, when it comes with the same ones again; from then on its ops are called without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ir.errors import LaminaError
from ..ir.graph import Builder
from ..ir.types import Type
from .dispatch import bound, eager
from .interrupts import let_through
from .keys import ONCE, UNKNOWN
from .modes import CHANGED, local
from .plan import LIMIT, memo
from .tensor import Tensor

_PLAIN = frozenset((int, str, bool, type(None)))
MOST = 64  # ops that a call may be


def resolved(function: Callable) -> Callable:
    """A composite that is by type, remembered."""
    calls: dict[Type, dict[Any, Any]] = memo()

    def miss(args: tuple, kwargs: dict[str, Any]) -> Any:
        input, *rest = args
        if not all([_is_plain(a) for a in (*rest, *kwargs.values())]):
            return function(*args, **kwargs)
        key = (args[1:], *kwargs.items()) if kwargs else args[1:]
        known = calls.setdefault(input._meta, {})
        if len(known) >= LIMIT:
            known.clear()
        if known.get(key) is ONCE:
            known[key] = _steps(function, args, kwargs)
        else:
            known.setdefault(key, ONCE)  # most that come once come no more
        return function(*args, **kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not Tensor or (CHANGED and local.watched):
            return function(*args, **kwargs)
        input = args[0]
        try:
            known = calls[input._meta]
            single, steps = known[(args[1:], *kwargs.items())] if kwargs else known[args[1:]]
        except KeyError:
            steps = None
        except TypeError:  # an argument without hash
            return function(*args, **kwargs)
        if steps is None:
            return miss(args, kwargs)
        if single is not None:
            return single(input, *steps)
        return tuple([apply(input, *attrs) for apply, attrs in steps])

    return call


RESOLVING = resolved(len).__code__


def _is_plain(arg: Any) -> bool:
    return type(arg) in _PLAIN or (type(arg) is tuple and all([type(a) in _PLAIN for a in arg]))


def _steps(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """(The one op's function, its arguments), or (None, these of each op whose results are a tuple).

    UNKNOWN for a call that is no such thing.
    """
    try:
        with Builder("resolved") as b:
            value = b.param(args[0]._meta)
            found = function(value, *args[1:], **kwargs)
            several = type(found) is tuple
            graph = b.finish(list(found) if isinstance(found, tuple) else [found])
    except Exception as error:  # of the call's: it says so itself; or what has no type alone can't do
        let_through(error)
        return UNKNOWN
    steps, results = [], []
    for node in graph.nodes:
        op, attrs = node.op, dict(node.attrs)
        if len(node.inputs) != 1 or node.inputs[0] is not value or op.traits.host or len(graph.nodes) > MOST:
            return UNKNOWN
        try:
            (operand,), again = bound(op, (value, *attrs.values()), {})
        except LaminaError:
            return UNKNOWN
        if operand is not value or again != attrs:
            return UNKNOWN
        steps.append((eager(op), tuple(attrs.values())))
        results += node.visible
    if not steps or [*map(id, graph.results)] != [*map(id, results)]:
        return UNKNOWN
    if len(steps) == 1 and not (several and len(results) == 1):
        return steps[0]
    return (None, steps) if len(results) == len(steps) and several else UNKNOWN
