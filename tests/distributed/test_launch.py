"""`python -m lamina launch`: ranks know their places, their output arrives, what ends one ends all."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import LAUNCH, Launch, segments_left

from lamina.distributed.environment import MPICH, OPEN_MPI, SLURM
from lamina.distributed.launching import frames, launchers
from lamina.distributed.launching.console import Console
from lamina.distributed.launching.launchers import Host, Launcher
from lamina.ir.errors import ArgumentValueError, StateError

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install 'lamina[mpi]'")
if not launchers.is_there():
    pytest.skip("there is no mpiexec: pip install 'lamina[mpi]'", allow_module_level=True)


@pytest.fixture
def launch(tmp_path):
    """Start launchers, and see that nothing of them is left."""
    started = []

    def start(program, *options, **more):
        started.append(Launch(tmp_path / str(len(started)), program, *options, **more))
        return started[-1]

    yield start
    left = {pid: line for one in started for pid, line in one.processes().items()}
    for one in started:
        one.close()
    assert not left


def run(launch, program, *options, **more):
    """Run to the end.  Returns status, output and errors; no process and no shared memory is left."""
    begun = launch(program, *options, **more)
    status, out, error = begun.finish()
    assert begun.gone(), begun.processes()
    assert not segments_left(out)
    return status, out, error


# ---- what ranks are given ----
PLACES = """
import torch
told = {k: os.environ.get(k) for k in sys.argv[2:]}
print("place", told, sys.argv[1], torch.__name__, comm.allreduce(rank))
"""
NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "OMP_NUM_THREADS",
    "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip


def places(out):
    """The environments that ranks told, by rank."""
    told = [eval(text) for text in re.findall(r"place (\{.*?\})", out)]
    return {int(d["RANK"]): d for d in told}


def test_ranks_know_their_places_and_talk(launch):
    status, out, error = run(launch, PLACES, "-n", "2", args=("--tag", *NAMES))
    assert (status, error) == (0, "")
    cores = len(os.sched_getaffinity(0))
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    common |= {"OMP_NUM_THREADS": str(max(1, cores // 2)), "TORCHELASTIC_RESTART_COUNT": "0"}
    assert places(out) == {n: {"RANK": str(n), "LOCAL_RANK": str(n)} | common for n in (0, 1)}
    assert out.count("} --tag torch 1\n") == 2  # the program's own argument; both heard of each other


def test_ranks_of_two_machines_and_threads_that_were_asked_for(launch):
    """As two machines to mpiexec, of which each is this one."""
    options = ("--hosts", "127.0.0.1:2,127.0.0.2:1", "--mpi-args", "-launcher fork")
    if launchers.find().kind != "MPICH":
        pytest.skip("only MPICH's mpiexec can be told that a host by another name is this one")
    environ = {"OMP_NUM_THREADS": "7"}
    status, out, error = run(launch, PLACES, *options, args=("x", *NAMES), env=environ)
    assert (status, error) == (0, "")
    found = places(out)
    assert [found[n]["LOCAL_RANK"] for n in range(3)] == ["0", "1", "0"]
    assert [found[n]["LOCAL_WORLD_SIZE"] for n in range(3)] == ["2", "2", "1"]
    assert [found[n]["GROUP_RANK"] for n in range(3)] == ["0", "0", "1"]
    assert {d["OMP_NUM_THREADS"] for d in found.values()} == {"7"}


def test_a_rank_can_launch(launch):
    """A launcher inside of a rank starts a world of its own."""
    program = """
    import subprocess
    inner = "from mpi4py import MPI; import os; print('inner', MPI.COMM_WORLD.size, os.environ['RANK'])"
    if rank == 0:
        open("inner.py", "w").write(inner)
        words = [sys.executable, "-m", "lamina", "launch", "-n", "1", "inner.py"]
        sys.exit(subprocess.run(words).returncode)
    """
    status, out, _ = run(launch, program, "--nproc_per_node", "2", "--standalone")
    assert status == 0
    assert "inner 1 0" in out


def test_module_and_torchrun_spellings(launch):
    options = ("--nproc-per-node=1", "--rdzv_backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1:1")
    status, out, error = run(
        launch, "", *options, "--node_rank=0", "-m", args=("platform", "--terse"), mpi=False
    )
    assert (status, error) == (0, "")
    assert "Linux" in out


# ---- what ranks write ----
def test_bytes_of_a_rank_arrive_as_they_were(launch):
    program = """
    import os, sys
    every = bytes(range(256)) * 700
    os.write(1, every); os.write(1, b"\\x1eLo0 \\x1da\\x1dn\\r\\n\\xff")
    print("partial", end="", file=sys.stderr)
    """
    begun = launch(program, "-n", "1", mpi=False)
    status, _, error = begun.finish()
    assert (status, error) == (0, "partial")
    assert begun.output == bytes(range(256)) * 700 + b"\x1eLo0 \x1da\x1dn\r\n\xff"


def test_a_million_lines_arrive_in_order(launch):
    program = """
    import os
    rank = os.environ["RANK"]
    for i in range(250_000): print(rank, i)
    """
    status, out, error = run(launch, program, "-n", "4", mpi=False)
    assert (status, error) == (0, "")
    seen = Counter()
    for line in out.splitlines():
        rank, number = line.split()
        assert int(number) == seen[rank]
        seen[rank] += 1
    assert seen == dict.fromkeys("0123", 250_000)


def test_output_comes_while_ranks_run(launch):
    """A line, and the beginning of one that was flushed: before the rank goes on."""
    program = """
    import os, time
    print("a line")
    while not os.path.exists("seen"): time.sleep(0.01)
    print("a beginning", end="", flush=True)
    time.sleep(60)
    """
    begun = launch(program, "-n", "1", mpi=False)
    assert begun.wait_for(b"line\n") == b"a line\n"
    (begun.script.parent / "seen").touch()
    assert begun.wait_for(b"beginning") == b"a beginning"
    begun.process.terminate()
    assert begun.finish()[0] == 128 + signal.SIGTERM
    assert begun.gone()


def test_program_that_is_not_pythons():
    words = ["-n", "2", "--no-python", "sh", "-c", "echo $RANK of $WORLD_SIZE; exit $RANK"]
    done = subprocess.run([*LAUNCH, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["0 of 2", "1 of 2"]
    assert "rank 1 of 2" in done.stderr


def test_lines_are_tagged(launch):
    program = "import os, sys; print('out'); print('error', file=sys.stderr)"
    status, out, error = run(launch, program, "-n", "2", "--tag", mpi=False)
    assert status == 0
    assert sorted(out.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(error.splitlines()) == ["[0] error", "[1] error"]


def test_reader_that_has_seen_enough_ends_it(launch):
    begun = launch("while True: print('again')", "-n", "1", mpi=False)
    begun.wait_for(b"again")
    begun.process.stdout.close()
    assert begun.process.wait(30) == 128 + signal.SIGPIPE
    assert begun.gone()


# ---- faults ----
FAULT = """
import ctypes, subprocess
comm.barrier()
if rank == 1:
    print("rank 1 is about to")
    FAULT
