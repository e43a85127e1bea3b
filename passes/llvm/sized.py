"""A program of symbols as native code: linked once, and run at any of their sizes.

    sized = Sized(program, target)
    linked = sized.at({"s1": 9})

Where one code of each kernel serves all sizes, the memory plan and all numbers that the main function needs
are formulas, and what is left for each set of sizes is to evaluate them.  A kernel whose axes are shorter
than its tiles has a second code with smaller ones, and a third without; the main function is one for each
choice among these.  A program with kernels that have no such code is linked for each set of sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...ir.dims import LEAST, MOST, Condition, evaluate, facts, for_once, hints, limits
from ...ir.errors import ShapeError, Unsayable
from ...ir.kernel.affine import Extent
from ..programs.host_parts import is_looked_at
from ..programs.memory_plan import verify
from ..programs.plan_memory import plan_memory
from ..programs.program import Call, Program
from ..programs.with_checks import with_checks
from ..schedules.target import Target
from .code import Code
from .generate import code_of, open_code
from .link import Linked, link, link_planned
from .variant import Variant

TILES = None, 4, 1  # points of a tile along an open axis at most: the first that serves is taken
Choice = tuple[int | None, ...]  # of them, for each call of symbols


@contextmanager
def for_sizes(sizes: Mapping[str, int], needs: Sequence[Condition]) -> Iterator[Collection[Condition]]:
    """A block for programs of these symbols, which have such sizes for once, and of which so much is so.

    Gives what is chosen by the sizes (`likely`).
    """
    told = hints(sizes)
    with limits(dict.fromkeys(sizes, (LEAST, MOST))), told, facts(needs, {}):
        yield told.chosen


class Sized:
    """A program of symbols, to be made and used within blocks of `hints` and `limits`, as `for_sizes`.

    unfit: why it is linked anew for further sizes; "" where it is not, unless axes are shorter than tiles.
    guard: as of `plan_memory`; a program that guards memory is linked for each set of sizes.
    """

    def __init__(self, program: Program, target: Target, guard: int = 0):
        self.program, self.target, self.guard = program, target, guard
        self.unfit = "memory is guarded" if guard else _unfit(program)
        if self.unfit:
            return
        self._codes: dict[tuple[Call, int | None], Code | None] = {}
        checked, self._flags = with_checks(program)
        self.plan = plan_memory(checked, self._scratch)
        self._open = tuple([call for call in self.plan.calls if call.kernel.symbols])
        without = next((call for (call, _), code in self._codes.items() if code is None), None)
        self.unfit = "" if without is None else f"there is no code of {without.name} that serves all sizes"
        self._variants: dict[Choice, tuple[Linked, Variant]] = {}
        if self.is_whole:
            verify(self.plan.at(for_once()))

    @property
    def is_whole(self) -> bool:
        return not self.unfit

    def _scratch(self, call: Call) -> int:
        code = self._code(call)
        return 0 if code is None else code.scratch

    def _code(self, call: Call, most: int | None = None) -> Code | None:
        key = call, most
        if key not in self._codes:
            is_open = bool(call.kernel.symbols)
            self._codes[key] = open_code(call, self.target, most) if is_open else code_of(call, self.target)
        return self._codes[key]

    def at(self, sizes: Mapping[str, int]) -> Linked:
        """The program where symbols are these sizes."""
        found = self.variant(sizes)
        if found is None:
            return link(self.program, self.target, guard=self.guard, sizes=sizes)
        linked, variant = found
        return linked.with_manifest(variant.manifest(sizes))

    def variant(self, sizes: Mapping[str, int]) -> tuple[Linked, Variant] | None:
        """The code that serves these sizes and others; None where they have code of their own."""
        choice = self._choice(sizes) if self.is_whole else None
        if choice is None:
            return None
        if choice not in self._variants:
            try:
                linked = self._link(choice)
            except ShapeError as error:  # a formula of its manifest is longer than a dimension may be
                self.unfit = error.rule
                return None
            larger = [(call, most) for call, own in zip(self._open, choice) for most in _before(own)]
            codes = [self._code(call, most) for call, most in zip(self._open, choice)]
            takes = dict.fromkeys(pair for code in codes if code is not None for pair in code.least)
            lacks = [code.least for call, most in larger if (code := self._code(call, most)) is not None]
            made = Variant.of(tuple(sizes), linked.manifest, self.plan.offsets, tuple(takes), lacks)
            self._variants[choice] = linked, made
        return self._variants[choice]

    def variants(self, entry: str) -> Iterator[tuple[Linked, tuple[tuple[Extent, int], ...]]]:
        """Programs of formulas that serve all sizes together, for where nothing can be linked later.

        With each what it takes: extents, and what they must at least be.  The last takes nothing.  entry:
        what the names of their functions begin with.  Raises Unsayable where the program isn't whole.
        """
        if not self.is_whole:
            raise Unsayable(f"{self.program.name}: {self.unfit}")
        for most in TILES:
            codes = [self._code(call, most) for call in self._open]
            if all(code is not None for code in codes):
                least = dict.fromkeys(pair for code in codes if code is not None for pair in code.least)
                try:
                    linked = self._link((most,) * len(codes), f"{entry}{most or ''}")
                except ShapeError as error:
                    raise Unsayable(f"{self.program.name}: {error.rule}") from None
                yield linked, tuple(least)
                if not least:
                    return
        raise Unsayable(f"{self.program.name}: no code serves sizes below those of tiles")

    def _choice(self, sizes: Mapping[str, int]) -> Choice | None:
        """The tiles of each call of symbols; None where no code of one serves these sizes."""
        found = list[int | None]()
        for call in self._open:
            for most in TILES:
                code = self._code(call, most)
                if code is not None and all(evaluate(n, sizes) >= least for n, least in code.least):
                    found.append(most)
                    break
            else:
                return None
        return tuple(found)

    def _link(self, choice: Choice, entry: str = "lamina_main") -> Linked:
        tiles = dict(zip(self._open, choice, strict=True))
        codes = {call: self._code(call, tiles.get(call)) for call in self.plan.calls}
        return link_planned(self.plan, codes, self._flags, entry)


def _unfit(program: Program) -> str:
    """What of a program Python runs or looks at, which it does for given sizes; "" where there is nothing."""
    for host in program.hosts:
        return f"{host.name.removeprefix('host.')} has no kernel"
    for call in program.all_calls:
        if is_looked_at(call):
            return f"{call.name} reads at indices that it computes, which only Python can check"
    return ""


def _before(most: int | None) -> Sequence[int | None]:
    """The tiles that are tried before these."""
    return TILES[: TILES.index(most)]
