"""How many threads may compute: NumPy's BLAS is asked, and told, through its own functions; others listen."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..ir.errors import ArgumentError, ArgumentValueError
from .openblas import number_of_threads

# Called with the number when it changes: the pool of native programs, once there is one.
listeners: list[Callable[[int], None]] = []


def get_num_threads() -> int:
    """The number of threads that a matrix product or a compiled program may use."""
    blas = number_of_threads()
    return blas[0]() if blas else len(os.sched_getaffinity(0))


def set_num_threads(num_threads: int) -> None:
    """Let matrix products and compiled programs use that many threads.

    Programs use no more than the process has cores.  Raises ArgumentError, ArgumentValueError.
    """
    if isinstance(num_threads, bool) or not isinstance(num_threads, int):
        raise ArgumentError(f"set_num_threads(n): n must be an int, not {type(num_threads).__name__}")
    if not 1 <= num_threads < 1 << 31:
        raise ArgumentValueError(f"set_num_threads(n): n must be positive and of 32 bits, not {num_threads}")
    blas = number_of_threads()
    if blas is None:
        raise ArgumentError(
            "set_num_threads(n): NumPy's BLAS here is not OpenBLAS, and can't be told while it runs",
            "set its own variable before Python starts: MKL_NUM_THREADS or OMP_NUM_THREADS",
        )
    blas[1](num_threads)
    for listener in listeners:
        listener(num_threads)
