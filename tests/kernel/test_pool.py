"""The thread pool: every unit of work once, whoever launches, sleeps, forks or is told to end."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from lamina.passes.llvm import pool as layout
from lamina.passes.llvm.binding import Library, emit_object, host_target
from lamina.runtime import workers
from lamina.runtime.workers import Pool

MUCH = 1 << 40  # nanoseconds: all threads are worth it
BODY = """
declare i64 @pthread_self()
; args: a counter for each unit, then the thread that did it; spin: how long a unit takes
define void @note(ptr %args, i64 %lo, i64 %hi) {
entry:
  %counts = load ptr, ptr %args
  %who.at = getelementptr ptr, ptr %args, i64 1
  %who = load ptr, ptr %who.at
  %spin.at = getelementptr ptr, ptr %args, i64 2
  %spin = load i64, ptr %spin.at
  %any = icmp slt i64 %lo, %hi
  br i1 %any, label %unit, label %end
unit:
  %n = phi i64 [%lo, %entry], [%next, %over]
  br label %wait
wait:
  %k = phi i64 [0, %unit], [%k1, %wait]
  %k0 = call i64 asm sideeffect "", "=r,0"(i64 %k)
  %k1 = add i64 %k0, 1
  %more = icmp slt i64 %k1, %spin
  br i1 %more, label %wait, label %over
over:
  %at = getelementptr i64, ptr %counts, i64 %n
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %self = call i64 @pthread_self()
  %to = getelementptr i64, ptr %who, i64 %n
  store i64 %self, ptr %to
  %next = add i64 %n, 1
  %left = icmp slt i64 %next, %hi
  br i1 %left, label %unit, label %end
end:
  ret void
}
"""


class Team:
    """A pool of its own beside the process's, with a phase that notes what was done."""

    def __init__(self, limit: int, text: str | None = None):
        target = host_target()
        self.library = Library(
            [emit_object(text or layout.text(target.platform), target), emit_object(BODY, target)], target
        )
        workers.immortal(self.library)  # its threads run the code to the end of the process
        self.pool = Pool(self.library)
        pointers = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3
        self.launch = ctypes.CFUNCTYPE(None, *pointers)(self.library.address("lamina_pool_launch"))
        self.note = self.library.address("note")
        self.pool.resize(limit)
        self.kept: list = []  # a broken pool writes to it late

    def run(self, units: int, nanoseconds: int = MUCH, most: int = 64, spin: int = 0) -> tuple[bool, int]:
        """Whether every unit was done once, and how many threads did them."""
        self.pool.grain = 1000
        counts, who = np.zeros(2 * units + 1, np.int64), np.zeros(2 * units + 1, np.int64)
        args = np.array([counts.ctypes.data, who.ctypes.data, spin], np.int64)
        self.kept.append((counts, who, args))
        self.launch(self.pool.address, self.note, args.ctypes.data, units, nanoseconds, most)
        once = bool((counts[:units] == 1).all()) and not counts[units:].any()
        return once, len(set(who[:units].tolist()))


def _for_long() -> Iterator[None]:
    """Again and again for as long as a busy machine may keep a worker from running."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        yield


@pytest.fixture(scope="module")
def team() -> Team:
    return Team(2)


@pytest.fixture(scope="module")
def crowd() -> Team:
    """More threads than this machine may have cores."""
    return Team(5)


def test_every_unit_is_done_once(team, crowd):
    for units in (0, 1, 2, 3, 7, 8, 9, 63, 64, 1000):
        for _ in range(20):
            assert team.run(units)[0] and crowd.run(units)[0], units


def test_units_are_shared_where_they_take_long(team):
    assert any(team.run(16, spin=200_000)[1] == 2 for _ in _for_long())


def test_each_of_two_threads_begins_at_its_own_end(team):
    """So that it finds in its core's caches what it wrote in the launch before."""
    shared = 0
    for _ in _for_long():
        team.run(64, spin=20_000)
        who, own = team.kept[-1][1][:64], threading.get_ident()
        alone = who == own
        assert np.array_equal(alone, np.arange(64) < alone.sum())
        shared += bool(0 < alone.sum() < 64)
        if shared == 5:
            return
    pytest.fail("the worker came to no launch")


def test_sleeping_workers_are_woken(team):
    for _ in _for_long():
        time.sleep(0.005)  # far longer than they look for work
        done, threads = team.run(16, spin=1_000_000)
        assert done
        if threads == 2:
            return
    pytest.fail("the worker slept through every launch")


def test_little_work_and_one_thread_run_on_the_caller(team):
    for nanoseconds, most in ((1999, 64), (MUCH, 1)):
        for _ in range(50):
            assert team.run(64, nanoseconds, most, spin=1000) == (True, 1)


def test_a_program_held_to_two_threads_gets_no_third(crowd):
    assert max(crowd.run(64, most=2, spin=20_000)[1] for _ in range(30)) <= 2


