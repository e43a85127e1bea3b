"""Where a program for one process becomes one of several: its ordinary tensors, which every rank has whole.

A tensor is cut where a call begins and joined where it ends; parameters are cut once, with the gradients that
they have and the states that optimizers keep of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

from ...ir.errors import ArgumentValueError
from ...nn.module import Module
from ...optim.optimizer import Optimizer
from ...runtime import Tensor
from ...runtime.graph import Leaf
from ..device_mesh import DeviceMesh
from .crossings import entered
from .dtensor import DTensor, dtensor_of
from .experimental import gathered, implicit
from .making import distribute_tensor
from .placement_types import Placement, Replicate, Shard, settled


@contextmanager
def partitioned(notes: dict[str, None]) -> Iterator[None]:
    """Take ordinary tensors for ones that every rank has, and gather what an op without a rule is given.

    notes: these ops are entered there, each with the line that called it.
    """
    before, of_ops = implicit.set(True), gathered.set(notes)
    try:
        yield
    finally:
        gathered.reset(of_ops)
        implicit.reset(before)


def cut(x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement], each: bool = False) -> Tensor:
    """What this rank is to compute on of a tensor that every rank has, as a DTensor; gradients flow back.

    each: the placements are those of all arguments: one that lacks the dims to be cut along stays as it is.
    A part can't be written in place, as the tensor would not see it.
    """
    if each and any(isinstance(p, Shard) and not -x.ndim <= p.dim < x.ndim for p in placements):
        return x
    places = settled("in_shardings", placements, mesh.ndim, x.ndim)
    if isinstance(x, DTensor):
        return x.redistribute(placements=places)
    whole = (Replicate(),) * mesh.ndim
    made = dtensor_of(entered(x, mesh, whole), x.shape, mesh, whole).placed(places)
    made._apart = places != whole
    return made


def joined(x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement] | None) -> Tensor:
    """A result as an ordinary tensor, which every rank gets, or as a DTensor that lies as is said."""
    if placements is None:
        return x.full_tensor() if isinstance(x, DTensor) else x
    places = settled("out_shardings", placements, mesh.ndim, x.ndim)
    if not isinstance(x, DTensor):
        whole = (Replicate(),) * mesh.ndim
        x = dtensor_of(entered(x, mesh, whole), x.shape, mesh, whole)
    return x.redistribute(placements=places)


def cut_parameters(
    modules: Mapping[str, Module], optimizers: Sequence[Optimizer], mesh: DeviceMesh,
    placements: Mapping[str, Sequence[Placement]],
) -> set[str]:  # fmt: skip
    """Make DTensors of parameters and buffers, in place, wherever their modules and optimizers have them.

    modules: by the names that begin those of their parameters.  placements: by patterns of names, the first
    that fits counts.  Returns the patterns that fitted one.  Raises ArgumentValueError.
    """
    found: set[str] = set()
    made: dict[int, tuple[Tensor, DTensor]] = {}
    for name, module in modules.items():
        for path, below in module.named_modules(prefix=name):
            for own in (below._parameters, below._buffers):
                for key, x in list(own.items()):
                    told = f"{path}.{key}" if path else key
                    pattern = next((p for p in placements if fnmatchcase(told, p)), None)
                    if x is None or pattern is None:
                        continue
                    found.add(pattern)
                    if id(x) not in made:
                        made[id(x)] = x, _cut_once(told, x, mesh, placements[pattern])
                    if own is below._parameters:
                        below.register_parameter(key, made[id(x)][1])
                    else:
                        own[key] = made[id(x)][1]
    for optimizer in optimizers:
        _exchange(optimizer, {key: new for key, (old, new) in made.items() if new is not old})
    return found


def _cut_once(name: str, x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """A parameter of which each rank keeps its part, with the gradient that it has."""
    if not isinstance(x, DTensor) and type(x._node) is Leaf and (x._node.hooks or x._node.after):
        raise ArgumentValueError(
            f"in_shardings: hooks hang on {name}, which would be lost", f"{name}: {x._meta}",
            "hang them once it is cut: after the first call",
        )  # fmt: skip
    made = distribute_tensor(x, mesh, placements, src_data_rank=None)
    if made is not x and x.grad is not None:
        made.grad = x.grad
    return made


def _exchange(optimizer: Optimizer, made: Mapping[int, DTensor]) -> None:
    """Have an optimizer update other tensors in place of some, with the states that it has of these."""
    if not any(id(p) in made for group in optimizer.param_groups for p in group["params"]):
        return
    states = optimizer.state_dict()
    for group in optimizer.param_groups:
        group["params"] = [made.get(id(p), p) for p in group["params"]]
    optimizer.load_state_dict(states)
