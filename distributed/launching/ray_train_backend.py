"""Ray Train's workers as ranks: a backend config for its DataParallelTrainer.

    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    workers = ScalingConfig(num_workers=4)
    DataParallelTrainer(train, backend_config=LaminaConfig(), scaling_config=workers).fit()

Ray Train starts all workers anew where one fails, `RunConfig(failure_config=FailureConfig(max_failures=2))`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

from .ray_ranks import address


class LaminaConfig(BackendConfig):
    """Has `lamina.distributed.init_process_group()` in each worker meet the others."""

    @property
    def backend_cls(self) -> type[Backend]:
        """What Ray Train calls once its workers are there."""
        return _Ranks


class _Ranks(Backend):
    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Tell each worker its rank, and where rank 0 is."""
        host, port = worker_group.execute_single(0, address)
        common = {"WORLD_SIZE": str(len(worker_group)), "MASTER_ADDR": host, "MASTER_PORT": str(port)}
        told = [
            worker_group.execute_single_async(rank, _tell, common | {"RANK": str(rank)})
            for rank in range(len(worker_group))
        ]
        ray.get(told)


def _tell(variables: Mapping[str, str]) -> None:
    os.environ.update(variables)
