"""Triton's interpreter on memory that is watched: an access outside what is allowed raises AccessError.

Without it such an access reads or writes the process's own memory, or ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from triton.runtime import interpreter

Touched = Callable[[np.ndarray, int, bool], None]


class AccessError(AssertionError):
    """A kernel read or wrote where it has no memory."""


class _Watched:
    """The part of the interpreter that touches memory, and a look at the addresses before it does."""

    def __init__(
        self, plain: object, blocks: Callable[[], Sequence[tuple[int, int]]], touched: Touched | None
    ):  # fmt: skip
        self._plain, self._blocks, self._touched = plain, blocks, touched

    def __getattr__(self, name: str) -> object:
        return getattr(self._plain, name)

    def load(self, addresses, mask, other, dtype):
        self._look("reads", addresses, mask, np.dtype(dtype).itemsize)
        return self._plain.load(addresses, mask, other, dtype)

    def store(self, addresses, values, mask):
        self._look("writes", addresses, mask, values.itemsize)
        return self._plain.store(addresses, values, mask)

    def atomic_rmw(self, word, addresses, values, mask, order):
        self._look("updates", addresses, mask, values.itemsize)
        return self._plain.atomic_rmw(word, addresses, values, mask, order)

    def atomic_cas(self, addresses, compared, values, order):
        self._look("updates", addresses, np.True_, values.itemsize)
        return self._plain.atomic_cas(addresses, compared, values, order)

    def _look(self, what: str, addresses: np.ndarray, mask: np.ndarray, size: int) -> None:
        # some versions broadcast here, not before
        addresses, mask = np.broadcast_arrays(addresses, np.asarray(mask).astype(bool))
        used = addresses[mask].astype(np.uint64)
        blocks = np.array(sorted(self._blocks()) or [(0, 0)], np.uint64).reshape(-1, 2)
        at = np.searchsorted(blocks[:, 0], used, side="right") - 1
        starts, ends = blocks[at, 0], blocks[at, 0] + blocks[at, 1]
        outside = (at < 0) | (used < starts) | (used + np.uint64(size) > ends)
        if outside.any():
            first = int(used[outside][0])
            near = ", ".join(f"{start:#x}..{start + length:#x}" for start, length in blocks.tolist())
            raise AccessError(
                f"a kernel {what} {size} bytes at {first:#x}, one of {outside.sum()} places outside: {near}"
            )
        if self._touched is not None:
            self._touched(np.ascontiguousarray(used), size, what != "reads")


def watch(blocks: Callable[[], Sequence[tuple[int, int]]], touched: Touched | None = None) -> None:
    """From now on a kernel's access must lie within one of `blocks()`: pairs of address and size.

    touched: told the addresses, the size and whether they are written.
    """
    plain = interpreter._interpreter
    if isinstance(plain, _Watched):
        plain = plain._plain
    interpreter._interpreter = _Watched(plain, blocks, touched)
