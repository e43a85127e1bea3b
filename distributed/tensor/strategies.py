"""How an op runs on DTensors: which placements its operands take, what the result has then, what it costs.

A family of ops says, for one dim of the mesh, all that is right: a `Way` is how each operand lies and how
each result then does.  Of these the one is taken, along each dim of the mesh, that sends the fewest bytes;
operands that lie otherwise are redistributed, and the op runs on what each rank has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ...ir.errors import ArgumentValueError, DistributedError
from ...ir.op import REGISTRY, Op
from ...ir.types import Type
from ...runtime import Tensor
from ...runtime.compound import NoArray
from ...runtime.dispatch import known_plan, run_general
from ...runtime.modes import is_grad_enabled
from ...runtime.places import here, line_of
from ..device_mesh import DeviceMesh
from .crossings import entered
from .dtensor import DTensor, dtensor_of
from .experimental import gathered, implicit
from .parts import local_shape
from .placement_types import Partial, Placement, Placements, Replicate, Shard
from .redistribution import cost

R, P = Replicate(), Partial()
Way = tuple[tuple[Placement | None, ...], tuple[Placement, ...]]


@dataclass
class Call:
    """An op on DTensors, as families look at it.

    operands: DTensors, and None where an optional one is absent.  outs: the types of the results' wholes.
    given: how operands lie along the dim of the mesh that is looked at.  even: what sizes must be divisible
    by where a cut is to fall on a border.  ins, places: how all lie that run, once that is known.
    """

    op: Op
    operands: tuple[DTensor | None, ...]
    attrs: dict[str, Any]
    outs: tuple[Type, ...]
    mesh: DeviceMesh
    given: tuple[Placement | None, ...] = ()
    ins: list[Placements | None] = field(default_factory=list)
    places: list[Placements] = field(default_factory=list)

    @property
    def even(self) -> int:
        return self.mesh.size()

    @property
    def shapes(self) -> list[tuple[int, ...] | None]:
        """The shapes of the operands' wholes."""
        return [None if x is None else tuple(x.shape) for x in self.operands]

    @property
    def differentiated(self) -> bool:
        """Whether a gradient will be asked for."""
        return is_grad_enabled() and any(x is not None and x.requires_grad for x in self.operands)

    def ways(self, *outs: Placement, **_: Any) -> list[Way]:
        """The way that is always right: all have everything."""
        return [(tuple([None if x is None else R for x in self.operands]), tuple([R] * len(self.outs)))]

    def local_out(self, at: int = 0) -> tuple[int, ...]:
        """The shape of this rank's part of a result."""
        return local_shape(self.outs[at].shape, self.mesh, self.places[at])


@dataclass(frozen=True)
class Family:
    """Ops that run alike.

    ways: (call) -> the ways beside that by replicas.  attrs: (call) -> the arguments for what this rank has,
    where these are others.  run: (call, locals, attrs) -> the results on this rank, where the op is not just
    run.
    replicas: whether operands may be gathered where no other way is right.
    """

    ways: Callable[[Call], list[Way]]
    attrs: Callable[[Call], dict[str, Any]] | None = None
    run: Callable[[Call, tuple, dict[str, Any]], Any] | None = None
    replicas: bool = True


FAMILIES: dict[str, Family] = {}
# Ops that come down to others on DTensors: (operands..., **attrs) -> a DTensor, or NotImplemented.
INSTEAD: dict[str, Callable] = {}


def enter(family: Family, *names: str) -> None:
    """Let ops of these names run as a family does."""
    FAMILIES.update(dict.fromkeys(names, family))


class _Rules(dict):
    """What `Compound` looks ops up in: each op runs by its family, or is refused."""

    def get(self, name: str, default: Any = None) -> Any:
        op = REGISTRY[name]
        return lambda *operands, **attrs: dispatched(op, operands, attrs)


DTensor.rules = _Rules()


def dispatched(op: Op, operands: tuple, attrs: dict[str, Any]) -> Any:
    """The result of an op of whose operands some are DTensors.  Raises NoArray where no way is known."""
    instead = INSTEAD.get(op.name)
    if instead is not None:
        found = instead(*operands, **attrs)
        if found is not NotImplemented:
            return found
    every = alike(op, operands)
    mesh = next(x._mesh for x in every if x is not None)
    outs = known_plan(op, every, attrs).outs
    call = Call(op, every, attrs, tuple(outs[: len(outs) - len(op.hidden)]), mesh)
    return run(call)


def run(call: Call) -> Any:
    """Choose, redistribute, run, and say how the results lie."""
    op, mesh = call.op, call.mesh
    family = FAMILIES.get(op.name)
    chosen = [best(call, family, m) for m in range(mesh.ndim)]
    call.ins = [
        None if x is None else tuple([ins[i] or R for ins, _ in chosen]) for i, x in enumerate(call.operands)
    ]
    call.places = [tuple([outs[i] for _, outs in chosen]) for i in range(len(call.outs))]
    placed = [None if x is None else x.placed(p or ()) for x, p in zip(call.operands, call.ins, strict=True)]
    attrs = call.attrs if family is None or family.attrs is None else family.attrs(call)
    locals_ = tuple([None if x is None else x._stored for x in placed])
    if family is not None and family.run is not None:
        found = family.run(call, locals_, attrs)
    else:
        found = run_general(op, locals_, attrs)
    several = isinstance(found, tuple)
    made = []
    for i, (local, kind) in enumerate(zip(found if several else (found,), call.outs, strict=True)):
        one = dtensor_of(local, kind.shape, mesh, call.places[i])
        if one._stored._meta.shape != call.local_out(i):
            raise DistributedError(
                f"{op.name}: a rule for DTensors made {local._meta} where {list(call.local_out(i))} was due",
                *described(call),
                "this is a defect: please report it",
            )
        made.append(one)
    if op.traits.view:
        first = call.operands[0]
        made[0]._apart = first is not None and (first._apart or placed[0] is not first)
    return (
        type(found)(*made) if several and hasattr(found, "_fields") else tuple(made) if several else made[0]
    )


