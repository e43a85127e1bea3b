"""Data as calls of a model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..nn import Module
from ..runtime import Tensor
from ..runtime.tensor import tensor_of

Call = tuple[tuple, dict[str, Any]]
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def calls_of(model: Any, data: Any) -> Iterator[Call]:
    """The arguments of each call: (by place, by name).

    data: tensors or arrays, tuples or lists, or mappings by name; one of them, or an iterable.  Of a
    tuple the first are taken, as many as the model must be given, so that labels may follow.
    Raises ArgumentError for what is none of these.
    """
    needed = _needed(model)
    for item in (data,) if isinstance(data, (Tensor, np.ndarray, Mapping)) else _iterated(data):
        if isinstance(item, Mapping):
            yield (), {name: _tensor(each) for name, each in item.items()}
        elif isinstance(item, (tuple, list)):
            yield tuple(map(_tensor, item[: needed or len(item)])), {}
        else:
            yield (_tensor(item),), {}


def _iterated(data: Any) -> Iterator[Any]:
    if not isinstance(data, str):
        try:
            return iter(data)
        except TypeError:
            pass
    raise ArgumentError(
        f"quantize(data): inputs of the model, or an iterable of them, not a {type(data).__name__}"
    )


def _tensor(x: Any) -> Any:
    """An array as the tensor that a model is given."""
    return tensor_of(x.copy()) if isinstance(x, np.ndarray) else x


def _needed(model: Any) -> int:
    """How many arguments by place a model must be given; 0 where any number may be."""
    parameters = _parameters(model)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return 0
    return sum(p.kind in BY_PLACE and p.default is inspect.Parameter.empty for p in parameters)


def by_place(model: Any) -> tuple[str, ...]:
    """The names of the arguments that a model takes by place."""
    return tuple(p.name for p in _parameters(model) if p.kind in BY_PLACE)


def _parameters(model: Any) -> list[inspect.Parameter]:
    """The parameters of a model's call; none where Python can't tell."""
    try:
        called = inspect.signature(model.forward if isinstance(model, Module) else model)
    except (TypeError, ValueError):
        return []
    return [*called.parameters.values()]
