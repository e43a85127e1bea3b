"""Programs of symbols as functions of arrays: native code reads the sizes of those that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import eq, ge, ne

from ..ir.dims import Condition, function_of
from ..ir.kernel.affine import Extent
from ..ir.kernel.types import NUMPY
from ..passes.llvm import read_sizes
from ..passes.llvm.binding import Library
from ..passes.llvm.link import Linked
from ..passes.llvm.native_manifest import ARENA, Native
from ..passes.schedules.target import Target
from . import memory, workers
from .compiler import compiled
from .entry import RELEASE_FROM, Entry
from .native import Frame, straight

OWN = 1 << 20  # bytes of scratch memory that one may have for itself
_RELATIONS: dict[str, Callable[[int, int], bool]] = {"==": eq, "!=": ne, ">=": ge}


class Opened:
    """A program of one native part, linked for all sizes that its code serves; it makes its results anew.

    linked, offsets: in formulas.  sizes: its symbols, and between what they lie.  least, needs: what must
    hold of them (read_sizes.py).  texts: of all its modules.

    A function of `at` knows the sizes that it makes results for, and nothing depends on that: the code looks
    at all arrays' sizes, those of the results too, and at the scratch memory that there is, whose size
    stands in the table behind the program's own numbers.
    """

    def __init__(
        self,
        linked: Linked,
        offsets: Mapping[str, Sequence[Extent]],
        sizes: Mapping[str, tuple[int, int]],
        least: Sequence[tuple[Extent, int]],
        needs: Sequence[Condition],
        target: Target,
    ):
        self.linked, self.target = linked, target
        manifest = linked.manifest
        self._tests = [*(_RELATIONS[need.relation] for need in needs), *[ge] * len(least)]
        differences = [
            *(need.left - need.right for need in needs),
            *(size - number for size, number in least),
        ]
        shapes = [shape for _, shape in manifest.results]
        dims = [*differences, *(n for shape in shapes for n in shape), manifest.arena, manifest.nanoseconds]
        self._values = function_of(tuple(sizes), dims, offsets)
        self._results: list[tuple] = []
        first = len(differences)
        for dtype, shape in manifest.results:
            self._results.append((first, first + len(shape), NUMPY[dtype]))
            first += len(shape)
        head = object.__basicsize__
        reading = read_sizes.text(manifest, offsets, sizes, least, needs, head, RELEASE_FROM)
        self.texts = (*linked.texts, reading)

    def load(self) -> None:
        """Compile it, or take it from the cache."""
        manifest = self.linked.manifest
        self._library = Library(compiled(self.texts, self.target), self.target)
        numbers = (0,) * (len(manifest.numbers) + 1)
        framed = replace(manifest, numbers=numbers, arena=0, nanoseconds=0.0)
        self._frame = Frame(framed, self.linked.constants, memory.arena(0))
        (part,) = manifest.parts
        assert isinstance(part, Native)
        main, sizes = self._library.address(part.symbol), self._library.address(read_sizes.SYMBOL)
        self._entry = Entry(manifest, main, self._frame.table, sizes=sizes)

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether its code is for these sizes."""
        if not self._tests:
            return True
        values = self._values(*sizes)
        return all([holds(value, 0) for holds, value in zip(self._tests, values, strict=False)])

    def at(
        self, sizes: Sequence[int], given: tuple[bool, ...], several: bool, otherwise: Callable
    ) -> Callable | None:
        """A function of arrays of these sizes, as `Executable.direct` makes one; None where it wants much
        scratch memory."""
        values = self._values(*sizes)
        nbytes, nanoseconds = values[-2:]
        if not self._has_room(nbytes):
            return None
        parts: list = []
        for first, last, dtype in self._results:
            shape = values[first:last]
            parts += memory.maker(shape, dtype), shape, dtype
        forks = nanoseconds > 2 * workers.LEAST_GRAIN
        maker = straight(given, len(self._results), several, forks)
        return maker(self, self._entry.function, otherwise, *parts)

    def _has_room(self, nbytes: int) -> bool:
        """Whether there is scratch memory of so many bytes; made larger where that can be."""
        frame = self._frame
        if nbytes <= frame.arena.size:
            return True
        if nbytes > OWN or self._entry.is_busy:  # nobody begins meanwhile, who would have to be in Python
            return False
        frame.arena = memory.arena(min(max(nbytes, 2 * frame.arena.size), OWN))
        frame.table[ARENA], frame.table[-1] = memory.address(frame.arena), frame.arena.size
        return True
