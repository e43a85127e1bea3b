"""What the runtime must know of a program beside its code: plain data, so that it can be kept and exported.

A main function is given a table: the pool to fork through, the number of threads it may use, and a pointer
for every array that is not in the arena.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...ir.dims import Dim
from ..programs.host_parts import Check, Land, Meet, OnHost
from ..programs.manifest import LIMIT, Manifest
from ..programs.memory_plan import Place

POOL, MOST, ARENA, FIRST = 0, 1, 2, 3  # the table's fixed entries, and the first array's


@dataclass(frozen=True)
class Native:
    """Steps of the program as one native function."""

    symbol: str


Part = Native | OnHost | Meet | Land | Check


@dataclass(frozen=True)
class NativeManifest(Manifest):
    """What the runtime must know of a program to run it.

    nanoseconds: the whole on one thread, roughly.  kernels: the calls; codes: the distinct ones, with those
    of the checks.  guard: how memory is guarded (`runtime/guard.py`), and fences: the pages of the arena that
    may not be touched.  numbers: what the main function reads of the table, as it depends on sizes.
    """

    FORMAT = 4  # of the table and the pool too

    parts: tuple[Part, ...]
    nanoseconds: float | Dim
    kernels: int
    codes: int
    guard: int = 0
    fences: tuple[int, ...] = ()
    numbers: tuple[int | Dim, ...] = ()

    def slot(self, place: Place) -> int:
        """The entry of the table that a place is counted from."""
        return slot_of(place, len(self.params), len(self.results))

    @property
    def slots(self) -> int:
        """Entries of the table."""
        return self.first_number + len(self.numbers)

    @property
    def first_number(self) -> int:
        """The entry of the first of the numbers.

        The one before, in a program that guards, is the address of the running kernel's name.
        """
        return FIRST + len(self.params) + len(self.results) + len(self.constants) + bool(self.guard)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The native functions that it needs."""
        return tuple(part.symbol for part in self.parts if isinstance(part, Native))

    def is_sound(self) -> bool:
        return (
            super().is_sound()
            and all(0 <= count < LIMIT for count in (self.kernels, self.codes))
            and all(re.fullmatch(r"\w+", symbol) for symbol in self.symbols)
            and 0 <= self.nanoseconds < math.inf
            and not self.numbers  # such programs are of one process
        )


def slot_of(place: Place, params: int, results: int) -> int:
    before = {"arena": ARENA, "param": FIRST, "result": FIRST + params, "constant": FIRST + params + results}
    return before[place.kind] + (0 if place.kind == "arena" else place.at)
