"""What becomes one run, what waits for what, and what a bad request does to those beside it."""

import asyncio
import threading

import numpy as np
import pytest

from lamina.serving.batcher import Batcher
from lamina.serving.bounds import Bounds
from lamina.serving.refusals import Refusal


class Doubling:
    """Doubles its rows and notes how many ran; it can be held, and fails where a row is negative."""

    name = "doubling"

    def __init__(self, most_rows=32):
        self.most_rows, self.runs, self.free = most_rows, [], threading.Event()
        self.free.set()

    def run(self, arrays):
        self.free.wait(20)
        self.runs.append(len(arrays[0]))
        if (arrays[0] < 0).any():
            raise IndexError("a row is negative")
        return [arrays[0] * 2]


def row(value, width=2, rows=1):
    return [np.full((rows, width), value, np.float32)]


async def held(model, batcher, jobs):
    """What jobs give that all came while a first one ran."""
    model.free.clear()
    first = asyncio.create_task(batcher(row(0)))
    await asyncio.sleep(0.05)
    tasks = [asyncio.create_task(batcher(job)) for job in jobs]
    await asyncio.sleep(0.05)
    model.free.set()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_what_waits_runs_together():
    model = Doubling()

    async def main():
        return await held(model, Batcher(model, Bounds()), [row(i) for i in range(10)])

    answers = run(main())
    assert [a[0].tolist() for a in answers] == [[[2.0 * i] * 2] for i in range(10)]
    assert model.runs == [1, 10]


def test_a_run_has_no_more_rows_than_it_may_and_other_sizes_run_apart():
    model = Doubling()

    async def main():
        jobs = [row(i, 2, 3) for i in range(4)] + [row(i, 5) for i in range(2)]
        return await held(model, Batcher(model, Bounds(batch=8, wait=0)), jobs)

    answers = run(main())
    assert [a[0].shape for a in answers] == [(3, 2)] * 4 + [(1, 5)] * 2
    assert model.runs == [1, 6, 6, 2]


def test_a_model_without_batch_runs_one_by_one():
    model = Doubling(None)

    async def main():
        return await held(model, Batcher(model, Bounds()), [row(1), row(2)])

    run(main())
    assert model.runs == [1, 1, 1]


def test_a_bad_request_fails_alone():
    model = Doubling()

    async def main():
        return await held(model, Batcher(model, Bounds()), [row(1), row(-1), row(3)])

    good, bad, other = run(main())
    assert good[0].tolist() == [[2, 2]] and other[0].tolist() == [[6, 6]]
    assert isinstance(bad, Refusal) and (bad.status, bad.rule) == (400, "doubling: a row is negative")
    assert model.runs == [1, 3, 1, 1, 1]


def test_outputs_that_are_no_rows_are_never_split():
    class Summing(Doubling):
        def run(self, arrays):
            super().run(arrays)
            return [arrays[0].sum(keepdims=True)[0]]

    model = Summing()

    async def main():
        return await held(model, Batcher(model, Bounds()), [row(1), row(2)])

    assert [a[0].tolist() for a in run(main())] == [[2.0], [4.0]]


def test_a_full_queue_refuses_and_says_when_to_come_again():
    model = Doubling()

    async def main():
        return await held(model, Batcher(model, Bounds(queue=2)), [row(i) for i in range(4)])

    answers = run(main())
    assert [getattr(a, "status", 200) for a in answers] == [200, 200, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) >= 1


def test_what_waits_too_long_is_told_so_and_never_run():
    model = Doubling()

    async def main():
        batcher = Batcher(model, Bounds(timeout=0.2))
        model.free.clear()
        tasks = [asyncio.create_task(batcher(row(0)))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(batcher(row(i))) for i in range(2)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        model.free.set()
        await asyncio.sleep(0.1)
        return answers, await batcher(row(9))

    answers, last = run(main())
    assert [a.status for a in answers] == [504] * 3 and last[0].tolist() == [[18, 18]]
    assert model.runs == [1, 1]


def test_a_request_alone_never_waits_and_those_that_come_again_are_waited_for():
    """The wait is an hour here: whoever waits for it fails the test."""
    model = Doubling()

    async def main():
        batcher = Batcher(model, Bounds(wait=3600, batch=4))
        for i in range(3):
            await batcher(row(i))
        assert model.runs == [1, 1, 1]
        # Two that come together again and again: the second run waits for both.
        await held(model, batcher, [row(1), row(2), row(3), row(4)])
        tasks = [asyncio.create_task(batcher(row(1)))]
        await asyncio.sleep(0.1)
        assert not tasks[0].done()  # four ran last: this one is the first of four
        tasks += [asyncio.create_task(batcher(row(i))) for i in range(3)]
        await asyncio.gather(*tasks)

    run(main())
    assert model.runs == [1, 1, 1, 1, 4, 4]


def test_unexpected_failures_reach_the_client_as_they_are():
    class Broken(Doubling):
        def run(self, arrays):
            raise OSError("disk")

    async def main():
        with pytest.raises(OSError, match="disk"):
            await Batcher(Broken(), Bounds())(row(1))

    run(main())
