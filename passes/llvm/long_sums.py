"""A unit with long sums: strip by strip of what is summed, while the sums of its tiles wait on the stack.

A strip of both factors of a product stays in the nearer caches while all tiles pass over it; where rows of
the left factor share lines of a cache, its strip is copied (`Copy`).  Sums over rows read few rows at a
time, each from one end to the other.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ...ir.errors import KernelError, Unsayable
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import COMBINE, Reduce, identity
from ...ir.kernel.scalar import Read, walk
from ...ir.kernel.types import NUMPY
from ..schedules.steps import Copy, Strips
from .memory import CopiedStrip
from .ranges import Int
from .writer import ELEMENTS, Point, Value, effect

if TYPE_CHECKING:
    from .units import Act, Units

LINE = 64  # bytes: with what the stack's arrays are aligned
LINES = 256  # elements: rows as far apart fall on few lines of a cache
WAITING = "waiting sums"  # in a point, beside its axes: which of a unit's sums on the stack are its own


def long_sums(units: Units, corner: dict[str, Int], points: list[Point]) -> None:
    """A unit's sums, all over the same axes, strip by strip.

    points: of the axes that have one tile in a unit.
    """
    (strips,) = units.schedule.of(Strips)
    stages = [stage for stage in units.kernel.stages if isinstance(stage, Reduce)]
    waiting = [WaitingSums(units, stage, _vectors_waiting(units, len(points))) for stage in stages]
    length = units.extent(units.kernel.extents[strips.axis])

    def add(at: list[Point]) -> None:
        for sums in waiting:
            sums.store(at, units.accumulate(sums.stage, at, sums.load(at)))

    def strip(index: Int) -> None:
        units.limits = {strips.axis: (index, units.minimum(units.sum(index, strips.size), length))}
        for copy in units.schedule.of(Copy):
            units.copied[copy.buffer] = _copy_strip(units, copy, strips, stages[0], corner | points[0])
        _each_tile(units, corner, points, add)
        units.limits, units.copied = {}, {}

    def finish(at: list[Point]) -> None:
        for sums in waiting:
            units.bind(sums.stage.name, at, sums.load(at))
        units.tile(at)

    for sums in waiting:
        sums.clear()
    units.loop(0, length, strips.size, [], effect(strip), nonempty=False)
    units.summed = {stage.name for stage in stages}
    _each_tile(units, corner, points, finish)
    units.summed = set()


def _copy_strip(units: Units, copy: Copy, strips: Strips, stage: Reduce, corner: dict) -> CopiedStrip:
    """Copies what a unit reads of a buffer in this strip, row by row in whole vectors.  A unit at the end
    of the axis, that has fewer points, begins as much earlier."""
    reads = [e for e in walk(stage.value) if isinstance(e, Read) and e.buffer == copy.buffer]
    buffer, extent = units.kernel.buffers[copy.buffer], units.kernel.extents[copy.axis]
    count = min(units.schedule.block(copy.axis), extent) if isinstance(extent, int) else 0
    if len(reads) != 1 or count < units.lanes or buffer.offset(reads[0].index).coefficient(copy.axis) != 1:
        raise Unsayable(f"{units.kernel.name}: {copy} is for rows of whole vectors", f"at: {stage}")
    (access,), element = reads, ELEMENTS[buffer.dtype]
    pitch = -(-count // units.lanes) * units.lanes
    pitch += units.lanes if pitch % LINES == 0 else 0  # else each row begins on the same lines of a cache
    array = units.slot(f"[{pitch * strips.size} x {element}]", 1)
    start = units.minimum(units.whole(Affine(((copy.axis, 1),)), corner_point(corner)), extent - count)
    first, end = units.limits[strips.axis]
    made = CopiedStrip(array, pitch, copy.axis, start, count, strips.axis, first, strips.size)

    def vector(step: Int, at: Int) -> None:
        base = units.minimum(at, count - units.lanes) if count % units.lanes else at
        point = corner_point(corner) | {strips.axis: (step, 0), copy.axis: (units.sum(start, base), 0)}
        for last in (0, units.lanes - 1):
            ends = point | {copy.axis: (point[copy.axis][0], last)}
            units.stays_inside(access, buffer, access.index, ends, [])
        address = units.address(
            element, f"%{buffer.name}.ptr", *units.linear(buffer.offset(access.index), point)
        )
        value = units.read(address, buffer.dtype, units.lanes)
        row = units.minus(step, first)
        units.ranges.declare(row, 0, strips.size - 1)
        place = units.address(element, array, units.sum(units.times(row, pitch), base), 0)
        units.line(f"store {value}, ptr {place}, align {NUMPY[buffer.dtype].itemsize}")

    def row(step: Int) -> None:
        units.loop(0, count, units.lanes, [], effect(partial(vector, step)))

    units.loop(first, end, 1, [], effect(row), nonempty=False)
    return made


def _panels_of_unit(units: Units) -> int:
    assert units.schedule.axis is not None
    return units.schedule.block(units.schedule.axis) // units.panel_width


def _vectors_waiting(units: Units, points: int) -> int:
    """Vectors of sums that a unit has, at so many points of its other axes."""
    rows = prod(units.schedule.block(axis) for axis in units.gone_along)
    return _panels_of_unit(units) * rows * points * units.schedule.vectors


def _each_tile(units: Units, corner: dict[str, Int], points: list[Point], act: Act) -> None:
    """act(points) for each tile of a unit of several panels.  A point says at WAITING the number of its
    first vector among those of the unit."""
    axis, width, count = units.schedule.axis, units.panel_width, _panels_of_unit(units)
    assert axis is not None
    unit, each = units.panels[axis], _vectors_waiting(units, len(points)) // count
    first, last = units.times(unit, count), units.sum(units.extent(units.kernel.extents[axis]), width - 1)

    def tiles(panel: Int) -> None:
        number = units.minus(panel, first)
        units.ranges.declare(number, 0, count - 1)  # the loop runs from `first` on, as often at most
        units.panels[axis] = panel
        here = corner | {axis: units.times(panel, width)}
        units.panel(here, partial(_row_tiles, units, corner, points, units.times(number, each)), act)

    end = units.minimum(units.sum(first, count), units.integer("udiv", last, width))
    units.loop(first, end, 1, [], effect(tiles))
    units.panels[axis] = unit


def _row_tiles(units: Units, corner: dict[str, Int], points: list[Point], place: Int, act: Act) -> None:
    """act(points) for each tile of a unit's rows; place: the number of the first one's first vector."""
    vectors = units.schedule.vectors
    if not units.gone_along:
        act([p | {WAITING: (place, n * vectors)} for n, p in enumerate(points)])
        return
    (axis,) = units.gone_along
    size, block = units.schedule.tiles.get(axis, 1), units.schedule.block(axis)
    extent = units.kernel.extents[axis]
    left = units.minimum(block, units.minus(units.extent(extent), corner[axis]))

    def tile(number: Int) -> None:
        # Held to the axis even where tiles fill it: ranges do not tell that a later unit has fewer of them.
        last = units.integer("sub", units.extent(extent), size)
        base = units.minimum(units.sum(corner[axis], units.times(number, size)), last)
        start = units.sum(place, units.times(number, size * len(points) * vectors))
        at = [p | {axis: (base, k)} for k in range(size) for p in points]
        act([p | {WAITING: (start, n * vectors)} for n, p in enumerate(at)])

    count = units.integer("udiv", units.sum(left, size - 1), size)
    units.loop(0, count, 1, [], effect(tile))


def corner_point(corner: dict) -> Point:
    """The point at a unit's corner."""
    return {axis: at if isinstance(at, tuple) else (at, 0) for axis, at in corner.items()}


