"""Factors of a product as matrices in memory, of which a unit that copies tiles is told once.

    v1 = tl.make_tensor_descriptor(x_ptr + 0, [4096, 1024], [1024, 1], [128, 64])
    v2 = v1.load([m_start, k_start])

What lies outside a matrix is loaded as zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Expr, Read
from ...ir.kernel.types import bits
from ..kernels.product import Product
from ..schedules.steps import Schedule
from .code import ALIGNMENT
from .halves import half_factors
from .programs import is_wide
from .schedule import Tile, tiles

if TYPE_CHECKING:
    from .emit import Emitter


@dataclass(frozen=True)
class Matrix:
    """A factor as a matrix in memory: where it begins, and the strides of its rows and columns.

    One of the strides is 1, the other one whole steps of ALIGNMENT.
    """

    read: Read
    begin: Affine
    strides: tuple[int, int]


def matrix(kernel: Kernel, expr: Expr, rows: tuple[str, ...], columns: tuple[str, ...]) -> Matrix | None:
    """The matrix that a factor is over fused axes; None where descriptors can't say it."""
    if not isinstance(expr, Read) or kernel.unproved(expr):
        return None
    buffer = kernel.buffers[expr.buffer]
    if not all(isinstance(part, Affine) for part in expr.index) or buffer.layout is not None:
        return None
    offset = buffer.offset(expr.index)
    whole = bits(buffer.dtype) * math.gcd(0, *(c for a, c in offset.terms if a not in (*rows, *columns)),
                                          offset.constant) // 8  # fmt: skip
    strides = _stride(kernel, offset, rows), _stride(kernel, offset, columns)
    if 1 not in strides or 0 in strides or whole % ALIGNMENT:
        return None
    if max(strides) * bits(buffer.dtype) // 8 % ALIGNMENT:
        return None
    begin = Affine(tuple((a, c) for a, c in offset.terms if a not in (*rows, *columns)), offset.constant)
    return Matrix(expr, begin, strides)


def describable(kernel: Kernel, schedule: Schedule, roles: Product) -> bool:
    """Whether both factors of a product are matrices that a schedule's tiles cover."""
    m, n, k = tiles(schedule)
    factors = half_factors(kernel, roles) or ("f32", roles.left, roles.right)
    whole = {*k.axes} == {*roles.k} and not is_wide(kernel, schedule)
    return whole and all(
        matrix(kernel, factor, *of) is not None
        for factor, of in zip(factors[1:], ((m.axes, k.axes), (k.axes, n.axes)), strict=True)
    )


def _stride(kernel: Kernel, offset: Affine, axes: tuple[str, ...]) -> int:
    """How far neighbours along fused axes are from each other; 0 where that differs."""
    stride = reach = 0
    for axis in reversed(axes):
        extent, by = int(kernel.extents[axis]), int(offset.coefficient(axis))
        if extent == 1:
            continue
        if stride and by != reach:
            return 0
        stride, reach = stride or by, by * extent
    return stride


def described(emitter: Emitter, expr: Expr, rows: Tile, columns: Tile) -> str:
    """What loads a tile by a descriptor of the factor's matrix, which is written now."""
    found = matrix(emitter.kernel, expr, rows.axes, columns.axes)
    assert found is not None
    buffer = emitter.kernel.buffers[found.read.buffer]
    turned = found.strides[0] == 1 != found.strides[1]
    slow, fast = (columns, rows) if turned else (rows, columns)
    begin = emitter.whole(found.begin, type(emitter.main)(()))
    totals, sizes = ([of[tile.dim] for tile in (slow, fast)] for of in (emitter.totals, emitter.sizes))
    pointer, name = emitter.pointers[buffer.name], emitter.fresh()
    strides = [max(found.strides), 1]
    made = f"{name} = tl.make_tensor_descriptor({pointer} + {begin}, {totals}, {strides}, {sizes})"
    if found.begin.terms:
        emitter.line(made)
    else:
        emitter.head.append(f"    {made}")  # once for all tiles of a program
    load = f"{name}.load([{_first(emitter, slow)}, {_first(emitter, fast)}])"
    return f"tl.trans({load})" if turned else load


def _first(emitter: Emitter, tile: Tile) -> str:
    """A tile's first point, as a number."""
    if tile.dim in emitter.starts:
        return emitter.starts[tile.dim]
    return f"{emitter.tiles[tile.dim]}_start" if emitter.totals[tile.dim] > tile.size else "0"
