"""From one placement to another: which collective does it, on what each rank has.

    Shard -> Replicate      all_gather            Replicate -> Shard      this rank's part
    Partial -> Replicate    all_reduce            Replicate -> Partial    zeros but on the first rank
    Partial -> Shard        reduce_scatter        Shard(i) -> Shard(j)    all_to_all

Sizes that don't part evenly are padded for the way.  All of it is ops with gradients.  The cotangent of a
tensor that is replicated is partial and that of a partial one replicated, so the gradients of the collectives
(those of the sum of what all ranks compute) are the right ones as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.errors import ArgumentValueError
from ...ir.ops import collectives
from ...runtime import Tensor, ops
from ..device_mesh import DeviceMesh
from .parts import chunk, coordinate, part_along
from .placement_types import Partial, Placement, Replicate, Shard


def padded(x: Tensor, dim: int, size: int) -> Tensor:
    """The tensor with zeros behind, up to a size along a dim."""
    lacking = size - x.shape[dim]
    if not lacking:
        return x
    return ops.constant_pad_nd(x, [0, 0] * (x.ndim - 1 - dim) + [0, lacking])


def narrowed(x: Tensor, dim: int, begin: int, length: int) -> Tensor:
    """A stretch along a dim; the tensor itself where that is all."""
    return x if length == x.shape[dim] else x.narrow(dim, begin, length)


def converted(x: Tensor, mesh: DeviceMesh, m: int, before: Placement, after: Placement, level: Any) -> Tensor:
    """What a rank has, as another placement along one dim of the mesh.

    level: by a dim of the tensor, its size at this dim of the mesh, as earlier ones have cut it.
    """
    count, index = mesh.shape[m], coordinate(mesh)[m]
    group = mesh.get_group(m).ranks
    if before == after or count == 1:
        return x
    if isinstance(before, Shard):
        size = level(before.dim)
        each = -(-size // count)
        if isinstance(after, Shard):
            to = level(after.dim)
            x = padded(padded(x, before.dim, each), after.dim, -(-to // count) * count)
            x = collectives.all_to_all(x, after.dim, before.dim, group)
            return narrowed(narrowed(x, before.dim, 0, size), after.dim, 0, chunk(to, count, index)[1])
        whole = collectives.all_gather(padded(x, before.dim, each), before.dim, group)
        return converted(narrowed(whole, before.dim, 0, size), mesh, m, Replicate(), after, level)
    if isinstance(before, Partial):
        if isinstance(after, Shard):
            size = level(after.dim)
            x = padded(x, after.dim, -(-size // count) * count)
            x = collectives.reduce_scatter(x, after.dim, before.reduce_op, group)
            return narrowed(x, after.dim, 0, chunk(size, count, index)[1])
        whole = collectives.all_reduce(x, before.reduce_op, group)
        return converted(whole, mesh, m, Replicate(), after, level)
    if isinstance(after, Shard):
        return narrowed(x, after.dim, *chunk(level(after.dim), count, index))
    if isinstance(after, Partial):
        return made_partial(x, after, index)
    return x


def made_partial(x: Tensor, after: Partial, index: int) -> Tensor:
    """What a rank has of a tensor that all have, so that all together come to it."""
    if after.reduce_op in ("avg", "min", "max"):
        return x
    if after.reduce_op != "sum":
        raise ArgumentValueError(f"redistribute: from Replicate() to {after} is not built")
    if index == 0:
        return x
    # Zeros with the history of x: all ranks go backward through the same collectives.
    return ops.masked_fill(x, ops.ones((), dtype=_BOOL), 0)


_BOOL = (ops.zeros(()) == 0).dtype


def redistributed(
    x: Tensor, shape: Sequence[int], mesh: DeviceMesh, before: Sequence[Placement], after: Sequence[Placement]
) -> Tensor:
    """What a rank has of a tensor of this shape, as other placements ask for it."""
    state = list(before)
    if state == list(after):
        return x
    at = coordinate(mesh)

    def level_at(m: int) -> Any:
        return lambda dim: part_along(shape[dim], dim, mesh, state[:m], at)[1]

    knots = entangled(before, after)
    for m in reversed(range(mesh.ndim)):
        if m in knots and isinstance(state[m], Shard):
            x = converted(x, mesh, m, state[m], Replicate(), level_at(m))
            state[m] = Replicate()
    for m in range(mesh.ndim):
        x = converted(x, mesh, m, state[m], after[m], level_at(m))
        state[m] = after[m]
    return x


def entangled(before: Sequence[Placement], after: Sequence[Placement]) -> set[int]:
    """The dims of a mesh that cut one dim of the tensor together with others, where one of these changes."""
    touched = [{p.dim for p in pair if isinstance(p, Shard)} for pair in zip(before, after, strict=True)]
    found = set()
    for m, dims in enumerate(touched):
        for other, others in enumerate(touched):
            changes = before[m] != after[m] or before[other] != after[other]
            if m != other and changes and dims & others:
                found.add(m)
    return found


def cost(before: Placement, after: Placement, nbytes: int, count: int) -> float:
    """About how many bytes each rank sends for it; a little for what is done without sending."""
    if before == after or count == 1:
        return 0.0
    far = nbytes * (count - 1) / count
    if isinstance(before, Shard):
        return far / count + 1 if isinstance(after, Shard) else far + 1
    if isinstance(before, Partial):
        return far + 1 if isinstance(after, Shard) else 2 * far + 2
    return nbytes * 1e-6 if isinstance(after, Shard) else nbytes * 1e-5
