"""How a kernel runs: a schedule is a list of small steps, which has a text that parses.

    matmul by collapse() pack(b, j) vectorise(j, 2) tile(i, 12) block(j, 32) block(i, 96) peel(j)

Some steps rewrite the kernel (`apply`), and what it means is the same after each of them: the interpreter can
tell.  The others say how its loops are written, and leave it as it is.  A generator of code asks the schedule
by the names of axes; which steps it knows is its own business.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import TypeVar, get_type_hints

from ...ir.errors import KernelError
from ...ir.kernel.form import Axis, Kernel
from ...ir.locks import cached_property
from ..kernels.blocking import split_axis
from ..kernels.collapse import collapsed
from .gpu import GPU_STEPS, Precision
from .language import Language, Step

SIDE = 16  # rows, columns and pairs of a matrix register
NEIGHBOURS = {"bf16": 2, "i16": 2, "i8": 4, "u8": 4}  # of 32 bits, which one instruction adds up
FEWEST_PAIRS = 6  # of a register that is worth its while
CHUNK = 4096  # elements: with a few operands they fit the nearest cache, and are work for about 1 us


# ---- steps that rewrite the kernel
@dataclass(frozen=True)
class Collapse(Step):
    """Axes that are neighbours in every access become one, and buffers flat."""

    name = "collapse"
    rewrites = True

    def apply(self, kernel: Kernel) -> Kernel:
        return collapsed(kernel)


@dataclass(frozen=True)
class Split(Step):
    """An axis becomes two, the inner of `size` points; it stands where stores are contiguous."""

    name = "split"
    rewrites = True
    axis: str
    size: int

    def apply(self, kernel: Kernel) -> Kernel:
        return split_axis(kernel, self.axis, self.size)[0]


@dataclass(frozen=True)
class Reorder(Step):
    """The parallel axes in the order in which units of work are counted, slowest first."""

    name = "reorder"
    rewrites = True
    axes: tuple[str, ...]

    def apply(self, kernel: Kernel) -> Kernel:
        if sorted(self.axes) != sorted(kernel.parallel_names):
            raise KernelError(
                f"{kernel.name}: an order has each parallel axis once",
                f"order: {', '.join(self.axes)}",
                f"axes: {', '.join(map(str, kernel.parallel))}",
            )
        return kernel.replace(parallel=tuple(Axis(axis, kernel.extents[axis]) for axis in self.axes))


# ---- steps that say how loops are written
@dataclass(frozen=True)
class Vectorise(Step):
    """Neighbours along an axis share a register, and `vectors` of it are held at once.

    lanes: elements of a vector; 0: as many as the target's have.
    """

    name = "vectorise"
    axis: str
    vectors: int = 1
    lanes: int = 0


@dataclass(frozen=True)
class Scalar(Step):
    """One element at a time: where vectors would meet in one element, or a scan runs along the axis."""

    name = "scalar"
    axis: str | None = None


@dataclass(frozen=True)
class Tile(Step):
    """Points of a parallel axis that are computed together in registers, and share what they load."""

    name = "tile"
    parallel = True
    axis: str
    size: int


@dataclass(frozen=True)
class Unroll(Step):
    """Iterations of a summed axis in a step of its loop."""

    name = "unroll"
    parallel = False
    axis: str
    size: int


@dataclass(frozen=True)
class Block(Step):
    """Points of a parallel axis in a unit of work; where there is no such step: a tile, or CHUNK elements."""

    name = "block"
    parallel = True
    axis: str
    size: int


@dataclass(frozen=True)
class Keep(Step):
    """A Local's results are staged in an array on the stack; else they are computed where they are used."""

    name = "keep"
    local: str


@dataclass(frozen=True)
class Stream(Step):
    """Full vectors are stored past the caches, where the outputs are aligned.

    least: along an axis of any number of points, where there are so many.
    """

    name = "stream"
    least: int = 0


@dataclass(frozen=True)
class Bound(Step):
    """The guards of a sum's factors become the bounds of its loops: taps beside an image are not computed."""

    name = "bound"


@dataclass(frozen=True)
class Peel(Step):
    """The ends of an axis, where windows leave an image or vectors are not full, have code of their own."""

    name = "peel"
    axis: str


@dataclass(frozen=True)
class Strips(Step):
    """A summed axis is gone over in strips of so many points, and the sums of all of a unit's tiles (or of a
    window's taps) wait on the stack."""

    name = "strips"
    parallel = False
    axis: str
    size: int


