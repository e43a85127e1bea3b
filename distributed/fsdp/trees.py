"""Tensors inside of what modules take and return: tuples, lists, dicts, dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ...runtime import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors inside, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from tensors_in(x)
    elif isinstance(value, dict):
        for x in value.values():
            yield from tensors_in(x)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same with each tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple):
        made = [mapped(function, x) for x in value]
        return tuple(made) if type(value) is tuple else type(value)(*made)
    if isinstance(value, list):
        return [mapped(function, x) for x in value]
    if type(value) is dict:
        return {k: mapped(function, x) for k, x in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: mapped(function, getattr(value, f.name)) for f in fields(value) if f.init}
        return replace(value, **changed)
    return value
