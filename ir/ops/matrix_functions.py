"""The matrix exponential, products of Householder's reflections, and what is made of inverses and norms."""

from __future__ import annotations

from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from .. import lowering
from ..errors import ArgumentValueError, ShapeError
from ..lazy import load
from ..op import composite, define
from ..sample import sample
from ..types import Type
from .compare import eq, where
from .complex import conj, real
from .create import new_ones, new_zeros
from .decompose import check_matrix
from .equations import linalg_norm, linalg_svdvals
from .factors import LAPACK, MATRIX, identity_like, linalg_inv_ex
from .join import cat
from .linalg import check_square, linalg_inv, linalg_solve
from .matmul import matmul
from .scan import cumprod
from .view import adjoint, expand, movedim, reshape, unsqueeze

# ---- exponential


def infer_exp(input: Type) -> Type:
    check_square("linalg_matrix_exp(input)", input)
    return input


def reference_exp(input: np.ndarray) -> np.ndarray:
    return load("scipy.linalg", "scipy").expm(input) if input.size else input.copy()


def grad_exp(g: Any, input: Any) -> Any:
    """The upper right part of the exponential of [[A^T, g], [0, A^T]].

    Source: Higham, Functions of Matrices, 2008, eq. 3.16.
    """
    n, turned = input.shape[-1], input.mT
    block = cat((cat((turned, g), -1), cat((turned * 0.0, turned), -1)), -2)
    return linalg_matrix_exp(block)[..., :n, n:]


linalg_matrix_exp = define(
    "linalg_matrix_exp",
    reference=reference_exp,
    infer=infer_exp,
    grad=grad_exp,
    complex="analytic",
    lower=lowering.extern("SciPy is a library of the host"),
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3))],
    inapplicable=MATRIX,
    dtypes="float",
    method=False,
    doc="Compute each matrix's exponential: the sum of its powers A^k / k!.  Shapes: [..., n, n] -> same.",
)


@composite()
def matrix_exp(input):
    """Compute the exponential of each matrix: linalg_matrix_exp."""
    return linalg_matrix_exp(input)


# ---- Householder's reflections


class Geqrf(NamedTuple):
    """What `geqrf` returns."""

    a: Any
    tau: Any


def infer_geqrf(input: Type) -> tuple[Type, Type]:
    check_matrix("geqrf(input)", input)
    *batch, m, n = input.shape
    return input, input.with_shape((*batch, min(m, n)))


def reference_geqrf(input: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not input.size:
        return input.copy(), np.zeros((*input.shape[:-2], min(input.shape[-2:])), input.dtype)
    packed, tau = np.linalg.qr(input, mode="raw")
    return np.ascontiguousarray(packed.swapaxes(-1, -2)), tau


geqrf = define(
    "geqrf",
    complex="analytic",
    reference=reference_geqrf,
    infer=infer_geqrf,
    outputs=("a", "tau"),
    lower=LAPACK,
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((3, 2)), sample((2, 3, 3))],
    inapplicable=MATRIX,
    dtypes="float",
    doc="Factor matrices as LAPACK's geqrf does: R above the diagonal of `a`, below it the vectors of "
    "reflections, whose factors are `tau`.  No gradient: linalg_qr has one.  "
    "Shapes: [..., m, n] -> the same, [..., min(m, n)].",
)


def _vectors(input: Any, count: int) -> list[Any]:
    """The vectors of reflections, [..., m, 1]: zeros, 1 on the diagonal, what stands below."""
    found = []
    for i in range(count):
        column = input[..., i:, i : i + 1]
        parts = [column[..., :1, :] * 0.0 + 1.0, column[..., 1:, :]]
        if i:
            parts.insert(0, input[..., :i, i : i + 1] * 0.0)
        found.append(cat(tuple(parts), -2))
    return found


def _reflected(vectors: list, tau: Any, x: Any, backwards: bool) -> Any:
    """H_1 ... H_k @ x, or with backwards=False H_k ... H_1 @ x, where H_i = 1 - tau_i v_i v_i^H."""
    order = range(len(vectors))
    for i in reversed(order) if backwards else order:
        v = vectors[i]
        x = x - matmul(v, matmul(adjoint(v), x)) * tau[..., i, None, None]
    return x


def _need_reflections(op: str, input: Any, tau: Any) -> None:
    if input.ndim < 2 or tau.ndim != input.ndim - 1 or tau.shape[-1] > input.shape[-1]:
        raise ShapeError(
            f"{op}: takes [..., m, n] and tau [..., k], k <= n, not {list(input.shape)}, {list(tau.shape)}"
        )


