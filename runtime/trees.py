"""Nested containers as flat lists, for functions whose arguments and results are tuples, lists and dicts.

shape, leaves = flatten({"w": w, "b": [b, c]})     # leaves: [w, b, c]
unflatten(shape, leaves)                           # the same again
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..ir.errors import ArgumentValueError
from . import modes
from .tensor import Size

# What a container is: None where a leaf stands, else (class, what names the items, their shapes).
Shape = tuple | None

DICTS = (dict, OrderedDict, defaultdict)
# Classes that programs say are containers: what gives their items and something to make them again of, and
# what makes them of both.
REGISTERED: dict[type, tuple[Callable[[Any], tuple[Any, Any]], Callable[[Any, Any], Any]]] = {}


def _items(x: Any) -> tuple[Any, Sequence[Any]] | None:
    """What names the items of a container, and these; None for a leaf."""
    kind = type(x)
    if kind is tuple or kind is list:
        return len(x), x
    if kind in DICTS:
        return tuple(x), tuple(x.values())
    if kind in REGISTERED:
        if modes.CHANGED:
            modes.tell("refuse", f"a {kind.__name__} was taken apart by the function it was registered with")
        items, context = REGISTERED[kind][0](x)
        return context, list(items)
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and kind is not Size:
        return kind._fields, x
    return None


def flatten(x: Any) -> tuple[Shape, list[Any]]:
    """The structure of `x`, and its leaves in order; None is a leaf."""
    leaves: list[Any] = []

    def walk(x: Any) -> Shape:
        found = _items(x)
        if found is None:
            leaves.append(x)
            return None
        return (type(x), found[0], tuple([walk(item) for item in found[1]]))

    return walk(x), leaves


def unflatten(shape: Shape, leaves: Sequence[Any]) -> Any:
    """The container of that structure around these leaves."""
    rest: Iterator[Any] = iter(leaves)

    def build(shape: Shape) -> Any:
        if shape is None:
            return next(rest)
        kind, names, parts = shape
        items = [build(part) for part in parts]
        if kind is tuple or kind is list:
            return kind(items)
        if kind in REGISTERED:
            return REGISTERED[kind][1](items, names)
        if kind is defaultdict:
            return defaultdict(None, zip(names, items, strict=True))
        return kind(zip(names, items, strict=True)) if kind in DICTS else kind(*items)

    return build(shape)


def like(x: Any, items: Iterable[Any]) -> Any:
    """A list or a tuple of the class of `x` with other items; named tuples take theirs one by one."""
    return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)


def spread(prefix: Any, x: Any, what: str) -> list[Any]:
    """A value for each leaf of `x`: `prefix` has its structure, or stops above it and holds for all below.

    Raises ArgumentValueError where the structures differ.
    """
    found: list[Any] = []

    def walk(prefix: Any, x: Any) -> None:
        below, mine = _items(x), _items(prefix)
        if below is None or mine is None:
            if mine is not None:
                raise ArgumentValueError(f"{what}: {prefix!r} has a container where there is a single value")
            found.extend([prefix] * len(flatten(x)[1]))
        elif len(mine[1]) != len(below[1]) or (isinstance(mine[0], tuple) and mine[0] != below[0]):
            raise ArgumentValueError(
                f"{what}: {prefix!r} does not have the structure of what it is about, "
                f"a {type(x).__name__} of {len(below[1])}"
            )
        else:
            for a, b in zip(mine[1], below[1], strict=True):
                walk(a, b)

    walk(prefix, x)
    return found
