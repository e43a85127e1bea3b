"""States of sharded models as one process has them: whole tensors, on all ranks or the first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...nn.module import Module
from ...runtime import Tensor
from ..groups import get_rank
from ..tensor.dtensor import DTensor
from .policies import BackwardPrefetch, CPUOffload, MixedPrecision, ShardingStrategy


class StateDictType(Enum):
    """What `state_dict()` of a wrapped model holds: whole tensors, or DTensors."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """What the states of an optimizer are found by: names of parameters, or their numbers."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass
class StateDictConfig:
    """offload_to_cpu: tensors are on the CPU, as they are anyway."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """rank0_only: the first rank alone has the tensors; others an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """DTensors."""

    _use_dtensor: bool = True


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """What this rank has."""


@dataclass
class OptimStateDictConfig:
    """offload_to_cpu: tensors are on the CPU, as they are anyway."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """rank0_only: the first rank alone has the tensors; others an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """DTensors."""

    _use_dtensor: bool = True


def whole_state(state: dict[str, Any], first_alone: bool) -> dict[str, Any]:
    """A state with its DTensors whole; all ranks call it.  first_alone: others get an empty one."""
    keeps = not first_alone or get_rank() == 0
    made: Any = type(state)()
    for key, value in state.items():
        value = whole_value(value)
        if keeps:
            made[key] = value
    versions = getattr(state, "_metadata", None)
    if versions is not None:
        made._metadata = versions
    return made


def whole_value(value: Any) -> Any:
    """The value, a DTensor as an ordinary tensor."""
    return value.detach().full_tensor() if isinstance(value, DTensor) else value


def cut_state(state: Mapping[str, Any], module: Module) -> dict[str, Any]:
    """A state of whole tensors, which all ranks have, as the module's tensors lie."""
    own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    made: dict[str, Any] = {}
    for key, value in state.items():
        here = own.get(key)
        fits = isinstance(value, Tensor) and not value._compound
        if isinstance(here, DTensor) and fits and value.shape == here.shape:
            value = here.lying_alike(value.detach())
        made[key] = value
    versions = getattr(state, "_metadata", None)
    if versions is not None:
        return _with_versions(made, versions)
    return made


def _with_versions(state: dict[str, Any], versions: Any) -> Any:
    found: Any = OrderedDict(state)
    found._metadata = versions
    return found


# PyTorch has these beside them.
__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictType",
    "cut_state",
    "whole_state",
    "whole_value",
]
