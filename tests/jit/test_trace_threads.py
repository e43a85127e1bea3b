"""Threads, processes, background compiling and memory: a trace is shared, and keeps nothing alive."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.jit import replay

THREADS = 32
scale = 1.0


def run_at_once(count, function):
    """Call function(number) in that many threads that start together; return the results."""
    start = threading.Barrier(count)

    def one(number):
        start.wait(30)
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(60) for future in [pool.submit(one, number) for number in range(count)]]


# ---- threads -----------------------------------------------------------------------------------------------
@pytest.mark.timeout(120)
@pytest.mark.parametrize("compile", ["now", "background"])
def test_threads_that_record_anew_at_the_same_time(compile):
    table = {"factor": 1.0}

    @jit.trace(compile=compile, max_recordings=200)
    def f(x, config):
        y = x * config["factor"] + len(config["names"])
        return y * 2 if y.sum() > 0 else y - table["factor"]

    def work(number):
        for step in range(12):
            size, factor, names = 1 + (number + step) % 5, float(step % 3 + 1), ["a"] * (number % 3)
            sign = 1.0 if (number + step) % 2 else -100.0
            x = lamina.full((size,), sign)
            y = sign * factor + len(names)
            expected = y * 2 if y > 0 else y - 1.0
            assert f(x, {"factor": factor, "names": names}).tolist() == [expected] * size
        return True

    assert all(run_at_once(THREADS, work))
    counts = f.counts()
    assert sum(counts.values()) == THREADS * 12, f.explain()
    assert counts["raised"] == 0
    served = counts["served"]
    deadline = time.monotonic() + 60
    while f.counts()["served"] == served and time.monotonic() < deadline:  # where one compiles yet
        assert f(lamina.ones(1), {"factor": 1.0, "names": []}).tolist() == [2.0]
    assert f.counts()["served"] > served


@pytest.mark.timeout(120)
def test_threads_while_another_changes_a_global():
    """A call sees the global as it was at some time during the call."""
    global scale
    f = jit.trace(lambda x: x * scale)
    done = threading.Event()

    def work(number):
        global scale
        if number == 0:
            for step in range(200):
                scale = float(step % 4)
            done.set()
            return set()
        seen = set()
        while not done.is_set():
            seen.add(f(lamina.ones(3)).tolist()[0])
        return seen

    try:
        found = set().union(*run_at_once(8, work))
        assert found <= {0.0, 1.0, 2.0, 3.0}
    finally:
        scale = 1.0
    assert f(lamina.ones(3)).tolist() == [1.0] * 3


@pytest.mark.timeout(120)
def test_effects_of_threads_happen_once_each():
    seen = []

    @jit.trace
    def f(x, number):
        seen.append(number)
        return x * 2

    def work(number):
        for step in range(20):
            assert f(lamina.ones(2), number * 20 + step).tolist() == [2.0, 2.0]

    run_at_once(THREADS, work)
    assert sorted(seen) == [*range(THREADS * 20)]


# ---- processes ---------------------------------------------------------------------------------------------
def alone(program, **environment):
    """Run a program in a process of its own; return it, and the seconds that it took."""
    start = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment}, cwd=os.path.expanduser("~"),
    )  # fmt: skip
    return ran, time.monotonic() - start


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.timeout(180)
def test_a_child_that_is_forked_while_others_record_and_compile():
    ran, _ = alone("""
        import os, sys, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where threads run: it is the point
        import lamina
        from lamina import jit
        f = jit.trace(lambda x: (x * 2).sum() + len(x), compile="background", max_recordings=10_000)
        g = jit.trace(lambda x: x.tanh() + 1)
        stop = threading.Event()
        def record(start):
            size = start
            while not stop.is_set():
                size += 1
                f(lamina.ones(size)), g(lamina.ones(size))
        threads = [threading.Thread(target=record, args=(n * 1000,)) for n in range(2)]
        for t in threads: t.start()
        codes = []
        for number in range(12):
            child = os.fork()
            if child == 0:
                ok = all(g(lamina.zeros(3)).tolist() == [1.0] * 3 for _ in range(3))
                ok &= all(f(lamina.ones(number + 2)).item() == 3 * (number + 2) for _ in range(3))
                h = jit.trace(lambda x: x * 3 + 1)
                ok &= all(h(lamina.ones(2)).tolist() == [4.0, 4.0] for _ in range(3)) and h._log.hits == 2
                os._exit(0 if ok else 1)
            codes.append(os.waitpid(child, 0)[1])
        stop.set()
        for t in threads: t.join()
        assert codes == [0] * 12, codes
        print("done")
    """)
    assert ran.returncode == 0 and ran.stdout == "done\n", ran.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compiled", ["anew", "from the disk"])
def test_what_is_imported_late_is_imported_where_forks_wait(compiled, tmp_path):
    """An import that is under way in one thread where another forks is under way for ever in the child."""
    program = """
        import sys, lamina
        from lamina import jit, nn
        from lamina.ir import lazy

        class Watch:
            found = []
            def find_spec(self, name, path=None, target=None):
                if not lazy._importing._is_owned():
                    self.found.append(name)

        f = jit.trace(lambda x: (x * 2).sum() + len(x))
        net = jit.trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 9)))
        sys.meta_path.insert(0, Watch())
        for _ in range(3):
            f(lamina.ones(5))
            x = lamina.fft.fft(lamina.ones(2, 3, 8, 8)).real
            nn.functional.cross_entropy(net(x), lamina.tensor([1, 2])).backward()
        print(Watch.found, f._log.hits, net._log.hits)
    """
    for _ in range(1 + (compiled == "from the disk")):
        ran, _ = alone(program, LAMINA_CACHE_DIR=str(tmp_path))
    assert ran.returncode == 0 and ran.stdout == "[] 2 2\n", ran.stdout + ran.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_child_records_and_compiles_what_another_thread_was_about():
    ran, _ = alone("""
        import os, threading, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import lamina
        from lamina import jit
        from lamina.jit import backend
        inside, go_on = threading.Event(), threading.Event()

        @jit.pure
        def waits():
            inside.set()
            go_on.wait()

        @jit.trace
        def recorded(x):
            if os.getpid() == parent:
                waits()
            return x * 2 + 1

        def slow(*args, **kwargs):
            if os.getpid() == parent:
                inside.set()
                go_on.wait()
            return compile_graph(*args, **kwargs)

        parent, compile_graph = os.getpid(), backend.compile_graph
        built = jit.trace(lambda x: x * 3, compile="background")
        for traced, replaced in ((recorded, compile_graph), (built, slow)):
            backend.compile_graph = replaced
            inside.clear(), go_on.clear()
            thread = threading.Thread(target=traced, args=(lamina.ones(2),), daemon=True)
            thread.start()
            inside.wait()
            child = os.fork()
            if child == 0:
                for _ in range(2000):
                    traced(lamina.ones(2))
                    if traced.counts()["served"]:
                        os._exit(0)
                    time.sleep(0.005)
                os._exit(7)
            assert os.waitpid(child, 0)[1] == 0, traced
            go_on.set()
            thread.join()
        print("done")
    """)
    assert ran.returncode == 0 and ran.stdout == "done\n", ran.stderr


@pytest.mark.timeout(180)
def test_a_program_ends_while_something_compiles_in_the_background(tmp_path):
    ran, _ = alone(
        """
        import lamina, time
        from lamina import jit
        from lamina.jit import backend
        real = backend.compile_graph
        def slow(*args, **kwargs):
            started.append(1)
            time.sleep(0.2)
            return real(*args, **kwargs)
        started = []
        backend.compile_graph = slow
        fs = [jit.trace(lambda x, n=n: (x @ x).softmax(-1) * n, compile="background") for n in range(6)]
        for f in fs:
            f(lamina.ones(64, 64))
        while not started:
            time.sleep(0.001)
        print(time.monotonic())
    """,
        LAMINA_CACHE_DIR=str(tmp_path),
    )
    end = time.monotonic()
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    assert end - float(ran.stdout) < 10  # seconds: it waits for one compilation at most


def test_in_the_background_calls_go_on_and_then_are_served(monkeypatch):
    real, go, asked = jit.trace.__globals__["backend"].compile_graph, threading.Event(), threading.Event()

    def waits(*args, **kwargs):
        asked.set()
        assert go.wait(30)
        return real(*args, **kwargs)

    monkeypatch.setattr("lamina.jit.backend.compile_graph", waits)
    f = jit.trace(lambda x: x * 2, compile="background")
    for number in range(4):
        assert f(lamina.full((2,), float(number))).tolist() == [2.0 * number] * 2
    assert asked.wait(30)
    assert f.counts() == {"served": 0, "recorded": 1, "eager": 3, "raised": 0, "within": 0}
    assert "eager, 3 calls: it is being compiled" in f.explain(detail=True)
    go.set()
    deadline = time.monotonic() + 30
    while not f.counts()["served"] and time.monotonic() < deadline:
        assert f(lamina.ones(2)).tolist() == [2.0, 2.0]
        time.sleep(0.001)
    assert f.counts()["served"] and f.counts()["recorded"] == 1


def test_a_compilation_that_fails_in_the_background_leaves_calls_eager(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("lamina.jit.backend.compile_graph", broken)
    f = jit.trace(lambda x: x * 2, compile="background")
    deadline = time.monotonic() + 30
    while "planted" not in f.explain(detail=True) and time.monotonic() < deadline:
        assert f(lamina.ones(2)).tolist() == [2.0, 2.0]
    assert "it could not be compiled: " in f.explain(detail=True) and f.counts()["served"] == 0


def test_a_compilation_that_fails_as_a_call_comes_by(monkeypatch):
    """Another thread takes the segment away between the guards and the run."""
    f = jit.trace(lambda x: x * 2)
    f(lamina.ones(2)), f(lamina.ones(2))
    original = replay.choose

    def choose(*args):
        branch = original(*args)
        branch.eager, branch.segment = "planted", None
        return branch

    monkeypatch.setattr(replay, "choose", choose)
    assert f(lamina.ones(2)).tolist() == [2.0, 2.0]
    assert f.explain(as_dict=True)["reasons"] == {"planted": 1}


# ---- what a trace keeps ------------------------------------------------------------------------------------
class Config:
    def __init__(self):
        self.factor, self.table = 2.0, {"names": ["a", "b"]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.sizes = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), [1.0]

    def forward(self, x):
        return self.inner(x) * self.sizes[0]


def with_a_config(traced):
    config = Config()
    traced(lamina.ones(2), config)
    return [config]


def with_a_model(traced):
    net = Net()
    with lamina.no_grad():
        traced(net, lamina.ones(1, 2))
    return [net, net.inner, net.inner[0].weight, net.inner[0].weight._data]


def with_a_closure(traced):
    weight, made = lamina.ones(2), Config()
    traced(lambda x: x * weight * made.factor, lamina.ones(2))
    return [weight, made, weight._data]


def with_an_optimizer(traced):
    net = Net()
    optimizer = optim.Adam(net.parameters())
    for _ in range(2):
        traced(net, optimizer, lamina.ones(1, 2))
    return [net, optimizer, net.inner[0].weight, net.inner[0].weight.grad]


def with_a_list(traced):
    tensors, config = [lamina.ones(2), lamina.ones(2)], Config()
    traced(tensors, {"config": config})
    return [*tensors, config]


def train(net, optimizer, x):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()


KEEPERS = {
    "config": (with_a_config, lambda x, c: x * c.factor + len(c.table["names"])),
    "model": (with_a_model, lambda net, x: net(x)),
    "closure": (with_a_closure, lambda function, x: function(x)),
    "optimizer": (with_an_optimizer, train),
    "list": (with_a_list, lambda xs, given: xs[0] + xs[1] * given["config"].factor),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KEEPERS)
def test_what_a_call_was_given_is_let_go(kind):
    """Without the collector of cycles where the user's own objects hold none."""
    make, function = KEEPERS[kind]
    traced = jit.trace(function)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            dead = [weakref.ref(o) for o in make(traced)]
            left = [type(r()).__name__ for r in dead if r() is not None]
            assert not left, left
    finally:
        gc.enable()


