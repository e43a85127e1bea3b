"""How a rank waits: eager at first, then asleep in between, and eager again once those who were late came."""

import ctypes
import time

import pytest
import ranks

from lamina.distributed import waiting
from lamina.distributed.board import GROUPS, PART, Board, note_of
from lamina.distributed.without_python import DIFFER, compiled, plan_of
from lamina.ir.errors import DistributedError

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


def begun(boards, group, text):
    """What `lamina_begin` of the first board gives for the group's first collective, and MPI's calls."""
    calls, memory = [], (ctypes.c_uint64 * 2)(0, 1234)
    mpi = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 7)(lambda *given: calls.append(given) or 0)
    test = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *given: calls.append(given) or 0)
    first = boards[0]
    notes = [first.address + first.place(board.rank, group) for board in boards]
    fingerprint, letters = note_of(text)
    words = [notes[0], group, fingerprint, 0, 0, ctypes.cast(mpi, ctypes.c_void_p).value, 1, 2, 3, 4, 5]
    words += [ctypes.cast(test, ctypes.c_void_p).value, 8, len(notes) - 1, *notes[1:]]
    plan, kept = plan_of(words, letters)
    place = ctypes.addressof(memory)
    _, begin, _ = compiled()
    found = begin(plan, 1, place, place, 0)
    del kept
    return found, calls


def test_what_is_begun_without_python_is_noted_and_compared_as_python_does():
    """Over memory that three boards share; of MPI it is only asked what it is called with."""
    memory = memoryview(bytearray(3 * PART))
    boards = [Board(memory, (0, 1, 2), rank) for rank in range(3)]
    group, long = 5, "all_reduce of " + "much" * 100
    found, calls = begun(boards, group, long)
    assert found == 0
    assert len(calls) == 1
    assert calls[0][1:6] == (1234, 2, 3, 4, 5), "data, elements, kind, op, communicator"
    assert boards[1].read(0, group) == (1, note_of(long)[0], note_of(long)[1].decode())

    boards[2].note(group, 1, "broadcast")
    assert begun(boards, group, long) == (DIFFER, [])
    with pytest.raises(DistributedError, match="broadcast"):
        boards[0].compare((1, 2), group, 1, long)

    for elsewhere, count in ((group, 2), (group, 0), (group + GROUPS, 1)):
        boards[2].note(elsewhere, count, "broadcast")
        assert begun(boards, group, long)[0] == 0, "a note for another collective"
    boards[1].note(group, 1, long)
    boards[2].note(group, 1, long)
    assert begun(boards, group, long)[0] == 0


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
