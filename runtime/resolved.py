"""Composites that come down to ops of their operands, each remembered as the calls that they are.

`x.chunk(2, 1)` is two slices, `x.flatten()` a reshape: which ones follows from the type of x and the other
arguments.  So a composite that says so (`by_type`) is applied to a graph's value, which has a type and
nothing else, when it comes with the same ones again; from then on its ops are called without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ..ir.errors import LaminaError
from ..ir.graph import Builder
from ..ir.types import Type
from .calls import eager
from .dispatch import bound, known_plan, run
from .interrupts import let_through
from .keys import ONCE, UNKNOWN, spelled
from .modes import CHANGED, local
from .plan import LIMIT, Plan, memo, remember
from .tensor import Tensor

_PLAIN = frozenset((int, str, bool, type(None)))
MOST = 64  # ops that a call may be


def resolved(function: Callable, several: bool = False) -> Callable:
    """A composite that is by type, remembered.

    several: it has several operands, and may be one op of these.
    """
    return _of_several(function) if several else _of_one(function)


def _of_one(function: Callable) -> Callable:
    calls: dict[Type, dict[Any, Any]] = memo()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not Tensor or (CHANGED and local.watched):
            return function(*args, **kwargs)
        if all([_is_plain(a) for a in (*args[1:], *kwargs.values())]):
            key = (args[1:], *kwargs.items()) if kwargs else args[1:]
            if len(calls) >= LIMIT:
                calls.clear()
            known = calls.setdefault(args[0]._meta, {})
            if len(known) >= LIMIT:
                known.clear()
            if known.get(key) is ONCE:
                known[key] = _steps(function, args, kwargs)
            else:
                known.setdefault(key, ONCE)  # most that come once come no more
        return function(*args, **kwargs)

    vars(call)["steps_of"] = calls  # `refusing`, which stands around it, looks there
    return call


def _of_several(function: Callable) -> Callable:
    calls: dict[Any, Any] = memo()

    def miss(key: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        every = (*args, *kwargs.values())
        if all([isinstance(a, Tensor) or type(a) is float or _is_plain(a) for a in every]):
            if calls.get(key) is ONCE:
                calls[key] = _whole(function, args, kwargs)
            elif key not in calls:
                remember(calls, key, ONCE)
        return function(*args, **kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if CHANGED and local.watched:
            return function(*args, **kwargs)
        key: Any = tuple([a._meta if type(a) is Tensor else a if a is None else spelled(a) for a in args])
        try:
            if kwargs:
                rest = [a if a is None or type(a) is str else spelled(a) for a in kwargs.values()]
                key = (key, *kwargs, *rest)
            plan, places = calls.get(key, UNKNOWN)
        except (TypeError, RecursionError):  # an argument without hash, or nested without end
            plan = key = None
        if plan is None:
            return function(*args, **kwargs) if key is None else miss(key, args, kwargs)
        if kwargs:
            args = (*args, *kwargs.values())
        return run(plan.op, plan, tuple([None if at is None else args[at] for at in places]))

    return call


RESOLVING = frozenset((resolved(len).__code__, resolved(len, several=True).__code__))


def _whole(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[Plan, tuple] | Any:
    """(The plan of the one op that a call is, where its operands stand among the arguments), or UNKNOWN."""
    every = (*args, *kwargs.values())
    try:
        with Builder("resolved") as b:
            values = [b.param(a._meta) if isinstance(a, Tensor) else a for a in every]
            named = dict(zip(kwargs, values[len(args) :], strict=True))
            found = function(*values[: len(args)], **named)
            graph = b.finish([found])
    except Exception as error:
        let_through(error)
        return UNKNOWN
    if len(graph.nodes) != 1 or graph.nodes[0].op.traits.host or found is not graph.nodes[0].outputs[0]:
        return UNKNOWN
    node, places = graph.nodes[0], {id(v): at for at, v in enumerate(values)}
    if len(node.visible) != 1 or not all([v is None or id(v) in places for v in node.inputs]):
        return UNKNOWN
    at = tuple([None if v is None else places[id(v)] for v in node.inputs])
    operands = tuple([None if n is None else every[n] for n in at])
    return known_plan(node.op, operands, dict(node.attrs)), at


def _planned(plan: Plan, input: Tensor) -> Any:
    return run(plan.op, plan, (input,))


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
        again = None
        if len(op.all_outputs) == 1 and not any([type(a) is float for a in attrs.values()]):
            with suppress(LaminaError):  # a function that takes some by name alone
                again = bound(op, (value, *attrs.values()), {})
        if again is not None and again[0][0] is value and again[1] == attrs:
            steps.append((eager(op), tuple(attrs.values())))
        else:  # its function would look for the plan each time: by all arguments, or as 0.0 == -0.0
            steps.append((partial(_planned, known_plan(op, args[:1], attrs)), ()))
        results += node.visible
    if not steps or [*map(id, graph.results)] != [*map(id, results)]:
        return UNKNOWN
    if len(steps) == 1 and not (several and len(results) == 1):
        return steps[0]
    return (None, steps) if len(results) == len(steps) and several else UNKNOWN
