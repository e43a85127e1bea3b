"""Datasets: what can be indexed, what can only be iterated over, and what is made of other datasets."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from ..ir.errors import ArgumentError, ArgumentValueError, DimError, ShapeError
from ..runtime import Generator, Tensor
from ..runtime.random import randperm

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """A map from keys to samples. A subclass defines `__getitem__`, and `__len__` for the usual samplers.

    It may define `__getitems__`, from a list of keys to the list of their samples, for a loader to call once
    a batch.
    """

    def __getitem__(self, index: Any) -> T:
        raise ArgumentError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset) -> Dataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """A stream of samples. A subclass defines `__iter__`.

    Each worker of a loader iterates over a copy of its own: divide the stream by what `get_worker_info()`
    says, or every sample comes once for each worker.
    """

    def __iter__(self) -> Iterator[T]:
        raise ArgumentError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other: Dataset) -> Dataset:
        return ChainDataset([self, other])


def samples_at(dataset: Any, keys: list) -> Any:
    """The samples at some keys: asked for at once where the dataset can."""
    together = getattr(dataset, "__getitems__", None)
    return together(keys) if together else [dataset[key] for key in keys]


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors: sample i is the tuple of `tensor[i]`.

    Raises ShapeError where the tensors' lengths differ.
    """

    def __init__(self, *tensors: Tensor):
        for t in tensors:
            if not isinstance(t, Tensor):
                raise ArgumentError(f"TensorDataset(*tensors): takes tensors, not {type(t).__name__}")
        if len({len(t) for t in tensors}) > 1:
            raise ShapeError(
                "TensorDataset(*tensors): the tensors must have one length",
                *(f"tensor {i}: {t._meta}" for i, t in enumerate(tensors)),
            )
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[T]):
    """Datasets side by side: sample i is the tuple (or, of keywords, the dict) of their samples i."""

    def __init__(self, *args: Dataset, **kwargs: Dataset):
        if bool(args) == bool(kwargs):
            raise ArgumentValueError(
                "StackDataset: give datasets as arguments, or as keywords, and at least one"
            )
        self.datasets: Any = args or kwargs
        lengths = [len(d) for d in (args or kwargs.values())]
        if len(set(lengths)) > 1:
            raise ArgumentValueError(f"StackDataset: the datasets must have one length, not {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: d[index] for name, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: list[int]) -> list:
        named = self.datasets if isinstance(self.datasets, dict) else dict(enumerate(self.datasets))
        columns = {name: samples_at(d, indices) for name, d in named.items()}
        for name, column in columns.items():
            if len(column) != len(indices):
                raise ArgumentValueError(
                    f"StackDataset: dataset {name!r} gave {len(column)} samples for {len(indices)} keys"
                )
        rows = zip(*columns.values(), strict=True)
        if isinstance(self.datasets, dict):
            return [dict(zip(named, row, strict=True)) for row in rows]
        return list(rows)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T]):
    """One dataset after another. `cumulative_sizes`: where each ends."""

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentValueError("ConcatDataset(datasets): there must be at least one")
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise ArgumentError(
                    f"ConcatDataset(datasets): {type(d).__name__} can't be indexed", "use ChainDataset"
                )
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index):
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise DimError(f"index {index} is outside a ConcatDataset of {len(self)} samples")
        which = bisect_right(self.cumulative_sizes, at)
        return self.datasets[which][at - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[T]):
    """One stream after another."""

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = datasets

    def __iter__(self):
        for d in self._streams():
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self._streams())

    def _streams(self) -> Iterator[Any]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise ArgumentError(f"ChainDataset(datasets): takes IterableDatasets, not {type(d).__name__}")
            yield d


class Subset(Dataset[T]):
    """The samples of `dataset` at `indices`, in that order."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list:
        return samples_at(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset, lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset]:
    """Divide a dataset at random into subsets of `lengths`, numbers of samples or fractions that sum to 1.

    Of fractions, each length is rounded down and what is left goes one by one to the first subsets.
    Raises ArgumentValueError where the lengths don't add up.
    """
    size = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, share in enumerate(lengths):
            if not 0 <= share <= 1:
                raise ArgumentValueError(
                    f"random_split(lengths): fraction {i} must lie in [0, 1], not {share}"
                )
        lengths = [math.floor(size * share) for share in lengths]
        for i in range(size - sum(lengths)):
            lengths[i % len(lengths)] += 1
    if sum(lengths) != size:
        raise ArgumentValueError(
            f"random_split(lengths): they must sum to the dataset's {size} samples (or, as fractions, to 1)",
            f"lengths: {list(lengths)}, which sum to {sum(lengths)}",
        )
    order = randperm(size, generator=generator).tolist()
    ends = list(accumulate(lengths))
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, lengths, strict=True)]
