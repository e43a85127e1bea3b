"""How many threads may compute: NumPy's BLAS is asked, and told, through its own functions; others listen."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError

# OpenBLAS carries a prefix and a suffix that depend on who built it; the first is that of NumPy's own wheels.
SPELLINGS = ("scipy_openblas_{}64_", "openblas_{}64_", "scipy_openblas_{}", "openblas_{}")

# Called with the number when it changes: the pool of native programs, once there is one.
listeners: list[Callable[[int], None]] = []


@functools.cache
def _blas() -> tuple[Callable, Callable] | None:
    """OpenBLAS's (get, set) number of threads, as NumPy loaded it; None where NumPy has another library."""
    np.dot(np.ones((1, 1)), np.ones((1, 1)))  # loaded for sure
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    except OSError:
        return None
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        for spelling in SPELLINGS:
            get = getattr(library, spelling.format("get_num_threads"), None)
            put = getattr(library, spelling.format("set_num_threads"), None)
            if get is not None and put is not None:
                get.restype, get.argtypes = ctypes.c_int, ()
                put.restype, put.argtypes = None, (ctypes.c_int,)
                return get, put
    return None


def get_num_threads() -> int:
    """The number of threads that a matrix product or a compiled program may use."""
    blas = _blas()
    return blas[0]() if blas else len(os.sched_getaffinity(0))


def set_num_threads(num_threads: int) -> None:
    """Let matrix products and compiled programs use that many threads.

    Programs use no more than the process has cores.  Raises ArgumentError, ArgumentValueError.
    """
    if isinstance(num_threads, bool) or not isinstance(num_threads, int):
        raise ArgumentError(f"set_num_threads(n): n must be an int, not {type(num_threads).__name__}")
    if num_threads < 1:
        raise ArgumentValueError(f"set_num_threads(n): n must be positive, not {num_threads}")
    blas = _blas()
    if blas is None:
        raise ArgumentError(
            "set_num_threads(n): NumPy's BLAS here is not OpenBLAS, and can't be told while it runs",
            "set its own variable before Python starts: MKL_NUM_THREADS or OMP_NUM_THREADS",
        )
    blas[1](num_threads)
    for listener in listeners:
        listener(num_threads)
