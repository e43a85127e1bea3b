"""Executables whose memory holds garbage at first, with guarded bytes around results and scratch memory."""

from __future__ import annotations

import numpy as np

from lamina.jit.garbage import GARBAGE
from lamina.runtime import memory, native

FENCE = 4096  # bytes before and after
PATTERN = 0xA5

_fenced: list[np.ndarray] = []


class WrittenOutside(Exception):
    """Native code wrote beside its memory."""


def fenced(nbytes: int) -> np.ndarray:
    """That many bytes of garbage that begin on a cache line, between two fences."""
    block = np.full(nbytes + 2 * FENCE + memory.LINE, PATTERN, np.uint8)
    start = FENCE + -(memory.address(block) + FENCE) % memory.LINE
    block[start : start + nbytes] = GARBAGE
    _fenced.append(block[start - FENCE : start])
    _fenced.append(block[start + nbytes :])
    return block[start : start + nbytes]


def _array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.ndarray(shape, dtype, fenced(size))


class Guarded(native.Executable):
    """An executable with such memory."""

    def _load(self, manifest, constants, objects, target, threads, arena=None, library=None) -> None:
        super()._load(manifest, constants, objects, target, threads, fenced, library)
        self._fresh = [(_array, shape, dtype) for _, shape, dtype in self._fresh]


def check() -> None:
    """Look at all fences, and forget them.  Raises WrittenOutside."""
    broken = [fence for fence in _fenced if (fence != PATTERN).any()]
    count = sum(int((fence != PATTERN).sum()) for fence in broken)
    _fenced.clear()
    if broken:
        raise WrittenOutside(f"{count} bytes were written outside of {len(broken)} arrays")
