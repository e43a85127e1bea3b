"""Programs of threads: several call at once, or one changes what another reads."""

from __future__ import annotations

import concurrent.futures
import contextvars
import queue
import sys
import threading

from battery import lib as t
from battery import program


def apart(*functions):
    """Run functions, each in a thread of its own, one after the other, and return what they returned."""
    found = []
    for function in functions:
        thread = threading.Thread(target=lambda function=function: found.append(function()))
        thread.start()
        thread.join()
    return found


def together(count, function):
    """Run function(i) for i < count in threads at once, and return the results in order of i."""
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        return function(i)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # seconds: they take turns as often as they can
    try:
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(run, range(count)))
    finally:
        sys.setswitchinterval(usual)


@program("threads")
def the_same_function_from_many(w):
    factor = 2.0
    f = w.trace(lambda x: x * factor)
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(lambda: together(6, lambda i: f(w.x + i)))


@program("threads")
def many_kinds_at_once(w):
    factor = 2.0
    f = w.trace(lambda x, n: x * factor + n)
    inputs = [w.x, w.m, w.x.double(), w.m + 1]
    for factor in w.rounds(2.0, 3.0):
        w.call(lambda: together(8, lambda i: f(inputs[i % 4], i % 3)))


@program("threads")
def values_of_a_thread(w):
    local = threading.local()
    local.scale = 2.0
    f = w.trace(lambda x: x * getattr(local, "scale", 10.0))

    def other():
        local.scale = 5.0
        return f(w.x)

    for local.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)
        w.once(lambda: apart(other, lambda: f(w.x)))


@program("threads")
def a_thread_local_subclass(w):
    class Mine(threading.local):
        scale = 2.0

        def __init__(self):
            self.seen = threading.current_thread() is threading.main_thread()

    mine = Mine()
    f = w.trace(lambda x: x * mine.scale + mine.seen)
    for mine.scale in w.rounds(2.0, 3.0):
        w.call(f, w.x)
        w.once(lambda: apart(lambda: f(w.x)))


@program("threads")
def a_context_variable_of_another_thread(w):
    scale = contextvars.ContextVar("scale", default=2.0)
    f = w.trace(lambda x: x * scale.get())
    for value in w.rounds(2.0, 3.0):
        scale.set(value)
        w.call(f, w.x)
        w.once(lambda: apart(lambda: f(w.x)))


@program("threads")
def gradients_are_off_in_one_thread(w):
    weight = t.ones(4, requires_grad=True)
    f = w.trace(lambda x: x * weight)
    for on in w.rounds(True, False):
        t.set_grad_enabled(on)
        w.call(f, w.x)
        w.once(lambda: apart(lambda: f(w.x)))


@program("threads")
def each_thread_has_its_own_list(w):
    f = w.trace(lambda x, out: out.append(x * len(out)))

    def fill(i):
        out = []
        for _ in range(3):
            f(w.x + i, out)
        return out

    for count in w.rounds(2, 4):
        w.call(lambda: together(count, fill))


@program("threads")
def a_counter_under_a_lock(w):
    lock, state = threading.Lock(), {"n": 0}

    @w.trace
    def f(x):
        with lock:
            state["n"] += 1
        return x * 2

    w.see(state=state)
    for state["n"] in w.rounds(0, 100):
        w.call(lambda: together(4, lambda i: [f(w.x + i) for _ in range(25)]))


@program("threads")
def in_place_by_turns(w):
    total, lock = t.zeros(4), threading.Lock()

    @w.trace
    def add(x):
        total.add_(x)

    def locked(i):
        with lock:
            add(w.x * i)

    w.see(total=total)
    for start in w.rounds(0.0, 1.0):
        total.fill_(start)
        w.call(lambda: together(4, locked))


@program("threads")
def state_changes_between_threads(w):
    state = {"scale": 2.0}
    f = w.trace(lambda x: x * state["scale"])

    def change(value):
        state["scale"] = value
        return f(w.x)

    for value in w.rounds(2.0, 3.0):
        w.call(lambda: apart(lambda: change(value), lambda: f(w.x), lambda: change(value + 1)))


@program("threads")
def another_thread_changes_what_is_read_in_the_middle(w):
    state, asked, done = {"scale": 1.0}, queue.Queue(), queue.Queue()

    def change():
        for value in iter(asked.get, None):
            state["scale"] = value
            done.put(value)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    w.undo(asked.put, None)

    @w.trace
    def f(x, value):
        y = x * state["scale"]
        asked.put(value)
        done.get()
        return y + state["scale"]

    for value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x, value)


@program("threads")
def a_thread_is_started_inside(w):
    factor = 2.0

    @w.trace
    def f(x):
        return apart(lambda: x * factor)[0] + 1

    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("threads")
def the_name_of_the_thread_is_read(w):
    f = w.trace(lambda x: (x * 2, threading.current_thread() is threading.main_thread()))
    for by in w.rounds(1.0, 2.0):
        w.call(f, w.x * by)
        w.once(lambda: apart(lambda: f(w.x * by)))


@program("threads")
def results_of_threads_stay_apart(w):
    kept = []
    f = w.trace(lambda x: [x * 2, x[:2]])

    def keep(i):
        y = f(w.x + i)
        y[0].add_(i)
        return y

    w.see(kept=kept)
    for by in w.rounds(1.0, 2.0):
        w.call(lambda: together(4, lambda i: keep(i * by)))
