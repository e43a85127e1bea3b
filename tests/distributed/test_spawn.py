"""`multiprocessing.spawn`: its processes are MPI's ranks, its errors PyTorch's, and nothing is left of it."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing.shared_memory import SharedMemory

import pytest

import lamina.multiprocessing as mp
from lamina.distributed.launching import launchers, spawn
from lamina.facade import multiprocessing as facade

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install 'lamina[mpi]'")
if not launchers.is_there():
    pytest.skip("there is no mpiexec: pip install 'lamina[mpi]'", allow_module_level=True)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.fixture(params=["ranks", "plain"])
def way(request, monkeypatch):
    """By MPI, and without it."""
    if request.param == "plain":
        monkeypatch.setattr(facade, "is_possible", lambda: False)
    return request.param


def tell_world(rank, queue, text):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    assert "RANK" not in os.environ  # as PyTorch's: the function is told
    queue.put((rank, comm.rank, comm.size, comm.allreduce(rank + 1), text, os.getpid()))


def test_processes_are_ranks():
    queue = mp.get_context("spawn").SimpleQueue()
    assert mp.spawn(tell_world, (queue, "x"), nprocs=3) is None
    told = sorted(queue.get() for _ in range(3))
    assert [t[:5] for t in told] == [(n, n, 3, 6, "x") for n in range(3)]
    assert len({t[5] for t in told} | {os.getpid()}) == 4
    assert not any(alive(t[5]) for t in told)


def test_one_process_is_one_rank():
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(tell_world, (queue, "y"))
    assert queue.get()[:5] == (0, 0, 1, 1, "y")
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if "lamina-call" in path]


def write_into(rank, name):
    memory = SharedMemory(name)
    memory.buf[rank] = rank + 1
    memory.close()


def test_memory_of_the_parent_stays_when_a_rank_ends():
    """It has a name, which a rank's own tracker of resources would take away."""
    memory = SharedMemory(create=True, size=8)
    try:
        for _ in range(2):
            mp.spawn(write_into, (memory.name,), nprocs=2)
        assert bytes(memory.buf[:2]) == b"\1\2"
        assert os.path.exists(f"/dev/shm/{memory.name}")
    finally:
        memory.close()
        memory.unlink()


def spawn_more(rank, queue):
    from mpi4py import MPI

    if rank == 0:
        mp.spawn(tell_world, (queue, "inner"), nprocs=2)
    queue.put((10, MPI.COMM_WORLD.allreduce(1)))


def test_ranks_spawn_ranks():
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(spawn_more, (queue,), nprocs=2)
    told = sorted(queue.get() for _ in range(4))
    assert [t[:5] for t in told[:2]] == [(0, 0, 2, 3, "inner"), (1, 1, 2, 3, "inner")]
    assert told[2:] == [(10, 2), (10, 2)]


def fail(rank, how):
    if rank == 1:
        if how == "raise":
            raise KeyError("no such thing")
        if how == "exit":
            sys.exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def test_error_arrives_with_its_traceback(way, capfd):
    with pytest.raises(mp.ProcessRaisedException) as refused:
        mp.spawn(fail, ("raise",), nprocs=2)
    error = refused.value
    assert isinstance(error, mp.ProcessException)
    assert (error.error_index, error.error_pid) == (1, error.pid) and error.pid > 1
    assert "process 1 raised:\nTraceback (most recent call last):" in str(error)
    assert "in fail\n    raise KeyError(" in str(error) and str(error).endswith("KeyError: 'no such thing'")
    assert capfd.readouterr() == ("", "")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.error_index, again.pid) == (str(error), 1, error.pid)


@pytest.mark.parametrize(("how", "code", "name"), [("exit", 7, None), ("kill", -signal.SIGKILL, "SIGKILL")])
def test_end_arrives_with_its_status(way, how, code, name):
    with pytest.raises(mp.ProcessExitedException) as refused:
        mp.spawn(fail, (how,), nprocs=2)
    error = refused.value
    assert (error.exit_code, error.signal_name, error.error_index) == (code, name, 1)
    assert "process 1 terminated" in str(error) and (name or "exit code 7") in str(error)
    assert pickle.loads(pickle.dumps(error)).exit_code == code
    assert mp.active_children() == []


def wait_for_word(rank, queue, done):
    queue.put(rank)
    done.wait(60)


