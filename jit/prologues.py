"""Keeps what was computed of weights alone, for as long as the weights stay as they are.

A prologue (passes/programs/prologue.py) takes captured tensors that its trace does not write.  Its results
are computed at the first call, and again when one of the tensors was written, was given other memory, or can
have changed unseen: memory that a NumPy array or a DLPack capsule shows is trusted for no longer than a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import ref

import numpy as np

from ..runtime import Tensor
from ..runtime.history import storage_of
from ..runtime.storage import Storage

Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


class Prologue:
    """The results of one prologue; for any number of threads.  They go with it."""

    def __init__(self, run: Run):
        self.run = run
        self._kept: tuple[list[tuple], tuple[np.ndarray, ...]] | None = None
        self.runs = 0  # for explain(): how often it had to be computed
        self.is_steady = False  # whether the last call found all tensors as they had been

    def results(self, tensors: Sequence[Tensor], are_same: bool = False) -> tuple[np.ndarray, ...]:
        """What the prologue gives for these tensors.  Only to be read: later calls are handed the same.

        are_same: whether they are known to be what they were when this was found steady.
        """
        kept = self._kept
        if kept is not None and are_same:
            return kept[1]
        if kept is not None:
            seen, results = kept
            for x, (array, was, version, unseen, marks) in zip(tensors, seen):
                if (
                    x._data is not array()
                    or (store := x._storage) is None
                    or store is not was()
                    or store.version != version
                    or store.unseen != unseen
                    or store.exposed
                    or (marks is not None and store.marks() != marks)
                ):
                    break
            else:
                self.is_steady = True
                return results
        self.is_steady = False
        # Looked at before it is read: a write that comes between is then found by the next call.
        seen = [_seen(x) for x in tensors]
        results = tuple(self.run([x._data for x in tensors]))
        self.runs += 1
        self._kept = seen, results  # in one step
        return results


def _seen(x: Tensor) -> tuple:
    """A tensor's memory as it is: which, and how often it has been written; the counts of others, if any."""
    store = storage_of(x)
    marks = store.marks() if type(store) is not Storage else None
    return ref(x._data), ref(store), store.version, store.unseen, marks
