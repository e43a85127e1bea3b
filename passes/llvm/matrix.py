"""Sums of products in matrix registers (`Matrix`): AMX, whose registers are 16 rows of 64 bytes.

    sums[16, 16] f32 += left[16, 16 pairs] * right[16 pairs, 16 columns]
    sums[16, 16] i32 += left[16, 16 quads] * right[16 quads, 16 columns]

Pairs are of bfloat16, quads of bytes, either signed or not.  A tile of a product is two by two of them at
most: four hold its sums over all of a sum, two the left factor's rows, two the packed right factor's columns.
Pairs or quads lie side by side in both factors; what else is summed (the taps of a window) is gone over by
loops around them.  Then the sums go to the stack, and what stands after them runs in vectors, row by row.
How many rows a register has is configured where the function begins, and forgotten where it ends: threads
belong to others, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ...ir.errors import Unsayable
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Reduce, names
from ...ir.kernel.scalar import Cast, Op, Read
from ..kernels.scales import split_scales
from ..schedules.steps import NEIGHBOURS, SIDE, Matrix, pairs_at_once
from .ranges import Int
from .writer import ELEMENTS, Point, Value, effect

if TYPE_CHECKING:
    from .units import Units

LINE, PAIR = 64, 4  # bytes of a row, and of a pair or a quad
LEFT, RIGHT = 4, 6  # the first register of each factor; before them are the sums


def begin(units: Units) -> None:
    """Say how many rows each register has."""
    rows, depth = _rows(units), _depth(units)
    words = [0] * 8
    words[0] = 1  # the one palette that there is

    def put(register: int, height: int, width: int = LINE) -> None:
        words[2 + register // 4] |= width << 16 * (register % 4)
        words[6] |= height << 8 * register

    for block, height in enumerate(rows):
        put(LEFT + block, height, depth * PAIR)
        for column in range(2):
            put(2 * block + column, height)
    for column in range(2):
        put(RIGHT + column, depth)
    place = units.slot(f"[{LINE} x i8]", 2)
    for n, word in enumerate(words):
        units.line(f"store i64 {word}, ptr {units.address('i64', place, 0, n)}, align 8")
    _do(units, "ldtilecfg", ("ptr", place))


def end(units: Units) -> None:
    _do(units, "tilerelease")


def matrix_sums(units: Units, stage: Reduce, points: list[Point]) -> tuple[str, Value]:
    """A tile's sums, stored in an array on the stack row by row: its name, and one of them.  Where the
    schedule scales sums, each is added to those so far as it comes to the stack.

    points: row by row.  Raises Unsayable where the factors are no rows and panels of bfloat16 or bytes.
    """
    axis, axes = units.schedule.scaled, names(stage.axes)
    first = axes.index(axis) if axis in axes else 0
    found = split_scales(units.kernel, stage, axes[first:]) if axis in axes else None
    if found is None:
        return _sums(units, stage, points)
    (scale, rest), lanes, dtype = found, units.lanes, units.kernel.dtypes[stage.name]
    part = replace(stage, axes=stage.axes[first:], value=rest)
    totals = _array(units, stage, "totals", len(points))
    wide = len(points) // sum(_rows(units))  # vectors of a row

    def each_row(act: Callable[[str, Value, Value], Value], array: str, scales: list[Value]) -> None:
        """Put what act(place in the array, total, scale) gives in the place of each total."""

        def row(index: Int) -> None:
            begin = units.times(index, wide * lanes)
            for n, by in enumerate(scales):
                place, total = (
                    units.address(ELEMENTS[dtype], each, begin, n * lanes) for each in (array, totals)
                )
                value = act(place, units.read(total, dtype, lanes, LINE), by)
                units.line(f"store {value}, ptr {total}, align {LINE}")

        units.loop(0, len(points) // wide, 1, [], effect(row))

    def add(place: str, total: Value, by: Value) -> Value:
        return units.named("fma", units.read(place, dtype, lanes, LINE), by, total)

    def nest(outer: tuple[Axis, ...], at: Point) -> None:
        if outer:
            axis, *others = outer
            body = effect(lambda index: nest(tuple(others), at | {axis.name: (index, 0)}))
            units.loop(0, units.extent(axis.extent), 1, [], body)
            return
        here = [point | at for point in points]
        array, _ = _sums(units, part, here)
        each_row(add, array, [units.splat(units.emit(scale, point, dtype)) for point in here[:wide]])

    zero = units.constant(0, dtype, True)
    each_row(lambda place, total, by: by, totals, [zero] * wide)
    nest(stage.axes[:first], {})
    return totals, zero


def _array(units: Units, stage: Reduce, what: str, vectors: int) -> str:
    """An array on the stack for vectors of a stage's sums."""
    element, length = ELEMENTS[units.kernel.dtypes[stage.name]], vectors * units.lanes
    key = stage.name, what, element, length
    name = f"%{stage.name}.{what}{len(units.scratch)}"
    return units.scratch.setdefault(key, (name, element, length))[0]


