"""What fully sharded modules are told: dtypes, offloading, strategies, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ...ir.dtypes import DType


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a module's calls.

    param_dtype: of gathered parameters and of what is computed.  reduce_dtype: in which gradients are
    averaged, `param_dtype` unless given.  output_dtype: of floating results.  cast_forward_inputs: floating
    arguments become `param_dtype`.  Parameters as they are kept, their gradients and states have their own
    dtype.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parts stay where they are."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts are kept in the CPU's memory, where they are anyway."""

    pin_memory: bool = True


# ---- those of the wrapper
class ShardingStrategy(Enum):
    """What of a model each rank has a part of alone.

    FULL_SHARD: parameters, gradients, states.  SHARD_GRAD_OP: the same, but parameters stay whole between
    forward and backward.  NO_SHARD: nothing, as in data parallel training.  HYBRID_SHARD,
    _HYBRID_SHARD_ZERO2: the first two within groups of ranks, which average with each other.
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the parameters of the module before are gathered in backward: always before they are needed."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """The dtypes of a wrapped module's calls, as `MixedPrecisionPolicy`; buffer_dtype: of buffers, once."""

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[Any] = field(default_factory=tuple)


@dataclass
class CPUOffload:
    """Parts are kept in the CPU's memory, where they are anyway."""

    offload_params: bool = False
