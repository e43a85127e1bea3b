"""Modules and optimizers taken in whole: what Lamina's own code, which runs natively, may read of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any
from weakref import ref

from ...nn.members import HOOKS, MEMBERS, fields
from ..facts import IMMUTABLE, PLAIN, absent, exact, shown


def module_now(
    module: Any, apart: frozenset[str] = frozenset(), before: Callable[[Any], Any] = lambda members: members
) -> dict[str, Any]:
    """A module's attributes, and its hooks; what can be is held weakly.

    apart: names that are looked after otherwise.  before: what dictionaries held before a run wrote to them.
    """
    own: dict[str, Any] = {"__class__": ref(type(module))}
    for name, value in fields(module).items():
        if name in MEMBERS:
            own[name] = tuple([(k, None if k in apart else _held(v)) for k, v in before(value).items()])
        elif name in HOOKS:
            own[name] = tuple([(hook.kind, *hook[2:], _held(hook.function)) for hook in value.values()])
        elif name == "_non_persistent_buffers_set":
            own[name] = tuple(sorted(value, key=str))
        elif name not in apart:
            own[name] = _held(value)
    return own


def _held(value: Any) -> Any:
    """A value, or a weak reference to it: all those to one object are one reference."""
    return value if type(value) in _COMPARED or not type(value).__weakrefoffset__ else ref(value)


def optimizer_now(optimizer: Any, apart: bool = False) -> tuple[list[Any], list[dict[str, Any]]]:
    """The objects that an optimizer's parameters and states are, in order; the other values in its groups.

    apart: the states' tensors are looked after otherwise.
    """
    return state_of(optimizer, apart), [
        {k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups
    ]


def state_of(optimizer: Any, apart: bool = False) -> list[Any]:
    """The objects that an optimizer's parameters and states are, in order; apart: parameters alone."""
    params = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    return [*params] if apart else [*params, *chain.from_iterable(map(dict.values, optimizer.state.values()))]


def state_names(optimizer: Any) -> list[list[str]]:
    """What an optimizer keeps for each parameter that has a state, in order."""
    return [[*state] for state in optimizer.state.values()]


def texts(now: Mapping[str, Any]) -> dict[str, str]:
    """What a module's attributes are to a reader, as what is held weakly may be gone when it is asked for."""
    told = {name: _told(value) for name, value in now.items() if name not in MEMBERS}
    return told | {k: _told(x) for name in MEMBERS for k, x in now.get(name, ())}


def difference(
    before: Mapping[str, Any], now: Mapping[str, Any], seen: Mapping[str, str] | None = None
) -> tuple[str, str, str] | None:
    """The first name under which something else stands now, what stood there, and what does.

    seen: what stood there, as text.
    """
    for name in sorted(before.keys() | now.keys(), key=lambda name: (name.startswith("_"), name)):
        a, b = before.get(name, absent), now.get(name, absent)
        if a is b or (type(a) in _COMPARED and exact(a, b)):
            continue
        if name in MEMBERS and a is not absent and b is not absent:
            mine, theirs = dict(a), dict(b)
            return difference(mine, theirs, seen) or (
                "the order of its members",
                str([*mine]),
                str([*theirs]),
            )
        if name in HOOKS:
            one, other = (f"{len(hooks)}" if hooks is not absent else "nothing" for hooks in (a, b))
            return "hooks", one, other
        return name, (seen or {}).get(name) or _told(a), _told(b)
    return None


def without(now: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """What a module is, less some of its attributes and members."""
    left = {name: value for name, value in now.items() if name not in names}
    return left | {
        name: tuple([(k, v) for k, v in left[name] if k not in names]) for name in MEMBERS if name in left
    }


def _told(value: Any) -> str:
    if type(value) is ref:
        value = value()
    return shown(value)


_COMPARED = {*PLAIN, *IMMUTABLE, tuple}
