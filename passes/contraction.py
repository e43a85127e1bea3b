"""Recognise a contraction, and say which axes are M, N, K and batch."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.kernel.form import Kernel, Reduce
from ..ir.kernel.scalar import Expr, Op


@dataclass(frozen=True)
class Contraction:
    """stage = sum(k) left * right.  left varies over batch, m, k; right over batch, k, n.

    left and right are any expressions (a fused prologue), and the later stages are the epilogue.
    """

    stage: Reduce
    left: Expr
    right: Expr
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]

    def __str__(self) -> str:
        roles = (("batch", self.batch), ("m", self.m), ("n", self.n), ("k", self.k))
        return " ".join(f"{role}=({','.join(axes)})" for role, axes in roles if axes)


def contraction(kernel: Kernel, stage: Reduce) -> Contraction | None:
    """The roles follow from the axes alone: K in both factors and summed, batch in both, M and N in one."""
    product = stage.value
    if stage.combine != "sum" or not (isinstance(product, Op) and product.name == "mul"):
        return None
    left, right = product.args
    k = tuple(axis.name for axis in stage.axes)
    in_left, in_right = kernel.free_axes(left), kernel.free_axes(right)
    parallel = [axis.name for axis in kernel.parallel]
    m = tuple(a for a in parallel if a in in_left - in_right)
    n = tuple(a for a in parallel if a in in_right - in_left)
    batch = tuple(a for a in parallel if a in in_left & in_right)
    if not (m and n and set(k) <= in_left & in_right and len(batch + m + n) == len(parallel)):
        return None
    return Contraction(stage, left, right, batch, m, n, k)


def contractions(kernel: Kernel) -> list[Contraction]:
    """Every contraction among the kernel's stages."""
    found = (contraction(kernel, stage) for stage in kernel.stages if isinstance(stage, Reduce))
    return [roles for roles in found if roles is not None]
