"""NumPy's products on the pool of native programs.

After each product OpenBLAS's own threads look for the next for a tenth of a second, and take a core from
whatever else runs on several threads: programs took up to twice as long.  So as soon as there are native
programs on several threads, OpenBLAS runs its jobs on their pool, which it lets others do.  Products, a
user's own and those of eager ops, and programs then share the cores by one policy; numbers stay the same to
the bit, since it is still OpenBLAS that cuts a product into jobs and computes them.

Left alone are other libraries than the OpenBLAS of NumPy's wheels, versions before 0.3.28 (NumPy 2.1),
processes in which several Python threads ran when programs began, until only one does, and all processes
where LAMINA_SHARE_THREADS is 0.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Any

from ..ir.locks import hold_across_forks
from ..passes.llvm import blas_jobs as layout
from ..passes.llvm.binding import Library
from .openblas import WHEELS, OpenBlas, openblas

OLDEST = (0, 3, 28)  # the first whose jobs know their number when others run them
PTHREADS = 1  # what openblas_get_parallel says of a build with threads of its own
SPELLED = ("set_threads_callback_function", "get_parallel", "get_config")
PLAIN = (
    "exec_blas_async", "exec_blas_async_wait", "blas_num_threads", "blas_thread_init",
    "blas_thread_shutdown_", "openblas_read_env", "openblas_threads_callback_",
)  # fmt: skip
PATIENCE = "OPENBLAS_THREAD_TIMEOUT"  # a power of two: ticks for which OpenBLAS's threads look for work
LITTLE = 14  # some 5 us; with 20 beside the pool's threads np.linalg.solve took 1.2 times as long (300x300)


class Jobs:
    """OpenBLAS's jobs on the process's pool: `begin` says so, once, and again in a forked child.

    Products that other threads are in the middle of are no hindrance: they end as they began.  A product that
    the pool can't serve (it is running a program, or has fewer threads) runs on OpenBLAS's own threads.
    """

    def __init__(self, functions: Library, pool: int, blas: OpenBlas):
        self._blas = blas
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(functions.address("lamina_blas_run"))
        # what a fork calls, without a step of Python, which an interrupt could be between
        self.acquire = ctypes.CFUNCTYPE(ctypes.c_int)(functions.address("lamina_blas_hold"))
        self.release = ctypes.CFUNCTYPE(None)(functions.address("lamina_blas_release"))
        self._memory = ctypes.create_string_buffer(layout.SIZE)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))  # as long as OpenBLAS calls `run`
        self._word(layout.THE_POOL, ctypes.c_void_p).value = pool
        for offset, address in (
            (layout.ASYNC, blas.address("exec_blas_async")),
            (layout.WAIT, blas.address("exec_blas_async_wait")),
            (layout.INIT, ctypes.cast(blas.library.blas_thread_init, ctypes.c_void_p).value),
            (layout.THREADS, ctypes.addressof(ctypes.c_int.in_dll(blas.library, "blas_num_threads"))),
        ):
            self._word(offset, ctypes.c_void_p).value = address
        self._word(layout.SLOTS, ctypes.c_int).value = blas.slots
        serve = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(functions.address("lamina_blas_serve"))
        serve(ctypes.addressof(self._memory))
        hold_across_forks(self)

    def _word(self, offset: int, kind: Any) -> Any:
        return kind.from_buffer(self._memory, offset)

    @property
    def served(self) -> int:
        """How many products on several threads the pool has run."""
        return self._word(layout.SERVED, ctypes.c_int64).value

    def begin(self) -> None:
        """Have this process's pool run the jobs from now on."""
        self._word(layout.PROCESS, ctypes.c_int).value = os.getpid()
        self._blas.function("set_threads_callback_function")(self._run)


_jobs: Jobs | None = None


def share(functions: Library, pool: int) -> None:
    """Have OpenBLAS run its jobs on a pool, where that can be done now.

    Its own threads remain for what it does not hand out, factorisations; beside the pool's they must not look
    for work for long, or these take several times as long.  They can be told only by ending them and making
    new ones, which is safe only where no other Python thread could be using them.
    """
    global _jobs
    if _jobs is None:
        found = _shareable()
        if found is not None and _quieted(found):
            _jobs = Jobs(functions, pool, found)
    if _jobs is not None:
        _jobs.begin()


def jobs() -> Jobs | None:
    """OpenBLAS's jobs on the pool, where they are."""
    return _jobs


@functools.cache
def _shareable() -> OpenBlas | None:
    """The OpenBLAS whose jobs the pool may run; None where there is none, or it is to be left alone."""
    blas = openblas()
    if blas is None or blas.spelling not in WHEELS or os.environ.get("LAMINA_SHARE_THREADS") == "0":
        return None
    if not all(map(blas.has, SPELLED)) or not all(hasattr(blas.library, name) for name in PLAIN):
        return None
    taken = ctypes.c_void_p.in_dll(blas.library, "openblas_threads_callback_").value is not None
    if taken or blas.function("get_parallel", ctypes.c_int)() != PTHREADS:
        return None
    return blas if blas.version >= OLDEST and blas.slots else None


def _quieted(blas: OpenBlas) -> bool:
    """Whether OpenBLAS's own threads sleep as soon as they have nothing to do, told to where that is safe."""
    said = os.environ.get(PATIENCE)
    if said is not None:
        return said.isdecimal() and 0 < int(said) <= LITTLE
    if len(sys._current_frames()) > 1:
        return False
    os.environ[PATIENCE] = str(LITTLE)
    try:
        blas.library.openblas_read_env()
    finally:
        del os.environ[PATIENCE]
    holding = ctypes.PyDLL(blas.library._name)  # its functions keep Python's lock: no thread comes between
    holding.blas_thread_shutdown_()
    holding.blas_thread_init()
    return True
