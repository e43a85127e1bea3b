"""Whether a reshape copies: how far apart elements lie in memory, with symbols for sizes.

What is asked of sizes is answered where conditions are collected (`ir/dims.py`), of sizes that are 1 or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Layout = list[tuple[Any, Any]]  # size and stride of each dimension, in elements


def contiguous(shape: Sequence[Any]) -> Layout:
    """The layout of elements row by row."""
    step: Any = 1
    found = []
    for n in reversed(shape):
        found.append((n, step))
        step = step * n
    return found[::-1]


def through(layout: Layout, name: str, attrs: dict[str, Any], shape: Sequence[Any]) -> Layout | None:
    """The layout of a view; None where that isn't known.  shape: of the view."""
    if name == "permute":
        return [layout[d] for d in attrs["dims"]]
    if name == "transpose":
        found = [*layout]
        a, b = attrs["dim0"], attrs["dim1"]
        found[a], found[b] = found[b], found[a]
        return found
    if name == "expand":
        new = len(shape) - len(layout)
        kept = [
            (n, 0 if _is_one(own) and not _is_one(n) else by) for (own, by), n in zip(layout, shape[new:])
        ]
        return [*((n, 0) for n in shape[:new]), *kept]
    if name == "basic_index":
        rest, found = iter(layout), []
        for item in attrs["index"]:
            size, by = (1, 0) if item[0] == "new" else next(rest)
            if item[0] != "int":
                found.append((size, by if item[0] != "slice" else by * item[3]))
        found += rest
        return (
            [(n, by) for n, (_, by) in zip(shape, found, strict=True)] if len(found) == len(shape) else None
        )
    if name == "unsqueeze":
        made = [*layout]
        made.insert(
            next((d for d, n in enumerate(shape) if _is_one(n) and _fits(layout, d, shape)), 0), (1, 0)
        )
        return made if len(made) == len(shape) else None
    if name in ("view", "reshape", "flatten"):
        return _merged(layout, shape)
    return None


def _is_one(n: Any) -> bool:
    return isinstance(n, int) and n == 1


def _fits(layout: Layout, at: int, shape: Sequence[Any]) -> bool:
    sizes = [n for n, _ in layout]
    return [*map(str, sizes[:at]), "1", *map(str, sizes[at:])] == [*map(str, shape)]


def copies(layout: Layout, shape: Sequence[Any]) -> bool:
    """Whether a reshape of a layout copies."""
    return not all(
        stride == n * after
        for old, _ in _groups(layout, shape)
        for (_, stride), (n, after) in zip(old, old[1:])
    )  # fmt: skip


def _merged(layout: Layout, shape: Sequence[Any]) -> Layout | None:
    """The layout of a view of another shape; None where it is none."""
    if copies(layout, shape):
        return None
    found: Layout = []
    for old, new in _groups(layout, shape):
        step = old[-1][1]
        part = []
        for n in reversed(new):
            part.append((n, step))
            step = step * n
        found += part[::-1]
    rest = iter(found)
    return [(1, 0) if _is_one(n) else next(rest) for n in shape]


def _groups(layout: Layout, shape: Sequence[Any]) -> list[tuple[Layout, list]]:
    """Neighbouring dimensions of both shapes that hold the same elements."""
    old = [pair for pair in layout if not _is_one(pair[0])]
    new = [n for n in shape if not _is_one(n)]
    found = []
    while old and new:
        mine, theirs = [old.pop(0)], [new.pop(0)]
        a, b = mine[0][0], theirs[0]
        while a != b:
            if a > b:
                theirs.append(new.pop(0))
                b = b * theirs[-1]
            else:
                mine.append(old.pop(0))
                a = a * mine[-1][0]
        found.append((mine, theirs))
    return found
