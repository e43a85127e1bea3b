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
