"""Turns graphs into code: the one place where the tracer meets passes, programs and the cache.

A graph becomes two programs: one for what depends on weights alone, run when they change, and one for the
rest.  Both are kept by the graph's text, in this process and on disk, so what is recorded twice is compiled
once, and a second process neither runs passes nor compiles.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from ..ir import collector
from ..ir.by_pairs import from_pairs, to_pairs
from ..ir.dims import Condition, symbols_of
from ..ir.graph import Graph
from ..ir.locks import fork_safe_lock
from ..ir.specialise import specialise
from ..passes import cache as disk
from ..passes.graphs.pair_complex import pair_complex
from ..passes.pipeline import Options, optimise
from ..passes.programs.program import Array, Program
from ..runtime import asked_for, modes
from .prologues import Prologue
from .targets import CPU, Executable, Target, suited
from .template import Template, Unfit
from .tuning import Clock, Tuned, shown, tune, with_schedules
from .wiring import Wiring

KEPT = 256  # compiled graphs, whether anybody uses them or not
CHOICES = 4  # programs of one graph of symbols, where what is best hangs on their sizes
SMALL = 1 << 20  # bytes of scratch memory: larger ones go with the last recording that uses them
DEFAULT = Options()


class Compiled:
    """A graph as code for a target, shared by all recordings of the same text.

    before: the graph as given.  into, frozen: see `compile_graph`.  kernels: names, of the weights' program
    first.  from_disk: whether it was compiled by an earlier process.  seconds: what making it took.
    tuned: what a search for schedules came to, where one was asked for.  tables: arrays made of sizes, which
    programs take behind the graph's params.
    """

    tables: tuple[np.ndarray, ...] = ()

    def __init__(
        self, graph: Graph, into: tuple[int | None, ...], frozen: frozenset[int], options: Options,
        target: Target, key: str,
    ):  # fmt: skip
        start = perf_counter()
        self.before, self.into, self.frozen, self.target = pair_complex(graph), into, frozen, target
        # Which results are complex; None where no param and no result is.
        complexes = tuple(v.dtype.is_complex for v in graph.results)
        self.complexes = (
            complexes if any(complexes) or any(p.dtype.is_complex for p in graph.params) else None
        )
        self.options = suited(options, target)
        self.tuned: list[Tuned] = []
        self.searching = 0.0
        self.from_disk = self._load(key)
        if not self.from_disk:
            self._compile(key)
        self.seconds = perf_counter() - start

    def _compile(self, key: str) -> None:
        held = collector.put_off()
        with self.target.compiler(len(self.before.nodes)) as compiled:
            weights, main = self._programs()
            if self.options.tune and self.target.language == "llvm":
                began = perf_counter()
                main, self.tuned = tune(main, self.options.tune, version(), shown)
                shown(None)
                self.searching = perf_counter() - began
            executables = compiled([weights, main] if weights.results else [main])
        self.first = executables[0] if weights.results else None
        self.main = executables[-1]
        wiring = Wiring.of(self._params, weights, main)
        self._settle(wiring)
        about = [astuple(wiring), list(map(astuple, self.tuned))]
        disk.default().put(disk.key("about", key), json.dumps(about).encode())
        if self.first is not None:
            self.target.store(f"{key} weights", self.first)
        self.target.store(f"{key} main", self.main)
        del held

    def _settle(self, wiring: Wiring) -> None:
        """Note which param goes where, and what runs."""
        self.first_params, self.first_key = wiring.first, wiring.first_key
        self.main_params, self.kernel_names = wiring.main, wiring.kernels
        self._pick = _picked(self.main_params)

    def _load(self, key: str) -> bool:
        data = disk.default().get(disk.key("about", key))
        if data is None:
            return False
        try:
            wired, tuned = json.loads(data)
            wiring, self.tuned = Wiring(*wired), [Tuned(*one) for one in tuned]
        except (ValueError, TypeError):
            return False
        main = self.target.load(f"{key} main")
        self.first = self.target.load(f"{key} weights") if wiring.takes_weights else None
        if main is None or (self.first is None and wiring.takes_weights):
            return False
        self.main = main
        self._settle(wiring)
        return True

    def _programs(self) -> tuple[Program, Program]:
        program = self.target.program(self.graph, self.into, self._with_weights())
        self._params: tuple[Array, ...] = program.params
        return self.target.split(program, self.frozen)

    def _with_weights(self) -> Options:
        return replace(self.options, frozen=self.frozen)

    def apart(self) -> Executable:
        """The program of a call as one that tells a profiler of each kernel; made when it is first wanted."""
        found = self.__dict__.get("_apart")
        if found is None:
            found = self._apart = self._made_apart() or self.main
        return found

    def _made_apart(self) -> Executable | None:
        return self.target.apart(self.programs()[1])

    @property
    def recorded(self) -> Graph:
        """The graph that the passes were given, with its symbols."""
        return self.before

    def passed(self, graph: Graph) -> tuple[Graph, Program, Program]:
        """A graph that is the recorded one but for its nodes' places, which come through the passes with it.

        The graph after the passes, the program of the weights, and that of a call.
        """
        graph = optimise(graph, self._with_weights())
        program = self.target.program(graph, self.into, self._with_weights())
        weights, main = self.target.split(program, self.frozen)
        return graph, weights, with_schedules(main, self.tuned)

    def given(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """What the program of a call takes for arrays of the graph's params: what weights become is made."""
        if self.complexes is not None:
            arrays = [to_pairs(a) for a in arrays]
        arrays = (*arrays, *self.tables)
        made = () if self.first is None else self.first(*[arrays[i] for i in self.first_params])
        return self._pick((*arrays, *reversed(made)))

    @property
    def arena(self) -> int:
        """Bytes of scratch memory."""
        return sum(e.statistics.arena for e in (self.first, self.main) if e is not None)

    @property
    def graph(self) -> Graph:
        """The graph after the passes."""
        found = self.__dict__.get("_graph")
        if found is None:
            found = self._graph = optimise(self.before, self._with_weights())
        return found

    def kernels(self) -> list[str]:
        """The names of the kernels that a call runs, in order, without those of the weights."""
        return list(self.kernel_names[1])

    def programs(self) -> tuple[Program, Program]:
        """The program of the weights and the program of a call."""
        weights, main = self._programs()
        return weights, with_schedules(main, self.tuned)

    def source(self) -> str:
        """The code, as text: that of the weights' program, then that of a call."""
        texts = [text for program in self.programs() for text in self.target.source(program)]
        return "\n".join(dict.fromkeys(texts))

    def statistics(self) -> dict[str, float]:
        """Seconds of compiling and loading, and how many kernels run on the host."""
        made = [e for e in (self.first, self.main) if e is not None]
        return {
            "compile": sum(e.statistics.compile_seconds for e in made),
            "load": sum(e.statistics.load_seconds for e in made),
            "kernels": len(self.kernel_names[1]),
            "hosts": sum(name.startswith("host.") for names in self.kernel_names for name in names),
        }


