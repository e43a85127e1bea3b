"""How a rank waits for others: it looks often while they may come at once, then sleeps in between.

MPI's own waits look without end, so that eight ranks on two cores would keep them from working.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

QUICK, BETWEEN = 40, 8  # looks without a pause, and between two that give way
LONGEST, SHORT_FOR = 1e-3, 0.05  # seconds of a sleep, and how long sleeps stay short


def wait(
    arrived: Callable[[], bool],
    eager_for: float,
    look: Callable[[float], None],
    look_after: float = 0.2,
) -> None:
    """Return once `arrived()` is true.

    eager_for: seconds to look without sleeping, giving way to whoever wants the core.  look: called with the
    seconds waited, every now and then after `look_after`; it raises where nobody will come.
    """
    for _ in range(QUICK):
        if arrived():
            return
    start = time.perf_counter()
    while time.perf_counter() - start < eager_for:
        os.sched_yield()
        for _ in range(BETWEEN):
            if arrived():
                return
    pause, next_look = 20e-6, look_after
    while not arrived():
        time.sleep(pause)
        waited = time.perf_counter() - start
        pause = min(pause * 1.2, 200e-6 if waited < SHORT_FOR else LONGEST)
        if waited >= next_look:
            look(waited)
            next_look = waited + look_after
