"""A job: ranks that run, from mpiexec's start until none of them is left."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..environment import without_launchers
from . import frames, reaping, watch_rank
from .console import Console
from .failures import STATUS_OF_SILENCE, Failure, of_an_end
from .launchers import Host, Launcher

# Seconds in which the failures that follow from the first arrive, too: it is then known which was the first.
GATHER = 0.3
LAST_RESORT = 9.0  # seconds that mpiexec has for ending all ranks before it is killed
TICK = 0.5  # seconds between two looks at the clock

# mpiexec ends with whom started it, however that ends.  By way of Python, as code between fork and exec is no
# good where there are threads.
_TIE = """import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])"""


@dataclass(frozen=True)
class Plan:
    """What a job is: `command`, each rank's own words, on so many ranks; see `watch_rank.command`.

    silence: seconds without a word of any rank that end the job, or None.  arguments: more of mpiexec's own.
    environ: what mpiexec finds in its environment, beside this process's own, and its ranks of this machine.
    """

    launcher: Launcher
    ranks: int
    command: Sequence[str]
    hosts: Sequence[Host] = ()
    nodes: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    stopped_after: float = 10.0
    silence: float | None = None
    arguments: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> list[str]:
        """mpiexec's command line."""
        settings = {
            "rank": self.launcher.names.rank, "local_size": self.launcher.local_size,
            "variables": dict(self.variables), "stopped_after": self.stopped_after,
            "command": list(self.command),
        }  # fmt: skip
        begin = self.launcher.command(self.ranks, self.hosts, self.nodes)
        return [*begin, *self.arguments, *watch_rank.command(settings)]


@dataclass
class _Rank:
    """What is known of a rank: its frames STARTED, RAISED and ENDED, and when it was last heard of."""

    started: dict[str, Any] | None = None
    ended: dict[str, Any] | None = None
    raised: dict[str, Any] | None = None
    raising: bytes = b""
    heard: float = 0.0


