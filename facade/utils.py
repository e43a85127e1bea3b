"""Hand on what PyTorch keeps under `torch.utils`: `data`, and DLPack's functions."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any
from warnings import warn

from .. import data
from ..ir.errors import ArgumentError
from ..runtime import Tensor, checkpointing, from_dlpack, recomputing
from ..runtime.interchange import export
from ..runtime.swapping import swap_tensors
from . import pytree as _pytree  # noqa: F401 - libraries ask for torch.utils._pytree


def get_device_states(*args: object) -> tuple[list[int], list[Tensor]]:
    """The devices of the tensors among these, and their generators' states: of the CPU alone, none."""
    return [], []


def set_device_states(devices: list[int], states: list[Tensor], *, device_type: str | None = None) -> None:
    """Take over what `get_device_states` returned."""


def to_dlpack(tensor: Tensor) -> object:
    """A DLPack capsule of the tensor's memory."""
    return export(tensor)


dlpack = ModuleType("lamina.utils.dlpack", "Share memory through DLPack.")
vars(dlpack).update(from_dlpack=from_dlpack, to_dlpack=to_dlpack)


def detach_variable(inputs: tuple) -> tuple:
    """The inputs, of which tensors are leaves that ask for gradients as they did.  Raises ArgumentError."""
    if not isinstance(inputs, tuple):
        raise ArgumentError(
            "detach_variable(inputs): Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor of the inputs asks for gradients."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


checkpoint = ModuleType("lamina.utils.checkpoint", "Run parts of a forward again in backward.")
vars(checkpoint).update(
    checkpoint=checkpointing.checkpoint,
    checkpoint_sequential=checkpointing.checkpoint_sequential,
    get_device_states=get_device_states,
    set_device_states=set_device_states,
    check_backward_validity=check_backward_validity,
    detach_variable=detach_variable,
    noop_context_fn=checkpointing.noop_context_fn,
    CheckpointError=recomputing.CheckpointError,
    set_checkpoint_debug_enabled=recomputing.set_checkpoint_debug_enabled,
    set_checkpoint_early_stop=recomputing.set_checkpoint_early_stop,
)

deterministic = ModuleType("lamina.utils.deterministic", "Of memory that is not filled: here there is none.")
vars(deterministic).update(fill_uninitialized_memory=True)

__all__ = ["checkpoint", "data", "deterministic", "dlpack", "swap_tensors"]
