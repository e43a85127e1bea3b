"""Tensors from one device to another, with their histories."""

from __future__ import annotations

from typing import Any

from ..ir.types import CPU, Device, type_of
from . import on_device
from .function import Function
from .levels import Transformed
from .modes import is_grad_enabled
from .tensor import Tensor, wrap


def _moved(x: Tensor, place: Device) -> Tensor:
    data, kind = x._data, type_of(x._meta.dtype, x._meta.shape, place)
    if place is CPU:
        return wrap(on_device.on_host(data), kind)
    eager = on_device.eager()
    return wrap(eager.uploaded(eager.machine_at(place), on_device.on_host(data)), kind)


def pinned(x: Tensor, place: Device) -> Tensor:
    """A copy of a tensor of the CPU in page-locked memory."""
    if is_pinned(x):
        return x
    at = on_device.eager().machine_at(place)
    made = at.pinned.empty(x._data.shape, x._data.dtype)
    made[...] = x._data
    return wrap(made, x._meta)


def is_pinned(x: Tensor) -> bool:
    """Whether a tensor's memory is page-locked, for any of the devices that were asked for."""
    return any(at.pinned.holds(x._data) for at in on_device.begun())


class _Move(Function):
    """A copy on another device, whose gradient goes back to where the tensor was."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Device) -> Tensor:
        ctx.place, ctx.there = x._meta.device, place
        return _moved(x, place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:  # type: ignore[override]
        return gradient.to(ctx.place), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent.to(ctx.there)

    @staticmethod
    def vmap(info: Any, dims: tuple, x: Tensor, place: Device) -> tuple:
        return moved(x, place), dims[0]


def moved(x: Tensor, place: Device) -> Tensor:
    """A copy on another device, and part of the history of where it came from."""
    if not isinstance(x, Transformed) and (x._node is None or not is_grad_enabled()):
        return _moved(x, place)
    return _Move.apply(x, place)