class Fitted(Compiled):
    """A graph of symbols as code for some of their sizes, from the programs that all sizes share."""

    def __init__(
        self, template: Template, sizes: Mapping[str, int], frozen: frozenset[int], options: Options
    ):
        start = perf_counter()
        self.template, self.sizes = template, dict(sizes)
        self.into, self.frozen, self.target = template.into, frozen, template.target
        self.options = suited(options, template.target)
        self.complexes, self.tuned, self.searching = None, [], 0.0
        self.first, self.main, self.from_disk = template.at(sizes)
        self.tables = tuple(template.tables(sizes))
        self._settle(template.wiring)
        self.seconds = perf_counter() - start

    @property
    def before(self) -> Graph:  # type: ignore[override]
        return specialise(self.template.graph, self.sizes)

    @property
    def graph(self) -> Graph:
        return specialise(self.template.programs.graph, self.sizes)

    @property
    def recorded(self) -> Graph:
        return self.template.graph

    def passed(self, graph: Graph) -> tuple[Graph, Program, Program]:
        made = self.template.again(graph)
        return specialise(made.graph, self.sizes), made.weights, made.main.bound(self.sizes)

    def _programs(self) -> tuple[Program, Program]:
        programs = self.template.programs
        return programs.weights, programs.main.bound(self.sizes)

    def _made_apart(self) -> Executable | None:
        return self.template.apart(self.sizes)


