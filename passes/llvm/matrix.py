"""Sums of products in matrix registers (`Matrix`): AMX, whose registers are 16 rows of 64 bytes.

    sums[16, 16] f32 += left[16, 16 pairs] * right[16 pairs, 16 columns]

A tile of a product is two by two of them at most: four hold its sums over all of a sum, two the left
factor's rows, two the packed right factor's columns.  Then the sums go to the stack, and what stands after
them runs in vectors, row by row.  How many rows a register has is configured where the function begins, and
forgotten where it ends: threads belong to others, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import Unsayable
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Reduce
from ...ir.kernel.scalar import Cast, Op, Read
from ..schedules.steps import SIDE, Matrix
from .ranges import Int
from .writer import ELEMENTS, Point, Value, effect

if TYPE_CHECKING:
    from .units import Units

LINE = 64  # bytes of a row
LEFT, RIGHT = 4, 6  # the first register of each factor; before them are the sums


def begin(units: Units) -> None:
    """Say how many rows each register has."""
    rows = _rows(units)
    words = [0] * 8
    words[0] = 1  # the one palette that there is

    def put(register: int, height: int) -> None:
        words[2 + register // 4] |= LINE << 16 * (register % 4)
        words[6] |= height << 8 * register

    for block, height in enumerate(rows):
        put(LEFT + block, height)
        for column in range(2):
            put(2 * block + column, height)
    for column in range(2):
        put(RIGHT + column, SIDE)
    place = units.slot(f"[{LINE} x i8]", 2)
    for n, word in enumerate(words):
        units.line(f"store i64 {word}, ptr {units.address('i64', place, 0, n)}, align 8")
    _do(units, "ldtilecfg", ("ptr", place))


def end(units: Units) -> None:
    _do(units, "tilerelease")


def matrix_sums(units: Units, stage: Reduce, points: list[Point]) -> tuple[str, Value]:
    """A tile's sums, stored in an array on the stack row by row: its name, and one of them.

    points: row by row.  Raises Unsayable where the factors are no rows and panels of bfloat16.
    """
    schedule, kernel, lanes = units.schedule, units.kernel, units.lanes
    row = next(step.axis for step in schedule.of(Matrix))
    rows, pair = _rows(units), schedule.paired or ""
    vectors = len(points) // sum(rows)
    along = [axis for axis in stage.axes if axis.name != pair]
    left, right = _factors(units, stage)
    offset = kernel.buffers[left.buffer].offset(left.index)
    packed = kernel.buffers[right.buffer].offset(right.index)
    refused = (
        not units.target.matrix
        or lanes != SIDE
        or vectors > 2
        or len(along) != 1
        or len(stage.axes) != 2
        or kernel.extents[pair] != 2
        or not isinstance(along[0].extent, int)
        or along[0].extent % SIDE
        or [offset.coefficient(axis) for axis in (along[0].name, pair, units.lane_axis)] != [2, 1, 0]
        or packed.coefficient(pair) != 1
        or packed.coefficient(row) != 0
        or units.unproved(left)
        or units.unproved(right)
        or any(not isinstance(part, Affine) for part in left.index)
        or units.kernel.buffers[right.buffer].strides[-2] != 2
        or units.kernel.dtypes[stage.name] != "f32"
        or units.limits
    )
    if refused:
        raise Unsayable(f"{kernel.name}: {stage} is no product for matrix registers", str(schedule))
    (sum_axis,) = along
    wide = points[:vectors]  # those of the first row
    firsts = [points[vectors * sum(rows[:block])] for block in range(len(rows))]

    def inside(access: Read, first: Point, height: int, index: Int) -> None:
        buffer = kernel.buffers[access.buffer]
        for at_row in (0, height - 1):
            for step, half in ((0, 0), (SIDE - 1, 1)):
                base, k = first[row]
                point = first | {row: (base, k + at_row), sum_axis.name: (index, step), pair: (half, 0)}
                units.stays_inside(access, buffer, access.index, point, [])

    def step(index: Int) -> None:
        at = {sum_axis.name: (index, 0), pair: (0, 0)}
        for block, (first, height) in enumerate(zip(firsts, rows, strict=True)):
            inside(left, first, height, index)
            start = f"%{left.buffer}.ptr"
            place = units.address(ELEMENTS["bf16"], start, *units.linear(offset, first | at))
            pitch = units.times(units.size(offset.coefficient(row)), 2)
            _load(units, LEFT + block, place, pitch)
        for column, point in enumerate(wide):
            inside(right, point, 1, index)
            place = units.address_packed(right, kernel.buffers[right.buffer], point | at, -2)
            _load(units, RIGHT + column, place, units.size(packed.coefficient(sum_axis.name)) * 2)
        for block in range(len(rows)):
            for column in range(vectors):
                registers = (2 * block + column, LEFT + block, RIGHT + column)
                _do(units, units.target.matrix, *(("i8", n) for n in registers))

    for block in range(len(rows)):
        for column in range(vectors):
            _do(units, "tilezero", ("i8", 2 * block + column))
    units.loop(0, int(sum_axis.extent), SIDE, [], effect(step))
    length = len(points) * lanes
    key = stage.name, "float", length
    array, *_ = units.scratch.setdefault(key, (f"%{stage.name}.sums{len(units.scratch)}", "float", length))
    for block in range(len(rows)):
        for column in range(vectors):
            first = (vectors * sum(rows[:block]) + column) * lanes
            place = units.address("float", array, 0, first)
            pitch = vectors * LINE
            _do(units, "tilestored64", ("i8", 2 * block + column), ("ptr", place), ("i64", pitch))
    return array, units.splat(units.constant(0, "f32"))


def _rows(units: Units) -> list[int]:
    """The rows of each register down a tile."""
    (step,) = units.schedule.of(Matrix)
    height = units.schedule.tiles.get(step.axis, 1)
    if height > 2 * SIDE:
        raise Unsayable(f"{units.kernel.name}: {step} is for {2 * SIDE} rows at most", str(units.schedule))
    return [min(SIDE, height - first) for first in range(0, height, SIDE)]


def _factors(units: Units, stage: Reduce) -> tuple[Read, Read]:
    """The left factor, and the one in panels."""
    value = stage.value
    factors = value.args if isinstance(value, Op) and value.name == "mul" and stage.combine == "sum" else ()
    reads = [f.arg for f in factors if isinstance(f, Cast) and isinstance(f.arg, Read) and not f.bits]
    reads = [read for read in reads if units.kernel.buffers[read.buffer].dtype == "bf16"]
    reads.sort(key=lambda read: read.buffer in units.schedule.packed)
    if len(reads) != 2 or [read.buffer in units.schedule.packed for read in reads] != [False, True]:
        raise Unsayable(f"{units.kernel.name}: {stage} has no right factor in panels", str(units.schedule))
    return reads[0], reads[1]


def _load(units: Units, register: int, place: str, pitch: Int) -> None:
    _do(units, "tileloadd64", ("i8", register), ("ptr", place), ("i64", pitch))


def _do(units: Units, name: str, *arguments: tuple[str, object]) -> None:
    full = f"llvm.x86.{name}"
    units.declare(full, "void", [kind for kind, _ in arguments])
    units.line(f"call void @{full}({', '.join(f'{kind} {value}' for kind, value in arguments)})")
