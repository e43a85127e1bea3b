"""Sums, maxima and their like over a stage's axes, and the loops that all stages run in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.dims import Dim
from ...ir.errors import Unsayable
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import COMBINE, Axis, Fold, Kernel, Local, Reduce, Stage, identity, names
from ...ir.kernel.scalar import Const, Expr, Op, Read, Ref, Size, walk
from ...ir.kernel.types import kind
from ...ir.locks import cached_property
from ..kernels.product import Bounds, element, products
from ..schedules.default import is_long
from ..schedules.steps import Bound, Join, Schedule
from ..schedules.target import Target
from . import neighbours
from .lane_sums import lane_sums
from .ranges import OPEN, Int
from .results import Results
from .scaled_sums import scaled_sums
from .writer import ELEMENTS, Point, Value, suffix

Body = Callable[[list[Point], list[Value]], list[Value]]


class Reductions(Results):
    """The reductions of a kernel, in loops over their axes.

    Where the schedule says `bound`, an axis that a guard limits runs only as far as the guard holds.
    """

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        self.summed: set[str] = set()  # the reductions whose results are bound already
        self.kept_by: dict[str, Local] = {}  # the Local that a sum's loop keeps on its way
        self.limits: dict[str, tuple[Int, Int]] = {}  # axis -> the part of it that is run
        self.ends: list[tuple[Affine, int]] = []  # of the sum that is being written: see `ends_of`

    # ---- reductions
    def reduce(self, stage: Reduce, points: list[Point]) -> list[Value]:
        """The result at every point."""
        totals = self.lane_totals(stage, points)
        if self.lane_axis not in names(stage.axes):
            return totals
        if self.is_joined(stage):
            return lane_sums(self, totals)
        return [self.horizontal(COMBINE[stage.combine], total) for total in totals]

    def is_joined(self, stage: Reduce) -> bool:
        """Whether the lanes of several sums are added up together."""
        across = self.lane_axis in names(stage.axes)
        return across and self.schedule.has(Join) and COMBINE[stage.combine] == "add"

    def lane_totals(self, stage: Reduce, points: list[Point]) -> list[Value]:
        """The result at every point, each lane's own where the lanes lie along a summed axis."""
        word, dtype = COMBINE[stage.combine], self.kernel.dtypes[stage.name]
        across = self.lane_axis in names(stage.axes)
        wide = across or self.lane_axis in self.kernel.free_axes(stage.value)
        copies = self.copies(stage) if across else 1
        start = self.constant(identity(word, dtype), dtype, wide)
        totals = self.accumulate(stage, points, [start] * (len(points) * copies))
        return [self.paired(word, totals[k :: len(points)]) for k in range(len(points))]

    def accumulate(self, stage: Reduce, points: list[Point], totals: list[Value]) -> list[Value]:
        """The totals, and what the stage adds to them: bounded axes in outer loops, the others inside."""
        if (scaled := scaled_sums(self, stage, points, totals)) is not None:
            return scaled
        word, dtype = COMBINE[stage.combine], totals[0].dtype  # digits' sums are whole numbers
        across = self.lane_axis in names(stage.axes)
        wide = bool(totals[0].lanes)
        copies = len(totals) // len(points)
        factors = stage.value.args if isinstance(stage.value, Op) and stage.value.name == "mul" else ()
        fused = bool(factors) and word == "add" and kind(dtype) == "f" and self.target.has_fma

        # of lanes that are masked both factors are 0
        silent = word == "add" and all(self.is_loaded(factor) for factor in factors or (stage.value,))

        def combined(total: Value, point: Point) -> Value:
            if self.schedule.paired in names(stage.axes):
                return neighbours.add_neighbours(self, stage, total, point)
            if fused:
                operands = [self.emit(factor, point, dtype) for factor in factors]
                return self.named("fma", *(self.splat(f) if wide else f for f in operands), total)
            value = self.emit(stage.value, point, dtype)
            return self.named(word, total, self.splat(value) if wide else value)

        kept = self.kept_by.get(stage.name)

        def body(at: list[Point], totals: list[Value]) -> list[Value]:
            totals = list(totals)
            if kept is not None:
                self.keep(kept, at)
            for k, point in enumerate(at):
                slot = k % count  # points come copy-major: see over_vector
                if word == "add" and any(self.is_nothing(factor, point) for factor in factors):
                    continue
                following = combined(totals[slot], point)
                if across and self.mask and not silent:
                    following = self.select(self.mask, following, totals[slot])
                totals[slot] = following
            for k, first in enumerate(corrected.values(), count):
                totals[k] = neighbours.add_correction(self, stage, totals[k], at[first])
            return totals

        corrected, count = neighbours.corrected(self, stage, points), len(totals)
        if corrected:  # their sums come behind the others
            zero = self.constant(0, dtype, True)
            totals = [*totals, *([zero] * len(corrected))]
            total = self.summed_up(stage, points, totals, body, copies)
            columns = dict(zip(corrected, total[count:], strict=True))
            return [
                self.binary("sub", value, columns[neighbours.column(self, stage, point)])
                for value, point in zip(total[:count], points, strict=True)
            ]
        return self.summed_up(stage, points, totals, body, copies)

    def summed_up(
        self, stage: Reduce, points: list[Point], totals: list[Value], body: Body, copies: int
    ) -> list[Value]:
        """The totals after the loops of a sum."""
        factors = stage.value.args if isinstance(stage.value, Op) and stage.value.name == "mul" else ()
        self.ends = self.ends_of(stage, factors)
        bounded = self.bounds.get(stage.name, {})
        outside = [axis for axis in stage.axes if axis.name in bounded or axis.name in self.limits]
        if not self.schedule.has(Bound) and not self.limits:
            return self.over(stage.axes, points, totals, body, copies, stage)
        rest = tuple(axis for axis in stage.axes if axis not in outside)

        def nest(axes: list[Axis], at: list[Point], totals: list[Value]) -> list[Value]:
            if not axes:
                return self.over(rest, at, totals, body, copies)
            axis = axes[0]
            parts = bounded.get(axis.name, [])
            self.share_bounds(parts, axis.name, at)
            low, high = self.reach(axis, parts, at[0])

            def within(index: Int, values: list[Value]) -> list[Value]:
                return nest(axes[1:], [p | {axis.name: (index, 0)} for p in at], values)

            return self.loop(low, high, 1, totals, within, nonempty=False)

        held, self.held = (
            self.held,
            self.held
            | {
                (factor, d)
                for factor in map(element, factors)
                if factor is not None
                for d in self.unproved(factor)
                if isinstance(part := factor.index[d], Affine)
                and part.names & {axis.name for axis in outside}
            },
        )
        totals = nest(outside, points, totals)
        self.held = held
        return totals

    # ---- what lies outside
    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """For each sum of products: the axes that a guard limits, and the indices that stay inside with them,
        each with its size."""
        if not self.schedule.has(Bound):
            return {}
        found = {}
        for product in products(self.kernel):
            limits = product.bounds(next(iter(self.schedule.peeled), None))
            if limits is None:
                raise Unsayable(
                    f"{self.kernel.name}: a guard here is the bound of one loop", f"at: {product.stage}"
                )
            found[product.stage.name] = limits
        return found

    def ends_of(self, stage: Reduce, factors: Sequence[Expr]) -> list[tuple[Affine, int]]:
        """Indices along two summed axes or more behind whose ends products are zero, with their sizes: those
        of channels by blocks, the last of which is not full."""
        own = set(names(stage.axes))
        return [
            (part, size)
            for factor in map(element, factors)
            if factor is not None and factor.other is not None and factor.other.value == 0
            for d in self.unproved(factor)
            if isinstance(part := factor.index[d], Affine) and len(part.names) > 1 and part.names <= own
            if isinstance(size := self.kernel.buffers[factor.buffer].shape[d], int)
        ]

    def ends_at(self, axis: str, extent: int, point: Point) -> tuple[int, int]:
        """Where a loop over an axis ends, and from where its points are written out each for itself, as an
        inner loop ends elsewhere in the last of them."""
        last = extent
        for part, size in self.ends:
            by = int(part.coefficient(axis))
            others = part.names - {axis}
            if by > 0 and others <= {*point}:
                low, high = self.ranges.of(self.whole(part - Affine(((axis, by),)), point))
                if low == high:
                    extent = last = min(extent, -(-(size - low) // by))
            elif by > 1:
                last = min(last, size // by)
        return extent, last

    def is_nothing(self, factor: Expr, point: Point) -> bool:
        """Whether a factor is a read beside its array, where zeros are."""
        found = element(factor)
        if found is None or found.other is None or found.other.value != 0:
            return False
        return any(self.is_inside(found, d, point) is False for d in self.unproved(found))

    def is_loaded(self, factor: Expr) -> bool:
        """Whether a factor is a vector from memory, whose masked lanes are 0."""
        return (
            isinstance(factor, Read)
            and self.lane_axis in self.kernel.free_axes(factor)
            and (factor.other is None or factor.other.value == 0)
        )

    def share_bounds(self, parts: list[tuple[Affine, int]], axis: str, points: list[Point]) -> None:
        """Raises KernelError unless one loop's ends are right for all points of a tile."""
        for part, _ in parts:
            others = part.names - {axis}
            if self.lane_axis in others or len({tuple(p[a] for a in sorted(others)) for p in points}) > 1:
                raise Unsayable(
                    f"{self.kernel.name}: the points of a tile have other taps inside of the array",
                    f"index: {part}",
                    f"schedule: {self.schedule}",
                    "tile no axis of a window's place, or peel it",
                )

    def reach(self, axis: Axis, bounded: list[tuple[Affine, int]], point: Point) -> tuple[Int, Int]:
        """The first iteration, and the one after the last, for which every bounded index is inside."""
        low, high = self.limits.get(axis.name, (0, self.extent(axis.extent)))
        for part, size in bounded:
            factor = part.coefficient(axis.name)
            rest = self.whole(part - Affine(((axis.name, factor),)), point)
            if factor > 0:
                first, last = self.minus(factor - 1, rest), self.minus(size - 1 + factor, rest)
            else:
                first, last = self.sum(rest, -size - factor), self.sum(rest, -factor)
            first = self.quotient(first, abs(factor))  # not negative
            low = first if low == 0 else self.maximum(low, first)
            high = self.minimum(high, self.quotient(last, abs(factor)))
        for part, size in bounded:
            self.keeps_inside(part, size, axis.name, point, low, high)
        return low, high

    def copies(self, stage: Reduce) -> int:
        """How many vectors of a local vector axis are added up at once: one where each is work enough to hide
        an addition's latency, and its code is long.
        """
        own = self.kept_by.get(stage.name)
        kept = self.schedule.kept - {own.name} if own else self.schedule.kept
        return 1 if is_long(self.kernel, stage, kept) else self.schedule.vectors

    def paired(self, word: str, totals: list[Value]) -> Value:
        """Several vectors as one, pair by pair."""
        while len(totals) > 1:
            pairs = [totals[k : k + 2] for k in range(0, len(totals), 2)]
            totals = [self.named(word, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return totals[0]

    def horizontal(self, word: str, total: Value) -> Value:
        """The lanes of an accumulator as one number, always in the same order."""
        if kind(total.dtype) != "f" or word not in ("max", "min"):
            return self.reduced(word, total)
        count = self.lanes
        while count > 1:  # halves against halves: LLVM's own reduction would order zeros too
            count //= 2
            halves = [self.shuffle(total, None, range(at, at + count)) for at in (0, count)]
            total = self.named(word, *halves)
        return self.lane(total, 0)

    def reduced(self, word: str, total: Value) -> Value:
        """LLVM's reduction of a vector's lanes."""
        dtype, letter = total.dtype, kind(total.dtype)
        integer = {"add": "add", "mul": "mul", "bit_or": "or", "bit_and": "and"}
        integer |= {"max": "smax" if letter == "i" else "umax", "min": "smin" if letter == "i" else "umin"}
        name = {"add": "fadd", "mul": "fmul"}[word] if letter == "f" else integer[word]
        arguments = [total]
        if name in ("fadd", "fmul"):
            arguments.insert(0, self.constant(-0.0 if name == "fadd" else 1.0, dtype))
        flags = "reassoc " if letter == "f" else ""  # a tree over the lanes
        called = f"llvm.vector.reduce.{name}.{suffix(dtype, self.lanes)}"
        return self.ssa(self.call(called, ELEMENTS[dtype], arguments, flags), dtype)

    # ---- loops
    def over(
        self,
        axes: tuple[Axis, ...],
        points: list[Point],
        carried: list[Value],
        body: Body,
        copies: int = 1,
        stage: Stage | None = None,
    ) -> list[Value]:
        """Loops over `axes`, the vector axis innermost, `copies` vectors of it at once.

        body(points, carried) -> carried.  What `stage` computes that no loop changes is computed before them.
        """
        if stage is not None and not any(axis.extent == 0 for axis in axes):
            self.hoist(stage, frozenset(names(axes)), points)
        ordered = sorted(axes, key=lambda axis: axis.name == self.lane_axis)
        if not ordered:
            return body(points, carried)
        axis, rest = ordered[0], tuple(ordered[1:])
        extent, step = axis.extent, self.schedule.unrolled.get(axis.name, 1)
        if isinstance(extent, Dim):
            return self.over_open(axis, rest, points, carried, body, copies, stage)
        if extent == 0:
            return carried
        if axis.name == self.lane_axis:
            return self.over_vector(axis.name, extent, points, carried, body, copies)
        if axis.name == self.schedule.paired:
            return self.over(rest, [p | {axis.name: (0, 0)} for p in points], carried, body, copies)
        extent, last = self.ends_at(axis.name, extent, points[0])
        count = len(carried)
        parts = min(self.schedule.apart.get(axis.name, 0) // max(count, 1), extent) or 1
        step = min(max(step, parts), extent)
        full = last // step * step
        carried = [*carried, *([self.like(value, 0) for value in carried] * (parts - 1))]

        def run(index: Int, offsets: range, values: list[Value]) -> list[Value]:
            values = list(values)
            for k in offsets:
                at, first = [p | {axis.name: (index, k)} for p in points], k % parts * count
                own = values[first : first + count]
                values[first : first + count] = self.over(rest, at, own, body, copies, stage)
            return values

        if full == step:
            carried = run(0, range(step), carried)
        elif full:
            carried = self.loop(0, full, step, carried, lambda index, v: run(index, range(step), v))
        carried = run(0, range(full, extent), carried)
        return [self.paired("add", carried[k::count]) for k in range(count)] if parts > 1 else carried

    def over_open(
        self,
        axis: Axis,
        rest: tuple[Axis, ...],
        points: list[Point],
        carried: list[Value],
        body: Body,
        copies: int,
        stage: Stage | None,
    ) -> list[Value]:
        """A loop over an axis that is left open: as many steps as are whole, then what is left one by one."""
        extent, name = self.extent(axis.extent), axis.name
        is_vector = name == self.lane_axis
        single = self.lanes if is_vector else 1

        def steps(width: int) -> Callable[[Int, list[Value]], list[Value]]:
            def run(index: Int, values: list[Value]) -> list[Value]:
                if is_vector:
                    return body(
                        [p | {name: (index, k)} for k in range(0, width, single) for p in points], values
                    )
                for k in range(width):
                    values = self.over(
                        rest, [p | {name: (index, k)} for p in points], values, body, copies, stage
                    )
                return values

            return run

        def masked(index: Int, values: list[Value]) -> list[Value]:
            self.mask, self.end = self.lanes_below(self.minus(extent, index)), OPEN
            values = steps(single)(index, values)
            self.mask = None
            return values

        low: Int = 0
        widths = (single * copies, single) if is_vector else (self.schedule.unrolled.get(name, 1), 1)
        for width in dict.fromkeys(widths):
            whole = extent if width == 1 else self.minus(extent, self.integer("urem", extent, width))
            carried = self.loop(low, whole, width, carried, steps(width), False, OPEN - width)
            low = whole
        if single > 1:
            carried = self.loop(low, extent, single, carried, masked, False, OPEN - 1)
        return carried

    def hoist(self, stage: Stage, axes: frozenset[str], points: list[Point]) -> None:
        """Compute what a stage needs and the axes do not change, so that loops over them find it done."""
        waiting, seen = list(stage.step if isinstance(stage, Fold) else stage.exprs), set()
        while waiting:
            expr = waiting.pop()
            if expr in seen or isinstance(expr, (Const, Size)):
                continue
            seen.add(expr)
            if isinstance(expr, Ref):
                local = self.kernel.locals.get(expr.name)
                if local is not None and local.axes and expr.name not in self.schedule.kept:
                    waiting.append(local.value)
            elif self.varies(stage, expr, axes) or self.kernel.dtype_of(expr) is None:
                waiting.extend(expr.below)
            else:
                for point in points:
                    value = self.emit(expr, point)
                    if self.lane_axis in axes and kind(value.dtype) != "b":
                        self.splat(value)

    def varies(self, stage: Stage, expr: Expr, axes: frozenset[str]) -> bool:
        """Whether an expression depends on the axes, or on the states of a fold."""
        if self.kernel.free_axes(expr) & axes:
            return True
        return any(isinstance(e, Ref) and e.name in stage.defines for e in walk(expr))

    def over_vector(
        self, name: str, extent: int, points: list[Point], carried: list[Value], body: Body, copies: int
    ) -> list[Value]:
        """A local vector axis: `copies` vectors at once, then single ones, the last with a constant mask."""
        block = self.lanes * copies
        full, whole = extent // block * block, extent // self.lanes * self.lanes

        def blocks(width: int) -> Callable[[Int, list[Value]], list[Value]]:
            steps = range(0, width, self.lanes)
            return lambda index, values: body([p | {name: (index, k)} for k in steps for p in points], values)

        if full:
            carried = self.counted(0, full, block, carried, blocks(block))
        if full < whole:  # of several copies of an accumulator, the first takes the rest
            carried = self.counted(full, whole, self.lanes, carried, blocks(self.lanes))
        if whole < extent:
            self.mask, self.end = self.lanes_below(extent - whole), extent
            carried = body([p | {name: (0, whole)} for p in points], carried)
            self.mask = None
        return carried

    def counted(
        self, low: int, high: int, step: int, carried: list[Value], body: Callable[[Int, list[Value]], list]
    ) -> list[Value]:
        """A loop, or its body alone where it runs once."""
        if high - low == step:
            return body(low, carried)
        return self.loop(low, high, step, carried, body)
