"""LLVM text to object files: from the cache, or compiled, in this process and in helpers beside it.

Generating machine code takes 7 ms a kernel, and llvmlite lets one thread of a process do it at a time.  So
where much is to be compiled, processes that know LLVM alone (helper.py) compile texts as soon as they are
written, while this process writes the next and then takes its share of what is left, the longest first.  A
helper is given some texts ahead, so that it need not wait until this process looks after it.  No thread reads
its answers: it would wait for Python's lock, 5 ms each time, as long as texts are written.  A helper that has
no core of its own only costs (10 %), so one begins only where a core has nothing to do at that moment.  (A
load average won't do: this process's own last minute is in it.)

LLVM ends the process that runs out of memory.  So where little is left, all is compiled in helpers.
"""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..passes import cache as disk
from ..passes.llvm import headroom, helper
from ..passes.llvm.binding import OPTIMISATION, emit_object, identity
from ..passes.llvm.headroom import ShortError
from ..passes.schedules.target import Target

HELPERS = 3  # at most
# Lines of text that are to be compiled before a helper is worth its start of 60 ms: at some 40 per ms
WORTH_A_HELPER = 2_000
AHEAD = 600  # lines of text that a helper has, or more: 15 ms, as long as this process compiles one itself
PIPE = 1 << 20  # bytes that the system is asked to keep between this process and a helper, each way


@dataclass
class Statistics:
    """What it took to make an executable: seconds; objects that the cache had and had not; what it has."""

    compile_seconds: float = 0.0
    load_seconds: float = 0.0
    hits: int = 0
    misses: int = 0
    kernels: int = 0
    codes: int = 0
    arena: int = 0


def compiled(texts: Iterable[str], target: Target) -> tuple[bytes, ...]:
    """The objects of some modules.  Raises KernelError for a text that LLVM refuses."""
    with Compiler(target) as compiler:
        for text in texts:
            compiler.add(text)
        return compiler.objects()


class Compiler:
    """Compiles texts as they come.  Used with `with`, so that no helper outlives it.

    expected: lines of text that are to come, if somebody knows: where they are worth a helper, it begins now.
    Raises ShortError where there is no memory to begin with.
    """

    def __init__(
        self,
        target: Target,
        cache: disk.Cache | None = None,
        helpers: int | None = None,
        expected: int = 0,
    ):
        headroom.require(headroom.TO_BEGIN, "write")
        self.target, self.cache = target, cache or disk.default()
        self.hits = self.misses = 0
        self._identity = identity(target)
        self._names: list[str] = []  # in the order in which they were added
        self._asked: set[str] = set()
        self._made: dict[str, bytes] = {}
        self._waiting: list[tuple[int, str, str]] = []  # (lines, name, text), the longest last
        self._lines = expected
        self._helpers: list[_Helper] = []
        self._other: _Helper | None = None  # compiles what this process has no memory for
        self._most, self._asks = (HELPERS, True) if helpers is None else (helpers, False)
        self._begin_if_worth()

    def add(self, text: str) -> None:
        """Have a text compiled, sooner or later.  Raises KernelError where LLVM has refused one."""
        self._names.append(self._ask(text))

    def foresee(self, text: str) -> None:
        """Have a text compiled that somebody else will ask for: it is in the cache then."""
        self._ask(text)

    def _ask(self, text: str) -> str:
        name = disk.key("object", self._identity, text)
        if name not in self._asked:
            self._asked.add(name)
            found = self.cache.get(name)
            if found is None:
                self.misses += 1
                lines = text.count("\n")
                insort(self._waiting, (lines, name, text))
                self._lines += lines
                self._begin_if_worth()
            else:
                self.hits += 1
                self._made[name] = found
        self._deal()
        return name

    def objects(self) -> tuple[bytes, ...]:
        """The objects of all texts, in the order of `add`.  Raises KernelError for a text LLVM refuses."""
        while True:
            self._deal()
            if self._waiting:
                _, name, text = self._waiting.pop()
                self._make(name, text)
            elif any(helper.given for helper in self._helpers):
                _wait(self._helpers)
            else:
                return tuple(self._made[name] for name in self._names)

    def _make(self, name: str, text: str) -> None:
        """Compile a text here.  Raises KernelError where LLVM refuses it."""
        try:
            made = emit_object(text, self.target)
        except ShortError:
            made = self._elsewhere(text)
        self._keep(name, made)

    def _keep(self, name: str, made: bytes) -> None:
        self._made[name] = made
        self.cache.put(name, made)

    def _elsewhere(self, text: str) -> bytes:
        """Compile a text in another process, as this one may have too little memory.  Raises ShortError."""
        made = b""
        with suppress(OSError):
            if self._other is None:
                self._other = _Helper(self.target)
            self._other.give("", text)
            while self._other.given:
                self._other.send()
                _wait([self._other])
                made = b"".join(found for _, _, found in self._other.answers())
        if not made:
            raise ShortError(
                "there is too little memory to compile machine code",
                "nor could another process: free some, or raise the limit (ulimit -v, the container's)",
            )
        return made

    # ---- helpers
    def _begin_if_worth(self) -> None:
        begun = len(self._helpers)
        if begun >= self._most or self._lines <= WORTH_A_HELPER * (begun + 1):
            return
        if not self._asks or a_core_is_idle():
            try:
                self._helpers.append(_Helper(self.target))
            except OSError:
                self._most = 0  # no processes here: alone, then

    def _deal(self) -> None:
        """Take what helpers have made, and give them more.  Raises KernelError for a text LLVM refuses."""
        for one in self._helpers:
            try:
                for name, text, made in one.answers():
                    if made:
                        self._keep(name, made)
                    else:
                        self._make(name, text)  # here the error can be told
                while self._waiting and not one.is_dead and one.lines < AHEAD:
                    _, name, text = self._waiting.pop()
                    one.give(name, text)
                one.send()
            except OSError:
                one.is_dead = True
                for name, text in one.taken_back():
                    insort(self._waiting, (text.count("\n"), name, text))

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *error: object) -> None:
        for one in (*self._helpers, *filter(None, [self._other])):
            one.end()


