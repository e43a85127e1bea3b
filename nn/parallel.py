"""PyTorch's wrapper for several devices, of which there is one."""

from __future__ import annotations

from typing import Any

from ..ir.errors import DeviceError
from .module import Module


class DataParallel(Module):
    """Call `module`: there are no other devices to split a batch over.

    The module is the child `module`, so that keys in `state_dict()` begin with that.  Raises DeviceError for
    device_ids.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids:
            raise DeviceError(
                f"DataParallel(device_ids): there is only the CPU, not {device_ids}", "leave device_ids out"
            )
        self.module, self.dim, self.device_ids = module, dim, []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
