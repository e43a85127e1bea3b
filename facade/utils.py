"""Hand on what PyTorch keeps under `torch.utils`: `data`, and DLPack's functions."""

from types import ModuleType

from .. import data
from ..runtime import Tensor, from_dlpack
from ..runtime.interchange import export


def to_dlpack(tensor: Tensor) -> object:
    """A DLPack capsule of the tensor's memory."""
    return export(tensor)


dlpack = ModuleType("lamina.utils.dlpack", "Share memory through DLPack.")
vars(dlpack).update(from_dlpack=from_dlpack, to_dlpack=to_dlpack)

__all__ = ["data", "dlpack"]
