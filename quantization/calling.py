"""Data as calls of a model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from ..runtime import Tensor

Call = tuple[tuple, dict[str, Any]]


def calls_of(model: Any, data: Any) -> Iterator[Call]:
    """The arguments of each call: (by place, by name).

    data: tensors, tuples or lists, or dictionaries by name; one of them, or an iterable.  Of a tuple the
    first are taken, as many as the model must be given, so that labels may follow.
    """
    needed = _needed(model)
    for item in (data,) if isinstance(data, (Tensor, dict)) else data:
        if isinstance(item, dict):
            yield (), item
        elif isinstance(item, (tuple, list)):
            yield tuple(item[: needed or len(item)]), {}
        else:
            yield (item,), {}


def _needed(model: Any) -> int:
    """How many arguments by place a model must be given; 0 where any number may be."""
    try:
        parameters = inspect.signature(model.forward if isinstance(model, Module) else model).parameters
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):
        return 0
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters.values())
