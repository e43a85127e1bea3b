"""States of modules and optimizers by the names of parameters, so that others than saved them can load them.

A name is the one that the parameter has in the bare model: what a wrapper puts before it is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...ir.errors import ArgumentError, ArgumentValueError, StateError
from ...ir.warned import warn
from ...nn import Module
from ...nn.parameter import Parameter
from ...optim import Optimizer
from ...runtime import Tensor, no_grad, ops
from ..tensor import DTensor, distribute_tensor
from .meeting import meeting_of

# Classes that hold a module under a name, which is no part of the names of its parameters.
WRAPPERS = {"DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


@dataclass(frozen=True)
class StateDictOptions:
    """How states are had and set.

    full_state_dict: whole tensors in place of those that are spread over ranks.
    cpu_offload: in the memory of the CPU; with full_state_dict, on the first rank alone.
    ignore_frozen_params: without parameters that ask for no gradient.
    keep_submodule_prefixes: of `submodules`, names from the top.
    strict: what is lacking or too much where a state is set is an error.
    broadcast_from_rank0: the first rank has the whole state that is set, and hands it to the others.
    flatten_optimizer_state_dict: an optimizer's state in one dict of keys joined by dots.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


class IncompatibleKeys(NamedTuple):
    """What a model lacked of a state, and what it had no place for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


Optimizers = Optimizer | Iterable[Optimizer]


# ---- both --------------------------------------------------------------------------------------------------
def get_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of a model and of its optimizers, by the names of parameters."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Set what `get_state_dict` gave.  Raises StateError, and what the parts' load_state_dict do."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


# ---- models ------------------------------------------------------------------------------------------------
def get_model_state_dict(
    model: Module,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of a model, by the names that its values have in the bare model."""
    asked = _checked(options)
    state = {_bare(model, name): value for name, value in model.state_dict().items()}
    if submodules:
        state = _within(model, state, submodules, asked.keep_submodule_prefixes)
    if asked.ignore_frozen_params:
        frozen = {_bare(model, n) for n, p in _parameters(model) if not p.requires_grad}
        state = {name: value for name, value in state.items() if name not in frozen}
    return _whole(state, asked)


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Load a state by names of the bare model into a model, which may be wrapped.

    Raises StateError where strict and the names differ.
    """
    asked = _checked(options)
    state = meeting_of(None).broadcast(model_state_dict) if asked.broadcast_from_rank0 else model_state_dict
    own = model.state_dict()
    names = {_bare(model, name): name for name in own}
    renamed = {names.get(name, name): value for name, value in state.items()}
    if asked.full_state_dict:
        renamed = {name: _spread(value, own.get(name)) for name, value in renamed.items()}
    is_meta = any(x.is_meta for x in own.values() if isinstance(x, Tensor))
    found = model.load_state_dict(renamed, strict=asked.strict, assign=is_meta)
    return IncompatibleKeys([_bare(model, name) for name in found.missing_keys], list(found.unexpected_keys))


def _spread(value: Any, like: Any) -> Any:
    """A whole value as one that lies on ranks as `like` does."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or isinstance(value, DTensor):
        return value
    if value.shape != like.shape:
        return value  # a step count, or what loading refuses
    made = distribute_tensor(value, like.device_mesh, like.placements)
    return Parameter(made) if isinstance(like, Parameter) else made


def _within(
    model: Module, state: dict[str, Any], submodules: set[Module], keep_prefixes: bool
) -> dict[str, Any]:
    warn(
        "submodules= is deprecated: take what you want of the whole state by its names",
        FutureWarning,
        stacklevel=3,
    )
    prefixes = [f"{_bare(model, name)}." for name, module in model.named_modules() if module in submodules]
    return {
        name if keep_prefixes else name.removeprefix(prefix): value
        for name, value in state.items()
        for prefix in prefixes
        if name.startswith(prefix)
    }


def _parameters(model: Module) -> Iterator[tuple[str, Tensor]]:
    return model.named_parameters(remove_duplicate=False)


def _bare(model: Module, name: str) -> str:
    """A name in the model without the parts that wrappers put into it."""
    kept = []
    module: Any = model
    for part in name.split("."):
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if not any(kind in kinds and part == held for kind, held in WRAPPERS.items()):
            kept.append(part)
        module = getattr(module, "_modules", {}).get(part)
    return ".".join(kept)


