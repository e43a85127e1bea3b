"""Trainings of which one rank is killed, stopped, slow or of another shape end with an error that names it.

Whoever started them: a launcher, mpiexec, or nobody but the test.  Nothing is left of them then.
"""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ranks
from launching import TOKEN, Launch, segments_left

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
PROGRAM = str(Path(__file__).with_name("fault_programs.py"))
PROGRAMS = ["ddp", "traced", "fsdp", "tensor", "pipeline", "messages"]
FAULTS = ["kill", "stop", "slow", "late", "shape"]
STARTERS = ["launch", "mpiexec", "nobody"]
RANKS, MOST = 3, 15.0  # seconds until all have ended


class Run(Launch):
    """Three ranks, and a file for what each of them says, or for what all do."""

    def __init__(self, folder, starter, *args):
        self.folder, self.starter, self.token = folder, starter, folder.name
        folder.mkdir()
        (folder / "tmp").mkdir()
        here = ranks.environment(**{TOKEN: self.token, "TMPDIR": str(folder / "tmp")})
        self.begun, self.children = [], []
        words = [sys.executable, PROGRAM, *map(str, args)]
        if starter == "launch":
            self.begin([sys.executable, "-m", "lamina", "launch", "-n", str(RANKS), *words[1:]], here)
        elif starter == "mpiexec":
            self.begin([str(ranks.MPIEXEC), "-n", str(RANKS), *words], here)
        else:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                met = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
            for rank in range(RANKS):
                self.begin(words, here | met | {"RANK": str(rank), "WORLD_SIZE": str(RANKS)})

    def begin(self, words, environ):
        with (self.folder / f"said{len(self.children)}").open("wb") as said:
            self.children.append(
                subprocess.Popen(words, env=environ, cwd=self.folder, start_new_session=True,
                                 stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
            )  # fmt: skip

    def said(self):
        """What each child wrote."""
        return [(self.folder / f"said{i}").read_text(errors="replace") for i in range(len(self.children))]

    def until(self, done, seconds):
        """Whether `done()` comes true in time."""
        limit = time.monotonic() + seconds
        while not done():
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    def pid_of(self, rank):
        """The process of a rank."""
        if self.starter == "nobody":
            return self.children[rank].pid
        name = rb"(?:PMI_RANK|OMPI_COMM_WORLD_RANK)=%d\0" % rank
        found = []
        for pid, line in self.processes("fault_programs").items():
            environ = Path("/proc", str(pid), "environ").read_bytes()
            if re.search(name, environ) and " -S -c " not in line and "watch_rank" not in line:
                found.append(pid)
        return max(found)  # what starts it has a lower number

    def ended(self):
        return all(child.poll() is not None for child in self.children)

    def close(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for child in self.children:
            child.wait()


def fail(folder, program, fault, starter, chance):
    """Run a program with a fault, and look at what is said and left."""
    who, at = chance.randrange(RANKS), chance.randint(2, 6)
    run = Run(folder, starter, program, fault, who, at)
    case = f"{program} {fault} {starter} rank {who} step {at}"
    try:
        assert run.until(lambda: sum(t.count("here") for t in run.said()) == RANKS or run.ended(), 60), case
        began = time.monotonic()
        if fault in ("kill", "stop"):
            time.sleep(chance.uniform(0, 0.5))
            os.kill(run.pid_of(who), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
            began = time.monotonic()
        still = [who] if (fault, starter) == ("stop", "nobody") else []  # it can't end by itself

        def ended():
            return all(c.poll() is not None for r, c in enumerate(run.children) if r not in still)

        assert run.until(ended, MOST), f"{case}: not ended in {MOST} s\n" + "\n".join(run.said())
        took = time.monotonic() - began
        if still:
            os.kill(run.children[who].pid, signal.SIGCONT)
            assert run.until(run.ended, MOST), f"{case}: the stopped one went on\n" + "\n".join(run.said())
        said = run.said()
        told = f"{case}, {took:.1f} s\n" + "\n".join(f"-- {i}\n{t}" for i, t in enumerate(said))
        check(program, fault, starter, who, said, [c.returncode for c in run.children], told)
        assert run.gone(), f"{case} leaves {run.processes()}"
        assert not segments_left(*said), told
        left = sorted(p.name for p in folder.rglob("*") if not p.name.startswith("said"))
        assert left == ["tmp"], f"{case} leaves {left}"
    finally:
        run.close()
    return took


def check(program, fault, starter, who, said, status, told):
    """Assert that what is said names what happened: by each rank that can say something."""
    everything = "\n".join(said)
    if fault == "slow":
        assert everything.count("through") == RANKS and not any(status), told
        return
    assert all(status), told
    names = {
        "kill": rf"rank {who} (is gone|has ended its part)",
        "stop": f"rank {who} (of 3 .*)?is stopped",
        "late": r"nobody came for [3-9]\.\d s",
        "shape": r"f(loat)?32\[[^]]*4[^]]*\]|another shape",
    }[fault]
    if starter == "launch":  # which says how a rank ended that can't say it itself
        line = {
            "kill": f"rank {who} of 3 .* was ended by SIGKILL",
            "stop": f"rank {who} of 3 .* is stopped|{names}",
        }
        assert re.search(line.get(fault, r"rank \d of 3 .* raised [\w.]*Error: "), everything), told
        assert fault == "kill" or re.search(names, everything), told
    elif starter == "mpiexec":  # which ends all at once when one was killed
        assert re.search(names + r"|(?i:killed.*signal:? 9)" * (fault == "kill"), everything), told
    else:
        gone = r"rank \d (is gone|has ended its part)"  # of one that found it earlier
        for rank, text in enumerate(said):
            error = text.partition("Error: ")[2]
            assert rank == who and fault == "kill" or re.search(f"{names}|{gone}", error), (
                f"rank {rank} of {told}"
            )


def cases(seeds):
    """Faults and programs go round; who starts them is drawn."""
    for seed in seeds:
        chance = random.Random(seed)
        yield PROGRAMS[seed % 6], FAULTS[seed % 5], chance.choice(STARTERS), chance


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(30))
def test_a_rank_that_fails_is_named(seed, tmp_path):
    ((program, fault, starter, chance),) = cases([seed])
    fail(tmp_path / f"one{seed}", program, fault, starter, chance)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(10))
def test_two_hundred_ranks_that_fail_are_named(part, tmp_path):
    took = []
    for i, (program, fault, starter, chance) in enumerate(cases(range(1000 + 20 * part, 1020 + 20 * part))):
        took.append(fail(tmp_path / f"run{part}x{i}", program, fault, starter, chance))
    print(f"{len(took)} faults, {max(took):.1f} s at most")
