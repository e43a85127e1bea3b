"""What tensors that share memory share: how often it was written, by which line, and who else can see it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import ref

from .places import Place

if TYPE_CHECKING:
    from .tensor import Tensor

_pruning = threading.Lock()


class Storage:
    """One piece of memory, seen by a tensor and all of its views.

    version: counts the writes.  Whoever saved an array for backward remembers the version and refuses a later one.
    writer: the op and the line of the last write.  exposed: a NumPy array, DLPack capsule or buffer of it is out, so it can
    change unseen.  views: the differentiable views that are alive; when one is written, all get new histories.

    A tensor gets its storage when first asked for one: most results are never saved, viewed or written.
    """

    # Defaults live on the class, so that making one is a bare allocation.
    version = 0
    writer: tuple[str, Place] | None = None
    exposed = False
    views: list[ref[Tensor]] | None = None

    def prune(self) -> None:
        """Forget views that are gone.  Called each 64 new ones; works at powers of two, so at constant cost each."""
        views = self.views or []
        count = len(views)
        if not count & (count - 1) and _pruning.acquire(blocking=False):
            try:
                # Cuts a prefix only, as another thread may be appending.
                views[:count] = [r for r in views[:count] if r() is not None]
            finally:
                _pruning.release()

    def live_views(self) -> list[Tensor]:
        """The views that still exist, oldest first."""
        return [view for r in self.views or () if (view := r()) is not None]

    def written(self, writer: tuple[str, Place]) -> None:
        """Note a write, after it was done."""
        self.version += 1
        self.writer = writer