# ---- optimizers --------------------------------------------------------------------------------------------
def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The states of optimizers of a model, by the names of the parameters.

    {"state": {NAME: {"exp_avg": …}}, "param_groups": [{"params": [NAME, …], "lr": …}]}

    Of one that has not stepped yet, those that a first step would make: tensors to load into.  It is not
    changed by that.  Raises StateError for a parameter that the model does not have.
    """
    asked = _checked(options)
    names = _names(model)
    states: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        own = _template(optimizer) if _is_fresh(optimizer) else optimizer.state_dict()
        order = [_name(names, p) for group in optimizer.param_groups for p in group["params"]]
        states.update((order[number], values) for number, values in own["state"].items())
        groups += ({**group, "params": [order[n] for n in group["params"]]} for group in own["param_groups"])
    if submodules:
        states = _within(model, states, submodules, asked.keep_submodule_prefixes)
    if asked.flatten_optimizer_state_dict:
        return _whole(_flattened(states, groups), asked)
    return _whole({"state": states, "param_groups": groups}, asked)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Set the states of optimizers by the names of parameters, which may have been in other groups.

    Settings of a group are those that its first parameter was saved with.  Raises StateError.
    """
    asked = _checked(options)
    found = meeting_of(None).broadcast(optim_state_dict) if asked.broadcast_from_rank0 else optim_state_dict
    names = _names(model)
    for optimizer in _listed(optimizers):
        order = [[_name(names, p) for p in group["params"]] for group in optimizer.param_groups]
        states, groups = _unflattened(optimizer, order, found) if "state" not in found else (
            found["state"], found["param_groups"]
        )  # fmt: skip
        if asked.full_state_dict:
            own = {_bare(model, name): p for name, p in _parameters(model)}
            states = {
                name: {key: _spread(value, _bare_of(own.get(name))) for key, value in values.items()}
                for name, values in states.items()
            }
        optimizer.load_state_dict(_numbered(optimizer, order, states, groups, asked.strict))


def _bare_of(p: Any) -> Any:
    """What a state beside a parameter lies like."""
    return p.detach() if isinstance(p, Tensor) else None


def _init_optim_state(optim: Any) -> None:
    """Have an optimizer make its states by a step along gradients of 0, at a rate of 0, as PyTorch's does.

    Raises StateError where a parameter has a gradient that the step would take.
    """
    if optim.state:
        return
    parameters = [p for group in optim.param_groups for p in group["params"]]
    if any(p.grad is not None for p in parameters):
        raise StateError("the states of an optimizer are made before parameters have gradients")
    rates = [group["lr"] for group in optim.param_groups if "lr" in group]
    with no_grad():
        for p in parameters:
            p.grad = ops.zeros_like(p) if p.requires_grad else None
    for group in optim.param_groups:
        group["lr"] = 0.0
    try:
        optim.step()
    finally:
        for group, rate in zip(optim.param_groups, rates):
            group["lr"] = rate
        optim.zero_grad(set_to_none=True)


def _listed(optimizers: Optimizers) -> list[Any]:
    found = [optimizers] if not isinstance(optimizers, Iterable) else [*optimizers]
    for each in found:
        if not isinstance(each, Optimizer):
            raise ArgumentError(f"optimizers: an Optimizer, or several, not {type(each).__name__}")
    return found


def _names(model: Module) -> dict[int, str]:
    """By the parameter's id: its first name."""
    names: dict[int, str] = {}
    for name, p in _parameters(model):
        names.setdefault(id(p), _bare(model, name))
    return names


def _name(names: dict[int, str], p: Tensor) -> str:
    if id(p) not in names:
        raise StateError("the optimizer updates what is no parameter of the model", f"tensor: {p._meta}")
    return names[id(p)]


def _is_fresh(optimizer: Any) -> bool:
    """Whether an optimizer is to keep something, and does not yet."""
    keeps = optimizer._counts or any(map(optimizer._states, optimizer.param_groups))
    return keeps and not optimizer.state


def _template(optimizer: Any) -> dict[str, Any]:
    """The state that a first step would make, by a step of a copy along gradients of 0."""
    made = copy.deepcopy(optimizer)
    for name in ("_before", "_after", "_before_any", "_after_any"):  # hooks of the program's are not for this
        setattr(made, name, [])
    with no_grad():
        for group in made.param_groups:
            for p in group["params"]:
                p.grad = ops.zeros_like(p) if p.requires_grad else None
    made.step()
    return {**made.state_dict(), "param_groups": optimizer.state_dict()["param_groups"]}


