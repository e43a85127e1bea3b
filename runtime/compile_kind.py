"""One op, or its gradients, as native code for all sizes of a kind; loaded when the first wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir.dims import LEAST, MOST, Condition, symbol
from ..ir.errors import KernelError, ShapeError, Unsayable
from ..ir.graph import Builder, Graph
from ..ir.kernel.form import Local
from ..ir.locks import fork_safe_lock
from ..passes.kernels.product import products
from ..passes.llvm.binding import host_target
from ..passes.llvm.sized import Sized, for_sizes
from . import asked_for, guard, native
from .compile_op import are_cached, emitted, program_of
from .interrupts import let_through
from .kernels import Backward, Forward, Types, UnfitError, warn
from .of_symbols import OfSymbols, of_symbols
from .opened import Opened
from .operand_layouts import Layout

ENTRY = "lamina_open"  # what the names of main functions begin with
_scratch = native.Scratch()  # of the calls that no quick entry takes


class KindDraft:
    """What is computed as a program of symbols, to be compiled by `load`.

    what, types, layout: of one of the kind.  Each of its operands' sizes above one is a symbol; of those that
    must be equal, one is.  What else is asked about them is answered as it is for these types, and must be so
    of those that it serves.  Raises UnfitError where there is no such program, or where one of known sizes is
    much quicker: for products, whose layouts are chosen by their sizes.

    prefers_own: whether code of a shape's own is so much quicker that a few shapes had better have it: what
    runs along an open axis can't be held on the stack, and is computed again where it is read.
    """

    def __init__(self, what: Forward | Backward, types: Types, layout: Layout):
        if guard.MODE:
            raise UnfitError("what is guarded is made for its sizes")
        self.op, self.layout, self.target, self._lock = what.op, layout, host_target(), fork_safe_lock()
        try:
            self._kind = self._emitted(what, types, layout)
            self._sizes = self._kind.function([tuple(map(symbol, self._kind.sizes))])
            with for_sizes(self._kind.sizes, self._kind.needs):
                program = program_of(what, self._kind.made, self.target)
                kernels = [call.kernel for call in program.calls]
                if any(p.m and p.n for kernel in kernels for p in products(kernel)):
                    raise UnfitError(f"{what.op.name} is a product, whose layout is chosen by its sizes")
                self.prefers_own = any(isinstance(s, Local) and s.axes for k in kernels for s in k.stages)
                self._sized = Sized(program, self.target)
        # A size is no number, and what asks for one says so; or arrays are of one size, which no type says.
        except (ShapeError, TypeError, KernelError) as error:
            raise UnfitError(str(error)) from error
        self._further: Iterator[tuple] = self._sized.variants(ENTRY)
        self._variants: list[Opened] = []
        self._mains: dict[tuple[str, ...], Any] = {}
        first = self._next()
        if first is None:
            raise UnfitError(f"{what.op.name} has no code for all sizes")
        self._variants.append(first)

    def _emitted(self, what: Forward | Backward, types: Types, layout: Layout) -> OfSymbols[Graph]:
        def make(operands: Types, sizes: dict[str, int]) -> tuple[Graph, Sequence[Condition]]:
            with Builder(what.op.name, sizes) as b:
                return emitted(b, *_of_operands(what, operands), layout), b.conditions

        return of_symbols(what.operands(types), make)

    def _next(self) -> Opened | None:
        """A further program, of smaller tiles, which fewer points fill; None where there is none."""
        with for_sizes(self._kind.sizes, self._kind.needs):
            try:
                linked, least = next(self._further)
                between = dict.fromkeys(self._kind.sizes, (LEAST, MOST))
                offsets = self._sized.plan.offsets
                made = Opened(linked, offsets, between, least, self._kind.needs, self.target)
            except (StopIteration, Unsayable):
                return None
        return made

    @property
    def is_cached(self) -> bool:
        """Whether an earlier process compiled it."""
        return are_cached(self._variants[0].texts, self.target)

    def sizes_of(self, operands: Types) -> tuple[int, ...] | None:
        """The sizes of its symbols where operands have these types; None for those that it doesn't serve."""
        found = self._sizes(operands)
        return None if found is None else found[0]

    def load(self) -> None:
        """Compile it, or take it from the cache."""
        self._variants[0].load()

    def direct(
        self, operands: Types, given: tuple[bool, ...], several: bool, otherwise: Callable
    ) -> Callable | None:
        """A function of arrays for operands of these types, as `Executable.direct` makes one.

        None where there is none, or where it wants much scratch memory.
        """
        sizes = self.sizes_of(operands)
        code = None if sizes is None else self.opened(sizes)
        return None if code is None or sizes is None else code.at(sizes, given, several, otherwise)

    def opened(self, sizes: Sequence[int]) -> Opened | None:
        """The code that serves these sizes, if any does.  Further code is compiled where they are small.

        None under deterministic algorithms: long sums are not cut in it, and round otherwise.
        """
        if asked_for.is_deterministic():
            return None
        for made in self._variants:
            if made.serves(sizes):
                return made
        try:
            with self._lock:
                while (further := self._next()) is not None:
                    further.load()
                    self._variants.append(further)  # others may run it from here on
                    if further.serves(sizes):
                        return further
        except Exception as error:  # whatever it is, there is other code
            let_through(error)
            self._further = iter(())
            warn(self.op, error)
        return None

    def slowly(self, sizes: Sequence[int]) -> Callable[..., tuple[np.ndarray, ...]]:
        """A function of arrays of these sizes that may lie as they like; made when it is first called."""
        made: Callable[..., tuple[np.ndarray, ...]] | None = None

        def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            nonlocal made
            if made is None:
                with self._lock, for_sizes(self._kind.sizes, self._kind.needs):
                    linked = self._sized.at(dict(zip(self._kind.sizes, sizes, strict=True)))
                    made = native.Executable.of_linked(linked, self._mains, _scratch)
            return made(*arrays)

        return run


def _of_operands(what: Forward | Backward, operands: Types) -> tuple[Any, Types]:
    """The same for operands of these types, and the types of what it is given."""
    if isinstance(what, Forward):
        return what, operands
    inferred = what.op.infer(*operands, **what.attrs)
    outs = inferred if isinstance(inferred, tuple) else (inferred,)
    made = replace(what, types=(*operands, *outs))
    return made, made.given
