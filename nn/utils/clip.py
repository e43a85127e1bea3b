"""Keep gradients from growing without bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.dtypes import float32
from ...ir.errors import GradError
from ...ir.warned import warn
from ...runtime import Tensor, no_grad, ops
from ...runtime.compound import Compound


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    kept = [p if p._gathered is None else p._gathered for p in found]
    return [p.grad for p in kept if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors taken as one vector.

    Raises GradError for one that is not finite, if asked to.
    """
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not found:
        return ops.zeros(())
    total = _norm_by_parts(found, float(norm_type)) if any([x._compound for x in found]) else None
    if total is None:
        norms = [ops.linalg_vector_norm(x, float(norm_type)) for x in found]
        norms = [_beside(x, norms[0]) for x in norms]
        total = ops.linalg_vector_norm(ops.stack(norms), float(norm_type))
    if error_if_nonfinite and not bool(ops.isfinite(total)):
        raise GradError(
            f"The total norm of order {norm_type} for gradients is {total.item()}, so it can't be clipped",
            "pass error_if_nonfinite=False to scale by it all the same",
        )
    return total


def _norm_by_parts(tensors: list[Tensor], p: float) -> Tensor | None:
    """The norm of tensors of which some are distributed, as an ordinary tensor; None if none is."""
    if not any([isinstance(x, Compound) and x.by_parts for x in tensors]):
        return None
    alike: dict[Any, list[Tensor]] = {}
    for x in tensors:
        key = (x.device_mesh, x.placements, x.dtype) if x._compound else x.dtype
        alike.setdefault(key, []).append(x)
    norms = []
    for group in alike.values():
        if p == 2:  # sums that stay partial: one message for all that lie alike
            wide = [x.to(float32) if x.dtype.itemsize < 4 else x for x in group]
            found = ops.stack([x.square().sum() for x in wide]).sum()
            norms.append(_whole(found).sqrt())
        else:
            norms += [_whole(ops.linalg_vector_norm(x, p)) for x in group]
    return ops.linalg_vector_norm(ops.stack(norms), p)


def _beside(x: Tensor, other: Tensor) -> Tensor:
    """A tensor on the device of another, of which networks may have several."""
    return x.to(other.device) if (x.is_cuda or other.is_cuda) and x.device != other.device else x


def _whole(x: Tensor) -> Tensor:
    return x.full_tensor() if x._compound else x


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients, in place, by max_norm / total_norm where that is less than 1."""
    with no_grad():
        scale = (float(max_norm) / (_whole(total_norm) + 1e-6)).clamp(max=1.0)
        for grad in _gradients(parameters):
            grad.mul_(_beside(scale, grad))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients, in place, so that their norm taken as one vector is at most `max_norm`.

    Returns the norm before.  Source: Pascanu et al. 2013, algorithm 1.
    """
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    with no_grad():
        total = get_total_norm(_gradients(found), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(found, max_norm, total)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """clip_grad_norm_ under an older name."""
    warn("clip_grad_norm is deprecated: use clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Move every element of the gradients, in place, into [-clip_value, clip_value]."""
    with no_grad():
        for grad in _gradients(parameters):
            grad.clamp_(min=-float(clip_value), max=float(clip_value))
