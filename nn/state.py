"""Take a module's state out and put it back: `state_dict` and `load_state_dict`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.errors import ArgumentError, StateError
from ..runtime import Parameter, Tensor, no_grad

if TYPE_CHECKING:
    from .module import Module

EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """What did not meet a partner: keys that the module has and the state lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not any(self) else tuple.__repr__(self)


def save(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> dict[str, Any]:
    """Write the state of `module` and all below it into `destination`, with PyTorch's keys in its order."""
    for hook in module.hooks("save_pre"):
        hook.function(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in module.hooks("save"):
        hook.function(module, destination, prefix, {})
    return destination


class Slot(NamedTuple):
    """One place for a tensor of the state: `members[name]` of a module, known outside by `key`."""

    key: str
    members: dict[str, Any]
    name: str
    optional: bool

    def fill(self, value: Tensor, assign: bool) -> None:
        """Copy the value into the tensor that stands here; or let it take that tensor's place."""
        here = self.members[self.name]
        if not assign:
            here.copy_(value)
        elif isinstance(here, Parameter):
            kept = isinstance(value, Parameter)
            self.members[self.name] = value if kept else Parameter(value, here.requires_grad)
        else:
            self.members[self.name] = value


def slots(module: Module, prefix: str) -> Iterator[Slot]:
    """The places of a module's own parameters and persistent buffers."""
    for members in (module._parameters, module._buffers):
        for name, value in members.items():
            if value is not None and name not in module._non_persistent_buffers_set:
                yield Slot(prefix + name, members, name, name in module._optional_state)


def load(module: Module, state: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """Check the whole state against the whole module, then copy.

    Raises StateError, and then copies nothing.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(f"load_state_dict(state_dict): a mapping is wanted, not {type(state).__name__}")
    state = OrderedDict(state)
    missing: list[str] = []
    unexpected: list[str] = []
    wrong: list[str] = []
    places: list[Slot] = []
    extras: list[tuple[str, Module]] = []
    named = list(module.named_modules(remove_duplicate=False))
    for path, part in named:
        prefix = path + "." if path else ""
        for hook in part.hooks("load_pre"):
            arguments = (state, prefix, {}, strict, missing, unexpected, wrong)
            hook.function(*((part, *arguments) if hook.with_module else arguments))
        places += slots(part, prefix)
        if part.has_extra_state():
            extras.append((prefix + EXTRA, part))
    found = [place for place in places if place.key in state]
    missing += [place.key for place in places if place.key not in state and not place.optional]
    missing += [key for key, _ in extras if key not in state]
    expected = {place.key for place in places} | {key for key, _ in extras}
    unexpected += [key for key in state if key not in expected]
    for place in found:
        here, value = place.members[place.name], state[place.key]
        if not isinstance(value, Tensor):
            wrong.append(f"{place.key}: the state holds no tensor but a {type(value).__name__}")
        elif here.shape != value.shape:
            wrong.append(f"{place.key}: the module has {here._meta}, the state {value._meta}")
    if wrong or (strict and (missing or unexpected)):
        raise misfit(module, missing if strict else [], unexpected if strict else [], wrong)
    with no_grad():
        for place in found:
            place.fill(state[place.key], assign)
    for key, part in extras:
        if key in state:
            part.set_extra_state(state[key])
    result = IncompatibleKeys(missing, unexpected)
    for _, part in reversed(named):
        for hook in part.hooks("load"):
            hook.function(part, result)
    return result


def misfit(module: Module, missing: list[str], unexpected: list[str], wrong: list[str]) -> StateError:
    """The error that names everything at which a state and a module differ."""
    lines = [f"missing in the state: {', '.join(missing)}"] if missing else []
    if unexpected:
        lines.append(f"not in the module: {', '.join(unexpected)}")
    lines += wrong
    if not wrong:
        lines.append("load_state_dict(state, strict=False) loads what both have")
    name = type(module).__name__
    return StateError(
        f"{name}.load_state_dict: the state does not fit the module; nothing was loaded", *lines
    )
