"""Factors of low rank, found from products with random matrices, and a few eigenvalues.

Source: Halko, Martinsson, Tropp, Finding structure with randomness, 2009, algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.errors import ArgumentValueError, ShapeError
from ..runtime import Tensor, ops
from ..runtime.random import randn
from ..runtime.refusal import refusing_names

Factors = tuple[Tensor, Tensor, Tensor]


def _range(times: Callable, back: Callable, drawn: Tensor, niter: int) -> Tensor:
    """Orthonormal columns [..., m, q] that span nearly what a matrix spans.

    times, back: products with the matrix and with its adjoint.  niter: rounds of subspace iteration.
    """
    found = ops.linalg_qr(times(drawn))[0]
    for _ in range(niter):
        found = ops.linalg_qr(back(found))[0]
        found = ops.linalg_qr(times(found))[0]
    return found


def _factored(A: Tensor, q: int, niter: int, means: Tensor | None = None) -> Factors:
    """Factors of A, less `means` [..., 1, n] in each of its rows: a sparse A stays one."""

    def times(x: Tensor) -> Tensor:
        return A @ x if means is None else A @ x - means @ x

    def back(x: Tensor) -> Tensor:
        return A.mH @ x if means is None else A.mH @ x - means.mH @ x.sum(-2, keepdim=True)

    wide = A.shape[-2] < A.shape[-1]
    if wide:
        times, back = back, times
    columns = _range(times, back, randn(A.shape[-2 if wide else -1], q, dtype=A.dtype), niter)
    u, s, vh = ops.linalg_svd(back(columns).mH, False)
    u, v = columns @ u, vh.mH
    return (v, s, u) if wide else (u, s, v)


def _checked(call: str, A: Tensor, q: int, niter: int) -> None:
    if A.ndim < 2:
        raise ShapeError(f"{call}: A must be [..., m, n], not {list(A.shape)}")
    if q < 0 or niter < 0:
        raise ArgumentValueError(f"{call}: q and niter must not be negative, as {q} or {niter} is")


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Factors:
    """Find U, S and V with A, or A - M, nearly U @ diag(S) @ V.mH, for a matrix of about rank `q` or less.

    niter: rounds that bring it nearer.  Shapes: [..., m, n] -> [..., m, q], [..., q], [..., n, q], where q is
    at most m and n.
    Raises ShapeError, ArgumentValueError.
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    _checked("svd_lowrank", A, q, niter)
    return _factored(A if M is None else A - M, q, niter)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Factors:
    """Find the principal components of rows: svd_lowrank of A less, with `center`, the mean of its rows.

    q: how many, by default 6 or as many as there are.  Shapes: [..., m, n] -> [..., m, q], [..., q],
    [..., n, q].  Raises ShapeError, ArgumentValueError.
    """
    q = min(6, *A.shape[-2:]) if q is None else q
    _checked("pca_lowrank", A, q, niter)
    if q > min(A.shape[-2:]):
        raise ArgumentValueError(f"pca_lowrank: there are {min(A.shape[-2:])} components, not {q}")
    if not center:
        return _factored(A, q, niter)
    if not A.is_sparse:
        return _factored(A - A.mean(-2, keepdim=True), q, niter)
    means = (A.sum(-2).to_dense() / A.shape[-2])[..., None, :]
    return _factored(A, q, niter, means)


def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
    iK: Tensor | None = None, niter: int | None = None, tol: float | None = None,
    largest: bool | None = None, method: str | None = None, tracker: Callable | None = None,
    ortho_iparams: dict | None = None, ortho_fparams: dict | None = None, ortho_bparams: dict | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Find the `k` largest (or not `largest`: smallest) eigenvalues of a symmetric A, and their vectors.

    B: positive-definite, then of A x = l B x, and vectors v with v.mT @ B @ v = 1.  Without `k` as many as X
    has columns, or n, or 1.  All eigenvalues are found, with a dense A, and those asked for are handed out:
    where to begin, how, how often and how near (X, iK, method, niter, tol, ortho_…) changes nothing, and
    there are no rounds for a `tracker`.
    Shapes: [..., m, m] -> [..., k], [..., m, k], the first asked for in front.
    Raises ShapeError, ArgumentValueError, LinAlgError where B is not positive-definite.
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"lobpcg: A must be square, and is {list(A.shape)}")
    if tracker is not None:
        raise ArgumentValueError("lobpcg(tracker): there are no rounds to follow", "leave it out")
    count = next((c for c in (k, None if X is None else X.shape[-1], n) if c is not None), 1)
    if not 0 < count <= A.shape[-1]:
        raise ArgumentValueError(f"lobpcg(k): A has {A.shape[-1]} eigenvalues, of which {count} are no part")
    A, B = [x.to_dense() if x is not None and x.is_sparse else x for x in (A, B)]
    if B is None:
        values, vectors = ops.linalg_eigh(A)
    else:
        low = ops.linalg_cholesky(B)
        half = ops.linalg_solve_triangular(low, A, upper=False)
        values, vectors = ops.linalg_eigh(ops.linalg_solve_triangular(low, half.mH, upper=False))
        vectors = ops.linalg_solve_triangular(low.mH, vectors, upper=True)
    if largest is None or largest:
        return values[..., -count:].flip(-1), vectors[..., -count:].flip(-1)
    return values[..., :count], vectors[..., :count]


__all__ = ["lobpcg", "pca_lowrank", "svd_lowrank"]
refusing_names(globals(), "lamina.facade.lowrank")
