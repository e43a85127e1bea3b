"""Small programs about tensors as objects, written for PyTorch; each takes the library, returns what shows.

What is returned is compared after `shown` has made plain data of it: of tensors their class's name, dtype,
shape, requires_grad and values, of exceptions which of Python's kinds they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS: list[Callable] = []


def program(function: Callable) -> Callable:
    PROGRAMS.append(function)
    return function


@dataclass
class Raised:
    """An exception; equal to another of one kind with it, as Lamina's are of several."""

    error: BaseException

    def kinds(self) -> set[type]:
        return {k for k in KINDS if isinstance(self.error, k)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and bool(self.kinds() & other.kinds())


KINDS = (NotImplementedError, RuntimeError, TypeError, IndexError, AttributeError, ValueError)


def raised(function: Callable, *args: Any) -> Any:
    """The exception of a call, or its result."""
    try:
        return function(*args)
    except Exception as error:
        return error


def shown(t: Any, value: Any) -> Any:
    """Plain data that says what matters of a value."""
    if isinstance(value, t.Tensor):
        values = "meta" if value.device.type == "meta" else shown(t, value.detach().tolist())
        kind = str(value.dtype).split(".")[-1]
        return (type(value).__name__, kind, tuple(value.shape), value.requires_grad, values)
    if isinstance(value, BaseException):
        return Raised(value)
    if isinstance(value, float):
        return float(f"{value:.5g}")  # the programs round less than ten times, each 6e-8
    if isinstance(value, dict):
        return {k: shown(t, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(t, v) for v in value]
    if type(value).__module__.startswith(("torch", "lamina")):
        return str(value).replace("lamina", "torch")
    return value.replace("lamina.", "torch.") if isinstance(value, str) else value
