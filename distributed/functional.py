"""Collectives that make new tensors and have gradients; in recorded functions they are ops of the program.

    y = all_reduce(x)            a tensor is summed over all ranks
    y = all_gather(x, dim=0)     ... and the way back is a reduce_scatter

Every rank of the group goes forward and backward through each, in one order.  A gradient is that of the sum
of what all ranks compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError
from ..ir.ops import collectives as ops
from ..runtime import Tensor, no_grad
from ..runtime import ops as on_tensors
from .groups import resolved
from .reduce_op import ReduceOp


def _ranks(name: str, group: Any) -> tuple[int, ...]:
    found = resolved(group)
    if found is None:
        raise ArgumentValueError(f"{name}(group): this process is not in it")
    return found.ranks


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensors of all ranks, combined element by element.  Shapes: [...] -> [...]."""
    return ops.all_reduce(tensor, ReduceOp.of(op, "all_reduce").value, _ranks("all_reduce", group))


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The same on rank `dst`, zeros on others.  Shapes: [...] -> [...]."""
    return ops.reduce(tensor, dst, ReduceOp.of(op, "reduce").value, _ranks("reduce", group))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank `src`.  Shapes: [...] -> [...]."""
    return ops.broadcast(tensor, src, _ranks("broadcast", group))


def all_gather(tensor: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """The tensors of all ranks, one behind the other.  Shapes: [..., n, ...] -> [..., ranks * n, ...]."""
    return ops.all_gather(tensor, dim, _ranks("all_gather", group))


def reduce_scatter(tensor: Tensor, dim: int = 0, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This rank's part of what all combine, cut along `dim`.  Shapes: [..., r * n, ...] -> [..., n, ...]."""
    reduction = ReduceOp.of(op, "reduce_scatter").value
    return ops.reduce_scatter(tensor, dim, reduction, _ranks("reduce_scatter", group))


def all_to_all(tensor: Tensor, split_dim: int = 0, cat_dim: int = 0, group: Any = None) -> Tensor:
    """The parts that all ranks have for this one, cut along `split_dim` and joined along `cat_dim`."""
    return ops.all_to_all(tensor, split_dim, cat_dim, _ranks("all_to_all", group))


def all_to_all_parts(
    tensor: Tensor, sent: Sequence[int], received: Sequence[int], dim: int = 0, group: Any = None
) -> Tensor:
    """The parts that all ranks have for this one, of sizes `received`; `sent` are those for them."""
    return ops.all_to_all_parts(tensor, sent, received, dim, _ranks("all_to_all_parts", group))


def all_to_all_by_sizes(tensor: Tensor, received: Any = None, sent: Any = None, group: Any = None) -> Tensor:
    """`all_to_all_parts` along the first dim; sizes that are not said are equal parts."""
    if received is None and sent is None:
        return all_to_all(tensor, 0, 0, group)
    ranks = _ranks("all_to_all", group)
    even = [tensor.shape[0] // len(ranks)] * len(ranks)
    return ops.all_to_all_parts(
        tensor, even if sent is None else sent, even if received is None else received, 0, ranks
    )


def permute_ranks(tensor: Tensor, pairs: Sequence[tuple[int, int]], group: Any = None) -> Tensor:
    """The tensor of rank a on rank b, for each (a, b) of `pairs`; zeros where none comes."""
    return ops.permute_ranks(tensor, tuple(pairs), _ranks("permute_ranks", group))


def join_collectives(group: Any = None) -> None:
    """Let a call of a traced function run fewer collectives than are written, if all ranks of the group do.

        @lamina.jit.trace
        def step(x, y):
            join_collectives()  # before the function's first collective; each rank calls it
            ...

    Small ones travel together, sums of sums are summed once, and what no rank reads is not sent.  Floats are
    added in another order, so they may round otherwise.  It is a small collective itself, in which ranks say
    what they are about to run, and pays where several are saved.  Where a rank records the call, or runs it
    eagerly, all run what is written; so they do where a collective of another group is among them.
    """
    ranks = _ranks("join_collectives", group)
    if len(ranks) > 1:
        with no_grad():
            ops.all_reduce(on_tensors.zeros(2, dtype=int64), "min", ranks)  # see jit/agreed.py


__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_parts", "broadcast", "join_collectives",
    "permute_ranks", "reduce", "reduce_scatter",
]  # fmt: skip
