"""Hand on what PyTorch keeps under `torch.signal`."""

from . import windows

__all__ = ["windows"]
