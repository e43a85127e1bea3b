"""The battery: small programs that change something between calls, each run undecorated and traced.

A program builds fresh state, traces a function, and calls it between changes.  The harness runs it in two
worlds, one whose `w.trace` does nothing and one whose `w.trace` is `lamina.jit.trace`, and compares all that
shows after each call.  To declare one, write into a file programs_<subject>.py of this folder:

    from battery import lib as t
    from battery import program

    scale = 1.0

    @program("globals")
    def a_global_number_changes(w):
        @w.trace
        def f(x):
            return x * scale

        global scale
        for scale in w.rounds(2.0, 3.0, 2.0):
            w.call(f, w.x)

- Each world executes the file anew: globals, classes and defaults are its own, and `t` (also `w.lib`) is the
  library under test, Lamina or a peer; use names that PyTorch has too.  State of other modules is swapped by
  `w.patch(owner, name, value)`, which is undone; `w.undo(function, *args)` runs a function at the end.
  Default dtype, gradient mode and the generators' seeds are put back by the harness.
- `w.rounds(*steps)` yields the steps: once as given, then SETTLING rounds more, then one that counts as
  settled.  So a round should end where the next can begin.  Steps are values, or functions that the loop
  calls.  There are at least two, and what `f` reads, or is given, must differ between them.
- `w.call(f, *args, **kwargs)` calls f, CALLS times in the part as given and once in later rounds (`w.once`:
  once always).  Compared after each call are the result or the exception (type, text, notes, cause, the lines
  of the program in its traceback), what was printed, logged by `w.logger` and warned of, the arguments, what
  `w.see` was given, the two results before, the modes; for tensors dtype, shape, strides, requires_grad,
  is_leaf, .grad and values; which mutable objects are identical, and which tensors share memory.
- `w.see(name=object)` has an object compared after every call from then on; a function is called for it:
  `w.see(total=lambda: total)`.  `w.note(value)` compares a value here and now.
- `w.x` (4 floats) and `w.m` (2 x 3) are tensors; sharing shapes makes compiling cheap.  Use `w.pure(f)` for
  `jit.pure(f)`.
- `@program(kind, peers=False)`: the program needs what only Lamina has.  `jax=True`: its functions are pure
  but for what they read, and use t by names that jax.numpy has too.  `chained=True`: a call goes on from
  numbers that the calls before left (training), so the bound on their differences grows with the calls.

`python tests/soundness/battery.py [words]` runs the programs whose kind or name has one of the words, and
prints the table.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import importlib.util
import io
import itertools
import logging
import marshal
import os
import random
import re
import sys
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from observations import Library, Look, differing, identity, own, within
from refusable import HOLE, REFUSABLE

import lamina
from lamina.nn.members import fields

os.environ.setdefault("LAMINA_TRACE_BUDGET", "none")  # recordings are what is tried, however long they take

HERE = Path(__file__).parent
CALLS = 4  # of each step as given: the first may be recorded, three may be served
SETTLING = 3  # rounds before the one that counts as settled
KEPT = 2  # earlier results that are looked at again after each call

lib: Any = lamina  # the library of the world whose file is being executed


# ---- declaring programs ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Program:
    """A program by name; `fresh` makes one whose state nothing else has touched."""

    kind: str
    function: Callable[[World], None]
    peers: bool
    jax: bool
    chained: bool

    @property
    def name(self) -> str:
        return self.function.__name__

    @contextlib.contextmanager
    def fresh(self, library: Library) -> Iterator[Callable[[World], None]]:
        """Execute the program's file anew, as the module of its name, and yield the program's function."""
        global lib
        file = self.function.__code__.co_filename
        module = types.ModuleType(Path(file).stem)
        module.__file__ = file
        before, lib = (lib, sys.modules.get(module.__name__)), library.module
        sys.modules[module.__name__] = module
        try:
            exec(marshal.loads(_code_of(file)), module.__dict__)
            yield module.__dict__[self.name].function
        finally:
            lib = before[0]
            if before[1] is None:
                del sys.modules[module.__name__]
            else:
                sys.modules[module.__name__] = before[1]


@functools.cache
def _code_of(file: str) -> bytes:
    """A file's code, marshalled, so that each world gets code objects of its own."""
    return marshal.dumps(compile(Path(file).read_text(encoding="utf-8"), file, "exec", dont_inherit=True))


