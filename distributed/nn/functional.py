"""Collectives with gradients, in the signatures of those without: what PyTorch has under this name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.ops.join import stack
from ...runtime import Tensor
from .. import functional as with_gradients
from ..functional import all_reduce, all_to_all_by_sizes, broadcast, reduce
from ..groups import get_group_rank, get_rank, get_world_size
from ..reduce_op import ReduceOp


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks.  Shapes: [...] -> as many [...]."""
    whole = with_gradients.all_gather(tensor.unsqueeze(0), 0, group)
    return tuple([whole[i] for i in range(whole.shape[0])])


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks on rank `dst`; zeros on others."""
    parts = all_gather(tensor, group)
    return parts if get_rank() == dst else tuple([part * 0 for part in parts])


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """The tensor for this rank in the list of rank `src`; other ranks' lists are of the same shapes."""
    whole = with_gradients.broadcast(stack(list(tensors), 0), src, group)
    return whole[get_rank(group)]


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The combined tensor for this rank of all ranks' lists; `output` says its shape."""
    return with_gradients.reduce_scatter(stack(list(input_list), 0), 0, op, group)[0]


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """The tensors that all ranks have for this one, all of one shape."""
    whole = with_gradients.all_to_all(stack(list(input_tensor_list), 0), 0, 0, group)
    return tuple([whole[i] for i in range(whole.shape[0])])


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
    group: Any = None,
) -> Tensor:  # fmt: skip
    """The parts that all ranks have for this one, one behind the other; of one size unless sizes are said."""
    return all_to_all_by_sizes(input, output_split_sizes, input_split_sizes, group)


__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "get_group_rank",
    "get_world_size", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip
