"""Answer `torch.profiler` and `torch.autograd.profiler`: labels that nobody hears; no profiles.

PyTorch's labels do nothing either while no profiler runs, and here none does.
"""

from __future__ import annotations

import contextlib
import enum
from types import ModuleType
from typing import Any

from ..ir.errors import ArgumentValueError


class record_function(contextlib.ContextDecorator):
    """Name a block, or a decorated function, for a profiler."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class profile:
    """Refused: Lamina counts no time of its ops.  With `enabled=False` a block that does nothing."""

    def __init__(self, *_: Any, enabled: bool = True, **__: Any):
        if enabled:
            raise ArgumentValueError(
                f"{type(self).__name__}: Lamina has no profiler of its ops",
                "python -m cProfile script.py counts the time of functions; a traced function's explain() "
                "tells what was compiled",
            )

    def __enter__(self) -> profile:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class emit_nvtx(profile):
    """Refused as `profile` is: ranges for NVIDIA's profiler."""


class emit_itt(profile):
    """Refused as `profile` is: ranges for Intel's profiler."""


class ProfilerActivity(enum.Enum):
    """What a profiler of PyTorch's listens to."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What a profiler of PyTorch's does in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class EventList(list):
    """What a profiler of PyTorch's heard: there are none."""


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Any:
    """Refused as `profile` is.  Raises ArgumentValueError."""
    return profile()


def kineto_available() -> bool:
    """Whether PyTorch's profiling library is there: no."""
    return False


itt = ModuleType("lamina.profiler.itt", "Ranges for Intel's profiler, which is not here.")
vars(itt).update(is_available=lambda: False)

__all__ = [
    "EventList",
    "ProfilerAction",
    "ProfilerActivity",
    "emit_itt",
    "emit_nvtx",
    "itt",
    "kineto_available",
    "profile",
    "record_function",
    "tensorboard_trace_handler",
]
