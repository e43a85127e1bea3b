"""Kernel + schedule -> the text of one LLVM function.

The function is `void name(ptr inputs..., ptr outputs..., i64 lo, i64 hi)`: it does the units of work lo..hi.
A unit is a block of each parallel axis (`schedules.default.unit_axes`), and runs tile by tile, each of whose
points are in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, product
from math import prod

from ...ir.dims import Dim
from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Kernel, Local, Reduce, Store, names
from ...ir.kernel.scalar import ref
from ...ir.kernel.types import NUMPY
from ...ir.locks import cached_property
from ..schedules.default import default_schedule, lanes_apart, unit_axes
from ..schedules.language import Language
from ..schedules.steps import Matrix, Roll, Schedule, Stream, Strips
from ..schedules.target import Target
from . import matrix
from .emit import Emitter
from .lane_sums import lane_sums
from .long_sums import long_sums
from .ranges import OPEN, Int, Name, Range, either
from .writer import ELEMENTS, HIGH, LOW, Point, Value, effect

MOST_PEELED = 4  # tiles at one end of a row that have code of their own; more are a loop, and test each tap
Act = Callable[[list[Point]], None]


def lower(kernel: Kernel, target: Target, schedule: Schedule | None = None) -> str:
    """A verified, bound kernel as an LLVM module.  Raises KernelError for what the emitter cannot say."""
    if kernel.symbols:
        raise KernelError(
            f"{kernel.name}: LLVM text is made for bound kernels",
            f"symbols: {', '.join(kernel.symbols)}",
            f"bind them: bind(kernel, {', '.join(f'{name}=...' for name in kernel.symbols)})",
        )
    units = Units(kernel, schedule or default_schedule(kernel, target), target)
    body = units.function()
    return "\n".join([*units.declared.values(), body, ""])


class Units(Emitter):
    """Writes the function of one kernel.  Raises KernelError for a schedule that does not fit it."""

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        schedule.check(kernel, Language.LLVM)
        if schedule.vectorised is not None and not lanes_apart(kernel, schedule.vectorised.axis):
            raise KernelError(
                f"{kernel.name}: the lanes of a vector would meet in one element",
                f"schedule: {schedule}",
                f"say scalar({schedule.axis})",
            )

    @cached_property
    def units(self) -> int:
        """Units of work; those of an open axis are as many as `OPEN` points give."""
        return prod(
            -(-OPEN // self.schedule.block(axis)) if count is None else count
            for axis, count in unit_axes(self.kernel, self.schedule)
        )

    def function(self, name: str | None = None, linkage: str = "") -> str:
        """The whole function, under `name`; written once."""
        if self.units:
            self.ranges.declare(LOW, 0, self.units - 1)
            self.ranges.declare(HIGH, 0, self.units)
            self.hoists = bool(self.kernel.symbols)
            self.depths |= {f"%{name}.ptr": 0 for name in self.kernel.buffers}
            for extent in self.kernel.symbols:
                self.ranges.declare(Name(f"%{extent}"), OPEN, OPEN)
                self.depths[Name(f"%{extent}")] = 0
            for axis in self.kernel.axes:  # each as if it were as long as any can be
                self.extent(axis.extent)
            if self.schedule.has(Matrix):
                matrix.begin(self)
            self.loop(LOW, HIGH, 1, [], effect(self.unit), nonempty=False)
            if self.schedule.has(Matrix):
                matrix.end(self)
        shared = {b.inplace for b in self.kernel.outputs} | {b.name for b in self.kernel.outputs if b.inplace}
        arguments = [f"ptr {'' if name in shared else 'noalias '}%{name}.ptr" for name in self.kernel.buffers]
        arguments += [f"i64 %{name}" for name in self.kernel.symbols]
        lines = self.constants_in_memory(self.written, self.target.registers)
        arrays = self.on_the_stack()
        for array, element, length in self.scratch.values():
            arrays.append(f"  {array} = alloca [{length} x {element}], align 64")
        given = ", ".join([*arguments, "i64 %lo", "i64 %hi"])
        header = f"define {linkage}void @{name or symbol(self.kernel)}({given}) {self.attributes} {{"
        intrinsic = self.target.platform.fence if self.schedule.has(Stream) else ""
        fence = [f"  {self.call(intrinsic, 'void', [])}"] if intrinsic else []
        return "\n".join([header, "entry:", *arrays, *lines, *fence, "  ret void", "}"])

    # ---- a unit
    def unit(self, number: Int) -> None:
        corner, schedule = self.corner(number), self.schedule
        together = [axis for axis in corner if axis != schedule.axis and axis not in self.gone_along]
        # What a point shares along the longest axis is in one register at a time.
        together.sort(key=lambda axis: -schedule.tiles.get(axis, 1))
        sizes = [range(schedule.tiles.get(axis, 1)) for axis in together]
        points = [
            {axis: (corner[axis], k) for axis, k in zip(together, at, strict=True)} for at in product(*sizes)
        ]
        tiles = partial(self.tiles, self.gone_along, corner)
        if schedule.has(Strips) and schedule.axis in corner:
            long_sums(self, corner, points)
        elif schedule.has(Strips):
            self.strips(corner, points)
        elif schedule.axis is None or schedule.axis not in corner:
            tiles(points, self.joined)
        elif schedule.axis in schedule.peeled:
            self.panel(corner, partial(tiles, points), self.tile)
        else:
            tiles(points, partial(self.chunk, corner[schedule.axis]))

    @cached_property
    def gone_along(self) -> list[str]:
        """The axes of which a unit has several tiles, but for the vectors' own, slowest first."""
        schedule = self.schedule
        return [
            axis.name
            for axis in self.kernel.parallel
            if axis.name != schedule.axis and schedule.block(axis.name) > schedule.tiles.get(axis.name, 1)
        ]

    def corner(self, number: Int) -> dict[str, Int]:
        """The first point of a unit, by axis, the fastest axis first."""
        corner: dict[str, Int] = {}
        counts = unit_axes(self.kernel, self.schedule)
        for axis, count in reversed(counts):
            if count == 1:
                index: Int = 0
            elif axis == counts[0][0]:
                index = number  # the slowest axis has what is left
            else:
                if count is None:
                    count = self.blocks_of(axis)
                index, number = self.integer("urem", number, count), self.integer("udiv", number, count)
            self.panels[axis] = index
            size, extent = self.schedule.block(axis), self.kernel.extents[axis]
            base = self.times(index, size)
            if axis not in (self.schedule.axis, *self.gone_along) and size > 1:
                base = self.overlapping(base, extent, size)
            corner[axis] = base
        return corner

    def blocks_of(self, axis: str) -> Int:
        """The number of blocks of an open axis."""
        size = self.schedule.block(axis)
        last = self.integer("add nsw", self.extent(self.kernel.extents[axis]), size - 1)
        return self.integer("udiv", last, size)

    def overlapping(self, base: Int, extent: int | Dim, size: int) -> Int:
        """The first point of a tile, of which the last overlaps its neighbour: stores are pure functions of
        their point."""
        if isinstance(extent, int) and extent % size == 0:
            return base
        last = self.integer("sub", self.extent(extent), size)
        return self.minimum(base, last)

    # ---- the tiles of a unit
    def tiles(self, axes: list[str], corner: dict[str, Int], points: list[Point], act: Act) -> None:
        """act(points) for each tile along the axes."""
        if not axes:
            act(points)
            return
        axis, *rest = axes
        size, block = self.schedule.tiles.get(axis, 1), self.schedule.block(axis)
        extent = self.kernel.extents[axis]

        def tile(base: Int, first: int = 0) -> None:
            at = [p | {axis: (base, first + k)} for k in range(size) for p in points]
            self.begins[axis] = base, first
            self.tiles(rest, corner, at, act)

        if isinstance(extent, Dim):
            high = self.minimum(self.sum(corner[axis], block), self.extent(extent))
            body = effect(lambda index: tile(self.overlapping(index, extent, size)))
            self.loop(corner[axis], high, size, [], body, last=OPEN - 1)
        elif axis in self.schedule.peeled:
            self.peeled(axis, extent, size, tile)
        elif size == extent:
            tile(0)
        else:
            low, ragged = corner[axis], extent % size
            high = self.minimum(self.sum(low, block), extent) if extent > block else extent
            body = effect(lambda index: tile(self.overlapping(index, extent, size)))
            # low and high are multiples of a tile, where the last one does not overlap
            self.loop(low, high, size, [], body, last=None if ragged else extent - size)

    def peeled(self, axis: str, extent: int, size: int, tile: Callable[[Int, int], None]) -> None:
        """The tiles of a whole axis: those that no window leaves in a loop, the others by themselves."""

        def alone(at: int) -> None:
            with self.scope():
                tile(0, at)

        for inner, run in groupby(range(0, extent - size + 1, size), partial(self.is_inner, axis, size)):
            first, *others = list(run)
            if others and (inner or len(others) >= MOST_PEELED):
                self.loop(first, others[-1] + size, size, [], effect(lambda index: tile(index, 0)))
            else:
                for at in (first, *others):
                    alone(at)
        if extent % size:  # the last one overlaps its neighbour: stores are pure functions of their point
            alone(extent - size)

    def is_inner(self, axis: str, size: int, at: int) -> bool:
        """Whether no window of the tile that begins at this place leaves an array along the axis."""
        ends = {axis: (at, at + size - 1)}
        for _, access in self.kernel.reads:
            for d in self.unproved(access):
                part = access.index[d]
                if isinstance(part, Affine) and axis in part.names:
                    spans = [
                        sorted(by * end for end in ends.get(name, (0, int(self.kernel.extents[name]) - 1)))
                        for name, by in part.terms
                    ]
                    low, high = (part.constant + sum(span[k] for span in spans) for k in (0, 1))
                    if low < 0 or high >= int(self.kernel.buffers[access.buffer].shape[d]):
                        return False
        return True

    # ---- the tiles of a unit whose vectors lie along a sum
    def joined(self, points: list[Point]) -> None:
        """The stages of a tile: what follows a sum whose lanes are added up with those of others runs on
        vectors of such sums."""
        axis, every = self.sums_axis, self.kernel.stages
        if axis is None:
            self.stages(points)
            return
        first, stage = next((n, stage) for n, stage in enumerate(every) if isinstance(stage, Reduce))
        width, others = self.schedule.tiles[axis], [name for name in self.schedule.tiles if name != axis]
        points = sorted(points, key=lambda at: [at[name][1] for name in (*others, axis)])
        sums = lane_sums(self, self.lane_totals(stage, points), width)
        with self.vectors_along(axis, width):
            self.bind(stage.name, points[::width], sums)
            self.stages(points[::width], range(first + 1, len(every)))

    @cached_property
    def sums_axis(self) -> str | None:
        """The axis along which a vector holds the sums of a tile; None where they are numbers."""
        kernel = self.kernel
        loops = [stage for stage in kernel.stages if not isinstance(stage, Local | Store) or stage.axes]
        if len(loops) != 1 or not isinstance(loops[0], Reduce) or not self.is_joined(loops[0]):
            return None
        fits = [
            axis
            for axis, size in self.schedule.tiles.items()
            if 1 < size <= self.lanes and not size & (size - 1) and lanes_apart(kernel, axis)
        ]
        return max(fits, key=self.stores_along, default=None)

    def stores_along(self, axis: str) -> int:
        """The stores whose neighbours along an axis are neighbours in memory."""
        offsets = [self.kernel.buffers[store.buffer].offset(store.index) for store in self.kernel.stores]
        return sum(offset.coefficient(axis) == 1 for offset in offsets)

    # ---- the vectors of a unit
    def chunk(self, low: Int, points: list[Point]) -> None:
        """A block of the vector axis: full vectors, then single ones up to the end of the block, masked."""
        schedule, vector = self.schedule, self.schedule.axis
        assert vector is not None
        extent, block = self.kernel.extents[vector], self.lanes * schedule.vectors
        chunk = schedule.block(vector)
        for stage in self.kernel.stages:
            self.hoist(stage, frozenset((vector, *names(stage.axes))), points)

        def at(index: Int, width: int) -> None:
            self.stages([p | {vector: (index, k)} for p in points for k in range(0, width, self.lanes)])

        if isinstance(extent, int) and extent <= chunk:

            def vectors(where: list[Point]) -> None:
                """Those of a point together: what they share is in a register meanwhile, and then in none."""
                self.stages([at for k in range(len(points)) for at in where[k :: len(points)]])

            self.over_vector(vector, extent, points, [], effect(vectors), schedule.vectors)
            return
        high = self.minimum(self.new_integer("add", low, chunk), self.extent(extent))

        def tail(index: Int) -> None:
            if self.lanes > 1:
                self.mask = self.lanes_below(self.new_integer("sub", high, index))
                _, self.end = self.ranges.of(high)
            at(index, self.lanes)
            self.mask = None

        size = self.new_integer("sub", high, low)
        self.ranges.declare(size, 0, chunk)
        full = self.new_integer("sub", high, self.new_integer("urem", size, block))
        last = (OPEN if isinstance(extent, Dim) else extent) - block  # whole blocks end where `full` is

        exact = isinstance(extent, int) and extent % block == 0 and chunk % block == 0
        for past in schedule.of(Stream):
            far = self.memo("aligned", self.aligned)
            if isinstance(extent, Dim):
                many = self.name(f"icmp uge i64 {self.extent(extent)}, {past.least}")
                far = self.name(f"and i1 {far}, {many}")
            middle = Name(self.name(f"select i1 {far}, i64 {full}, i64 {low}"))
            self.ranges.computed[middle] = either, full, low
            self.streaming = True
            self.loop(low, middle, block, [], effect(lambda index: at(index, block)), False, last)
            self.streaming, low, exact = False, middle, False
        self.loop(low, full, block, [], effect(lambda index: at(index, block)), exact, last)
        if isinstance(extent, Dim) and block > self.lanes:  # whole vectors, of which there may be many
            low, full = full, self.new_integer("sub", high, self.new_integer("urem", size, self.lanes))
            body = effect(lambda index: at(index, self.lanes))
            self.loop(low, full, self.lanes, [], body, False, OPEN - self.lanes)
        if not exact:
            self.loop(full, high, self.lanes, [], effect(tail), nonempty=False)

    @property
    def panel_width(self) -> int:
        """The columns of a panel."""
        return self.lanes * self.schedule.vectors

    def panel(self, corner: dict[str, Int], over: Callable[[Act], None], act: Act) -> None:
        """act(points) with a panel's columns of the vector axis, at the points that `over` goes to: the last,
        narrower panel has code of its own."""
        axis, width = self.schedule.axis, self.panel_width
        assert axis is not None
        extent = self.kernel.extents[axis]
        if self.schedule.block(axis) != width and not self.schedule.has(Strips):
            raise KernelError(
                f"{self.kernel.name}: a unit of work has the {width} columns of a panel",
                f"schedule: {self.schedule}",
                f"say block({axis}, {width})",
            )
        if isinstance(extent, Dim):
            self.open_panel(axis, self.minus(self.extent(extent), corner[axis]), over, corner, act)
            return
        whole, rest = divmod(extent, width)
        if not rest or not whole:
            over(partial(self.columns, corner, rest or width, act))
            return
        last = self.once(f"icmp eq i64 {self.panels[axis]}, {whole}")
        most = self.ranges.of(self.panels[axis])[1]
        self.where(last, axis, (whole, whole), partial(over, partial(self.columns, corner, rest, act)))
        others = self.once(f"xor i1 {last}, true")
        usual = partial(over, partial(self.columns, corner, width, act))
        self.where(others, axis, (0, most - (most == whole)), usual)

    def open_panel(
        self, axis: str, left: Int, over: Callable[[Act], None], corner: dict[str, Int], act: Act
    ) -> None:
        """`panel` where the last one may have any number of columns: its vectors one by one, masked.

        left: the columns from the panel's first one on.
        """
        width = self.panel_width
        whole = self.once(f"icmp sge i64 {left}, {width}")
        usual = partial(over, partial(self.columns, corner, width, act))
        self.where(whole, axis, (0, OPEN // width - 1), usual)
        for first in range(0, width, self.lanes):
            some = self.once(f"icmp sgt i64 {left}, {first}")
            some = self.once(f"and i1 {some}, {self.once(f'xor i1 {whole}, true')}")
            few = partial(self.last_columns, corner[axis], first, self.minus(left, first), act)
            self.where(some, axis, (0, OPEN // width), partial(over, few))

    def where(self, test: str, axis: str, panels: Range, act: Callable[[], None]) -> None:
        """act() where an i1 holds, which it does in these panels of an axis alone."""
        once = Name(self.once(f"zext i1 {test} to i64"))
        self.ranges.declare(once, 0, 1)
        with self.ranges.given(self.panels[axis], *panels):
            self.loop(0, once, 1, [], effect(lambda index: act()), nonempty=False)

    def last_columns(self, base: Int, first: int, left: Int, act: Act, points: list[Point]) -> None:
        """A vector of the last columns of an open axis, of which so many are left."""
        assert self.schedule.axis is not None
        self.mask, self.end = self.lanes_below(left), OPEN
        act([p | {self.schedule.axis: (base, first)} for p in points])
        self.mask = None

    def columns(self, corner: dict[str, Int], columns: int, act: Act, points: list[Point]) -> None:
        """act(points) with the first columns of a panel: full vectors together, and a masked one."""
        axis = self.schedule.axis
        assert axis is not None
        base, full = corner[axis], columns // self.lanes * self.lanes
        if full:
            act([p | {axis: (base, k)} for p in points for k in range(0, full, self.lanes)])
        if columns > full:
            self.mask = self.lanes_below(columns - full)
            self.end = self.ranges.of(base)[1] + columns
            act([p | {axis: (base, full)} for p in points])
            self.mask = None

    def tile(self, points: list[Point]) -> None:
        """The stages of a tile; what stands after its sums in a loop, if the schedule says so."""
        in_matrices = self.schedule.has(Matrix)
        row = next((step.axis for step in self.schedule.steps if isinstance(step, Matrix | Roll)), "")
        rows, every = [*dict.fromkeys(point[row] for point in points)] if row else [], self.kernel.stages
        if len(rows) < 2 and not in_matrices:
            self.stages(points)
            return
        runs: dict[tuple, list[Point]] = {}  # along the rows
        for point in points:
            beside = tuple(at for axis, at in point.items() if axis not in (row, self.schedule.axis))
            runs.setdefault(beside, []).append(point)
        points = [point for run in runs.values() for point in run]
        first = 1 + max(n for n, stage in enumerate(every) if isinstance(stage, Reduce))
        if in_matrices:
            arrays = {s.name: matrix.matrix_sums(self, s, points) for s in every if isinstance(s, Reduce)}
        else:
            self.stages(points, range(first))
            arrays = {s.name: self.stored_sums(s, points) for s in every if isinstance(s, Reduce)}
        for stage in every[first:]:
            self.hoist(stage, frozenset((row,)), [point for point in points if point[row] == rows[0]])

        def body(index: Int, stored: int, wide: list[Point]) -> None:
            at = self.sum(rows[0][0], index)
            here = [point | {row: (at, 0)} for point in wide]
            begin = self.sum(self.times(index, len(wide) * self.lanes), stored * self.lanes)
            for name, (array, one) in arrays.items():
                places = [
                    self.address(ELEMENTS[one.dtype], array, begin, k * self.lanes) for k in range(len(wide))
                ]
                self.bind(name, here, [self.read(p, one.dtype, one.lanes, 64) for p in places])
            self.stages(here, range(first, len(every)))

        self.rolled = row
        for n, run in enumerate(runs.values()):
            wide = [point for point in run if point[row] == rows[0]]
            here = partial(body, stored=n * len(run), wide=wide)
            self.loop(0, len(rows), 1, [], effect(here))
        self.rolled = ""

    def stored_sums(self, stage: Reduce, points: list[Point]) -> tuple[str, Value]:
        """Sums stored in an array on the stack, row by row: its name, and one of them."""
        values = [self.splat(self.emit(ref(stage.name, ()), point)) for point in points]
        element, length = ELEMENTS[values[0].dtype], len(points) * self.lanes
        key = stage.name, element, length
        array, *_ = self.scratch.setdefault(key, (f"%{stage.name}.sums{len(self.scratch)}", element, length))
        for k, value in enumerate(values):
            self.line(f"store {value}, ptr {self.address(element, array, 0, k * self.lanes)}, align 64")
        return array, values[0]

    # ---- a unit with many sums of one strip
    def strips(self, corner: dict[str, Int], points: list[Point]) -> None:
        """The sums at all points of the axes that a unit goes along (a window's taps, or channels), strip by
        strip.

        What a strip reads is gone over once for each tap or tile, and stays in the nearest caches meanwhile.
        """
        (stage,) = (stage for stage in self.kernel.stages if isinstance(stage, Reduce))
        along = [
            (axis.name, *self.even(axis)) for axis in self.kernel.parallel if axis.name in self.gone_along
        ]
        count = prod(block for _, block, _ in along)
        dtype = self.kernel.dtypes[stage.name]
        wide, zero = self.vector(ELEMENTS[dtype]), self.constant(0, dtype, True)
        align = self.lanes * NUMPY[dtype].itemsize
        sums = self.slot(f"[{count * len(points)} x {wide}]", 0)
        place = Affine()
        for name, block, _ in along:
            place = place * block + Affine(((name, 1),))
        steps = [
            dict(zip((axis for axis, _, _ in along), step, strict=True))
            for step in product(*(range(tile) for _, _, tile in along))
        ]

        def tile(at: Mapping[str, Int]) -> list[Point]:
            """The points whose sums are in registers at once.  at: the tile's first, from the corner on."""
            return [
                point | {axis: (self.sum(corner[axis], at[axis]), k) for axis, k in step.items()}
                for step in steps
                for point in points
            ]

        def places(at: Mapping[str, Int]) -> list[str]:
            """Where their sums are."""
            found = []
            for step in steps:
                point = {axis: (at[axis], k) for axis, k in step.items()}
                low, high = self.reach_of(place, point)
                if low < 0 or high >= count:
                    raise KernelError(f"{self.kernel.name}: the sums {low} to {high} have no place")
                number = self.whole(place * len(points), point)
                first = self.once(f"getelementptr {wide}, ptr {sums}, i64 {number}")
                found += [
                    self.once(f"getelementptr {wide}, ptr {first}, i64 {k}") for k in range(len(points))
                ]
            return found

        def loaded(at: Mapping[str, Int]) -> list[Value]:
            return [self.read(place, dtype, self.lanes, align) for place in places(at)]

        def stored(at: Mapping[str, Int], totals: list[Value]) -> None:
            for place, total in zip(places(at), totals, strict=True):
                self.line(f"store {total}, ptr {place}, align {align}")

        def add(at: Mapping[str, Int]) -> None:
            stored(at, self.accumulate(stage, tile(at), loaded(at)))

        def strip(step: Strips, index: Int) -> None:
            end = self.minimum(self.sum(index, step.size), int(self.kernel.extents[step.axis]))
            self.limits = {step.axis: (index, end)}
            self.each(along, {}, add)
            self.limits = {}

        def finish(at: Mapping[str, Int]) -> None:
            here = tile(at)
            self.bind(stage.name, here, lane_sums(self, loaded(at)))
            self.stages(here)

        self.each(along, {}, lambda at: stored(at, [zero] * (len(steps) * len(points))))
        (step,) = self.schedule.of(Strips)
        rows = int(self.kernel.extents[step.axis])
        self.loop(0, rows, step.size, [], effect(partial(strip, step)), nonempty=False)
        self.summed = {stage.name}
        self.each(along, {}, finish)
        self.summed = set()

    def even(self, axis: Axis) -> tuple[int, int]:
        """The points of an axis that a unit with strips goes along, and those of a tile: each is met once."""
        extent, tile = int(axis.extent), self.schedule.tiles.get(axis.name, 1)
        block = min(self.schedule.block(axis.name), extent)
        if extent % block or block % tile:
            raise KernelError(
                f"{self.kernel.name}: tiles of strips come out even", f"at: {axis}, {self.schedule}"
            )
        return block, tile

    def each(
        self,
        axes: Sequence[tuple[str, int, int]],
        at: Mapping[str, Int],
        act: Callable[[Mapping[str, Int]], None],
    ) -> None:
        """act(at) for the first place of every tile, in loops.  axes: (name, points, points of a tile)."""
        if not axes:
            act(at)
            return
        (axis, block, tile), *rest = axes
        body = effect(lambda index: self.each(rest, {**at, axis: index}, act))
        self.loop(0, block, tile, [], body, last=block - tile)


def symbol(kernel: Kernel) -> str:
    """The name of a kernel's function: with a prefix, so that none shadows one of the C library's."""
    return f"lamina_{kernel.name}"
