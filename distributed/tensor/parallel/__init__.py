"""Tensor parallel: modules whose parameters lie on several ranks, under PyTorch's names."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.tensor.parallel"
    )

from .plans import parallelize_module
from .styles import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)
from .vocabulary_loss import loss_parallel
