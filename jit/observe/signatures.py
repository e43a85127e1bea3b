"""Which calls a function refuses for how many arguments it is given, or by which names: known before it runs.

Handlers take their arguments apart, and would do something of too many or too few.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from .kinds import BOUND, MISSING, lookup

# What inspect has no name for; their values don't matter.
_UNSHOWN = ("<unrepresentable>", "<no value>")
# Of those that say nothing of their arguments: by their qualified names.
_UNSAID = {
    f"{kind}.{name}": text
    for kinds, names, text in (
        ("dict set frozenset", "__contains__", "($self, key, /)"),
        ("dict list", "__getitem__", "($self, key, /)"),
        ("deque", "append appendleft extend extendleft", "($self, x, /)"),
        ("deque set", "pop", "($self, /)"),
        ("set frozenset", "copy clear", "($self, /)"),
        ("set frozenset", "union difference intersection", "($self, /, *others)"),
        ("set", "update difference_update intersection_update", "($self, /, *others)"),
        ("set frozenset", "issubset issuperset isdisjoint symmetric_difference", "($self, other, /)"),
        ("set", "symmetric_difference_update", "($self, other, /)"),
    )
    for kind in kinds.split()
    for name in names.split()
} | dict.fromkeys(("vars", "dir"), "(of=None, /)")
_OWN = re.compile(r"^\(\$\w+(, /)?(, )?")  # the first argument, which a bound function has


def misfits(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call is one that the function's signature refuses; False where it has none."""
    owner = getattr(function, "__self__", None)
    if issubclass(type(function), BOUND) and not isinstance(owner, (type(None), type, ModuleType)):
        method = lookup(type(owner), function.__name__)
        found = None if method is MISSING else _signature(method)
        args = (owner, *args)
    else:
        found = _signature(function)
    if found is None:
        return False
    try:
        found.bind(*args, **kwargs)
    except TypeError:
        return True
    return False


def _signature(function: Any) -> inspect.Signature | None:
    if type(function) is not FunctionType:
        return _of_c(function)
    found = _OF_PYTHON.get(function, MISSING)
    if found is MISSING:
        found = None
        if not hasattr(function, "__signature__"):
            # Its own, as what stands around a function may take more.
            found = inspect.signature(function, follow_wrapped=False)
        _OF_PYTHON[function] = found
    return found


_OF_PYTHON: WeakKeyDictionary[FunctionType, inspect.Signature | None] = WeakKeyDictionary()


@lru_cache(4096)
def _of_c(function: Any) -> inspect.Signature | None:
    text = getattr(function, "__text_signature__", None) or _UNSAID.get(getattr(function, "__qualname__", ""))
    if text is None:
        return None
    for unshown in _UNSHOWN:
        text = text.replace(unshown, "None")
    if issubclass(type(function), BuiltinFunctionType):
        text = _OWN.sub("(", text)
    scope: dict[str, Callable] = {}
    try:
        exec(f"def said{text.replace('$', '')}: pass", scope)
        return inspect.signature(scope["said"])
    except (SyntaxError, ValueError, TypeError, NameError):
        return None
