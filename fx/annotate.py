"""Types noted of traced values."""

from __future__ import annotations

from typing import Any

from ..ir.errors import StateError
from .proxy import Proxy


def annotate(val: Any, type: Any) -> Any:
    """Note a proxy's type, which the code made of the graph says; other values come back as they are.

    Raises StateError where one is noted already.
    """
    if not isinstance(val, Proxy):
        return val
    if val.node.type:
        raise StateError(
            f"annotate: the value has a type already, {val.node.type}; the new one is {type}",
            "of a function's parameter, its annotation says the type",
        )
    val.node.type = type
    return val