comm.barrier()
"""


def ended_by(launch, fault, *options, ranks=2):
    """A job of which rank 1 does something fatal, while the others wait for it."""
    status, out, error = run(launch, FAULT.replace("FAULT", fault), "-n", str(ranks), *options)
    said = [line for line in error.splitlines() if line.startswith("lamina launch:")]
    assert len(said) == 1, error
    return status, said[0], error


def test_exception_is_named_with_its_line(launch):
    status, said, error = ended_by(launch, "raise ValueError('too\\nbad')")
    assert status == 1
    pattern = (
        r"lamina launch: rank 1 of 2 \(host \S+, pid \d+\) raised ValueError: too at .*program.py:13, after"
    )
    assert re.match(pattern, said), said
    assert error.splitlines()[-1] == "  its last line: rank 1 is about to"
    assert error.count("Traceback") == 1
    assert "rank_main" not in error  # tracebacks begin at the program


@pytest.mark.parametrize(
    ("fault", "status", "how"),
    [
        ("sys.exit(3)", 3, "ended with exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was ended by SIGKILL"),
        ("ctypes.string_at(0)", 139, "was ended by SIGSEGV"),
        ("comm.Abort(5)", 5, "(called MPI_Abort with|ended with exit) status 5"),
        ("os._exit(0)", 1, "ended with exit status 0, but without MPI's own end"),
    ],
)
def test_other_ends_are_named(launch, fault, status, how):
    found, said, _ = ended_by(launch, fault)
    assert found == status
    assert re.search(rf"rank 1 of 2 \(host \S+, pid \d+\) {how}", said), said


def test_stopped_rank_is_named(launch):
    status, said, _ = ended_by(launch, "os.kill(os.getpid(), signal.SIGSTOP)", "--stopped-after", "1")
    assert status == 128 + signal.SIGSTOP
    assert re.search(r"rank 1 of 2 \(host \S+, pid \d+\) is stopped, since 1\.\d s", said), said


def test_rank_that_is_stopped_for_a_moment_goes_on(launch):
    program = "print('here', flush=True); time.sleep(3); print('done')"
    begun = launch(program, "-n", "1", "--stopped-after", "1.5")
    begun.wait_for(b"here")
    (pid,) = begun.rank_pids(1)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(pid, signal.SIGCONT)
    status, out, error = begun.finish()
    assert (status, error) == (0, "")
    assert "done" in out


def test_machine_that_is_gone_is_named(launch):
    """Its watcher gives no sign of life any more."""
    begun = launch("print('here', flush=True); time.sleep(60)", "-n", "1", "--stopped-after", "1")
    begun.wait_for(b"here")
    (pid,) = begun.rank_pids(1)
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    os.kill(parent, signal.SIGSTOP)
    _, _, error = begun.finish()
    assert re.search(r"rank 0 of 1 \(host \S+, pid \d+\) gives no sign of life, since \d+ s", error), error
    assert begun.gone()


def test_silence_ends_it(launch):
    program = "import time; print('x', flush=True); time.sleep(60)"
    status, _, error = run(launch, program, "-n", "1", "--timeout", "2.5", mpi=False)
    assert status == 124
    assert error == "lamina launch: no rank wrote anything for 2.5 s\n"


def test_what_a_rank_started_ends_with_it(launch):
    """Also what has a session of its own; and what a rank leaves that ended as it should."""
    fault = "subprocess.Popen(['sleep', '300'], start_new_session=True); os.kill(os.getpid(), 9)"
    assert ended_by(launch, fault)[0] == 137
    program = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"
    assert run(launch, program, "-n", "1", mpi=False)[0] == 0


def test_rank_that_ignores_sigterm_ends_too(launch):
    fault = "os.kill(os.getpid(), 9)"
    program = FAULT.replace("FAULT", fault).replace(
        "comm.barrier()", "signal.signal(15, signal.SIG_IGN); comm.barrier()"
    )
    assert run(launch, program, "-n", "2")[0] == 137


WAITS = "print('here', flush=True); comm.barrier(); time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_the_launcher_ends_all(launch, number):
    begun = launch(WAITS, "-n", "2")
    seen = begun.wait_for(b"here")
    os.kill(begun.process.pid, number)
    status, out, error = begun.finish()
    assert status == (128 + number if number != signal.SIGKILL else -number)
    assert error == ""
    assert begun.gone()
    assert not segments_left(seen.decode() + out)


@pytest.mark.parametrize("who", ["mpiexec", "proxy", "starter", "watcher"])
def test_whoever_is_killed_between_nothing_is_left(launch, who):
    """mpiexec, its server on the machine, and the two processes that stand for a rank beside it."""
    begun = launch(WAITS, "-n", "2")
    seen = begun.wait_for(b"here")
    pid = begun.rank_pids(2)[1]
    above = []
    while pid != begun.process.pid:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        above.append(pid)
    watcher, starter, *others = above[:-1]
    chosen = {"mpiexec": others[-1], "proxy": others[0], "starter": starter, "watcher": watcher}[who]
    os.kill(chosen, signal.SIGKILL)
    status, out, error = begun.finish()
    assert status != 0
    assert error.count("lamina launch:") == 1
    assert begun.gone()
    assert not segments_left(seen.decode() + out)


@pytest.mark.parametrize("also", ["nobody", "watcher"])
def test_kill_of_the_launcher_ends_what_ranks_started(launch, also):
    """Nobody is left then who could look after them but the watchers, or the kernel."""
    program = (
        "import subprocess; child = subprocess.Popen(['sleep', '300']); signal.signal(15, signal.SIG_IGN)"
    )
    begun = launch(f"{program}\n{WAITS}", "-n", "2")
    seen = begun.wait_for(b"here")
    pid = begun.rank_pids(2)[1]
    watcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    os.kill(begun.process.pid, signal.SIGKILL)
    if also == "watcher":
        os.kill(watcher, signal.SIGKILL)
    begun.finish()
    until = time.monotonic() + 8
    while (left := begun.processes()) and time.monotonic() < until:
        if also == "watcher" and all("sleep 300" in line for line in left.values()):
            break  # a rank's own child has nobody, once its watcher was killed
        time.sleep(0.05)
    assert not begun.processes("rank_main")
    assert also == "watcher" or not left
    for child in left:
        os.kill(child, signal.SIGKILL)
    begun.gone()
    assert not segments_left(seen.decode())


def test_restarts(launch):
    program = """
    count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print("try", count, comm.size)
    if count < 2 and rank == count % 2: sys.exit(4)
    """
    status, out, error = run(launch, program, "-n", "2", "--max-restarts", "2")
    assert status == 0
    assert "try 2 2" in out
    assert "rank 0 of 2" in error and "rank 1 of 2" in error and "anew (2 of 2)" in error


def test_restarts_come_to_an_end(launch):
    program = "import sys; sys.exit(4)"
    status, _, error = run(launch, program, "-n", "2", "--max_restarts", "1", mpi=False)
    assert status == 4
    assert error.count("ended with exit status 4") == 2


# ---- at random ----
BUSY = """
import random, numpy as np
fault, seconds = sys.argv[1], float(sys.argv[2])
until = time.time() + seconds
x = np.ones(1000)
while True:
    comm.allreduce(1)
    comm.Allreduce(MPI.IN_PLACE, x)
    print("step", rank)
    if rank == 1 and time.time() > until:
        if fault == "raise": raise RuntimeError("at last")
        if fault == "exit": sys.exit(9)
