"""A lock that was there is held for all of a served call; what else asks of locks is not served."""

from __future__ import annotations

import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import lamina
from lamina import jit

x = lamina.ones(4)


class Counter:
    def __init__(self):
        self.lock, self.count, self.log = threading.Lock(), 0, []

    def locked(self, x):
        with self.lock:
            self.count += 1
            self.log.append(self.count)
        return x * 2


@pytest.fixture
def restless():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def warm(f, *args, times=4):
    for _ in range(times):
        f(*args)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, threading.Condition, threading.Semaphore])
def test_no_increment_is_lost(restless, make):
    counter = Counter()
    counter.lock = make()
    f = jit.trace(counter.locked)
    warm(f, x)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [f(x) for _ in range(50)], range(8)))
    assert counter.count == 404
    assert counter.log == list(range(1, 405))
    assert f.explain(as_dict=True)["served"] > 200


def test_pairs_are_read_whole(restless):
    lock, pair, stop = threading.Lock(), [1.0, 1.0], threading.Event()

    @jit.trace
    def f(x):
        with lock:
            a, b = pair
        return x * a - b

    def write():
        value = 1.0
        while not stop.is_set():
            value += 1.0
            with lock:
                pair[0] = value
                pair[1] = value

    warm(f, x)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert all(not f(x).any() for _ in range(1000))
    finally:
        stop.set()
        writer.join()


def test_each_object_has_its_own_lock():
    first, second = Counter(), Counter()
    f = jit.trace(lambda counter, x: counter.locked(x))
    for counter in (first, second) * 6:
        f(counter, x)
    served = f.explain(as_dict=True)["served"]
    done = threading.Event()
    with second.lock:
        f(first, x)
        thread = threading.Thread(target=lambda: (f(second, x), done.set()))
        thread.start()
        assert not done.wait(0.05)
    assert done.wait(30)
    thread.join()
    assert (first.count, second.count) == (7, 7)
    assert f.explain(as_dict=True)["served"] == served + 2


def test_a_lock_that_its_thread_holds_already():
    counter = Counter()
    counter.lock = threading.RLock()
    f = jit.trace(counter.locked)
    warm(f, x)
    with counter.lock:
        warm(f, x)
    assert counter.count == 8
    assert counter.lock.acquire(blocking=False)


def test_it_is_given_back_where_an_effect_raises():
    lock, state = threading.Lock(), {"n": 0}

    @jit.trace
    def f(x, n):
        with lock:
            state["n"] = 10 // n
        return x * state["n"]

    for n in (1, 2, 5, 10, 3):
        f(x, n)
    with pytest.raises(ZeroDivisionError):
        f(x, 0)
    assert not lock.locked()


def own(lock, x):
    mine = threading.RLock()
    with mine:
        return x * 2


def held_without(lock, x):
    lock.acquire()
    try:
        return x * 2
    finally:
        lock.release()


def nobody_else(lock, x):
    with lock:
        return x * lock.locked() + lock.acquire(blocking=False)


@pytest.mark.parametrize("function", [own, held_without, nobody_else])
def test_served(function):
    lock = threading.Lock()
    f = jit.trace(lambda x: function(lock, x))
    wanted = function(lock, x)
    for _ in range(4):
        assert (f(x) == wanted).all()
    assert f.explain(as_dict=True)["served"] == 3


def asks(lock, x):
    return x * lock.locked()


def tries(lock, x):
    if lock.acquire(blocking=False):
        lock.release()
        return x * 2
    return x


def waits_a_while(lock, x):
    if lock.acquire(timeout=5):
        lock.release()
    return x * 2


other_lock = threading.Lock()


def two(lock, x):
    with lock:
        y = x * 2
    with other_lock:
        return y + 1


def gives_back(lock, x):
    if lock.locked():
        lock.release()
    return x * 2


def keeps(lock, x):
    if not lock.locked():
        lock.acquire()
    return x * 2


def question(lock, x):
    with lock:
        return x * x.sum().item()


@pytest.mark.parametrize("function", [asks, tries, waits_a_while, two, gives_back, keeps, question])
def test_refused(function):
    lock = threading.Lock()
    f = jit.trace(lambda x: function(lock, x))
    wanted = function(lock, x)
    for _ in range(4):
        assert (f(x) == wanted).all()
    told = f.explain(as_dict=True)
    assert told["served"] == 0 and "lock" in f.explain(), f.explain()


def test_a_queue_is_filled_and_waited_for():
    q = queue.Queue()

    @jit.trace
    def put(x):
        q.put(1)
        return x * 2

    @jit.trace
    def get(x):
        return x * q.get()

    warm(put, x, times=6)
    assert q.qsize() == 6
    warm(get, x, times=6)
    assert q.empty()
    thread = threading.Timer(0.05, q.put, (3,))
    thread.start()
    assert (get(x) == 3).all()
    thread.join()
