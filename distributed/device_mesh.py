"""Ranks in a grid, one dim for each way of sharing work: data, tensor, pipeline parallel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError
from ..ir.pretended_gpus import is_pretended
from ..ir.types import Device
from ..runtime import Tensor
from ..runtime import tensor as make_tensor
from .groups import ProcessGroup, get_rank, init_process_group, is_initialized, need_world, new_group
from .objects import all_gather_object


class DeviceMesh:
    """A grid of ranks; along each dim those that differ in it alone are a group.

    mesh: the ranks, as a tensor, array or nested lists.  mesh_dim_names: a name for each dim, by which
    `mesh["data"]` is that part of it which this rank is in.  Every rank of the job makes it.

    Raises ArgumentValueError for ranks that there are none of, or twice the same.
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None,
        _groups: Sequence[Any] | None = None,
    ):  # fmt: skip
        if not is_initialized():
            init_process_group()
        self.device_type = _device_type(device_type)
        given = mesh.numpy() if isinstance(mesh, Tensor) else mesh
        self._ranks = np.asarray(given, np.int64)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        size = need_world().size
        ranks = self._ranks.reshape(-1).tolist()
        if not ranks or len(set(ranks)) < len(ranks) or not all(0 <= r < size for r in ranks):
            raise ArgumentValueError(
                f"DeviceMesh(mesh): distinct ranks of the {size} there are", f"{self._ranks.tolist()}"
            )
        names = self.mesh_dim_names
        if names is not None and (len(names) != self.ndim or len(set(names)) < len(names)):
            raise ArgumentValueError(
                f"DeviceMesh(mesh_dim_names): {self.ndim} distinct names, one for each dim, not {names}"
            )
        found = np.argwhere(self._ranks == get_rank())
        self._coordinate = None if not len(found) else found[0].tolist()
        self._groups = list(_groups) if _groups is not None else self._made()

    def _made(self) -> list[ProcessGroup | None]:
        """The group along each dim that this rank is in; every rank makes all of them."""
        made: list[ProcessGroup | None] = []
        for dim in range(self.ndim):
            own = None
            lines = np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim])
            for line in lines.tolist():
                group = new_group(line, use_local_synchronization=False)
                if isinstance(group, ProcessGroup):
                    own = group
            made.append(own)
        return made

    # ---- what it is
    @property
    def mesh(self) -> Tensor:
        """The ranks.  Shapes: [a size for each dim], int64."""
        return make_tensor(self._ranks)

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """Ranks along each dim."""
        return self._ranks.shape

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Ranks along a dim; in all, unless one is said."""
        return int(self._ranks.size) if mesh_dim is None else self._ranks.shape[self._dim(mesh_dim)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.shape, tuple(self._ranks.reshape(-1).tolist()), self.mesh_dim_names

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        dims = ", ".join(f"{n}={size}" for n, size in zip(names or ["_"] * self.ndim, self.shape))
        return f"DeviceMesh(({dims}), {self.device_type!r}, {self._ranks.tolist()})"

    # ---- where this rank is
    def get_coordinate(self) -> list[int] | None:
        """This rank's place along each dim; None outside."""
        return self._coordinate

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along a dim, which need not be said where there is one alone."""
        if self._coordinate is None:
            raise ArgumentValueError("get_local_rank: this rank is not in the mesh")
        return self._coordinate[self._only(mesh_dim)]

    def get_rank(self) -> int:
        """This rank's number among all."""
        return get_rank()

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The ranks that differ from this one along a dim alone."""
        return self._groups[self._only(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """The group along each dim."""
        return list(self._groups)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of it along one dim, or several, that this rank is in."""
        chosen = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise ArgumentError("DeviceMesh[name]: its dims have no names", "mesh_dim_names=... gives them")
        dims = [self._dim(name) for name in chosen]
        if dims == list(range(self.ndim)):
            return self
        if self._coordinate is None:
            raise ArgumentValueError(f"DeviceMesh[{names!r}]: this rank is not in the mesh")
        at = tuple(slice(None) if d in dims else self._coordinate[d] for d in range(self.ndim))
        part = self._ranks[at]
        order = sorted(dims)
        if order != dims:
            part = np.transpose(part, [order.index(d) for d in dims])
        return DeviceMesh(
            self.device_type, part, mesh_dim_names=chosen, _groups=[self._groups[d] for d in dims]
        )

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The same ranks along one dim.  Every rank of the job calls this."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ("flat",))
        parts = _parts_like(self, need_world().size)
        own = None
        for ranks in parts:
            group = new_group(ranks)
            own = group if isinstance(group, ProcessGroup) else own
        return DeviceMesh(self.device_type, self._ranks.reshape(-1), mesh_dim_names=(name,), _groups=[own])

    def _dim(self, mesh_dim: int | str) -> int:
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise ArgumentValueError(
                    f"DeviceMesh: no dim is named {mesh_dim!r}", f"names: {self.mesh_dim_names}"
                )
            return self.mesh_dim_names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise ArgumentValueError(f"DeviceMesh: it has {self.ndim} dims, and none is {mesh_dim}")
        return mesh_dim % self.ndim

    def _only(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise ArgumentValueError(
                    f"DeviceMesh: which of its {self.ndim} dims?", "mesh_dim=... says it"
                )
            return 0
        return self._dim(mesh_dim)


def _parts_like(mesh: DeviceMesh, size: int) -> list[list[int]]:
    """The ranks of the parts that all ranks call `_flatten` on, as far as they follow from this one's."""
    from_all: list[Any] = [None] * size
    all_gather_object(from_all, mesh._ranks.reshape(-1).tolist())
    return [list(part) for part in dict.fromkeys(map(tuple, from_all))]


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:  # fmt: skip
    """A grid of all ranks in order: `init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))`.

    Joins the ranks of the job, if nobody did.  Raises ArgumentValueError unless the sizes multiply to as many
    ranks as there are.
    """
    if not is_initialized():
        init_process_group()
    shape = tuple(mesh_shape)
    size = need_world().size
    if not shape or not all(isinstance(n, int) and n > 0 for n in shape) or prod(shape) != size:
        raise ArgumentValueError(f"init_device_mesh({shape}): its sizes multiply to {size}, as many as ranks")
    return DeviceMesh(device_type, np.arange(size).reshape(shape), mesh_dim_names=mesh_dim_names)


def _device_type(name: str) -> str:
    if not isinstance(name, str) or name != "cpu" and not (name == "cuda" and is_pretended(Device(name))):
        raise ArgumentValueError(f"DeviceMesh(device_type={name!r}): tensors are on the CPU", '"cpu"')
    return name
