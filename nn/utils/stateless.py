"""Call a module with other parameters than its own, which stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...runtime import Tensor
from ..module import Module

__all__ = ["functional_call"]


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Where each parameter and buffer stands, by dotted name; a module that is there twice has two names."""
    found = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for members in (part._parameters, part._buffers):
            for name, value in members.items():
                if value is not None:
                    found[f"{path}.{name}" if path else name] = (members, name)
    return found


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Run a module with these tensors, by dotted name, in place of its parameters and buffers.

    What the run writes into its buffers goes into those given, and gradients flow to them.  args: a tuple, or
    the one argument.  tie_weights: a tensor that the module has under several names is replaced under all of
    them.  strict: all names must be given, and no others.  Raises ArgumentValueError for names that the
    module has not, and for tied names that get different tensors.
    """
    if isinstance(parameters_and_buffers, Mapping):
        given = dict(parameters_and_buffers)
    else:
        maps = list(parameters_and_buffers)
        given = {name: value for each in maps for name, value in each.items()}
        if len(given) != sum(map(len, maps)):
            raise ArgumentValueError("functional_call: a name is in several of the dictionaries")
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise ArgumentError(f"functional_call: {name!r} must be a tensor, not {type(value).__name__}")
    places = _places(module)
    unknown = [name for name in given if name not in places]
    missing = [name for name in places if name not in given] if strict else []
    if unknown or missing:
        lines = [f"not in the module: {', '.join(unknown)}"] * bool(unknown)
        lines += [f"not given: {', '.join(missing)}"] * bool(missing)
        raise ArgumentValueError("functional_call: the names don't fit the module", *lines)
    if tie_weights:
        by_tensor: dict[int, Tensor] = {}
        for name, value in given.items():
            members, key = places[name]
            if by_tensor.setdefault(id(members[key]), value) is not value:
                raise ArgumentValueError(
                    f"functional_call: {name!r} is one tensor under several names, and was given several",
                    "give it once, or pass tie_weights=False",
                )
        given |= {n: by_tensor[id(m[k])] for n, (m, k) in places.items() if id(m[k]) in by_tensor}
    own = [(*places[name], places[name][0][places[name][1]]) for name in given]
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for name, value in given.items():
            members, key = places[name]
            members[key] = value
        return module(*arguments, **(kwargs or {}))
    finally:
        for members, key, value in own:
            members[key] = value
