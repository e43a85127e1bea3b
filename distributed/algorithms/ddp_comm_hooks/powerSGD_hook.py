"""Gradients as products of two narrow matrices on their way, for links that are slow."""

from __future__ import annotations

from typing import Any

from ....ir.errors import ArgumentValueError
from ....runtime import Generator, Tensor, no_grad, ops
from ....runtime.random import randn
from ...buckets import GradBucket
from ...collectives import all_reduce
from ...groups import ProcessGroup
from ...work import Done, Future
from .default_hooks import allreduce_hook, group_of


class PowerSGDState:
    """What PowerSGD keeps from step to step.

    matrix_approximation_rank: the width of the two matrices.  start_powerSGD_iter: steps until it begins;
    before, gradients are averaged as they are.  min_compression_rate: a matrix goes as it is unless that
    makes it so many times smaller.  use_error_feedback: what an approximation left out is added at the next
    step.  warm_start: a step begins with the last one's matrix.  random_seed: of the first, the same on all
    ranks.

    errors: by bucket, what was left out.  columns: by bucket and parameter, the matrix of columns.
    """

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        random_seed: int = 0,
    ):
        if matrix_approximation_rank < 1:
            raise ArgumentValueError(f"PowerSGDState: a rank above 0, not {matrix_approximation_rank}")
        if start_powerSGD_iter < 2 and (use_error_feedback or warm_start):
            raise ArgumentValueError(
                "PowerSGDState(start_powerSGD_iter): above 1 with use_error_feedback or warm_start",
                "buckets are made anew after the first step",
            )
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.generator = Generator().manual_seed(random_seed)
        self.iter = 0
        self.errors: dict[int, Tensor] = {}
        self.columns: dict[tuple[int, int], Tensor] = {}

    def is_worth_it(self, rows: int, columns: int) -> bool:
        """Whether two matrices are smaller than one by as much as was asked for."""
        rank = min(rows, columns, self.matrix_approximation_rank)
        return (rows + columns) * rank * self.min_compression_rate < rows * columns


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Average gradients of matrices M as P Q', with P = mean of M Q, made orthogonal, and Q = mean of M' P.

    What is no matrix, and small ones, are averaged as they are.
    Source: Vogels, Karimireddy and Jaggi, PowerSGD, 2019, algorithms 1 and 2.
    """
    group = group_of(state.process_group)
    begins = state.iter >= state.start_powerSGD_iter
    state.iter += bucket.is_last()
    if not begins:
        return allreduce_hook(group, bucket)
    with no_grad():
        buffer, index = bucket.buffer(), bucket.index()
        if index in state.errors:
            buffer.add_(state.errors[index])
        given = buffer.clone() if state.use_error_feedback else None
        plain: list[Tensor] = []
        matrices: list[tuple[int, Tensor]] = []
        for i, grad in enumerate(bucket.gradients()):
            matrix = grad.reshape(grad.shape[0], -1) if grad.ndim > 1 else grad
            if grad.ndim > 1 and state.is_worth_it(*matrix.shape):
                matrices.append((i, matrix))
            else:
                plain.append(grad)
        _average(group, plain)
        _approximate(state, group, index, matrices)
        if given is not None:
            # What went as it was left nothing out: its distance from the mean is no error.
            state.errors[index] = ops.zeros_like(given)
            bucket.set_buffer(given.sub_(buffer))
            left = bucket.gradients()
            bucket.set_buffer(state.errors[index])
            for i, _ in matrices:
                bucket.gradients()[i].copy_(left[i])
            bucket.set_buffer(buffer)
        return Done([buffer]).get_future()


def _approximate(
    state: PowerSGDState, group: ProcessGroup, index: int, matrices: list[tuple[int, Tensor]]
) -> None:
    """Write products of rank `matrix_approximation_rank`, near the means over ranks, into the matrices."""
    columns = []
    for i, matrix in matrices:
        rank = min(*matrix.shape, state.matrix_approximation_rank)
        known = state.columns.get((index, i)) if state.warm_start else None
        if known is None:
            known = randn(matrix.shape[1], rank, generator=state.generator, dtype=matrix.dtype)
        columns.append(known)
    rows = [matrix @ q for (_, matrix), q in zip(matrices, columns, strict=True)]
    _average(group, rows)
    rows = [_orthogonal(p) for p in rows]
    columns = [matrix.T @ p for (_, matrix), p in zip(matrices, rows, strict=True)]
    _average(group, columns)
    for (i, matrix), p, q in zip(matrices, rows, columns, strict=True):
        matrix.copy_(p @ q.T)
        if state.warm_start:
            state.columns[index, i] = q


def _orthogonal(p: Tensor) -> Tensor:
    """A matrix of orthonormal columns that span those of `p`."""
    wide = p if p.dtype.itemsize >= 4 else p.float()
    return ops.linalg_qr(wide)[0].to(p.dtype)


def _average(group: ProcessGroup, tensors: list[Tensor]) -> None:
    """Write the means over all ranks into the tensors, which go together."""
    if not tensors:
        return
    flat = ops.cat([x.reshape(-1) for x in tensors]).div_(group.size())
    all_reduce(flat, group=group)
    for x, mean in zip(tensors, flat.split([x.numel() for x in tensors]), strict=True):
        x.copy_(mean.reshape(x.shape))
