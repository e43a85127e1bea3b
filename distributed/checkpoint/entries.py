"""A state dict as named entries, and entries back in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...ir import dtypes
from ...ir.errors import ArgumentError, ArgumentValueError
from ...runtime import Tensor
from ...runtime.compound import Compound
from ...runtime.meta import NoValues
from .metadata import At, Path, is_tensor

DEEPEST = 100  # levels of nesting


@runtime_checkable
class Stateful(Protocol):
    """An object that says its state and takes it over: at the top of a state dict it is saved by that."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Entry:
    """A value of a state dict.  kind: tensor (or what has chunks of one), array, or value."""

    path: Path
    value: Any
    kind: str


def states_of(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The state dict with the states of what has one of its own (Stateful) in its place."""
    return {k: v.state_dict() if isinstance(v, Stateful) else v for k, v in state_dict.items()}


def name_of(path: Path) -> str:
    """The name of an entry: its way, joined by dots."""
    return ".".join(map(str, path))


def entries_of(state_dict: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries of a nested state dict, by name.

    Dicts are gone through, lists and tuples only where a tensor or a dict is in them: others are one value.
    An empty container is a value.

    Raises ArgumentError for what can't be saved, ArgumentValueError for a name that two have.
    """
    found: dict[str, Entry] = {}
    for entry in _walk(state_dict, (), frozenset()):
        name = name_of(entry.path)
        if name in found:
            raise ArgumentValueError(
                f"two values of the state dict have the name {name!r:.200}, their way joined by dots",
                "rename one",
            )
        found[name] = entry
    return found


def _walk(value: Any, path: Path, outer: frozenset[int]) -> Iterator[Entry]:
    if len(path) > DEEPEST or id(value) in outer:
        raise ArgumentError(f"{name_of(path)[:200]} is nested more than {DEEPEST} deep, or contains itself")
    within = outer | {id(value)}
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if type(key) not in (str, int):
                raise ArgumentError(
                    f"a key of {name_of(path) or 'the state dict'} is a {type(key).__name__}",
                    "keys are strings and ints",
                )
            yield from _walk(item, (*path, key), within)
    elif isinstance(value, (list, tuple)) and _is_gone_through(value, 0):
        for i, item in enumerate(value):
            yield from _walk(item, (*path, At(i, isinstance(value, tuple))), within)
    elif is_tensor(value):
        _require_memory(value, name_of(path))
        yield Entry(path, value, "tensor")
    elif _is_array(value):
        yield Entry(path, value, "array")
    elif path:
        yield Entry(path, {} if isinstance(value, Mapping) else value, "value")


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray and dtypes.from_numpy_dtype(value.dtype) is not None


def _is_gone_through(value: Any, depth: int) -> bool:
    """Whether what is in a list is more than one value."""
    if depth > DEEPEST:
        return False  # refused where it is written
    if isinstance(value, (list, tuple)):
        return any(_is_gone_through(each, depth + 1) for each in value)
    return isinstance(value, Mapping) and bool(value) or is_tensor(value) or _is_array(value)


def _require_memory(value: Any, name: str) -> None:
    if isinstance(value, Compound):
        raise ArgumentError(
            f"{name} is a {value.what} tensor", "save its values, and what says where they are"
        )
    if isinstance(value, Tensor) and type(value._data) is NoValues:
        raise ArgumentError(f"{name} is a tensor without memory", "save it where it has values")


def put_back(state_dict: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put values in the places of the entries that have their names; tuples are made anew."""
    _replaced(state_dict, (), values)


def _replaced(value: Any, path: Path, values: Mapping[str, Any]) -> Any:
    name = name_of(path)
    if path and name in values:
        return values[name]
    if isinstance(value, dict):
        for key, item in list(value.items()):
            if (new := _replaced(item, (*path, key), values)) is not item:
                value[key] = new
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if (new := _replaced(item, (*path, At(i)), values)) is not item:
                value[i] = new
    elif isinstance(value, tuple):
        items = [_replaced(item, (*path, At(i, True)), values) for i, item in enumerate(value)]
        if any(new is not item for new, item in zip(items, value, strict=True)):
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def nested(values: Mapping[str, Any], ways: Mapping[str, Path]) -> dict[str, Any]:
    """A state dict of entries, by the ways to them.  Raises ArgumentValueError where they contradict."""
    root: dict[Any, Any] = {}
    leaves = set()
    for name, path in ways.items():
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, {})
            if id(node) in leaves:
                raise ArgumentValueError(f"{name!r:.200} lies in what is no container")
        if path[-1] in node:
            raise ArgumentValueError(f"{name!r:.200} is there twice")
        leaf = node[path[-1]] = _Leaf(values[name])
        leaves.add(id(leaf))
    return _contained(root)


class _Leaf(dict):
    """A value in the tree, which is no container there."""

    def __init__(self, value: Any):
        super().__init__()
        self.value = value


def _contained(node: dict[Any, Any]) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    places = [step for step in node if isinstance(step, At)]
    if not places:
        return {step: _contained(below) for step, below in node.items()}
    if len(places) < len(node) or len({step.of_tuple for step in places}) > 1:
        raise ArgumentValueError("a container is a dict and a list at once")
    ordered = sorted(places, key=lambda step: step.index)
    if [step.index for step in ordered] != list(range(len(ordered))):
        raise ArgumentValueError("a list lacks some of its items")
    items = [_contained(node[step]) for step in ordered]
    return tuple(items) if places[0].of_tuple else items
