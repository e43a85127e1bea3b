"""NumPy's products on the pool of native programs: same bits, OpenBLAS's own threads asleep, no deadlock."""

import ctypes
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from lamina.runtime import sharing
from lamina.runtime.openblas import OpenBlas, openblas


def run_script(body: str, **environment: str) -> str:
    """What a script prints in a process of its own, which has two threads."""
    head = """
        import ctypes, os, sys, threading, time
        from lamina.passes.llvm import pool as layout
        import numpy as np
        import lamina
        from lamina.runtime import sharing, workers
        from lamina.runtime.openblas import openblas
        lamina.set_num_threads(2)
        def wake():
            workers.wake()
            workers.pool().resize(2)  # on one core, too
        def idle():
            return {name for name in os.listdir("/proc/self/task") if state(name) == "S"}
        def state(task):
            with open(f"/proc/self/task/{task}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        def ran(task):
            with open(f"/proc/self/task/{task}/schedstat") as file:
                return int(file.read().split()[0])
        def tasks():
            return set(os.listdir("/proc/self/task")) - {str(os.getpid())}
        def signals(task):  # those that it blocks: a worker of the pool all of them
            with open(f"/proc/self/task/{task}/status") as file:
                return next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk"))
        a = np.random.default_rng(0).standard_normal((300, 300), np.float32)
    """
    program = textwrap.dedent(head) + textwrap.dedent(body)
    clean = {
        k: v for k, v in os.environ.items() if k not in ("OPENBLAS_THREAD_TIMEOUT", "LAMINA_SHARE_THREADS")
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=clean | environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


if openblas() is None or openblas().version < sharing.OLDEST:
    pytest.skip("NumPy has no OpenBLAS that lets others run its jobs", allow_module_level=True)


def products(factorisations: bool) -> list[np.ndarray]:
    """Results of what OpenBLAS cuts into jobs, of several kinds and shapes."""
    random = np.random.default_rng(3)
    results = []
    for dtype in (np.float32, np.complex128):
        a = random.standard_normal((211, 317)).astype(dtype)
        v = random.standard_normal(317).astype(dtype)
        results += [a @ a.T, a.T @ a, a @ v, a[:5] @ a.T, np.matmul(a[None], a.T[None])]
        if factorisations:
            square = (a @ a.T)[:200, :200] + 300 * np.eye(200, dtype=dtype)
            results += [np.linalg.solve(square, a[:200]), np.linalg.inv(square)]
            results += [np.linalg.cholesky(square @ square.T.conj())]
    return results


SAME = """
    sys.path.insert(0, {folder!r})
    from test_sharing import products
    lamina.set_num_threads({threads})
    before = products({factorisations})
    workers.wake()
    workers.pool().resize({threads})
    again = products({factorisations})
    assert all(np.array_equal(x, y) for x, y in zip(before, again, strict=True))
    print(sharing.jobs().served >= {served})
"""


@pytest.mark.parametrize("threads, factorisations, served", [(2, True, 40), (3, False, 5)])
def test_products_on_the_pool_have_the_same_bits(threads, factorisations, served):
    """Of three threads two need scratch memory of their own."""
    folder = os.path.dirname(__file__)
    body = SAME.format(folder=folder, threads=threads, factorisations=factorisations, served=served)
    assert run_script(body) == "True"


SLEEPING = """
    wake()
    own = set()
    while not own or not own <= idle():
        time.sleep(0.01)
        own = {task for task in tasks() if not signals(task)}
    before = {task: ran(task) for task in own}
    x = lamina.tensor(a)
    for _ in range(20):
        x @ x
        a @ a
    print(len(own), sum(ran(task) != before[task] for task in own))
"""


def test_no_thread_of_openblas_runs_in_a_product_or_after_it():
    assert run_script(SLEEPING) == "1 0"


def test_the_setting_leaves_openblas_its_threads():
    assert run_script(SLEEPING, LAMINA_SHARE_THREADS="0") == "1 1"


def test_processes_with_several_python_threads_wait_until_there_is_one():
    body = """
        wait = threading.Event()
        other = threading.Thread(target=wait.wait)
        other.start()
        wake()
        first = sharing.jobs()
        wait.set()
        other.join()
        workers.settle()
        a @ a
        print(first, sharing.jobs().served)
    """
    assert run_script(body) == "None 1"


def test_a_patience_that_the_user_set_is_kept():
    body = "wake(); print(sharing.jobs() is None, os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    assert run_script(body, OPENBLAS_THREAD_TIMEOUT="20") == "True 20"
    assert run_script(body, OPENBLAS_THREAD_TIMEOUT="10") == "False 10"
    assert (
        run_script("wake(); print(sharing.jobs() is None, 'OPENBLAS_THREAD_TIMEOUT' in os.environ)")
        == "False False"
    )


def test_products_that_the_pool_cannot_run_run_on_openblas_threads():
    body = """
        wake()
        want = a @ a
        set_threads = openblas().function("set_num_threads")
        counts = [sharing.jobs().served]
        set_threads(1)  # what threadpoolctl does: no jobs at all
        alone = a @ a
        counts.append(sharing.jobs().served)
        set_threads(5)
        many = a @ a
        counts.append(sharing.jobs().served)
        set_threads(2)
        workers.pool()._word(layout.BUSY, ctypes.c_int32).value = layout.LAUNCHING
        busy = a @ a
        workers.pool()._word(layout.BUSY, ctypes.c_int32).value = layout.FREE
        counts.append(sharing.jobs().served)
        after = a @ a
        counts.append(sharing.jobs().served)
        # Other kernels add in another order: 300 roundings of partial sums, which are as random walks.
        bound = 300**0.5 * np.finfo(np.float32).eps * abs(want).max()
        right = [(abs(other - want) <= bound).all() for other in (alone, many)]
        right += [(busy == want).all()]
        print(counts, *right, (after == want).all())
    """
    assert run_script(body) == "[1, 1, 1, 1, 2] True True True True"


def test_forked_children_compute_at_once_and_share_when_they_wake():
    body = """
        wake()
        want = a @ a
        child = os.fork()
        if not child:
            before = sharing.jobs().served
            right = (a @ a == want).all() and sharing.jobs().served == before
            wake()
            right &= (a @ a == want).all() and sharing.jobs().served == before + 1
            os._exit(0 if right else 1)
        right = (a @ a == want).all()
        print(os.waitpid(child, 0)[1], right, sharing.jobs().served)
    """
    assert run_script(body) == "0 True 2"


def test_threads_that_multiply_while_others_launch_and_resize():
    body = """
        wake()
        sizes = (64, 130, 200)
        right = {n: a[:n, :n] @ a[:n, :n] for n in sizes}
        vectors = {n: a[:, :n] @ a[0, :n] for n in sizes}
        failures, stop = [], threading.Event()
        def multiply():
            for k in range(60):
                n = sizes[k % 3]
                same = (a[:n, :n] @ a[:n, :n] == right[n]).all(), (a[:, :n] @ a[0, :n] == vectors[n]).all()
                if not all(same):
                    failures.append(n)
        def disturb():
            while not stop.wait(0.001):
                workers.pool().resize(1)
                workers.pool().resize(3)
                workers.pool().calibrate()
                workers.pool().resize(2)
        helper = threading.Thread(target=disturb)
        others = [threading.Thread(target=multiply) for _ in range(2)]
        for each in (helper, *others):
            each.start()
        for each in others:
            each.join()
        stop.set()
        helper.join()
        print(failures, sharing.jobs().served > 0)
    """
    assert run_script(body) == "[] True"


def test_a_fork_waits_for_the_product_of_another_thread():
    """OpenBLAS alone would wait for ever: it ends its threads before a fork, whatever they are at."""
    body = """
        wake()
        want, stop, failures = a @ a, threading.Event(), []
        def multiply():
            while not stop.is_set():
                if not (a @ a == want).all():
                    failures.append("parent")
        other = threading.Thread(target=multiply)
        other.start()
        for _ in range(10):
            child = os.fork()
            if not child:
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                failures.append("child")
        stop.set()
        other.join()
        print(failures)
    """
    assert run_script(body) == "[]"


def test_libraries_that_are_not_known_are_left_alone(monkeypatch):
    real = openblas()

    class Other(OpenBlas):
        version = real.version
        slots = real.slots

    def shareable(made) -> bool:
        monkeypatch.setattr(sharing, "openblas", lambda: made)
        sharing._shareable.cache_clear()
        return sharing._shareable() is not None

    taken = ctypes.c_void_p.in_dll(real.library, "openblas_threads_callback_")
    before = taken.value
    try:
        taken.value = None
        known = Other(real.library, real.spelling)
        assert shareable(known)
        assert not shareable(None)
        Other.version = (0, 3, 27)
        assert not shareable(known)
        Other.version = (0, 3, 28)
        assert shareable(known)
        Other.slots = 0
        assert not shareable(known)
        Other.slots = 64
        assert not shareable(Other(real.library, "openblas_{}"))
        monkeypatch.setattr(sharing, "PLAIN", ("no_such_function",))
        assert not shareable(known)
        monkeypatch.undo()
        taken.value = 1  # somebody else runs the jobs
        assert not shareable(known)
    finally:
        taken.value = before
        monkeypatch.undo()
        sharing._shareable.cache_clear()


def test_forks_are_measured_again_once_a_path_is_served_often():
    """Where the machine was busy as the workers began, small kernels stayed on one thread for good."""
    body = """
        wake()
        traced = lamina.jit.trace(lambda x: x * 2)
        x = lamina.ones(3)
        traced(x)
        workers.pool().fork_nanoseconds, workers.pool().measured = 1e9, 0
        for _ in range(100):
            traced(x)
        print(workers.pool().fork_nanoseconds < 1e8)
    """
    assert run_script(body) == "True"