def program(
    kind: str, *, peers: bool = True, jax: bool = False, chained: bool = False
) -> Callable[[Callable], Program]:
    """Declare a program of a kind (see the head of this file)."""
    return lambda function: Program(kind, function, peers, jax, chained)


def programs(*words: str) -> list[Program]:
    """All programs of this folder, in order of file and line, or those whose kind or name has a word."""
    found: list[Program] = []
    for file in sorted(HERE.glob("programs_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module  # where dataclasses look
        spec.loader.exec_module(module)
        del sys.modules[file.stem]
        found += [p for p in vars(module).values() if isinstance(p, Program)]
    return [p for p in found if not words or any(word in p.kind or word in p.name for word in words)]


# ---- the libraries under test ------------------------------------------------------------------------------
def _lamina_fields(o: Any) -> dict[str, Any] | None:
    """Attributes of an object; of a module past its `__dict__`, which tells its epoch that it was read."""
    return fields(o) if isinstance(o, lamina.nn.Module) else own(o)


def _lamina_counts(traced: Any) -> tuple[int, int]:
    if hasattr(type(traced), "counts"):  # a traced module hands on the attributes of what it wraps
        counts = traced.counts()
        return counts["served"], counts["recorded"] + counts["eager"]
    log = traced._log
    return log.hits, len(log.recordings) + log.reasons.total() + log.waiting


EAGER = Library("eager", lamina, fields=_lamina_fields)
TRACED = Library(
    "lamina.jit.trace",
    lamina,
    trace=lamina.jit.trace,
    counts=_lamina_counts,
    reasons=lambda traced: traced._log.reasons,
    pure=getattr(lamina.jit, "pure", identity),
    fields=_lamina_fields,
)


# ---- a world -----------------------------------------------------------------------------------------------
class _Handler(logging.Handler):
    def __init__(self, into: list[tuple[str, str]]):
        super().__init__()
        self.into = into

    def emit(self, record: logging.LogRecord) -> None:
        self.into.append((record.levelname, record.getMessage()))


class World:
    """What a program gets: the library, a decorator, ways to call and to show (see the head of the file)."""

    def __init__(self, library: Library):
        self.library, self.lib = library, library.module
        self.outcomes: list[dict[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.warned = 0
        self._phase = "given"
        self._traced: list[Any] = []
        self._state: dict[str, Any] = {}
        self._results: collections.deque[Any] = collections.deque(maxlen=KEPT)
        self._stack = contextlib.ExitStack()
        self._out, self._err = io.StringIO(), io.StringIO()
        self._logged: list[tuple[str, str]] = []
        self._warned: list[warnings.WarningMessage] = []
        self.logger = logging.getLogger("soundness")

    def __enter__(self) -> World:
        t, enter = self.lib, self._stack.enter_context
        enter(contextlib.redirect_stdout(self._out))
        enter(contextlib.redirect_stderr(self._err))
        self._warned = enter(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        handler, self.logger.propagate = _Handler(self._logged), False
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(handler)
        self.undo(self.logger.removeHandler, handler)
        random.seed(0)
        np.random.seed(0)
        if hasattr(t, "manual_seed"):
            t.manual_seed(0)
            self.undo(t.set_default_dtype, t.get_default_dtype())
            self.undo(t.set_grad_enabled, t.is_grad_enabled())
        self.x = t.tensor([1.0, -2.0, 3.0, 0.5])
        self.m = t.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
        return self

    def __exit__(self, *error: Any) -> None:
        for traced in self._traced:
            self.reasons += self.library.reasons(traced)
        self._stack.__exit__(*error)

    # ---- what programs use ----
    def trace(self, function: Any) -> Any:
        """Trace a function or a module in the one world; hand it back as it is in the other."""
        self._traced.append(self.library.trace(function))
        return self._traced[-1]

    def pure(self, function: Any) -> Any:
        """Vouch for a function: `jit.pure`."""
        return self.library.pure(function)

    def rounds(self, *steps: Any) -> Iterator[Any]:
        """The steps as given, then again until they should have settled, then once more."""
        for phase in ("given", *("settling",) * SETTLING, "settled"):
            self._phase = phase
            yield from steps

    def call(self, f: Callable, *args: Any, **kwargs: Any) -> None:
        """Call f, more than once in the part as given, and compare after each call."""
        for _ in range(CALLS if self._phase == "given" else 1):
            self.once(f, *args, **kwargs)

    def once(self, f: Callable, *args: Any, **kwargs: Any) -> None:
        """Call f once, and compare."""
        outcome: dict[str, Any] = {}
        result = None
        before = self._counts()
        try:
            result = f(*args, **kwargs)
        except (Exception, SystemExit) as error:
            outcome["raised"] = _described(error, self.library.strict)
        served, ran = (b - a for a, b in zip(before, self._counts()))
        if "raised" in outcome:  # compiled code serves no call that raises
            self.calls["raised"] += 1
        else:
            self.calls[self._phase] += 1
            self.served[self._phase] += served > 0 and not ran
        self._look(outcome, result=result, args=args, kwargs=kwargs, earlier=list(self._results))
        self._results.append(result)

    def see(self, **state: Any) -> None:
        """Compare these objects after every call from now on; functions are called for what to compare."""
        self._state.update(state)

    def note(self, value: Any) -> None:
        """Compare a value."""
        self._look({}, value=value)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of what worlds share (a module, a library's class) until this world ends."""
        had = vars(owner).get(name, self)
        self.undo(delattr, owner, name) if had is self else self.undo(setattr, owner, name, had)
        setattr(owner, name, value)

    def undo(self, function: Callable, *args: Any) -> None:
        """Call a function when this world ends."""
        self._stack.callback(function, *args)

    # ---- observing ----
    def _counts(self) -> tuple[int, int]:
        counts = [self.library.counts(traced) for traced in self._traced]
        return sum(served for served, _ in counts), sum(ran for _, ran in counts)

    def _look(self, outcome: dict[str, Any], **shown: Any) -> None:
        state = {n: o() if isinstance(o, types.FunctionType) else o for n, o in self._state.items()}
        look = Look(self.library)
        outcome |= {name: look.at(o) for name, o in (shown | {"state": state}).items()}
        outcome["printed"], outcome["errors"] = self._out.getvalue(), self._err.getvalue()
        outcome["logged"] = list(self._logged)
        warned = [(w.category.__name__, str(w.message)) for w in self._warned]
        self.warned += len(warned)
        if self.library.strict:
            outcome["warned"] = warned
        outcome["modes"] = self.library.modes(self.lib)
        for kept in (self._out, self._err):
            kept.seek(0)
            kept.truncate()
        self._logged.clear()
        self._warned.clear()
        self.outcomes.append(outcome)


def _described(error: BaseException | None, lines: bool) -> Any:
    """An exception as far as it shows, with the program's lines in its traceback."""
    if error is None:
        return None
    text = re.sub(r"\b0x[0-9a-f]+", "0x", str(error))  # addresses differ from run to run
    found = {"type": type(error).__name__, "text": text, "notes": list(getattr(error, "__notes__", []))}
    found |= {"cause": _described(error.__cause__, lines), "context": _described(error.__context__, lines)}
    frames = traceback.extract_tb(error.__traceback__) if lines else []
    here = [frame for frame in frames if Path(frame.filename).name.startswith("programs_")]
    return found | {"lines": [(frame.name, frame.lineno) for frame in here]}


# ---- running a program -------------------------------------------------------------------------------------
def ran(program: Program, library: Library) -> World:
    """Run a program in a world of a library, and return the world."""
    with program.fresh(library) as function, World(library) as world:
        function(world)
    return world


def difference(
    eager: World, traced: World, chained: bool = False, equal: Callable[[Any, Any], bool] | None = None
) -> tuple[str | None, bool]:
    """The first difference between two worlds, and whether a user notices it (see Verdict).

    equal: what counts as equal, where not what `within` says.
    """
    for i, (a, b) in enumerate(itertools.zip_longest(eager.outcomes, traced.outcomes), 1):
        if a is None or b is None:
            return f"{len(eager.outcomes)} observations became {len(traced.outcomes)}", False
        if "raised" in b and "raised" not in a:
            return f"raised in observation {i}: {b['raised']['type']}: {b['raised']['text']}", True
        wrong = differing(a, b, f"observation {i}", equal or functools.partial(within, chained=i * chained))
        if wrong is not None:
            return wrong[:400], any(word in wrong.split(":")[0] for word in (".raised.", ".warned"))
    return None, False


@dataclass
class Verdict:
    """What became of a program: the first difference, and whether that was one that a user notices (another
    exception than eager's, or a warning that eager has not), so not silent.  warned: whether it warned more
    than eager, whatever was wrong.
    """

    program: Program
    wrong: str | None
    loud: bool
    warned: bool
    calls: Counter[str]
    served: Counter[str]
    reasons: Counter[str]

    @property
    def silent(self) -> bool:
        return self.wrong is not None and not self.loud and not self.hole

    @property
    def refusable(self) -> bool:
        """Whether it can only be refused."""
        return self.program.name in REFUSABLE

    @property
    def hole(self) -> bool:
        """Whether it goes through a hole that the documentation names."""
        return REFUSABLE.get(self.program.name) is HOLE

    @property
    def settled(self) -> bool:
        """Whether compiled code served every call that returned once the changes came round again."""
        return self.served["settled"] == self.calls["settled"]

    def counts(self) -> dict[str, int]:
        """What a summary adds up."""
        found = {"programs": 1, "silently wrong": int(self.silent), "settle": int(self.settled)}
        found |= {
            "servable": int(not self.refusable),
            "servable settle": int(self.settled and not self.refusable),
        }
        for phase in ("given", "settled"):
            found |= {f"calls {phase}": self.calls[phase], f"served {phase}": self.served[phase]}
        return found


def judged(program: Program, eager: World, library: Library) -> Verdict:
    """Run a program traced, and compare it with its undecorated run."""
    try:
        traced = ran(program, library)
    except Exception as error:  # between the calls: where it traces, or changes something
        wrong = f"raised outside of a call: {type(error).__name__}: {error}"
        return Verdict(program, wrong, True, False, eager.calls, Counter(), Counter())
    wrong, loud = difference(eager, traced, program.chained)
    return Verdict(
        program, wrong, loud, traced.warned > eager.warned, traced.calls, traced.served, traced.reasons
    )


# ---- planted tracers, which must be found wrong ------------------------------------------------------------
def naive(function: Any) -> Any:
    """Trace as one should not: the first result is the result from then on."""
    known: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not known:
            try:
                known.append(function(*args, **kwargs))
            except Exception as error:
                known.append(error)
        if isinstance(known[0], Exception):
            raise known[0]
        return _copied(known[0])

    return call


def _copied(o: Any) -> Any:
    if isinstance(o, lamina.Tensor):
        return o.detach().clone().requires_grad_(o.requires_grad)
    if type(o) in (list, tuple):
        return type(o)(_copied(x) for x in o)
    return {k: _copied(v) for k, v in o.items()} if type(o) is dict else copy.copy(o)


NAIVE = Library("naive", lamina, trace=naive, fields=_lamina_fields)


# ---- the table ---------------------------------------------------------------------------------------------
def table(verdicts: list[Verdict], reasons: int = 12) -> str:
    """What became of all programs, by kind, and why calls ran undecorated."""
    kinds: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        kinds.setdefault(verdict.program.kind, []).append(verdict)
    rows = [("kind", "programs", "silently wrong", "raised", "served as given", "served settled", "settle")]
    served = [v for v in verdicts if not v.refusable]
    for kind, group in [
        *sorted(kinds.items()),
        ("all", verdicts),
        ("all but what can only be refused", served),
    ]:
        shares = [
            f"{sum(v.served[phase] for v in group) / max(1, sum(v.calls[phase] for v in group)):.0%}"
            for phase in ("given", "settled")
        ]
        settle = f"{sum(v.settled for v in group) / max(1, len(group)):.0%}"
        wrong = sum(v.silent for v in group), sum(v.wrong is not None and v.loud for v in group)
        rows.append((kind, str(len(group)), *map(str, wrong), *shares, settle))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(c.ljust(n) if i == 0 else c.rjust(n) for i, (c, n) in enumerate(zip(row, widths)))
             for row in rows]  # fmt: skip
    lines += [
        f"wrong: {v.program.kind}: {v.program.name}: {v.wrong}" for v in verdicts if v.wrong is not None
    ]
    counted = sum((v.reasons for v in verdicts), Counter())
    lines += [f"{count:5} calls eager: {reason}" for reason, count in counted.most_common(reasons)]
    return "\n".join(lines)


def main() -> None:
    found = programs(*sys.argv[1:])
    print(table([judged(p, ran(p, EAGER), TRACED) for p in found], reasons=1000))


if __name__ == "__main__":
    sys.modules["battery"] = sys.modules["__main__"]  # programs import this file by its name
    main()
