"""LLVM text to object files: from the cache, or compiled, in this process and in helpers beside it.

Generating machine code takes 25 ms a kernel, and llvmlite lets one thread of a process do it at a time.  So
where much is to be compiled, processes that know LLVM alone (helper.py) take texts from one end of a queue as
soon as they are written, while this process writes the next and then takes what is left from the other end.
ResNet-18, 33 modules, two cores of a Zen 5: 1.1 s of this process's own time alone, 0.68 s with one helper.
A helper that has no core of its own only costs (10 %), so one begins only where a core has nothing to do at
that moment.  (A load average won't do: this process's own last minute is in it.)

LLVM ends the process that runs out of memory.  So where little is left, all is compiled in helpers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable

from ..passes import cache as disk
from ..passes.llvm import helper
from ..passes.llvm.binding import OPTIMISATION, emit_object, identity
from ..passes.llvm.headroom import ShortError
from ..passes.schedules.target import Target

HELPERS = 3  # at most
# Lines of text that are to be compiled before a helper is worth its start of 60 ms: at some 20 per ms
WORTH_A_HELPER = 2_000


def compiled(texts: Iterable[str], target: Target) -> tuple[bytes, ...]:
    """The objects of some modules.  Raises KernelError for a text that LLVM refuses."""
    with Compiler(target) as compiler:
        for text in texts:
            compiler.add(text)
        return compiler.objects()


class Compiler:
    """Compiles texts as they come.  Used with `with`, so that no helper outlives it."""

    def __init__(self, target: Target, cache: disk.Cache | None = None, helpers: int | None = None):
        self.target, self.cache = target, cache or disk.default()
        self.hits = self.misses = 0
        self._identity = identity(target)
        self._names: list[str] = []  # in the order in which they were added
        self._made: dict[str, bytes] = {}
        self._waiting: deque[tuple[str, str]] = deque()  # (name, text); popping is one step for Python
        self._lines = 0
        self._processes: list[subprocess.Popen] = []
        self._other: subprocess.Popen | None = None  # compiles what this process has no memory for
        self._threads: list[threading.Thread] = []
        self._come = threading.Semaphore(0)  # counts what was added for the helpers; and at the end, the end
        self._most, self._asks = (HELPERS, True) if helpers is None else (helpers, False)

    def add(self, text: str) -> None:
        """Have a text compiled, sooner or later."""
        name = disk.key("object", self._identity, text)
        self._names.append(name)
        if name in self._made or any(name == other for other, _ in self._waiting):
            return
        found = self.cache.get(name)
        if found is not None:
            self.hits += 1
            self._made[name] = found
            return
        self.misses += 1
        self._waiting.append((name, text))
        self._lines += text.count("\n")
        self._come.release()
        begun = len(self._processes)
        if self._lines > WORTH_A_HELPER * (begun + 1) and begun < self._most:
            if not self._asks or a_core_is_idle():
                self._begin()

    def objects(self) -> tuple[bytes, ...]:
        """The objects of all texts, in the order of `add`.  Raises KernelError for a text LLVM refuses."""
        while True:
            try:
                name, text = self._waiting.pop()
            except IndexError:
                if not self._threads:
                    break
                self._end()  # what a helper could not do comes back
                continue
            try:
                made = emit_object(text, self.target)
            except ShortError:
                made = self._elsewhere(text)
            self._keep(name, made)
        return tuple(self._made[name] for name in self._names)

    def _keep(self, name: str, made: bytes) -> None:
        self._made[name] = made
        self.cache.put(name, made)

    def _elsewhere(self, text: str) -> bytes:
        """Compile a text in another process, as this one may have too little memory.  Raises ShortError."""
        try:
            if self._other is None:
                self._other = _process()
                self._processes.append(self._other)
                self._introduce(self._other)
            _send(self._other, text)
            made = _receive(self._other)
        except (OSError, ValueError):
            made = b""
        if not made:
            raise ShortError(
                "there is too little memory to compile machine code",
                "nor could another process: free some, or raise the limit (ulimit -v, the container's)",
            )
        return made

    # ---- helpers
    def _begin(self) -> None:
        try:
            process = _process()
        except OSError:
            self._most = 0  # no processes here: alone, then
            return
        self._processes.append(process)
        thread = threading.Thread(target=self._feed, args=(process,), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._most = 0  # no threads
            return
        self._threads.append(thread)

    def _introduce(self, process: subprocess.Popen) -> None:
        _send(process, f"{self.target.cpu}\n{self.target.features}\n{OPTIMISATION}")

    def _feed(self, process: subprocess.Popen) -> None:
        """Hand texts to a helper, one at a time, until there are no more."""
        item = None
        try:
            self._introduce(process)
            while True:
                self._come.acquire()
                try:
                    item = self._waiting.popleft()
                except IndexError:
                    break  # the process itself has taken the last
                _send(process, item[1])
                made = _receive(process)
                if not made:
                    raise OSError("the helper refused the text")
                self._keep(item[0], made)
                item = None
        except (OSError, ValueError):
            if item is not None:
                self._waiting.append(item)  # to be done here, where the error can be told

    def _end(self) -> None:
        """Wait for the helpers to do what they have begun."""
        for _ in self._threads:
            self._come.release()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        for process in self._processes:
            process.kill()
        self._end()
        for process in self._processes:
            process.communicate()


def _process() -> subprocess.Popen:
    """A helper.  Raises OSError where there can be none."""
    if not _has_python():
        raise OSError(0, "the executable is no Python")
    return subprocess.Popen(
        [sys.executable, "-I", helper.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _has_python() -> bool:
    """Whether the executable is a Python."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def a_core_is_idle(told: str = "/proc/loadavg") -> bool:
    """Whether a core that this process may use has nothing to do now, as far as that file tells."""
    if not _has_python():
        return False
    if sys.platform != "linux":
        return os.getloadavg()[0] + 1 <= (os.cpu_count() or 1)
    try:
        with open(told) as file:
            running = int(file.read().split()[3].split("/")[0])  # on all cores, this thread among them
    except (OSError, ValueError, IndexError):
        return False
    return len(os.sched_getaffinity(0)) > 1 and running < (os.cpu_count() or 1)


def _send(process: subprocess.Popen, text: str) -> None:
    assert process.stdin is not None
    data = text.encode()
    process.stdin.write(len(data).to_bytes(8, "little") + data)
    process.stdin.flush()


def _receive(process: subprocess.Popen) -> bytes:
    assert process.stdout is not None
    return process.stdout.read(int.from_bytes(process.stdout.read(8), "little"))
