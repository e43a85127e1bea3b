"""Calls whose arguments pass into the callee's hands, as CPython's do: nobody else holds them meanwhile.

`function(*args)` keeps the tuple until the call is over.  What a callee deletes, or writes over, would then
die later than it does in a plain run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from keyword import iskeyword
from typing import Any


def handed(function: Any, values: list[Any], names: tuple[str, ...] = ()) -> Any:
    """Call a function with what a list holds, which is empty then.  names: of those given by name."""
    caller = _caller(len(values) - len(names), names)
    if caller is None:
        named = dict(zip(names, values[len(values) - len(names) :], strict=True))
        return function(*values[: len(values) - len(names)], **named)
    values.reverse()
    return caller(function, values.pop)


@lru_cache(maxsize=1024)
def _caller(count: int, names: tuple[str, ...]) -> Callable[[Any, Callable[[], Any]], Any] | None:
    """What calls a function with so many values, each taken when it is needed; None where no code says so."""
    if any(type(name) is not str or not name.isidentifier() or iskeyword(name) for name in names):
        return None
    given = ", ".join([*["take()"] * count, *[f"{name}=take()" for name in names]])
    return eval(compile(f"lambda function, take: function({given})", __file__, "eval"))