"""
FAULTS = {"kill": (137, "was ended by SIGKILL"), "stop": (147, "is stopped"), "raise": (1, "raised Runtime"),
          "exit": (9, "ended with exit status 9")}  # fmt: skip


def fail_at_random(launch, seed):
    """One of three ranks fails somehow, at some moment from its start on."""
    chance = random.Random(seed)
    fault = chance.choice([*FAULTS])
    begun = launch(BUSY, "-n", "3", "--stopped-after", "1", args=(fault, chance.uniform(0, 1.5)))
    if fault in ("kill", "stop"):
        pids = begun.rank_pids(3)
        time.sleep(chance.uniform(0, 2.5))
        os.kill(pids[1], signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    status, out, error = begun.finish()
    wanted, how = FAULTS[fault]
    said = [line for line in error.splitlines() if line.startswith("lamina launch:")]
    assert len(said) == 1, error
    assert re.match(rf"lamina launch: rank 1 of 3 \(host \S+, pid \d+\) {how}", said[0]), error
    assert status == wanted
    assert begun.gone(), begun.processes()
    assert not segments_left(out)


@pytest.mark.parametrize("seed", range(10))
def test_faults_at_random(launch, seed):
    fail_at_random(launch, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_faults_at_random(launch):
    """Ten minutes: pytest -m slow tests/distributed/test_launch.py -k two_hundred"""
    for seed in range(1000, 1200):
        fail_at_random(launch, seed)


# ---- what starts them ----
def test_no_mpiexec_is_explained(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(launchers.CHOSEN, raising=False)
    with pytest.raises(StateError) as refused:
        launchers.find()
    assert str(refused.value) == (
        "mpiexec is not here: it starts the ranks\n"
        "  pip install 'lamina[mpi]' installs one; where MPI is installed, put its mpiexec on PATH"
    )


def stand_in(folder, name, says):
    """A program that says something when asked for its version."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("says", "kind", "version"),
    [
        ("HYDRA build details:\n    Version:  5.0.2", "MPICH", "5.0.2"),
        ("mpiexec (Open MPI) 5.0.11", "Open MPI", "5.0.11"),
        ("mpirun (OpenRTE) 4.1.4", "Open MPI", "4.1.4"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213", "Intel MPI", "2021.12"),
        ("slurm 23.02.7", "Slurm", "23.02.7"),
    ],
)
def test_launchers_are_told_apart(tmp_path, says, kind, version):
    found = launchers.find(stand_in(tmp_path, "mpiexec", says))
    assert (found.kind, found.version) == (kind, version)


