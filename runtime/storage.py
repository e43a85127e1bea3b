"""What tensors that share memory share: how often it was written, by which line, and who else can see it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from .places import Place

if TYPE_CHECKING:
    from .tensor import Tensor


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

    def add_view(self, view: Tensor) -> None:
        """Remember a view for as long as it lives."""
        views = self.views
        if views is None:
            self.views = [ref(view)]
            return
        views.append(ref(view))
        if len(views) >= 64 and not len(views) & (len(views) - 1):  # at each power of two: amortised constant time
            self.views = [r for r in views if r() is not None]

    def live_views(self) -> list[Tensor]:
        """The views that still exist, oldest first."""
        return [view for r in self.views or () if (view := r()) is not None]

    def written(self, writer: tuple[str, Place]) -> None:
        """Note a write, after it was done."""
        self.version += 1
        self.writer = writer
