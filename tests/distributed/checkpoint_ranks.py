"""Ranks that are threads, tensors of which each has chunks, and a comparison: for tests of checkpoints."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import lamina
from lamina.distributed.checkpoint import Chunk, Meeting


class ThreadMeeting(Meeting):
    """Ranks that are threads of one process.  A broken barrier ends them all."""

    def __init__(self, rank: int, shared: dict, name: str = ""):
        self.rank, self.size, self._shared, self._name = rank, shared["size"], shared, name
        self._apart = None

    def _barrier(self) -> threading.Barrier:
        return self._shared["barriers" + self._name]

    def barrier(self) -> None:
        self._barrier().wait(60)

    def gather(self, said: Any) -> Any:
        self._shared["said" + self._name, self.rank] = said
        self.barrier()
        found = [self._shared["said" + self._name, r] for r in range(self.size)] if self.rank == 0 else None
        self.barrier()
        return found

    def broadcast(self, said: Any) -> Any:
        if self.rank == 0:
            self._shared["told" + self._name] = said
        self.barrier()
        found = self._shared["told" + self._name]
        self.barrier()
        return found

    def apart(self) -> Meeting:
        if self._apart is None:
            self.barrier()
            self._shared.setdefault("barriers.apart", threading.Barrier(self.size))
            self._apart = ThreadMeeting(self.rank, self._shared, ".apart")
            self.barrier()
        return self._apart


def on_ranks(size: int, work: Callable[[ThreadMeeting], Any]) -> list[Any]:
    """What `work` returns on each rank, or the exception that ended it there."""
    shared: dict = {"size": size, "barriers": threading.Barrier(size)}
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(ThreadMeeting(rank, shared))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


class Shard:
    """A tensor of which a rank has these boxes of an array."""

    def __init__(self, whole: np.ndarray, boxes: list):
        self.shape = whole.shape
        self.chunks = [
            Chunk(o, s, lamina.tensor(whole[tuple(slice(a, a + n) for a, n in zip(o, s))])) for o, s in boxes
        ]

    def __lamina_chunks__(self) -> list[Chunk]:
        return self.chunks

    def into(self, whole: np.ndarray) -> None:
        """Write the chunks that are here into the whole."""
        for c in self.chunks:
            whole[tuple(slice(a, a + n) for a, n in zip(c.offsets, c.sizes))] = c.tensor.numpy()


def rows(shape: tuple, rank: int, size: int, dim: int = 0) -> list:
    """The box of a rank where a dim is split evenly, the last one's smaller or empty."""
    each = -(-shape[dim] // size)
    begin = min(rank * each, shape[dim])
    count = min(each, shape[dim] - begin)
    offsets, sizes = [0] * len(shape), list(shape)
    offsets[dim], sizes[dim] = begin, count
    return [(tuple(offsets), tuple(sizes))] if count else []


def same(a: Any, b: Any) -> bool:
    """Whether two nested states are alike: types, dtypes, values bit by bit."""
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, lamina.Tensor):
        x, y = a.detach(), b.detach()
        return x.dtype is y.dtype and x.shape == y.shape and x._data.tobytes() == y._data.tobytes()
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (a == b or a != a and b != b)
