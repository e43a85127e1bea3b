"""How a rank waits for others: it looks often while they may come at once, then sleeps in between.

MPI's own waits look without end, so that eight ranks on two cores would keep them from working.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

BETWEEN = 8  # looks between two that give way
LONGEST, SHORT_FOR = 1e-3, 0.05  # seconds of a sleep, and how long sleeps stay short


def wait(
    arrived: Callable[[], bool],
    eager_for: float,
    look: Callable[[float], None],
    look_after: float = 0.2,
    *,
    often: Callable[[], bool] | None = None,
    all_came: Callable[[], bool] | None = None,
) -> None:
    """Return once `arrived()` is true.

    eager_for: seconds to look without sleeping, giving way to whoever wants the core.  look: called with
    the seconds waited, every now and then after `look_after`; it raises where nobody will come.  often: asks
    as `arrived` does, several times, and gives way.  all_came: whether those who are waited for are there by
    now.  Who came early and sleeps is then as eager once more: what goes on as all look at it would else go
    on as seldom as the sleeper does.
    """

    def eagerly() -> bool:
        end = time.perf_counter() + eager_for
        while not (often() if often is not None else _often(arrived)):
            if time.perf_counter() >= end:
                return False
        return True

    start = time.perf_counter()
    if eagerly():
        return
    pause, next_look = 20e-6, look_after
    while not arrived():
        time.sleep(pause)
        if all_came is not None and all_came():
            all_came = None
            if eagerly():
                return
        waited = time.perf_counter() - start
        pause = min(pause * 1.2, 200e-6 if waited < SHORT_FOR else LONGEST)
        if waited >= next_look:
            look(waited)
            next_look = waited + look_after


def _often(arrived: Callable[[], bool]) -> bool:
    for _ in range(BETWEEN):
        if arrived():
            return True
    os.sched_yield()
    return False
