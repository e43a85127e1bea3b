"""Where a function can't be recorded as a whole, what it calls is traced in its place."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import io
import logging
import pickle
import random
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim
from lamina.ir.dims import minimum, symbol
from lamina.jit import within
from lamina.runtime import modes

CALLS = 8


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """No outcome hangs on how fast this machine is."""
    monkeypatch.setattr(within, "MOST_PER_OP", 60.0)


class Block(nn.Module):
    """Enough ops that compiled code pays, with a history too."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return (self.two(self.one(x).tanh()) * 2 + x).sigmoid() - x.mean()


class Net(nn.Module):
    def __init__(self, width: int = 6):
        super().__init__()
        self.first, self.second = Block(width), Block(width)
        self.norm, self.drop = nn.BatchNorm1d(width), nn.Dropout(0.25)

    def forward(self, x):
        return self.second(self.drop(self.norm(self.first(x))))


def within_counts(traced) -> dict[str, tuple[int, int]]:
    """Of each inner traced function by its name: calls served, and recordings."""
    return {log.name: (log.hits, log.recorded) for _, log in traced._log.inner()}


def same(a, b):
    """Equal but for rounding: of sums and products of numbers of about 1, 64 of them one after another."""
    np.testing.assert_allclose(a._data, b._data, rtol=0, atol=64 * np.finfo(np.float32).eps)


class Dice(random.Random):
    """Of which nobody knows that it can be put back."""


dice = Dice()


def ways_out(tmp_path) -> dict[str, Callable[[], float]]:
    """Things that no recording can do again, which give a number."""
    file = tmp_path / "number.txt"
    file.write_text("0.5")
    numbers = iter(range(1000))
    libc = ctypes.CDLL(None)
    libc.abs.argtypes = [ctypes.c_int]
    return {
        "random": dice.random,
        "clock": lambda: time.clock_gettime(0) * 0,
        "file": lambda: float(file.read_text()),
        "unknown C": lambda: float(libc.abs(-1)),
        "generator": lambda: float(next(numbers)),
    }


@pytest.mark.parametrize("way", ["random", "clock", "file", "unknown C", "generator"])
def test_a_training_step_with_something_from_outside_runs_its_network_compiled(way, tmp_path):
    def trained(trace):
        dice.seed(0)
        outside = ways_out(tmp_path)[way]
        lamina.manual_seed(0)
        net = Net()
        optimizer = optim.SGD(net.parameters(), lr=0.05)

        def step(x, y):
            weight = 1.0 + 0.1 * outside()
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y) * weight
            loss.backward()
            optimizer.step()
            return loss

        f = trace(step)
        losses = [f(lamina.randn(5, 6), lamina.randint(0, 6, (5,))) for _ in range(CALLS)]
        return f, losses, net.state_dict(), lamina.get_rng_state(), dice.getstate()

    _, losses, state, generator, chance = trained(lambda f: f)
    f, *found = trained(jit.trace)
    for a, b in zip(losses, found[0], strict=True):
        same(a, b)
    for name, x in state.items():
        same(x, found[1][name])
    assert found[2].tolist() == generator.tolist() and found[3] == chance
    counts = f.counts()
    assert counts["served"] == 0 and counts["eager"] == CALLS - 1
    # The network runs itself once, and is recorded once.
    assert counts["within"] == CALLS - 2 and within_counts(f) == {"Net": (CALLS - 2, 1)}
    assert "Net: 1 recording, 6 compiled calls" in f.explain()


