"""Weights that are kept as bytes (`weight_panels.py`) as panels of bfloat16, for matrix registers.

    sum(g:8 r:64) (f32(x[i, 64*g+r]) * (f32(packed[p, g, r, j]) * s[p, g, j]))
        ->  halves[p, g, h, j, d] = bf16(f32(packed[p, g, 2*h+d, j]))                          # again()
            sum(g:8 h:32 d:2) (f32(x[i, 64*g+2*h+d]) * f32(halves[p, g, h, j, d]) * s[p, g, j])
                                                                                # pairs(d) matrix(i) scale(h)

Where the left factor is bfloat16, or may be rounded to it, products stay exact: whole numbers up to 256 are
numbers of bfloat16.  These panels are two or four times as long as what is kept, so that many rows alone are
worth them, and each call makes its own.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Store, names
from ...ir.kernel.scalar import Cast, Const, Expr, Op, Read, Ref, cast, read, walk
from ...ir.kernel.substitute import Substitution
from ..kernels.blocking import fresh, split_axis
from ..kernels.collapse import collapsed
from ..kernels.product import element, product_of
from ..kernels.scales import split_scales
from ..schedules.default import usual
from ..schedules.steps import (
    FEWEST_PAIRS,
    Again,
    Block,
    Pack,
    Scale,
    Schedule,
    Tile,
    Vectorise,
    pairs_at_once,
)
from .product_calls import by_columns, instead, lies_along, part_of, reads_of, sure
from .program import Array, Call
from .side_by_side import Neighbours

if TYPE_CHECKING:
    from .pack_matmuls import Packing

EXACT = 256  # whole numbers up to here are numbers of bfloat16
MOST_BYTES = 64 << 20  # of the panels that a call makes
FEWEST_ROWS = 32  # of the left factor that are worth them
ROWS = 64  # of a panel in a unit of work
BYTE_RANGES = {"i8": (-128, 127), "u8": (0, 255)}


def in_halves(packing: Packing, call: Call, turned: bool) -> Call | None:
    """The call of a product by panels of bytes as one by panels of bfloat16.

    None where matrix registers don't take it, or its factors are no numbers of bfloat16.
    """
    flat = collapsed(call.kernel)
    roles = sure(by_columns(flat))
    if roles.outer or roles.row is None or usual(flat.extents[roles.row]) < FEWEST_ROWS:
        return None
    if not packing.target.matrix or flat.dtypes[roles.stage.name] != "f32":
        return None
    full = replace(sure(product_of(call.kernel)), turned=turned)
    access = element(full.left)
    if access is None or not (packing.rounds or is_half(packing, call, full.left)):
        return None
    offset = call.kernel.buffers[access.buffer].offset(access.index)
    axes = sorted(full.stage.axes, key=lambda axis: -hint(offset.coefficient(axis.name)))
    last = axes[-1]
    if isinstance(last.extent, Dim) or last.extent % 2 or offset.coefficient(last.name) != 1:
        return None
    if pairs_at_once(last.extent // 2) < FEWEST_PAIRS:
        return None
    stages = tuple(replace(s, axes=tuple(axes)) if s is full.stage else s for s in call.kernel.stages)
    kernel, _, two = split_axis(call.kernel.replace(stages=stages), last.name, 2)
    full = replace(sure(product_of(kernel)), turned=turned)
    rest, reads = _unscaled(kernel, full.right, full.k), reads_of(full.right)
    found = _range(kernel, rest)
    in_panels = all(sum(isinstance(part, Expr) for part in e.index) == 2 for e in reads)
    if found is None or max(map(abs, found)) > EXACT or not in_panels or rest not in set(walk(full.right)):
        return None
    call = replace(call, kernel=kernel)
    part = _made(call, rest, full.stage.axes)
    if prod(map(int, part.outputs[0].shape)) * 2 > MOST_BYTES:
        return None
    if not lies_along(collapsed(kernel), sure(by_columns(collapsed(kernel)))):
        call = packing.computed_left(call, turned, "bf16")
    panel, lane = (p for p in reads[0].index if isinstance(p, Expr))
    at = [Affine(((name, 1),)) for name in full.k]
    buffer = replace(part.kernel.outputs[0], name=fresh(call.kernel, "halves"))
    call = instead(call, rest, buffer, (panel, *at[:-1], lane, at[-1]), packing.shared(part))
    made = packing.panels(call, collapsed(call.kernel), Neighbours(two, "bf16", "bf16", 2), buffer.name)
    return replace(made, how=_scaled(made, buffer.name))


def _scaled(call: Call, panels: str) -> Schedule:
    """How a call runs whose sums are scaled by what lies in panels of its own."""
    flat = collapsed(call.kernel)
    roles = sure(by_columns(flat))
    assert call.how is not None
    others = {e.buffer for e in reads_of(roles.right)} - {panels}
    steps = [Pack(buffer, roles.column) for buffer in sorted(others)]
    axes = names(roles.stage.axes)
    first = (Scale(a) for n, a in enumerate(axes) if split_scales(flat, roles.stage, axes[n:]))
    return Schedule(*call.how.steps, *steps, *list(first)[:1])


def _made(call: Call, value: Expr, summed: tuple[Axis, ...]) -> Call:
    """The call that makes panels [n / width, k / 2, width, 2] of bfloat16 of what reads panels of bytes."""
    kernel, reads = call.kernel, reads_of(value)
    shape = kernel.buffers[reads[0].buffer].shape
    dims = [d for d, part in enumerate(reads[0].index) if isinstance(part, Expr)]
    panel, lane = (Axis(fresh(kernel, name), shape[d]) for name, d in zip("px", dims, strict=True))
    moved: dict[Expr, Expr] = {}
    for e in reads:
        own = iter((panel, lane))
        index = [Affine(((next(own).name, 1),)) if isinstance(p, Expr) else p for p in e.index]
        moved[e] = read(e.buffer, tuple(index))
    *around, half, two = summed
    axes = (panel, *around, half, lane, two)
    buffer = Buffer("halves", "bf16", tuple(axis.extent for axis in axes))
    at = tuple(Affine(((axis.name, 1),)) for axis in axes)
    made = part_of(call, "halves", cast(Substitution(exprs=moved).expr(value), "bf16"), buffer, axes, at)
    block = Block(half.name, min(ROWS, int(half.extent)))
    return replace(made, how=Schedule(Vectorise(lane.name), Tile(two.name, 2), block, Again()))


def _unscaled(kernel: Kernel, right: Expr, summed: tuple[str, ...]) -> Expr:
    """The right factor without what scales its sums."""
    stage = replace(sure(product_of(kernel)).stage, value=right)
    for n in range(len(summed)):
        found = split_scales(kernel, stage, summed[n:])
        if found is not None:
            return found[1]
    return right


def _range(kernel: Kernel, value: Expr) -> tuple[int, int] | None:
    """The least and the greatest of the whole numbers that an expression gives; None where they are others,
    or may not fit between."""
    match value:
        case Const(number) if float(number).is_integer():
            return int(number), int(number)
        case Read(buffer):
            return BYTE_RANGES.get(kernel.buffers[buffer].dtype)
        case Cast(dtype, arg, False):
            found = _range(kernel, arg)
            least, most = BYTE_RANGES.get(dtype, (-EXACT, EXACT))
            return found if found is not None and least <= found[0] and found[1] <= most else None
        case Op("bit_and", (_, Const(mask))) if isinstance(mask, int) and mask >= 0:
            return 0, mask
        case Op("add" | "sub" as word, (one, other)):
            left, right = _range(kernel, one), _range(kernel, other)
            if left is None or right is None:
                return None
            low, high = right if word == "add" else (-right[1], -right[0])
            return left[0] + low, left[1] + high
    return None


def is_half(packing: Packing, call: Call, left: Expr) -> bool:
    """Whether a factor is a bfloat16 that was widened: here, or where its array was made."""
    if isinstance(left, Cast):
        return not left.bits and call.kernel.dtype_of(left.arg) == "bf16"
    if not isinstance(left, Read):
        return False
    (array,) = packing.arrays_of(call, left, call.kernel)
    made, shapes = packing.maker(array)
    return made is not None and _stores_halves(made, shapes[-1])


def _stores_halves(call: Call, array: Array) -> bool:
    """Whether all that a call stores in an array was rounded to bfloat16."""
    kernel, name = call.kernel, call.kernel.outputs[call.outputs.index(array)].name
    stores = [stage for stage in kernel.stages if isinstance(stage, Store) and stage.buffer == name]

    def is_wide(value: Expr) -> bool:
        while isinstance(value, Ref) and value.name in kernel.locals:
            value = kernel.locals[value.name].value
        return isinstance(value, Cast) and not value.bits and kernel.dtype_of(value.arg) == "bf16"

    return bool(stores) and all(store.combine is None and is_wide(store.value) for store in stores)
