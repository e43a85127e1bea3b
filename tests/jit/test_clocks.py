"""Clocks that are asked before and after the work: what they tell leaves the run, and nothing hangs on it."""

import time

import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim


def parts():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    return model, optim.SGD(model.parameters(), lr=0.1), lamina.randn(32, 64), lamina.randn(32, 4)


class Meter:
    def __init__(self):
        self.last = self.sum = self.average = 0.0
        self.count = 0

    def update(self, value):
        self.last = value
        self.sum += value
        self.count += 1
        self.average = self.sum / self.count


def step_of(around):
    """A training step, of which `around` makes one with clocks in it."""
    model, optimizer, x, y = parts()

    def work():
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return around(work)


CLOCKS = (
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
    time.process_time, time.thread_time,
)  # fmt: skip


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.__name__)
def test_a_step_is_timed(clock):
    def around(work):
        def step():
            start = clock()
            loss = work()
            return loss.item(), start, clock()

        return step

    step = jit.trace(step_of(around))
    before = clock()
    for _ in range(12):
        loss, start, end = step()
        after = clock()
        assert before <= start <= end <= after and type(start) is type(before) is type(end)
        assert loss > 0
        before = after
    assert step.counts()["served"] >= 8, step.explain()


def test_the_time_is_that_of_the_work():
    given = lamina.randn(700, 700)

    @jit.trace
    def f(x, times):
        start = time.perf_counter()
        y = x
        for _ in range(times):
            y = y @ x / 30
        took = time.perf_counter() - start
        return y, took

    took = [(f(given, 8)[1], f(given, 1)[1]) for _ in range(6)]
    assert f.counts()["served"] >= 6, f.explain()
    slow, quick = map(min, zip(*took[3:]))
    assert slow > quick  # eight products, and one of them


def test_meters_and_logs():
    meter, log, told = Meter(), [], []

    def around(work):
        state = {"end": time.time()}

        def step():
            waited = time.time() - state["end"]
            loss = work()
            took = time.time() - state["end"]
            state["end"] = time.time()
            meter.update(took)
            log.append(
                {"loss": loss.item(), "ms": round(took * 1000, 3), "rate": 32 / took, "waited": waited}
            )
            told.append(f"{took * 1e3:.1f} ms, {int(32 / took)}/s, {abs(took):.2e}")
            return loss

        return step

    step = jit.trace(step_of(around))
    began = time.time()
    for _ in range(12):
        step()
    passed = time.time() - began
    assert step.counts()["served"] >= 8, step.explain()
    assert meter.count == len(log) == len(told) == 12
    assert 0 < meter.last < meter.sum <= passed + 0.1
    assert all(entry["ms"] == pytest.approx(32e3 / entry["rate"], abs=1e-3) for entry in log)
    assert all(line.split(" ms")[0].replace(".", "").isdigit() for line in told)


def never_served(function, *args, calls=6):
    traced = jit.trace(function)
    for _ in range(calls):
        traced(*args)
    assert not traced.counts()["served"], traced.explain()
    return traced.explain()


def test_what_hangs_on_a_clock_is_refused():
    x = lamina.randn(64, 64)
    start = time.monotonic()

    def branches():
        y = x @ x
        return y if time.monotonic() - start > 1e9 else y * 2

    def scales():
        y = x @ x
        return x.sum() * (time.monotonic() - start), y

    def picks():
        y = x @ x
        return y, [1, 2, 3][int(time.monotonic()) % 3]

    def keys():
        y = x @ x
        return y, {time.perf_counter(): 1}

    def waits():
        until = time.perf_counter()
        while time.perf_counter() < until:
            pass
        return x @ x

    for f in (branches, scales, picks, keys, waits):
        assert "gives another value at each call" in never_served(f), f.__name__


def test_a_clock_in_the_middle_is_refused():
    def around(work):
        def step():
            start = time.perf_counter()
            work()
            middle = time.perf_counter()
            loss = work()
            return loss.item(), middle - start

        return step

    assert "the middle of the work" in never_served(step_of(around))


def test_a_clock_that_is_replaced(monkeypatch):
    x = lamina.randn(3)
    f = jit.trace(lambda: (x * 2, time.time()))
    for _ in range(4):
        f()
    assert f.counts()["served"]
    monkeypatch.setattr(time, "time", lambda: 7.0)
    assert [f()[1] for _ in range(4)] == [7.0] * 4


def test_the_same_verified():
    def around(work):
        def step():
            start = time.perf_counter()
            loss = work()
            return loss, time.perf_counter() - start

        return step

    step = jit.trace(step_of(around), verify=True)
    for _ in range(6):
        assert step()[1] > 0
