"""Products with weights that are kept as bytes (`weight_panels.py`) in whole numbers, four bytes at once.

    sum(g:8 r:64) (x[i, 64*g+r] * (f32(q[j, 64*g+r]) * s[j, g]))
        ->  digits[i, g, p, r], steps[i, g, p] = x[i, 64*g+r] as three digits of 8 bits
            sum(g:8 h:16 p:3 d:4) ((f32(digits[i, g, p, 4*h+d]) * steps[i, g, p])
                                   * (f32(packed[w, g, h, j, d]) * s[j, g]))    # quads(d) scale(h) digits(p)

The numbers of a group are made whole: its largest is close to 8,355,711, which is three digits of 127, so
that each is off by a 2^23rd of the largest at most; where they may be rounded to bfloat16, which loses a
2^9th of each, two digits are taken, and a 2^16th of the largest is lost.  Sums over a group are whole numbers
then, of which nothing is.  What is not finite makes its row NaN.  A left factor that was rounded to bytes
before (`made_whole.py`) is taken as it is.

Instructions take bytes of weights unsigned: what is added to all of them then, or to all of a group (a zero
point), is multiplied with the left factor's sums over groups, and added as a sum of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING

from ...ir.dims import Dim
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Reduce, Stage, Store
from ...ir.kernel.scalar import Cast, Expr, Op, Read, cast, const, coordinate, op, read, ref
from ...ir.kernel.substitute import Substitution
from ..kernels.blocking import fresh, split_axis
from ..kernels.collapse import collapsed
from ..kernels.nibbles import BITS, table_of
from ..kernels.product import Product, is_zero, product_of
from ..kernels.scales import split_scales
from ..schedules.choose_product import goes_by_rows
from ..schedules.default import usual
from ..schedules.steps import (
    NEIGHBOURS,
    Block,
    Collapse,
    Digits,
    Pack,
    Peel,
    Prefetch,
    Quads,
    Reorder,
    Scale,
    Schedule,
    Shorts,
    Step,
    Tile,
    Unroll,
    Vectorise,
    tiles,
)
from .half_panels import is_half
from .made_whole import Left, made_whole, read_whole
from .product_calls import by_columns, chains_of, guarded, part_of, reads_of, rewritten, sure
from .program import Array, Call
from .side_by_side import BYTES

if TYPE_CHECKING:
    from ..schedules.target import Target
    from .pack_matmuls import Packing

BASE = 256  # of the digits
OF_FLOATS, OF_HALVES = 3, 2  # how many there are of numbers in f32, and where bfloat16 would do
SPARE = 2  # by so many the largest of a group stays below the most of its digits: it is rounded three times
LEAST = 2.0**-100  # of a group's largest: a step is a normal number, and so is what is over it
QUAD = NEIGHBOURS["i8"]
SHORT_QUADS = 8  # of four bits and bytes, whose sums 16 bits hold, two for each four
GROUPS = range(256, 63, -QUAD)  # points that are made whole together, where scales say nothing of groups
FEWEST_POINTS = 16  # of a group that is worth its scales
MOST_POINTS = 2**31 // (255 * 128)  # whose sum is an i32
HIGHEST = 0x80  # bit of a byte
VECTORS = 2  # of a panel
BLOCK = 8  # tiles of rows in a unit of work
# So many bytes before they are wanted: 32.2 GB/s of 4 bits in place of 29.9 by 8 KiB (two threads of a Zen 4
# that read 33.3, 2026-11-29).
AHEAD_OF_BYTES, AHEAD_OF_SCALES = 4 << 10, 512
PACKED_ROWS = 64  # of a panel in a unit of work


@dataclass(frozen=True)
class Bytes:
    """The right factor of a product: whole numbers that are bytes, or halves of them, and scales.

    rest: the numbers, as floats.  scale: what they are multiplied with, None for nothing.  access: the bytes.
    shift: by how much to the right their lowest four bits are the number; None where all of a byte is one.
    base: what is added to that.  zero: what is subtracted, if anything is.  outer: the summed axes around a
    group that shares scales.  last: the innermost of the others along which there are other bytes.
    """

    rest: Expr
    scale: Expr | None
    access: Read
    shift: Expr | None
    base: int
    zero: Expr | None
    outer: tuple[str, ...]
    last: str

    def is_unsigned(self, kernel: Kernel) -> bool:
        """Whether the numbers may be beyond those of an i8."""
        return self.shift is None and kernel.buffers[self.access.buffer].dtype == "u8"

    @staticmethod
    def of(kernel: Kernel, full: Product) -> Bytes | None:
        outer, scale, rest = (), None, full.right
        stage = replace(full.stage, value=full.right)
        for number in range(len(full.k)):
            if (found := split_scales(kernel, stage, full.k[number:])) is not None:
                outer, (scale, rest) = full.k[:number], found
                break
        inner = set(full.k) - set(outer)
        value, zero = rest, None
        if isinstance(rest, Op) and rest.name == "sub" and inner.isdisjoint(kernel.free_axes(rest.args[1])):
            value, zero = rest.args
        found = _number(kernel, value.arg) if isinstance(value, Cast) and not value.bits else None
        if found is None:
            return None
        access, shift, base = found
        own = kernel.free_axes(access)
        along, halves = ([n for n in full.k if (n in own) is there] for there in (True, False))
        if (
            not along
            or along[-1] not in inner
            or not inner.issuperset(halves)
            or (shift is None) == bool(halves)
        ):
            return None
        return Bytes(rest, scale, access, shift, base, zero, outer, along[-1])


def _number(kernel: Kernel, value: Expr) -> tuple[Read, Expr | None, int] | None:
    """The bytes that whole numbers are, how far these are shifted where it is by their lowest four bits, and
    what is added to that."""
    match table_of(value), value:
        case (Op("shr", (Cast("i32", Read() as access, False), Expr() as shift)), numbers), _:
            base = numbers[0]
            fits = numbers == tuple(range(base, base + len(numbers)))
            return (access, shift, base) if fits and kernel.buffers[access.buffer].dtype == "u8" else None
        case None, Read() as access if kernel.buffers[access.buffer].dtype in BYTES:
            return access, None, 0
    return None


def in_whole_numbers(packing: Packing, call: Call, turned: bool) -> tuple[Read, int] | None:
    """Of a call whose sum can be taken in whole numbers: what reads its bytes, and how many points of the
    axis along which these are taken by fours belong to a group.

    None where weights are no bytes or don't come by fours, and where a target has no instruction for these,
    or takes bfloat16 sooner.
    """
    kernel, flat, target = call.kernel, collapsed(call.kernel), packing.target
    roles, full = sure(by_columns(flat)), replace(sure(product_of(kernel)), turned=turned)
    if flat.dtypes[roles.stage.name] != "f32" or roles.outer:
        return None
    if target.matrix and (packing.rounds or is_half(packing, call, full.left)):
        return None
    if any(isinstance(axis.extent, Dim) for axis in full.stage.axes):
        return None
    if chains_of(kernel, flat)[roles.column] != Affine(((roles.column, 1),)):
        return None
    found = Bytes.of(kernel, full)
    if found is None or (target.quads_signed and found.is_unsigned(kernel)):
        return None
    if target.lanes not in (target.shorts if is_short(target, found) else target.quads):
        return None
    extent = {axis.name: int(axis.extent) for axis in full.stage.axes}
    points = extent.pop(found.last)
    made = made_whole(packing, call, full.left)
    if not found.outer:
        groups = GROUPS if made is None else [made.group]
        points = next((n for n in groups if points % n == 0), points)
    others = prod(count for name, count in extent.items() if name not in found.outer)
    fits = points % QUAD == 0 and points >= FEWEST_POINTS and points * others <= MOST_POINTS
    return (found.access, points) if fits else None


def in_digits(packing: Packing, call: Call, turned: bool, points: int, scales: list[Pack]) -> Call:
    """The call in whole numbers.  points: as of `in_whole_numbers`.  scales: those that lie in panels."""
    before, kernel, column = call, call.kernel, sure(by_columns(collapsed(call.kernel))).column
    _, found = _parts(kernel, turned)
    outer, last = found.outer, found.last
    if points != kernel.extents[last]:
        kernel, group, last = split_axis(kernel, last, points)
        outer = (*outer, group)
    kernel, quads, quad = split_axis(kernel, last, QUAD)
    short, blocks = is_short(packing.target, found), tuple[str, ...]()
    if short and (count := points // QUAD) > SHORT_QUADS:
        size = next(n for n in range(SHORT_QUADS, 0, -1) if count % n == 0)
        kernel, block, quads = split_axis(kernel, quads, size)
        blocks = (block,)
    call = replace(call, kernel=kernel)
    full, found = _parts(kernel, turned)
    halves = tuple(name for name in full.k if name not in (*outer, *blocks, quads, quad))
    inside = (*halves, *blocks, quads, quad)
    made = made_whole(packing, call, full.left)
    given = None if made is None else read_whole(packing, call, full.left, made, inside)
    digits = () if given else (Axis(fresh(kernel, "p"), OF_HALVES if packing.rounds else OF_FLOATS),)
    axes = {axis.name: axis for axis in (*full.stage.axes, *digits)}

    def those(*axis_names: str) -> list[Axis]:
        return [axes[name] for name in axis_names]

    left = given or _left(packing, call, full.left, those(*outer), those(*inside), *digits)
    buffer, panels, base = _packed(packing, call, found, those(*outer, *blocks, quads, quad), column)
    place, width = coordinate(column), int(buffer.shape[-2])
    *around, inmost = [_at(name) for name in (*outer, *blocks, quads, quad)]
    index = (op("floor_div", place, width), *around, op("remainder", place, width), inmost)
    number: Expr = read(buffer.name, index)
    if found.shift is not None:
        signs = "i8" if packing.target.quads_signed else "u8"
        number = cast(op("bit_and", op("shr", cast(number, "i32"), found.shift), BITS), signs)
    exprs = {found.rest: cast(number, "f32"), full.left: left.factor}
    stage = Substitution(exprs=exprs).stage(full.stage)
    summed = (*blocks, *halves, quads) if short else (quads, *halves)
    stage = replace(stage, axes=(*those(*outer, *summed), *digits, *those(quad)))
    # What is added to all numbers of a group, times the left factor's sums.
    offset = const(float(base)) if found.zero is None else op("sub", float(base), found.zero)
    beside = op("mul", left.sums, offset if found.scale is None else op("mul", offset, found.scale))
    stages = _with_beside(kernel, full.stage, stage, None if is_zero(offset) else beside, those(*outer))
    call = replace(call, kernel=kernel.replace(stages=stages))
    call = rewritten(call, {}, {buffer: panels, **left.arrays})
    steps = _steps(packing, before, column, prod(int(axis.extent) for axis in digits))
    steps += [*scales, Pack(buffer.name, column), Prefetch(buffer.name, AHEAD_OF_BYTES)]
    steps += [Prefetch(pack.buffer, AHEAD_OF_SCALES) for pack in scales]
    steps += [Unroll(axis.name, int(axis.extent)) for axis in those(*halves)]
    steps += [Scale(summed[0]), *(Digits(axis.name) for axis in digits), Quads(quad)]
    steps += [Shorts(quads)] if short else []
    return replace(call, how=Schedule(*steps))


def _with_beside(
    kernel: Kernel, old: Reduce, new: Stage, beside: Expr | None, axes: list[Axis]
) -> tuple[Stage, ...]:
    """The stages with another sum, to which a second one over these axes is added, if there is one."""
    at = kernel.stages.index(old)
    before, behind = kernel.stages[:at], kernel.stages[at + 1 :]
    if beside is None:
        return (*before, new, *behind)
    name, more = fresh(kernel, "beside"), tuple[Stage, ...]()
    if axes:
        more, beside = (Reduce(name, "sum", tuple(axes), beside),), ref(name)
    added = Substitution(exprs={ref(old.name): op("add", ref(old.name), beside)})
    return (*before, new, *more, *map(added.stage, behind))


def is_short(target: Target, found: Bytes) -> bool:
    """Whether numbers of four bits are multiplied by an instruction whose sums have 16 bits."""
    return target.lanes not in target.quads and found.shift is not None


def _parts(kernel: Kernel, turned: bool) -> tuple[Product, Bytes]:
    full = replace(sure(product_of(kernel)), turned=turned)
    found = Bytes.of(kernel, full)
    assert found is not None
    return full, found


def _at(name: str) -> Affine:
    return Affine(((name, 1),))


def _packed(
    packing: Packing, call: Call, found: Bytes, summed: list[Axis], column: str
) -> tuple[Buffer, Array, int]:
    """The bytes in panels [n / width, ..., k / 4, width, 4], of the kind that the target takes of weights,
    and what is added to them."""
    kernel = call.kernel
    columns = int(kernel.extents[column])
    width = panel_width(packing, columns)
    panel, lane = Axis(fresh(kernel, "w"), -(-columns // width)), Axis(fresh(kernel, "x"), width)
    *around, quads, quad = summed
    axes = (panel, *around, quads, lane, quad)
    reads = partial(guarded, kernel, const(0)) if columns % width else None
    here = {column: Affine.of({panel.name: width, lane.name: 1})}
    value = Substitution(indices=here, reads=reads).expr(found.access)
    dtype, base = kernel.buffers[found.access.buffer].dtype, found.base
    if dtype == "i8" and not packing.target.quads_signed:
        dtype, value, base = "u8", op("bit_xor", cast(value, "u8"), HIGHEST), -HIGHEST
    buffer = Buffer(fresh(kernel, "packed"), dtype, tuple(axis.extent for axis in axes))
    part = part_of(call, "pack", value, buffer, axes, tuple(_at(axis.name) for axis in axes))
    block = Block(quads.name, min(PACKED_ROWS, int(quads.extent)))
    how = Schedule(Vectorise(lane.name), Tile(quad.name, QUAD), block)
    return buffer, packing.shared(replace(part, how=how)), base


def panel_width(packing: Packing, columns: int) -> int:
    """Columns of a panel, which are the same for any number of rows."""
    lanes = packing.target.lanes
    return min(VECTORS, -(-columns // lanes)) * lanes


def _left(
    packing: Packing, call: Call, left: Expr, outer: list[Axis], inside: list[Axis], digit: Axis
) -> Left:
    """The left factor as digits, which a call before this makes."""
    kernel, ones = call.kernel, sum(BASE**k for k in range(int(digit.extent)))
    most_of_all = float((BASE // 2 - 1) * ones - SPARE)
    parallel = tuple(a for a in (*kernel.parallel, *outer) if a.name in kernel.free_axes(left))
    axes, group = (*parallel, digit, *inside), len(parallel) + 1
    at, shape = tuple(_at(axis.name) for axis in axes), tuple(axis.extent for axis in axes)
    digits = Buffer(fresh(kernel, "digits"), "i8", shape)
    steps = Buffer(fresh(kernel, "steps"), "f32", shape[:group])
    sums = Buffer(fresh(kernel, "sums"), "f32", shape[: group - 1])
    x, place = cast(left, "f32"), cast(coordinate(_at(digit.name) * 8), "i32")  # bits below a digit
    size, most = op("abs", x), op("max", ref("most"), LEAST)
    whole = op("round", op("mul", x, op("div", most_of_all, most)))
    number = cast(op("select", op("lt", ref("most"), inf), whole, 0.0), "i32")
    step = op("div", most, most_of_all)
    moved = op("bit_and", op("shr", op("add", number, BASE // 2 * ones), place), BASE - 1)
    power = cast(op("shl", cast(const(1), "i32"), place), "f32")
    stages = (
        Reduce("most", "max", tuple(inside), size),
        Reduce("total", "sum", tuple(inside), cast(number, "f32")),
        Store(digits.name, at, cast(op("sub", moved, BASE // 2), "i8"), (digit, *inside)),
        Store(steps.name, at[:group], op("mul", step, power), (digit,)),
        Store(sums.name, at[: group - 1], op("mul", ref("total"), step)),
    )
    given, outputs = {e.buffer for e in reads_of(left)}, (digits, steps, sums)
    pairs = [(a, b) for a, b in zip(call.inputs, kernel.inputs, strict=True) if b.name in given]
    made = Call(
        Kernel("digits", tuple(b for _, b in pairs), outputs, parallel, stages),
        tuple(a for a, _ in pairs),
        tuple(Array(b.name, b.dtype, b.shape) for b in outputs),
    )
    factor = op("mul", cast(read(digits.name, at), "f32"), read(steps.name, at[:group]))
    arrays = dict(zip(outputs, packing.all_shared(made), strict=True))
    return Left(factor, read(sums.name, at[: group - 1]), arrays)


def _steps(packing: Packing, call: Call, column: str, count: int) -> list[Step]:
    """How a product's rows and columns are gone over."""
    flat = collapsed(call.kernel)
    roles = sure(by_columns(flat))
    row, width = roles.row, panel_width(packing, int(flat.extents[column]))
    vectors = width // packing.target.lanes
    height = usual(flat.extents[row]) if row else 1
    rows = min(height, packing.target.sums // vectors // count)
    by_rows = row is not None and goes_by_rows(height, packing.size(flat, roles), packing.target)
    order = [column] if row is None else [row, column] if by_rows else [column, row]
    steps: list[Step] = [Collapse(), Reorder(tuple(order)), Vectorise(column, vectors), Block(column, width)]
    steps.append(Peel(column))
    if row is not None:
        steps += tiles({row: rows})
        block = rows * max(1, min(BLOCK, -(-height // rows)))
        steps += [Block(row, block)] if block > rows else []
    return steps
