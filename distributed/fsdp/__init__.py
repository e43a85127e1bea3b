"""Fully sharded modules: each rank keeps a part of every parameter, gradient and optimizer state.

for block in model.blocks:
    fully_shard(block)
fully_shard(model)                      # parameters are DTensors now, a part on each rank
optimizer = AdamW(model.parameters())   # its states lie as they do
model(batch).sum().backward()           # weights are gathered as they are used; gradients averaged, in parts
optimizer.step()
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.fsdp")

from .full_state import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from .policies import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardingStrategy,
)
from .sharding import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from .wrapper import FullyShardedDataParallel
