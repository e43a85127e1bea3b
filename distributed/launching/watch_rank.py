"""Watch one rank: start it, hand on what it writes, tell the launcher how it fares and how it ended.

Three processes stand for a rank.  MPI's launcher starts the first, which starts the second and waits.  The
second, the watcher, starts the rank and is the parent of all that the rank starts and leaves behind.  MPI's
launchers kill the first without warning: the watcher lives on until nothing below it does.  Whoever dies in
the middle: the first, the watcher ends the rank; the watcher, the kernel kills the rank.

Only the standard library is used here, so that a watcher takes 15 ms and 8 MB: `command` starts it without
what stands above it in the package.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

from . import frames, pmi_line, reaping, segments
from .pmi_line import PmiLine

FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = __name__.rpartition(".")[0]
# Modules of the same names, but empty: importing the package itself would load NumPy.
_ABOVE = [_PACKAGE.rsplit(".", n)[0] for n in range(_PACKAGE.count("."), 0, -1)]
_BEGIN = f"""import sys, types
for name in {[*_ABOVE, _PACKAGE]}:
    sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = [{FOLDER!r}]
from {_PACKAGE}.watch_rank import main
main(sys.argv[1])"""

READ = 1 << 16  # bytes: all that a pipe holds
BEAT = 2.0  # seconds between two signs of life, at most
PATIENCE = 3.0  # seconds that a rank has to end when it is asked to
LAST_WORDS = 5.0  # seconds that a rank has to end after it raised: what runs at exit may wait for the others
FAREWELL = 15.0  # seconds in which the launcher ends everything once a rank failed
NO_READER = (errno.EPIPE, errno.EIO)  # of a pipe; of a terminal, by which Open MPI reads


def command(settings: dict[str, Any]) -> list[str]:
    """The command line of a rank's first process.

    settings: `rank`, `local_size`, names of the variables that say them; `variables` to set;
    `stopped_after`, seconds; `command`, the rank's own, where {control} stands for the descriptor that it may
    tell of its errors by.
    """
    return [sys.executable, "-I", "-S", "-c", _BEGIN, json.dumps(settings)]


def main(text: str) -> NoReturn:
    """Be a rank's first process."""
    settings = json.loads(text)
    watched, alive = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive)
        os.setsid()
        watcher = Watcher(settings, watched)
        try:
            status = watcher.run()
        except BaseException as error:
            status = watcher.abandon()
            if getattr(error, "errno", None) not in NO_READER:
                traceback.print_exc()
        os._exit(status)
    os.close(watched)
    _close_all_but(0, 1, 2, alive)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _have_end(pid))
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # MPICH's, when another rank has died
        signal.signal(number, signal.SIG_IGN)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)


def _have_end(pid: int) -> None:
    """Ask a process to end, also one that is stopped."""
    try:
        for number in (signal.SIGTERM, signal.SIGCONT):
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def _close_all_but(*kept: int) -> None:
    """Close what MPI's launcher left open: the pipes of other ranks, and its own line to its server."""
    low = 0
    for fd in sorted(kept):
        if low < fd:  # os.closerange(0, 0) closes everything
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))


