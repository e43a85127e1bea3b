"""What a traced function has cost its callers, and what it may cost yet, in seconds.

Over any run the calls of a traced function take less than 1.1 times what they would have taken eagerly, and a
budget besides: for as long as nobody knows whether a further recording pays off, the ledger says no.

    spent      recording beyond an eager run, compiling, asking guards that fail, eager calls slowed meanwhile
    may spend  the budget + a tenth of eager's time + what served calls have saved
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from ..ir.errors import ArgumentValueError

BUDGET = 2.0  # seconds
FREE = 0.1  # of eager's time
# Of the budget, or of what they took where that is more, the first recording and its code, which are always
# made, leave so much at least: what follows mostly makes counters inputs, and finds its code at hand (10 to
# 400 ms in benchmarks/research.py, Xeon, 2026-11-21).
LEFT = 0.5
LATER = 0.15  # what a later compilation takes, by the first (0.00 to 0.6 there)
FRUITLESS = 6  # recordings in a row that served nobody, before the next one waits, for ever more calls
LONGEST_WAIT = 4096  # calls
LONGEST = 20.0  # seconds that loops of Python's may be recorded, whatever may be spent
TURN = 2.5e-5  # seconds that a turn of a loop takes to record: turns are counted, as a machine may be busy
SHORT = 0.5  # seconds: a function whose recording run took less may be timed once, eagerly


class Fares(NamedTuple):
    """How calls fared: all of them, those that were served, and the seconds that these took."""

    calls: int
    hits: int
    running: float


class Ledger:
    """The times of one traced function, and what follows of them.

    budget: seconds, None for no limit but LONGEST.  clock: what times are read from.  recording, compiling,
    beside: spent on it in all, the last in the background.  searching: for schedules, which was asked for and
    costs no budget.  eager, eager_calls: of calls that ran
    eagerly and were timed.
    """

    def __init__(self, budget: float | None = None, clock: Callable[[], float] = perf_counter):
        self.budget, self.clock = budget, clock
        self.recording = self.compiling = self.beside = self.searching = self.eager = 0.0
        self.recordings = self.eager_calls = self._codes = 0
        self._least: float | None = None  # the quickest recording run
        self._first: float | None = None  # what had been spent when the first code was there
        self._later: list[
            float
        ] = []  # what later compilations took of callers, but for those in the background
        self._asking = self._slowed = self._first_code = 0.0
        self._fruitless = self._hits = self._tried = 0

    # ---- what happens ----
    def recorded(self, seconds: float, fares: Fares) -> None:
        """Note a recording run, whatever became of it, with all but the compiling."""
        self.recording += seconds
        self.recordings += 1
        self._least = seconds if self._least is None else min(self._least, seconds)
        self._fruitless = 1 if fares.hits > self._hits else self._fruitless + 1
        self._hits, self._tried = fares.hits, fares.calls
        if self._first is None and self._codes:
            self._first = self.spent

    def compiled(self, seconds: float, beside: bool = False) -> None:
        """Note what making the code of a recording took, in the background or not."""
        if beside:
            self.beside += seconds
        else:
            self.compiling += seconds
        self._codes += 1
        self._first_code = self._first_code or seconds
        if self._first is not None:
            self._later.append(0.0 if beside else seconds)
        elif beside:
            self._first = self.spent

    def asked(self, seconds: float) -> None:
        """Note what it took to find that no recording serves a call."""
        self._asking += seconds

    def ran_eagerly(self, seconds: float, beside: bool = False) -> None:
        """Note a call that ran eagerly; beside: while code was made in the background."""
        if beside and self.eager_calls:
            self._slowed += max(0.0, seconds - self._measured)
            return
        self.eager += seconds
        self.eager_calls += 1

    # ---- what follows ----
    @property
    def eager_call(self) -> float | None:
        """What a call takes eagerly: as measured, else at most what the quickest recording run took."""
        return self.eager / self.eager_calls if self.eager_calls else self._least

    @property
    def _measured(self) -> float:
        """What a call takes eagerly, nothing where no eager call was timed."""
        return self.eager / self.eager_calls if self.eager_calls else 0.0

    @property
    def spent(self) -> float:
        """What was spent on tracing, which eager calls would not have taken."""
        recording = max(0.0, self.recording - self.recordings * self._measured)
        return recording + self.compiling + self._asking + self._slowed

    def saved(self, fares: Fares) -> float:
        """What served calls took less than eager ones; negative where they took more."""
        return fares.hits * self._measured - fares.running if self.eager_calls else 0.0

    def left(self, fares: Fares) -> float:
        """Seconds that may be spent yet; what a recording may take where there is no limit to all."""
        if self.budget is None:
            return LONGEST
        first = self._first or 0.0
        budget = max(self.budget, first + LEFT * max(self.budget, first))
        return budget + FREE * self._measured * fares.calls + self.saved(fares) - self.spent

    def turns(self, fares: Fares) -> float:
        """How many turns of loops that compute nothing a recording may take."""
        return max(0.0, self.left(fares)) / TURN

    def affords(self, seconds: float, fares: Fares) -> bool:
        """Whether so much more may be spent."""
        return self.budget is None or seconds <= self.left(fares)

    @property
    def usual_code(self) -> float:
        """What a further code has taken so far."""
        if self._later:
            return sum(self._later) / len(self._later)
        return LATER * self._first_code

    def wants_to_time(self) -> bool:
        """Whether an eager call is to be timed, as what follows hangs on that."""
        return (
            self.budget is not None and not self.eager_calls
            and self._first is not None and (self._least or 0.0) < SHORT
        )  # fmt: skip

    def allows_recording(self, fares: Fares) -> bool:
        """Whether a further recording may pay off: what one has cost is there, and some have served.

        None is taken to be dearer than later ones mostly are: their code is at hand, or shares kernels.
        """
        if self.budget is None:
            return True
        waits = self._fruitless - FRUITLESS
        if (
            fares.hits == self._hits
            and waits >= 0
            and fares.calls - self._tried < min(4 << waits, LONGEST_WAIT)
        ):
            return False
        later = LATER * self._first_code
        if self._later:
            later = min(later, (sum(self._later) + self._slowed) / len(self._later))
        record = max(0.0, self.recording / max(1, self.recordings) - self._measured)
        return self.affords(record + later, fares)


def budget_of(budget: float | None | str) -> float | None:
    """A budget as given, or as LAMINA_TRACE_BUDGET has it.  Raises ArgumentValueError for one below zero."""
    text = os.environ.get("LAMINA_TRACE_BUDGET", "") if budget == "default" else budget
    if text is None or text == "none":
        return None
    try:
        seconds = BUDGET if text == "" else float(text)
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds >= 0:
        raise ArgumentValueError(f"trace(budget): takes seconds, or None for no limit, not {text!r}")
    return seconds