def test_context_joins_with_a_timeout(way):
    context = mp.get_context("spawn")
    queue, done = context.SimpleQueue(), context.Event()
    made = mp.spawn(wait_for_word, (queue, done), nprocs=2, join=False)
    assert {queue.get(), queue.get()} == {0, 1}
    assert made.join(timeout=0.05) is False
    assert all(alive(pid) for pid in made.pids())
    assert [p.exitcode for p in made.processes] == [None, None]
    assert [p.pid for p in made.processes] == made.pids()
    done.set()
    while not made.join(timeout=30):
        pass
    assert [p.exitcode for p in made.processes] == [0, 0]
    assert made.join() is True


def test_processes_are_terminated(way):
    context = mp.get_context("spawn")
    queue, done = context.SimpleQueue(), context.Event()
    made = mp.spawn(wait_for_word, (queue, done), nprocs=2, join=False)
    assert {queue.get(), queue.get()} == {0, 1}
    pids = made.pids()
    for process in made.processes:
        process.terminate()
    for process in made.processes:
        process.join(20)
        assert not process.is_alive()
    assert not any(alive(pid) for pid in pids)


def test_what_cannot_be_pickled_is_refused_before_anything_starts(way):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises((AttributeError, pickle.PicklingError), match="local|lambda"):
        mp.spawn(lambda rank: None, nprocs=2)
    if way == "ranks":
        assert len(os.listdir("/proc/self/fd")) <= before + 1  # the tracker of resources


def leave_a_process(rank, queue):
    queue.put(subprocess.Popen(["sleep", "300"], start_new_session=True).pid)


def test_what_a_rank_leaves_is_ended():
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(leave_a_process, (queue,), nprocs=2)
    assert not any(alive(queue.get()) for _ in range(2))


def test_fork_goes_on_as_before():
    with pytest.raises(mp.ProcessExitedException) as refused:
        mp.start_processes(fail, ("exit",), nprocs=2, start_method="fork")
    assert refused.value.exit_code == 7


PROGRAM = """
import os, sys, time
import torch
import torch.multiprocessing as mp

class Held:
    value = 5

def work(rank, held, daemon):
    from mpi4py import MPI
    size, address = MPI.COMM_WORLD.size, os.environ["MASTER_ADDR"]
    print("rank", rank, size, held.value, torch.__name__, address, flush=True)
    if daemon:
        time.sleep(60)

if __name__ == "__main__":
    os.environ["MASTER_ADDR"] = "localhost"
    how = sys.argv[1]
    made = mp.spawn(work, (Held(), how != "plain"), nprocs=2, join=how == "plain", daemon=how == "daemon")
    if made is not None:
        print(*made.pids(), flush=True)
    if how == "daemon":
        sys.exit(5)  # what runs at exit ends them
    if how == "killed":
        sys.stdin.read()
    print("end", flush=True)
"""


def program(tmp_path, how):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return subprocess.Popen(
        [sys.executable, "-m", "lamina", "run", str(path), how], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_functions_of_main_are_found(tmp_path):
    with program(tmp_path, "plain") as begun:
        out, error = begun.communicate(timeout=60)
    assert (begun.returncode, error) == (0, "")
    *lines, last = out.splitlines()
    assert sorted(lines) == ["rank 0 2 5 torch localhost", "rank 1 2 5 torch localhost"]
    assert last == "end"


@pytest.mark.parametrize("how", ["daemon", "killed"])
def test_no_process_outlives_its_parent(tmp_path, how):
    """Daemons end with it; and all where it is killed."""
    with program(tmp_path, how) as begun:
        pids = []
        while len(pids) != 2:
            line = begun.stdout.readline()
            assert line, begun.stderr.read()
            pids = [int(word) for word in line.split() if word.isdigit()] if line[0].isdigit() else []
        if how == "killed":
            assert all(alive(pid) for pid in pids)
            begun.kill()
        begun.wait(30)
        until = time.monotonic() + 10
        while any(alive(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(alive(pid) for pid in pids)
        assert begun.returncode == (5 if how == "daemon" else -signal.SIGKILL)


def test_without_mpi_it_is_not_tried(monkeypatch, tmp_path):
    assert spawn.is_possible()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(launchers.CHOSEN, raising=False)
    assert not spawn.is_possible()