class Watcher:
    """Watches one rank.  `pid` is the rank's, `status` how it ended, once it has."""

    def __init__(self, settings: dict[str, Any], starter: int):
        self.rank = int(os.environ[settings["rank"]])
        self._settings, self._starter = settings, starter
        self._control, self._streams = -1, {}  # type: int, dict[int, bytes]
        self._began = time.time()
        self.pid, self.status = 0, None  # type: int, int | None
        self._ending = False  # whether the rank was asked to end, or its starter is gone
        self._deadline = float("inf")  # when it is killed
        self._stopped_at: float | None = None
        self._segments: set[str] = set()
        self._out_of_memory = _kills_for_memory()

    def run(self) -> int:
        """Watch until the rank and all below it are gone.  Returns the exit status."""
        wake = self._listen()
        self._start()
        self._tell(frames.STARTED, host=os.uname().nodename, pid=self.pid, watcher=os.getpid())
        beat = min(BEAT, self._settings["stopped_after"] / 4)
        next_beat = time.monotonic() + beat
        while self.status is None:
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + beat
                self._segments |= segments.mapped(self.pid)
                self._tell(frames.RUNNING)
            self._look(now)
            waited = min(next_beat, self._deadline, now + beat) - now
            self._serve(wake, max(0.0, waited))
        return self._finish()

    def _listen(self) -> int:
        """Have signals wake the watcher.  Returns the descriptor that they wake it by."""
        wake, waker = os.pipe()
        for fd in (wake, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._asked_to_end)
        self._kept = (0, 1, 2, self._starter, wake, waker)
        return wake

    def _asked_to_end(self, *_: Any) -> None:
        self._ending = True
        signal.alarm(30)  # the last resort, where this process is stuck in a write that nobody reads

    def _start(self) -> None:
        settings = self._settings
        (out, out_end), (error, error_end), (control, control_end) = os.pipe(), os.pipe(), os.pipe()
        line = self._line = PmiLine(os.environ)
        environ = dict(os.environ) | settings["variables"]
        if line.rank_end >= 0:
            environ[pmi_line.NAME] = str(line.rank_end)
        if "OMP_NUM_THREADS" not in environ:
            environ["OMP_NUM_THREADS"] = environ.get("LAMINA_NUM_THREADS") or str(self._share_of_cores())
        words = [word.replace("{control}", str(control_end)) for word in settings["command"]]
        reaping.adopt_orphans()
        watcher = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                reaping.end_with_parent()
                if os.getppid() != watcher:  # it died before it could be told
                    os._exit(1)
                os.setsid()
                os.dup2(out_end, 1)
                os.dup2(error_end, 2)
                passed = [fd for fd in (control_end, line.rank_end) if fd >= 0]
                for fd in passed:
                    os.set_inheritable(fd, True)
                _close_all_but(0, 1, 2, *passed)
                _forget_handlers()
                os.execvpe(words[0], words, environ)
            except OSError as failure:
                os.write(2, f"{words[0]}: {failure.strerror}\n".encode())
            os._exit(127)
        _close_all_but(*self._kept, out, error, control, *line.open_ends())
        self._control, self._streams = control, {out: frames.OUT, error: frames.ERROR}

    def _share_of_cores(self) -> int:
        """Threads for this rank: its part of the cores that the ranks of its machine may use."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // max(1, int(os.environ.get(self._settings["local_size"], "1"))))

    def _look(self, now: float) -> None:
        """See what is to be done about time: a rank that is to end, or that is stopped."""
        if self._ending and self._deadline == float("inf"):
            self._segments |= segments.mapped(self.pid)
            self._deadline = now + PATIENCE
            _have_end(self.pid)
        if now >= self._deadline:
            os.kill(self.pid, signal.SIGKILL)
        if self._stopped_at is not None and now - self._stopped_at > self._settings["stopped_after"]:
            self._tell(frames.STOPPED, seconds=round(now - self._stopped_at, 1))
            self._stopped_at = None

    def _serve(self, wake: int, seconds: float) -> None:
        """Wait so long at most, hand on what there is, and learn of children."""
        ready = select.poll()
        for fd in (wake, self._starter, self._control, *self._streams, *self._line.open_ends()):
            if fd >= 0:
                ready.register(fd, select.POLLIN)
        ready.register(1, 0)  # only whether it still has a reader
        for fd, _ in ready.poll(seconds * 1000):
            if fd in self._streams:
                self._hand_on(fd)
            elif fd == self._control:
                self._hear()
            elif fd == wake:
                os.read(wake, 4096)
            elif fd in self._line.open_ends():
                self._line.serve(fd)
                if self._line.aborted is not None:  # it goes on otherwise, and counts on being killed
                    os.kill(self.pid, signal.SIGKILL)
            elif fd == self._starter:
                self._starter, self._ending = -1, True
            elif fd == 1:
                raise BrokenPipeError(errno.EPIPE, "nobody reads what the rank writes")
        self._learn_of_children()

    def _hand_on(self, fd: int) -> bool:
        """Hand on what is there to read.  Returns whether more may come."""
        data = os.read(fd, READ)
        for line in frames.pack(self._streams[fd], self.rank, data):
            _write(line)
        if not data:
            os.close(fd)
            del self._streams[fd]
        return bool(data)

    def _hear(self) -> None:
        """Tell what the rank says of the error that ends it."""
        data = os.read(self._control, READ)
        if not data:
            os.close(self._control)
            self._control = -1
            return
        while not data.endswith(b"\n") and (more := os.read(self._control, READ)):
            data += more
        for line in data.splitlines():
            said = json.loads(line)
            # A traceback may be long: in pieces, before what tells that it is whole.
            for piece in frames.pack(frames.RAISED, self.rank, json.dumps(said).encode() + b"\n"):
                _write(piece)
        self._deadline = min(self._deadline, time.monotonic() + LAST_WORDS)

    def _learn_of_children(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid != self.pid:
                continue
            if os.WIFSTOPPED(status):
                self._stopped_at = time.monotonic()
            elif os.WIFCONTINUED(status):
                self._stopped_at = None
            else:
                self.status = os.waitstatus_to_exitcode(status)
                if self._line.aborted is not None:
                    self.status = self._line.aborted & 0xFF or 1

    def _finish(self) -> int:
        """Tell how the rank ended, end what it left, and wait for the launcher where that was a failure."""
        ended = time.time()
        if self._control >= 0:
            os.set_blocking(self._control, False)
            self._quietly(self._hear)
        self._drain()
        failed = self.status != 0
        if not failed:
            reaping.end_all_below(1.0)
            self._drain()
        self._tell(
            frames.ENDED, status=self.status, asked=self._ending, at=ended,
            aborted=self._line.aborted is not None,
            seconds=round(ended - self._began, 1),
            out_of_memory=self.status == -signal.SIGKILL and _kills_for_memory() > self._out_of_memory,
        )  # fmt: skip
        if failed:
            reaping.end_all_below(0.3)
            self._drain()
            # The segments of a rank that ended as it should are those of the others, too.
            segments.unlink(self._segments | segments.orphans(self._began))
            self._await_the_end()
        assert self.status is not None
        return self.status if self.status >= 0 else 128 - self.status

    def abandon(self) -> int:
        """End the rank, and all below it, without a word.  Returns the exit status."""
        self._segments |= segments.mapped(self.pid)
        reaping.end_all_below(0)
        segments.unlink(self._segments | segments.orphans(self._began))
        return 1

    def _drain(self) -> None:
        """Hand on what is in the pipes, whoever else may still hold them."""
        for fd in [*self._streams]:
            os.set_blocking(fd, False)
            self._quietly(lambda fd=fd: all(iter(lambda: self._hand_on(fd), False)))

    def _quietly(self, read: Any) -> None:
        try:
            read()
        except BlockingIOError:
            pass

    def _await_the_end(self) -> None:
        """Keep the first process until the launcher has told all ranks to end.

        MPI's launcher would kill the others at once, and with them what they have still to say.
        """
        until = time.monotonic() + FAREWELL
        while not self._ending and (left := until - time.monotonic()) > 0:
            ready = select.poll()
            if self._starter >= 0:
                ready.register(self._starter, select.POLLIN)
            ready.register(1, 0)
            if ready.poll(min(left, 0.1) * 1000):
                return

    def _tell(self, kind: bytes, **facts: Any) -> None:
        _write(frames.tell(kind, self.rank, **facts))


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


def _forget_handlers() -> None:
    """Give the rank the usual way with signals: those that Python ignores are ignored after exec, too."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _kills_for_memory() -> int:
    """How many processes the kernel has killed so far as memory ran out."""
    try:
        with open("/proc/vmstat", "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(b"oom_kill "))
    except OSError:
        return 0
