"""Containers taken apart as a specification says, not as they are: proxies stand for containers, too."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

from ..facade.pytree import LeafSpec, TreeSpec
from .immutable_collections import immutable_dict, immutable_list


def _by_key(x: Any, spec: TreeSpec) -> list[Any]:
    return [x[key] for key in spec.context]


def _by_place(x: Any, spec: TreeSpec) -> list[Any]:
    return [x[i] for i in range(len(spec.children_specs))]


_FLATTENERS: dict[Any, Callable[[Any, TreeSpec], list[Any]]] = {
    **dict.fromkeys((dict, OrderedDict, immutable_dict), _by_key),
    **dict.fromkeys((list, tuple, namedtuple, immutable_list), _by_place),
}


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: Callable[[Any, TreeSpec], list[Any]], flatten_fn_exact_match_spec: Any = None
) -> None:
    """Have objects of a class taken apart by a function of the object and the specification."""
    _FLATTENERS[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a container, or of a proxy that stands for one, where a specification has leaves.

    Raises RuntimeError for a class that no function was registered for.
    """
    if isinstance(spec, LeafSpec):
        return [pytree]
    if spec.type not in _FLATTENERS:
        raise RuntimeError(
            f"{spec.type} does not have a flatten_fn_spec associated with it: tell "
            "torch.fx._pytree.register_pytree_flatten_spec, before a model that was saved is loaded"
        )
    items = _FLATTENERS[spec.type](pytree, spec)
    return [
        leaf
        for x, below in zip(items, spec.children_specs, strict=True)
        for leaf in tree_flatten_spec(x, below)
    ]