@dataclass(frozen=True)
class Copy(Step):
    """Of a buffer, the rows along an axis that a unit's strip reads are copied to the stack, one behind the
    other: where they lie, lines of one strip push each other out of the nearest cache."""

    name = "copy"
    buffer: str
    axis: str


@dataclass(frozen=True)
class Residues(Step):
    """Where an index divides, the places that leave each remainder are a kernel of their own."""

    name = "residues"


@dataclass(frozen=True)
class Join(Step):
    """The lanes of a tile's sums are added up together, where the vectors lie along the sum."""

    name = "join"


@dataclass(frozen=True)
class Pairs(Step):
    """Two neighbours along a summed axis are multiplied and added up in one instruction, `Target.pairs` of
    bfloat16 and `Target.words` of i16: an axis of two points, along which both factors lie side by side."""

    name = "pairs"
    parallel = False
    axis: str


@dataclass(frozen=True)
class Quads(Pairs):
    """The same of four neighbours, which are bytes: `Target.quads`."""

    name = "quads"


@dataclass(frozen=True)
class Shorts(Step):
    """Sums of products of four bits and bytes over an axis, and the summed axes behind it, are taken in 16
    bits, which hold them, `Target.shorts`, and widened then."""

    name = "shorts"
    parallel = False
    axis: str


@dataclass(frozen=True)
class Scale(Step):
    """Factors of a sum that are the same all along an axis, and the summed axes behind it, are multiplied to
    the sums over these: the scales of weights that are kept as bytes."""

    name = "scale"
    parallel = False
    axis: str


@dataclass(frozen=True)
class Digits(Step):
    """Of sums that are scaled, the places of a summed axis have sums of their own, of whole numbers: those of
    the digits of their left factor, each of which has scales."""

    name = "digits"
    parallel = False
    axis: str


@dataclass(frozen=True)
class Apart(Step):
    """Where a tile has less sums than `size`, each is taken in parts, neighbours along a summed axis in
    another one, so that no addition waits for the one before it; they are added up at the axis' end."""

    name = "apart"
    parallel = False
    axis: str
    size: int


@dataclass(frozen=True)
class Again(Step):
    """The kernel runs at every call, though what it reads be weights alone: what it makes is longer to read
    than what it makes it of."""

    name = "again"


@dataclass(frozen=True)
class Matrix(Step):
    """The sums of a tile, of 32 rows along an axis at most or 16 at two places of another, are in matrix
    registers over all of the sum: `Target.matrix` multiplies 16 rows of 16 pairs (or quads) by as many
    columns."""

    name = "matrix"
    parallel = True
    axis: str


@dataclass(frozen=True)
class Pack(Step):
    """A buffer lies in panels, as wide as the vectors that are held of the axis; its last panel is padded."""

    name = "pack"
    buffer: str
    axis: str


@dataclass(frozen=True)
class Prefetch(Step):
    """The bytes of a buffer are asked for so far before their use: they come from memory, and each once."""

    name = "prefetch"
    buffer: str
    ahead: int


@dataclass(frozen=True)
class PrefetchPanel(Step):
    """The next panel of a buffer along an axis is asked for while this one is read again and again, a part of
    it by each tile: it comes from beyond the caches, at the pace of all of a panel's sums.

    Sizes are known: of others nothing is asked for.
    """

    name = "prefetch_panel"
    buffer: str
    axis: str


@dataclass(frozen=True)
class Roll(Step):
    """What stands after the sums of a tile is written once, in a loop over the axis."""

    name = "roll"
    axis: str


# ---- a step that stands for all of a kernel's code
@dataclass(frozen=True)
class Winograd(Step):
    """A convolution of stride 1 is computed from sums of its inputs, in fewer multiplications.

    tile:    outputs of a tile along each side.
    block:   tiles that are transformed together.
    rows:    tiles of a register tile at most; `vectors`: of output channels beside them, and of a chunk.
    spread:  all tiles are transformed first, and then the work is dealt out by chunks of output channels, so
             that weights are read once: where they outweigh the image.  Else it is dealt out by blocks.
    images:  0 where vectors are of channels; else the lanes of vectors of images: `rows` are then output
             channels, and `vectors` of images, of each tile of a block, which are beside each other.
    """

    name = "winograd"
    tile: int
    block: int
    rows: int
    vectors: int
    spread: bool = False
    images: int = 0


