"""Answer `torch.functional`: the functions of the root that PyTorch writes in Python, under that name too."""

from __future__ import annotations

from importlib import import_module

from ..nn import functional as F  # noqa: F401  # which scripts import from here, as they do Tensor
from ..runtime import Tensor  # noqa: F401

_NAMES = (
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu", "meshgrid", "norm", "split", "stft",
    "tensordot", "unique", "unique_consecutive", "unravel_index",
)  # fmt: skip

_root = import_module(__package__.rpartition(".")[0])
globals().update({name: getattr(_root, name) for name in _NAMES})
