"""Check that a forked process finds no lock taken, whatever other threads held."""

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
from interrupting import Interrupted, at_each_step, is_interrupted

import lamina
from lamina.ir import locks, types
from lamina.ir.kernel import scalar
from lamina.passes.llvm import binding
from lamina.runtime import generator, guard, memory, step

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
    """Uses every lock: types that were, random numbers, modes, gradients, LLVM."""
    types._drop()
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
    [types._dropping, generator._lock, step.accumulating, scalar._lock, LLVM],
    ids=["types", "generator", "step", "scalar", "llvm"],
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


class Slow:
    """A value that takes a while, once."""

    def __init__(self, begun=None):
        self._begun = begun

    @locks.cached_property
    def value(self):
        if self._begun is not None:
            self._begun.set()
            time.sleep(0.2)
        return [1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.timeout(30)  # where it fails, the child waits for ever
def test_a_child_computes_what_another_thread_was_computing():
    begun = threading.Event()
    slow = Slow(begun)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    assert forked(lambda: Slow().value) == 0
    thread.join()
    assert slow.value is slow.value == [1] and isinstance(Slow.value, locks.cached_property)


def is_taken(lock):
    """By whichever thread: an RLock does not say so itself before Python 3.14."""
    if getattr(lock, "_is_owned", bool)():
        return True
    free = lock.acquire(False)
    if free:
        lock.release()
    return not free


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
        assert forked(lambda: os._exit(0 if not (is_taken(outer) or is_taken(inner)) else 7)) == 0
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


@pytest.mark.parametrize(
    "make", [lambda: memory.arena(3 << 20), lambda: memory.arena(100), lambda: guard.fenced(1 << 16, ())]
)
def test_a_child_has_scratch_memory_of_its_own(make):
    """What it computes there must not stand where its parent computes: a mapping of Python's is shared."""
    array = make()
    array[:] = 1
    assert forked(lambda: array.fill(7)) == 0
    assert (array == 1).all()


def test_a_traced_function_runs_in_a_child_and_its_parent_at_once():
    """On arrays that take an arena of several megabytes."""
    traced = lamina.jit.trace(lambda x: ((x @ x).exp() @ x).sum(0))
    x = lamina.eye(640) * 0.5
    traced(x)
    wanted = traced(x)

    def differ(x, wanted):
        return sum(not bool((traced(x) == wanted).all()) for _ in range(20))

    pid = os.fork()
    if not pid:
        try:
            traced(x * 2)
            os._exit(min(differ(x * 2, traced(x * 2)), 7))
        finally:
            os._exit(9)
    wrong = differ(x, wanted)
    assert (wrong, os.waitpid(pid, 0)[1]) == (0, 0)


@pytest.mark.timeout(30)  # where it fails, it waits for ever
def test_what_a_finalizer_does_finds_no_lock_taken_by_its_own_thread():
    """A collection of garbage may begin, in the same thread, wherever an object is made."""
    with ExitStack() as stack:
        for lock in locks._not_in([]):
            stack.enter_context(lock)
        ops()
        traced = lamina.jit.trace(lambda x: (x.exp() * lamina.rand(3)).sum())
        x = lamina.ones(4, 3, requires_grad=True)
        for _ in range(3):
            traced(x).backward()
        assert x.grad is not None and traced.counts()["served"] > 0


def test_a_lock_that_nobody_holds_any_more_is_forgotten():
    count = len(locks._ours)
    made = [locks.fork_safe_lock() for _ in range(5)]
    assert len(locks._ours) == count + 5
    del made
    assert len(locks._ours) == count


# ---- interrupts
def fork_without_forking(seen=lambda: None):
    """Run the hooks as a fork does: what one raises does not keep the next from running."""
    for hook in (locks._take, seen, locks._give, locks._interrupt):
        try:
            hook()
        except Interrupted:
            pass


def taken_by_forks():
    return [lock for lock in (locks._forking, *locks._not_in([])) if is_taken(lock)]


def of_locks(code):
    return code.co_filename == locks.__file__


def test_an_interrupt_of_a_fork_leaves_no_lock_taken():
    for number in at_each_step(fork_without_forking, of_locks):
        assert taken_by_forks() == [], number
        assert not LLVM._lock._is_owned(), number


def test_an_interrupt_of_a_fork_that_begins_anew_leaves_no_lock_taken(monkeypatch):
    real = locks._try

    def fork():
        refused = iter([False])  # at first a lock can't be had
        monkeypatch.setattr(locks, "_try", lambda lock: next(refused, True) and real(lock))
        fork_without_forking()

    for number in at_each_step(fork, of_locks):
        assert taken_by_forks() == [], number


def test_an_interrupted_fork_still_holds_all_locks():
    """One interrupt: the taking begins anew, so that the child finds nothing half changed."""
    held = []

    def look():
        held.append(len(taken_by_forks()) == 1 + len(locks._ours) and LLVM._lock._is_owned())

    for _ in at_each_step(lambda: fork_without_forking(look), lambda code: code is locks._all_taken.__code__):
        pass
    assert all(held) and len(held) > 50


def test_what_runs_after_a_fork_has_no_step_to_interrupt():
    locks._take()

    def give():
        locks._give()
        locks._interrupt()

    assert not is_interrupted(give, lambda code: code is not give.__code__, 0)
    assert taken_by_forks() == []


PRESSED = """
import os, signal
import lamina
from lamina.ir import locks

real, pressed = locks._all_taken, iter([True])

def all_taken():
    if next(pressed, False):
        signal.raise_signal(signal.SIGINT)
    return real()

locks._all_taken = all_taken
pids = os.pipe()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
try:
    if not os.fork():  # the child gets none: it never waits to write
        os.write(pids[1], b"child")
        os._exit(0)
except KeyboardInterrupt:
    print("interrupted")
os.wait()
assert os.read(pids[0], 99) == b"child"
if not os.fork():  # which no lock that is still taken holds up
    os._exit(0)
os.wait()
"""


def test_an_interrupt_of_the_keyboard_is_raised_where_the_fork_returns():
    # alone: what other libraries have called after a fork in Python (filelock) may swallow the interrupt
    done = subprocess.run([sys.executable, "-c", PRESSED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


SIGNALS = """
import os, random, signal, sys, threading, time
import lamina
from lamina.ir import locks

class Interrupted(BaseException): pass

hits = 0

def handler(number, frame):
    global hits
    if frame.f_code is fork.__code__ or frame.f_code.co_filename == locks.__file__:
        while frame and frame.f_code is not fork.__code__:  # what looks at locks below is no fork
            frame = frame.f_back
        if frame:
            hits += 1
            raise Interrupted

def is_taken(lock):
    if getattr(lock, "_is_owned", bool)():
        return True
    free = lock.acquire(False)
    if free:
        lock.release()
    return not free

def fork(delay):
    signal.setitimer(signal.ITIMER_REAL, delay, 0.0003)  # and again
    if os.fork():
        os.wait()
    else:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os._exit(7 if any(is_taken(lock) for lock in locks._not_in([])) else 0)

def work(lock):
    while True:
        with lock:
            time.sleep(0.0002)

held = [locks.fork_safe_lock() for _ in range(2)]
for lock in held:
    threading.Thread(target=work, args=(lock,), daemon=True).start()
signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = lambda what: None
chance, process = random.Random(int(sys.argv[1])), os.getpid()
for n in range(25):
    try:
        fork(chance.random() * 0.003 + 1e-5)
    except Interrupted:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    if os.getpid() != process:
        os._exit(7 if any(is_taken(lock) for lock in locks._not_in([])) else 0)
    try:
        while True:
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    except ChildProcessError:
        pass
    for lock in (locks._forking, *locks._not_in([])):
        assert lock.acquire(timeout=5), n
        lock.release()
print(hits > 4)
os._exit(0)
"""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_signals_at_any_time_leave_no_lock_taken(seed):
    command = [sys.executable, "-W", "ignore", "-c", SIGNALS, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
