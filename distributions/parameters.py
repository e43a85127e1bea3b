"""What families share in taking parameters: broadcasting, probabilities or logits, lazy attributes."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import ml_dtypes

from ..ir.dtypes import DType, default_dtype, int64
from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, enable_grad, ops, tensor

euler_constant = 0.57721566490153286060  # Euler and Mascheroni's


def eps_of(dtype: DType) -> float:
    """The distance from 1 to the next number."""
    return float(ml_dtypes.finfo(dtype.numpy).eps)


def tiny_of(dtype: DType) -> float:
    """The smallest normal number."""
    return float(ml_dtypes.finfo(dtype.numpy).smallest_normal)


def largest_of(dtype: DType) -> float:
    """The largest finite number."""
    return float(ml_dtypes.finfo(dtype.numpy).max)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """The values as tensors of one shape; numbers take the dtype of the first tensor, or the default one.

    Raises ArgumentValueError for what is neither a number nor a tensor, ShapeError.
    """
    first = None
    for value in values:
        if isinstance(value, Tensor):
            first = value if first is None else first
        elif not isinstance(value, Number) or isinstance(value, complex):
            raise ArgumentValueError(
                f"a distribution's parameters must be numbers or tensors, not {type(value).__name__}"
            )
    dtype = default_dtype() if first is None else first.dtype
    place = None if first is None else first.device
    made = [v if isinstance(v, Tensor) else tensor(v, dtype=dtype, device=place) for v in values]
    shape = made[0].shape
    return tuple(made) if all(x.shape == shape for x in made) else ops.broadcast_tensors(*made)


class lazy_property:
    """An attribute that is computed, with gradients on, when it is asked for first, and kept."""

    def __init__(self, wrapped: Callable):
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1 by the dtype's eps."""
    eps = eps_of(probs.dtype)
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities; of their odds, where they are those of one of two outcomes."""
    kept = clamp_probs(probs)
    return kept.log() - ops.log1p(-kept) if is_binary else kept.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The inverse of `probs_to_logits`; of several outcomes, for any logits, normalised."""
    return ops.sigmoid(logits) if is_binary else ops.softmax(logits, dim=-1)


def one_of(**choices: Any) -> str:
    """The name of the one that is given.  Raises ArgumentValueError for none, or several."""
    given = [name for name, value in choices.items() if value is not None]
    if len(given) != 1:
        names = " or ".join(f"`{name}`" for name in choices)
        raise ArgumentValueError(f"Exactly one of {names} must be given, not {len(given)} of them")
    return given[0]


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """The sum over the last `dims` dimensions."""
    return value.sum(tuple(range(-dims, 0))) if dims else value


def all_rightmost(value: Tensor, dims: int) -> Tensor:
    """Whether all hold along the last `dims` dimensions."""
    return value.reshape(value.shape[: value.ndim - dims] + (-1,)).all(-1) if dims else value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements of lower triangles, by rows.  Shapes: [..., n, n] -> [..., m].  diag: as in tril."""
    n = mat.shape[-1]
    _check_diag(diag, n)
    places = [i * n + j for i in range(n) for j in range(n) if j <= i + diag]
    return mat.reshape(mat.shape[:-2] + (n * n,))[..., tensor(places, dtype=int64)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangles of their elements by rows, zeros above.  Shapes: [..., m] -> [..., n, n]."""
    m = vec.shape[-1]
    n = round((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * m + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    if sum(1 for i in range(n) for j in range(n) if j <= i + diag) != m:
        raise ArgumentValueError(f"vec_to_tril_matrix: {m} elements make no triangle of diagonal {diag}")
    _check_diag(diag, n)
    order = {}
    for i in range(n):
        for j in range(n):
            if j <= i + diag:
                order[i, j] = len(order)
    padded = ops.cat([vec, ops.zeros_like(vec[..., :1])], dim=-1)
    places = [order.get((i, j), m) for i in range(n) for j in range(n)]
    return padded[..., tensor(places, dtype=int64)].reshape(vec.shape[:-1] + (n, n))


def _check_diag(diag: int, n: int) -> None:
    if diag < -n or diag >= n:
        raise ArgumentValueError(f"diag must lie in {-n} … {n - 1}, not {diag}")
