"""Transforms of vectors and matrices: onto simplices, triangles, positive definite matrices, correlations."""

from __future__ import annotations

import math

from ..ir.errors import ArgumentValueError
from ..runtime import Size, ops
from . import constraints
from .parameters import eps_of, tiny_of, tril_matrix_to_vec, vec_to_tril_matrix
from .transform import PlainTransform


def _needs(shape, dims: int, name: str):
    if len(shape) < dims:
        raise ArgumentValueError(f"{name}: at least {dims} dimensions are needed, not {len(shape)}")
    return shape


class SoftmaxTransform(PlainTransform):
    """y = softmax(x) along the last dimension, whose inverse is taken to be log(y)."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):
        return ops.softmax(x, dim=-1)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        return _needs(shape, 1, "SoftmaxTransform")

    inverse_shape = forward_shape


class StickBreakingTransform(PlainTransform):
    """n numbers to n + 1 parts of a stick: each breaks its share of the rest; 0 breaks it evenly."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def _offset(self, x):
        """The logarithm of the number of parts that each share is compared with."""
        return (x.shape[-1] + 1 - ops.ones_like(x).cumsum(-1)).log()

    def _call(self, x):
        z = ops.sigmoid(x - self._offset(x)).clamp(min=tiny_of(x.dtype))
        rest = (1 - z).cumprod(-1)
        return ops.pad(z, [0, 1], value=1.0) * ops.pad(rest, [1, 0], value=1.0)

    def _inverse(self, y):
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=tiny_of(y.dtype))
        return parts.log() - rest.log() + self._offset(parts)

    def log_abs_det_jacobian(self, x, y):
        moved = x - self._offset(x)
        return (-moved + ops.logsigmoid(moved) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        shape = _needs(shape, 1, "StickBreakingTransform")
        return Size(tuple(shape[:-1]) + (shape[-1] + 1,))

    def inverse_shape(self, shape):
        shape = _needs(shape, 1, "StickBreakingTransform")
        return Size(tuple(shape[:-1]) + (shape[-1] - 1,))


class LowerCholeskyTransform(PlainTransform):
    """Any matrices to lower triangles with a diagonal above zero: its exponential."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + ops.diag_embed(x.diagonal(dim1=-2, dim2=-1).exp())

    def _inverse(self, y):
        return y.tril(-1) + ops.diag_embed(y.diagonal(dim1=-2, dim2=-1).log())


class PositiveDefiniteTransform(PlainTransform):
    """Any matrices to positive definite ones: L @ L.mT of `LowerCholeskyTransform`."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(ops.linalg_cholesky(y))


class CorrCholeskyTransform(PlainTransform):
    """n (n - 1) / 2 numbers to Cholesky factors of correlations: rows of length 1, a positive diagonal.

    tanh makes partial correlations of them, which break each row's length as a stick.
    Source: D. Lewandowski, D. Kurowicka, H. Joe, "Generating random correlation matrices based on vines and
    extended onion method", 2009.
    """

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x):
        eps = eps_of(x.dtype)
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        rest = (1 - partial * partial).sqrt().cumprod(-1)
        whole = partial + ops.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return whole * ops.pad(rest[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y):
        rest = ops.pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1.0)
        partial = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(rest, diag=-1).sqrt()
        return (ops.log1p(partial) - ops.log1p(-partial)) / 2

    def log_abs_det_jacobian(self, x, y):
        rest = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        of_tanh = -2 * (x + ops.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return 0.5 * rest.log().sum(-1) + of_tanh

    def forward_shape(self, shape):
        shape = _needs(shape, 1, "CorrCholeskyTransform")
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ArgumentValueError(f"CorrCholeskyTransform: {shape[-1]} elements make no triangle")
        return Size(tuple(shape[:-1]) + (n, n))

    def inverse_shape(self, shape):
        shape = _needs(shape, 2, "CorrCholeskyTransform")
        if shape[-1] != shape[-2]:
            raise ArgumentValueError(f"CorrCholeskyTransform: matrices must be square, not {list(shape)}")
        return Size(tuple(shape[:-2]) + (shape[-1] * (shape[-1] - 1) // 2,))
