"""Modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, StateError
from ..runtime import Tensor, ops
from ..runtime.refusal import refusing_names
from .module import Module
from .norm import _BatchNorm

Slot = tuple[Module, Any, str]  # a module, the dictionary of its members, and a name there


def swap(slot: Slot, value: Tensor) -> None:
    """Put a tensor in a member's place, whatever its class.  Who does puts the first back in the end."""
    _, members, key = slot
    members[key] = value


_MISSING: Any = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor, or what stands for none, in a member's place.  Returns what was there.

    Raises AttributeError where nothing was, unless allow_missing.
    """
    kept = (module._parameters, module._buffers, vars(module))
    members = next((members for members in kept if name in members), kept[-1])
    old = members.pop(name, _MISSING) if allow_missing else getattr(module, name)
    if tensor is _MISSING:
        members.pop(name, None)
    else:
        members[name] = tensor
    return old


def tied(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor, the place of the first that it is."""
    first: dict[int, int] = {}
    return [first.setdefault(id(x), at) for at, x in enumerate(tensors)]


def _slots(module: Module, names: Iterable[str] = ()) -> dict[str, list[Slot]]:
    """Where each parameter and buffer stands; `names` may lead through modules that hold themselves."""
    found: dict[str, list[Slot]] = {}
    for prefix, part in _paths(module, "", ()):
        for members in (part._parameters, part._buffers):
            for name, value in members.items():
                if value is not None:
                    found.setdefault(f"{prefix}{name}", []).append((part, members, name))
    for path in names:
        if path not in found and (part := _part(module, path)) is not None:
            name = path.rpartition(".")[2]
            for members in (part._parameters, part._buffers):
                if members.get(name) is not None:
                    found.setdefault(path, []).append((part, members, name))
    return found


def _paths(module: Module, prefix: str, above: tuple[Module, ...]) -> Iterator[tuple[str, Module]]:
    """A module and all below it under each of their names, but for those that lead back to one above."""
    yield prefix, module
    above = (*above, module)
    for name, child in module._modules.items():
        if child is not None and not any(child is x for x in above):
            yield from _paths(child, f"{prefix}{name}.", above)


def _part(module: Module, path: str) -> Module | None:
    """The module that holds what a dotted name stands for."""
    part: Any = module
    for name in path.split(".")[:-1]:
        part = part._modules.get(name) if isinstance(part, Module) else None
    return part if isinstance(part, Module) else None


def _held(slot: Slot) -> Tensor:
    _, members, key = slot
    return members[key]


def _merged(given: Any) -> dict[str, Any]:
    """One dictionary of several, of tensors and None.  Raises ArgumentError, ArgumentValueError."""
    parts = given if isinstance(given, (tuple, list)) else (given,)
    found: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, Mapping):
            raise ArgumentError(
                f"functional_call: parameters and buffers must be a dict or a sequence of dicts, "
                f"not {type(part).__name__}"
            )
        for name, value in part.items():
            if value is not None and not isinstance(value, Tensor):
                raise ArgumentError(f"functional_call: {name!r} must be a tensor, not {type(value).__name__}")
            if name in found:
                raise ArgumentValueError(f"functional_call: {name!r} is given twice")
            found[name] = value
    return found


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers, by their names; the module is left as it was.

    Names of plain attributes that are tensors, or of none yet, stand for these attributes.  None: no tensor.
    tie_weights: a tensor that stands under several names is replaced under all.  strict: refuse names that
    are no parameters or buffers, and ask for all there are.  Buffers that the module assigns anew are put
    into the dictionaries.  Raises ArgumentError, StateError.
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"functional_call(module): must be a Module, not {type(module).__name__}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(f"functional_call(kwargs): must be a dict, not {type(kwargs).__name__}")
    values = _merged(parameter_and_buffer_dicts)
    slots = _slots(module, values)
    others = {name: value for name, value in values.items() if name not in slots}
    values = {name: value for name, value in values.items() if name in slots}
    given: dict[str, Tensor] = dict(values)
    if tie_weights:
        shared: dict[int, list[str]] = {}
        for name, first in zip(slots, tied([_held(places[0]) for places in slots.values()]), strict=True):
            shared.setdefault(first, []).append(name)
        for names in shared.values():
            told = [name for name in names if name in values]
            if len(told) > 1 and any(tied([values[name] for name in told])):
                raise ArgumentValueError(
                    f"functional_call: {' and '.join(told)} are one tensor, and got two",
                    "tie_weights=False lets them differ",
                )
            for name in names if told else ():
                given[name] = values[told[0]]
    missing = sorted(slots.keys() - given.keys())
    if strict and (others or missing):
        raise StateError(
            f"functional_call(strict=True): the names are not those of {type(module).__name__}",
            *([f"unexpected: {', '.join(sorted(others))}"] if others else []),
            *([f"missing: {', '.join(missing)}"] if missing else []),
        )
    attributes = [(*place, value) for name, value in others.items() for place in _attribute(module, name)]
    before, kept = [], []
    try:
        for part, key, value in attributes:
            kept.append((part, key, getattr(part, key, _ABSENT)))
            setattr(part, key, value)
        for name, value in given.items():
            for slot in slots[name]:
                before.append((slot, _held(slot)))
                swap(slot, value)
        arguments = args if isinstance(args, tuple) else () if args is None else (args,)
        return module(*arguments, **(kwargs or {}))
    finally:
        for name in values:
            _, members, key = slots[name][0]
            now = members.get(key)
            if now is not None and now is not given[name]:
                _put_back(parameter_and_buffer_dicts, name, now)
        for slot, value in reversed(before):
            swap(slot, value)
        for part, key, value in reversed(kept):
            if value is not _ABSENT:
                setattr(part, key, value)
            elif hasattr(part, key):
                delattr(part, key)


