"""Programs of symbols: made once of a graph whose sizes are symbols, and run at any of their sizes.

    template = Template(graph, into, frozen, options, target, {"s1": 6})
    code = template.at({"s1": 9})

The passes go over the graph as it is, with symbols; they choose by the sizes that they are told (`hint`), and
what a choice makes is right for all.  What is left for each set of sizes is to evaluate formulas (`Sized` of
passes/llvm/sized.py), unless a kernel has no code that serves all.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from ..ir.dims import Condition, Dim, function_of
from ..ir.errors import LaminaError
from ..ir.graph import Graph
from ..ir.locks import cached_property, fork_safe_lock
from ..ir.table import as_params, table
from ..passes import cache as disk
from ..passes.llvm.sized import Sized, for_sizes
from ..passes.llvm.variant import need_formulas
from ..passes.pipeline import Options, optimise
from ..passes.programs.program import Array, Program
from ..runtime import guard, native
from .sized import with_sizes
from .targets import Executable, Target
from .wiring import Wiring

KEPT = 32  # codes, where sizes have some of their own


class Unfit(Exception):
    """A graph whose programs can't be made of symbols: (why).  It stands for none, and is false."""

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Programs:
    """What a graph of symbols becomes.

    graph: after the passes.  params: the program's.  weights, main: the programs.  sized: main as code.
    chosen: what was so of the sizes, where a choice hung on it.
    """

    graph: Graph
    params: tuple[Array, ...]
    weights: Program
    main: Program
    sized: Sized
    chosen: tuple[Condition, ...]


