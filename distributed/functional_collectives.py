"""What PyTorch keeps in torch.distributed._functional_collectives: collectives that make new tensors."""

from __future__ import annotations

from typing import Any

from ..runtime import Tensor
from . import functional
from .groups import get_global_rank


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, combined as "sum", "avg", "min", "max" or "product" says."""
    return functional.all_reduce(self, reduceOp, group)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, one behind the other along a dim."""
    return functional.all_gather(self, gather_dim, group)


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """This rank's part of what all combine, cut along a dim."""
    return functional.reduce_scatter(self, scatter_dim, reduceOp, group)


def all_to_all_single(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """The parts that all ranks have for this one; of one size unless sizes are said."""
    return functional.all_to_all_by_sizes(self, output_split_sizes, input_split_sizes, group)


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of the `src`-th rank of a group."""
    return functional.broadcast(self, get_global_rank(group, src), group)


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: it is there already."""
    return tensor


all_gather_tensor_autograd, reduce_scatter_tensor_autograd = all_gather_tensor, reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single
