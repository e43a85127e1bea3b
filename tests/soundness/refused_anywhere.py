"""Recording runs that are refused at any moment: a plain run must go on from there, natively or not."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

from lamina.jit.observe import tracebacks
from lamina.jit.observe.facts import Facts
from lamina.jit.observe.interpret import Interpreting

tracebacks.HIDDEN.add(__file__)
WHY = "it was to be refused here"
MOMENTS = (1, 2, 3, 5, 8, 13, 21, 34)


@contextlib.contextmanager
def refused_anywhere(seed: int) -> Iterator[None]:
    """Within this, each recording run is refused at one of its first reads, or calls and jumps back.

    Of those refused at a jump half go on natively from the next one on.
    """
    draw = random.Random(seed)
    at, by_reads, leaves = draw.choice(MOMENTS), draw.random() < 0.5, draw.random() < 0.5
    read = Facts.fact

    def fact(self: Any, *what: Any, **how: Any) -> Any:
        self.turns += by_reads
        if self.turns == at:
            self.refuse(WHY)
        return read(self, *what, **how)

    def turns(self: Any) -> bool:
        self.turns += not by_reads
        if self.turns >= at and not by_reads:
            self.refuse(WHY)
            self.leaving = leaves
        return self.leaving

    with mock.patch.object(Facts, "fact", fact), mock.patch.object(Interpreting, "_turns", turns):
        yield
