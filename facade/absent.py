"""Rooms of PyTorch's for devices and processes that Lamina does not drive: they are there to say so.

Programs ask `torch.distributed.is_initialized()` or `torch.xpu.is_available()` before they do anything else.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from ..ir.errors import ArgumentValueError


class _Absent(ModuleType):
    """A room whose other names are refused with what to do instead."""

    def __init__(self, name: str, instead: str, **offered: Any):
        super().__init__(
            f"lamina.{name}", f"What PyTorch keeps in torch.{name}, of which nothing is here: {instead}."
        )
        self.__dict__.update(offered, _instead=instead)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Lamina has no torch.{self.__name__.partition('.')[2]}.{name}: {self._instead}")


def _no(*_: Any, **__: Any) -> bool:
    """False: there is none."""
    return False


def _none(*_: Any, **__: Any) -> int:
    """0: there is none."""
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: there is none."""


def _alone(*_: Any, **__: Any) -> NoReturn:
    """Refuse: there is no group of processes."""
    raise ArgumentValueError(
        "Default process group has not been initialized: Lamina runs in one process",
        "ask is_initialized() first",
    )


_DEVICE = {
    "is_available": _no, "device_count": _none, "empty_cache": _nothing, "synchronize": _nothing,
    "manual_seed": _nothing, "manual_seed_all": _nothing, "is_initialized": _no,
}  # fmt: skip
xpu = _Absent("xpu", "there is no such device", **_DEVICE)
mps = _Absent("mps", "there is no such device", **_DEVICE)
mtia = _Absent("mtia", "there is no such device", **_DEVICE)
accelerator = _Absent(
    "accelerator", "eager runs on the CPU", is_available=_no, device_count=_none,
    current_accelerator=lambda check_available=False: None, synchronize=_nothing,
)  # fmt: skip
distributed = _Absent(
    "distributed", "it runs in one process", is_available=_no, is_initialized=_no, get_rank=_alone,
    get_world_size=_alone, barrier=_alone, get_backend=_alone, is_torchelastic_launched=_no,
    is_nccl_available=_no, is_gloo_available=_no, is_mpi_available=_no, is_ucc_available=_no,
)  # fmt: skip
