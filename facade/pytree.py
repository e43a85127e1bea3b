"""Answer `torch.utils._pytree`: containers of containers, mapped leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..ir.errors import ArgumentValueError
from ..runtime import trees

Context = Any


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], tuple[Any, Context]], unflatten_fn: Callable[[Any, Context], Any],
    *, serialized_type_name: str | None = None, to_dumpable_context: Any = None,
    from_dumpable_context: Any = None, flatten_with_keys_fn: Any = None,
) -> None:  # fmt: skip
    """Have a class taken apart as containers are: here, and by the transforms of `func`.

    flatten_fn: the object's items, and a context that `unflatten_fn` makes it again with.  The others are
    for writing and naming structures, which is not done here.  Raises ArgumentValueError for a class that
    is a container already.
    """
    if cls in trees.REGISTERED or cls in (tuple, list, *trees.DICTS):
        raise ArgumentValueError(f"{cls} is already registered as pytree node.")
    trees.REGISTERED[cls] = flatten_fn, unflatten_fn


_register_pytree_node = register_pytree_node


def _dict_flatten(d: dict) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Any, context: Context) -> dict:
    return dict(zip(context, values, strict=True))


class MappingKey(NamedTuple):
    """A place in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """What stands there."""
        return mapping[self.key]


class SequenceKey(NamedTuple):
    """A place in a list or a tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """What stands there."""
        return sequence[self.idx]


def _dict_flatten_with_keys(d: dict) -> tuple[list[tuple[MappingKey, Any]], Context]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


class TreeSpec(NamedTuple):
    """The structure around a number of leaves."""

    shape: Any
    num_leaves: int

    def unflatten(self, leaves: Any) -> Any:
        """The container around these leaves."""
        return tree_unflatten(leaves, self)


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a container, and its structure."""
    shape, leaves = trees.flatten(tree)
    return leaves, TreeSpec(shape, len(leaves))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The container of that structure around these leaves."""
    return trees.unflatten(treespec.shape, list(leaves))


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a container."""
    return trees.flatten(tree)[1]


def tree_structure(tree: Any) -> TreeSpec:
    """The structure of a container."""
    return tree_flatten(tree)[1]


def tree_map(func: Callable, tree: Any, *rests: Any) -> Any:
    """The container with `func` of each leaf, and of those at its place in further containers."""
    shape, leaves = trees.flatten(tree)
    return trees.unflatten(shape, [func(*of) for of in zip(leaves, *map(tree_leaves, rests), strict=True)])


def tree_map_only(kind: Any, func: Callable, tree: Any) -> Any:
    """The container with `func` of the leaves that are of a class, or of which a function says so."""
    wanted = kind if callable(kind) and not isinstance(kind, type) else lambda x: isinstance(x, kind)
    return tree_map(lambda x: func(x) if wanted(x) else x, tree)


def tree_all(pred: Callable, tree: Any) -> bool:
    """Whether `pred` holds of all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable, tree: Any) -> bool:
    """Whether `pred` holds of a leaf."""
    return any(map(pred, tree_leaves(tree)))
