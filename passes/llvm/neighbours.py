"""Sums of products of neighbours, which one instruction multiplies and adds up (`Pairs`, `Quads`).

    total[lane] += left[2*k] * right[2*k, lane] + left[2*k+1] * right[2*k+1, lane]       and the like of four

Bytes are unsigned to such an instruction or signed, as it says itself.  Those of the other kind are taken
with their highest bit turned over, and so off by 128: what that adds to each column is summed beside it, and
taken off at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import Unsayable
from ...ir.kernel.form import Reduce, names
from ...ir.kernel.scalar import Cast, Op, Read
from ..schedules.steps import NEIGHBOURS
from .writer import Point, Value

if TYPE_CHECKING:
    from .reductions import Reductions

TURNED = -0x7F7F7F80  # 0x80808080: of four bytes the highest bit


def factors_of(writer: Reductions, stage: Reduce) -> tuple[Read, Read]:
    """The factors of a sum of neighbours, the one that an instruction takes first before the other.

    Raises Unsayable where they are no elements of types that the target multiplies so.
    """
    value, target = stage.value, writer.target
    factors = value.args if isinstance(value, Op) and value.name == "mul" and stage.combine == "sum" else ()
    reads = [f.arg for f in factors if isinstance(f, Cast) and isinstance(f.arg, Read) and not f.bits]
    dtypes = sorted(dtype_of(writer, read) for read in reads)
    sums, lanes = writer.kernel.dtypes[stage.name], writer.lanes
    fits = {
        "bf16": sums == "f32" and bool(target.pairs),
        "i16": sums == "i32" and lanes in target.words,
        "i8": sums == "i32" and lanes in target.quads,
    }
    if len(reads) != 2 or not fits.get(dtypes[0]) or dtypes[1] not in (dtypes[0], f"u{dtypes[0][1:]}"):
        raise Unsayable(
            f"{writer.kernel.name}: {target.name} adds up no neighbours of these factors",
            f"at: {stage}",
            f"schedule: {writer.schedule}",
        )
    if dtypes[0] == "i8":  # u8 first; of two i8 the one that lanes share, which is turned over
        reads.sort(key=lambda read: (dtype_of(writer, read) == "i8", read.buffer in writer.schedule.packed))
    return reads[0], reads[1]


def dtype_of(writer: Reductions, access: Read) -> str:
    return writer.kernel.buffers[access.buffer].dtype


def corrected(writer: Reductions, stage: Reduce, points: list[Point]) -> dict[object, int]:
    """The columns whose sums are taken beside, each with the first of the points that it has; none where
    bytes are of the kind that the instruction takes.
    """
    if writer.schedule.paired not in names(stage.axes):
        return {}
    first, second = factors_of(writer, stage)
    if dtype_of(writer, second) != "i8" or not _is_turned(writer, first):
        return {}
    if writer.unproved(first) or writer.unproved(second):
        raise Unsayable(f"{writer.kernel.name}: bytes beside {stage} are of the other kind")
    found: dict[object, int] = {}
    for number, point in enumerate(points):
        found.setdefault(column(writer, stage, point), number)
    return found


def column(writer: Reductions, stage: Reduce, point: Point) -> object:
    """What tells the points apart that meet another second factor."""
    _, second = factors_of(writer, stage)
    free = writer.kernel.free_axes(second)
    return tuple((axis, at) for axis, at in sorted(point.items()) if axis in free or axis == writer.lane_axis)


def _is_turned(writer: Reductions, first: Read) -> bool:
    return (dtype_of(writer, first) == "i8") != writer.target.quads_signed


def add_neighbours(writer: Reductions, stage: Reduce, total: Value, point: Point) -> Value:
    """The total and, for each lane, the products of neighbours of both factors: one instruction, or two."""
    first, second = factors_of(writer, stage)
    dtype = dtype_of(writer, second)
    is_turned = dtype == "i8" and _is_turned(writer, first)
    sides = _side(writer, first, point, is_turned), _side(writer, second, point)
    return _added(writer, dtype, total, *sides)


def add_correction(writer: Reductions, stage: Reduce, total: Value, point: Point) -> Value:
    """The total and, for each lane, 128 times the numbers of the second factor."""
    _, second = factors_of(writer, stage)
    turned = writer.constant(TURNED, "i32", True)
    return _added(writer, "i8", total, turned, _side(writer, second, point))


def _side(writer: Reductions, access: Read, point: Point, is_turned: bool = False) -> Value:
    """Neighbours of a factor, as an i32 for each lane."""

    def make() -> Value:
        value = writer.splat(writer.load_pair(access, point))
        return writer.binary("xor", value, TURNED) if is_turned else value

    return writer.memo(("neighbours", writer.key(access, point)), make)


def _added(writer: Reductions, dtype: str, total: Value, left: Value, right: Value) -> Value:
    """One instruction; left, right: neighbours as an i32 for each lane."""
    target, lanes = writer.target, writer.lanes
    name = {"bf16": target.pairs, "i16": target.words.get(lanes), "i8": target.quads.get(lanes)}[dtype]
    assert name
    if dtype == "i8" and not target.quads_signed:  # VNNI takes them as they are
        return writer.ssa(writer.call(name, total.type, [total, left, right]), "i32", lanes)
    count = NEIGHBOURS[dtype] * lanes
    wide = f"<{count} x {'bfloat' if dtype == 'bf16' else dtype}>"
    sides = [f"{wide} {writer.once(f'bitcast {value} to {wide}')}" for value in (left, right)]
    given = [] if dtype == "i16" else [total]
    writer.declare(name, total.type, [*(value.type for value in given), wide, wide])
    called = f"call {total.type} @{name}({', '.join([*map(str, given), *sides])})"
    made = writer.ssa(called, total.dtype, lanes)
    return made if given else writer.named("add", total, made)
