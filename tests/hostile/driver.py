"""Give hostile inputs to readers, in child processes that may die, and count what became of each.

A kind is one reader with a way to make inputs for it.  Modules `hostile_*.py` in this folder enter kinds:

    @kind("safetensors")
    def safetensors() -> Kind:               # called once, in the process that forks the children
        seeds = [...]
        return Kind(make=lambda rng: mutated(rng, seeds), check=read_and_compare, refusals=(SavedFileError,))

`make(rng)` gives an input; `check(input)` returns a word for what came of it ("same", "other"), raises one of
`refusals` where the input is refused as documented, and Wrong where it is accepted and means something else.
Anything else that it raises is an internal error; a signal is a crash; too much time is a hang.  These four
are faults.  Input number i of a seed is always the same, whatever ran before: `run.py --only` shows it again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import mmap
import os
import random
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FAULTS = ("wrong", "internal", "crash", "hang")
KEPT = 200  # faults that a record describes; all are counted


class Wrong(Exception):
    """An input that was accepted, and means something else than it should."""


@dataclass(frozen=True)
class Kind:
    """A reader and its inputs.

    batch: inputs that one child reads.  memory: bytes that it may take beyond what it has at first.  seconds:
    of the processor, for one input; an input may also stand still for STILL seconds of the clock.  share:
    inputs that the quick tests read, in one or two seconds.
    """

    make: Callable[[random.Random], Any]
    check: Callable[[Any], str]
    refusals: tuple[type[BaseException], ...]
    batch: int = 2000
    memory: int = 1 << 30
    seconds: float = 10.0
    share: int = 1000


STILL = 60.0
_makers: dict[str, Callable[[], Kind]] = {}
NEEDS: dict[str, tuple[str, ...]] = {}  # modules without which a kind can't be read


class Held:
    """A file in memory that is written anew for each input, under a name that ends so."""

    def __init__(self, suffix: str):
        self.handle = os.memfd_create("hostile")
        weakref.finalize(self, os.close, self.handle)
        folder = tempfile.mkdtemp(prefix="hostile")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, f"held{suffix}")
        self.path.symlink_to(f"/proc/self/fd/{self.handle}")

    def hold(self, data: bytes) -> Path:
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, data, 0)
        return self.path


def kind(name: str, *needs: str) -> Callable[[Callable[[], Kind]], Callable[[], Kind]]:
    """Enter a function that makes the kind of this name, which needs modules of these names."""

    def enter(maker: Callable[[], Kind]) -> Callable[[], Kind]:
        _makers[name], NEEDS[name] = maker, needs
        return maker

    return enter


def missing(name: str) -> list[str]:
    """The modules that a kind needs and that are not there."""
    return [each for each in NEEDS[name] if find_spec(each) is None]


def kinds() -> dict[str, Callable[[], Kind]]:
    """What makes each kind, by name, of all modules of this folder."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    for file in sorted(HERE.glob("hostile_*.py")):
        importlib.import_module(file.stem)
    return dict(_makers)


def rng(name: str, seed: int, index: int) -> random.Random:
    """Where the choices of one input come from."""
    return random.Random(f"{name}:{seed}:{index}")


@dataclass
class Totals:
    """What came of the inputs before `next`.  faults: [index, verdict, what was raised], the first KEPT."""

    next: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    faults: list[list] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(self.verdicts[verdict] for verdict in FAULTS)

    def add(self, stop: int, verdicts: dict[str, int], faults: list[list]) -> None:
        self.next = stop
        self.verdicts.update(verdicts)
        self.faults += faults[: max(KEPT - len(self.faults), 0)]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        rate = self.next / self.seconds if self.seconds else 0.0
        return f"{self.next} inputs, {self.failed} faults, {rate:.0f}/s: {counts}"


# ---- in the child ------------------------------------------------------------------------------------------
def verdict(made: Kind, data: Any) -> tuple[str, str]:
    """What comes of one input, and for a fault what was raised and where."""
    try:
        return made.check(data), ""
    except made.refusals as error:
        return f"refused {type(error).__name__}", ""
    except Wrong as error:
        return "wrong", str(error)[:300]
    except Exception as error:  # BaseException would be the driver's own end
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{'/'.join(frames[-1].filename.split('/')[-2:])}:{frames[-1].lineno}" if frames else ""
        return "internal", f"{type(error).__name__}: {str(error)[:200]} at {where}"


def _bound(memory: int) -> None:
    with open("/proc/self/statm") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + memory, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # the parent tells which input it was
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process, even inside of C code


