"""A contraction through tl.dot: products of halves are added up in float32, others as the schedule says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.kernel.scalar import Const, Expr, Read
from ..kernels.product import Product
from ..schedules.gpu import Descriptors, Registers
from .descriptors import described
from .halves import half_factors
from .schedule import precision, tiles

if TYPE_CHECKING:
    from .emit import Dims, Emitter


def dot(emitter: Emitter, roles: Product) -> str:
    """The variable that holds the sums, a tensor over the tiles of M and N."""
    dtype, left_factor, right_factor = half_factors(emitter.kernel, roles) or ("f32", roles.left, roles.right)
    m, n, k = tiles(emitter.schedule)
    dims = type(emitter.main)
    total = emitter.fresh()
    emitter.line(f"{total} = tl.zeros({emitter.shape(emitter.main)}, tl.float32)")

    matrices: list[str] = []
    if emitter.schedule.has(Descriptors):
        matrices = [described(emitter, left_factor, m, k), described(emitter, right_factor, k, n)]

    def body() -> None:
        if matrices:
            left, right = (emitter.let(load) for load in matrices)
        else:
            left = _factor(emitter, left_factor, dims((m.dim, k.dim)), dtype)
            right = _factor(emitter, right_factor, dims((k.dim, n.dim)), dtype)
        if emitter.schedule.has(Registers):
            # an operation on it is what keeps it in registers; it cuts off what tensor cores don't look at
            kept = f"({left}.to(tl.int32, bitcast=True) & -8192)"
            left = emitter.let(f"{kept}.to(tl.float32, bitcast=True)")
        options = f"input_precision='{precision(emitter.schedule)}', out_dtype=tl.float32"
        emitter.line(f"{total} = tl.dot({left}, {right}, {total}, {options})")

    emitter.flattened(tuple(axis for axis in roles.stage.axes if axis.name not in k.axes), k, body)
    return total


def _factor(emitter: Emitter, expr: Expr, dims: Dims, dtype: str) -> str:
    """A factor as a tile."""
    value = f"tl.broadcast_to({emitter.emit(expr, dims, dtype)}, {emitter.shape(dims)})"
    *_, k = tiles(emitter.schedule)
    tests = emitter.inside(k.axes, dims)
    # an axis of one point is no part of an address, so nothing was masked for it
    if tests and not (emitter.totals[k.dim] > 1 and _is_zero_outside(expr)):
        # beyond K a factor may be anything: a prologue makes numbers out of masked zeros
        value = f"tl.where({' & '.join(tests)}, {value}, 0.0)"
    return emitter.let(value)


def _is_zero_outside(expr: Expr) -> bool:
    """Whether masked lanes are zero as they were loaded."""
    return isinstance(expr, Read) and (
        expr.other is None or (isinstance(expr.other, Const) and not expr.other.value)
    )
