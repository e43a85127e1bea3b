"""Products of matrices whose right factor is packed in panels: [n / width, k, width].

    y[i, j] = sum(k) x[i, k] * b[j // width, k, j % width]

A panel is read in one stream, whatever the matrix's rows were, and stays in the cache while tiles of rows
pass over it.  The stages after the sum run on the tile in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

from ...ir.errors import KernelError
from ...ir.kernel.form import Buffer, Fold, Kernel, Reduce
from ...ir.kernel.scalar import Expr, Read, ref
from ...ir.kernel.types import NUMPY
from ..collapse import collapsed
from .code import Code, Phase
from .cost import nanoseconds
from .emit import Emitter
from .entry import entry
from .lane_sums import lane_sums
from .schedule import Schedule, instructions, runs_once, units
from .target import Target
from .writer import ELEMENTS, Point, Value

# Instructions after a tile's sums, from which on they are written once, in a loop over its rows: for 12 rows
# and the random numbers of dropout LLVM takes 370 ms, and 35 where they are in a loop that runs as fast.
LONG_TILE = 400


@dataclass(frozen=True)
class Panels:
    """How a product runs by panels of its right factor's columns.

    The axes are those of the collapsed kernel.  row, column: of a tile in registers, `rows` high and `width`
    wide.  packed: the buffer that is packed in panels of that width; None for a factor read where it lies.
    block: rows in a unit of work.  ahead: bytes of the packed factor that are asked for before their use.
    """

    packed: str | None
    row: str | None
    column: str
    rows: int
    width: int
    block: int
    ahead: int = 0

    def __str__(self) -> str:
        shape = f"{self.rows} {self.row} x {self.width} {self.column}"
        return f"panels({shape}{'' if self.packed is None else ', packed'})"

    def code(self, kernel: Kernel, target: Target) -> Code:
        """One phase.  Raises KernelError where points must not be computed twice."""
        return replace(_panels(self, kernel.replace(name="kernel"), target), kernel=kernel)


@dataclass(frozen=True)
class Dots:
    """How a product runs whose factors both lie along the summed axis `k`: its lanes are added up last.

    tile: rows and columns that are computed together, by axis of the collapsed kernel.
    """

    k: str
    tile: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"dots({self.k}, {' x '.join(f'{size} {axis}' for axis, size in self.tile)})"

    def code(self, kernel: Kernel, target: Target) -> Code:
        """One phase.  Raises KernelError where points must not be computed twice."""
        return replace(_dots(self, kernel.replace(name="kernel"), target), kernel=kernel)


@lru_cache(256)
def _panels(how: Panels, kernel: Kernel, target: Target) -> Code:
    emitter = Tiles(_pure(kernel), how, target)
    return _one_phase(kernel, emitter, emitter.units)


@lru_cache(256)
def _dots(how: Dots, kernel: Kernel, target: Target) -> Code:
    flat, schedule = _pure(kernel), Schedule(how.k, 1, dict(how.tile))
    return _one_phase(kernel, Sums(flat, schedule, target), units(flat, schedule))


def _pure(kernel: Kernel) -> Kernel:
    """The collapsed kernel.  Raises KernelError where points must not be computed twice."""
    if runs_once(kernel):
        raise KernelError(f"{kernel.name}: the last tile overlaps its neighbour, so stores are plain")
    return collapsed(kernel)


def _one_phase(kernel: Kernel, emitter: Emitter, count: int) -> Code:
    symbol, text = entry(emitter)
    cost = nanoseconds(emitter.kernel, emitter.schedule, emitter.target)
    return Code(kernel, "\n".join([*emitter.declared.values(), text, ""]), (Phase(symbol, count, cost),))


class Sums(Emitter):
    """Adds up the lanes of several sums at once."""

    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        dtype = self.kernel.dtypes[stage.name]
        factors = stage.value.args  # type: ignore[attr-defined]  # product() said so

        def add(at: list[Point], totals: list[Value]) -> list[Value]:
            totals = list(totals)
            for k, (point, total) in enumerate(zip(at, totals, strict=True)):
                left, right = (self.splat(self.emit(factor, point, dtype)) for factor in factors)
                totals[k] = self.multiplied(left, right, total)
                if self.mask:
                    mask = Value(self.mask, "bool", self.lanes)
                    totals[k] = self.ssa(f"select {mask}, {totals[k]}, {total}", dtype, self.lanes)
            return totals

        start = self.constant(0, dtype, True)
        return lane_sums(self, self.over(stage.axes, points, [start] * len(points), add))

    def multiplied(self, left: Value, right: Value, total: Value) -> Value:
        if self.target.has_fma:
            return self.named("fma", left, right, total)
        return self.named("add", self.named("mul", left, right), total)


class Tiles(Emitter):
    """Writes a unit: the tiles of a block of rows against one panel."""

    def __init__(self, kernel: Kernel, how: Panels, target: Target):
        super().__init__(kernel, Schedule(how.column, how.width // target.lanes), target)
        self.how, self.width, self.panel = how, how.width, "0"
        self.outer = [axis for axis in kernel.parallel if axis.name not in (how.row, how.column)]

    @cached_property
    def sizes(self) -> list[tuple[str, int]]:
        """What a unit's number counts, slowest first."""
        extents = self.kernel.extents
        blocks = -(-int(extents[self.how.row]) // self.how.block) if self.how.row else 1
        panels = -(-int(extents[self.how.column]) // self.width)
        counted = [(axis.name, int(axis.extent)) for axis in self.outer]
        return [*counted, (self.how.column, panels), ("block", blocks)]

    @cached_property
    def units(self) -> int:
        return prod(count for _, count in self.sizes)

    def unit(self, number: str) -> None:
        point: Point = {}
        for name, count in reversed(self.sizes):
            index = "0" if count == 1 else self.integer(f"urem i64 {number}, {count}")
            number = number if count == 1 else self.integer(f"udiv i64 {number}, {count}")
            point[name] = (index, 0)
        how, extents = self.how, self.kernel.extents
        self.panel, (block, _) = point[how.column][0], point.pop("block")
        point[how.column] = (self.times(self.panel, self.width) if self.panel != "0" else "0", 0)
        rest = int(extents[how.column]) % self.width
        if not rest:
            self.rows(point, block, self.width)
        elif int(extents[how.column]) < self.width:
            self.rows(point, block, rest)
        else:
            whole = int(extents[how.column]) // self.width
            last = self.integer(f"icmp eq i64 {self.panel}, {whole}")
            most = self.ranges.of(self.panel)[1]
            branches = (
                (rest, last, (whole, whole)),
                (self.width, self.integer(f"xor i1 {last}, true"), (0, most - (most == whole))),
            )
            for columns, test, panels in branches:
                once = self.integer(f"zext i1 {test} to i64")
                with self.ranges.given(self.panel, *panels):
                    self.loop("0", once, 1, [], self.block_of(point, block, columns), nonempty=False)

    def block_of(self, point: Point, block: str, columns: int):
        def body(index: str, carried: list[Value]) -> list[Value]:
            self.rows(point, block, columns)
            return carried

        return body

    def rows(self, point: Point, block: str, columns: int) -> None:
        """The tiles of a block against the first `columns` columns of the panel."""
        how, row = self.how, self.how.row
        if row is None:
            self.tile([point], columns)
            return
        extent = int(self.kernel.extents[row])
        if how.rows == extent:
            self.tile([point | {row: ("0", k)} for k in range(extent)], columns)
            return
        low = self.times(block, how.block) if block != "0" else "0"
        high = self.least(self.sum(low, str(how.block)), str(extent)) if extent > how.block else str(extent)
        if extent > how.block and how.block % how.rows:
            raise KernelError(f"{self.kernel.name}: tiles don't divide blocks", f"how: {how}, {how.block}")

        def body(index: str, carried: list[Value]) -> list[Value]:
            # the last tile overlaps its neighbour: stores are pure functions of their point
            base = self.least(index, str(extent - how.rows)) if extent % how.rows else index
            self.tile([point | {row: (base, k)} for k in range(how.rows)], columns)
            return carried

        # low and high are multiples of a tile's rows, where the last one does not overlap
        self.loop(low, high, how.rows, [], body, last=None if extent % how.rows else extent - how.rows)

    def least(self, left: str, right: str) -> str:
        test = self.integer(f"icmp slt i64 {left}, {right}")
        return self.integer(f"select i1 {test}, i64 {left}, i64 {right}")

    def tile(self, points: list[Point], columns: int) -> None:
        column, lanes = self.how.column, self.lanes
        full = columns // lanes * lanes
        base = points[0][column][0]
        if full:
            self.stages([p | {column: (base, k)} for p in points for k in range(0, full, lanes)])
        if columns > full:
            self.mask = self.lanes_below(str(columns - full))
            self.end = self.ranges.of(base)[1] + columns
            self.stages([p | {column: (base, full)} for p in points])
            self.mask = None

    def stages(self, points: list[Point], numbers: range | None = None) -> None:
        """What is long after the sums is written once, in a loop over the tile's rows."""
        row, every = self.how.row, self.kernel.stages
        first = 1 + max(n for n, stage in enumerate(every) if isinstance(stage, Reduce))
        after = every[first:]
        length = instructions(self.kernel, after, self.schedule.keep)
        rows = [*dict.fromkeys(point[row] for point in points)] if row else []
        if len(rows) < 2 or length * len(points) <= LONG_TILE or any(isinstance(s, Fold) for s in every):
            super().stages(points, numbers)
            return
        assert row is not None
        super().stages(points, range(first))
        wide = [point for point in points if point[row] == rows[0]]
        arrays = {s.name: self.held(s, points) for s in every if isinstance(s, Reduce)}
        for stage in after:
            self.hoist(stage, frozenset((row,)), wide)

        def body(index: str, carried: list[Value]) -> list[Value]:
            at = self.sum(rows[0][0], index)
            here = [point | {row: (at, 0)} for point in wide]
            begin = self.times(index, len(wide) * self.lanes)
            for name, (array, one) in arrays.items():
                places = [
                    self.address(ELEMENTS[one.dtype], array, begin, k * self.lanes) for k in range(len(wide))
                ]
                sums = [self.ssa(f"load {one.type}, ptr {p}, align 64", one.dtype, one.lanes) for p in places]
                self.bind(name, here, sums)
            super(Tiles, self).stages(here, range(first, len(every)))
            return carried

        self.loop("0", str(len(rows)), 1, [], body)

    def held(self, stage: Reduce, points: list[Point]) -> tuple[str, Value]:
        """Sums stored in an array on the stack, row by row: its name, and one of them."""
        values = [self.splat(self.emit(ref(stage.name, ()), point)) for point in points]
        element, length = ELEMENTS[values[0].dtype], len(points) * self.lanes
        key = stage.name, element, length
        array, *_ = self.scratch.setdefault(key, (f"%{stage.name}.sums{len(self.scratch)}", element, length))
        for k, value in enumerate(values):
            self.line(f"store {value}, ptr {self.address(element, array, '0', k * self.lanes)}, align 64")
        return array, values[0]

    def load(self, access: Read, point: Point) -> Value:
        """A vector of the packed factor: whole, since panels are padded."""
        if access.buffer != self.how.packed:
            return super().load(access, point)
        buffer = self.kernel.buffers[access.buffer]
        offset = buffer.offset(access.index)
        panel = next(d for d, part in enumerate(access.index) if isinstance(part, Expr))
        self.in_panel(access, buffer, panel, point)
        base, constant = self.linear(offset, point)
        if self.panel != "0":
            base = self.sum(self.times(self.panel, buffer.strides[panel]), base)
        element = ELEMENTS[buffer.dtype]
        address = self.address(element, f"%{buffer.name}.ptr", base, constant + point[self.how.column][1])
        if self.how.ahead:
            later = self.address("i8", address, "0", self.how.ahead)
            later = [("ptr", later), ("i32", "0"), ("i32", "3"), ("i32", "1")]
            self.line(self.call("llvm.prefetch.p0", "void", later))
        align = NUMPY[buffer.dtype].itemsize
        load = f"load {self.vector(element)}, ptr {address}, align {align}"
        return self.ssa(load, buffer.dtype, self.lanes)

    def in_panel(self, access: Read, buffer: Buffer, panel: int, point: Point) -> None:
        """Raises KernelError unless a whole vector of a panel that there is lies in it."""
        self.stays_inside(access, buffer, access.index, point, [])
        _, last = self.ranges.of(self.panel)
        panels, width = int(buffer.shape[panel]), int(buffer.shape[-1])
        if last >= panels or point[self.how.column][1] + self.lanes > width:
            first = point[self.how.column][1]
            raise KernelError(
                f"{self.kernel.name}: the code of {access} may leave {buffer}",
                f"panel {last} of {panels}, columns {first} to {first + self.lanes - 1} of {width}",
                f"how: {self.how}",
                f"kernel: {self.kernel}",
            )


def tile(extent: int, most: int) -> int:
    """The largest tile that computes less than a twentieth of the points twice, else the one with least."""
    most = min(extent, most)
    sizes = range(most, (most - 1) // 2, -1)
    spare = {n: -(-extent // n) * n / extent for n in sizes}
    return next((n for n in sizes if spare[n] < 1.05), min(sizes, key=spare.__getitem__))