def test_globals_that_were_exchanged_are_let_go():
    scope: dict = {"lamina": lamina}
    exec("def f(x):\n    return x * weight + thing.factor + helper(x)", scope)

    def helper(x):
        return x * scope["thing"].factor

    traced, dead = jit.trace(scope["f"]), []
    for number in range(50):
        scope["weight"], scope["thing"] = lamina.full((2,), float(number)), Config()
        scope["helper"] = types.FunctionType(helper.__code__, globals(), "helper", None, helper.__closure__)
        for _ in range(2):
            assert traced(lamina.ones(2)).tolist() == [number + 4.0] * 2
        dead += [weakref.ref(scope[name]) for name in ("weight", "thing", "helper")]
    gc.collect()
    assert sum(r() is not None for r in dead) == 3
    assert sum(len(tree.branches) for tree in traced._trees.values()) <= 2


def retraced(count):
    """How many objects stay for each of `count` functions that are traced, called and forgotten."""

    def one(number):
        config = Config()
        config.factor = float(number % 7)

        @jit.trace
        def f(x, c):
            return x * c.factor + weight * len(config.table["names"]) if x.sum() > 0 else x

        weight = lamina.ones(2)
        for _ in range(2):
            assert f(lamina.ones(2), config).tolist() == [config.factor + 2.0] * 2
        return [weakref.ref(o) for o in (f, f.__wrapped__, config, weight, weight._data)]

    for number in range(50):
        one(number)
    gc.collect()
    before = len(gc.get_objects())
    alive = 0
    for number in range(count):
        dead = one(number)
        if number % 50 == 49:
            gc.collect()
            alive += sum(r() is not None for r in dead)
    gc.collect()
    return (len(gc.get_objects()) - before) / count, alive


@pytest.mark.sampled(3)
def test_four_hundred_traces_leave_nothing():
    objects, alive = retraced(400)
    assert alive == 0 and objects < 0.1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_traces_leave_nothing():
    objects, alive = retraced(10_000)
    assert alive == 0 and objects < 0.01


@pytest.mark.sampled(2)
def test_one_trace_that_is_recorded_again_and_again_stays_small():
    traced = jit.trace(lambda x, c: x * c.factor + np.float32(len(c.table["names"])))
    sizes = []
    for number in range(600):
        config = Config()
        assert traced(lamina.ones(2), config).tolist() == [4.0, 4.0]
        config.__class__ = type("Config", (Config,), {})  # gone with its object: recorded each time
        assert traced(lamina.ones(2), config).tolist() == [4.0, 4.0]
        if number % 150 == 149:
            gc.collect()
            sizes.append(len(gc.get_objects()))
    assert sizes[-1] - sizes[1] < 100, sizes
    assert sum(len(tree.branches) for tree in traced._trees.values()) < 40
