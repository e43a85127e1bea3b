"""How a batch is fetched, here or in a worker, and what loader, workers and programs know of each other.

What it takes to have workers, `multiprocessing` above all, is not loaded here: most programs have none.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from ..ir.errors import LaminaError
from .datasets import Dataset, IterableDataset, samples_at


class WorkerError(LaminaError, RuntimeError):
    """A worker of a loader that died, or took too long, or raised what can't be raised again here."""


class Exhausted(NamedTuple):
    """In place of a batch: the stream has ended."""


class Raised(NamedTuple):
    """In place of a batch: what making it raised in a worker."""

    error: BaseException


class Fetch:
    """Gets one batch: from a dataset, the samples at some keys; from a stream, its next few.

    batched: a key is a list of keys (of a stream, a number of samples), and what they give is collated as a
    list.
    """

    def __init__(self, dataset: Dataset, collate: Callable, batched: bool, drop_last: bool):
        self.dataset, self.collate, self.batched, self.drop_last = dataset, collate, batched, drop_last
        self.stream = iter(dataset) if isinstance(dataset, IterableDataset) else None

    def __call__(self, key: Any) -> Any:
        if self.stream is not None:
            return self._next(key)
        if not self.batched:
            return self.collate(self.dataset[key])
        return self.collate(samples_at(self.dataset, key))

    def _next(self, count: int) -> Any:
        samples = list(islice(self.stream, count if self.batched else 1))
        if not samples or (self.drop_last and len(samples) < count):
            return Exhausted()
        return self.collate(samples if self.batched else samples[0])


class WorkerInfo(NamedTuple):
    """Which worker this process is: `id` of `num_workers`, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Dataset


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a loader, which one this is; None anywhere else."""
    return _info


def be_worker(info: WorkerInfo) -> None:
    """Say that this process is a worker, from now on to its end."""
    global _info
    _info = info


class Setup(NamedTuple):
    """What all workers of a loader are given. A worker's seed is `seed` plus its id; `blocks`: see Writer."""

    dataset: Dataset
    collate: Callable
    batched: bool
    drop_last: bool
    num_workers: int
    seed: int
    init: Callable[[int], Any] | None
    blocks: int