# ---- the largest that can be -------------------------------------------------------------------------------
class Clocked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = Block()
        self.last = 0.0

    def forward(self, x):
        self.last = time.clock_gettime(1)
        return self.inside(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.clocked, self.after = Block(), Clocked(), nn.Sequential(Block(), nn.Linear(6, 2))

    def forward(self, x):
        return self.after(self.clocked(self.before(x)))


def test_of_nested_modules_the_largest_that_can_be_are_traced():
    net = Outer()
    f = jit.trace(net)
    for _ in range(CALLS):
        x = lamina.randn(3, 6)
        then = time.clock_gettime(1)
        with lamina.no_grad():
            same(f(x), net(x))
        assert net.clocked.last > then
    told = [(each["name"], each["depth"], each["served"] > 0) for each in f.explain(as_dict=True)["inner"]]
    # In the order in which they were met: the first run answers for none before the clock was read.
    assert told == [("Sequential", 0, True), ("Block", 0, True), ("Clocked", 0, False), ("Block", 1, True)]
    lines = f.explain().splitlines()[-4:]
    assert [line.split(":")[0] for line in lines] == [
        "    Sequential",
        "    Block",
        "    Clocked",
        "      Block",
    ]
    assert (
        "Clocked: 1 recording, 0 compiled calls, " in lines[2] and "; eager: time.clock_gettime()" in lines[2]
    )


def test_layers_that_gain_nothing_are_let_alone():
    class Scale(nn.Module):
        def forward(self, x):
            return x * 2

    alone, scale, norm = nn.Linear(6, 6), Scale(), nn.LayerNorm(6)
    f = jit.trace(lambda x: (time.clock_gettime(0), norm(scale(alone(x))))[1])
    for _ in range(CALLS):
        f(lamina.randn(2, 6))
    assert f.counts()["within"] == 0 and not within_counts(f)


def test_a_large_layer_of_few_ops_gains():
    class Scale(nn.Module):
        def forward(self, x):
            return (x * 2 + 1).relu()

    scale = Scale()
    f = jit.trace(lambda x: (time.clock_gettime(0), scale(x))[1])
    for _ in range(CALLS):
        f(lamina.randn(300, 300, requires_grad=True)).sum().backward()
    assert f.counts()["within"] == CALLS - 2


@pytest.mark.parametrize("steps", [1, 40])
def test_a_whole_loop_is_served_from_its_first_call_on(steps, capsys):
    def trained(trace):
        lamina.manual_seed(0)
        net = Net()
        optimizer = optim.SGD(net.parameters(), lr=0.05)

        def loop(n):
            began, losses = time.clock_gettime(0), []
            for epoch in range(n):
                optimizer.zero_grad()
                loss = net(lamina.randn(5, 6)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                print(epoch, time.clock_gettime(0) >= began)
            return losses

        f = trace(loop)
        return f, f(steps)

    _, losses = trained(lambda f: f)
    said = capsys.readouterr().out
    f, found = trained(jit.trace)
    assert capsys.readouterr().out == said
    np.testing.assert_allclose(found, losses, rtol=0, atol=64 * np.finfo(np.float32).eps)
    served = sum(hits for hits, _ in within_counts(f).values())
    assert served == max(steps - 2, 0)


def test_a_module_that_is_called_recursively():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.clock = Block(), 0.0

        def forward(self, x, depth):
            if depth == 0:
                self.clock = time.clock_gettime(0)
                return x
            return self(self.block(x), depth - 1)

    net = Nested()
    f = jit.trace(lambda x, depth: net(x, depth))
    for k in range(3 * CALLS):
        x, depth = lamina.randn(2, 6), k % 3 + 1
        with lamina.no_grad():
            same(f(x, depth), net(x, depth))
    assert within_counts(f)["Block"][0] > CALLS


def test_deep_recursion_is_as_deep_as_undecorated():
    class Chain(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside, self.clock = inside, 0.0

        def forward(self, x):
            self.clock = time.clock_gettime(0)
            return x + 1 if self.inside is None else self.inside(x)

    net = None
    for _ in range(150):
        net = Chain(net)
    f = jit.trace(net)
    for _ in range(CALLS):
        np.testing.assert_array_equal(f(lamina.zeros(2))._data, [1, 1])


# ---- state between calls -----------------------------------------------------------------------------------
def clocked(net):
    return jit.trace(lambda x: (time.clock_gettime(0), net(x))[1])


def test_hooks_come_and_go():
    net = Net()
    f, seen = clocked(net), []
    for k in range(3 * CALLS):
        handle = None
        if k // 3 % 2:
            handle = net.first.register_forward_hook(lambda module, args, out, k=k: seen.append(k) or out * 2)
        x = lamina.randn(5, 6)
        with lamina.no_grad():
            lamina.manual_seed(k)
            found, seen_then = f(x), [*seen]
            net.norm.num_batches_tracked.zero_()
            net.norm.reset_running_stats()
            lamina.manual_seed(k)
            same(found, net(x))
        net.norm.reset_running_stats()
        assert seen_then[-1:] == ([k] if handle else seen_then[-1:]) and seen_then.count(k) == (
            handle is not None
        )
        if handle is not None:
            handle.remove()
    assert f.counts()["within"] > CALLS


def test_state_of_modules_and_generators_goes_on():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.drop, self.calls, self.kept = Block(), nn.Dropout(0.5), 0, []

        def forward(self, x):
            self.calls += 1
            self.kept.append(len(x))
            return self.drop(self.block(x)) * self.calls

    def run(trace):
        lamina.manual_seed(3)
        net, norm = Counts(), nn.Sequential(nn.BatchNorm1d(6), Block(), nn.BatchNorm1d(6))

        def f(x):
            time.clock_gettime(0)
            return norm(net(x))

        f = trace(f)
        found = []
        for k in range(2 * CALLS):
            if k == CALLS:
                norm.eval()
                net.drop.eval()
            elif k == CALLS + 4:
                norm.train()
                net.train()
            found.append(f(lamina.randn(4, 6)))
        return f, found, norm.state_dict(), net.calls, net.kept, lamina.rand(3)

    _, found, state, *others, drawn = run(lambda f: f)
    f, *traced = run(jit.trace)
    for a, b in zip(found, traced[0], strict=True):
        same(a, b)
    for name, x in state.items():
        same(x, traced[1][name])
    assert traced[2:4] == others and traced[4].tolist() == drawn.tolist()
    assert state["0.num_batches_tracked"].item() == traced[1]["0.num_batches_tracked"].item() == 2 * CALLS - 4
    assert f.counts()["within"] >= CALLS and {"Counts", "Sequential"} == within_counts(f).keys()


def test_gradients_go_through_and_stop_where_they_are_off():
    net, other = Net().eval(), Block()

    def plain(x, off):
        time.clock_gettime(0)
        with lamina.set_grad_enabled(not off):
            y = net(x)
        return other(y)

    f = jit.trace(plain)
    for k in range(3 * CALLS):
        x, off = lamina.randn(3, 6, requires_grad=True), k % 3 == 0
        found = []
        for each in (f, plain):
            net.zero_grad()
            x.grad = None
            each(x, off).sum().backward()
            found.append([None if p.grad is None else p.grad.clone() for p in (x, *net.parameters())])
        for a, b in zip(*found, strict=True):
            assert (a is None) is (b is None) is off
            if a is not None:
                same(a, b)
    assert f.counts()["within"] > CALLS


def test_second_gradients_go_through():
    net = Net().eval()
    f = clocked(net)
    for _ in range(CALLS):
        x = lamina.randn(3, 6, requires_grad=True)
        found = []
        for each in (f, net):
            (g,) = lamina.autograd.grad(each(x).sum(), x, create_graph=True)
            found.append(lamina.autograd.grad(g.square().sum(), x)[0])
        same(*found)
    assert f.counts()["within"] == CALLS - 2


def test_a_module_that_is_replaced_between_calls():
    net = nn.Sequential(Block(), Clocked())
    f = jit.trace(net)
    dead = []
    with lamina.no_grad():
        for _ in range(4):
            for _ in range(6):
                x = lamina.randn(2, 6)
                same(f(x), net(x))
            dead.append(weakref.ref(net[0]))
            net[0] = Block()
            gc.collect()
            assert dead[-1]() is None
    assert f.counts()["within"] >= CALLS


@pytest.mark.parametrize("calls", [2, 3], ids=["in vain", "and are paid"])
def test_modules_that_live_for_one_call_are_not_recorded_again_and_again(calls, monkeypatch):
    """The first call meets one, the second records it, and what is compiled serves the third."""
    monkeypatch.setattr(within, "MOST_UNPAID", 4)

    def fresh(x):
        time.clock_gettime(0)
        net = Block()
        for _ in range(calls):
            x = net(x)
        return x

    f = jit.trace(fresh)
    for _ in range(8):
        f(lamina.randn(2, 6))
        gc.collect()
        assert not within_counts(f)
    assert f._within._unpaid == (4 if calls == 2 else 0)
    assert (f.counts()["within"] > 0) == (calls == 3)


# ---- functions ---------------------------------------------------------------------------------------------
class Training:
    """A network, an optimizer, and the parts of a loop as functions of all kinds."""

    def __init__(self):
        lamina.manual_seed(0)
        self.net = Block()
        self.optimizer = optim.SGD(self.net.parameters(), lr=0.1)
        self.steps = 0

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss

    def by_function(self):
        def step(x):
            return self.step(x)

        def loop(n):
            time.clock_gettime(0)
            return [step(lamina.randn(3, 6)).item() for _ in range(n)] if n < 0 else looped(n)

        def looped(n):
            found = []
            for _ in range(n):
                time.clock_gettime(0)
                found.append(step(lamina.randn(3, 6)).item())
            return found

        return loop

    def by_method(self):
        return self.loop

    def loop(self, n):
        found = []
        for _ in range(n):
            time.clock_gettime(0)
            found.append(self.step(lamina.randn(3, 6)).item())
        return found

    def by_argument(self):
        def loop(n, step=self.step):
            time.clock_gettime(0)
            found = []
            for _ in range(n):
                found.append(step(lamina.randn(3, 6)).item())
            return found

        return loop

    def by_partial(self):
        step = functools.partial(Training.step, self)

        def loop(n):
            time.clock_gettime(0)
            found = []
            for _ in range(n):
                found.append(step(lamina.randn(3, 6)).item())
            return found

        return loop


def trained(way, trace, calls, steps):
    training = Training()
    f = trace(getattr(training, way)())
    found = [f(steps) for _ in range(calls)]
    return f, found, training.steps, lamina.get_rng_state().tolist(), training.net.state_dict()


@pytest.mark.parametrize("calls, steps", [(1, 12), (4, 3)])
@pytest.mark.parametrize("way", ["by_function", "by_method", "by_argument", "by_partial"])
def test_functions_of_all_kinds_are_traced_in_their_places(way, calls, steps):
    _, losses, *expected, state = trained(way, lambda f: f, calls, steps)
    f, found, *others, traced = trained(way, jit.trace, calls, steps)
    np.testing.assert_allclose(found, losses, rtol=0, atol=64 * np.finfo(np.float32).eps)
    assert others == expected
    for name, x in state.items():
        same(x, traced[name])
    served = {log.name: log.hits for _, log in f._log.inner()}
    if calls == 1 or way == "by_function":  # from a frame that is interpreted, or by name
        assert served["step"] >= 8
    else:
        assert sum(served.values()) >= 4 and f.counts()["within"] == calls - 1


def test_a_traced_function_is_served_where_one_around_it_was_refused():
    net = Block()

    @jit.trace
    def step(x):
        return net(x) * 2

    @jit.trace
    def loop(n):
        time.clock_gettime(0)
        for _ in range(n):
            step(lamina.randn(2, 6))

    loop(CALLS)
    assert step.counts()["served"] == CALLS - 1 and loop.counts()["within"] == 0


def test_a_function_that_looks_up_much_gets_no_twin(monkeypatch):
    def plain(x):
        time.clock_gettime(0)
        for _ in range(300):
            len("")
        return a_step(x)

    for most, served in ((100, 0), (1000, CALLS)):
        monkeypatch.setattr(within, "MOST_LOOKUPS", most)
        f = jit.trace(plain)
        for _ in range(2 * CALLS):
            f(lamina.randn(2))
        assert sum(hits for hits, _ in within_counts(f).values()) >= served
        assert f._within.meet(plain).plain is (not served)


def a_step(x):
    a_step.calls += 1
    return (x * scale).tanh().sum() + 1


def another_step(x):
    return (x * scale).sigmoid().sum() - 1


a_step.calls = 0
scale = 2.0
stepping = a_step


def by_global_name(x):
    time.clock_gettime(0)
    return stepping(x)


def test_a_global_function_that_is_replaced_and_what_it_reads(monkeypatch):
    f = jit.trace(by_global_name)
    for k in range(4 * CALLS):
        monkeypatch.setitem(globals(), "scale", 1.0 + k // 8)
        monkeypatch.setitem(globals(), "stepping", (a_step, another_step)[k // 4 % 2])
        x = lamina.randn(5)
        calls = a_step.calls
        found = f(x)
        assert a_step.calls - calls == (stepping is a_step)
        same(found, by_global_name(x))
    assert f.counts()["within"] >= CALLS and {"a_step", "another_step"} == within_counts(f).keys()
    assert by_global_name.__globals__ is globals() and by_global_name.__code__.co_names


def test_a_variable_of_an_enclosing_function_that_is_assigned_meanwhile():
    def one(x):
        return x.tanh() * 2

    def two(x):
        return x.tanh() * 3

    now = one

    def plain(x):
        time.clock_gettime(0)
        return now(x)

    f = jit.trace(plain)
    for k in range(4 * CALLS):
        now = (one, two)[k // 3 % 2]
        x = lamina.randn(4)
        same(f(x), plain(x))
    assert within_counts(f)["one"][0] >= 4 and within_counts(f)["two"][0] >= 4


def test_code_that_asks_for_its_globals_or_frames_runs_as_it_is():
    here = globals()

    def helper(x):
        return x.tanh() * 2 + sys._getframe(1).f_lineno * 0

    def by_globals(x):
        time.clock_gettime(0)
        assert globals() is here
        return a_step(x)

    def by_frame(x):
        time.clock_gettime(0)
        return helper(x)

    def by_lambda(x):
        time.clock_gettime(0)
        assert (lambda: 0).__globals__ is here
        return a_step(x)

    for plain in (by_globals, by_frame, by_lambda):
        f = jit.trace(plain)
        for _ in range(CALLS):
            x = lamina.randn(4)
            same(f(x), plain(x))


def test_what_computes_in_python_is_not_interpreted(monkeypatch):
    monkeypatch.setattr(within, "MOST_PER_OP", 1e-9)

    def slow(n):
        return lamina.tensor([float(sum(range(n)) % 7)]) * 2

    def plain(n):
        time.clock_gettime(0)
        return slow(n)

    f = jit.trace(plain)
    for _ in range(CALLS):
        f(1000)
    assert not within_counts(f)


def test_recursion_of_functions_is_as_deep_as_undecorated():
    def nested(x, depth):
        if not depth:
            time.clock_gettime(0)
            return x.tanh() + 1
        return nested(x, depth - 1)

    def there(x, depth):
        return back(x, depth - 1) if depth else nested(x, depth)

    def back(x, depth):
        return there(x, depth - 1) if depth else nested(x, depth)

    def plain(x, depth, way):
        time.clock_gettime(0)
        return nested(x, depth) if way else there(x, depth)

    f = jit.trace(plain)
    for k in range(2 * CALLS):
        x, depth, way = lamina.randn(2), 700 + k % 2, k % 3 == 0
        same(f(x, depth, way), plain(x, depth, way))


def test_errors_in_functions_have_the_lines_of_undecorated_ones():
    def failing(x, bad):
        y = (x * 2).tanh() + 1
        if bad:
            raise KeyError("bad")
        return y

    def plain(x, bad):
        time.clock_gettime(0)
        return failing(x, bad)

    f = jit.trace(plain)
    for k in range(2 * CALLS):
        x, bad = lamina.randn(2), k % 2 == 1
        if not bad:
            same(f(x, bad), plain(x, bad))
            continue
        lines = []
        for each in (plain, f):
            try:
                each(x, bad)
            except KeyError as error:
                frames = traceback.extract_tb(error.__traceback__)[1:]
                lines.append([(frame.name, frame.lineno) for frame in frames if frame.filename == __file__])
        assert lines[0] == lines[1]
    assert within_counts(f)["failing"][0] >= 4


def test_warnings_and_logs_say_where_they_were_made(caplog):
    log = logging.getLogger("within")

    def step(x):
        log.warning("stepping")
        return (x * 2).tanh() + 1

    def plain(x):
        time.clock_gettime(0)
        log.warning("running")
        return step(x)

    f = jit.trace(plain)
    f(lamina.randn(2))
    caplog.clear()
    for each in (plain, *[f] * CALLS):
        each(lamina.randn(2))
    found = [(r.getMessage(), r.funcName, r.lineno, r.filename) for r in caplog.records]
    assert found == found[:2] * (CALLS + 1) and found[0][1:2] == ("plain",)
    assert within_counts(f)["step"][0] >= 4


# ---- errors ------------------------------------------------------------------------------------------------
class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, bad=False):
        y = self.block(x)
        if bad:
            raise ValueError("bad")
        return y


def test_errors_inside_are_the_undecorated_ones():
    net = Picky()

    def plain(x, bad):
        time.clock_gettime(0)
        try:
            return net(x, bad)
        except ValueError as error:
            return traceback.format_exc(), error.__context__

    f = jit.trace(plain)
    for k in range(3 * CALLS):
        x = lamina.randn(2, 6)
        found, expected = f(x, k % 2 == 1), plain(x, k % 2 == 1)
        if k % 2:
            lines = [[line for line in text.splitlines() if "test_within" in line or line[0] != " "]
                     for text, _ in (found, expected)]  # fmt: skip
            assert lines[0] == lines[1] and found[1] is expected[1] is None
            assert "trace.py" not in found[0] and "within.py" not in found[0].replace("test_within.py", "")
        else:
            same(found, expected)
    assert f.counts()["within"] >= CALLS


def test_arguments_that_do_not_fit_are_refused_as_undecorated():
    net = Net()
    f = jit.trace(lambda x: (time.clock_gettime(0), net(x))[1])
    for _ in range(CALLS):
        with pytest.raises(lamina.ir.errors.LaminaError) as expected:
            net(lamina.ones(2, 5))
        with pytest.raises(type(expected.value)) as found:
            f(lamina.ones(2, 5))
        assert str(found.value) == str(expected.value)
        f(lamina.ones(2, 6))
    assert f.counts()["within"] > 0


def test_a_call_of_ones_own_runs_once():
    class Own(Net):
        calls = 0

        def __call__(self, x):
            self.calls += 1
            return super().__call__(x)

    net = Own().eval()
    f = clocked(net)
    for k in range(CALLS):
        f(lamina.randn(2, 6))
        assert net.calls == k + 1
    assert f.counts()["within"] == CALLS - 2  # of what is inside


# ---- threads, copies, lives --------------------------------------------------------------------------------
def test_two_threads_share_one_function():
    net = Net().eval()
    f, wrong = clocked(net), []

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(30):
            x = lamina.from_numpy(generator.standard_normal((3, 6)).astype(np.float32))
            a, b = f(x), net(x)
            if not np.allclose(a._data, b._data, rtol=0, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and f.counts()["within"] > CALLS and not modes.WITHIN


class Whole(nn.Module):
    """Where pickle finds it."""

    def __init__(self):
        super().__init__()
        self.block, self.clock = Block(), 0.0

    def forward(self, x):
        self.clock = time.clock_gettime(0)
        return self.block(x)


def test_copies_and_pickles_begin_anew():
    f = jit.trace(Whole())
    x = lamina.randn(2, 6)
    for _ in range(CALLS):
        expected = f(x)
    kept = io.BytesIO()
    pickle.dump(f, kept)
    for g in (copy.deepcopy(f), pickle.loads(kept.getvalue())):
        assert g.counts()["within"] == 0
        for _ in range(CALLS):
            same(g(x), expected)
        assert g.counts()["within"] == CALLS - 2
    assert f.counts()["within"] == CALLS - 2
    f.reset()
    assert f.counts()["within"] == 0 and not within_counts(f)


def test_nothing_is_kept_alive():
    table = {"net": Net()}
    f = jit.trace(lambda x: (time.clock_gettime(0), table["net"](x))[1])
    for _ in range(CALLS):
        f(lamina.randn(2, 6))
    assert f.counts()["within"] == CALLS - 2
    dead = weakref.ref(table["net"])
    del table["net"]
    gc.collect()
    assert dead() is None and not within_counts(f)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


# ---- where it does nothing ---------------------------------------------------------------------------------
def test_under_a_hook_anomaly_detection_and_verification_modules_run_themselves():
    net = Net().eval()
    f = clocked(net)
    for _ in range(3):
        f(lamina.randn(2, 6))
    ops = []
    with modes.hooked(lambda op, *_: ops.append(op.name)):
        f(lamina.randn(2, 6))
    assert "linear" in ops
    with lamina.autograd.detect_anomaly():
        f(lamina.randn(2, 6))
    assert f.counts()["within"] == 1
    g = jit.trace(verify=True)(lambda x: (time.clock_gettime(0), net(x))[1])
    for _ in range(CALLS):
        g(lamina.randn(2, 6))
    assert g.counts()["within"] == 0 and not within_counts(g)


def test_a_verified_function_inside_is_compared_with_eager():
    def inside(x):
        eagerly.append(modes.local.within is None)
        return net(x) * 2

    net, eagerly = Block(), []
    verified = jit.trace(verify=True)(inside)
    f = jit.trace(lambda x: (time.clock_gettime(0), net(x), verified(x))[2])
    for _ in range(CALLS):
        f(lamina.randn(2, 6))
    assert len(eagerly) >= CALLS and all(eagerly[2:]) and f.counts()["within"] > 0


def test_no_context_is_left_behind():
    net = Net()
    f = clocked(net)
    for _ in range(3):
        f(lamina.randn(2, 6))
        assert modes.local.within is None and not modes.WITHIN
    with pytest.raises(lamina.ir.errors.LaminaError):
        f(lamina.ones(1))
    assert modes.local.within is None and not modes.WITHIN


def test_what_answers_for_a_function_bears_its_name():
    """Python's own errors name the function that was called, not what stands in its place."""

    def spread(*given):
        return given

    def f(x, given):
        random.random()
        return spread(*given), x * 2

    told = []
    for decorate in (lambda f: f, jit.trace):
        g = decorate(f)
        for _ in range(6):
            with pytest.raises(TypeError) as caught:
                g(lamina.ones(2), 3)
            told.append(str(caught.value))
    assert len(set(told)) == 1 and "spread() argument after *" in told[0]


def test_few_ops_on_sizes_that_are_symbols_pay_if_they_may():
    def of(*shape):
        value = SimpleNamespace(type=SimpleNamespace(shape=shape))
        segment = SimpleNamespace(graph=SimpleNamespace(nodes=[SimpleNamespace(outputs=[value])]))
        return SimpleNamespace(ops=1, live=True, kept=lambda: [segment])

    rows = symbol("rows")
    assert within.pays(of(rows, 180)) and within.pays(of(256, 256))
    assert not within.pays(of(255, 256)) and not within.pays(of(minimum(rows, 8), 180))