@composite(method=False)
def linalg_householder_product(input, tau):
    """Give the first n columns of a product of reflections, 1 - tau[i] * v @ v.mH, v below the diagonal.

    Shapes: [..., m, n], [..., k] -> [..., m, n], k <= n <= m.
    """
    _need_reflections("linalg_householder_product", input, tau)
    if input.shape[-1] > input.shape[-2]:
        raise ShapeError(
            f"linalg_householder_product: takes [..., m, n] with n <= m, not {list(input.shape)}"
        )
    m, n = input.shape[-2:]
    eye = expand(_eye(input, m)[:, :n], input.shape)
    return _reflected(_vectors(input, tau.shape[-1]), tau, eye, True)


@composite(names={"input2": "tau"})
def orgqr(input, tau):
    """Give the first n columns of a product of reflections: linalg_householder_product."""
    return linalg_householder_product(input, tau)


@composite(names={"input2": "tau", "input3": "other"})
def ormqr(input, tau, other, left=True, transpose=False):
    """Multiply `other` by the product Q of geqrf's reflections: Q @ other, or other @ Q if not `left`.

    transpose: by Q.mH.  Shapes: [..., m, n], [..., k], [..., m, l] (left) or [..., l, m] -> that of other.
    """
    _need_reflections("ormqr", input, tau)
    vectors = _vectors(input, tau.shape[-1])
    if left:
        return _reflected(vectors, conj(tau) if transpose else tau, other, not transpose)
    return adjoint(_reflected(vectors, tau if transpose else conj(tau), adjoint(other), transpose))


def _eye(like: Any, n: int) -> Any:
    return identity_like(new_ones(like, (n, n)))


# ---- conditions, tensors as matrices


@composite(method=False)
def linalg_cond(A, p=None):
    """Compute the condition number: the norm of A times that of its inverse, inf where it has none.

    p: the norm as linalg_matrix_norm takes it; None (the same as 2) and -2 are by singular values, and take
    matrices that are not square.  Shapes: [..., m, n] -> [...], 0 where there are no elements.
    """
    singular = p in (None, 2, -2)
    if A.ndim > 1 and not prod(A.shape[-2:]) and (singular or A.shape[-1] == A.shape[-2]):
        return new_zeros(real(A), A.shape[:-2])
    if singular:
        values = linalg_svdvals(A)
        ratio = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
        return where(eq(ratio, ratio), ratio, inf if p != -2 else ratio)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"linalg_cond(p={p!r}): A must be [..., n, n], not {list(A.shape)}")
    inverse, info = linalg_inv_ex(A)
    inverse = where(eq(info, 0)[..., None, None], inverse, 0.0)  # of NaNs there are no singular values
    return where(eq(info, 0), linalg_norm(A, p, (-2, -1)) * linalg_norm(inverse, p, (-2, -1)), inf)


@composite(method=False)
def linalg_tensorinv(A, ind=2):
    """Invert a tensor as the linear map from its last dimensions to its first `ind`.  Raises ShapeError."""
    if not isinstance(ind, int) or ind < 1:
        raise ArgumentValueError(f"linalg_tensorinv: ind must be a positive int, not {ind!r}")
    first, last = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if prod(first) != prod(last):
        raise ShapeError(f"linalg_tensorinv: {list(first)} and {list(last)} must hold as many elements")
    return reshape(linalg_inv(reshape(A, (prod(first), prod(last)))), (*last, *first))


@composite(method=False, names={"input": "A", "other": "B"})
def linalg_tensorsolve(A, B, dims=None):
    """Solve tensordot(A, X, X.ndim) = B for X.  dims: moved to A's end first.  Raises ShapeError."""
    if dims is not None:
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        A = movedim(A, dims, tuple(range(-len(dims), 0)))
    wanted = tuple(A.shape[B.ndim :])
    if prod(A.shape[: B.ndim]) != prod(wanted) or prod(B.shape) != prod(wanted):
        raise ShapeError(f"linalg_tensorsolve: A {list(A.shape)} is no square map to B {list(B.shape)}")
    n = prod(wanted)
    return reshape(linalg_solve(reshape(A, (n, n)), reshape(B, (n, 1))), wanted)


@composite(method=False)
def linalg_vander(x, *, N=None):
    """Give the powers 0 to N - 1 of each element (N: without, as many as elements) along a new dimension."""
    if not x.ndim and N is None:
        raise ShapeError("linalg_vander: of a 0-d tensor N must be given")
    n = x.shape[-1] if N is None else N
    if not isinstance(n, int) or (n < 2 and N is not None):
        raise ArgumentValueError(f"linalg_vander: N must be an int of at least 2, not {N!r}")
    x = x if x.ndim else reshape(x, (1,))
    base = unsqueeze(x, -1)
    powers = cat((new_ones(x, base.shape), expand(base, (*x.shape, max(n - 1, 0)))), -1)
    return cumprod(powers, -1)
