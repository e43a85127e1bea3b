"""An interrupt at any place where Python answers signals: later calls of what is traced are right.

The places are those of a first run; each is interrupted in a traced function of its own.  Too many for each
day: `make slow` goes through all.
"""

import gc
import random
import sys
import threading
import time
import warnings

import interrupting
import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.runtime import modes
from lamina.runtime.places import is_internal

SAMPLE = 20  # places of a program in a day


class Interrupted(BaseException):
    """What Ctrl-C raises, but nobody else."""


# ---- programs: of a size, what is called, with what, and the tensors that it may change --------------------
def of_captured_tensors(n):
    w, parts = lamina.randn(24, 24), [lamina.randn(24), lamina.randn(24)]

    def f(x):
        return (lamina.relu(x @ w) * 2 + x + parts[0] * parts[1]).sum(0)

    return f, [(lamina.randn(n, 24),)] * 3 + [(lamina.randn(n + 1, 24),)], [w, *parts]


def of_training(n):
    # Without a bias before the norm: its gradient would be a rounding error, which Adam makes a step of.
    net = nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
    )
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batch = lamina.randn(n + 2, 6), lamina.randint(0, 3, (n + 2,))
    step(*batch)
    states = [value for state in optimizer.state.values() for value in state.values()]
    return step, [batch] * 4, [*net.state_dict().values(), *states]


def of_questions(n):
    w, count = lamina.randn(5, 5), [0]

    def f(x, k):
        y = (x @ w).tanh()
        if y.sum() > 0:
            return y * k
        mean = float(y.mean())
        count[0] += 1
        return y - mean * k

    return f, [(lamina.randn(n, 5) * (-1) ** i, 1.0 + i * 0.5) for i in range(6)], [w]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.calls = nn.Linear(7, 7), nn.Linear(7, 7), 0

    def forward(self, x):
        self.calls += 1
        return self.b(lamina.relu(self.a(x))) + x


def of_inner_modules(n):
    layers = nn.ModuleList([Block(), Block()])

    def helper(x):
        for _ in range(3):
            x = lamina.sigmoid(x) * x + x
        return x

    def f(x):
        time.time()  # is refused, and what is called inside is traced by itself
        for layer in layers:
            x = layer(x)
        return helper(x)

    return f, [(lamina.randn(n, 7),)] * 5, [*layers.state_dict().values()]


def of_generators_and_draws(n):
    def numbers(count):
        try:
            for _ in range(count):
                yield lamina.rand(n, 4)
        finally:
            pass

    def f(x):
        total = x
        with lamina.no_grad():
            for y in numbers(3):
                total = total + y
        return {"total": total, "twice": [total * 2]}

    return f, [(lamina.randn(n, 4),)] * 4, []


def of_changing_weights(n):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))
    net.eval()
    state = [*net.state_dict().values()]

    def f(x):
        with lamina.no_grad():
            return net(x)

    def other(x):
        with lamina.no_grad():
            for weight in state:
                if weight.dtype.inexact:
                    weight.mul_(1.1)
                    weight.data = weight.data + 0.01
        return x

    f.between = other
    return f, [(lamina.randn(n % 7 + 1, 3, 6, 6),)] * 3, state


def of_caught_interrupts(n):
    w = lamina.randn(5, 5)

    def f(x):
        try:
            y = (x @ w).tanh() * 2
        except (Interrupted, TimeoutError):
            y = x
        return y + 1

    return f, [(lamina.randn(n, 5),)] * 3, [w]


PROGRAMS = [
    of_captured_tensors, of_training, of_questions, of_inner_modules, of_generators_and_draws,
    of_changing_weights, of_caught_interrupts,
]  # fmt: skip


def leaves(value):
    if isinstance(value, lamina.Tensor):
        return [value.detach().numpy().copy()]
    if isinstance(value, (dict, list, tuple)):
        inside = value.values() if isinstance(value, dict) else value
        return [leaf for each in inside for leaf in leaves(each)]
    return [np.asarray(value)]


def outcome(function, args, state):
    lamina.manual_seed(5)
    return leaves(function(*args)) + leaves(state)


def held_by_this_thread(lock):
    """Whether another thread can't have it."""
    had = []

    def attempt():
        had.append(lock.acquire(blocking=False))
        if had[0]:
            lock.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return not had[0]


def after_an_interrupt(program, n, place, visit, error):
    """Whether the place was met; raises what is wrong then, or afterwards."""
    function, calls, state = program(n)
    traced = jit.trace(function)

    def run():
        for args in calls:
            traced(*args)
            getattr(function, "between", leaves)(*args[:1])

    became = interrupting.interrupt(run, place, visit, error)
    assert became != "lost" or program is of_caught_interrupts, "the interrupt was lost"
    for args in calls:
        before = leaves(state)
        wanted = outcome(function, args, state)
        with lamina.no_grad():
            for x, y in zip(state, before):
                x.copy_(lamina.tensor(y))
        for a, b in zip(wanted, outcome(traced, args, state), strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5)
    assert not modes.CHANGED
    assert not held_by_this_thread(traced._lock)
    assert traced._recorder is None
    return became != "not met"


@pytest.fixture(autouse=True)
def the_same_limit():
    before = sys.getrecursionlimit()
    yield
    gc.collect()
    jit.trace(lambda x: x + 1)(lamina.ones(2))  # what an interrupted run could not end ends with the next one
    assert sys.getrecursionlimit() == before


def interrupted_everywhere(program, only, seed, most, least):
    """Interrupt at places in files that `only` chooses, with one of both kinds of errors.

    least: the share of places that later runs come to as well; kernels that are known are not made again.
    """
    function, calls, _ = program(3)
    traced = jit.trace(function)
    visits = interrupting.places(
        lambda: [(traced(*args), getattr(function, "between", leaves)(*args[:1])) for args in calls],
        lambda code: is_internal(code.co_filename) and only(code.co_filename),
    )
    rng = random.Random(seed)
    chosen = [*visits]
    rng.shuffle(chosen)
    met, wrong = 0, []
    for number, place in enumerate(chosen[:most]):
        visit = 0 if rng.random() < 0.7 else rng.randrange(visits[place])
        error = rng.choice([Interrupted, Interrupted, TimeoutError])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                met += after_an_interrupt(program, number % 60 + 1, place, visit, error)
        except BaseException as fault:
            where = f"{place[0].co_filename}:{place[0].co_name}+{place[1]}, visit {visit}, {error.__name__}"
            wrong.append(f"after an interrupt at {where}: {type(fault).__name__}: {fault}")
    assert not wrong, "\n".join(wrong)
    assert met > least * len(chosen[:most])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_interrupts_leave_what_is_traced_right(program):
    interrupted_everywhere(program, lambda file: "/jit/" in file, time.strftime("%Y-%m-%d"), SAMPLE, 0.5)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_interrupts_at_every_place_leave_what_is_traced_right(program):
    interrupted_everywhere(program, lambda file: True, 1, None, 0.2)


@pytest.mark.sampled(3)
def test_the_number_of_a_captured_tensor_is_whole_or_not_there():
    """Interrupted in the middle, a later call ended in a bare IndexError."""
    program, code = of_captured_tensors, lamina.jit.observe.known.Registry.number.__code__
    met = 0
    for offset in (interrupting.BEGINNING, *range(0, len(code.co_code), 2)):
        met += after_an_interrupt(program, 3, (code, offset), 0, Interrupted)
    assert met > 20
