"""Answer `torch.utils._pytree`: containers of containers, mapped leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..runtime import trees


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
