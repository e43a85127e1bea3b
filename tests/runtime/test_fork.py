"""Check that a forked process finds no lock taken, whatever other threads held."""

import os
import threading
import time

import pytest

import lamina
from lamina.ir import locks, types
from lamina.ir.kernel import scalar
from lamina.passes.llvm import binding
from lamina.runtime import generator, modes, step

LLVM = binding.llvm.ffi.lib._lock


def forked(work):
    """The exit status of a child that calls `work` (True: it ended), or None where it hangs."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def ops():
    """Uses every lock: new types, random numbers, modes, gradients, LLVM."""
    with lamina.no_grad():
        lamina.rand(3, 1, 41)
    x = lamina.ones(1, 5, 17, requires_grad=True)
    (x * 2 + x).sum().backward()
    scalar.Const(4321.5, "f32")
    binding.identity(binding.BASELINE)


# Python's warning is of what is tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    "lock",
    [types._making, modes._lock, generator._lock, step.accumulating, scalar._lock, LLVM],
    ids=["types", "modes", "generator", "step", "scalar", "llvm"],
)
def test_a_forked_child_does_not_wait_for_a_lock(lock):
    taken = threading.Event()

    def hold():
        with lock:
            taken.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    assert forked(ops) == 0
    thread.join()
    ops()  # and the parent's are free again


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_plain_lock_would_be_found_taken():
    for make, free in ((threading.Lock, False), (locks.fork_safe_lock, True)):
        lock, taken, done = make(), threading.Event(), threading.Event()

        def hold(lock=lock, taken=taken, done=done):
            with lock:
                taken.set()
                done.wait(0.2)

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        status = forked(lambda lock=lock: os._exit(0 if lock.acquire(timeout=0.05) else 7))
        thread.join()
        assert (status == 0) is free


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.timeout(30)  # where it fails, the fork itself waits for ever
@pytest.mark.parametrize("turned", [False, True])
def test_a_fork_waits_for_a_thread_that_takes_locks_in_any_order(turned):
    pair = [locks.fork_safe_lock(), locks.fork_safe_lock()]
    outer, inner = reversed(pair) if turned else pair
    taken, stop = threading.Event(), threading.Event()

    def work():
        while not stop.is_set():
            with outer:
                taken.set()
                time.sleep(0.005)  # meanwhile the fork takes what it can
                with inner:
                    pass

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    taken.wait()
    for _ in range(3):
        assert forked(lambda: os._exit(0 if not (outer.locked() or inner.locked()) else 7)) == 0
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.timeout(60)
def test_two_threads_that_fork_at_once_hold_all_locks_each(monkeypatch):
    made, outer, stop, wrong = (
        [locks.fork_safe_lock() for _ in range(2)],
        threading.Lock(),
        threading.Event(),
        [],
    )
    monkeypatch.setattr(locks, "_others", [*locks._others, outer])

    def work(lock, seconds):
        while not stop.is_set():
            with lock:
                time.sleep(seconds)
            time.sleep(seconds / 10)

    def fork():
        for _ in range(12):
            if forked(lambda: os._exit(0 if all(lock.acquire(timeout=1) for lock in made) else 7)):
                wrong.append(1)

    users = [threading.Thread(target=work, args=(lock, 0.005), daemon=True) for lock in made]
    users.append(threading.Thread(target=work, args=(outer, 0.05), daemon=True))
    forkers = [threading.Thread(target=fork) for _ in range(2)]
    for thread in (*users, *forkers):
        thread.start()
    for thread in forkers:
        thread.join()
    stop.set()
    for thread in users:
        thread.join(10)
        assert not thread.is_alive()
    assert not wrong


def test_a_lock_that_nobody_holds_any_more_is_forgotten():
    count = len(locks._ours)
    made = [locks.fork_safe_lock() for _ in range(5)]
    assert len(locks._ours) == count + 5
    del made
    assert len(locks._ours) == count
