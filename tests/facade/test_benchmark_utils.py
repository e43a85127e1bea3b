"""Check `utils.benchmark` by a clock of the test's own."""

import pytest

import lamina
from lamina.ir.errors import ArgumentValueError
from lamina.utils import benchmark


class Clock:
    """Stands still but where a statement moves it, or something asks it."""

    def __init__(self, asking=1e-6):
        self.now, self.asking = 0.0, asking

    def __call__(self):
        self.now += self.asking
        return self.now

    def take(self, seconds):
        self.now += seconds


def timer(stmt="clock.take(0.001)", **how):
    clock = Clock()
    return benchmark.Timer(stmt, globals={"clock": clock}, timer=clock, **how)


def test_one_block():
    found = timer().timeit(50)
    assert (found.number_per_run, len(found.raw_times)) == (50, 1)
    assert found.median == found.mean == pytest.approx(0.001, rel=1e-3)
    assert (found.iqr, found.has_warnings) == (0.0, False)


def test_blocks_are_long_enough_and_end():
    heard = []
    found = timer().blocked_autorange(
        callback=lambda number, taken: heard.append((number, taken)), min_run_time=2
    )
    assert 2 <= sum(found.raw_times) < 2.2
    assert found.raw_times[0] >= 1000 * 1e-6 * 0.9
    assert [taken for _, taken in heard] == found.raw_times
    assert {number for number, _ in heard} == {found.number_per_run}
    assert found.median == pytest.approx(0.001, rel=1e-2)


def test_blocks_until_they_agree():
    assert len(timer().adaptive_autorange().raw_times) >= 4
    clock, times = Clock(), iter([0.001, 0.01] * 100_000)
    unsteady = benchmark.Timer(
        "clock.take(next(times))", globals={"clock": clock, "times": times}, timer=clock
    )
    found = unsteady.adaptive_autorange(threshold=0.01, max_run_time=0.5)
    assert sum(found.raw_times) >= 0.5 or found.meets_confidence(0.01)


def test_threads_setup_and_names():
    before = lamina.get_num_threads()
    seen = []
    timed = benchmark.Timer(
        "f(seen)", setup="f = seen_threads", global_setup="import lamina",
        globals={"seen": seen, "seen_threads": lambda seen: seen.append(lamina.get_num_threads())},
        num_threads=2, label="l", sub_label="s", description="d",
    )  # fmt: skip
    found = timed.timeit(3)
    assert set(seen) == {2} and lamina.get_num_threads() == before
    assert (found.title, found.as_row_name, found.num_threads) == ("l: s", "s", 2)
    assert "l: s\nd\n" in str(found) and "3 runs per measurement, 2 threads" in str(found)
    failing = benchmark.Timer("1 / 0", num_threads=2)
    with pytest.raises(ZeroDivisionError):
        failing.timeit(3)
    assert lamina.get_num_threads() == before


def measured(label, row, column, *times, threads=1):
    spec = benchmark.TaskSpec("x", label=label, sub_label=row, description=column, num_threads=threads)
    return benchmark.Measurement(1, [*times], spec)


def test_measurements_of_one_task_are_one():
    one, two, other = (measured("l", row, "c", time) for row, time in (("a", 1.0), ("a", 3.0), ("b", 5.0)))
    merged = benchmark.Measurement.merge([one, other, two])
    assert [m.raw_times for m in merged] == [[1.0, 3.0], [5.0]]
    assert one.raw_times == [1.0]


def test_digits_and_warnings():
    assert measured("l", "r", "c", *[0.001234] * 9).significant_figures == 4
    wild = measured("l", "r", "c", 0.001, 0.002, 0.003, 0.004)
    assert wild.significant_figures == 1 and wild.has_warnings
    assert "WARNING: the quartiles lie 60% apart" in str(wild)


def test_compare():
    compare = benchmark.Compare([
        measured("l", "small", "ours", 2e-6), measured("l", "small", "theirs", 4e-6),
        measured("l", "large", "ours", 8e-6, threads=2), measured("m", "small", "ours", 1.0),
    ])  # fmt: skip
    compare.extend_results([measured("l", "large", "theirs", 1e-6, 5e-6, 9e-6, threads=2)])
    compare.colorize()
    compare.highlight_warnings()
    assert (
        str(compare)
        == """\
[-------------- l --------------]
            | ours |    theirs
1 threads: ----------------------
      small | *2.0 |          4.0
2 threads: ----------------------
      large |  8.0 | *(! 80%) 5.0

Times are in microseconds (us).
* is the least of its row.
(! ..%) says how far the quartiles lie apart.

[------ m -------]
            | ours
1 threads: -------
      small |  1.0

Times are in seconds (s).
* is the least of its row.
"""
    )


def test_what_is_not_offered():
    with pytest.raises(ArgumentValueError, match="Python"):
        benchmark.Timer("x", language="c++")
    with pytest.raises(NotImplementedError):
        benchmark.Timer("1").repeat()
