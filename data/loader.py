"""The loader: batches of a dataset, fetched here or by worker processes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..ir.errors import ArgumentError, ArgumentValueError
from ..ir.lazy import load
from ..ir.warned import warn
from ..runtime import Generator
from .collate import default_collate, default_convert
from .datasets import Dataset, IterableDataset
from .fetching import Exhausted, Fetch, Raised, Setup
from .samplers import BatchSampler, RandomSampler, SequentialSampler, draw_seed, require_method

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from .pool import Pool

PREFETCH = 2  # batches that each worker is ahead
FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}
T = TypeVar("T")


class DataLoader(Generic[T]):
    """Iterates over a dataset in batches; each `iter()` is an epoch.

    dataset: a map-style Dataset, or an IterableDataset. batch_size: None yields samples without collating
    them. shuffle, sampler, batch_sampler: the order; at most one of them. num_workers: processes that fetch;
    0 fetches here. collate_fn: from a list of samples to a batch. drop_last: leave out a last batch that is
    short. timeout: seconds to wait for a batch of a worker; 0 waits. worker_init_fn: called with the id in
    each worker. generator: what shuffling and the workers' seeds are drawn from. prefetch_factor: batches
    each worker is ahead (2). persistent_workers: keep the workers from one epoch to the next. pin_memory,
    pin_memory_device: accepted; batches are in ordinary memory. in_order: batches come in order in any case.
    progress: show on a terminal how far an epoch is, by tqdm; a text is what stands before the bar.

    The order of batches depends on the generator alone (of a stream, on num_workers too: each worker gives
    one in turn), and what samples draw at random on the generator and num_workers. Tensors from workers own
    their memory. An exception in a worker is raised here as what it is, with a note that holds the worker's
    id and traceback; who catches it gets the next batch after it. Raises ArgumentError, ArgumentValueError;
    WorkerError for a worker that died.

    Workers are forked on Linux, unless `multiprocessing_context` or multiprocessing.set_start_method says
    otherwise. A forked worker is there in 10 ms and shares the dataset's memory; a spawned one takes 0.8 s to
    import this package, gets the dataset pickled, and can't see what a notebook or a script without a
    `__main__` guard defines. What speaks against forking are locks that other threads hold at that moment.
    Lamina's own are free in the child (they are taken for the fork), NumPy's threads renew themselves, and
    the loader itself runs no threads. If your program has threads that hold locks of yours, pass
    multiprocessing_context="forkserver".
    """

    def __init__(
        self, dataset: Dataset, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable | None = None, batch_sampler: Iterable | None = None, num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None, generator: Generator | None = None, *,
        prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
        in_order: bool = True, progress: bool | str = False,
    ):  # fmt: skip
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        for name, order in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if order is not None:
                require_method(f"DataLoader({name}=…)", order, "__iter__")
        _check_order(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if generator is not None and not isinstance(generator, Generator):
            raise ArgumentError(
                f"DataLoader(generator=…): takes a lamina.Generator, not {type(generator).__name__}"
            )
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.worker_init_fn, self.generator, self.progress = worker_init_fn, generator, progress
        if progress:
            load("tqdm", "demo")  # that it is missing is said here
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.prefetch_factor = PREFETCH if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self._streams = isinstance(dataset, IterableDataset)
        if sampler is None and not self._streams:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None and not self._streams:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self._batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)
        self._pool: Pool | None = None
        self._told: int | None = None  # how many batches of a stream `len` said there are
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED and "_made" in self.__dict__:
            raise ArgumentValueError(f"{name} can't be changed once a DataLoader is made", "make another one")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """Batches of an epoch; of a stream, what its dataset's `__len__` promises."""
        if not self._streams:
            return len(self._index_sampler)
        size = len(self.dataset)
        if self.batch_size is not None:
            size = size // self.batch_size if self.drop_last else math.ceil(size / self.batch_size)
        self._told = size
        return size

    def __iter__(self) -> Iterator[Any]:
        return Batches(self, self._batches())

    def _batches(self) -> Iterator[Any]:
        # Drawn in any case: what is drawn after it does not depend on whether there are workers.
        seed = draw_seed(self.generator)
        keys = self._keys()
        if not self.num_workers:
            return _Here(Fetch(self.dataset, self.collate_fn, self._batched, self.drop_last), keys)
        pool, self._pool = self._pool, None
        if pool is None:
            pool = load(f"{__package__}.pool").Pool(
                self.multiprocessing_context,
                Setup(self.dataset, self.collate_fn, self._batched, self.drop_last, self.num_workers, seed,
                      self.worker_init_fn, self.prefetch_factor),
            )  # fmt: skip
        try:
            batches = pool.batches(keys, self.timeout)
        except BaseException:
            pool.stop()
            raise
        if self.persistent_workers:
            self._pool = pool
        return self._from_workers(pool, batches)

    # By PyTorch's names, for libraries that divide batches among processes.
    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _keys(self) -> Iterator[Any]:
        if self._streams:
            return repeat(self.batch_size)
        return iter(self._index_sampler)

    def _from_workers(self, pool: Pool, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches; at the end, or when the iteration is left, stop what is not to persist."""
        try:
            yield from batches
        finally:
            if not (self.persistent_workers and pool.usable):
                if self._pool is pool:
                    self._pool = None
                pool.stop()


class Batches:
    """The batches of an epoch.  After an error in making one comes the next one, as skipping wants it."""

    def __init__(self, loader: DataLoader, batches: Iterator[Any]):
        self._loader, self._batches = loader, batches
        self._count, self._bar = 0, self._shown() if loader.progress else None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._bar is not None:
                self._bar.close()
            raise
        if type(batch) is Raised:
            try:
                raise batch.error
            finally:
                del batch, self  # what is raised holds this frame: workers would wait for it to be gone
        self._count += 1
        if self._loader._streams:
            self._compare()
        if self._bar is not None:
            self._bar.update()
        return batch

    def _compare(self) -> None:
        """Warn of a batch of a stream beyond those that `len` told of."""
        told = self._loader._told
        if told is not None and self._count > told:
            parts = "; does each worker give a part of its own?" if self._loader.num_workers else ""
            warn(
                f"Length of IterableDataset {self._loader.dataset} was reported to be {told} (when "
                f"accessing len(dataloader)), but {self._count} samples have been fetched{parts}",
                UserWarning,
                stacklevel=3,
            )

    def _shown(self) -> Any:
        """A bar that shows how far it is; there is none where stderr is no terminal."""
        try:
            total = len(self)
        except TypeError:  # a stream that doesn't say
            total = None
        progress = self._loader.progress
        name = progress if isinstance(progress, str) else None
        return load("tqdm").tqdm(total=total, desc=name, unit="batch", leave=False, disable=None)


class _Here:
    """Batches that are fetched in this process."""

    def __init__(self, fetch: Fetch, keys: Iterator[Any]):
        self._fetch, self._keys = fetch, keys

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        key = next(self._keys)
        try:
            batch = self._fetch(key)
        except StopIteration as error:  # that one would end the loop as if all were well
            raise RuntimeError("the dataset raised StopIteration") from error
        if isinstance(batch, Exhausted):
            self._keys = iter(())
            raise StopIteration
        return batch


def _context(given: str | BaseContext | None, num_workers: int) -> BaseContext | None:
    if not num_workers:
        return None
    processes = load("multiprocessing")
    if given is None and sys.platform == "linux":
        given = processes.get_start_method(allow_none=True) or "fork"
    return processes.get_context(given) if given is None or isinstance(given, str) else given


MOST_WORKERS = 1024  # each is a process


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, context) -> None:
    if not isinstance(num_workers, int) or num_workers < 0:
        raise ArgumentValueError(
            f"DataLoader(num_workers=…): must be an int of at least 0, not {num_workers!r}"
        )
    if num_workers > MOST_WORKERS:
        raise ArgumentValueError(f"DataLoader(num_workers=…): at most {MOST_WORKERS}, not {num_workers}")
    if timeout < 0:
        raise ArgumentValueError(f"DataLoader(timeout=…): must be at least 0, not {timeout}")
    if prefetch_factor is not None and prefetch_factor <= 0:
        raise ArgumentValueError(f"DataLoader(prefetch_factor=…): must be positive, not {prefetch_factor}")
    if not num_workers:
        for name, given in (
            ("timeout", timeout), ("prefetch_factor", prefetch_factor),
            ("persistent_workers", persistent_workers), ("multiprocessing_context", context),
        ):  # fmt: skip
            if given:
                raise ArgumentValueError(
                    f"DataLoader({name}=…): there are no workers", "pass num_workers=1 or more"
                )
    if context is None:
        return
    methods = load("multiprocessing").get_all_start_methods()
    if isinstance(context, str) and context not in methods:
        raise ArgumentValueError(
            f"DataLoader(multiprocessing_context=…): must be one of {', '.join(methods)}, not {context!r}"
        )
    if not isinstance(context, (str, load("multiprocessing.context").BaseContext)):
        raise ArgumentError(
            "DataLoader(multiprocessing_context=…): takes a start method or a context, "
            f"not {type(context).__name__}"
        )


def _check_order(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last) -> None:
    if isinstance(dataset, IterableDataset):
        for name, given in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
            if given not in (None, False):
                raise ArgumentValueError(f"DataLoader({name}=…): an IterableDataset comes in its own order")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size <= 0):
            raise ArgumentValueError(f"DataLoader(batch_size=…): must be a positive int, not {batch_size!r}")
    if sampler is not None and shuffle:
        raise ArgumentValueError(
            "DataLoader: sampler and shuffle exclude each other", "the sampler is the order"
        )
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ArgumentValueError(
                "DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ArgumentValueError(
            "DataLoader: batch_size=None makes no batches, so drop_last has nothing to leave out"
        )
