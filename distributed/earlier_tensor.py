"""What PyTorch kept in torch.distributed._tensor before it was torch.distributed.tensor."""

from __future__ import annotations

from . import device_mesh
from .tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    experimental,
    full,
    ones,
    placement_types,
    rand,
    randn,
    zeros,
)

__all__ = [
    "DTensor",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "device_mesh",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "experimental",
    "full",
    "ones",
    "placement_types",
    "rand",
    "randn",
    "zeros",
]
