"""The parameters of one fully sharded module: gathered together, and their gradients averaged together.

A rank keeps a part of each, along one dim: `ceil(size / ranks)`, and what is left on the last ranks.  On
their way they lie one behind the other in one buffer for each dtype, with the dim that is cut in front, and
padded.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir.dtypes import DType, float16
from ...ir.errors import ArgumentError, ArgumentValueError, DeviceError
from ...ir.types import type_of
from ...nn.module import Module
from ...runtime import Tensor, no_grad
from ...runtime.tensor import Parameter, fields, wrap
from ..collectives import all_gather_into_tensor, all_reduce, reduce_scatter_tensor
from ..device_mesh import DeviceMesh
from ..objects import agreed
from ..tensor.dtensor import DTensor, dtensor_of
from ..tensor.lookup_rules import part_of
from ..tensor.parts import chunk
from ..tensor.placement_types import Placement, Placements, Replicate, Shard
from ..work import Work
from .gathered_memory import Gathered
from .policies import MixedPrecisionPolicy


class Cut:
    """One parameter of which each rank has a part.

    places: the modules and names that it stands at; a shared one at several.  part: the DTensor that it is
    now. dim: along which it is cut.  shape: of what is gathered: the whole, or this rank's part of what
    tensor parallel ranks have; inner: how those have it.
    """

    def __init__(self, places: list[tuple[Module, str]], p: Tensor, dim: int, mesh: DeviceMesh):
        self.places, self.dim = places, dim
        self.inner: tuple[DeviceMesh, Placements, tuple[int, ...]] | None = None
        whole = p
        if isinstance(p, DTensor):
            self.inner = (p.device_mesh, p.placements, tuple(p.shape))
            whole = p._stored
        self.shape = tuple(int(n) for n in whole.shape)
        self.dtype: DType = p.dtype
        outer: Placements = (*[Replicate()] * (mesh.ndim - 1), Shard(dim))
        with no_grad():
            mine = part_of(whole.detach(), mesh, outer).clone()
        joint, placements = (mesh, outer) if self.inner is None else _within(self.inner, mesh, outer)
        made = dtensor_of(mine, p.shape, joint, placements)
        self.part: Any = Parameter(made, p.requires_grad)

    def stand(self, p: Tensor) -> None:
        """Put this tensor where the parameter stands."""
        for module, name in self.places:
            module._parameters[name] = p


_grids: dict[tuple, DeviceMesh] = {}  # of tensor parallel ranks and those that share parts, by both


def _within(inner: tuple, mesh: DeviceMesh, outer: Placements) -> tuple[DeviceMesh, Placements]:
    """The mesh and placements of what tensor parallel ranks have a part of, and others parts of that.

    Its first dims are the tensor parallel ones: what these have is cut again.
    """
    own, placements, _ = inner
    if own.ndim != 1:
        raise ArgumentValueError("fully_shard: of a DTensor on a mesh of one dim alone", f"mesh: {own!r}")
    groups = [*own.get_all_groups(), *mesh.get_all_groups()]
    known = _grids.get((own, mesh))
    if known is not None and known.get_all_groups() != groups:
        known = None  # of groups that were destroyed since
    if known is None:
        lines = agreed(own.get_group(), mesh._ranks.tolist())
        names = None
        if own.mesh_dim_names is not None and mesh.mesh_dim_names is not None:
            names = (*own.mesh_dim_names, *mesh.mesh_dim_names)
        known = _grids[own, mesh] = DeviceMesh("cpu", np.array(lines), mesh_dim_names=names, _groups=groups)
    return known, (*placements, *outer)


class Lane:
    """Parameters that are gathered as one dtype, one behind the other.

    each: by a parameter, how many elements of it a rank sends.  total: of all.
    """

    def __init__(self, cuts: list[Cut], dtype: DType, ranks: int):
        self.cuts, self.dtype, self.ranks = cuts, dtype, ranks
        self.longest = [-(-c.shape[c.dim] // ranks) for c in cuts]
        self.rest = [prod(c.shape) // max(c.shape[c.dim], 1) for c in cuts]
        self.each = [n * m for n, m in zip(self.longest, self.rest, strict=True)]
        self.begins = np.cumsum([0, *self.each]).tolist()
        self.total = self.begins[-1]

    def packed(self) -> np.ndarray:
        """What this rank has of all, one behind the other."""
        flat = np.zeros(self.total, self.dtype.numpy)
        for i, c in enumerate(self.cuts):
            data = np.moveaxis(c.part._stored._data, c.dim, 0)
            flat[self.begins[i] : self.begins[i] + data.size] = data.reshape(-1)
        return flat

    def unpack(self, gathered: np.ndarray, arrays: list[np.ndarray]) -> None:
        """Write what all ranks sent into whole arrays."""
        by_rank = gathered.reshape(self.ranks, self.total)
        for i, c in enumerate(self.cuts):
            target = np.moveaxis(arrays[i], c.dim, 0)
            for r in range(self.ranks):
                begin, length = chunk(c.shape[c.dim], self.ranks, r)
                if length:
                    sent = by_rank[r, self.begins[i] : self.begins[i] + length * self.rest[i]]
                    target[begin : begin + length] = sent.reshape(length, *target.shape[1:])

    def spread(self, grads: Sequence[np.ndarray | None], dtype: np.dtype) -> np.ndarray:
        """Whole gradients as the parts for all ranks, those for the first in front."""
        flat = np.zeros((self.ranks, self.total), dtype)
        for i, (c, grad) in enumerate(zip(self.cuts, grads, strict=True)):
            if grad is None:
                continue
            source = np.moveaxis(grad, c.dim, 0)
            for r in range(self.ranks):
                begin, length = chunk(c.shape[c.dim], self.ranks, r)
                part = source[begin : begin + length]
                flat[r, self.begins[i] : self.begins[i] + part.size] = part.reshape(-1)
        return flat

    def piece(self, i: int, flat: np.ndarray, rank: int) -> np.ndarray:
        """The part of the i-th parameter's gradient that this rank has, out of what it got."""
        c = self.cuts[i]
        length = chunk(c.shape[c.dim], self.ranks, rank)[1]
        shape = [n for d, n in enumerate(c.shape) if d != c.dim]
        part = flat[self.begins[i] : self.begins[i] + length * self.rest[i]].reshape(length, *shape)
        return np.moveaxis(part, 0, c.dim)


