"""Tensors that lie on several ranks, under PyTorch's names.

mesh = init_device_mesh("cpu", (4,))
w = distribute_tensor(weight, mesh, [Shard(0)])     # each rank has a quarter of the rows
y = x @ w.T                                         # x is a DTensor, too; y is cut along its columns
y.full_tensor()                                     # the whole, on every rank
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.tensor"
    )

from . import (
    elementwise_rules,
    experimental,
    lookup_rules,
    parallel,
    placement_types,
    product_rules,
    reduction_rules,
    shape_rules,
)
from .dtensor import DTensor
from .making import distribute_module, distribute_tensor, empty, full, ones, rand, randn, zeros
from .placement_types import Partial, Placement, Replicate, Shard