def _sums(units: Units, stage: Reduce, points: list[Point]) -> tuple[str, Value]:
    """The sums of one stage, in registers and then on the stack."""
    schedule, kernel, lanes = units.schedule, units.kernel, units.lanes
    row = next(step.axis for step in schedule.of(Matrix))
    rows, pair = _rows(units), schedule.paired or ""
    vectors = len(points) // sum(rows)
    *around, last = [axis for axis in stage.axes if axis.name != pair]
    left, right = _factors(units, stage)
    dtypes = kernel.buffers[left.buffer].dtype, kernel.buffers[right.buffer].dtype
    product, sums = _instruction(units, *dtypes)
    count = NEIGHBOURS.get(dtypes[0], 2)
    itemsize = PAIR // count
    offset = kernel.buffers[left.buffer].offset(left.index)
    packed = kernel.buffers[right.buffer].offset(right.index)
    refused = (
        not product
        or lanes != SIDE
        or vectors > 2
        or kernel.extents.get(pair) != count
        or any(not isinstance(axis.extent, int) or not axis.extent for axis in (*around, last))
        or [offset.coefficient(axis) for axis in (last.name, pair, units.lane_axis)] != [count, 1, 0]
        or packed.coefficient(pair) != 1
        or len(points) != vectors * sum(rows)
        or any(packed.coefficient(axis) != 0 for axis in (row, *schedule.tiles))
        or units.unproved(left)
        or units.unproved(right)
        or any(not isinstance(part, Affine) for part in left.index)
        or units.kernel.buffers[right.buffer].strides[-2] != count
        or units.kernel.dtypes[stage.name] != sums
        or units.limits
    )
    if refused:
        raise Unsayable(f"{kernel.name}: {stage} is no product for matrix registers", str(schedule))
    depth = _depth(units)
    wide = points[:vectors]  # those of the first row
    firsts = [points[vectors * sum(rows[:block])] for block in range(len(rows))]

    def inside(access: Read, first: Point, height: int) -> None:
        buffer = kernel.buffers[access.buffer]
        for at_row in (0, height - 1):
            for step, half in ((0, 0), (depth - 1, count - 1)):
                (base, k), (index, _) = first[row], first[last.name]
                point = first | {row: (base, k + at_row), last.name: (index, step), pair: (half, 0)}
                units.stays_inside(access, buffer, access.index, point, [])

    def step(at: Point) -> None:
        for block, (first, height) in enumerate(zip(firsts, rows, strict=True)):
            inside(left, first | at, height)
            start = f"%{left.buffer}.ptr"
            place = units.address(ELEMENTS[dtypes[0]], start, *units.linear(offset, first | at))
            pitch = units.times(units.size(offset.coefficient(row)), itemsize)
            _load(units, LEFT + block, place, pitch)
        for column, point in enumerate(wide):
            inside(right, point | at, 1)
            place = units.address_packed(right, kernel.buffers[right.buffer], point | at, -2)
            _load(units, RIGHT + column, place, units.size(packed.coefficient(last.name)) * itemsize)
        for block in range(len(rows)):
            for column in range(vectors):
                registers = (2 * block + column, LEFT + block, RIGHT + column)
                _do(units, product, *(("i8", n) for n in registers))

    for block in range(len(rows)):
        for column in range(vectors):
            _do(units, "tilezero", ("i8", 2 * block + column))

    def nest(axes: list[Axis], at: Point) -> None:
        if not axes:
            units.loop(0, int(last.extent), depth, [], effect(lambda i: step(at | {last.name: (i, 0)})))
            return
        axis = axes[0]
        units.loop(0, int(axis.extent), 1, [], effect(lambda i: nest(axes[1:], at | {axis.name: (i, 0)})))

    nest(around, {pair: (0, 0)})
    element, array = ELEMENTS[sums], _array(units, stage, "sums", len(points))
    for block in range(len(rows)):
        for column in range(vectors):
            first = (vectors * sum(rows[:block]) + column) * lanes
            place = units.address(element, array, 0, first)
            pitch = vectors * LINE
            _do(units, "tilestored64", ("i8", 2 * block + column), ("ptr", place), ("i64", pitch))
    return array, units.splat(units.constant(0, sums))