class ParameterGroup:
    """What one call of `fully_shard` shards.

    cuts: the parameters, in order.  gathered: the whole ones, as long as something knows of them: while they
    are open, and after as long as history does.  open: they stand in the modules.  arriving: a gather on its
    way. arrived: parameters whose gradients are there, in the backward that runs.  kept: gradients that were
    not to be averaged yet, by parameter.
    """

    def __init__(self, cuts: list[Cut], mesh: DeviceMesh, policy: MixedPrecisionPolicy):
        self.cuts, self.mesh, self.policy = cuts, mesh, policy
        self.shards = mesh.get_group(mesh.ndim - 1)
        self.copies = mesh.get_group(0) if mesh.ndim == 2 else None
        self.rank = self.shards.rank()
        self.known: weakref.ref[Gathered] | None = None
        self.settle()
        self.gathered: Gathered | None = None
        self.arriving: list[tuple[np.ndarray, np.ndarray, Work | None]] | None = None
        self.seen: list[tuple] = []
        self.arrived: set[int] = set()
        self.kept: dict[int, np.ndarray] = {}
        self.held: list[np.ndarray] | None = None
        self.divisor: float | None = None
        self.averages = self.averages_copies = True
        self.after_arrival: Callable[[], None] = lambda: None

    def settle(self) -> None:
        """Arrange the parameters by the dtypes that they have now."""
        by_dtype: dict[DType, list[Cut]] = {}
        for c in self.cuts:
            c.dtype = c.part.dtype
            wanted = self.policy.param_dtype
            gathered = wanted if wanted is not None and c.dtype.inexact else c.dtype
            by_dtype.setdefault(gathered, []).append(c)
        ranks = self.shards.size()
        self.lanes = [Lane(members, dtype, ranks) for dtype, members in by_dtype.items()]
        self.order = [c for lane in self.lanes for c in lane.cuts]
        self.known = None

    @property
    def is_open(self) -> bool:
        """Whether the whole parameters stand in the modules."""
        return self.gathered is not None

    def marks(self) -> list[tuple]:
        """What changes whenever the parts do."""
        return [(id(c.part._stored), c.part._stored._version, c.part.requires_grad) for c in self.order]

    def adopt(self) -> None:
        """Take for parts what was put in their places, as `load_state_dict(assign=True)` does.

        Raises ArgumentValueError for what does not lie as they do.
        """
        for c in self.order:
            module, name = c.places[0]
            standing: Any = module._parameters[name]
            if standing is c.part:
                continue
            is_cut = isinstance(standing, DTensor)
            alike = is_cut and standing._meta.shape == c.part._meta.shape
            if not alike or not c.part.lies_like(standing):
                raise ArgumentValueError(
                    f"fully_shard: another tensor stands at {type(module).__name__}.{name}",
                    f"parameter: {c.part.shown()}",
                    f"found: {standing.shown() if is_cut else type(standing).__name__}",
                    "distribute_tensor(x, p.device_mesh, p.placements) lies as the parameter does",
                )
            c.part = standing
            c.stand(standing)
        if any([c.part.dtype is not c.dtype for c in self.order]):
            self.settle()

    # ---- gathering
    def begin(self) -> None:
        """Begin to gather, unless it is there or on its way."""
        if self.is_open or self.arriving is not None:
            return
        self.adopt()
        self._send()

    def _send(self) -> None:
        self.arriving = [self._sent(lane) for lane in self.lanes]
        self.seen = self.marks()

    def _sent(self, lane: Lane) -> tuple[np.ndarray, np.ndarray, Work | None]:
        for c in lane.cuts:
            if c.part.is_meta:
                raise DeviceError(
                    "fully_shard: the parameters are on the meta device, and have no values",
                    f"parameter: {c.part._meta}",
                    'module.to_empty(device="cpu") makes room, and reset_parameters() values',
                )
        flat = lane.packed()
        if lane.ranks == 1:
            return flat, flat, None
        out = np.empty(lane.total * lane.ranks, flat.dtype)
        work = all_gather_into_tensor(_tensor(out, lane.dtype), _tensor(flat, lane.dtype), self.shards, True)
        return flat, out, work

    def unshard(self) -> None:
        """Put the whole parameters into the modules; all ranks of the group do."""
        if self.is_open:
            if self.seen == self.marks():
                return
            self._renew()
            return
        if self.arriving is not None and self.seen != self.marks():
            self.discard()  # gathered ahead, and written since
        self.begin()
        found = None if self.known is None else self.known()
        asks = [c.part.requires_grad for c in self.order]
        if found is None or asks != [x.requires_grad for x in found.leaves]:
            found = self._made()
            self.known = weakref.ref(found)
        self._fill(found)
        found.filled(self.seen)
        self.gathered = found
        for c, x in zip(self.order, found.standing, strict=True):
            fields(x)["_gathered"] = c.part
            c.stand(x)

    def _renew(self) -> None:
        """Gather anew what was written while it was open."""
        assert self.gathered is not None
        self._send()
        self._fill(self.gathered)
        self.gathered.renewed(self.seen)

    def _fill(self, found: Gathered) -> None:
        assert self.arriving is not None
        arriving, self.arriving = self.arriving, None
        at = 0
        for lane, (_, out, work) in zip(self.lanes, arriving, strict=True):
            if work is not None:
                work.wait()
            lane.unpack(out, found.memory.arrays[at : at + len(lane.cuts)])
            at += len(lane.cuts)

    def discard(self) -> None:
        """Let go of what was gathered ahead and is not used."""
        for _, _, work in self.arriving or ():
            if work is not None:
                work.wait()
        self.arriving = None

    def _made(self) -> Gathered:
        kinds = [type_of(lane.dtype, c.shape) for lane in self.lanes for c in lane.cuts]
        found = Gathered(kinds)
        for i, c in enumerate(self.order):
            asks = c.part.requires_grad
            standing: Any = found.leaves[i]
            if c.inner is not None:
                mesh, places, shape = c.inner
                standing = dtensor_of(standing, shape, mesh, places)
            standing = Parameter(standing, asks)
            found.standing.append(standing)
            found.leaves[i] = standing._stored if c.inner is not None else standing
            if asks:
                found.leaves[i].register_post_accumulate_grad_hook(_noting(weakref.ref(self), i))
        return found

    def reshard(self) -> None:
        """Put the parts back into the modules, and give the memory of the whole back.

        What was written into the whole meanwhile, by every rank alike, is written into the parts.
        """
        if self.gathered is None:
            return
        self.take_back()
        for c in self.cuts:
            c.stand(c.part)
        self.gathered.give_back()
        self.gathered = None

    def take_back(self) -> None:
        """Write what was written into the open whole parameters into the parts."""
        if self.gathered is None or not (written := self.gathered.written()):
            return
        with no_grad():
            for i in written:
                c, x = self.order[i], self.gathered.leaves[i]
                begin, length = chunk(c.shape[c.dim], self.shards.size(), self.rank)
                c.part._stored.copy_(x.detach().narrow(c.dim, begin, length))
        self.seen = self.marks()

    # ---- gradients
    def note(self, i: int) -> None:
        """Note that the gradient of a parameter is there."""
        self.arrived.add(i)
        self.after_arrival()

    @property
    def is_complete(self) -> bool:
        """Whether all gradients that can come are there."""
        return len(self.arrived) == sum([c.part.requires_grad for c in self.order])

    @property
    def has_frozen(self) -> bool:
        """Whether some ask for no gradient, so that nothing says when backward is done with them."""
        return any([not c.part.requires_grad for c in self.order])

    def grads(self) -> list[np.ndarray | None]:
        """Take the gradients that came, with those that were kept before."""
        found: list[np.ndarray | None] = []
        leaves = [] if self.known is None or (g := self.known()) is None else g.leaves
        for i in range(len(self.order)):
            grad = leaves[i].grad if leaves else None
            before = self.kept.pop(i, None)
            if grad is None:
                found.append(before)
                continue
            leaves[i].grad = None
            found.append(grad._data if before is None else before + grad._data)
        self.arrived.clear()
        return found

    def forget(self) -> None:
        """Let go of the gradients that came, and not of those that were kept before."""
        kept, self.kept = self.kept, {}
        self.grads()
        self.kept = kept

    def keep(self) -> None:
        """Keep the gradients that came, to be averaged later."""
        for i, grad in enumerate(self.grads()):
            if grad is not None:
                self.kept[i] = grad

    def reduce(self) -> list[Callable[[], None]]:
        """Begin to average the gradients that came.  Returns what finishes it, for each dtype."""
        grads, begun, at = self.grads(), [], 0
        for lane in self.lanes:
            own = grads[at : at + len(lane.cuts)]
            at += len(lane.cuts)
            if any([g is not None for g in own]):
                begun.append(self._reduced(lane, own))
        return begun

    def _reduced(self, lane: Lane, grads: list[np.ndarray | None]) -> Callable[[], None]:
        dtype = self.policy.reduce_dtype or lane.dtype
        copies = self.copies.size() if self.copies is not None else 1
        divisor = self.divisor if self.divisor is not None else self.shards.size() * copies
        flat = lane.spread(grads, dtype.numpy)
        early = dtype is float16  # whose sums might be too large
        if early:
            flat /= divisor
        present = [i for i, g in enumerate(grads) if g is not None]
        if lane.ranks == 1:
            out, work = flat.reshape(-1), None
        else:
            out = np.empty(lane.total, flat.dtype)
            work = reduce_scatter_tensor(
                _tensor(out, dtype), _tensor(flat.reshape(-1), dtype), group=self.shards, async_op=True
            )

        def finish() -> None:
            if work is not None:
                work.wait()
            if self.copies is not None and copies > 1 and self.averages_copies:
                all_reduce(_tensor(out, dtype), group=self.copies)
            if not early:
                np.divide(out, divisor, out=out, casting="unsafe")
            for i in present:
                self._add(lane.cuts[i], lane.piece(i, out, self.rank))

        return finish

    def _add(self, c: Cut, piece: np.ndarray) -> None:
        """Add a part of an averaged gradient to that of the parameter."""
        stored = c.part._stored
        made = wrap(np.ascontiguousarray(piece, c.dtype.numpy), stored._meta)
        if np.may_share_memory(made._data, piece):
            made = wrap(made._data.copy(), stored._meta)
        if stored.grad is None:
            stored.grad = made
        else:
            with no_grad():
                stored.grad.add_(made)
        for hook in tuple(getattr(stored._node, "after", None) or ()):
            hook(stored)


