"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.errors import ArgumentError, ShapeError
from ...runtime import Tensor, no_grad, ops


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other, as one differentiable vector."""
    return ops.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy slices of a vector into the parameters.

    Raises ShapeError unless it has as many elements as they.
    """
    if not isinstance(vec, Tensor):
        raise ArgumentError(f"vector_to_parameters(vec): a tensor is wanted, not {type(vec).__name__}")
    found = list(parameters)
    total = sum(p.numel() for p in found)
    if vec.numel() != total:
        raise ShapeError(f"vector_to_parameters: the vector must have {total} elements, not {vec.numel()}")
    at = 0
    with no_grad():
        for p in found:
            p.copy_(vec[at : at + p.numel()].reshape(p.shape))
            at += p.numel()
