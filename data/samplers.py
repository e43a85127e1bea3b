"""Samplers: in which order a loader asks for the samples, and how it groups them into batches."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from ..ir import dtypes, meeting
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Generator, as_tensor
from ..runtime.random import multinomial, randint, randperm

T = TypeVar("T", covariant=True)
CHUNK = 32  # indices that are drawn at a time with replacement: an epoch may be endless, or left early


def draw_seed(generator: Generator | None) -> int:
    """A seed drawn from `generator`, or from the default one."""
    return int(randint(0, 2**63 - 1, (), generator=generator))


def require_count(name: str, value: Any) -> None:
    """Refuse what is no positive int, or more than a list can hold. Raises ArgumentValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= sys.maxsize:
        raise ArgumentValueError(f"{name} must be a positive int, not {value!r}")


def require_bool(name: str, value: Any) -> None:
    """Refuse what is no bool. Raises ArgumentError."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be a bool, not {value!r}")


def require_method(name: str, value: Any, method: str) -> None:
    """Refuse an object without `__len__` or `__iter__`. Raises ArgumentError."""
    if isinstance(value, type) or not hasattr(value, method):
        raise ArgumentError(f"{name} must be an object with {method}, not a {type(value).__name__}")


class Sampler(Generic[T]):
    """Keys of a dataset in some order. A subclass defines `__iter__`, and `__len__` where it is known."""

    def __iter__(self) -> Iterator[T]:
        raise ArgumentError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2 … to the end."""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order; with `replacement`, `num_samples` independent ones.

    Without replacement and with more samples than there are, one order follows another.
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ):  # fmt: skip
        require_method("RandomSampler(data_source=…)", data_source, "__len__")
        require_bool("RandomSampler(replacement=…)", replacement)
        if num_samples is not None:
            require_count("RandomSampler(num_samples=…)", num_samples)
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has. The dataset may change its length between epochs."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        # Without a generator, one seed is drawn: what else draws during the epoch then does not change its
        # order.
        generator = self.generator or Generator().manual_seed(draw_seed(None))
        yield from islice(self._endless(len(self.data_source), generator), self.num_samples)

    def _endless(self, size: int, generator: Generator) -> Iterator[int]:
        while size:
            if self.replacement:
                yield from randint(0, size, (CHUNK,), generator=generator).tolist()
            else:
                yield from randperm(size, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        require_method("SubsetRandomSampler(indices=…)", indices, "__len__")
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Draws `num_samples` indices with probabilities proportional to `weights`."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True,
        generator: Generator | None = None,
    ):  # fmt: skip
        require_count("WeightedRandomSampler(num_samples=…)", num_samples)
        require_bool("WeightedRandomSampler(replacement=…)", replacement)
        self.weights = as_tensor(weights, dtype=dtypes.float64)
        if self.weights.ndim != 1:
            raise ArgumentValueError(
                "WeightedRandomSampler(weights=…): takes a sequence of numbers",
                f"weights: {self.weights._meta}",
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        drawn = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class DistributedSampler(Sampler[T]):
    """The share of indices that the process `rank` of `num_replicas` takes: every num_replicas-th one.

    num_replicas, rank: of all ranks that `distributed.init_process_group` joined, unless given.
    shuffle: in an order that follows from `seed` and the epoch that `set_epoch` says, the same in all
    processes.  All shares are of one length: some indices come twice, or with `drop_last` some not at all.
    """

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ):  # fmt: skip
        require_method("DistributedSampler(dataset=…)", dataset, "__len__")
        if num_replicas is None or rank is None:
            if meeting.CARRIER is None:
                raise ArgumentValueError(
                    "DistributedSampler: there is no process group to ask for num_replicas and rank",
                    "call distributed.init_process_group() first, or pass both: how many processes share "
                    "the dataset, and which of them this is",
                )
            num_replicas = len(meeting.everyone()) if num_replicas is None else num_replicas
            rank = meeting.own_rank() if rank is None else rank
        require_count("DistributedSampler(num_replicas=…)", num_replicas)
        if not isinstance(rank, int) or not 0 <= rank < num_replicas:
            raise ArgumentValueError(
                f"DistributedSampler(rank=…): must be an int in 0 … {num_replicas - 1}, not {rank!r}"
            )
        if not isinstance(seed, int):
            raise ArgumentError(f"DistributedSampler(seed=…): must be an int, not {type(seed).__name__}")
        self.dataset, self.num_replicas, self.rank, self.epoch = dataset, num_replicas, rank, 0
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last

    @property
    def num_samples(self) -> int:
        """How many indices a process takes."""
        share = len(self.dataset) / self.num_replicas
        return math.floor(share) if self.drop_last else math.ceil(share)

    @property
    def total_size(self) -> int:
        """How many indices all processes take together."""
        return self.num_samples * self.num_replicas

    def __iter__(self):
        size = len(self.dataset)
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = randperm(size, generator=generator).tolist()
        else:
            order = list(range(size))
        while order and len(order) < self.total_size:
            order += order[: self.total_size - len(order)]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; without, each has the same order."""
        if not isinstance(epoch, int):
            raise ArgumentError(f"set_epoch(epoch): epoch must be an int, not {type(epoch).__name__}")
        self.epoch = epoch


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` keys of another sampler; `drop_last` leaves out a last one that is shorter."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        require_method("BatchSampler(sampler=…)", sampler, "__iter__")
        require_count("BatchSampler(batch_size=…)", batch_size)
        require_bool("BatchSampler(drop_last=…)", drop_last)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        keys = iter(self.sampler)
        while batch := list(islice(keys, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        full = len(self.sampler) / self.batch_size
        return math.floor(full) if self.drop_last else math.ceil(full)
