"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.errors import ArgumentError, ShapeError
from ...runtime import Tensor, no_grad, ops


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other, as one differentiable vector."""
    return ops.cat([p.reshape(-1) for p in _together(parameters, "parameters_to_vector")])


def _together(parameters: Iterable[Tensor], name: str) -> list[Tensor]:
    """Parameters that are all in one place.  Raises ArgumentError, a TypeError as PyTorch's, for others."""
    found = list(parameters)
    if len(places := dict.fromkeys(str(p.device) for p in found)) > 1:
        raise ArgumentError(
            f"{name}: Found two parameters on different devices, this is currently not supported.",
            f"they are on {', '.join(places)}",
            "take those of each device by themselves",
        )
    return found


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy slices of a vector into the parameters.

    Raises ShapeError unless it has as many elements as they.
    """
    if not isinstance(vec, Tensor):
        raise ArgumentError(f"vector_to_parameters(vec): a tensor is wanted, not {type(vec).__name__}")
    found = _together(parameters, "vector_to_parameters")
    total = sum(p.numel() for p in found)
    if vec.numel() != total:
        raise ShapeError(f"vector_to_parameters: the vector must have {total} elements, not {vec.numel()}")
    at = 0
    with no_grad():
        for p in found:
            p.copy_(vec[at : at + p.numel()].reshape(p.shape))
            at += p.numel()
