"""How a rank waits: eager at first, then asleep in between, and eager again once those who were late came."""

import time

import pytest
import ranks

from lamina.distributed import waiting
from lamina.distributed.board import PART, Board

mpi4py = pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def sleeps_of(monkeypatch, looks_left, comes_after, **more):
    """The sleeps of a wait that has to look so often once the others are there, and when it ended."""
    clock, sleeps = [0.0], []

    def sleep(seconds):
        sleeps.append(seconds)
        clock[0] += seconds

    def arrived():
        clock[0] += 1e-7
        if clock[0] >= comes_after:
            looks_left[0] -= 1
        return looks_left[0] <= 0

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    came = (lambda: clock[0] >= comes_after) if more.pop("told", False) else None
    waiting.wait(arrived, 1e-4, lambda waited: None, all_came=came, **more)
    return sleeps, clock[0]


def test_who_came_early_is_eager_once_the_others_are_there(monkeypatch):
    slow, late = sleeps_of(monkeypatch, [500], 0.01)
    quick, soon = sleeps_of(monkeypatch, [500], 0.01, told=True)
    assert len(slow) > 500
    assert len(quick) < 100
    assert soon - 0.01 < 1e-3 < late - 0.01


def test_who_was_waited_for_in_vain_sleeps_again(monkeypatch):
    """What needs more looks than an eager wait has is waited for asleep, however many came."""
    sleeps, _ = sleeps_of(monkeypatch, [5000], 0.01, told=True)
    assert len(sleeps) > 1000


def test_what_asks_often_is_asked_instead(monkeypatch):
    asked = []
    waiting.wait(lambda: False, 1.0, lambda waited: None, often=lambda: asked.append(0) or len(asked) == 3)
    assert len(asked) == 3


def test_who_has_come_is_told_by_the_notes():
    memory = memoryview(bytearray(2 * PART))
    boards = [Board(memory, (3, 7), rank) for rank in (3, 7)]
    assert not boards[0].have_come((7,), 5, 1)
    boards[1].note(5, 2, "all_reduce")
    assert boards[0].have_come((7,), 5, 1)
    assert boards[0].have_come((7,), 5, 2)
    assert not boards[0].have_come((7,), 5, 3)
    assert not boards[0].have_come((7,), 6, 1), "another group's"
    assert boards[0].have_come((), 6, 1), "nobody is waited for"


PROGRAM = """
        import numpy as np
        from lamina.distributed import flights, transport
        from lamina.ir.errors import DistributedError
        if {python}:
            flights.NATIVE = transport.NATIVE = None
        else:
            assert transport.NATIVE is not None
        dist.init_process_group()
        rank = dist.get_rank()
        ops = dict(SUM=np.add, PRODUCT=np.multiply, MIN=np.minimum, MAX=np.maximum)
        some = [dist.new_group([0, 1]), None]
        for kind in "float32 float64 int8 uint8 int16 int32 int64".split():
            for op, of in ops.items():
                for shape in ((), (1,), (0,), (3, 5), (70001,)):
                    for group in some:
                        one = np.arange(int(np.prod(shape)), dtype=kind).reshape(shape) % 5 + 1
                        x = lamina.from_numpy(np.array(one * (rank + 1)))
                        dist.all_reduce(x, op=getattr(dist.ReduceOp, op), group=group)
                        y = lamina.from_numpy(np.array(one * (rank + 1)))
                        dist.all_reduce(y, op=getattr(dist.ReduceOp, op), group=group, async_op=True).wait()
                        want = of(one, one * 2)
                        assert (x.numpy() == want).all() and x.numpy().dtype == kind, (kind, op, shape)
                        assert (y.numpy() == want).all(), (kind, op, shape)
        dist.barrier()
        try:
            dist.all_reduce(lamina.ones(3 + rank))
        except DistributedError as error:
            assert "don't agree" in str(error) or "did not agree" in str(error), error
            print("told")
"""


@pytest.mark.parametrize("python", [False, True], ids=["native", "Python"])
def test_both_ways_to_begin_and_to_look_give_the_same(python, tmp_path):
    """Sums of each dtype, at sizes that arrive with the first look and later, and ranks that differ."""
    printed = ranks.run(2, PROGRAM.format(python=python), tmp_path)
    assert printed.count("told") >= 1, printed
