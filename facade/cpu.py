"""Answer `torch.cpu`: the device that is always there, and mixed precision on it."""

from __future__ import annotations

from typing import Any

from .amp import of_cpu as amp

__all__ = ["amp"]


def is_available() -> bool:
    """Whether tensors can live on the CPU: yes."""
    return True


def device_count() -> int:
    """The number of CPUs as devices: one."""
    return 1


def current_device() -> str:
    """The name of the device."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Return at once, as what is called is done when it returns."""


def is_initialized() -> bool:
    """Whether the device is ready: always."""
    return True


def set_device(device: Any) -> None:
    """Do nothing: there is one CPU."""
