"""What of a product's factors lies side by side along the sum, for instructions that multiply neighbours.

    sum(k:10) (i32(x[i, k]) * i32(w[k, j]))    ->    sum(k:3 d:4) (i32(x[i, 4*k+d else 0])
                                                                 * i32(w[4*k+d else 0, j]))

Four bytes are multiplied at once, of a sum that they don't divide, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import Dim
from ...ir.kernel.form import Kernel, Reduce
from ...ir.kernel.scalar import Cast, Expr, Op, Read, read, walk
from ...ir.kernel.substitute import Substitution
from ..kernels.product import Product
from ..schedules.steps import FEWEST_PAIRS, NEIGHBOURS, Pairs, Quads, pairs_at_once
from ..schedules.target import Target

BYTES = ("i8", "u8")
HALVES = ("bf16", "f16")


@dataclass(frozen=True)
class Neighbours:
    """axis: of the kernel, whose neighbours are multiplied at once.  left, right: the dtypes in which the
    factors lie for that.  extent: of the axis, as many as come out even and more."""

    axis: str
    left: str
    right: str
    extent: int

    @property
    def count(self) -> int:
        return NEIGHBOURS[self.right]

    def step(self, axis: str) -> Pairs:
        return (Pairs if self.count == 2 else Quads)(axis)


def narrow_dtype(kernel: Kernel, factor: Expr) -> str | None:
    """The dtype of which a factor is widened; None of one that is none."""
    return kernel.dtype_of(factor.arg) if isinstance(factor, Cast) and not factor.bits else None


def byte_factors(kernel: Kernel, roles: Product) -> tuple[str, str] | None:
    """The dtypes of factors that are bytes, of a sum in 32 bits: the left one's, which may have been widened
    to i16 where it was laid out, and i8."""
    if kernel.dtypes[roles.stage.name] != "i32":
        return None
    left, right = (narrow_dtype(kernel, factor) for factor in (roles.left, roles.right))
    return (left, right) if left in (*BYTES, "i16") and right == "i8" else None


def filling(points: int, count: int, taps: int = 1) -> int:
    """So many points of a sum and more, of which some pairs (or quads: `count`) fill a matrix register; taps:
    of these side by side."""
    found = -(-points // count) * count
    while pairs_at_once(found * taps // count) < FEWEST_PAIRS:
        found += count
    return found


def of_bytes(dtypes: tuple[str, str], target: Target, in_matrices: bool) -> tuple[str, str] | None:
    """The dtypes in which factors that are bytes are multiplied by a target; None where it has no way."""
    if in_matrices or target.lanes in target.quads and dtypes[0] in BYTES:
        return dtypes
    return ("i16", "i16") if target.lanes in target.words else None


def deepened(kernel: Kernel, roles: Product, axis: str, extent: int) -> Kernel:
    """The kernel whose sum has more points along an axis, at which its left factor is 0."""
    stage = roles.stage
    axes = tuple(replace(a, extent=extent) if a.name == axis else a for a in stage.axes)
    reads: dict[Expr, Expr] = {
        e: read(e.buffer, e.index, 0)
        for e in walk(stage.value)
        if isinstance(e, Read) and e.other is None and axis in kernel.free_axes(e)
    }
    longer = replace(Substitution(exprs=reads).stage(stage), axes=axes)
    assert isinstance(longer, Reduce)
    return kernel.replace(stages=tuple(longer if s is stage else s for s in kernel.stages))


def can_deepen(kernel: Kernel, roles: Product, axis: str) -> bool:
    """Whether the left factor is an element, which is 0 beyond the end of an axis where that is longer."""
    left = roles.left.arg if isinstance(roles.left, Cast) else roles.left
    reads = [e for e in walk(roles.stage.value) if isinstance(e, Read) and axis in kernel.free_axes(e)]
    plain = all(e.other is None and not any(isinstance(p, (Op, Cast)) for p in e.index) for e in reads)
    return isinstance(left, Read) and plain and not isinstance(kernel.extents[axis], Dim)
