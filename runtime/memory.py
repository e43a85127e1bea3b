"""Keeps freed memory for the next large array, and makes arrays that begin on a cache line.

By default glibc maps every block of more than 128 KiB anew and gives it back when it is freed, so that each
large result pays for its pages: adding two arrays of 16 M floats takes 10.8 ms with fresh memory and 5.3 ms
with what was freed before.  Two settings, once, make it keep blocks of up to 1 GiB.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable

import numpy as np

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_KEPT = 1 << 30

LINE = 64  # bytes of a cache line
PAGE = 2 << 20  # bytes of a huge page
# From here on an array begins on a cache line, which costs 1 us more than NumPy's own and saves every second
# of AVX-512's accesses from touching two lines.
ALIGNED_FROM = 64 << 10


def keep_freed_blocks() -> bool:
    """Ask the C library to keep freed memory; returns whether it does."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _KEPT) and mallopt(_M_TRIM_THRESHOLD, _KEPT))


def address(array: np.ndarray) -> int:
    """Where an array's first element is."""
    return array.__array_interface__["data"][0]


# NumPy's arrays begin, after Python's own head, with the pointer to the data; reading it there takes 0.1 us,
# where the interface above takes 1.7.
_DATA = object.__basicsize__
_at = ctypes.c_size_t.from_address


def _is_known_layout() -> bool:
    array = np.empty(LINE, np.uint8)[1:]
    return sys.implementation.name == "cpython" and _at(id(array) + _DATA).value == address(array)


_KNOWN = _is_known_layout()


def maker(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[tuple[int, ...], np.dtype], np.ndarray]:
    """What makes new dense arrays of that shape and type, not filled: large ones begin on a cache line."""
    return np.empty if math.prod(shape) * dtype.itemsize < ALIGNED_FROM else empty


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new dense array that begins on a cache line, not filled."""
    block = np.empty(math.prod(shape) * dtype.itemsize + LINE, np.uint8)  # NumPy advises huge pages for it
    start = _at(id(block) + _DATA).value if _KNOWN else address(block)
    return np.ndarray(shape, dtype, block, -start % LINE)


def is_alone(array: np.ndarray) -> bool:
    """Whether an array made by `empty` is the only one over its memory."""
    base = array.base
    return type(base) is np.ndarray and base.nbytes <= array.nbytes + LINE and sys.getrefcount(base) == _HELD


def _held() -> int:
    base = np.empty(LINE, np.uint8)
    array = base[:1]
    del base
    base = array.base
    return sys.getrefcount(base)


_HELD = _held()  # the references to a base that one array has, as `is_alone` counts them


def arena(nbytes: int) -> np.ndarray:
    """That many bytes beginning on a cache line, in huge pages of their own where they fill some.

    Raises MemoryError.
    """
    if nbytes < PAGE:
        block = np.empty(nbytes + LINE, np.uint8)
        start = -address(block) % LINE
        return block[start : start + nbytes]
    try:
        mapped = mmap.mmap(-1, nbytes + PAGE)
    except OSError:
        raise MemoryError(f"{nbytes} bytes for the arrays of a program") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(mapped, np.uint8)
    start = -address(block) % PAGE
    return block[start : start + nbytes]
