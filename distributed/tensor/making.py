"""DTensors of ordinary tensors, and new ones: `distribute_tensor`, `distribute_module`, `zeros`, `rand` …"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...nn.module import Module
from ...runtime import Tensor, no_grad, ops, random
from ...runtime.compound import Compound
from ...runtime.generator import Generator, default_generator
from ...runtime.tensor import Parameter
from ..collectives import broadcast
from ..device_mesh import DeviceMesh
from .dtensor import DTensor, dtensor_of, need_mesh
from .lookup_rules import agreed_state, part_of
from .parts import local_shape
from .placement_types import Partial, Placement, Placements, settled


def distribute_tensor(
    tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None,
    *, src_data_rank: int | None = 0,
) -> DTensor:  # fmt: skip
    """A DTensor of a tensor that is whole: each rank gets its part of what the mesh's first rank has.

    placements: `Replicate()` unless given.  src_data_rank: the rank, within each dim of the mesh, whose
    values count; None: each rank cuts its own, and nothing is sent.  A leaf becomes a leaf that asks for its
    gradient as `tensor` does.  Raises ArgumentError for a tensor with a history, ArgumentValueError for
    partial placements.
    """
    mesh = need_mesh("distribute_tensor", device_mesh)
    places = settled("distribute_tensor", placements, mesh.ndim, tensor.ndim)
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != places:
            raise ArgumentValueError(
                "distribute_tensor: the tensor is distributed already, otherwise",
                f"tensor: {tensor.shown()}",
                "x.redistribute(placements=...)",
            )
        return tensor
    if isinstance(tensor, Compound):
        raise ArgumentError(f"distribute_tensor(tensor): an ordinary tensor, not a {tensor.what} one")
    if not tensor.is_leaf:
        raise ArgumentError(
            "distribute_tensor(tensor): `distribute_tensor` should be used to distribute leaf tensors",
            f"tensor: {tensor._meta}",
            "DTensor.from_local takes one with a history",
        )
    if any(isinstance(p, Partial) for p in places):
        raise ArgumentValueError(f"distribute_tensor(placements): Shard and Replicate, not {list(places)}")
    with no_grad():
        whole = tensor.detach()
        if src_data_rank is not None and not tensor.is_meta:
            whole = _of_rank(whole, mesh, src_data_rank)
        mine = part_of(whole, mesh, places)
        if mine is whole or mine._view is not None or mine._data is tensor._data:
            mine = mine.clone()
    made: Any = dtensor_of(mine, tensor.shape, mesh, places)
    if isinstance(tensor, Parameter):
        return Parameter(made, tensor.requires_grad)  # type: ignore[return-value]
    return made.requires_grad_() if tensor.requires_grad else made


def _of_rank(whole: Tensor, mesh: DeviceMesh, source: int) -> Tensor:
    """The values that one rank of the mesh has."""
    found = whole
    for m in range(mesh.ndim):
        if mesh.shape[m] > 1:
            group = mesh.get_group(m)
            if found is whole:
                found = whole.clone()
            broadcast(found, group.ranks[source], group)
    return found


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Module:
    """Make DTensors of a module's parameters and buffers, in place.

    partition_fn(name, module, mesh): puts those of each module below where it wants; others are replicated.
    input_fn(module, inputs, mesh), output_fn(module, outputs, mesh): change what its calls take and return.
    """
    mesh = need_mesh("distribute_module", device_mesh)
    for name, below in list(module.named_modules()):
        if partition_fn is not None:
            partition_fn(name, below, mesh)
        replicate_rest(below, mesh)
    if input_fn is not None:
        taken = input_fn
        module.register_forward_pre_hook(lambda m, args: taken(m, args, mesh))
    if output_fn is not None:
        given = output_fn
        module.register_forward_hook(lambda m, args, out: given(m, out, mesh))
    return module


def replicate_rest(module: Module, mesh: DeviceMesh) -> None:
    """Make DTensors of what a module holds itself and is none yet."""
    for name, p in list(module._parameters.items()):
        if p is not None and not isinstance(p, DTensor):
            module.register_parameter(name, distribute_tensor(p, mesh))
    for name, b in list(module._buffers.items()):
        if b is not None and not isinstance(b, DTensor):
            module._buffers[name] = distribute_tensor(b, mesh)


# ---- new ones
def _sizes(size: tuple) -> tuple[int, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    return tuple([int(n) for n in size])


def _settled(name: str, shape: tuple[int, ...], mesh: Any, placements: Any) -> tuple[DeviceMesh, Placements]:
    found = need_mesh(name, mesh)
    places = settled(name, placements, found.ndim, len(shape))
    if any(isinstance(p, Partial) for p in places):
        raise ArgumentValueError(f"{name}(placements): Shard and Replicate, not {list(places)}")
    return found, places


def _constant(name: str, value: Any) -> Callable[..., DTensor]:
    def make(
        *size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None,
    ) -> DTensor:  # fmt: skip
        shape = _sizes(size)
        mesh, places = _settled(name, shape, device_mesh, placements)
        local = ops.full(local_shape(shape, mesh, places), value, dtype=dtype)
        made = dtensor_of(local, shape, mesh, places)
        return made.requires_grad_() if requires_grad else made

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"A DTensor of this size; `{name}` says its elements.  Replicated unless `placements` say more."
    )
    return make


zeros, ones, empty = _constant("zeros", 0.0), _constant("ones", 1.0), _constant("empty", 0.0)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None,
) -> DTensor:  # fmt: skip
    """A DTensor of this size that holds one number everywhere."""
    shape = _sizes((size,))
    mesh, places = _settled("full", shape, device_mesh, placements)
    local = ops.full(local_shape(shape, mesh, places), fill_value, dtype=dtype)
    made = dtensor_of(local, shape, mesh, places)
    return made.requires_grad_() if requires_grad else made


def _random(name: str, draw: Callable) -> Callable[..., DTensor]:
    def make(
        *size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None,
    ) -> DTensor:  # fmt: skip
        shape = _sizes(size)
        mesh, places = _settled(name, shape, device_mesh, placements)
        whole = drawn(lambda g: draw(*shape, dtype=dtype, generator=g), mesh, None)
        made = dtensor_of(part_of(whole, mesh, places).clone(), shape, mesh, places)
        return made.requires_grad_() if requires_grad else made

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"A DTensor of this size with the elements that `{name}` draws in one process, by the generator of "
        "the mesh's first rank."
    )
    return make


rand, randn = _random("rand", random.rand), _random("randn", random.randn)


def drawn(draw: Callable[[Generator], Tensor], mesh: DeviceMesh, generator: Generator | None) -> Tensor:
    """What all ranks of a mesh draw alike: with the state of its first rank's generator.

    A rank whose own generator stood at that goes on from where the draw ended.
    """
    own = default_generator if generator is None else generator
    before = own.get_state()
    state = agreed_state(before, mesh)
    common = Generator()
    common.set_state(state)
    found = draw(common)
    if bool((state == before).all()):
        own.set_state(common.get_state())
    return found


def _in_place(name: str) -> Callable:
    plain = getattr(Tensor, name)

    def fill(self: DTensor, *args: Any, generator: Generator | None = None, **kwargs: Any) -> DTensor:
        if any(isinstance(p, Partial) for p in self._placements):
            raise ArgumentValueError(f"{name}: a partial DTensor is not drawn", f"tensor: {self.shown()}")

        def draw(g: Generator) -> Tensor:
            return plain(ops.zeros(self._meta.shape, dtype=self.dtype), *args, generator=g, **kwargs)

        with no_grad():
            if self.is_meta:
                return self
            whole = drawn(draw, self._mesh, generator)
            self._stored.copy_(part_of(whole, self._mesh, self._placements))
        return self

    fill.__name__ = fill.__qualname__ = name
    fill.__doc__ = plain.__doc__
    return fill


_DRAWN = ("uniform_", "normal_", "exponential_", "log_normal_", "cauchy_", "geometric_", "random_")
for _name in _DRAWN:
    setattr(DTensor, _name, _in_place(_name))

__all__ = [
    "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros",
]  # fmt: skip