def test_unknown_launcher_is_refused(tmp_path):
    path = stand_in(tmp_path, "mpiexec", "Frobnicator 3")
    with pytest.raises(StateError, match="its --version says: Frobnicator 3"):
        launchers.find(path)


def test_launchers_are_called_with_what_they_take(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    hosts = [Host("a", 2), Host("b", 2)]
    words = {
        kind: " ".join(Launcher("x", kind, "1", names).command(4, hosts))
        for kind, names in {"MPICH": MPICH, "Intel MPI": MPICH, "Open MPI": OPEN_MPI, "Slurm": SLURM}.items()
    }
    assert words == {
        "MPICH": "x -n 4 -hosts a:2,b:2",
        "Intel MPI": "x -n 4 -hosts a,b -ppn 2",
        "Open MPI": "x -n 4 --oversubscribe --bind-to none --host a:2,b:2",
        "Slurm": "x --ntasks=4 --ntasks-per-node=2 --nodes=2 --nodelist=a,b --kill-on-bad-exit=0 --wait=0 "
        "--cpu-bind=none",
    }
    assert Launcher("x", "MPICH", "1", MPICH).command(4, (), 2) == ["x", "-n", "4", "-ppn", "2"]
    with pytest.raises(ArgumentValueError, match=r"the same number of ranks on each host, not \[1, 2\]"):
        Launcher("x", "Slurm", "1", SLURM).command(3, [Host("a", 2), Host("b", 1)])


def test_hosts_are_read():
    assert launchers.hosts_of("a:2, b.c-d:3,10.0.0.1") == [("a", 2), ("b.c-d", 3), ("10.0.0.1", 1)]
    assert launchers.hosts_in("# all\na slots=2\n\nb:3 # big\nc\n") == [("a", 2), ("b", 3), ("c", 1)]
    for wrong in ("a:0", "a:x", "", "a b", "-x:2"):
        with pytest.raises(ArgumentValueError, match="a host is written name or name:ranks"):
            launchers.hosts_of(wrong)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-n", "0", "x.py"], "-n must be a positive number, not '0'"),
        (["--nnodes", "2", "x.py"], "--nnodes 2: the machines are not known"),
        (["--hosts", "a", "--hostfile", "b", "x.py"], "--hosts and --hostfile say the same"),
        (["--hostfile", "/nowhere", "x.py"], "--hostfile /nowhere: No such file or directory"),
        (["--mpiexec", "/nowhere", "x.py"], "no program to start ranks with at /nowhere"),
    ],
)
def test_wrong_options_are_refused(options, says):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    done = subprocess.run([*LAUNCH, *options], capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"lamina launch: {says}")


