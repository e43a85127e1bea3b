"""A recorder of heap facts where no recorder of ops listens."""

from __future__ import annotations

from lamina.jit.observe.known import Registry
from lamina.jit.observe.lifted_numbers import WEIGHTS
from lamina.jit.symbolic import Symbolic


class Unheard:
    """Stands for the recorder of ops."""

    repeatable = False
    reason = None
    asked = 0
    steps = ()

    def __init__(self):
        self.symbolic = Symbolic(self)

    def is_work(self, step):
        """No step is heard."""

    def origin(self, x, source):
        """Take note of a tensor that was there before the run."""

    def source_of(self, x):
        """No tensor is known."""

    def may_have_written(self, array):
        """No tensor is written."""
        return False

    def forget(self):
        """Nothing was kept."""


def parts(lift=()):
    """What a recorder is made of."""
    return Unheard(), Registry(), dict.fromkeys(lift, WEIGHTS), set()
