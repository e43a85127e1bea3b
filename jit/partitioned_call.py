"""The function that a partitioned one is recorded as: arguments are cut, results joined, around the user's.

A recorder goes through this file as through the user's code, so what is here is plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..distributed.device_mesh import DeviceMesh
from ..distributed.tensor.whole import cut, joined
from ..ir.errors import ArgumentValueError
from ..runtime import Tensor


class All:
    """Placements for all tensors below a place, `placements` for each."""

    __slots__ = ("placements",)

    def __init__(self, placements: tuple):
        self.placements = placements


def cut_all(x: Any, where: Any, mesh: DeviceMesh) -> Any:
    """An argument with its tensors cut; where: `All`, a tuple of placements, a list or dict of them, None"""
    if where is None:
        return x
    if isinstance(x, Tensor):
        return cut(x, mesh, where.placements, True) if isinstance(where, All) else cut(x, mesh, where)
    return _each(x, where, mesh, cut_all)


def joined_all(x: Any, where: Any, mesh: DeviceMesh) -> Any:
    """A result with its tensors joined, or as `where` says."""
    if isinstance(x, Tensor):
        return joined(x, mesh, where)
    return _each(x, where, mesh, joined_all)


def _each(x: Any, where: Any, mesh: DeviceMesh, one: Callable) -> Any:
    """The same of each item of a list, a tuple or a dictionary; anything else stays as it is."""
    if type(x) is dict:
        return {k: one(v, where.get(k) if type(where) is dict else where, mesh) for k, v in x.items()}
    if type(x) not in (list, tuple):
        return x
    if type(where) is list and len(where) != len(x):
        raise ArgumentValueError(
            f"trace(mesh): there are {len(x)} items, and {len(where)} shardings for them"
        )
    found = [one(v, where[i] if type(where) is list else where, mesh) for i, v in enumerate(x)]
    return found if type(x) is list else tuple(found)


def around(
    function: Callable, mesh: DeviceMesh, names: Sequence[str], inputs: Mapping[str, Any], rest: Any, out: Any
) -> Callable:  # fmt: skip
    """The function that cuts, calls and joins.

    names: of what is given by position.  inputs: by name, how it is cut; rest: anything else.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        given = []
        for i, x in enumerate(args):
            given.append(cut_all(x, inputs.get(names[i], rest) if i < len(names) else rest, mesh))
        named = {}
        for k, x in kwargs.items():
            named[k] = cut_all(x, inputs.get(k, rest), mesh)
        return joined_all(function(*given, **named), out, mesh)

    return call
