"""A stand-in for torchvision, which is built on PyTorch's own code: transforms, data sets on disk, blocks.

Programs under `python -m lamina run` find it as `torchvision`.  Needs Pillow for pictures in files.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.facade.torchvision"
    )

from . import datasets, io, models, ops, transforms, utils

__version__ = "0.28.0+lamina"  # the torchvision whose arguments and defaults these are
__all__ = ["datasets", "io", "models", "ops", "transforms", "utils"]
