"""Arguments and results as flat lists: tuples, lists, dicts, named tuples and dataclasses, nested at will.

shape, leaves = flatten(((x, 2), {"mask": m}))      # leaves: [x, 2, m]
rebuild(shape, leaves)                              # the same again, of fresh containers
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..nn import Module
from ..runtime import Size

# What a structure is, hashable: None where a leaf stands, else (class, what names the items, their shapes).
Shape = tuple | None

DICTS = (dict, OrderedDict)


def flatten(x: Any) -> tuple[Shape, list[Any]]:
    """The structure of `x`, and its leaves in order."""
    leaves: list[Any] = []
    return _flatten(x, leaves, None), leaves


def containers(x: Any) -> list[Any]:
    """The containers that can change: lists, dicts and dataclasses, outermost first."""
    found: list[Any] = []
    _flatten(x, [], found)
    return found


def _flatten(x: Any, leaves: list[Any], seen: list[Any] | None) -> Shape:
    kind = type(x)
    if kind is tuple or kind is list:
        names: Any = len(x)
        items: Sequence[Any] = x
    elif kind in DICTS:
        names, items = tuple(x), tuple(x.values())
    elif issubclass(kind, tuple) and hasattr(kind, "_fields") and kind is not Size:
        names, items = kind._fields, x
    elif (
        is_dataclass(kind) and not issubclass(kind, Module) and _own(x).keys() == {f.name for f in fields(x)}
    ):
        names = tuple(f.name for f in fields(x))
        items = tuple(map(_own(x).__getitem__, names))
    else:
        leaves.append(x)
        return None
    if seen is not None and not issubclass(kind, tuple):
        seen.append(x)
    return (kind, names, tuple([_flatten(item, leaves, seen) for item in items]))


def _own(x: Any) -> dict[str, Any]:
    """An object's own dictionary, empty where it has slots alone; no code of the user's is asked."""
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}


def rebuild(shape: Shape, leaves: Sequence[Any]) -> Any:
    """Fresh containers of that structure around the leaves."""
    return _rebuild(shape, iter(leaves))


def _rebuild(shape: Shape, leaves: Iterator[Any]) -> Any:
    if shape is None:
        return next(leaves)
    kind, names, shapes = shape
    items = [_rebuild(s, leaves) for s in shapes]
    if kind is tuple or kind is list:
        return kind(items)
    if kind in DICTS:
        return kind(zip(names, items, strict=True))
    if issubclass(kind, tuple):
        return kind._make(items) if hasattr(kind, "_make") else kind(*items)
    made = object.__new__(kind)
    for name, item in zip(names, items, strict=True):
        object.__setattr__(made, name, item)  # frozen ones, too
    return made


def paths(shape: Shape, root: str = "") -> list[str]:
    """How each leaf is reached, for messages: `args[0]['mask']`."""
    if shape is None:
        return [root]
    kind, names, shapes = shape
    spell: Callable[[Any], str]
    if kind in DICTS:
        keys, spell = names, lambda key: f"[{key!r}]"
    elif isinstance(names, int):
        keys, spell = range(names), lambda key: f"[{key}]"
    else:
        keys, spell = names, lambda key: f".{key}"
    return [p for key, s in zip(keys, shapes, strict=True) for p in paths(s, root + spell(key))]
