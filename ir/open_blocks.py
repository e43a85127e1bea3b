"""The `with` blocks that a thread has open."""

from __future__ import annotations

import threading
import weakref
from typing import Any


class OpenBlocks(threading.local):
    """A thread's open blocks of one kind, each known by its context manager.

    Held weakly: an interrupt while one is entered or left may keep Python from leaving it, and then it is
    over when nobody holds its manager any more, or when the block around it is left.
    """

    def __init__(self) -> None:
        self.managers: list[weakref.ref[Any]] = []

    def innermost(self) -> Any:
        """The manager of the innermost block; None outside of any."""
        return next((manager for each in reversed(self.managers) if (manager := each()) is not None), None)

    def enter(self, manager: Any) -> None:
        self.managers.append(weakref.ref(manager))

    def leave(self, manager: Any) -> None:
        """End the innermost block of this manager, and those inside it that were not left."""
        for at in reversed(range(len(self.managers))):
            if self.managers[at]() is manager:
                del self.managers[at:]
                break
