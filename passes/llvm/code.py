"""Native code for one kernel, as text: what every generator of CPU code returns.

A kernel runs as one or more phases, each of which is dealt out over threads by its units of work; a phase
begins when the one before it has ended everywhere.  The entry of a phase is

    void @symbol(ptr %args, i64 %lo, i64 %hi)

and does the units lo..hi.  `args` points to pointers: the kernel's inputs, its outputs, then the scratch
memory that the phases share (null where there is none), then the kernel's symbols as 64-bit integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim
from ...ir.kernel.affine import Extent
from ...ir.kernel.form import Kernel


@dataclass(frozen=True)
class Phase:
    """One fork over threads.

    units: of work, each of which any thread may do.  serial: they must run in order on one thread.
    nanoseconds: what all of them take on one thread, roughly: it decides how many threads are worth it.
    Both are formulas where the code is for all sizes.
    """

    symbol: str
    units: Extent
    nanoseconds: float | Dim
    serial: bool = False


@dataclass(frozen=True)
class Code:
    """An LLVM module's text, and how to run it.

    text: all its functions but the phases' entries are internal, and all names in it start with a prefix made
    from its content, so that the codes of a program can be linked.  beside: the texts of modules of which it
    calls functions, which several codes do.  scratch: bytes, aligned to 64.
    symbols: what the 64-bit integers behind the scratch memory are to be.  least: what sizes must not be
    below for this code, in pairs.
    """

    kernel: Kernel
    text: str
    phases: tuple[Phase, ...]
    scratch: int = 0
    symbols: tuple[Extent, ...] = ()
    least: tuple[tuple[Extent, int], ...] = ()
    beside: tuple[str, ...] = ()