class Template:
    """The programs of a graph of symbols.  Raises Unfit where they would depend on the sizes.

    graph, into, frozen, options, target: as of `compile_graph`.  sizes: of the symbols, to choose by.  needs:
    what is so of them at all sizes.  key: what tells it from others on disk, where code for sizes that an
    earlier process met is taken from; the programs are made when that is not enough.
    wiring: which arrays the programs take.  unfit: why something is compiled for further sizes; "" where
    nothing is, unless they are small.
    """

    def __init__(
        self,
        graph: Graph,
        into: tuple[int | None, ...],
        frozen: frozenset[int],
        options: Options,
        target: Target,
        sizes: Mapping[str, int],
        needs: Sequence[Condition],
        key: str,
    ):
        if target.language != "llvm" or options.tune or any(v.dtype.is_complex for v in _values(graph)):
            raise Unfit("it is for another target, tuned, or complex")
        self.graph, self.into, self.target, self.names = graph, into, target, tuple(sizes)
        self._frozen, self._options, self._needs, self._sizes = frozen, options, tuple(needs), dict(sizes)
        _, self._tables = as_params(graph)
        self._first: Executable | None = None
        self._codes: list[native.Resizable] = []
        self._mains: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._scratch = native.Scratch()  # all sizes share it
        self._lock = fork_safe_lock()
        self._key, self._from_disk = f"{key} {guard.MODE}", True
        if not self._load():
            self._from_disk = False
            programs = self.programs
            self.wiring = Wiring.of(programs.params, programs.weights, programs.main)
            self.unfit, self._suits = programs.sized.unfit, _function(self.names, programs.chosen)
            self._store()

    @cached_property
    def programs(self) -> Programs:
        return self.again(self.graph)

    def again(self, graph: Graph) -> Programs:
        """The programs of an equal graph, whose places may be others.  Raises Unfit."""
        graph = as_params(graph)[0]
        try:
            with for_sizes(self._sizes, self._needs) as chosen:
                optimised = optimise(graph, self._options)
                program = self.target.program(optimised, self.into, self._options)
                weights, main = self.target.split(program, self._frozen)
                if _is_sized(weights):
                    raise Unfit("what is made of weights alone has sizes in it")
                sized = self.target.sized(main)
                return Programs(optimised, program.params, weights, main, sized, tuple(chosen))
        except (LaminaError, TypeError) as error:  # a size is no number, and what asks for one says so
            raise Unfit(str(error)) from error

    def tables(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The arrays that are made of these sizes, which the programs take behind the graph's params."""
        return [table.reference(**with_sizes([*node.attrs.items()], sizes)) for node in self._tables]

    @property
    def is_whole(self) -> bool:
        return not self.unfit

    def at(self, sizes: Mapping[str, int]) -> tuple[Executable | None, Executable, bool]:
        """What runs the two programs at these sizes: that of the weights, if there is any, and the other;
        and whether both are an earlier process's.
        """
        with self._lock:
            if self._first is None and self.wiring.takes_weights:
                with self.target.compiler(len(self.graph.nodes)) as compiled:
                    (self._first,) = compiled([self.programs.weights])
                self.target.store(f"{self._own_key} weights", self._first)
            for code in self._codes:
                if code.variant.serves(sizes):
                    return self._first, code.at(sizes), self._from_disk
            self._from_disk = False
            with for_sizes(sizes, self._needs):
                return self._first, self._main_at(sizes), False

    def _main_at(self, sizes: Mapping[str, int]) -> Executable:
        sized = self.programs.sized
        linked = sized.at(sizes)
        made = native.Executable.of_linked(linked, self._mains, self._scratch)
        while len(self._mains) > KEPT:
            self._mains.popitem(last=False)
        self.unfit = sized.unfit
        if (found := sized.variant(sizes)) is not None:
            code = native.Resizable.of(found[1], made)
            code.store(f"{self._own_key} {len(self._codes)}")
            self._codes.append(code)
            self._store()
        return made

    def apart(self, sizes: Mapping[str, int]) -> Executable | None:
        """What runs the main program at these sizes, and tells a profiler of each kernel."""
        with self._lock, for_sizes(sizes, self._needs):
            return self.target.apart(self.programs.main, sizes)

    def suits(self, sizes: Mapping[str, int]) -> bool:
        """Whether what was chosen by the sizes that it was made with would be chosen by these."""
        return all(self._suits(**sizes))

    # ---- on disk
    @property
    def _own_key(self) -> str:
        """Of code by what these sizes chose: another process may have met others first."""
        return f"{self._key} {self._sizes}"

    def _store(self) -> None:
        """Keep what a later process needs, where its code serves all sizes."""
        if self.is_whole:
            told = [self._sizes, [*map(str, self.programs.chosen)], astuple(self.wiring), len(self._codes)]
            disk.default().put(disk.key("template", self._key), json.dumps(told).encode())

    def _load(self) -> bool:
        """Take what an earlier process kept; whether there is all that a call needs."""
        data = disk.default().get(disk.key("template", self._key))
        if data is None:
            return False
        try:
            sizes, chosen, wired, count = json.loads(data)
            for condition in chosen:
                left, _, right = re.split(" (==|!=|>=) ", condition)
                need_formulas((left, right), self.names)
            wiring, suits = Wiring(*wired), _function(self.names, chosen)
        except (ValueError, TypeError):
            return False
        given, self._sizes = self._sizes, sizes
        found = [native.Resizable.stored(f"{self._own_key} {n}", self._scratch) for n in range(count)]
        codes = [code for code in found if code is not None and code.variant.names == self.names]
        first = self.target.load(f"{self._own_key} weights") if wiring.takes_weights else None
        if not codes or len(codes) < count or first is None and wiring.takes_weights:
            self._sizes = given
            return False
        self._codes, self._first = codes, first
        self.wiring, self._suits, self.unfit = wiring, suits, ""
        return True


def _function(names: Sequence[str], conditions: Sequence[Condition | str]) -> Callable[..., tuple[int, ...]]:
    """Whether conditions hold, as a function of the symbols of these names."""
    return function_of(names, [*map(str, conditions)])


def _values(graph: Graph) -> Sequence[Any]:
    return [*graph.params, *graph.results, *(v for node in graph.nodes for v in node.outputs)]


def _is_sized(program: Program) -> bool:
    """Whether an array of a program has a symbol in its shape."""
    return any(isinstance(n, Dim) for array in program.arrays() for n in array.shape)
