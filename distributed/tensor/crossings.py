"""Where gradients pass between a DTensor and what each rank has, which count them otherwise.

Inside, the cotangent of a replicated tensor is partial: what all ranks have adds up to it.  Outside, PyTorch
says, each rank has the whole.
"""

from __future__ import annotations

from typing import Any

from ...ir.detach import crossing
from ...ir.ops import collectives
from ...runtime import Tensor, modes
from ...runtime.dispatch import run_general
from ...runtime.function import Function
from ...runtime.tensor import wrap
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
    if copies == 1 or not x.requires_grad:
        return x
    return _crossed(x, x, 1 / copies, ()) if _is_recorded() else _Leaving.apply(x, 1 / copies)


def entered(x: Tensor, mesh: DeviceMesh, placements: Placements) -> Tensor:
    """What a rank has, as part of a DTensor of these placements."""
    groups = groups_of(mesh, placements)
    if not groups or not x.requires_grad:
        return x
    return _crossed(x, x, 1.0, groups) if _is_recorded() else _Entering.apply(x, groups)


def summed_and_left(x: Tensor, group: tuple[int, ...]) -> Tensor:
    """The sum of what all ranks have, for code that knows of no others."""
    if x.requires_grad and _is_recorded():
        return _crossed(summed_over(wrap(x._data, x._meta), (group,)), x, 1.0, ())
    return _SummedAndLeft.apply(x, (group,))


def _is_recorded() -> bool:
    """Whether an op is to stand for what happens here, which a recording can differentiate."""
    return bool(modes.CHANGED) and modes.local.hook is not None and not modes.local.levels


def _crossed(value: Tensor, x: Tensor, scale: float, groups: Any) -> Tensor:
    """The values of one tensor with the history of the other, whose cotangent is scaled, then summed."""
    return run_general(crossing, (wrap(value._data, value._meta), x), {"scale": scale, "groups": groups})