# ---- frames and lines ----
ESCAPED = st.sampled_from([b"\x1d", b"\n", b"a\x1d\r", b"\x1dn"]).map(lambda b: b * 3000)
BYTES = st.binary(max_size=30).map(lambda b: b * 700 + b)
PIECES = st.lists(st.tuples(st.integers(0, 200), BYTES | ESCAPED), max_size=6)


@given(
    PIECES,
    st.integers(1, 9000),
    st.lists(st.binary(max_size=9).filter(lambda b: b"\n" not in b and b"\x1e" not in b)),
)
def test_frames_carry_any_bytes(pieces, step, noise):
    lines = [line for rank, data in pieces for line in frames.pack(frames.OUT, rank, data)]
    assert all(len(line) <= frames.MOST and line.count(b"\n") == 1 for line in lines)
    stream = b"".join(line for word in noise for line in (word, b"\n")) + b"".join(lines)
    unpacker, found = frames.Unpacker(), []
    for at in range(0, len(stream), step):
        found += unpacker.feed(stream[at : at + step])
    found += unpacker.close()
    carried = [(f.rank, f.data) for f in found if isinstance(f, frames.Frame)]
    for rank in {rank for rank, _ in pieces}:
        assert b"".join(d for r, d in carried if r == rank) == b"".join(d for r, d in pieces if r == rank)
    assert [word for word in found if isinstance(word, bytes)] == noise


@given(st.text(max_size=3000), st.text(max_size=3000))
def test_what_is_told_fits_in_a_frame(one, two):
    line = frames.tell(frames.STARTED, 7, one=one, two=two)
    assert len(line) <= frames.MOST
    (frame,) = frames.Unpacker().feed(line)
    assert one.endswith(frame.told["one"]) and two.endswith(frame.told["two"])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"\n", b"bc\nd", b"\r", b"\xff\n"]))),
    st.booleans(),
)
def test_lines_of_each_rank_stay_whole(writes, tag):
    """Whatever ranks write, and in whichever pieces: each one's bytes are there, in their order."""
    read, written = os.pipe()
    console = Console(tag, out=written)
    for rank, data in writes:
        console.add(frames.OUT, rank, b"%d" % rank + data if tag else data.replace(b"a", b"%d" % rank))
    console.settle(everything=True)
    os.close(written)
    with os.fdopen(read, "rb") as file:
        out = file.read()
    if tag:
        for rank in range(3):
            mine = b"".join(b"%d" % r + data for r, data in writes if r == rank)
            lines = [line[4:] for line in out.split(b"\n") if line.startswith(b"[%d] " % rank)]
            assert b"\n".join(lines).replace(b"\n", b"") == mine.replace(b"\n", b"")
    else:
        assert Counter(out) == Counter(b"".join(data.replace(b"a", b"%d" % rank) for rank, data in writes))
