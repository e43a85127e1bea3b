"""Hand on what PyTorch keeps under `torch.utils`: `data`, and DLPack's functions."""

from types import ModuleType

from .. import data
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

checkpoint = ModuleType("lamina.utils.checkpoint", "Run parts of a forward again in backward.")
vars(checkpoint).update(
    checkpoint=checkpointing.checkpoint,
    checkpoint_sequential=checkpointing.checkpoint_sequential,
    get_device_states=get_device_states,
    set_device_states=set_device_states,
    noop_context_fn=checkpointing.noop_context_fn,
    CheckpointError=recomputing.CheckpointError,
    set_checkpoint_debug_enabled=recomputing.set_checkpoint_debug_enabled,
    set_checkpoint_early_stop=recomputing.set_checkpoint_early_stop,
)

deterministic = ModuleType("lamina.utils.deterministic", "Of memory that is not filled: here there is none.")
vars(deterministic).update(fill_uninitialized_memory=True)

__all__ = ["checkpoint", "data", "deterministic", "dlpack", "swap_tensors"]
