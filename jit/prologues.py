"""Keeps what was computed of weights alone, for as long as the weights stay as they are.

A prologue (passes/programs/prologue.py) takes captured tensors that its trace does not write.  Its results
are computed at the first call, and again when one of the tensors was written, was given other memory, or can
have changed unseen: memory that a NumPy array or a DLPack capsule shows is trusted for no longer than a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, call, is_
from weakref import ref

import numpy as np

from ..runtime import Tensor
from ..runtime.history import storage_of
from ..runtime.storage import Storage

Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


_data, _storage = attrgetter("_data"), attrgetter("_storage")
_counts = attrgetter("version", "unseen", "exposed")


class Prologue:
    """The results of one prologue; for any number of threads.  They go with it."""

    def __init__(self, run: Run):
        self.run = run
        self._kept: tuple[_Seen, tuple[np.ndarray, ...]] | None = None
        self.runs = 0  # for explain(): how often it had to be computed

    def results(self, tensors: Sequence[Tensor]) -> tuple[np.ndarray, ...]:
        """What the prologue gives for these tensors.  Only to be read: later calls are handed the same."""
        kept = self._kept
        if kept is not None and kept[0].holds(tensors):
            return kept[1]
        # Looked at before it is read: a write that comes between is then found by the next call.
        seen = _Seen(tensors)
        results = tuple(self.run([x._data for x in tensors]))
        self.runs += 1
        self._kept = seen, results  # in one step
        return results


class _Seen:
    """Tensors' memory as it was: which, and how often it had been written.

    A language model has five hundred, and asks at every token: by loops of C's (40 ns for each tensor).
    """

    def __init__(self, tensors: Sequence[Tensor]):
        stores = [storage_of(x) for x in tensors]
        self.arrays = [ref(x._data) for x in tensors]
        self.stores = [ref(store) for store in stores]
        self.counts = [(store.version, store.unseen, False) for store in stores]  # False: not exposed
        self.marks = [(k, s.marks()) for k, s in enumerate(stores) if type(s) is not Storage]

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the tensors' memory is what it was."""
        stores = [*map(_storage, tensors)]
        return (
            all(map(is_, map(_data, tensors), map(call, self.arrays)))
            and None not in stores
            and all(map(is_, stores, map(call, self.stores)))
            and [*map(_counts, stores)] == self.counts
            and all(stores[k].marks() == marks for k, marks in self.marks)
        )
