"""Programs of symbols: made once of a graph whose sizes are symbols, and run at any of their sizes.

    template = Template(graph, into, frozen, options, target, {"s1": 6})
    code = template.at({"s1": 9})

The passes go over the graph as it is, with symbols; they choose by the sizes that they are told (`hint`), and
what a choice makes is right for all.  What is left for each set of sizes is to evaluate formulas (`Sized` of
passes/llvm/sized.py), unless a kernel has no code that serves all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.dims import Condition, Dim
from ..ir.errors import LaminaError
from ..ir.graph import Graph
from ..ir.locks import fork_safe_lock
from ..ir.table import as_params, table
from ..passes.llvm.sized import for_sizes
from ..passes.pipeline import Options, optimise
from ..passes.programs.program import Program
from ..runtime import native
from .sized import with_sizes
from .targets import Executable, Target

KEPT = 32  # codes, where sizes have some of their own


class Unfit(Exception):
    """A graph whose programs can't be made of symbols: (why).  It stands for none, and is false."""

    def __bool__(self) -> bool:
        return False


class Template:
    """The programs of a graph of symbols.  Raises Unfit where they would depend on the sizes.

    graph, into, frozen, options, target: as of `compile_graph`.  sizes: of the symbols, to choose by.  needs:
    what is so of them at all sizes.
    is_whole: whether nothing is compiled for further sizes, unless they are small.
    """

    def __init__(
        self,
        graph: Graph,
        into: tuple[int | None, ...],
        frozen: frozenset[int],
        options: Options,
        target: Target,
        sizes: Mapping[str, int],
        needs: Sequence[Condition] = (),
    ):
        if target.language != "llvm" or options.tune or any(v.dtype.is_complex for v in _values(graph)):
            raise Unfit("it is for another target, tuned, or complex")
        self.graph, self.into, self.target, self.names = graph, into, target, tuple(sizes)
        self._frozen, self._options, self._needs, self._sizes = frozen, options, tuple(needs), dict(sizes)
        graph, self._tables = as_params(graph)
        try:
            with for_sizes(sizes, self._needs) as chosen:
                self.optimised = optimise(graph, options)
                program = target.program(self.optimised, into, options)
                self.params = program.params
                self.weights, self.main = target.split(program, frozen)
                if _is_sized(self.weights):
                    raise Unfit("what is made of weights alone has sizes in it")
                self.sized = target.sized(self.main)
                self._chosen = tuple(chosen)
        except (LaminaError, TypeError) as error:  # a size is no number, and what asks for one says so
            raise Unfit(str(error)) from error
        self._first: Executable | None = None
        self._mains: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._scratch = native.Scratch()  # all sizes share it
        self._lock = fork_safe_lock()

    def again(self, graph: Graph) -> Template:
        """The same of an equal graph, whose places are others."""
        into, frozen, options = self.into, self._frozen, self._options
        return Template(graph, into, frozen, options, self.target, self._sizes, self._needs)

    def tables(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The arrays that are made of these sizes, which the programs take behind the graph's params."""
        return [table.reference(**with_sizes([*node.attrs.items()], sizes)) for node in self._tables]

    @property
    def unfit(self) -> str:
        """Why something is compiled for further sizes; "" where nothing is."""
        return self.sized.unfit

    @property
    def is_whole(self) -> bool:
        return not self.unfit

    def at(self, sizes: Mapping[str, int]) -> tuple[Executable | None, Executable]:
        """What runs the two programs at these sizes: that of the weights, if there is any, and the other."""
        with self._lock, for_sizes(sizes, self._needs):
            if self._first is None and self.weights.results:
                with self.target.compiler(len(self.graph.nodes)) as compiled:
                    (self._first,) = compiled([self.weights])
            found = native.Executable.of_linked(self.sized.at(sizes), self._mains, self._scratch)
            while len(self._mains) > KEPT:
                self._mains.popitem(last=False)
        return self._first, found

    def apart(self, sizes: Mapping[str, int]) -> Executable | None:
        """What runs the main program at these sizes, and tells a profiler of each kernel."""
        with self._lock, for_sizes(sizes, self._needs):
            return self.target.apart(self.main, sizes)

    def suits(self, sizes: Mapping[str, int]) -> bool:
        """Whether what was chosen by the sizes that it was made with would be chosen by these."""
        return all(condition.holds(sizes) for condition in self._chosen)


def _values(graph: Graph) -> Sequence[Any]:
    return [*graph.params, *graph.results, *(v for node in graph.nodes for v in node.outputs)]


def _is_sized(program: Program) -> bool:
    """Whether an array of a program has a symbol in its shape."""
    return any(isinstance(n, Dim) for array in program.arrays() for n in array.shape)
