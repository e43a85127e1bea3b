"""PyTorch's wrapper for several devices, of which there is one."""

from __future__ import annotations

from typing import Any

from ..ir.errors import DeviceError
from ..ir.pretended_gpus import count, is_pretended
from ..ir.types import Device
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
