"""Collectives with gradients, as PyTorch has them in torch.distributed.nn."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.nn")

from . import functional
from .functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