def _load_libraries() -> None:
    """Load what ops load at their first call: its own start aborts where memory is short."""
    for name in ("scipy.special", "scipy.linalg"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _child(name: str, made: Kind, seed: int, start: int, stop: int, place: mmap.mmap, out: int) -> None:
    """Read the inputs from start to stop, with the number of each in `place`; write what came of them."""
    warnings.simplefilter("error")
    _bound(made.memory)
    verdicts: Counter[str] = Counter()
    faults = []
    for index in range(start, stop):
        place[:8] = index.to_bytes(8, "little")
        data = made.make(rng(name, seed, index))
        signal.setitimer(signal.ITIMER_PROF, made.seconds)
        word, text = verdict(made, data)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        verdicts[word] += 1
        if word in FAULTS and len(faults) < KEPT:
            faults.append([index, word, text])
    with os.fdopen(out, "w") as file:
        json.dump([verdicts, faults], file)


# ---- in the parent -----------------------------------------------------------------------------------------
class _Batch:
    """A child at work on the inputs from start to stop."""

    def __init__(self, name: str, made: Kind, seed: int, start: int, stop: int):
        self.start, self.stop = start, stop
        self.place = mmap.mmap(-1, 8)
        self.place[:8] = start.to_bytes(8, "little")
        self.said = b""
        self.moved, self.seen = time.monotonic(), start
        self.out, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.out)
                _child(name, made, seed, start, stop, self.place, write)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def index(self) -> int:
        return int.from_bytes(self.place[:8], "little")

    def stands_still(self) -> bool:
        """Whether one input has been read for STILL seconds; the child is ended then."""
        now, index = time.monotonic(), self.index()
        if index != self.seen:
            self.moved, self.seen = now, index
        if now - self.moved < STILL:
            return False
        os.kill(self.pid, signal.SIGKILL)
        return True

    def hear(self) -> bool:
        """Take what the child says; whether it has ended."""
        piece = os.read(self.out, 1 << 16)
        self.said += piece
        return not piece

    def end(self) -> int:
        os.close(self.out)
        return os.waitpid(self.pid, 0)[1]


def run(
    name: str,
    made: Kind,
    count: int,
    seed: int = 0,
    jobs: int = 1,
    totals: Totals | None = None,
    tell: Callable[[Totals], None] = lambda totals: None,
) -> Totals:
    """What comes of the inputs up to number `count`.  totals: of an earlier run, which is gone on with.

    tell: called with the totals whenever they have grown.
    """
    _load_libraries()
    totals = totals or Totals()
    begun, before = time.monotonic(), totals.seconds
    ready: dict[int, tuple[int, dict, list]] = {}  # batches that ended before an earlier one
    todo = [(at, min(at + made.batch, count)) for at in range(totals.next, count, made.batch)][::-1]
    gc.freeze()  # children don't copy pages only to collect them
    with selectors.DefaultSelector() as working:
        while todo or working.get_map():
            while todo and len(working.get_map()) < jobs:
                batch = _Batch(name, made, seed, *todo.pop())
                working.register(batch.out, selectors.EVENT_READ, batch)
            events = working.select(timeout=1.0)
            hanging = [each.data for each in working.get_map().values() if each.data.stands_still()]
            for key, _ in events:
                batch = key.data
                if not batch.hear():
                    continue
                working.unregister(batch.out)
                still = batch in hanging
                for start, (stop, verdicts, faults), again in _ended(batch, batch.end(), still):
                    ready[start] = (stop, verdicts, faults)
                    todo += again
            while totals.next in ready:
                totals.add(*ready.pop(totals.next))
                totals.seconds = before + time.monotonic() - begun
                tell(totals)
    gc.unfreeze()
    return totals


def _ended(batch: _Batch, status: int, still: bool) -> Iterator[tuple[int, tuple, list]]:
    """(first, (stop, verdicts, faults), batches to be run again) of a child that ended."""
    if status == 0:
        yield batch.start, (batch.stop, *json.loads(batch.said)), []
        return
    if os.WIFEXITED(status):
        raise RuntimeError(f"the driver failed at input {batch.index()}: see above")
    at, number = batch.index(), os.WTERMSIG(status)
    word = "hang" if still or number == signal.SIGPROF else "crash"
    # What it counted is gone with it: those before are read once more, those behind for the first time.
    again = [each for each in ((at + 1, batch.stop), (batch.start, at)) if each[0] < each[1]]
    yield at, (at + 1, {word: 1}, [[at, word, signal.Signals(number).name]]), again
