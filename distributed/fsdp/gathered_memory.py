"""Memory of gathered parameters, which is given back while their arrays are still known to history.

Backward needs the parameters again that forward used, and its nodes hold arrays of them.  So an array stays,
at its address, and the pages below it go back to the system; before backward comes to them they are written
anew. Whoever comes to them in between finds, by the count of writes, that they were changed, and raises.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np

from ...ir.errors import ArgumentError
from ...ir.types import Type
from ...runtime.changes import advance_contents
from ...runtime.history import storage_of
from ...runtime.places import here
from ...runtime.tensor import Parameter, Tensor, wrap

_ALIGN = 64
_GIVES_BACK = hasattr(mmap, "MADV_DONTNEED")  # elsewhere pages stay until backward is done


class _GivenBack(Tensor):
    """What a gathered tensor is while its memory is given back: who asks for its array is told so."""

    __slots__ = ()

    @property
    def _data(self) -> Any:  # type: ignore[override]
        raise ArgumentError(
            "a gathered parameter of a fully sharded module was used after it was given back",
            f"parameter: {self._meta}",
            "use module.weight anew, inside of the module's forward or after module.unshard()",
        )


class _GivenBackParameter(_GivenBack, Parameter):
    """The same of a parameter."""

    __slots__ = ()


_ABSENT: dict[type, type] = {Tensor: _GivenBack, Parameter: _GivenBackParameter}
_PRESENT = {absent: present for present, absent in _ABSENT.items()}


class Memory:
    """One piece of memory for several arrays.

    filled: whether what stands there counts.
    """

    def __init__(self, kinds: list[Type]):
        ends, total = [], 0
        for kind in kinds:
            total += -(-prod([int(n) for n in kind.shape]) * kind.dtype.itemsize // _ALIGN) * _ALIGN
            ends.append(total)
        self.nbytes = total
        self._pages: Any = mmap.mmap(-1, max(total, 1)) if _GIVES_BACK else None
        raw = np.frombuffer(self._pages, np.uint8) if _GIVES_BACK else np.empty(max(total, 1), np.uint8)
        self.arrays: list[np.ndarray] = []
        for kind, begin in zip(kinds, [0, *ends][: len(kinds)], strict=True):
            count = prod([int(n) for n in kind.shape])
            part = raw[begin : begin + count * kind.dtype.itemsize]
            self.arrays.append(part.view(kind.dtype.numpy).reshape(kind.shape))

    def give_back(self) -> None:
        """Let the system have the pages; the arrays hold zeros then."""
        if self._pages is not None:
            self._pages.madvise(mmap.MADV_DONTNEED)


class Gathered:
    """The whole parameters of a group while something knows of them: tensors over one piece of memory.

    leaves: ordinary tensors over the memory.  standing: the parameters that stand in modules, which are
    those, or made of them.  versions: how often each was written when it was last given back.  marks: what
    tells the values apart that were gathered.  begun: how often each had been written by then.
    """

    def __init__(self, kinds: list[Type]):
        self.memory = Memory(kinds)
        self.leaves = [wrap(a, k) for a, k in zip(self.memory.arrays, kinds, strict=True)]
        self.standing: list[Tensor] = []
        self.versions: list[int] | None = None
        self.marks: list[tuple] = []
        self.begun: list[tuple] = []

    def filled(self, marks: list[tuple]) -> None:
        """Note that the memory was written: what history saved of it counts again, if values are the same."""
        for i, x in enumerate(self.leaves):
            x.__class__ = _PRESENT.get(type(x), type(x))
            if self.versions is not None and marks == self.marks:
                storage_of(x).version = self.versions[i]
        self.versions, self.marks = None, marks
        self.settle()
        advance_contents()

    def renewed(self, marks: list[tuple]) -> None:
        """Note that the memory was written with other values: what history saved of it counts no more."""
        self.marks = marks
        for x in self.leaves:
            storage_of(x).written(("fully_shard", here()))
        self.settle()

    def written(self) -> list[int]:
        """Which were written by others since they were gathered."""
        return [i for i, x in enumerate(self.leaves) if storage_of(x).marks() != self.begun[i]]

    def settle(self) -> None:
        """Take what stands here for what was gathered."""
        self.begun = [storage_of(x).marks() for x in self.leaves]

    def give_back(self) -> None:
        """Give the memory back; whoever reads the tensors, or what history saved of them, raises."""
        self.versions = [storage_of(x).version for x in self.leaves]
        for x in self.leaves:
            storage_of(x).written(("reshard", here()))
            x.__class__ = _ABSENT[type(x)]
        self.memory.give_back()
