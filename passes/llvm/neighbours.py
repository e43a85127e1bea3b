"""Sums of products of neighbours, which one instruction multiplies and adds up (`Pairs`, `Quads`).

    total[lane] += left[2*k] * right[2*k, lane] + left[2*k+1] * right[2*k+1, lane]       and the like of four

Bytes are unsigned to such an instruction or signed, as it says itself.  Those of the other kind are taken
with their highest bit turned over, and so off by 128: what that adds to each column is summed beside it, and
taken off at the end.  Of bytes that hold two numbers of four bits each is cut out where they are multiplied.

Where no instruction adds to 32 bits, one multiplies bytes and adds up two products in 16.  A few of these
sums, of numbers of four bits, fit there (`Shorts`), two in each lane's 32 bits, before they are widened.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ...ir.errors import Unsayable
from ...ir.kernel.form import Reduce, names
from ...ir.kernel.scalar import Cast, Const, Expr, Op, Read
from ..kernels.nibbles import BITS
from ..schedules.steps import NEIGHBOURS
from .writer import Point, Value

if TYPE_CHECKING:
    from .reductions import Reductions

TURNED = -0x7F7F7F80  # 0x80808080: of four bytes the highest bit
MOST_SHORT = 0x7FFF // (BITS * 128)  # products of four bits and a byte, whose sum is an i16
ALL_BITS = BITS * 0x01010101  # the lowest four bits of each of four bytes


@dataclass(frozen=True)
class Factor:
    """A factor of a sum of neighbours: elements, or of each its four bits from `shift` on."""

    access: Read
    dtype: str
    shift: Expr | None = None


def factors_of(writer: Reductions, stage: Reduce) -> tuple[Factor, Factor]:
    """The factors of a sum of neighbours, the one that an instruction takes first before the other.

    Raises Unsayable where they are nothing that the target multiplies so.
    """
    value, target = stage.value, writer.target
    factors = value.args if isinstance(value, Op) and value.name == "mul" and stage.combine == "sum" else ()
    found = [_factor(writer, f.arg) for f in factors if isinstance(f, Cast) and not f.bits]
    sides = [side for side in found if side is not None]
    dtypes = sorted(side.dtype for side in sides)
    sums, lanes = writer.kernel.dtype_of(value), writer.lanes
    fits = {
        "bf16": sums == "f32" and bool(target.pairs),
        "i16": sums == "i32" and lanes in target.words,
        "i8": sums == "i32" and (lanes in target.quads or writer.schedule.short is not None),
    }
    if len(sides) != 2 or not fits.get(dtypes[0]) or dtypes[1] not in (dtypes[0], f"u{dtypes[0][1:]}"):
        raise Unsayable(
            f"{writer.kernel.name}: {target.name} adds up no neighbours of these factors",
            f"at: {stage}",
            f"schedule: {writer.schedule}",
        )
    if dtypes[0] == "i8":  # u8 first; of two i8 the one that lanes share, which is turned over
        sides.sort(key=lambda side: (side.dtype == "i8", side.access.buffer in writer.schedule.packed))
    return sides[0], sides[1]


def _factor(writer: Reductions, value: Expr) -> Factor | None:
    match value:
        case Read():
            return Factor(value, writer.kernel.buffers[value.buffer].dtype)
        case Cast(dtype, Op("bit_and", (Op("shr", (Cast("i32", Read() as access), shift)), Const(mask)))):
            return Factor(access, dtype, shift) if mask == BITS and dtype in NEIGHBOURS else None
    return None


def corrected(writer: Reductions, stage: Reduce, points: list[Point]) -> dict[object, int]:
    """The columns whose sums are taken beside, each with the first of the points that it has; none where
    bytes are of the kind that the instruction takes.
    """
    if writer.schedule.paired not in names(stage.axes):
        return {}
    first, second = factors_of(writer, stage)
    if second.dtype != "i8" or not _is_turned(writer, first):
        return {}
    if writer.unproved(first.access) or writer.unproved(second.access):
        raise Unsayable(f"{writer.kernel.name}: bytes beside {stage} are of the other kind")
    found: dict[object, int] = {}
    for number, point in enumerate(points):
        found.setdefault(column(writer, stage, point), number)
    return found


def column(writer: Reductions, stage: Reduce, point: Point) -> object:
    """What tells the points apart that meet another second factor."""
    _, second = factors_of(writer, stage)
    free = writer.kernel.free_axes(second.access)
    return tuple((axis, at) for axis, at in sorted(point.items()) if axis in free or axis == writer.lane_axis)


def _is_turned(writer: Reductions, first: Factor) -> bool:
    return (first.dtype == "i8") != writer.target.quads_signed


def add_neighbours(writer: Reductions, stage: Reduce, total: Value, point: Point) -> Value:
    """The total and, for each lane, the products of neighbours of both factors: one instruction, or two."""
    first, second = factors_of(writer, stage)
    is_turned = second.dtype == "i8" and _is_turned(writer, first)
    sides = _side(writer, first, point, is_turned), _side(writer, second, point)
    return _added(writer, second.dtype, total, *sides)


def add_correction(writer: Reductions, stage: Reduce, total: Value, point: Point) -> Value:
    """The total and, for each lane, 128 times the numbers of the second factor."""
    _, second = factors_of(writer, stage)
    turned = writer.constant(TURNED, "i32", True)
    return _added(writer, "i8", total, turned, _side(writer, second, point))


def _side(writer: Reductions, factor: Factor, point: Point, is_turned: bool = False) -> Value:
    """Neighbours of a factor, as an i32 for each lane."""

    key = writer.key(factor.access, point)

    def make() -> Value:
        value = writer.memo(("loaded", key), lambda: writer.splat(writer.load_pair(factor.access, point)))
        if factor.shift is not None:
            by = writer.splat(writer.emit(factor.shift, point))
            value = writer.binary("and", writer.binary("lshr", value, by), ALL_BITS)
        return writer.binary("xor", value, TURNED) if is_turned else value

    shift = None if factor.shift is None else writer.key(factor.shift, point)
    return writer.memo(("neighbours", key, shift), make)


def need_short(writer: Reductions, stage: Reduce) -> None:
    """Raises Unsayable unless 16 bits hold a sum of products of four bits and bytes of signs."""
    first, second = factors_of(writer, stage)
    extents = [axis.extent for axis in stage.axes]
    products = prod(extents) // 2 if all(isinstance(extent, int) for extent in extents) else MOST_SHORT
    fits = first.shift is not None and second.dtype == "i8" and second.shift is None
    if not fits or products > MOST_SHORT or writer.lanes not in writer.target.shorts:
        raise Unsayable(f"{writer.kernel.name}: sums that 16 bits may not hold", f"at: {stage}")


def widened(writer: Reductions, total: Value, short: Value) -> Value:
    """The total and both sums of 16 bits of each lane."""
    return _added(writer, "i16", total, short, writer.constant(0x00010001, "i32", True))


def _added(writer: Reductions, dtype: str, total: Value, left: Value, right: Value) -> Value:
    """One instruction; left, right: neighbours as an i32 for each lane."""
    target, lanes = writer.target, writer.lanes
    if dtype == "i8" and writer.schedule.short is not None:
        return _added_short(writer, total, left, right)
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


def _added_short(writer: Reductions, total: Value, left: Value, right: Value) -> Value:
    """The same in 16 bits, two sums for each lane."""
    lanes, name = writer.lanes, writer.target.shorts[writer.lanes]
    bytes_, shorts = f"<{4 * lanes} x i8>", f"<{2 * lanes} x i16>"
    sides = [f"{bytes_} {writer.once(f'bitcast {value} to {bytes_}')}" for value in (left, right)]
    writer.declare(name, shorts, [bytes_, bytes_])
    products = writer.once(f"call {shorts} @{name}({', '.join(sides)})")
    before = writer.once(f"bitcast {total} to {shorts}")
    after = writer.once(f"add {shorts} {before}, {products}")
    return writer.ssa(f"bitcast {shorts} {after} to {total.type}", total.dtype, lanes)
