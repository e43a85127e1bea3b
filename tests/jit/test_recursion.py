"""Python's limit of recursion, while runs are interpreted that others end in the middle of."""

import sys

import pytest

from lamina.jit.observe import recursion


class Run:
    """Stands for a run."""


class Ending(int):
    """How deep a run goes; where it is compared with that of others, one of these ends."""

    run = None

    def __gt__(self, other):
        if Ending.run is not None:
            run, Ending.run = Ending.run, None
            recursion.ended(run)
        return int(self) > int(other)

    __lt__ = __gt__


@pytest.mark.timeout(30)  # where it fails, it may wait for ever
def test_a_run_that_is_closed_while_another_begins_leaves_the_limit_right():
    before = sys.getrecursionlimit()
    runs = [Run(), Run(), Run()]
    for run in runs[:2]:
        recursion.raised(run, Ending(7))
    Ending.run = runs[0]
    recursion.raised(runs[2], Ending(40))
    assert Ending.run is None and sys.getrecursionlimit() == before + 40
    recursion.ended(runs[2])
    assert sys.getrecursionlimit() == before + 7
    del run, runs[1]  # without telling
    recursion.raised(runs[0], 3)
    assert sys.getrecursionlimit() == before + 3
    recursion.ended(runs[0])
    assert sys.getrecursionlimit() == before
