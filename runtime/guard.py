"""Guarded memory: with LAMINA_GUARD=1 a page that may not be touched follows every array of a native program.

An access beyond an array then ends the process at once, with the name of the kernel that made it; with
LAMINA_GUARD=2 arrays begin after such a page, and what is before them is caught.  No two arrays of a program
share memory, and what is not needed any more is overwritten with 0xFF (NaN, or -1).  For tests: slow.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from functools import cache

import numpy as np

from ..ir.errors import ArgumentValueError
from ..passes.llvm.binding import Library, host_target
from ..passes.programs.plan_memory import PAGE
from .compiler import compiled

POISON = 0xFF
_SIGBUS, _SIGSEGV = 7, 11


def _mode() -> int:
    asked = os.environ.get("LAMINA_GUARD") or "0"
    if asked not in ("0", "1", "2"):
        raise ArgumentValueError(
            f"LAMINA_GUARD is 0, 1 or 2, not {asked!r}", "1 guards the ends of arrays, 2 their beginnings"
        )
    return int(asked)


MODE = _mode()  # 0: off


def fenced(nbytes: int, fences: Sequence[int]) -> np.ndarray:
    """Poisoned bytes of whole pages; those that begin at `fences` may not be touched."""
    mapped = mmap.mmap(-1, max(nbytes, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block = np.frombuffer(mapped, np.uint8)
    block[:] = POISON
    start = block.__array_interface__["data"][0]
    for fence in fences:
        if _protect(start + fence, PAGE, 0):
            raise OSError(ctypes.get_errno(), f"mprotect of a page failed: {fences}")
    return block


def array(shape: tuple[int, ...], dtype: np.dtype, mode: int) -> np.ndarray:
    """A new poisoned array that ends (mode 1) or begins (2) where a page that may not be touched does."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    pages = -(-nbytes // PAGE) * PAGE
    block = fenced(pages + 2 * PAGE, (0, PAGE + pages))
    return np.ndarray(shape, dtype, block, PAGE + (pages - nbytes if mode == 1 else 0))


def copy(array_: np.ndarray, mode: int) -> np.ndarray:
    """The same numbers in memory like that."""
    made = array(array_.shape, array_.dtype, mode)
    np.copyto(made, array_)
    return made


def _protect(address: int, nbytes: int, allowed: int) -> int:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return mprotect(address, nbytes, allowed)


@cache
def witness() -> int:
    """The address of the word where a program notes the name of the kernel that runs.

    From the first call on, a process that touches a page it may not writes that name before it ends.
    """
    word = ctypes.c_void_p(None)
    library = Library(compiled((_HANDLER,), host_target()), host_target())
    _KEPT.extend((word, library))
    ctypes.c_void_p.from_address(library.address("lamina_guard_word")).value = ctypes.addressof(word)
    install = ctypes.CFUNCTYPE(None)(library.address("lamina_guard_install"))
    install()
    return ctypes.addressof(word)


_KEPT: list[object] = []  # a signal may come at any time
_HEAD = "lamina: memory left by the kernel "
_HANDLER = f"""
@lamina_guard_word = global ptr null
@before = internal global [{_SIGSEGV + 1} x ptr] zeroinitializer
@head = internal constant [{len(_HEAD)} x i8] c"{_HEAD}"
@line = internal constant [1 x i8] c"\\0A"
declare i64 @write(i32, ptr, i64)
declare i64 @strlen(ptr)
declare ptr @signal(i32, ptr)

define internal void @tell(i32 %number) nounwind {{
  %place = load ptr, ptr @lamina_guard_word
  %name = load ptr, ptr %place
  %none = icmp eq ptr %name, null
  br i1 %none, label %end, label %say
say:
  %a = call i64 @write(i32 2, ptr @head, i64 {len(_HEAD)})
  %count = call i64 @strlen(ptr %name)
  %b = call i64 @write(i32 2, ptr %name, i64 %count)
  %c = call i64 @write(i32 2, ptr @line, i64 1)
  br label %end
end:
  %slot = getelementptr ptr, ptr @before, i32 %number
  %old = load ptr, ptr %slot
  %d = call ptr @signal(i32 %number, ptr %old)
  ret void
}}

define void @lamina_guard_install() nounwind {{
  %bus = call ptr @signal(i32 {_SIGBUS}, ptr @tell)
  %bus.slot = getelementptr ptr, ptr @before, i32 {_SIGBUS}
  store ptr %bus, ptr %bus.slot
  %segv = call ptr @signal(i32 {_SIGSEGV}, ptr @tell)
  %segv.slot = getelementptr ptr, ptr @before, i32 {_SIGSEGV}
  store ptr %segv, ptr %segv.slot
  ret void
}}
"""
