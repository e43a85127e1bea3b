"""Tensors that lie on several ranks: `DTensor`, one tensor of which each rank has what placements say.

A DTensor is a `Compound`: `_stored` is what this rank has, whose history is the DTensor's; the type is that
of the whole.  Every rank of the mesh makes the same calls on it in the same order.

Cotangents.  Of a replicated tensor the ranks have shares that add up, of a partial one each has the whole: so
the gradients of ops on `_stored` are right without a rule of their own, and a replicated leaf adds shares up
once per backward, by a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from ...ir.errors import ArgumentError, ArgumentValueError, GradError, ShapeError
from ...ir.types import Type, type_of
from ...runtime import Tensor, no_grad, printing
from ...runtime.compound import Compound, NoArray, made_of
from ...runtime.layouts import Layout, strided
from ...runtime.tensor import fields
from ..collectives import broadcast
from ..device_mesh import DeviceMesh
from ..groups import default_group, get_world_size, init_process_group, is_initialized
from ..objects import agreed
from .crossings import entered, groups_of, left, summed_over
from .experimental import implicit
from .parts import local_shape
from .placement_types import Partial, Placement, Placements, Replicate, Shard, settled
from .redistribution import redistributed


class DTensor(Compound):
    """A tensor that lies on the ranks of a mesh as placements say; its shape is that of the whole.

    Made by `distribute_tensor`, `DTensor.from_local` and the factories of `lamina.distributed.tensor`.

    Invariant: `_stored` has the shape that follows for this rank from the whole's and the placements.
    apart: it is what a view would be, but of a copy, so that a write would miss what it is a view of.
    """

    __slots__ = ("_mesh", "_placements", "_apart")
    _mesh: DeviceMesh
    _placements: Placements
    _apart: bool
    what = "distributed"
    remedy = "x.full_tensor() is an ordinary tensor, and x.to_local() what this rank has"
    rules: dict[str, Callable] = {}
    by_parts = True

    # ---- what it is
    @property
    def layout(self) -> Layout:
        return strided

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks that it lies on."""
        return self._mesh

    @property
    def placements(self) -> Placements:
        """How it lies along each dim of the mesh."""
        return self._placements

    @property
    def _local_tensor(self) -> Tensor:
        """What this rank has."""
        return self._stored

    def __repr__(self) -> str:
        past = printing.history(self)
        notes = [f"local_tensor={self._stored.detach()!r}", f"device_mesh={self._mesh!r}"]
        notes.append(f"placements={self._placements!r}")
        return f"DTensor({', '.join([*notes, *([past] if past else [])])})"

    def shown(self) -> str:
        """The type and the placements, as errors say them."""
        return f"{self._meta} {list(self._placements)}"

    # ---- in and out
    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Any = None,
    ) -> DTensor:  # fmt: skip
        """The DTensor of which `local_tensor` is what this rank has; gradients flow back to it.

        placements: `Replicate()` unless given.  Sharded sizes are as many times this rank's as there are
        ranks, unless `shape` says the whole's.  run_check: where it is replicated, all take the first
        rank's, and sharded sizes are compared. Raises ShapeError where `shape` gives this rank another part.
        """
        mesh = need_mesh("DTensor.from_local", device_mesh)
        if not isinstance(local_tensor, Tensor) or isinstance(local_tensor, Compound):
            raise ArgumentError(
                f"DTensor.from_local(local_tensor): a tensor, not {type(local_tensor).__name__}"
            )
        places = settled("DTensor.from_local", placements, mesh.ndim, local_tensor.ndim)
        if shape is None:
            whole = list(local_tensor.shape)
            for m, p in enumerate(places):
                if isinstance(p, Shard):
                    whole[p.dim] *= mesh.shape[m]
        else:
            whole = list(shape)
        if run_check:
            if shape is None:
                _check_sizes(local_tensor, mesh, places)
            local_tensor = _as_first(local_tensor, mesh, places)
        made = dtensor_of(entered(local_tensor, mesh, places), tuple(whole), mesh, places)
        made.check("DTensor.from_local")
        return made

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """What this rank has, with its history.

        grad_placements: how the gradients lie that will come back, as the tensor does unless given: where it
        is replicated, each rank brings the whole gradient.
        """
        places = self._placements
        if grad_placements is not None:
            places = settled("to_local(grad_placements)", grad_placements, self._mesh.ndim, self.ndim)
            if any(isinstance(p, Shard) != isinstance(q, Shard) for p, q in zip(places, self._placements)):
                raise ArgumentValueError(
                    "to_local(grad_placements): gradients must be cut as the tensor is",
                    f"tensor: {self.shown()}",
                    "redistribute it before",
                )
            places = tuple(
                [g if isinstance(p, Replicate) else p for p, g in zip(self._placements, places, strict=True)]
            )
        return left(self._stored, self._mesh, places)

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None,
        *, async_op: bool = False, forward_dtype: Any = None, backward_dtype: Any = None,
    ) -> DTensor:  # fmt: skip
        """The same tensor as other placements say.  Raises ArgumentValueError for another mesh."""
        if device_mesh is not None and device_mesh != self._mesh:
            raise ArgumentValueError(
                "redistribute(device_mesh): to another mesh is not built",
                f"from: {self._mesh!r}",
                f"to: {device_mesh!r}",
            )
        if placements is None:
            raise ArgumentError("redistribute(placements): is needed", "placements=[Replicate()]")
        places = settled("redistribute", placements, self._mesh.ndim, self.ndim)
        if any(isinstance(q, Partial) and p != q for p, q in zip(self._placements, places, strict=True)):
            raise ArgumentValueError("redistribute: can't redistribute to Partial", f"tensor: {self.shown()}")
        return self.placed(places)

    def placed(self, places: Placements) -> DTensor:
        """The same tensor as other placements say, partial ones too."""
        if places == self._placements:
            return self
        local = redistributed(self._stored, self._meta.shape, self._mesh, self._placements, places)
        return dtensor_of(local, self._meta.shape, self._mesh, places)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole as an ordinary tensor, on every rank.  All ranks of the mesh call it."""
        whole = self.placed(tuple([Replicate()] * self._mesh.ndim))
        return whole.to_local(grad_placements=grad_placements)

    def check(self, name: str) -> None:
        """Raise ShapeError unless this rank has the part that follows from the whole's shape."""
        wanted = local_shape(self._meta.shape, self._mesh, self._placements)
        if tuple(self._stored.shape) != wanted:
            raise ShapeError(
                f"{name}: this rank's part must be {list(wanted)}",
                f"the whole: {self.shown()}",
                f"the part: {self._stored._meta}",
                "where sizes differ between ranks, shape=... says the whole's",
            )

    # ---- values
    def item(self) -> Any:
        """The one element, as a number.  All ranks call it."""
        return self.full_tensor().detach().item()

    def tolist(self) -> Any:
        """Nested lists of the whole.  All ranks call it."""
        return self.full_tensor().detach().tolist()

    def __bool__(self) -> bool:
        return bool(self.full_tensor().detach())

    def __int__(self) -> int:
        return int(self.full_tensor().detach())

    def __float__(self) -> float:
        return float(self.full_tensor().detach())

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether what this rank has lies row by row."""
        return self._stored.is_contiguous()

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours of the whole, as if it lay row by row."""
        steps, total = [], 1
        for n in reversed(self._meta.shape):
            steps.append(total)
            total *= max(n, 1)
        found = tuple(reversed(steps))
        return found if dim is None else found[self._dim("stride", dim)]

    # ---- what a compound tensor says
    def _with(self, values: Tensor) -> DTensor:
        return dtensor_of(values, self._meta.shape, self._mesh, self._placements)

    def _gradient(self, values: Tensor) -> DTensor:
        """A cotangent of what this rank has: of a leaf, whose shares are added up, as the leaf lies."""
        whole = self.is_leaf
        places = tuple([dual(p, whole) for p in self._placements])
        times = self._averages()
        return dtensor_of(values if times == 1 else values * times, self._meta.shape, self._mesh, places)

    def _spread(self, gradient: Tensor) -> Tensor:
        places = tuple([dual(p, False) for p in self._placements])
        found, times = self._beside(gradient).placed(places)._stored, self._averages()
        return found if times == 1 else found / times

    def _beside(self, gradient: Tensor) -> DTensor:
        """A gradient that a caller gives: a DTensor, or an ordinary tensor that every rank has."""
        if isinstance(gradient, DTensor):
            return gradient
        return dtensor_of(gradient, self._meta.shape, self._mesh, tuple([Replicate()] * self._mesh.ndim))

    def _averages(self) -> int:
        """How many times a cotangent of this rank's is that of the whole: as many as are averaged."""
        found = 1
        for m, p in enumerate(self._placements):
            found *= self._mesh.shape[m] if p == Partial("avg") else 1
        return found

    @property
    def form(self) -> Any:
        return self._mesh, self._placements, self._apart

    def maker(self) -> Callable[[Tensor], DTensor]:
        return partial(_of_form, self._meta, self.form)

    def whole_for(self, name: str) -> Tensor:
        return self.full_tensor() if implicit.get() else super().whole_for(name)

    def lies_like(self, other: DTensor) -> bool:
        """Whether another DTensor lies on the same ranks in the same way."""
        return self._mesh == other._mesh and self._placements == other._placements

    def lying_alike(self, value: Tensor) -> DTensor:
        """An ordinary tensor that all ranks have, as a DTensor that lies as this one."""
        return self._beside(value).placed(self._placements)

    def _take(self, other: DTensor) -> None:
        self._meta, self._stored = other._meta, other._stored
        self._mesh, self._placements, self._apart = other._mesh, other._placements, other._apart

    def _become(self, other: DTensor) -> None:
        asks = self.requires_grad and self.is_leaf
        grad = self._stored.grad if asks else None
        self._take(other)
        if asks:
            self._stored = self._stored.detach()
            self.requires_grad_()
            if grad is not None and grad._meta is self._stored._meta:
                self._stored.grad = grad

    def _overwrite(self, found: DTensor) -> None:
        """Take the values of another into this rank's memory.  Raises NoArray for a view that is a copy."""
        if self._apart:
            raise NoArray(
                "a part or a view of a tensor, of which it is a copy, can't be written in place: the write "
                "would miss what it is a copy of",
                f"tensor: {self.shown()}",
                "of a DTensor: redistribute it first, and take the view of that; of an argument: return what "
                "is new",
            )
        self._stored.copy_(found.placed(self._placements)._stored)

    def requires_grad_(self, requires_grad: bool = True) -> DTensor:
        """Ask (or stop asking) for this tensor's gradient, in place.  Raises GradError for a partial one."""
        if requires_grad and not self._stored.requires_grad:
            if any(isinstance(p, Partial) for p in self._placements):
                raise GradError(
                    "requires_grad_: a partial DTensor is no leaf that gradients are asked of",
                    f"tensor: {self.shown()}",
                    "redistribute it before",
                )
            self._stored.requires_grad_()
            groups = groups_of(self._mesh, self._placements)
            if groups:
                self._stored.register_hook(lambda g: summed_over(g, groups))
        elif not requires_grad:
            self._stored.requires_grad_(False)
        return self

    @property
    def grad(self) -> Any:
        found = self._stored.grad
        return None if found is None else self._gradient(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            self._stored.grad = None
            return
        if not isinstance(value, Tensor) or value._meta is not self._meta:
            shown = value._meta if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(
                "grad must have the tensor's shape and dtype", f"tensor: {self._meta}", f"grad: {shown}"
            )
        places = tuple([dual(p, self.is_leaf) for p in self._placements])
        self._stored.grad = self._beside(value).placed(places)._stored.detach()

    def register_hook(self, hook: Callable) -> Any:
        """Call `hook(gradient)` with the gradient as a DTensor; what it returns replaces the gradient."""

        def on_stored(g: Tensor) -> Any:
            places = tuple([dual(p, self.is_leaf) for p in self._placements])
            found = hook(dtensor_of(g, self._meta.shape, self._mesh, places))
            return None if found is None else self._beside(found).placed(places)._stored

        return self._stored.register_hook(on_stored)

    def register_post_accumulate_grad_hook(self, hook: Callable) -> Any:
        """Call `hook(tensor)` after a gradient was added into this leaf's `.grad`."""
        return self._stored.register_post_accumulate_grad_hook(lambda _: hook(self))

    # ---- copies
    def __deepcopy__(self, memo: dict) -> DTensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise GradError("only leaves can be deep-copied", f"tensor: {self._meta}", "x.detach().clone()")
        made = memo[id(self)] = self._with(self._stored.detach().clone())
        fields(made).update(fields(self))
        return made.requires_grad_() if self.requires_grad else made

    def __copy__(self) -> DTensor:
        made = self._with(self._stored.detach())
        fields(made).update(fields(self))
        return made.requires_grad_() if self.requires_grad else made

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ArgumentError(
            "a DTensor can't be pickled: another process has another part of it",
            f"tensor: {self.shown()}",
            "save x.full_tensor() on one rank, or x.to_local() on each",
        )


def dual(p: Placement, whole: bool) -> Placement:
    """How the cotangent lies of what lies so.  whole: shares were added up."""
    if isinstance(p, Replicate):
        return p if whole else Partial("sum")
    if not isinstance(p, Partial):
        return p
    if p.reduce_op not in ("sum", "avg"):
        raise GradError(f"a tensor that is {p} has no gradient", "redistribute it before")
    return Replicate()


def dtensor_of(local: Tensor, shape: Sequence[int], mesh: DeviceMesh, places: Placements) -> DTensor:
    """A DTensor of a part that fits."""
    made = made_of(DTensor, of_shape(local._meta, shape), local)
    made._mesh, made._placements, made._apart = mesh, places, False
    return made


def _of_form(kind: Type, form: tuple, local: Tensor) -> DTensor:
    """A DTensor of a type and a form."""
    made = made_of(DTensor, kind, local)
    made._mesh, made._placements, made._apart = form
    return made


def of_shape(kind: Type, shape: Sequence[int]) -> Type:
    """The type with another shape."""
    return type_of(kind.dtype, tuple([int(n) for n in shape]), kind.device)


def need_mesh(name: str, mesh: DeviceMesh | None) -> DeviceMesh:
    """The mesh, which this rank is in; all ranks along one dim where none is given.

    Raises ArgumentError, ArgumentValueError.
    """
    if mesh is None:
        if not is_initialized():
            init_process_group()
        return DeviceMesh("cpu", list(range(get_world_size())), _groups=[default_group()])
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(f"{name}(device_mesh): a DeviceMesh, not {type(mesh).__name__}")
    if mesh.get_coordinate() is None:
        raise ArgumentValueError(
            f"{name}(device_mesh): this rank is not in the mesh",
            f"mesh: {mesh!r}",
            "call it on the mesh's ranks alone",
        )
    return mesh


def _check_sizes(local: Tensor, mesh: DeviceMesh, places: Placements) -> None:
    """Raise ShapeError unless all ranks have parts of one shape."""
    for m in range(mesh.ndim):
        shapes = agreed(mesh.get_group(m), tuple(local.shape))
        if len(set(shapes)) > 1:
            raise ShapeError(
                f"DTensor.from_local: the ranks have parts of different shapes, as {list(places)}",
                *[f"rank {r}: {list(s)}" for r, s in zip(mesh.get_group(m).ranks, shapes, strict=True)],
                "shape=... says the whole's",
            )


def _as_first(local: Tensor, mesh: DeviceMesh, places: Placements) -> Tensor:
    """The tensor of the first rank along each dim of the mesh that it is replicated over."""
    with no_grad():
        same = local.detach().clone()
        for m, p in enumerate(places):
            if isinstance(p, Replicate) and mesh.shape[m] > 1:
                group = mesh.get_group(m)
                broadcast(same, group.ranks[0], group)
    return local + (same - local.detach()) if local.requires_grad else same
