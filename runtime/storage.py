"""What tensors that share memory share: how often it was written, by which line, and who else can see it."""

from __future__ import annotations

from .places import Place


class Storage:
    """One piece of memory, seen by a tensor and all of its views.

    version: counts the writes.  Whoever saved an array for backward remembers the version and refuses a later
    one.  writer: the op and the line of the last write.  exposed: a NumPy array, DLPack capsule or buffer of
    it is out, so it can change unseen.  history: how often a write gave the base another history; views made
    before derive theirs anew.

    A tensor gets its storage when first asked for one: most results are never saved, viewed or written.
    """

    # Defaults live on the class, so that making one is a bare allocation.
    version = 0
    writer: tuple[str, Place] | None = None
    exposed = False
    history = 0

    def written(self, writer: tuple[str, Place]) -> None:
        """Note a write, after it was done."""
        self.version += 1
        self.writer = writer
