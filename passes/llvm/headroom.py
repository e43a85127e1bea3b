"""Whether there is memory enough for LLVM, which ends the process where there is not.

Asked before LLVM is, since that can't be caught.  What it takes is estimated from above: up to 22 KB of
address space a line of text were measured, for a ResNet's kernels of 100 to 1,500 lines, and 2 MB to link.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import TextIO

from ...ir.errors import KernelError

LEAST = 16 << 20  # bytes that anything takes
# Bytes without which nothing is recorded or written for LLVM.  Python's memory errors can be caught, but not
# each: where it finds none for the frames of a deep call, Python 3.11 lets go once too often of the function
# called, which dies while it is in use.
TO_BEGIN = 4 << 20
PER_LINE = 32 << 10  # bytes for each line of text that is compiled
PER_BYTE = 4  # bytes for each of an object that is linked


class ShortError(KernelError, MemoryError):
    """LLVM was not asked, as it might have run out of memory."""


def to_compile(text: str) -> int:
    """Bytes that compiling a text may take."""
    return LEAST + PER_LINE * text.count("\n")


def to_link(size: int) -> int:
    """Bytes that linking objects of this size may take."""
    return LEAST + PER_BYTE * size


def is_there(nbytes: int) -> bool:
    """Whether this process may have so many bytes more now.

    Mapping them asks for all limits at once that are set on address space and data; what is left of the
    machine's memory and the control group's is read, as Linux tells nobody before it kills.
    """
    try:
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError, ValueError):
        return False
    return nbytes <= min(_of_machine(), _of_group())


def require(nbytes: int, what: str) -> None:
    """Raise ShortError unless this process may have so many bytes more now."""
    if not is_there(nbytes):
        raise ShortError(
            f"there is too little memory to {what} machine code",
            f"it may take {nbytes >> 20} MiB: free some, or raise the limit (ulimit -v, the container's)",
        )


def _opened(file: str) -> TextIO:
    # UTF-8 is there since Python's start.  Another codec would be imported, here where another thread may
    # fork: an import that is under way then is under way for ever in the child.
    return open(file, encoding="utf-8")


def _of_machine() -> float:
    """Bytes that the machine has left; without end where it doesn't tell."""
    with suppress(OSError, ValueError), _opened("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return float("inf")


def _of_group() -> float:
    """Bytes that the control group has left, pages of files that can go not counted."""
    with suppress(OSError, ValueError):
        folder = "/sys/fs/cgroup"
        with _opened(f"{folder}/memory.max") as most, _opened(f"{folder}/memory.current") as now:
            left = int(most.read()) - int(now.read())  # ValueError: "max"
        with _opened(f"{folder}/memory.stat") as lines:
            files = dict(line.split() for line in lines)
        return left + int(files["inactive_file"]) + int(files["active_file"])
    return float("inf")