_ABSENT = object()


def _attribute(module: Module, path: str) -> list[tuple[Module, str]]:
    """Where an attribute that is no parameter or buffer stands; nothing for what a class has, or no module.

    Raises ArgumentError for one that is no tensor.
    """
    part, key = _part(module, path), path.rpartition(".")[2]
    if part is None or hasattr(type(part), key):
        return []
    held = getattr(part, key, None)
    if held is not None and not isinstance(held, Tensor):
        raise ArgumentError(f"functional_call: {path!r} is a {type(held).__name__}, and no tensor")
    return [(part, key)]


def _put_back(given: Any, name: str, value: Tensor) -> None:
    for part in given if isinstance(given, (tuple, list)) else (given,):
        if name in part and isinstance(part, dict):
            part[name] = value


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of modules of one class, stacked by name, and their buffers, for vmap over the models.

    Parameters are leaves that ask for gradients as those of the models do.  Raises ArgumentValueError where
    the modules are not alike.
    """
    if not isinstance(models, Iterable):
        raise ArgumentError(f"stack_module_state(models): takes modules, not {type(models).__name__}")
    models = list(models)
    if not models:
        raise ArgumentValueError("stack_module_state: Expected at least one model, got 0.")
    for model in models:
        if not isinstance(model, Module):
            raise ArgumentError(f"stack_module_state(models): must be modules, not {type(model).__name__}")
        if type(model) is not type(models[0]):
            raise ArgumentValueError(
                "stack_module_state: Expected all models to be of the same class, "
                f"not {type(models[0]).__name__} and {type(model).__name__}"
            )
        if model.training is not models[0].training:
            raise ArgumentValueError(
                "stack_module_state: Expected all models to have the same training/eval mode."
            )
    both = ([dict(m.named_parameters()) for m in models], [dict(m.named_buffers()) for m in models])
    parameters, buffers = ({name: _stacked(name, dicts) for name in dicts[0]} for dicts in both)
    return parameters, buffers


def _stacked(name: str, dicts: Sequence[dict[str, Tensor]]) -> Tensor:
    try:
        rows = [d[name] for d in dicts]
    except KeyError:
        raise ArgumentValueError(f"stack_module_state(models): not all have {name}") from None
    wanted = {x.requires_grad for x in rows}
    if len(wanted) > 1:
        raise ArgumentValueError(
            f"stack_module_state: Expected {name} of each model to have the same .requires_grad"
        )
    made = ops.stack([x.detach() for x in rows])
    return made.requires_grad_(wanted.pop())


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let every batch norm inside forget its running statistics, which vmap can't write; return `root`."""
    if not isinstance(root, Module):
        raise ArgumentError(f"replace_all_batch_norm_modules_: takes a Module, not {type(root).__name__}")
    for part in root.modules():
        if isinstance(part, _BatchNorm):
            part.running_mean = part.running_var = part.num_batches_tracked = None
            part.track_running_stats = False
    return root


refusing_names(globals(), __name__)

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]