class Job:
    """Runs a plan once.  `run` belongs to one thread; `end` may be called by any, and by a signal's handler.

    failure: why it ended before its time, or None.  Whoever kills this process with a signal that can't be
    caught ends mpiexec, and with it the ranks: the kernel tells mpiexec.
    """

    def __init__(self, plan: Plan, console: Console, started: Callable[[], None] = lambda: None):
        self.plan, self.failure = plan, None  # type: Plan, Failure | None
        self._console, self._on_started = console, started
        self.ranks = [_Rank() for _ in range(plan.ranks)]
        self._unpacker, self._noise = frames.Unpacker(), []  # type: frames.Unpacker, list[bytes]
        self._failures: list[Failure] = []
        self._decide_at, self._kill_at = float("inf"), float("inf")
        self._end_wanted = False  # no Event, whose lock a signal's handler might find taken by its own thread
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)
        self._process: subprocess.Popen | None = None

    def end(self) -> None:
        """Have all ranks end: each is asked to, and killed after a few seconds."""
        self._end_wanted = True
        try:
            os.write(self._waker, b".")
        except OSError:  # full, or the job is over
            pass

    def run(self) -> None:
        """Start the ranks and see them to their end.  Raises OSError where nobody reads what they write."""
        words = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *self.plan.words()]
        self._process = process = subprocess.Popen(
            words, env=without_launchers(os.environ) | dict(self.plan.environ), stdin=_input(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        try:
            self._serve(process.stdout.fileno(), process.stderr.fileno())
            self._console.settle(everything=True)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(LAST_RESORT)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            process.stdout.close()
            process.stderr.close()
            os.close(self._wake)
            os.close(self._waker)
        # Open MPI's leaves its folder behind when it is killed.
        if process.returncode < 0 and self.plan.launcher.kind == "Open MPI":
            shutil.rmtree(f"{tempfile.gettempdir()}/ompi.{process.pid}", ignore_errors=True)
        self._conclude(process.returncode)

    @property
    def noise(self) -> str:
        """What mpiexec itself had to say."""
        return b"\n".join(self._noise).decode(errors="backslashreplace").strip("\n")

    def pids(self) -> list[int]:
        """The ranks' processes; 0 for one that was not heard of."""
        return [rank.started["pid"] if rank.started else 0 for rank in self.ranks]

    # ---- what arrives ----
    def _serve(self, out: int, error: int) -> None:
        ready = select.poll()
        for fd in (out, error, self._wake):
            os.set_blocking(fd, False)
            ready.register(fd, select.POLLIN)
        before, over_at = time.monotonic(), float("inf")
        streams = {out, error}
        while streams:
            waiting = self._console.settle()
            found = ready.poll((TICK if waiting is None else min(waiting, TICK)) * 1000)
            for fd, _ in found:
                data = os.read(fd, 1 << 18)
                if fd == self._wake:
                    continue
                if not data:
                    streams.discard(fd)
                    ready.unregister(fd)
                elif fd == error:
                    self._noise += data.splitlines()
                else:
                    self._take(data)
            now = time.monotonic()
            self._look(now, late=now - before > 2 * TICK)
            before = now
            if self._process is not None and self._process.poll() is not None:
                over_at = min(over_at, now + 1)  # its pipes may have been inherited by who knows whom
                if now > over_at and not found:
                    return
        for item in self._unpacker.close():
            self._take_one(item)

    def _take(self, data: bytes) -> None:
        for item in self._unpacker.feed(data):
            self._take_one(item)

    def _take_one(self, item: frames.Frame | bytes) -> None:
        if isinstance(item, bytes):
            if item.strip():
                self._noise.append(item)
            return
        if not item.rank < len(self.ranks):
            return
        rank = self.ranks[item.rank]
        rank.heard = time.monotonic()
        if item.kind in (frames.OUT, frames.ERROR):
            self._console.add(item.kind, item.rank, item.data)
        elif item.kind == frames.RAISED:
            rank.raising += item.data
            if rank.raising.endswith(b"\n"):
                rank.raised, rank.raising = json.loads(rank.raising), b""
        elif item.kind == frames.STARTED:
            rank.started = item.told
            if all(r.started for r in self.ranks):
                self._on_started()
        elif item.kind == frames.STOPPED:
            how = f"is stopped, since {item.told['seconds']} s (SIGSTOP, or a debugger)"
            self._failed(Failure(how, 128 + signal.SIGSTOP, item.rank, time.time()))
        elif item.kind == frames.ENDED:
            rank.ended = item.told
            if rank.ended["status"] != 0 and not rank.ended["asked"]:
                self._failed(of_an_end(item.rank, rank.ended, rank.raised))

    # ---- what time brings ----
    def _look(self, now: float, late: bool) -> None:
        """See what is due.  late: this process itself was held up, by who reads its output or by a stop."""
        for number, rank in enumerate(self.ranks):
            if rank.started is None or rank.ended is not None:
                continue
            if late:
                rank.heard = now
            silent = now - rank.heard
            if silent > self.plan.stopped_after + watch_rank.BEAT and not self._failures:
                how = f"gives no sign of life, since {silent:.0f} s: its machine is gone, or stopped"
                self._failed(Failure(how, 1, number, time.time()))
        if late:
            self._console.written = max(self._console.written, now - TICK)
        silence = self.plan.silence
        if silence is not None and now - self._console.written > silence and not self._failures:
            self._failed(Failure(f"no rank wrote anything for {silence:g} s", STATUS_OF_SILENCE))
        if now >= self._decide_at:
            self._decide_at = float("inf")
            self.end()
        if self._end_wanted and self._process is not None and self._process.poll() is None:
            if self._kill_at == float("inf"):
                self._kill_at = now + LAST_RESORT
                self._process.terminate()
            elif now >= self._kill_at:
                self._process.kill()

    def _failed(self, failure: Failure) -> None:
        if not self._failures and not self._end_wanted:
            self._decide_at = time.monotonic() + GATHER
        if not self._end_wanted:
            self._failures.append(failure)

    # ---- the end ----
    def _conclude(self, status: int) -> None:
        """Say which failure was the first, once all is quiet."""
        if self._failures:
            self.failure = self._filled(min(self._failures, key=lambda f: f.at))
        elif not self._end_wanted and (failure := self._unexplained(status)) is not None:
            self.failure = self._filled(failure)

    def _unexplained(self, status: int) -> Failure | None:
        """The failure of a job whose ranks told of none: mpiexec's own, or a rank's that called MPI_Abort."""
        missing = [n for n, rank in enumerate(self.ranks) if rank.ended is None]
        ended = {n: rank.ended for n, rank in enumerate(self.ranks) if rank.ended}
        # MPI's launcher ends all when a rank calls MPI_Abort, which that rank leaves by a status of its own;
        # and when one has ended without MPI_Finalize: the last that did, before the others were told to.
        for number, told in ended.items():
            if told["status"] > 0:
                return of_an_end(number, told, self.ranks[number].raised)
        quiet = [(told["at"], n) for n, told in ended.items() if told["status"] == 0 and not told["asked"]]
        if quiet and len(quiet) < len(self.ranks):
            at, number = max(quiet)
            how = "ended with exit status 0, but without MPI's own end, as by os._exit(0)"
            return Failure(how, 1, number, at)
        if not missing and status == 0:
            return None
        code = status if status > 0 else 128 - status
        who = f", and {len(missing)} of {len(self.ranks)} ranks did not come to their end" if missing else ""
        return Failure(f"{self.plan.launcher.path} ended with status {code}{who}", code or 1)

    def _filled(self, failure: Failure) -> Failure:
        """With where the rank was, and what it last wrote."""
        if failure.rank is None:
            return failure
        started = self.ranks[failure.rank].started or {"host": "", "pid": 0}
        # Of one that raised, the last line of the other stream is the error's own.
        kind = None if failure.raised is None else frames.OUT
        last = self._console.last_line(failure.rank, kind)
        return replace(failure, host=started["host"], pid=started["pid"], last_line=last)


def _input() -> int | None:
    """What rank 0 reads: this process's input, but for a terminal, which mpiexec can't read from there."""
    try:
        os.fstat(0)
    except OSError:  # it is closed
        return subprocess.DEVNULL
    return subprocess.DEVNULL if os.isatty(0) else None


def end_what_is_left() -> None:
    """End what mpiexec left below this process, which `reaping.adopt_orphans` made the parent of all."""
    reaping.end_all_below(watch_rank.PATIENCE + 2)
