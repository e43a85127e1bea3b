"""PyTorch's wrapper for several devices, of which there is one, and what it splits arguments by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.errors import DeviceError
from ..ir.pretended_gpus import count, is_pretended
from ..ir.types import Device
from ..runtime import Tensor, ops
from .module import Module


class DataParallel(Module):
    """Call `module`: there are no other devices to split a batch over.

    The module is the child `module`, so that keys in `state_dict()` begin with that.  Raises DeviceError for
    device_ids, unless GPUs are pretended.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids and not count():
            raise DeviceError(
                f"DataParallel(device_ids): there is only the CPU, not {device_ids}", "leave device_ids out"
            )
        self.module, self.dim = module, dim
        self.device_ids = [device.index for device in map(Device, device_ids or ()) if is_pretended(device)]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Call `module` with `inputs`, a tuple or one, as DataParallel does.  Raises DeviceError."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*given, **(module_kwargs or {}))


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """The network once for each device, which have the one memory.  Raises DeviceError for others."""
    if unknown := [d for d in map(Device, devices) if d.type != "cpu" and not is_pretended(d)]:
        raise DeviceError(f"replicate(devices): modules stay where they are, not on {unknown[0]} as well")
    return [network for _ in devices]


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Any = None,
) -> list[Any]:  # fmt: skip
    """What each module gives for its inputs, a tuple or one each; one after the other."""
    named = kwargs_tup or ({},) * len(modules)
    return [
        m(*(x if isinstance(x, tuple | list) else (x,)), **kwargs)
        for m, x, kwargs in zip(modules, inputs, named, strict=True)
    ]


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Split what `inputs` holds of tensors along `dim`, a part for each device; anything else goes to each.

    Returns `inputs` once for each part there is, with that in the tensors' places.  Raises DeviceError.
    """
    devices = [Device(device) for device in target_gpus]

    def parts(value: Any) -> list[Any]:
        if isinstance(value, Tensor):
            return [x.to(d) for x, d in zip(ops.chunk(value, len(devices), dim), devices, strict=False)]
        if isinstance(value, tuple) and value:
            rows = zip(*map(parts, value))
            return [type(value)(*row) if hasattr(value, "_fields") else row for row in rows]
        if isinstance(value, list) and value:
            return [list(row) for row in zip(*map(parts, value))]
        if isinstance(value, dict) and value:
            return [type(value)(zip(value, row)) for row in zip(*map(parts, value.values()))]
        return [value for _ in devices]

    return parts(inputs)


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[tuple, tuple]:
    """Split arguments and those by name; the shorter of both is filled up with empty ones."""
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    rows += [() for _ in range(len(named) - len(rows))]
    named += [{} for _ in range(len(rows) - len(named))]
    return tuple(rows), tuple(named)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Join the tensors that each output holds along `dim`, on one device: what `scatter` split, together."""
    first = outputs[0]
    if isinstance(first, Tensor):
        rows = [x[None] for x in outputs] if not first.ndim else outputs
        return ops.cat([x.to(Device(target_device)) for x in rows], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([o[key] for o in outputs], target_device, dim)) for key in first)
    joined = [gather(row, target_device, dim) for row in zip(*outputs)]
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)
