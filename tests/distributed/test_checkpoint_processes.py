"""Checkpoints of real processes under MPI: other numbers of ranks, the background, kills at any moment."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="these are ranks of MPI")

CHILD = Path(__file__).with_name("checkpoint_child.py")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
if not MPIEXEC.exists():
    pytest.skip(f"there is no {MPIEXEC} to start ranks with", allow_module_level=True)


def started(ranks: int, *arguments: str) -> subprocess.Popen:
    """A job of so many ranks, in a process group of its own."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [MPIEXEC, "-n", str(ranks), sys.executable, CHILD, *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def ended(job: subprocess.Popen, patience: float = 90) -> str:
    """Wait for a job, leave nothing of it behind, and return what it printed.  Fails where it failed."""
    try:
        out, err = job.communicate(timeout=patience)
    finally:
        removed(job)
    assert job.returncode == 0, f"{out}\n{err}"
    return out


def removed(job: subprocess.Popen) -> None:
    """End every process of a job: mpiexec's helper puts ranks into groups of their own."""
    for process in [*descendants(job.pid), job.pid]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.wait()


def descendants(process: int) -> list[int]:
    """The processes below one, the lowest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    below = parents.get(process, [])
    return [p for child in below for p in (*descendants_of(child, parents), child)]


def descendants_of(process: int, parents: dict[int, list[int]]) -> list[int]:
    below = parents.get(process, [])
    return [p for child in below for p in (*descendants_of(child, parents), child)]


MORE = [(1, 1, 0), (2, 3, 0), (3, 1, 0)]


@pytest.mark.parametrize(
    "saving,loading,dim", [(4, 2, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)]
)
def test_other_numbers_of_ranks(saving, loading, dim, tmp_path):
    ended(started(saving, "save", tmp_path / "a"))
    assert len([*(tmp_path / "a").glob("*.safetensors")]) == saving
    ended(started(loading, "load", tmp_path / "a", dim))


def test_saves_in_the_background_of_ranks(tmp_path):
    ended(started(3, "background", tmp_path))


def test_an_error_on_one_rank_is_raised_on_all(tmp_path):
    ended(started(3, "failing", tmp_path / "a"))
    assert not [*tmp_path.iterdir()]


# ---- kills -------------------------------------------------------------------------------------------------
def killed(folder: Path, job: subprocess.Popen, ranks: list[int], moment: float) -> tuple[int, str]:
    """Kill ranks of a job in a moment; the last step that it told of, and what it said went wrong."""
    assert job.stdout is not None
    time.sleep(moment)
    for process in ranks:
        os.kill(process, signal.SIGKILL)
    out, err = job.communicate(timeout=60)
    return max(map(int, re.findall(r"^saved (\d+)$", out, re.M)), default=0), err  # mpiexec prints, too


@pytest.mark.slow
@pytest.mark.parametrize("how", ["beside", "over", "apart"])
def test_a_rank_is_killed_again_and_again(how, tmp_path):
    """The newest checkpoint that was told of, or a newer one, is there and whole, whichever rank is killed.

    Of each job one rank, or all, is killed by SIGKILL; MPI ends the others.  Each job looks at what is there
    before it goes on, so what one leaves is what the next begins with.
    """
    rng = random.Random(how)
    told = 0
    for _ in range(10):
        job = started(2, "run", tmp_path, told, how)
        try:
            first = job.stdout.readline()
            assert first, job.communicate(timeout=30)[1]
            ranks = [p for p in descendants(job.pid) if is_rank(p)]
            assert len(ranks) == 2
            chosen = ranks if rng.random() < 0.3 else [rng.choice(ranks)]
            last, err = killed(tmp_path, job, chosen, rng.random() * 0.3)
        finally:
            removed(job)
        assert "Error" not in err and "Warning" not in err, err
        told = max(told, int(first.split()[1]), last)
    assert int(ended(started(1, "look", tmp_path, told))) >= told
    assert told > 10


def is_rank(process: int) -> bool:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return command[0].decode() == sys.executable and CHILD.name in command[1].decode()


def kill_alone(folder: Path, times: int, over: bool) -> None:
    """The same of one process, which another forks each time: it takes no time to begin.

    times: kills at least; there are more until a third of so many came while something was under way.
    """
    zygote = subprocess.Popen(
        [sys.executable, CHILD.with_name("checkpoint_zygote.py"), folder, "over" if over else "beside"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    rng = random.Random(times)
    told, left = 0, 0
    try:
        for number in range(5 * times):
            if number >= times and left > times // 3:
                break
            zygote.stdin.write(f"{told}\n")
            zygote.stdin.flush()
            process = int(zygote.stdout.readline())
            begun = zygote.stdout.readline()
            assert begun.startswith("saved"), begun + zygote.communicate(timeout=30)[1]
            time.sleep(rng.random() * 0.03)
            os.kill(process, signal.SIGKILL)
            lines = []
            while (line := zygote.stdout.readline()) and not line.startswith("ended"):
                lines.append(line)
            assert line == "ended 9\n", (line, zygote.communicate(timeout=30))
            told = max(int(each.split()[1]) for each in [begun, *lines])
            left += any(".tmp-" in path.name for path in folder.rglob("*"))
        zygote.stdin.close()
        out, err = zygote.stdout.read(), zygote.stderr.read()
        assert zygote.wait(60) == 0, (out, err)
    finally:
        removed(zygote)
        for pipe in (zygote.stdin, zygote.stdout, zygote.stderr):
            pipe.close()
    assert int(out) >= told >= times
    assert left > times // 3  # else the kills came where nothing was under way
    # The next save has removed what the killed ones left.
    assert not [path for path in folder.rglob("*") if ".tmp-" in path.name]


@pytest.mark.parametrize("over", [False, True], ids=["beside", "over"])
def test_a_process_is_killed_again_and_again(over, tmp_path):
    kill_alone(tmp_path, 10, over)


@pytest.mark.slow
@pytest.mark.parametrize("over", [False, True], ids=["beside", "over"])
def test_a_process_is_killed_at_length(over, tmp_path):
    kill_alone(tmp_path, 200, over)


def test_the_checker_would_notice_what_is_torn(tmp_path, monkeypatch):
    """Planted: a save that puts the index in place before the files are written."""
    monkeypatch.setenv("CHECKPOINT_PLANTED", "1")
    with pytest.raises(AssertionError, match="DamagedCheckpointError.*has no file"):
        kill_alone(tmp_path, 100, True)
