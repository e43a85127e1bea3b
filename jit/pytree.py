"""Arguments and results as flat lists: tuples, lists, dicts, named tuples and dataclasses, nested at will.

shape, leaves = flatten(((x, 2), {"mask": m}))      # leaves: [x, 2, m]
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..nn import Module
from ..runtime import Size
from .observe.spelling import dictionary_of

# What a structure is, hashable: None where a leaf stands, else (class, what names the items, their shapes).
Shape = tuple | None

DICTS = (dict, OrderedDict)


def flatten(x: Any) -> tuple[Shape, list[Any]]:
    """The structure of `x`, and its leaves in order."""
    leaves: list[Any] = []
    return _flatten(x, leaves), leaves


def _flatten(x: Any, leaves: list[Any]) -> Shape:
    kind = type(x)
    if kind is tuple or kind is list:
        names: Any = len(x)
        items: Sequence[Any] = x
    elif kind in DICTS:
        names, items = tuple(x), tuple(x.values())
    elif issubclass(kind, tuple) and hasattr(kind, "_fields") and kind is not Size:
        names, items = kind._fields, x
    elif is_dataclass(kind) and not issubclass(kind, Module) and _is_its_fields(x):
        names = tuple(f.name for f in fields(x))
        items = tuple(map(dictionary_of(x).__getitem__, names))
    else:
        leaves.append(x)
        return None
    return (kind, names, tuple([_flatten(item, leaves) for item in items]))


def _is_its_fields(x: Any) -> bool:
    return dictionary_of(x).keys() == {f.name for f in fields(x)}
