"""Matrices taken apart by LAPACK: eigenvalues of symmetric ones, QR, singular values.

LAPACK fixes the vectors up to their signs only: what is computed from them, and differentiated, must not
depend on those.  Where two eigenvalues or singular values are equal, the gradient of the vectors is infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentValueError, GradError, ShapeError
from ..op import Traits, define
from ..sample import sample
from ..types import Type
from .cast import type_as
from .complex import imag, is_complex_valued
from .create import ones_like
from .join import cat
from .linalg import LAPACK, SQUARE, check_square, factored, solve_matrix
from .norm import sum_of
from .powers import reciprocal
from .rearrange import diag_embed, tril
from .view import adjoint, narrow
from .windows import diagonal

_APART = SQUARE | {"broadcast": "rows or columns that are equal have no vectors of their own"}


def check_matrix(op: str, input: Type) -> None:
    """Raise ShapeError, DTypeError unless it is a floating matrix, or a batch of them."""
    if input.ndim < 2:
        raise ShapeError(f"{op}: input must be [..., m, n], not {list(input.shape)}")
    if not input.dtype.inexact:
        raise input.dtype.refused(op, "cast with .float()")


def _gaps(values: Any, unit: Any) -> Any:
    """1 / (values[j] - values[i]) beside the diagonal, and 0 on it."""
    return (1.0 - unit) / (values[..., None, :] - values[..., :, None] + unit)


# ---- symmetric eigenvalues


def bind_eigh(A, UPLO="L"):
    """Find eigenvalues, in ascending order, and orthonormal eigenvectors of symmetric (Hermitian) matrices.

    A = V @ diag(L) @ V.mH.  Only the lower ("L") or upper ("U") triangle of A is read; the gradient is that
    of a symmetric A, in both triangles.
    Shapes: [..., n, n] -> eigenvalues [..., n], eigenvectors [..., n, n].  Raises ShapeError, DTypeError.
    """
    if UPLO not in ("L", "U", "l", "u"):
        raise ArgumentValueError(f"linalg_eigh(A, UPLO): UPLO is 'L' or 'U', not {UPLO!r}")
    return (A,), {"UPLO": UPLO.upper()}


def infer_eigh(A: Type, *, UPLO: str) -> tuple[Type, Type]:
    check_square("linalg_eigh(A)", A, "A")
    return A.with_shape(A.shape[:-1]).with_dtype(A.dtype.to_real()), A


def vjp_eigh(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """V (diag(gL) + (V^T gV) / (L_j - L_i)) V^T, made symmetric.  Source: Giles 2008, section 3.1."""
    (values, vectors), (to_values, to_vectors) = saved, cotangents
    inner = None if to_values is None else diag_embed(to_values)
    if to_vectors is not None:
        unit = diag_embed(ones_like(values))
        inner = sum_of(inner, (adjoint(vectors) @ to_vectors) * _gaps(values, unit))
    if inner is None:
        return (None,)
    g = vectors @ type_as(inner, vectors) @ adjoint(vectors)
    return ((g + adjoint(g)) * 0.5,)


linalg_eigh = define(
    "linalg_eigh",
    complex="stated",
    bind=bind_eigh,
    reference=lambda A, *, UPLO: tuple(factored("linalg_eigh", np.linalg.eigh, A, UPLO)),
    infer=infer_eigh,
    outputs=("eigenvalues", "eigenvectors"),
    vjp=vjp_eigh,
    saves=("eigenvalues", "eigenvectors"),
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [  # whose elements can't be moved one by one: see the gradient
        sample((0, 0), differentiable=False),
        sample((1, 1)),
        sample((2, 2), differentiable=False),
        sample((2, 3, 3), UPLO="U", differentiable=False),
    ],
    inapplicable=_APART,
    dtypes="float",
    method=False,
)


# ---- QR


def bind_qr(A, mode="reduced"):
    """Factor matrices into Q @ R: orthonormal columns, and an upper triangle.

    mode: "reduced" (k = min(m, n) columns), "complete" (m columns), "r" (Q comes back empty).
    Shapes: [..., m, n] -> Q [..., m, k], R [..., k, n].  Differentiable where Q has no more columns than A.
    Raises ShapeError, DTypeError, ArgumentValueError.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentValueError(f"linalg_qr(A, mode): mode is 'reduced', 'complete' or 'r', not {mode!r}")
    return (A,), {"mode": mode}


def infer_qr(A: Type, *, mode: str) -> tuple[Type, Type]:
    check_matrix("linalg_qr(A, mode)", A)
    *batch, m, n = A.shape
    k = m if mode == "complete" else min(m, n)
    q = A.with_shape((0,)) if mode == "r" else A.with_shape((*batch, m, k))
    return q, A.with_shape((*batch, k, n))


def reference_qr(A, *, mode):
    if mode == "r":
        return np.empty(0, A.dtype), np.linalg.qr(A, "r")
    return tuple(np.linalg.qr(A, mode))