STEPS: dict[str, type[Step]] = {
    step.name: step
    for step in (
        Collapse, Split, Reorder, Vectorise, Scalar, Tile, Unroll, Block, Keep, Stream, Bound, Peel, Strips,
        Copy, Residues, Join, Pairs, Quads, Shorts, Scale, Digits, Apart, Again, Matrix, Pack, Prefetch,
        PrefetchPanel, Roll, Winograd, *GPU_STEPS,
    )
}  # fmt: skip
S = TypeVar("S", bound=Step)


@dataclass(frozen=True, init=False)
class Schedule:
    """A kernel's steps, those that rewrite it first; and what they say, by the names of axes."""

    steps: tuple[Step, ...]

    def __init__(self, *steps: Step):
        object.__setattr__(self, "steps", steps)

    def __str__(self) -> str:
        return " ".join(map(str, self.steps))

    def of(self, kind: type[S]) -> Iterator[S]:
        """The steps of one kind."""
        return (step for step in self.steps if isinstance(step, kind))

    def has(self, kind: type[Step]) -> bool:
        return next(self.of(kind), None) is not None

    @cached_property
    def winograd(self) -> Winograd | None:
        return next(self.of(Winograd), None)

    @property
    def sums_inputs(self) -> bool:
        """Whether results are computed from sums of inputs, which round otherwise and spread a NaN."""
        return self.winograd is not None

    def kernels(self, kernel: Kernel) -> Iterator[tuple[Step, Kernel]]:
        """Each step that rewrites the kernel, and the kernel after it."""
        for step in self.steps:
            if step.rewrites:
                kernel = step.apply(kernel)
                yield step, kernel

    def applied(self, kernel: Kernel) -> Kernel:
        """The kernel after all steps."""
        return [kernel, *(after for _, after in self.kernels(kernel))][-1]

    def check(self, kernel: Kernel, language: Language) -> None:
        """Raise KernelError unless a generator knows the steps, and the rewritten kernel fits them."""
        for step in (step for step in self.steps if not step.rewrites):
            if step.language is not language:
                raise KernelError(
                    f"{kernel.name}: {step} is a step of {step.language.value}, and this is {language.value}",
                    f"schedule: {self}",
                )
            step.check(kernel)
        if language is Language.LLVM and self.axis is None and kernel.extents and not self.has(Scalar):
            raise KernelError(
                f"{kernel.name}: a schedule says vectorise(axis) or scalar()", f"it says: {self}"
            )

    # ---- what the steps say
    @cached_property
    def vectorised(self) -> Vectorise | None:
        return next(self.of(Vectorise), None)

    @cached_property
    def axis(self) -> str | None:
        """The axis that is gone along in vectors, or one element after another."""
        if self.vectorised is not None:
            return self.vectorised.axis
        return next((step.axis for step in self.of(Scalar)), None)

    def fitted(self, kernel: Kernel) -> Schedule:
        """The schedule with tiles and blocks no longer than their axes in a kernel of other sizes."""
        extents = self.applied(kernel).extents if self.winograd is None else {}
        steps = [
            replace(step, size=extents[step.axis])
            if isinstance(step, (Tile, Block))
            and 0 < extents[step.axis] < step.size
            and step.axis != self.axis
            else step
            for step in self.steps
        ]
        return Schedule(*steps)

    def with_tiles(self, axes: Collection[str], most: int) -> Schedule:
        """The schedule with tiles of so many points at most along these axes."""
        steps = [
            replace(step, size=min(step.size, most)) if isinstance(step, Tile) and step.axis in axes else step
            for step in self.steps
            if not (isinstance(step, Block) and step.axis in axes and step.axis not in self.peeled)
        ]
        return Schedule(*[s for s in steps if not (isinstance(s, Tile) and s.size == 1)])

    def without_arrays(self, locals: Collection[str]) -> Schedule:
        """The schedule in which these are computed where they are used."""
        if self.kept.isdisjoint(locals):
            return self
        return Schedule(*[s for s in self.steps if not (isinstance(s, Keep) and s.local in locals)])

    @property
    def vectors(self) -> int:
        return 1 if self.vectorised is None else self.vectorised.vectors

    @cached_property
    def tiles(self) -> Mapping[str, int]:
        return {step.axis: step.size for step in self.of(Tile)}

    @cached_property
    def blocks(self) -> Mapping[str, int]:
        """Points of an axis in a unit of work, where there are steps that say it or a tile."""
        return {**self.tiles, **{step.axis: step.size for step in self.of(Block)}}

    def block(self, axis: str) -> int:
        """Points of a parallel axis in a unit of work."""
        return self.blocks.get(axis, CHUNK if axis == self.axis else 1)

    @cached_property
    def unrolled(self) -> Mapping[str, int]:
        return {step.axis: step.size for step in self.of(Unroll)}

    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(step.local for step in self.of(Keep))

    @cached_property
    def peeled(self) -> frozenset[str]:
        return frozenset(step.axis for step in self.of(Peel))

    @cached_property
    def paired(self) -> str | None:
        """The axis of those that are multiplied and added up at once."""
        return next((step.axis for step in self.of(Pairs)), None)

    @cached_property
    def short(self) -> str | None:
        """The first axis of sums that 16 bits hold."""
        return next((step.axis for step in self.of(Shorts)), None)

    @cached_property
    def scaled(self) -> str | None:
        """The first axis of sums that are scaled after they are taken."""
        return next((step.axis for step in self.of(Scale)), None)

    @cached_property
    def digits(self) -> str | None:
        """The axis of the digits of a sum's left factor."""
        return next((step.axis for step in self.of(Digits)), None)

    @cached_property
    def apart(self) -> Mapping[str, int]:
        """The sums that a tile is to have at least, by the axis whose neighbours have some of their own."""
        return {step.axis: step.size for step in self.of(Apart)}

    @cached_property
    def packed(self) -> Mapping[str, str]:
        """The axis along which a buffer is cut in panels."""
        return {step.buffer: step.axis for step in self.of(Pack)}

    @cached_property
    def ahead(self) -> Mapping[str, int]:
        return {step.buffer: step.ahead for step in self.of(Prefetch)}

    @cached_property
    def next_panels(self) -> Mapping[str, str]:
        """The axis along which the next panel of a buffer is asked for."""
        return {step.buffer: step.axis for step in self.of(PrefetchPanel)}