class Bound:
    """A compiled graph for one recording, whose weights' results it keeps.

    shared: prologues of other graphs on the same weights, by what they do.  unfit: of a graph of symbols, why
    something is compiled for further sizes.
    """

    def __init__(self, code: Compiled, shared: dict[Any, Prologue] | None = None, unfit: str = ""):
        self.code, self.unfit = code, unfit
        self._main, self._pick, self._at = code.main, code._pick, code.first_params
        self._tables = code.tables
        run = None if code.first is None else code.target.kept(code.first)
        self.prologue = None if run is None else Prologue(lambda arrays: run(*map(to_pairs, arrays)))
        if self.prologue is not None and shared is not None:
            self.prologue = shared.setdefault((code.first_key, *self._at), self.prologue)

    def run(
        self, arrays: Sequence[np.ndarray], tensors: Sequence[Any] | None = None, are_same: bool = False
    ) -> tuple[np.ndarray, ...]:
        """The results; those with `into` are written into a param's array, when all is computed.

        tensors: those that frozen params' arrays belong to, by position: what was computed of them is kept
        for as long as they stay as they are.  Without it, it is computed anew.  are_same: as of `Prologue`.
        """
        if self._tables:
            arrays = (*arrays, *self._tables)
        kept = self.prologue
        complexes = self.code.complexes
        if complexes is not None:
            arrays = [to_pairs(a) for a in arrays]
        if kept is not None:
            if tensors is None:
                made = kept.run([arrays[i] for i in self._at])
            else:
                made = kept.results(() if are_same else [tensors[i] for i in self._at], are_same)
            arrays = (*arrays, *reversed(made))
        timing = modes.local.timing if modes.CHANGED else None
        main = self._main if timing is None else timing.aside(self.code.apart)
        found = main(*self._pick(arrays))
        if complexes is None:
            return found
        return tuple([from_pairs(x) if is_complex else x for x, is_complex in zip(found, complexes)])

    def __getattr__(self, name: str) -> Any:
        """What all recordings of the same text share: graph, kernels, source, statistics."""
        return getattr(self.code, name)


def _picked(positions: Sequence[int]) -> Any:
    """Chooses a program's params; negative positions count the weights' results from the end."""
    if len(positions) == 1:
        (at,) = positions
        return lambda arrays: (arrays[at],)
    return itemgetter(*positions) if positions else lambda arrays: ()


_known: WeakValueDictionary[tuple, Compiled] = WeakValueDictionary()
_kept: OrderedDict[tuple, Compiled] = OrderedDict()
_templates: OrderedDict[tuple, Template | Unfit] = OrderedDict()
_texts: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()
_singles: WeakKeyDictionary[Graph, dict[tuple[str, ...], Graph]] = WeakKeyDictionary()
_lock = fork_safe_lock()


def compile_graph(
    graph: Graph,
    *,
    into: Sequence[int | None] = (),
    frozen: frozenset[int] = frozenset(),
    options: Options = DEFAULT,
    target: Target = CPU,
    clock: Clock | None = None,
    prologues: dict[Any, Prologue] | None = None,
) -> Bound:
    """A graph ready to run, as code for the target.

    into[j]: the param whose array result j is written into when all is computed (None: a new array).
    frozen: params that change rarely, so that what depends on them alone may be kept.  clock: of searches for
    schedules, where the options ask for one.  prologues: shared with other graphs of the same weights.
    Raises KernelError for a graph that no code can be made of.
    """
    into = tuple(into) or (None,) * len(graph.results)
    text = _text(graph)
    key = (text, into, frozen, options, target.name)
    with _lock:
        found = _known.get(key)
        if found is not None:
            if key in _kept:
                _kept.move_to_end(key)
            return Bound(found, prologues)
    spelled = " ".join((text, str(into), str(sorted(frozen)), str(options), target.identity(), version()))
    made = Compiled(graph, into, frozen, options, target, spelled)
    if clock is not None:
        clock.seconds += made.searching
    with _lock:
        _known[key] = made
        if made.arena <= SMALL:
            _kept[key] = made
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return Bound(made, prologues)


