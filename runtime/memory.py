"""Keeps freed memory for the next large array, and makes arrays that begin on a cache line.

By default glibc maps every block of more than 128 KiB anew and gives it back when it is freed, so that each
large result pays for its pages: adding two arrays of 16 M floats takes 10.8 ms with fresh memory and 5.3 ms
with what was freed before.  Two settings, once, make it keep blocks of up to 1 GiB.

What it keeps lies in huge pages where Linux has them for those who ask: a product of 1000 x 1000 x 1000,
each of whose rows has a page of its own, takes 12.7 ms in place of 14.1, softmax of 1024 x 1024 a twentieth
less (an Intel Xeon, one thread, in a virtual machine; 2026-11-27).  NumPy asks for them for blocks of 4 MiB
and more.  So the heap grows by large steps, of which Linux is told before most of them is written.

What is kept is lost to others, and full of gaps: 120 of 550 MiB in a GPT's training step.  So a run that
is recorded, whose arrays stand in an arena from then on, maps them anew (`giving_back`), and before a large
arena is made all that is kept goes back.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of <malloc.h>
_KEPT = 1 << 30
_AT_ONCE = 32 << 20  # bytes by which the heap grows beyond what is wanted
_MOST_GROWN = 1 << 36  # between two allocations; what is mapped lies further off
_MAPPED = 1 << 20  # bytes: from here on a block is mapped while memory is to go back
_GIVES_BACK = 32 << 20  # bytes of an arena for which there is to be room

LINE = 64  # bytes of a cache line
PAGE = 2 << 20  # bytes of a huge page
# From here on an array begins on a cache line, which costs 1 us more than NumPy's own and saves every second
# of AVX-512's accesses from touching two lines.
ALIGNED_FROM = 64 << 10


_open: list[None] = []  # one for each `giving_back`: a step of a list is whole, in any thread
_keeps = False
_end = sys.maxsize  # of the heap that was told of huge pages; beyond all where nothing is to be told


def _library_function(name: str) -> Callable[..., int] | None:
    """One of the C library's, where it has it: only glibc does."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None


def keep_freed_blocks() -> bool:
    """Ask the C library to keep freed memory; returns whether it does."""
    global _keeps, _end
    mallopt = _library_function("mallopt")
    if mallopt is not None and not _keeps:
        _keeps = bool(mallopt(_M_MMAP_THRESHOLD, _KEPT) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
        if _keeps and hasattr(mmap, "MADV_HUGEPAGE") and mallopt(_M_TOP_PAD, _AT_ONCE):
            _end = _break()
            np.empty(_AT_ONCE // 4, np.uint8)  # the heap grows, and nothing is written there yet
            _tell_of_growth()
    return _keeps


def _break() -> int:
    """Where the heap ends."""
    sbrk = _library_function("sbrk")
    assert sbrk is not None
    sbrk.argtypes, sbrk.restype = [ctypes.c_ssize_t], ctypes.c_size_t  # type: ignore[attr-defined]
    return sbrk(0)


def _tell_of_growth() -> None:
    """Ask for huge pages in what the heap has grown by."""
    global _end
    start, end = -(-_end // mmap.PAGESIZE) * mmap.PAGESIZE, _break()
    madvise = _library_function("madvise")
    if end > start and madvise is not None:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_HUGEPAGE)
    _end = end


@contextmanager
def giving_back() -> Iterator[None]:
    """Let large blocks that are made meanwhile, by any thread, go back to the system when they are freed.

    Several may be open.  In a process forked meanwhile from another thread it stays so: slower, and no worse.
    """
    mallopt = _library_function("mallopt") if _keeps else None
    if mallopt is None:
        yield
        return
    _open.append(None)
    try:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        yield
    finally:
        _open.pop()
        if not _open:
            mallopt(_M_MMAP_THRESHOLD, _KEPT)


def give_back() -> None:
    """Let all freed memory that is kept go back to the system."""
    global _end
    trim = _library_function("malloc_trim")
    if trim is not None:
        trim(0)
        if _end != sys.maxsize:
            _end = min(_end, _break())  # what the heap grows by from there on is new


class _Statistics(ctypes.Structure):
    """struct mallinfo2 of <malloc.h>."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def kept() -> int | None:
    """Bytes of freed memory that the C library keeps; None if it won't say."""
    told = _library_function("mallinfo2")  # since glibc 2.33
    if told is None:
        return None
    told.restype = _Statistics  # type: ignore[attr-defined]
    return int(told().fordblks)  # type: ignore[attr-defined]


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
DATA_AT = _DATA if _KNOWN else None  # bytes from where an array is as an object to where it says its data are


def quick_address(array: np.ndarray) -> int:
    """`address`, as soon as it can be had."""
    return _at(id(array) + _DATA).value if _KNOWN else address(array)


def maker(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[tuple[int, ...], np.dtype], np.ndarray]:
    """What makes new dense arrays of that shape and type, not filled: large ones begin on a cache line."""
    return np.empty if math.prod(shape) * dtype.itemsize < ALIGNED_FROM else empty


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new dense array that begins on a cache line, not filled."""
    block = np.empty(math.prod(shape) * dtype.itemsize + LINE, np.uint8)  # NumPy advises huge pages for it
    start = _at(id(block) + _DATA).value if _KNOWN else address(block)  # a call less than quick_address
    if 0 < start - _end < _MOST_GROWN:
        _tell_of_growth()
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

    They are private: what Python maps untold is shared with children, which would compute there as well, and
    Linux gives it no huge pages as a rule (a MobileNetV2's training step took a tenth longer without).
    Freed memory that is kept gives way to a large one.  Raises MemoryError.
    """
    if nbytes < PAGE:
        block = np.empty(nbytes + LINE, np.uint8)
        start = -address(block) % LINE
        return block[start : start + nbytes]
    if nbytes >= _GIVES_BACK:
        give_back()
    try:
        mapped = mmap.mmap(-1, nbytes + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        raise MemoryError(f"{nbytes} bytes for the arrays of a program") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(mapped, np.uint8)
    start = -address(block) % PAGE
    return block[start : start + nbytes]
