"""A differential fuzzer of tracing: random programs, random changes between calls, traced against eager.

A program is the text of a module: state, a function `f` decorated with `@trace`, and a generator `calls` that
yields arguments, is sent each result, and changes things between calls.  It runs in two worlds (`battery`),
and after every call all that shows is compared: the result or the exception, what was printed, the arguments,
earlier results, and the module's names with all that can be reached from them, identities included.

`python tests/soundness/fuzz.py SEED` shows a program and what became of it; `... FIRST COUNT [WORDS]` runs
many (WORDS: `native` compiles them to machine code, `minimal` shrinks what fails, `without=A,B` leaves out
templates that contain a text, `naive` runs a tracer that is wrong).
"""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import io
import itertools
import linecache
import os
import random
import re
import signal
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from battery import EAGER, NAIVE, TRACED, Library, World, difference
from fuzz_lives import LIVES  # noqa: F401 - as PARTS is
from fuzz_make import CALLS, Maker
from fuzz_parts import CHANGES, DOES, PRELUDE, READS, RETURNS
from fuzz_state import PARTS

from lamina.jit import backend
from lamina.jit.interpreted import compile_graph
from lamina.runtime import methods

TRIES = 6  # texts of one seed, until one mostly runs without raising
LONGEST = 3.0  # seconds of the processor's time for a program undecorated; most take 0.01


# ---- running them ------------------------------------------------------------------------------------------
def program(seed: int, without: tuple[str, ...] = (), kind: str = "state") -> tuple[str, Counter[str]]:
    """A program of a seed, and the templates it is made of: the first of several that raises in few calls."""
    return program_run(seed, without, kind)[:2]


def program_run(
    seed: int, without: tuple[str, ...] = (), kind: str = "state"
) -> tuple[str, Counter[str], World]:
    """The same, with the world in which it ran undecorated."""
    for attempt in itertools.count():
        maker = Maker(random.Random(f"{seed} {attempt}"), without, kind)
        text = maker.text()
        with contextlib.suppress(TooLong), uncollected(text), limited():
            eager = ran(text, EAGER)
            raised = sum("raised" in outcome for outcome in eager.outcomes)
            if raised <= CALLS // 2 or attempt > TRIES:
                return text, maker.used, eager
    raise AssertionError("itertools.count ended")


class TooLong(BaseException):
    """A program goes on and on: a list grows as it is gone through."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise TooLong where the body takes more time than small programs do."""

    rung = []

    def ring(*_: Any) -> None:
        rung.append(True)
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, ring)
    callbacks, gc.callbacks[:] = gc.callbacks[:], []  # an error that is raised inside of one is swallowed
    signal.setitimer(
        signal.ITIMER_VIRTUAL, LONGEST, 0.5
    )  # again in the next call, or where a `__del__` swallows it
    try:
        yield
        if rung:
            raise TooLong
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.callbacks[:] = callbacks


def ran(text: str, library: Library) -> World:
    """Run a program in a world of a library, and return the world."""
    name = "programs_fuzzed"
    source = PRELUDE + text
    file = f"{name}.py"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    module = types.ModuleType(name)
    variables, known = dict(os.environ), sys.modules.get(name)
    sys.modules[name] = module
    try:
        with World(library) as world:
            warnings.simplefilter("ignore")
            world.patch(methods, "_numbers", itertools.count())  # the keys of hooks show
            space = module.__dict__
            space |= {"trace": world.trace, "maybe": contextlib.suppress(Exception), "__file__": file}
            exec(compile(source, file, "exec", dont_inherit=True), space)
            world.see(module=lambda: _shown(space))
            calls = space["calls"]()
            given = next(calls)
            with contextlib.suppress(StopIteration):
                while True:
                    args, kwargs = given
                    world.once(space["f"], *args, **kwargs)
                    given = calls.send(world._results[-1])
            return world
    finally:
        os.environ.clear()
        os.environ.update(variables)
        del sys.modules[name]
        if known is not None:
            sys.modules[name] = known


