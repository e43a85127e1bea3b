"""GPUs that are names of this CPU, for programs that insist on some: LAMINA_PRETEND_GPUS=2 gives two.

A variable of the environment, so that ranks, spawned processes and workers have as many.  Nothing is
simulated: what is sent to "cuda:1" stays where it is, and says "cpu".
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeGuard

from .errors import ArgumentValueError, DeviceError, frames_of_ours

if TYPE_CHECKING:
    from .types import Device

VARIABLE = "LAMINA_PRETEND_GPUS"
real: list[Callable[[], int]] = [lambda: 0]  # how many there are besides: what runtime/on_device.py finds
REMEDY = f"{VARIABLE}=1 makes 'cuda' a name of the CPU, for programs that insist on a GPU"


def count() -> int:
    """How many there are, mostly none.  Raises ArgumentValueError where the variable is no whole number."""
    text = os.environ.get(VARIABLE) or "0"
    if not text.isdecimal():
        raise ArgumentValueError(f"{VARIABLE}={text!r:.60}: a whole number of GPUs to pretend, from 0 on")
    return int(text)


def is_index(given: object) -> TypeGuard[int]:
    """Whether an argument is the number of a GPU, as in `x.to(1)`; without any it is no device at all."""
    return given.__class__ is int and (count() or real[0]()) > 0


def is_pretended(device: Device) -> bool:
    """Whether a device is one of them.  Raises DeviceError for an index beyond the last."""
    if device.type != "cuda" or not (number := count()):
        return False
    if (device.index or 0) >= number:
        raise DeviceError(
            f"there is no device {device} here: {number} are pretended, counted from 0",
            f"{VARIABLE}={(device.index or 0) + 1} pretends it as well",
        )
    _warn(number)
    return True


@cache
def _warn(number: int) -> None:
    """Say once a process what these devices are."""
    names = "cuda:0 is a name" if number == 1 else f"cuda:0 to cuda:{number - 1} are names"
    text = f"{names} of this CPU ({VARIABLE}={number}): nothing runs on a GPU"
    warnings.warn(text, stacklevel=frames_of_ours() + 1)
