"""How a tensor lies on the ranks along one dim of a mesh."""

from __future__ import annotations

from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError

REDUCTIONS = ("sum", "avg", "min", "max", "product")


class Placement:
    """How a tensor lies on the ranks along one dim of a mesh: `Shard(dim)`, `Replicate()`, `Partial(op)`."""

    __slots__ = ()

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part; with `dim`: cut along that dim."""
        return False

    def is_replicate(self) -> bool:
        """Whether each rank has the whole."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the tensor is what all ranks' tensors come to together; with `reduce_op`: by that."""
        return False


class Shard(Placement):
    """Each rank has a part, cut along `dim`: the first get ceil(size / ranks) each, the last the rest."""

    __slots__ = ("dim",)

    def __init__(self, dim: int):
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise ArgumentError(f"Shard(dim): an int, not {dim!r}")
        self.dim = dim

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or dim == self.dim

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """How long the part of a rank is, of a size cut into as many, and where it begins."""
        each = -(-curr_local_size // num_chunks)
        begin = min(each * rank, curr_local_size)
        return min(each, curr_local_size - begin), begin

    _local_shard_size_and_offset = local_shard_size_and_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shard) and other.dim == self.dim

    def __hash__(self) -> int:
        return hash(("shard", self.dim))

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"


class _StridedShard(Shard):
    """What programs ask a placement for, and nothing is here: a part cut in another order of dims."""

    __slots__ = ()

    def __init__(self, dim: int, *, split_factor: int):
        raise ArgumentValueError(
            "_StridedShard(dim, split_factor=…): parts are cut in the order of the mesh's dims",
            "use Shard(dim)",
        )


class Replicate(Placement):
    """Each rank has the whole."""

    __slots__ = ()

    def is_replicate(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replicate)

    def __hash__(self) -> int:
        return hash("replicate")

    def __repr__(self) -> str:
        return "Replicate()"


class Partial(Placement):
    """Each rank has a tensor of the whole shape; the tensor meant is what `reduce_op` makes of all."""

    __slots__ = ("reduce_op",)

    def __init__(self, reduce_op: str = "sum"):
        if reduce_op not in REDUCTIONS:
            raise ArgumentValueError(f"Partial(reduce_op): one of {', '.join(REDUCTIONS)}, not {reduce_op!r}")
        self.reduce_op = reduce_op

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return reduce_op is None or reduce_op == self.reduce_op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partial) and other.reduce_op == self.reduce_op

    def __hash__(self) -> int:
        return hash(("partial", self.reduce_op))

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"


Placements = tuple[Placement, ...]


def settled(name: str, placements: Any, mesh_ndim: int, ndim: int) -> Placements:
    """Placements as they are kept, one for each dim of a mesh; None is `Replicate()` along all.

    Negative dims are counted from the front.  Raises ArgumentError, ArgumentValueError.
    """
    if placements is None:
        return tuple([Replicate()] * mesh_ndim)
    found = list(placements) if isinstance(placements, (list, tuple)) else None
    if found is None or not all(isinstance(p, Placement) for p in found):
        raise ArgumentError(f"{name}(placements): a list of Shard, Replicate, Partial, not {placements!r}")
    if len(found) != mesh_ndim:
        raise ArgumentValueError(
            f"{name}(placements): one for each of the mesh's {mesh_ndim} dims, not {len(found)}", f"{found}"
        )
    for i, p in enumerate(found):
        if isinstance(p, Shard):
            if not -ndim <= p.dim < ndim:
                raise ArgumentValueError(f"{name}(placements): {p} of a tensor that has {ndim} dims")
            found[i] = Shard(p.dim % ndim)
    return tuple(found)
