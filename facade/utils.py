"""Hand on what PyTorch keeps under `torch.utils`: `data`, and DLPack's functions."""

from types import ModuleType

from .. import data
from ..runtime import Tensor, checkpointing, from_dlpack, recomputing
from ..runtime.interchange import export
from ..runtime.tensor import swap_tensors
from . import pytree as _pytree  # noqa: F401 - libraries ask for torch.utils._pytree


def to_dlpack(tensor: Tensor) -> object:
    """A DLPack capsule of the tensor's memory."""
    return export(tensor)


dlpack = ModuleType("lamina.utils.dlpack", "Share memory through DLPack.")
vars(dlpack).update(from_dlpack=from_dlpack, to_dlpack=to_dlpack)

checkpoint = ModuleType("lamina.utils.checkpoint", "Run parts of a forward again in backward.")
vars(checkpoint).update(
    checkpoint=checkpointing.checkpoint,
    checkpoint_sequential=checkpointing.checkpoint_sequential,
    noop_context_fn=checkpointing.noop_context_fn,
    CheckpointError=recomputing.CheckpointError,
    set_checkpoint_debug_enabled=recomputing.set_checkpoint_debug_enabled,
    set_checkpoint_early_stop=recomputing.set_checkpoint_early_stop,
)

__all__ = ["checkpoint", "data", "dlpack", "swap_tensors"]