class WaitingSums:
    """A sum of all of a unit's tiles, in vectors on the stack, each where its point says at WAITING."""

    def __init__(self, units: Units, stage: Reduce, count: int):
        self.units, self.stage, self.count = units, stage, count
        self.dtype = units.kernel.dtypes[stage.name]
        self.type = units.vector(ELEMENTS[self.dtype])
        self.align = min(units.lanes * NUMPY[self.dtype].itemsize, LINE)
        self.start = units.slot(f"[{count} x {self.type}]", units.kernel.stages.index(stage))

    def clear(self) -> None:
        units, start = self.units, identity(COMBINE[self.stage.combine], self.dtype)
        nothing = units.constant(start, self.dtype, True)

        def one(index: Int) -> None:
            place = units.address(self.type, self.start, index, 0)
            units.line(f"store {nothing}, ptr {place}, align {self.align}")

        units.loop(0, self.count, 1, [], effect(one))

    def load(self, points: list[Point]) -> list[Value]:
        units = self.units
        return [units.read(place, self.dtype, units.lanes, self.align) for place in self.places(points)]

    def store(self, points: list[Point], sums: list[Value]) -> None:
        for place, value in zip(self.places(points), sums, strict=True):
            self.units.line(f"store {value}, ptr {place}, align {self.align}")

    def places(self, points: list[Point]) -> list[str]:
        """The addresses.  Raises KernelError where one may lie beyond the array."""
        units, axis = self.units, self.units.schedule.axis
        assert axis is not None
        found = []
        for point in points:
            base, first = point[WAITING]
            number = first + point[axis][1] // units.lanes
            low, high = (end + number for end in units.ranges.of(base))
            if low <= high and (low < 0 or high >= self.count):
                raise KernelError(
                    f"{units.kernel.name}: a tile's sums may leave their {self.count} vectors on the stack",
                    f"it takes {low} to {high}",
                    f"schedule: {units.schedule}",
                )
            found.append(units.address(self.type, self.start, base, number))
        return found