def _noting(group: weakref.ref[ParameterGroup], i: int) -> Callable[[Tensor], None]:
    def note(_: Tensor) -> None:
        found = group()
        if found is not None:
            found.note(i)

    return note


def _tensor(array: np.ndarray, dtype: DType) -> Tensor:
    return wrap(array, type_of(dtype, array.shape))


def managed(
    module: Module, ignored: set[int], others: set[int]
) -> list[tuple[list[tuple[Module, str]], Any]]:
    """The parameters below a module that no other group has, each with the places where it stands.

    ignored: ids of parameters that are left as they are.  others: ids of modules that have groups.
    Raises ArgumentError for what is no floating or whole number tensor that can be cut.
    """
    found: dict[int, tuple[list[tuple[Module, str]], Any]] = {}
    for below in _below(module, others):
        for name, p in below._parameters.items():
            if p is None or id(p) in ignored:
                continue
            if p._compound and not isinstance(p, DTensor):
                raise ArgumentError(f"fully_shard: {name} is a {p.what} tensor")
            found.setdefault(id(p), ([], p))[0].append((below, name))
    return list(found.values())


def _below(module: Module, others: set[int]) -> list[Module]:
    """A module and those below it, without those that have groups, and what is below these."""
    found, seen = [], set[int]()

    def visit(m: Module) -> None:
        if id(m) in seen:
            return
        seen.add(id(m))
        found.append(m)
        for child in m.children():
            if id(child) not in others:
                visit(child)

    visit(module)
    return found


def chosen_dim(p: Tensor, choose: Callable[[Tensor], Placement | None] | None) -> int:
    """The dim to cut a parameter along: the first, unless the caller's function says another.

    Raises ArgumentValueError for what is no Shard of it, and for a number, which has no dim.
    """
    if not p.ndim:
        raise ArgumentValueError(
            "fully_shard: a parameter of no dims can't be cut",
            f"parameter: {p._meta}",
            "make it one of shape [1]",
        )
    place = None if choose is None else choose(p)
    if place is None:
        return 0
    if not isinstance(place, Shard) or not -p.ndim <= place.dim < p.ndim:
        raise ArgumentValueError(
            f"fully_shard(shard_placement_fn): a Shard of one of its dims, not {place}",
            f"parameter: {p._meta}",
        )
    return place.dim % p.ndim