def _shown(space: dict[str, Any]) -> dict[str, Any]:
    """What a module's names hold; of functions their defaults and cells, of classes their attributes too."""
    shown: dict[str, Any] = {}
    for name, held in space.items():
        if (
            name.startswith("__")
            or (isinstance(held, types.ModuleType) and name != "shelf")
            or name in _OUTSIDE
        ):
            continue
        held = getattr(held, "__wrapped__", held) if name == "f" else held
        shown[name] = held
        if isinstance(held, types.FunctionType):
            shown[f"{name}()"] = held.__defaults__, held.__kwdefaults__, held.__closure__, held.__dict__
        elif isinstance(held, type) and held.__module__ == space["__name__"]:
            shown[f"{name}."] = {k: v for k, v in vars(held).items() if k not in _OF_CLASSES}
        elif isinstance(held, types.ModuleType):
            shown[f"{name}."] = {k: v for k, v in vars(held).items() if not k.startswith("__")}
    return shown


_OUTSIDE = ("trace", "maybe", "f", "calls")
_OF_CLASSES = ("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__")


@dataclass
class Found:
    """A program, the first difference that tracing it made, whether it is loud (see battery), and counts."""

    text: str
    wrong: str | None
    loud: bool
    counts: Counter[str]
    reasons: Counter[str]

    @property
    def kind(self) -> str:
        """The sort of difference, so that a smaller program is one with the same fault."""
        return re.sub(r"[\d.]+", "#", (self.wrong or "").split(":")[0] + str(self.loud))


@contextlib.contextmanager
def uncollected(text: str) -> Iterator[None]:
    """Within this the collector of garbage has no say in when objects die that tell of it."""
    if "__del__" not in text:
        yield
        return
    was, _ = gc.isenabled(), gc.disable()
    try:
        yield
    finally:
        with contextlib.redirect_stderr(io.StringIO()):  # where __del__ fails
            gc.collect(0)  # which all is that was made meanwhile
        if was:
            gc.enable()


def checked(text: str, library: Library = TRACED, eager: World | None = None) -> Found:
    """Run a program undecorated and traced, and compare.  eager: its world undecorated, if it was run."""
    if eager is None:
        with uncollected(text):
            eager = ran(text, EAGER)
    try:
        with uncollected(text):
            traced = ran(text, library)
    except Exception as error:  # outside of a call
        return Found(text, f"outside of a call: {type(error).__name__}: {error}", True, Counter(), Counter())
    counts = Counter({"calls": traced.calls.total(), "served": traced.served.total()})
    counts["raised"] = sum("raised" in outcome for outcome in eager.outcomes)
    wrong, loud = difference(eager, traced)
    faults = [reason for reason in traced.reasons if FAULT.search(reason)]
    if wrong is None and faults:
        wrong, loud = f"fault: {faults[0]}", True
    return Found(text, wrong, loud, counts, traced.reasons)