def _rows(units: Units) -> list[int]:
    """The rows of each register down a tile: parts of its rows along the axis, or these in two places."""
    (step,) = units.schedule.of(Matrix)
    sizes = dict(units.schedule.tiles)
    height, times = sizes.pop(step.axis, 1), prod(sizes.values())
    if times * -(-height // SIDE) > 2:
        raise Unsayable(f"{units.kernel.name}: {step} is for two registers at most", str(units.schedule))
    return [min(SIDE, height - first) for first in range(0, height, SIDE)] * times


def _depth(units: Units) -> int:
    """The pairs along the sum that a register holds: as many as divide it."""
    kernel, pair = units.kernel, units.schedule.paired or ""
    extents = [a.extent for s in kernel.stages if isinstance(s, Reduce) for a in s.axes if a.name != pair]
    return pairs_at_once(int(extents[-1]) if extents and isinstance(extents[-1], int) else 1)


def _factors(units: Units, stage: Reduce) -> tuple[Read, Read]:
    """The left factor, and the one in panels."""
    value = stage.value
    factors = value.args if isinstance(value, Op) and value.name == "mul" and stage.combine == "sum" else ()
    reads = [f.arg for f in factors if isinstance(f, Cast) and isinstance(f.arg, Read) and not f.bits]
    reads.sort(key=lambda read: read.buffer in units.schedule.packed)
    if len(reads) != 2 or [read.buffer in units.schedule.packed for read in reads] != [False, True]:
        raise Unsayable(f"{units.kernel.name}: {stage} has no right factor in panels", str(units.schedule))
    return reads[0], reads[1]


def _instruction(units: Units, left: str, right: str) -> tuple[str, str]:
    """What multiplies registers of these types, and the type of its sums; "" where nothing does."""
    if left == right == "bf16":
        return units.target.matrix, "f32"
    if {left, right} <= {"i8", "u8"} and units.target.byte_matrix:
        return f"tdpb{left[0].replace('i', 's')}{right[0].replace('i', 's')}d", "i32"
    return "", "f32"


def _load(units: Units, register: int, place: str, pitch: Int) -> None:
    _do(units, "tileloadd64", ("i8", register), ("ptr", place), ("i64", pitch))


def _do(units: Units, name: str, *arguments: tuple[str, object]) -> None:
    full = f"llvm.x86.{name}"
    units.declare(full, "void", [kind for kind, _ in arguments])
    units.line(f"call void @{full}({', '.join(f'{kind} {value}' for kind, value in arguments)})")