def vjp_qr(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """Source: Walter, Lehmann, Algorithmic differentiation of linear algebra functions, 2018, section 3."""
    (q, r), (to_q, to_r) = saved, cotangents
    m, n = q.shape[-2] if q.ndim > 1 else 0, r.shape[-1]
    if attrs["mode"] == "r" or (attrs["mode"] == "complete" and m > n):
        raise GradError(f"linalg_qr(A, mode={attrs['mode']!r}) has no gradient here", "use mode='reduced'")
    if n <= m:
        return (_through_qr(q, r, to_q, to_r),)
    # A wide matrix is [X | Y] with X = Q U and R = [U | Q^T Y].
    left, beside = narrow(r, -1, 0, m), q @ narrow(r, -1, m, n - m)
    to_left = None if to_r is None else narrow(to_r, -1, 0, m)
    right = None if to_r is None else narrow(to_r, -1, m, n - m)
    if right is None:
        to_x = _through_qr(q, left, to_q, to_left)
        return (_beside(to_x, beside * 0.0),)
    return (_beside(_through_qr(q, left, sum_of(to_q, beside @ adjoint(right)), to_left), q @ right),)


def _through_qr(q: Any, r: Any, to_q: Any, to_r: Any) -> Any:
    if to_q is None and to_r is None:
        return None
    inner = None if to_r is None else r @ adjoint(to_r)
    if to_q is not None:
        inner = sum_of(inner, -(adjoint(to_q) @ q))
    if is_complex_valued(inner):  # the diagonal of R stays real
        inner = inner - diag_embed(imag(diagonal(inner, 0, -2, -1)) * 1j)
    mirrored = q @ (tril(inner) + adjoint(tril(inner, -1)))
    return adjoint(solve_matrix(r, adjoint(sum_of(to_q, mirrored))))


def _beside(left: Any, right: Any) -> Any:
    return None if left is None else cat((left, right), -1)


linalg_qr = define(
    "linalg_qr",
    complex="stated",
    bind=bind_qr,
    reference=reference_qr,
    infer=infer_qr,
    outputs=("Q", "R"),
    vjp=vjp_qr,
    saves=("Q", "R"),
    lower=LAPACK,
    samples=lambda: [
        sample((0, 0)),
        sample((1, 1)),
        sample((3, 2)),
        sample((2, 3)),
        sample((2, 3, 3), mode="complete"),
        sample((3, 2), mode="r", differentiable=False),
    ],
    inapplicable=_APART,
    dtypes="float",
    method=False,
)


# ---- singular values


def bind_svd(A, full_matrices=True, *, driver=None):
    """Factor matrices into U @ diag(S) @ Vh: orthonormal columns, singular values in descending order, rows.

    full_matrices: whether U and Vh are square.  Shapes: [..., m, n] -> U [..., m, k], S [..., k], Vh [..., k,
    n] with k = min(m, n), or U [..., m, m], Vh [..., n, n].  What U and Vh have beyond k columns and
    rows is any basis of the rest, and a gradient of it is not passed on.  Raises ShapeError, DTypeError.
    """
    return (A,), {"full_matrices": bool(full_matrices)}


def infer_svd(A: Type, *, full_matrices: bool) -> tuple[Type, Type, Type]:
    check_matrix("linalg_svd(A)", A)
    *batch, m, n = A.shape
    k = min(m, n)
    left, right = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    values = A.with_shape((*batch, k)).with_dtype(A.dtype.to_real())
    return A.with_shape((*batch, *left)), values, A.with_shape((*batch, *right))


def vjp_svd(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """Source: Townsend, Differentiating the singular value decomposition, 2016."""
    (u, s, vh), (to_u, to_s, to_vh) = saved, cotangents
    m, k, n = u.shape[-2], s.shape[-1], vh.shape[-1]
    if attrs["full_matrices"] and m != n:
        # The columns and rows beyond k are any basis of what is left: a cotangent of theirs says nothing.
        u, vh = narrow(u, -1, 0, k), narrow(vh, -2, 0, k)
        to_u = None if to_u is None else narrow(to_u, -1, 0, k)
        to_vh = None if to_vh is None else narrow(to_vh, -2, 0, k)
        if not k:  # A has no elements
            return (u @ vh,)
    inner = None if to_s is None else diag_embed(to_s)
    outer = None
    unit, square = diag_embed(ones_like(s)), s * s
    if to_u is not None:
        turned = adjoint(u) @ to_u
        inner = sum_of(inner, (turned - adjoint(turned)) * _gaps(square, unit) * s[..., None, :])
        if is_complex_valued(turned):  # what turns a column of U turns the row of Vh along with it
            inner = inner + diag_embed(imag(diagonal(turned, 0, -2, -1)) * 1j * reciprocal(s))
        if m > k:
            outer = ((to_u - u @ turned) * reciprocal(s)[..., None, :]) @ vh
    if to_vh is not None:
        turned = vh @ adjoint(to_vh)
        inner = sum_of(inner, s[..., :, None] * ((turned - adjoint(turned)) * _gaps(square, unit)))
        if n > k:
            beyond = u @ (reciprocal(s)[..., :, None] * (to_vh - adjoint(turned) @ vh))
            outer = sum_of(outer, beyond)
    return (None if inner is None else sum_of(u @ type_as(inner, u) @ vh, outer),)


linalg_svd = define(
    "linalg_svd",
    complex="stated",
    bind=bind_svd,
    reference=lambda A, *, full_matrices: tuple(factored("linalg_svd", np.linalg.svd, A, full_matrices)),
    infer=infer_svd,
    outputs=("U", "S", "Vh"),
    vjp=vjp_svd,
    saves=("U", "S", "Vh"),
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [
        sample((0, 0)),
        sample((1, 1)),
        sample((2, 2)),
        sample((3, 2), full_matrices=False),
        sample((2, 3), full_matrices=False),
        sample((2, 2, 2), full_matrices=False),
        sample((3, 2), differentiable=False),
    ],
    inapplicable=_APART,
    dtypes="float",
    method=False,
)