class _Helper:
    """A process that compiles texts, in the order in which it is given them.  No method waits for it.

    given: the texts that it has not answered, and their names; lines: theirs in all.  Raises OSError where
    there can be no process, and as soon as it is seen to have died.
    """

    def __init__(self, target: Target):
        self.process = _process()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        for pipe in (self.input, self.output):
            os.set_blocking(pipe, False)
            with suppress(
                OSError, AttributeError
            ):  # not granted, or not Linux: it only waits for this process
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
        self.given: deque[tuple[str, str]] = deque()
        self.lines, self.is_dead = 0, False
        self.unsent, self._unread = bytearray(), bytearray()
        self._spell(f"{target.cpu}\n{target.features}\n{OPTIMISATION}")

    def _spell(self, text: str) -> None:
        data = text.encode()
        self.unsent += len(data).to_bytes(8, "little") + data

    def give(self, name: str, text: str) -> None:
        self.given.append((name, text))
        self.lines += text.count("\n")
        self._spell(text)

    def send(self) -> None:
        """Hand over as much as there is room for."""
        with suppress(BlockingIOError):
            while self.unsent:
                del self.unsent[: os.write(self.input, self.unsent)]

    def answers(self) -> Iterator[tuple[str, str, bytes]]:
        """Name, text and object of what it has compiled; an empty object where LLVM refuses the text."""
        if self.is_dead:
            return
        with suppress(BlockingIOError):
            while self.given:
                data = os.read(self.output, PIPE)
                if not data:
                    raise BrokenPipeError("the helper has ended")
                self._unread += data
                while len(self._unread) >= 8:
                    end = 8 + int.from_bytes(self._unread[:8], "little")
                    if len(self._unread) < end:
                        break
                    made = bytes(self._unread[8:end])
                    del self._unread[:end]
                    name, text = self.given.popleft()
                    self.lines -= text.count("\n")
                    yield name, text, made

    def taken_back(self) -> list[tuple[str, str]]:
        """What it will not answer any more."""
        lost = [*self.given]
        self.given.clear()
        self.unsent.clear()
        return lost

    def end(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


def _wait(helpers: list[_Helper]) -> None:
    """Until one of them has something to say, or room for more."""
    poll = select.poll()  # `select` takes no numbers of files above 1,023
    for one in helpers:
        if one.given:
            poll.register(one.output, select.POLLIN)
        if one.unsent:
            poll.register(one.input, select.POLLOUT)
    poll.poll()


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


def a_core_is_idle(told: str = "/proc/loadavg", tasks: str = "/proc/self/task") -> bool:
    """Whether a core that this process may use has nothing to do now, as far as these files tell.

    Other threads of this process that run are taken for those of a library that spin for a while after a
    product (OpenBLAS's: 100 ms), as they do when what was recorded is compiled.
    """
    if not _has_python():
        return False
    if sys.platform != "linux":
        return os.getloadavg()[0] + 1 <= (os.cpu_count() or 1)
    try:
        with open(told) as file:
            running = int(file.read().split()[3].split("/")[0])  # on all cores, this thread among them
        if running > 1:
            running -= max(sum(_runs(f"{tasks}/{number}/stat") for number in os.listdir(tasks)) - 1, 0)
    except (OSError, ValueError, IndexError):
        return False
    return len(os.sched_getaffinity(0)) > 1 and running < (os.cpu_count() or 1)


def _runs(stat: str) -> bool:
    """Whether a thread runs, by its file."""
    try:
        with open(stat) as file:
            return file.read().rpartition(")")[2].split()[0] == "R"
    except (OSError, IndexError):  # it has ended
        return False