def _numbered(
    optimizer: Any, order: list[list[str]], states: dict[Any, Any], groups: list[Any], strict: bool
) -> dict[str, Any]:
    """A state by names as this optimizer numbers its parameters."""
    by_name = {name: group for group in groups for name in group["params"]}
    numbered: dict[int, Any] = {}
    settings = []
    number = 0
    for group, names in zip(optimizer.param_groups, order, strict=True):
        lacking = [name for name in names if name not in by_name]
        if lacking and strict:
            raise StateError(f"set_optimizer_state_dict: {lacking[0]} is in none of the saved groups")
        saved = next(
            (by_name[name] for name in names if name in by_name), {} if names else _only_empty(groups)
        )
        rest = {k: v for k, v in {**group, **saved}.items() if k != "params"}
        settings.append({**rest, "params": [*range(number, number + len(names))]})
        for name, p in zip(names, group["params"], strict=True):
            if name in states:
                numbered[number] = states[name]
            elif strict and states and p.requires_grad and name in by_name:
                raise StateError(
                    f"set_optimizer_state_dict: the saved state has nothing of {name}",
                    "StateDictOptions(strict=False) leaves it without",
                )
            number += 1
    return {"state": numbered, "param_groups": settings}


def _only_empty(groups: list[Any]) -> dict[str, Any]:
    """The settings of the group without parameters, if there is one."""
    found = [group for group in groups if not group["params"]]
    return found[0] if len(found) == 1 else {}


def _flattened(states: dict[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    flat: dict[str, Any] = {}

    def add(start: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                add(f"{start}.{key}", item)
        else:
            flat[start] = value

    for name, values in states.items():
        for key, value in values.items():
            add(f"state.{name}.{key}", value)
    for group in groups:
        for name in group["params"]:
            flat.update((f"param_groups.{name}.{k}", v) for k, v in group.items() if k != "params")
    return flat


def _unflattened(
    optimizer: Any, order: list[list[str]], flat: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """States and groups from keys joined by dots: of each group as this optimizer has it.

    Raises StateError where parameters of one group were saved with settings that differ.
    """
    states: dict[str, Any] = {}
    groups = []
    for own, names in zip(optimizer.param_groups, order, strict=True):
        group: dict[str, Any] = {"params": list(names)}
        for name in names:
            values: dict[str, Any] = {}
            for key, value in _below(flat, f"state.{name}."):
                *above, last = key.split(".")
                node = values
                for step in above:
                    node = node.setdefault(step, {})
                node[last] = value
            if values:
                states[name] = values
            for key in own:
                full = f"param_groups.{name}.{key}"
                if key == "params" or full not in flat:
                    continue
                if _differs(group.setdefault(key, flat[full]), flat[full]):
                    raise StateError(
                        f"set_optimizer_state_dict: {key} of {name} was saved as {flat[full]!r:.60}, of "
                        f"{names[0]} as {group[key]!r:.60}, and here they are in one group"
                    )
        groups.append(group)
    return states, groups


def _below(flat: dict[str, Any], start: str) -> Iterator[tuple[str, Any]]:
    for key, value in flat.items():
        if key.startswith(start):
            yield key.removeprefix(start), value


def _differs(a: Any, b: Any) -> bool:
    return a is not b and not bool(a == b)


# ---- options -----------------------------------------------------------------------------------------------
def _checked(options: StateDictOptions | None) -> StateDictOptions:
    asked = options or StateDictOptions()
    if asked.broadcast_from_rank0 and not asked.full_state_dict:
        raise ArgumentValueError("StateDictOptions: broadcast_from_rank0=True needs full_state_dict=True")
    return asked


def _whole(state: Any, asked: StateDictOptions) -> Any:
    """A state with its tensors as the options ask for them."""
    if not asked.full_state_dict and not asked.cpu_offload:
        return state
    made = _mapped(state, asked)
    return {} if asked.full_state_dict and asked.cpu_offload and meeting_of(None).rank else made


def _mapped(value: Any, asked: StateDictOptions) -> Any:
    if isinstance(value, dict):
        return {k: _mapped(v, asked) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, asked) for v in value)
    if asked.full_state_dict and hasattr(type(value), "full_tensor"):
        value = value.full_tensor()
    return value.cpu() if asked.cpu_offload and isinstance(value, Tensor) else value
