"""Where gradients pass between a DTensor and what each rank has, which count them otherwise.

Inside, the cotangent of a replicated tensor is partial: what all ranks have adds up to it.  Outside, PyTorch
says, each rank has the whole.
"""

from __future__ import annotations

from typing import Any

from ...ir.ops import collectives
from ...runtime import Tensor
from ...runtime.function import Function
from ..device_mesh import DeviceMesh
from .placement_types import Placements, Replicate


class _Leaving(Function):
    """The tensor; its cotangent, which each rank has whole, is this rank's share of it inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        ctx.share = share
        return x

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return cotangents[0] * ctx.share, None


class _Entering(Function):
    """The tensor; its cotangent, of which each rank has a share, is whole outside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Any) -> Tensor:
        ctx.groups = groups
        return x

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return summed_over(cotangents[0], ctx.groups), None


class _SummedAndLeft(Function):
    """The sum over all ranks, outside at once: its cotangent, which each has whole, is that of each share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Any) -> Tensor:
        return summed_over(x, groups)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return cotangents[0], None


def summed_over(x: Tensor, groups: Any) -> Tensor:
    """The sum over groups of ranks, one after another."""
    for group in groups:
        x = collectives.all_reduce(x, "sum", group)
    return x


def groups_of(mesh: DeviceMesh, placements: Placements) -> tuple[tuple[int, ...], ...]:
    """The ranks along each dim of a mesh that a tensor is replicated over."""
    dims = [m for m, p in enumerate(placements) if isinstance(p, Replicate) and mesh.shape[m] > 1]
    return tuple([mesh.get_group(m).ranks for m in dims])


def left(x: Tensor, mesh: DeviceMesh, placements: Placements) -> Tensor:
    """What a rank has of a DTensor, for code that knows of no others.

    placements: of the cotangents that will come.
    """
    copies = 1
    for group in groups_of(mesh, placements):
        copies *= len(group)
    return x if copies == 1 or not x.requires_grad else _Leaving.apply(x, 1 / copies)


def entered(x: Tensor, mesh: DeviceMesh, placements: Placements) -> Tensor:
    """What a rank has, as part of a DTensor of these placements."""
    groups = groups_of(mesh, placements)
    return _Entering.apply(x, groups) if groups and x.requires_grad else x


def summed_and_left(x: Tensor, group: tuple[int, ...]) -> Tensor:
    """The sum of what all ranks have, for code that knows of no others."""
    return _SummedAndLeft.apply(x, (group,))
