"""What tensors that share memory share: how often it was written, by which line, and who else can see it."""

from __future__ import annotations

from sys import getrefcount

import numpy as np

from ..ir.errors import InplaceError
from . import changes, modes
from .changes import advance_contents
from .places import Place


class Storage:
    """One piece of memory, seen by a tensor and all of its views.

    version: counts the writes.  Whoever saved an array for backward remembers the version and refuses a later
    one.  writer: the op and the line of the last write.  exposed: a NumPy array, DLPack capsule or buffer of
    it is out, so it can change unseen.  unseen: counts the writes through `x.data`, which `version` leaves
    out, as PyTorch's does.  history: how often a write gave the base another history; views made before
    derive theirs anew.  memory: all of it, where a tensor was set to see a part.

    A tensor gets its storage when first asked for one: most results are never saved, viewed or written.
    """

    # Defaults live on the class, so that making one is a bare allocation.
    version = 0
    writer: tuple[str, Place] | None = None
    exposed = False
    unseen = 0
    history = 0
    memory: np.ndarray | None = None

    def written(self, writer: tuple[str, Place]) -> None:
        """Note a write, after it was done."""
        self.version += 1
        self.writer = writer
        changes.contents = next(changes.numbers)

    def expose(self) -> None:
        """Note that others see the memory from now on, and may write it."""
        self.exposed = True
        advance_contents()

    def marks(self) -> tuple[int, ...]:
        """Counts of which one has moved on after any write, for those who keep what they made of the data."""
        return self.version, self.unseen


def _alone(holder: Storage) -> int:
    store = holder.of = Storage()  # type: ignore[attr-defined]
    return getrefcount(store)


# References to a storage that one tensor has, and who writes it: no node that saved it will ever tell of this
# write, so its line need not be noted, which takes as long as a small write.
ALONE = _alone(Storage())


class Literal(Storage):
    """That of a tensor that a Python number beside a tensor was turned into: nobody writes it.

    number: the number, where its class is not Python's own: a recorder may know more of it.
    """

    number: object = None


class Inferred(Storage):
    """That of a tensor made under `inference_mode`, which is written nowhere else.

    It counts its writes as others do, so such a tensor may be saved for backward, which PyTorch's may not.
    """

    _version = 0

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, count: int) -> None:
        self._version = count
        advance_contents()
        if not modes.local.inference:
            raise InplaceError(
                "a tensor made under inference_mode() was written outside of it",
                "(Inplace update to inference tensor outside InferenceMode is not allowed.)",
                "write into x.clone(), or make it under no_grad()",
            )


class Apart(Storage):
    """That of `x.data`: a second count for the same memory, whose writes `of`, the first, doesn't see."""

    _version = 0

    def __init__(self, of: Storage):
        self.of = of

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, count: int) -> None:
        self._version = count
        of: Storage | None = self
        while isinstance(of, Apart):
            of = of.of
            of.unseen += 1
        advance_contents()

    @property
    def exposed(self) -> bool:
        return self.of.exposed

    @exposed.setter
    def exposed(self, out: bool) -> None:
        self.of.exposed = out

    def marks(self) -> tuple[int, ...]:
        return self._version, self.unseen, *self.of.marks()