def test_two_python_threads_launch_at_once(team):
    failures = []

    def body() -> None:
        failures.extend(n for n in range(300) if not team.run(50 + n % 7, spin=50)[0])

    threads = [threading.Thread(target=body) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_resizing_makes_workers_and_ends_them():
    own = Team(3)
    assert own.pool.workers == 2
    for limit in (1, 4, 2, 1):
        own.pool.resize(limit)
        end = time.monotonic() + 5
        while own.pool.workers != limit - 1 and time.monotonic() < end:
            time.sleep(0.001)
        assert (own.pool.limit, own.pool.workers) == (limit, limit - 1)
        assert own.run(100)[0]
    assert own.run(100, spin=10_000) == (True, 1)


def test_calibration_ends_when_its_time_is_over(team, monkeypatch):
    measured = []
    real = team.pool._fork_join
    monkeypatch.setattr(team.pool, "_fork_join", lambda *what: (measured.append(what), real(*what)))
    monkeypatch.setattr(workers, "MEASURED_FOR", 0)
    team.pool.calibrate()
    assert len(measured) == 1
    monkeypatch.setattr(workers, "MEASURED_FOR", 10**12)
    team.pool.calibrate()
    assert 2 <= len(measured) - 1 <= 200
    assert workers.LEAST_GRAIN <= team.pool.grain <= workers.MOST_GRAIN


def in_child(work) -> int:
    """The exit status of a forked child that runs `work`, 0 where it returns True."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1]


def test_a_forked_child_begins_anew():
    if workers.asleep:
        workers.wake()

    def work() -> bool:
        before = workers.asleep, workers.pool().workers
        workers.wake()
        return before == (True, 0) and workers.pool().workers == workers.most_threads() - 1

    assert in_child(work) == 0
    assert not workers.asleep


def test_the_process_ends_with_workers_alive():
    program = "import lamina.runtime.workers as w; w.wake(); w.pool().resize(4); print(w.pool().workers)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processors are needed")
def test_a_worker_leaves_the_processor_that_its_work_comes_from():
    """And may run on all of them as before; not where there is no other."""
    text = layout.text(host_target().platform)
    private = f"define internal void @{layout.PREFIX}_aside("
    assert text.count(private) == 1
    team = Team(1, text.replace(private, private.replace("internal ", "")))
    aside = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(team.library.address(f"{layout.PREFIX}_aside"))
    place = ctypes.c_int32.from_address(team.pool.address + layout.PLACE)
    everywhere, here = os.sched_getaffinity(0), ctypes.CDLL(None).sched_getcpu
    left = 0
    try:
        for _ in range(20):  # the scheduler may move a thread at any time
            place.value = min(everywhere)
            os.sched_setaffinity(0, {place.value})
            aside(team.pool.address)
            assert here() == place.value and os.sched_getaffinity(0) == {place.value}
            os.sched_setaffinity(0, everywhere)
            if here() == place.value:
                aside(team.pool.address)
                left += here() != place.value
            assert os.sched_getaffinity(0) == everywhere
    finally:
        os.sched_setaffinity(0, everywhere)
    assert left > 10


@pytest.fixture
def sleeper():
    """A team of two, and the worker's number as the system has it."""
    before = {*os.listdir("/proc/self/task")}
    team = Team(2)
    for _ in _for_long():
        added = {*os.listdir("/proc/self/task")} - before
        if len(added) == 1:  # LLVM's own threads end
            return team, int(*added)
    pytest.fail("there is no worker")


def wait_until(condition) -> None:
    for _ in _for_long():
        time.sleep(0.005)
        if condition():
            return
    pytest.fail("it never was")


def is_asleep(thread: int) -> bool:
    """In a futex, where it stays: not for the moment in which it goes to another processor."""
    with open(f"/proc/self/task/{thread}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "S"


def launched_here(team: Team) -> int:
    """The processor that a launch came from, after which its worker sleeps."""
    assert team.run(16, spin=10_000)[0]
    return ctypes.c_int32.from_address(team.pool.address + layout.PLACE).value


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processors are needed")
def test_a_worker_sleeps_away_from_the_processor_that_its_work_comes_from(sleeper):
    """So that it is woken on another, and may run on all of them again."""
    (team, worker), everywhere = sleeper, os.sched_getaffinity(0)
    seen = set()
    for _ in _for_long():
        place = launched_here(team)
        time.sleep(0.005)
        if is_asleep(worker):
            assert os.sched_getaffinity(worker) == everywhere - {place}
            seen.add("away")
        team.run(16, spin=200_000)
        if not is_asleep(worker) and os.sched_getaffinity(worker) == everywhere:
            seen.add("back")
        if len(seen) == 2:
            return
    pytest.fail(f"seen: {seen}")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processors are needed")
def test_where_a_worker_may_run_is_as_it_was_told_while_it_slept(sleeper):
    team, worker = sleeper
    place = launched_here(team)
    wait_until(lambda: is_asleep(worker))
    os.sched_setaffinity(worker, {place})
    wait_until(lambda: team.run(16, spin=1_000_000)[1] == 2)
    assert os.sched_getaffinity(worker) == {place}


def test_short_work_is_dealt_out_in_a_chunk_for_each_thread_and_long_work_in_more(team):
    """By the ticket that a launch left, of a grain of 1000."""
    for grains, chunks in ((2, 2), (5, 2), (8, 4), (12, 6), (1000, 8)):
        team.run(1000, 1000 * grains)
        ticket = ctypes.c_int64.from_address(team.pool.address + layout.TICKET).value
        assert ticket >> 2 * layout.FIELD & (1 << layout.FIELD) - 1 == chunks, grains


def orders(one: list[str], other: list[str]) -> Iterator[list[str]]:
    """All in which the steps of two threads may come."""
    if not (one and other):
        yield one + other
        return
    yield from ([one[0], *rest] for rest in orders(one[1:], other))
    yield from ([other[0], *rest] for rest in orders(one, other[1:]))


def in_turn(text: str, steps: dict[str, str]) -> list[str]:
    """The steps in the order in which a function's text has them."""
    assert all(text.count(step) == 1 for step in steps.values())
    return sorted(steps, key=lambda name: text.index(steps[name]))


def test_no_worker_sleeps_whom_no_launch_will_wake():
    """A model of what the two write and read, in the order of the pool's text, in every order of both."""
    text = layout.text(host_target().platform)
    begin, end = text.index(f"@{layout.PREFIX}_notify("), text.index(f"define void @{layout.PREFIX}_launch(")
    steps = {"claim": "atomicrmw xchg ptr %sleepers", "word": "store atomic i32 %word", "rouse": "@syscall("}
    launch = ["ticket", *in_turn(text[begin:end], steps), "done"]  # whose chunks the caller does alone
    begin, end = text.index("\nsleep:"), text.index("\nawake:")
    steps = {"read": "%w = load", "say": "store atomic i32 1", "look": "%t2 = load"}
    steps["wait"] = f"call void @{layout.PREFIX}_apart("
    worker = in_turn(text[begin:end], steps)
    for order in orders(launch, worker):
        word = read = said = claimed = 0
        is_open = stays = asleep = False
        for step in order:
            if step in ("ticket", "done"):
                is_open = step == "ticket"
            elif step == "claim":
                said, claimed = 0, said
            elif step == "word":
                word = 1
            elif step == "rouse":
                asleep = asleep and not claimed
            elif step == "read":
                read = word
            elif step == "say":
                said = 1
            elif step == "look":
                stays = is_open
            elif step == "wait":
                asleep = not stays and word == read
        assert said or not asleep, order


PLANTED = {
    "both ends are one": ("%below = sub i64 %chunks, %ended", "%below = add i64 %begun, 1"),
    "the caller does not wait": ("%all = icmp eq i64 %count, %chunks", "%all = icmp eq i64 0, 0"),
    "beyond the units": ("%hi = udiv i64 %end, %chunks", "%hi = add i64 %lo, 100"),
    "a unit too few": (
        "%lo = udiv i64 %low, %chunks",
        "%lo.of = udiv i64 %low, %chunks\n  %lo = add i64 %lo.of, 1",
    ),
    "a chunk that two threads hold": (
        "%ticket = atomicrmw add ptr %pool, i64 %claim acquire",
        "%ticket = load atomic i64, ptr %pool monotonic, align 8\n  %plus = add i64 %ticket, %claim\n"
        + f"  {host_target().platform.pause}\n" * 50
        + "  store atomic i64 %plus, ptr %pool monotonic, align 8",
    ),
}


def sees(bug: str) -> bool:
    """Whether launches of a pool with this bug are seen to go wrong.  They may still run when it returns."""
    right, wrong = PLANTED[bug]
    text = layout.text(host_target().platform)
    assert text.count(right) == 1
    broken, end = Team(4, text.replace(right, wrong)), time.monotonic() + 6  # the other cores may be busy
    while time.monotonic() < end:
        if not broken.run(99, spin=20_000)[0]:
            return True
    return False


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_seen(bug):
    """In a process of its own: threads go on writing when a launch has not waited for them, or it hangs."""
    hangs = "two threads" in bug  # more chunks are done than there are: the caller waits for ever
    script = f"import os, signal, sys, test_pool; signal.alarm({2 if hangs else 30}); "
    script += "os._exit(0 if test_pool.sees(sys.argv[1]) else 1)"
    folder = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", script, bug], cwd=folder, capture_output=True, timeout=60)
    assert done.returncode in ((0, -signal.SIGALRM) if hangs else (0,))
    assert done.stderr == b""