def is_default(how: Schedule | None) -> bool:
    """Whether a default schedule is wanted, in some precision where one is said."""
    return how is None or all(isinstance(step, Precision) for step in how.steps)


# ---- text
_STEP = re.compile(r"([a-z_]+)\(([^()\n]*)\)")
TEXT = re.compile(r"[a-z_]+\([^()\n]*\)(?: [a-z_]+\([^()\n]*\))*")  # of a schedule within another text


def parse(text: str) -> Schedule:
    """The schedule of a text.  Raises KernelError that says what a step takes."""
    steps, at = [], 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise KernelError("a schedule is steps, as vectorise(j, 2) tile(i, 4)", f"here: {text[at:]!r}")
        steps.append(step_from(found[1], [part.strip() for part in found[2].split(",") if part.strip()]))
        at = found.end() + (text[found.end() :].startswith(" "))
    if not steps:
        raise KernelError("a schedule has a step: scalar() where there is nothing to say")
    return Schedule(*steps)


def step_from(name: str, arguments: list[str]) -> Step:
    """The step that a name and the texts of its arguments say."""
    kind = STEPS.get(name)
    if kind is None:
        raise KernelError(f"no step is called {name!r}", f"steps: {', '.join(STEPS)}")
    wanted = fields(kind)
    hints = get_type_hints(kind)
    signature = f"{name}({', '.join(f.name for f in wanted)})"
    needed = sum(f.default is MISSING for f in wanted)
    if wanted and hints[wanted[-1].name] == tuple[str, ...]:
        head = len(wanted) - 1
        values: list = [*arguments[:head], tuple(arguments[head:])]
    else:
        values = list(arguments)
    if not needed <= len(values) <= len(wanted):
        raise KernelError(f"a step is {signature}", f"not: {name}({', '.join(arguments)})")
    for number, (value, f) in enumerate(zip(values, wanted, strict=False)):
        if hints[f.name] is int:
            if not re.fullmatch(r"-?\d{1,18}", value):
                raise KernelError(f"{signature}: {f.name} is a whole number, not {value!r}")
            values[number] = int(value)
        elif hints[f.name] is bool:
            if value not in ("True", "False"):
                raise KernelError(f"{signature}: {f.name} is True or False, not {value!r}")
            values[number] = value == "True"
    return kind(*values)


def pairs_at_once(pairs: int) -> int:
    """The pairs of a sum that a matrix register holds: as many as divide it."""
    return next(n for n in range(SIDE, 0, -1) if pairs % n == 0)


def tiles(sizes: Mapping[str, int]) -> list[Tile]:
    """Those of more than one point."""
    return [Tile(axis, size) for axis, size in sizes.items() if size > 1]


def unrolls(sizes: Mapping[str, int]) -> list[Unroll]:
    """Those of more than one iteration."""
    return [Unroll(axis, size) for axis, size in sizes.items() if size > 1]
