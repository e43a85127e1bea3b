"""What PyTorch keeps in torch.distributed._composable: ways to change modules in place."""

from __future__ import annotations

from . import fsdp
from .fsdp import fully_shard

__all__ = ["fsdp", "fully_shard"]