def compile_sized(
    graph: Graph,
    sizes: Mapping[str, int],
    *,
    into: Sequence[int | None] = (),
    frozen: frozenset[int] = frozenset(),
    options: Options = DEFAULT,
    target: Target = CPU,
    clock: Clock | None = None,
    prologues: dict[Any, Prologue] | None = None,
    needs: Sequence[Condition] = (),
) -> Bound:
    """A graph of symbols ready to run at some of their sizes; otherwise as `compile_graph`.

    needs: what is so of the symbols at all sizes that it is to run at.  Symbols that are 1 are numbers: a
    single row has schedules of its own, on the same packed weights, and what is one long broadcasts.
    """
    options = replace(options, any_rows=True)
    ones = tuple(name for name, size in sizes.items() if size == 1)
    if ones:
        graph = _with_ones(graph, ones)
        sizes = {name: size for name, size in sizes.items() if size != 1}
    template = template_of(
        graph, sizes, into=into, frozen=frozen, options=options, target=target, needs=needs
    )
    if template:
        return Bound(Fitted(template, sizes, frozen, options), prologues, template.unfit)
    made = compile_graph(
        specialise(graph, sizes), into=into, frozen=frozen, options=options, target=target, clock=clock,
        prologues=prologues,
    )  # fmt: skip
    made.unfit = str(template)
    return made


def is_whole(code: Any) -> bool:
    """Whether what was compiled for some sizes serves others with hardly more compiling."""
    fitted = getattr(code, "code", None)
    return isinstance(fitted, Fitted) and fitted.template.is_whole


def template_of(
    graph: Graph,
    sizes: Mapping[str, int],
    *,
    into: Sequence[int | None] = (),
    frozen: frozenset[int] = frozenset(),
    options: Options = DEFAULT,
    target: Target = CPU,
    needs: Sequence[Condition] = (),
) -> Template | Unfit:
    """The programs of a graph of symbols that suit some sizes, made when they are first asked for; or why
    there are none."""
    if asked_for.is_deterministic():
        return Unfit("code for all sizes does not cut sums in parts, and rounds otherwise")
    into = tuple(into) or (None,) * len(graph.results)
    # Those of other symbols may be looked at later than this runs.
    own = tuple([c for c in needs if symbols_of(c.left) | symbols_of(c.right) <= sizes.keys()])
    text = _text(graph)
    first: Template | Unfit = Unfit()
    for number in range(CHOICES):
        key = (text, into, frozen, options, target.name, tuple(map(str, own)), number)
        with _lock:
            is_known = key in _templates
            if is_known:
                _templates.move_to_end(key)
                found = _templates[key]
        if not is_known:
            wanted = replace(suited(options, target), frozen=frozen)
            spelled = " ".join((*map(str, key), target.identity(), version()))
            try:
                found = Template(graph, into, frozen, wanted, target, sizes, own, spelled)
            except Unfit as error:
                found = error.with_traceback(None)
            with _lock:
                _templates[key] = found
                while len(_templates) > KEPT:
                    _templates.popitem(last=False)
        if not found or found.suits(sizes):
            return found or first or found
        first = first or found
    return first


def options_of(seconds: float, precision: str | None) -> Options:
    """The options of a trace that is to be tuned, if nothing forbids it, and multiplies in some precision.

    None: in the one that the program was told.
    """
    precision = precision or asked_for.precision()
    tune = 0.0 if asked_for.is_deterministic() else seconds
    return replace(DEFAULT, tune=tune, precision=precision)


def _with_ones(graph: Graph, names: tuple[str, ...]) -> Graph:
    """The graph some of whose symbols are 1: the same one for all sizes of the others."""
    known = _singles.setdefault(graph, {})
    if names not in known:
        known[names] = specialise(graph, dict.fromkeys(names, 1))
    return known[names]


def _text(graph: Graph) -> str:
    """What tells a graph from others: its text, and what its constants hold."""
    found = _texts.get(graph)
    if found is None:
        digest = hashlib.sha256(str(replace(graph, name="traced")).encode())
        for name, constant in graph.constants.items():
            digest.update(name.encode() + constant.data.tobytes())
        found = _texts[graph] = digest.hexdigest()
    return found


@cache
def version(*more: str) -> str:
    """What tells one state of the compiler's own files from another: their names, sizes and times.

    more: other rooms whose files count.
    """
    root, told = str(Path(__file__).resolve().parent.parent), []
    for room in ("ir", "passes", "runtime", "jit", *more):
        for folder, _, files in os.walk(f"{root}/{room}"):  # pathlib takes 11 ms, this 3
            for path in (f"{folder}/{file}" for file in files if file.endswith(".py")):
                about = os.stat(path)
                told.append((path.removeprefix(root), about.st_size, about.st_mtime_ns))
    return hashlib.sha256(repr(sorted(told)).encode()).hexdigest()


def forget() -> None:
    """Drop all compiled graphs of this process."""
    with _lock:
        _known.clear()
        _kept.clear()
        _templates.clear()