def best(call: Call, family: Family | None, m: int) -> Way:
    """The way along one dim of the mesh that sends the fewest bytes.  Raises NoArray where there is none."""
    call.given = tuple([None if x is None else x._placements[m] for x in call.operands])
    replicas = call.ways()[0]
    whole = all(p is None or p == R for p in call.given)
    if family is None:
        notes = gathered.get()
        if (whole or notes is not None) and not call.op.traits.random and not call.op.traits.meets:
            if not whole and notes is not None:
                file, line = line_of(here())
                notes[f"{call.op.name} ({PurePath(file).name}:{line})"] = None
            return replicas
        raise refused(call)
    known = family.ways(call)
    if family.replicas or whole:
        known = [replicas, *known]
    if not known:
        raise refused(call)
    count = call.mesh.shape[m]
    return min(known, key=lambda way: _cost(call, way, count) + _knotted(call, way, m))


def _knotted(call: Call, way: Way, m: int) -> int:
    """About how many bytes it takes to cut what another dim of the mesh has cut along the same dim.

    For that it is gathered first: see `entangled` in redistribution.py.
    """
    found = 0
    for x, before, after in zip(call.operands, call.given, way[0], strict=True):
        if x is not None and isinstance(after, Shard) and before != after:
            others = [p for k, p in enumerate(x._placements) if k != m]
            found += _nbytes(x._meta) if after in others else 0
    return found


def _cost(call: Call, way: Way, count: int) -> float:
    """About how many bytes each rank sends, now and to add up what is made partial.

    That only counts beside others: where nothing is sent now, partial it is.
    """
    ins, outs = way
    now = sum(
        [
            cost(before, after, _nbytes(x._meta), count)
            for x, before, after in zip(call.operands, call.given, ins, strict=True)
            if x is not None and before is not None and after is not None
        ]
    )
    if now < 1:
        return now
    return now + sum(
        [cost(p, R, _nbytes(t), count) for p, t in zip(outs, call.outs) if isinstance(p, Partial)]
    )


def _nbytes(kind: Type) -> int:
    return kind.size * kind.dtype.itemsize


def described(call: Call) -> list[str]:
    """The operands with their placements, for errors."""
    names = [n.lstrip("*") for n in call.op.operands] + [call.op.operands[-1].lstrip("*")] * len(
        call.operands
    )
    return [f"{n}: {x.shown()}" for n, x in zip(names, call.operands) if x is not None]


def refused(call: Call) -> NoArray:
    return NoArray(
        f"{call.op.name}: there is no rule for DTensors that lie like these",
        *described(call),
        "x.redistribute(placements=[Replicate(), …]) first, or work on x.to_local()",
    )


def alike(op: Op, operands: tuple) -> tuple[DTensor | None, ...]:
    """All operands as DTensors on one mesh.  Raises NoArray for ordinary tensors, ArgumentValueError."""
    first = next(x for x in operands if isinstance(x, DTensor))
    mesh = first._mesh
    found: list[DTensor | None] = []
    for x in operands:
        if x is None or isinstance(x, DTensor):
            if x is not None and x._mesh != mesh:
                raise ArgumentValueError(
                    f"{op.name}: its operands lie on different meshes", f"{mesh!r}", f"{x._mesh!r}"
                )
            found.append(x)
            continue
        if not isinstance(x, Tensor) or x._compound or (x.ndim and not implicit.get()):
            raise NoArray(
                f"{op.name}: got mixed ordinary tensors and DTensors",
                *[
                    f"operand: {y.shown() if isinstance(y, DTensor) else y._meta}"
                    for y in operands
                    if y is not None
                ],
                "distribute_tensor(x, mesh) makes a DTensor of what all ranks have",
            )
        whole = tuple([R] * mesh.ndim)
        found.append(dtensor_of(entered(x, mesh, whole), x._meta.shape, mesh, whole))
    return tuple(found)


def _operand(x: Any) -> str:
    return f"operand: {x.shown() if isinstance(x, DTensor) else x._meta}"


# ---- what families share
def sharded(call: Call) -> list[int]:
    """The dims that operands are cut along, counted from the last: -1, -2 … as broadcasting aligns them."""
    found = []
    for x, p in zip(call.operands, call.given, strict=True):
        if x is not None and isinstance(p, Shard):
            found.append(p.dim - x._meta.ndim)
    return list(dict.fromkeys(found))


def cuts(call: Call) -> list[int]:
    """The dims that the first operand is cut along, from its front."""
    p = call.given[0]
    return [p.dim] if isinstance(p, Shard) else []


def linear_partials(call: Call, at: int = 0) -> list[Placement]:
    """The partial placement of an operand that a linear op keeps: sums and averages."""
    p = call.given[at]
    return [p] if isinstance(p, Partial) and p.reduce_op in ("sum", "avg") else []
