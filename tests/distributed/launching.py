"""Run `python -m lamina launch` in a test: nothing of it outlives the test, and what it left is found."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

LAUNCH = [sys.executable, "-m", "lamina", "launch"]
TOKEN = "LAMINA_TEST_LAUNCH"
# What every rank's program begins with: it tells which segments its MPI has.
MPI = """
import os, re, sys, time, signal
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
names = re.findall(r"/dev/shm/((?:mpich_shm|sm_segment|vader)\\S+)", open("/proc/self/maps").read())
print("segments", *sorted(set(names)), flush=True)
"""


class Launch:
    """A launcher that was started.  `close` ends all of it, whatever it did."""

    def __init__(
        self, folder: Path, program: str, *options: str, args: tuple = (), mpi: bool = True, env=None
    ):
        folder.mkdir(exist_ok=True)
        self.script = folder / "program.py"
        self.script.write_text((MPI if mpi else "") + textwrap.dedent(program))
        self.token = uuid.uuid4().hex
        environ = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        environ |= {TOKEN: self.token} | (env or {})
        program = [] if "-m" in options else [str(self.script)]
        self.process = subprocess.Popen(
            [*LAUNCH, *options, *program, *map(str, args)], env=environ, cwd=folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def processes(self, having: str = "") -> dict[int, str]:
        """The processes of this launch, by number: their command lines, of those that have a text in it."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path("/proc", name, "environ").read_bytes()
                line = (
                    Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                state = Path("/proc", name, "stat").read_text().rpartition(") ")[2][0]
            except OSError:
                continue
            if f"{TOKEN}={self.token}".encode() in environ and state != "Z" and having in line:
                found[int(name)] = line
        return found

    def rank_pids(self, count: int, seconds: float = 30) -> list[int]:
        """The ranks' processes in order, once all are there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            numbered = {}
            for pid, line in self.processes("rank_main").items():
                if " -S -c " not in line:
                    found = re.search(rb"(?:PMI_RANK|OMPI_COMM_WORLD_RANK)=(\d+)", environ_of(pid))
                    if found:
                        numbered[int(found[1])] = pid
            if len(numbered) == count:
                return [numbered[n] for n in sorted(numbered)]
            time.sleep(0.02)
        raise AssertionError(f"{count} ranks did not come: {self.processes()}")

    def wait_for(self, text: bytes, seconds: float = 30) -> bytes:
        """What is written to standard output up to a text."""
        os.set_blocking(self.process.stdout.fileno(), True)
        seen, until = b"", time.monotonic() + seconds
        while text not in seen and time.monotonic() < until:
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                break
            seen += data
        assert text in seen, seen
        return seen

    def finish(self, seconds: float = 40) -> tuple[int, str, str]:
        """Wait for its end.  Returns the status, the output and the errors."""
        out, error = self.process.communicate(timeout=seconds)
        self.output = out
        return self.process.returncode, out.decode(errors="replace"), error.decode(errors="replace")

    def gone(self, seconds: float = 8) -> bool:
        """Whether all of its processes are gone, at last."""
        until = time.monotonic() + seconds
        while self.processes() and time.monotonic() < until:
            time.sleep(0.05)
        return not self.processes()

    def close(self) -> None:
        """End everything."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


def environ_of(pid: int) -> bytes:
    """A process's environment, or nothing where it is gone."""
    try:
        return Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return b""


def segments_left(*outputs: str) -> list[str]:
    """Those of the segments that ranks told of which are still there."""
    names = {n for text in outputs for line in re.findall("segments (.*)", text) for n in line.split()}
    return [name for name in names if Path("/dev/shm", name).exists()]
