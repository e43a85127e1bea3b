"""Which part of a tensor a rank has: sizes and places, as they follow from placements.

Along a dim of size s, of n ranks the first get ceil(s / n) each, and the last what is left, maybe nothing.
Where several dims of a mesh cut one dim of the tensor, the first cuts the whole, and the next its parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..device_mesh import DeviceMesh
from .placement_types import Placement, Shard


def chunk(size: int, parts: int, index: int) -> tuple[int, int]:
    """Where the part of a rank begins, and how long it is."""
    each = -(-size // parts)
    begin = min(each * index, size)
    return begin, min(each, size - begin)


def coordinate(mesh: DeviceMesh) -> list[int]:
    """Where this rank stands in a mesh, which it is in."""
    found = mesh.get_coordinate()
    assert found is not None
    return found


def part_along(
    size: int, dim: int, mesh: DeviceMesh, placements: Sequence[Placement], at: Sequence[int]
) -> tuple[int, int]:
    """Where the part of a rank begins along a dim of the whole, and how long it is; `at`: where it stands."""
    begin = 0
    for m, p in enumerate(placements):
        if isinstance(p, Shard) and p.dim == dim:
            more, size = chunk(size, mesh.shape[m], at[m])
            begin += more
    return begin, size


def local_shape(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], at: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The shape of the tensor that a rank has of one of this shape."""
    place = coordinate(mesh) if at is None else at
    return tuple([part_along(n, d, mesh, placements, place)[1] for d, n in enumerate(shape)])


def local_offset(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], at: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Where in the whole it begins."""
    place = coordinate(mesh) if at is None else at
    return tuple([part_along(n, d, mesh, placements, place)[0] for d, n in enumerate(shape)])


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this rank's part, and where in the whole it begins."""
    return local_shape(global_shape, mesh, placements), local_offset(global_shape, mesh, placements)
