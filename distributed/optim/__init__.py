"""Optimizers of several ranks, as PyTorch has them in torch.distributed.optim."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.optim")

from .zero_redundancy_optimizer import ZeroRedundancyOptimizer