FAULT = re.compile("could not be compiled|compiled code raised|failed")  # which Lamina blames itself for


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Within this, recordings are interpreted, not compiled."""
    native = backend.compile_graph
    backend.compile_graph = compile_graph
    try:
        yield
    finally:
        backend.compile_graph = native


# ---- making a failing program smaller ----------------------------------------------------------------------
def smaller(text: str, library: Library = TRACED, seconds: float = 60) -> str:
    """The text with statements and expressions left out as long as the same kind of difference remains."""
    kind, until = checked(text, library).kind, time.monotonic() + seconds
    tree = ast.parse(text)

    def fails(candidate: ast.Module) -> bool:
        if time.monotonic() > until:
            return False
        try:
            return checked(ast.unparse(candidate), library).kind == kind
        except Exception:
            return False

    shrunk = True
    while shrunk and time.monotonic() < until:
        shrunk = False
        for edits in (_statements, _expressions):
            number = 0
            while time.monotonic() < until:
                candidate = copy.deepcopy(tree)
                edit = next((e for i, e in enumerate(edits(candidate)) if i == number), None)
                if edit is None:
                    break
                edit()
                if ast.unparse(candidate) != ast.unparse(tree) and fails(candidate):
                    tree, shrunk = candidate, True
                else:
                    number += 1
    return ast.unparse(tree)


def _statements(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Edits that drop a statement, or put a compound one's body in its place; the last statements first."""

    def dropped(block: list, i: int, by: list) -> Callable[[], None]:
        def edit() -> None:
            block[i : i + 1] = by
            if not block:
                block.append(ast.Pass())

        return edit

    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for i in reversed(range(len(block))):
                if not isinstance(block[i], ast.Pass):
                    yield dropped(block, i, [])
                if isinstance(block[i], (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                    yield dropped(block, i, block[i].body)


def _expressions(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Edits that put a part of an expression, or a constant, in its place."""

    def put(node: ast.AST, name: str, i: int | None, by: ast.AST) -> Callable[[], None]:
        return lambda: setattr(node, name, by) if i is None else getattr(node, name).__setitem__(i, by)

    def removed(block: list, i: int) -> Callable[[], None]:
        return lambda: block.__delitem__(i)

    for node in ast.walk(tree):
        for name, held in ast.iter_fields(node):
            places = enumerate(held) if isinstance(held, list) else [(None, held)]
            for i, value in places:
                if not isinstance(value, ast.expr) or not isinstance(
                    getattr(value, "ctx", ast.Load()), ast.Load
                ):
                    continue
                if (
                    i is not None
                    and name in ("elts", "args", "values", "decorator_list")
                    and name != "decorator_list"
                ):
                    yield removed(held, i)
                for part in ast.iter_child_nodes(value):
                    if isinstance(part, ast.expr) and not isinstance(value, (ast.Constant, ast.Yield)):
                        yield put(node, name, i, part)
                if isinstance(
                    value, (ast.BinOp, ast.Call, ast.IfExp, ast.BoolOp, ast.Compare, ast.Subscript)
                ):
                    yield put(node, name, i, ast.Constant(1))


# ---- many programs -----------------------------------------------------------------------------------------
@dataclass
class Tally:
    """What became of many programs."""

    programs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, Found]] = field(default_factory=list)

    def run(
        self, seed: int, library: Library = TRACED, without: tuple[str, ...] = (), kind: str = "state"
    ) -> Found:
        """Run the program of a seed, and count what became of it."""
        text, used, eager = program_run(seed, without, kind)
        found = checked(text, library, eager)
        self.programs += 1
        self.used += used
        self.counts += found.counts
        self.reasons += Counter(sort_of(reason) for reason in found.reasons)
        if found.wrong is not None:
            self.wrong.append((seed, found))
        return found

    def table(self, reasons: int = 15) -> str:
        """The counts, the coverage, and why calls ran undecorated, for a reader."""
        given = {t for r in READS.values() for t in r} | {*DOES, *RETURNS, *CHANGES}
        for part in PARTS:
            given |= {t for r in part.reads.values() for t in r} | {*part.does, *part.changes}
        never = sorted(given - set(self.used))
        calls = max(1, self.counts["calls"])
        lines = [
            f"{self.programs} programs, {calls} calls, {self.counts['served'] / calls:.0%} served, "
            f"{self.counts['raised'] / calls:.0%} raised; {len(self.wrong)} programs wrong",
            f"{len(given) - len(never)} of {len(given)} templates used; never: {never[:20]}",
        ]
        lines += [
            f"{n:6} programs ran calls undecorated: {reason}"
            for reason, n in self.reasons.most_common(reasons)
        ]
        return "\n".join(lines)


def sort_of(reason: str) -> str:
    """A reason without what differs from program to program."""
    return re.sub(r"\d+", "#", reason.split(";")[0])[:110]


def main() -> None:
    words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdigit()]
    without = tuple(w for word in words if word.startswith("without=") for w in word[8:].split(",") if w)
    library = NAIVE if "naive" in words else TRACED
    tally, start = Tally(), time.monotonic()
    with contextlib.nullcontext() if "native" in words else interpreted():
        for seed in range(numbers[0], numbers[0] + (numbers[1] if len(numbers) > 1 else 1)):
            if "verbose" in words:
                print(f"seed {seed}", file=sys.stderr, flush=True)
            found = tally.run(seed, library, without)
            if len(numbers) == 1:
                print(found.text)
            if found.wrong is not None:
                print(f"seed {seed}: {'loud' if found.loud else 'SILENT'}: {found.wrong}", flush=True)
                if "minimal" in words:
                    print(f"{smaller(found.text, library)}\n", flush=True)
    seconds = time.monotonic() - start
    print(f"{tally.table()}\n{tally.programs / seconds:.1f} programs a second")


if __name__ == "__main__":
    main()
