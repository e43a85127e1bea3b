"""What is made of factored matrices: norms, ranks, pseudo-inverses, least squares, triangular equations."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..dims import same
from ..dtypes import bool_
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..op import composite, define
from ..sample import Operand, sample
from ..shapes import dim_of, reduced_shape
from ..types import Type
from .arithmetic import abs
from .cast import cast, clone, dtype_of
from .compare import gt, where
from .complex import conj, real
from .create import new_zeros, ones_like
from .decompose import check_matrix, linalg_eigh, linalg_qr, linalg_svd
from .extremum import amax, amin
from .linalg import (
    LAPACK,
    SQUARE,
    factored,
    infer_solve,
    linalg_cholesky,
    linalg_det,
    linalg_inv,
    linalg_slogdet,
)
from .math import log
from .matmul import chain_matmul, matmul
from .rearrange import diag_embed, tril, triu
from .reduce import sum
from .spread import linalg_vector_norm
from .view import adjoint, expand, movedim, reshape
from .windows import diagonal


@composite(method=False)
def linalg_eigvalsh(A, UPLO="L"):
    """Find the eigenvalues of symmetric matrices, in ascending order.  Shapes: [..., n, n] -> [..., n]."""
    return linalg_eigh(A, UPLO)[0]


@composite(method=False)
def linalg_svdvals(A, *, driver=None):
    """Find the singular values, in descending order.  Shapes: [..., m, n] -> [..., min(m, n)].

    driver: as linalg_svd has it.
    """
    return linalg_svd(A, False, driver=driver)[1]


class Svd(NamedTuple):
    """What `svd` returns: input = U @ diag(S) @ V.mH."""

    U: Any
    S: Any
    V: Any


@composite()
def svd(input, some=True, compute_uv=True):
    """Factor matrices into U @ diag(S) @ V.mH: linalg_svd with V, not its adjoint.

    some: leave out the columns that are not needed.  compute_uv: else U and V are zeros.
    """
    if not compute_uv:
        lead, (m, n) = input.shape[:-2], input.shape[-2:]
        return Svd(new_zeros(input, (*lead, m, m)), linalg_svdvals(input), new_zeros(input, (*lead, n, n)))
    u, s, vh = linalg_svd(input, not some)
    return Svd(u, s, adjoint(vh))


@composite()
def qr(input, some=True):
    """Factor matrices into Q @ R: linalg_qr, complete unless `some`."""
    return linalg_qr(input, "reduced" if some else "complete")


@composite()
def inverse(input):
    """Invert each matrix: linalg_inv."""
    return linalg_inv(input)


@composite()
def det(input):
    """Compute each matrix's determinant: linalg_det."""
    return linalg_det(input)


@composite()
def slogdet(input):
    """Compute the sign and the logarithm of each determinant's absolute value: linalg_slogdet."""
    return linalg_slogdet(input)


@composite()
def cholesky(input, upper=False):
    """Factor each symmetric positive-definite matrix into L @ L.mH: linalg_cholesky."""
    return linalg_cholesky(input, upper=upper)


@composite()
def logdet(input):
    """Compute each determinant's logarithm: NaN where that is negative.  Shapes: [..., n, n] -> [...]."""
    sign, logabsdet = linalg_slogdet(input)
    return log(sign) + logabsdet


# ---- norms of matrices


def _best(values: Any, ord: Any) -> Any:
    """The largest of values that are not negative, 0 where there is none; for a negative `ord` the least."""
    if ord < 0:
        return amin(values, dim=-1)
    return amax(values, dim=-1) if values.shape[-1] != 0 else sum(values, dim=-1)


@composite(method=False, names={"input": "A"})
def linalg_matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """Compute the norm of matrices, whose rows and columns stand in `dim`.

    ord: "fro" (root of the sum of squares), "nuc" (sum of the singular values), 2 and -2 (the largest,
    smallest singular value), 1 and -1 (the largest, smallest sum of a column's |x|), inf and -inf (of a
    row's).  dtype: A is converted to it first.  Raises ArgumentValueError, DimError, DTypeError.
    """
    pair = tuple(dim_of("linalg_matrix_norm", d, A.ndim) for d in dim)
    if len(pair) != 2 or pair[0] == pair[1] or A.ndim < 2:
        raise ShapeError(f"linalg_matrix_norm: dim must name two dimensions, not {list(dim)}")
    if ord == "fro":
        return linalg_vector_norm(A, 2, pair, keepdim, dtype=dtype)
    if dtype is not None:
        if (dtype.category == "complex") != (dtype_of(A).category == "complex"):
            raise DTypeError(
                "linalg_matrix_norm: dtype should be complex for complex inputs, and real for real ones: "
                f"{dtype}"
            )
        A = cast(A, dtype=dtype)
    moved = movedim(A, pair, (-2, -1))
    if ord in (1, -1, inf, -inf):
        lines = sum(abs(moved), dim=-2 if ord in (1, -1) else -1)
        out = _best(lines, ord)
    elif ord in ("nuc", 2, -2):
        values = linalg_svdvals(moved)
        out = sum(values, dim=-1) if ord == "nuc" else _best(values, ord)
    else:
        raise ArgumentValueError(
            f"linalg_matrix_norm: ord is 'fro', 'nuc', or one of 1, -1, 2, -2, inf, -inf, not {ord!r}"
        )
    return reshape(out, reduced_shape(A.shape, pair, True)) if keepdim else out


@composite(method=False, names={"input": "A"})
def linalg_norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """Compute the norm of vectors (dim: an int) or matrices (dim: two); without `dim`, by the input's rank.

    Without `ord`: the root of the sum of squares over `dim`, or over everything.  See linalg_vector_norm and
    linalg_matrix_norm.  dtype: A is converted to it first.
    Raises ShapeError, ArgumentValueError, DimError, DTypeError.
    """
    if ord is None:
        return linalg_vector_norm(A, 2, dim, keepdim, dtype=dtype)
    count = A.ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
    if count == 1 and not isinstance(ord, str):
        return linalg_vector_norm(A, ord, dim, keepdim, dtype=dtype)
    if count != 2:
        raise ShapeError(
            f"linalg_norm: ord={ord!r} is a norm of vectors or matrices, and there are {count} dimensions",
            "name one or two by dim",
        )
    return linalg_matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


# ---- rank, pseudo-inverse, least squares


def _counts(s: Any, shape: tuple, atol: Any, rtol: Any) -> Any:
    """Which singular values count: those above max(atol, rtol * the largest)."""
    if not s.shape[-1]:
        return gt(s, 0.0)
    if rtol is None:
        resolution = float(np.finfo(dtype_of(s).compute.numpy).eps) * max(shape[-2:])
        rtol = (
            where(gt(atol, 0.0), 0.0, resolution) if hasattr(atol, "shape") else 0.0 if atol else resolution
        )
    limit, least = amax(s, dim=-1, keepdim=True) * _beside(rtol), _beside(atol)
    return gt(s, where(gt(limit, least), limit, least))


def _singular_values(op: str, A: Any, hermitian: bool) -> Any:
    """In the order in which LAPACK gives them; of a Hermitian A, what its eigenvalues measure."""
    if not hermitian:
        return linalg_svdvals(A)
    if A.ndim > 1 and not same(A.shape[-1], A.shape[-2]):
        raise ShapeError(f"{op}(A, hermitian=True): A must be [..., n, n], not {list(A.shape)}")
    return abs(linalg_eigvalsh(A))


def _beside(limit: Any) -> Any:
    """A number, or a tensor with one for each matrix, beside singular values."""
    return limit[..., None] if hasattr(limit, "shape") else limit or 0.0


@composite(method=False, names={"input": "A"})
def linalg_matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """Count the singular values above max(atol, rtol * the largest); `tol` is an older name of atol.

    rtol is max(m, n) times the resolution of the dtype, or 0 where atol is given.
    hermitian: A is, and its lower triangle alone is read.  Shapes: [..., m, n] -> int64 [...].
    """
    s = _singular_values("linalg_matrix_rank", A, hermitian)
    return sum(_counts(s, A.shape, tol if atol is None else atol, rtol), dim=-1)


def bind_pseudo_inverse(A, counts, hermitian=False):
    """Invert matrices as far as they can be, where `counts` tells which singular values are not 0.

    hermitian: A is, its lower triangle alone is read, and `counts` is about its eigenvalues, in ascending
    order; the gradient is that of a Hermitian A, in both triangles.
    Shapes: [..., m, n], bool [..., min(m, n)] -> [..., n, m].  Raises ShapeError, DTypeError.
    """
    return (A, counts), {"hermitian": bool(hermitian)}


def infer_pseudo_inverse(A: Type, counts: Type, *, hermitian: bool) -> Type:
    check_matrix("linalg_pinv(A)", A)
    *batch, m, n = A.shape
    if counts.shape != (*batch, min(m, n)) or counts.dtype.category != "bool":
        raise ShapeError(
            "pseudo_inverse: counts must be a bool for each singular value", f"A: {A}", f"counts: {counts}"
        )
    return A.with_shape((*batch, n, m))


def reference_pseudo_inverse(A: np.ndarray, counts: np.ndarray, *, hermitian: bool) -> np.ndarray:
    if hermitian:
        s, u = factored("linalg_pinv", np.linalg.eigh, A)
        vh = u.mT.conj()
    else:
        u, s, vh = factored("linalg_pinv", np.linalg.svd, A, False)
    inverse = np.where(counts, 1 / np.where(counts, s, 1), 0).astype(A.dtype)
    return (vh.mT.conj() * inverse[..., None, :]) @ u.mT.conj()


def _of_lower(A: Any) -> Any:
    """The Hermitian matrix of which a lower triangle is half."""
    low = tril(A, -1)
    return low + adjoint(low) + diag_embed(real(diagonal(A, 0, -2, -1)))


def grad_pseudo_inverse(g: Any, A: Any, out: Any, hermitian: bool) -> Any:
    """Source: Golub and Pereyra, The differentiation of pseudo-inverses, 1973, eq. 4.12, its adjoint."""
    A = _of_lower(A) if hermitian else A
    turned, back = adjoint(g), adjoint(out)
    left = turned - matmul(A, matmul(out, turned))
    right = turned - matmul(matmul(turned, out), A)
    there = matmul(back, matmul(g, back))
    found = matmul(matmul(left, out), back) + matmul(back, matmul(out, right)) - there
    return (found + adjoint(found)) * 0.5 if hermitian else found


pseudo_inverse = define(
    "pseudo_inverse",
    complex="stated",
    bind=bind_pseudo_inverse,
    reference=reference_pseudo_inverse,
    infer=infer_pseudo_inverse,
    grad=(grad_pseudo_inverse, None),
    lower=LAPACK,
    samples=lambda: [
        sample((0, 0), Operand((0,), category="bool"), differentiable=False),
        sample((2, 3, 2), Operand((2, 2), category="bool"), differentiable=False),
        sample((2, 3), Operand((2,), category="bool"), differentiable=False),
        sample((2, 3, 3), Operand((2, 3), category="bool"), hermitian=True, differentiable=False),
    ],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
)


@composite(method=False)
def linalg_pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """Invert matrices as far as they can be (Moore-Penrose); `rcond` is an older name of rtol.

    Singular values up to max(atol, rtol * the largest) count as 0.  hermitian: A is, its lower triangle alone
    is read, and the gradient is that of a Hermitian A.  Shapes: [..., m, n] -> [..., n, m].
    """
    values = _singular_values("linalg_pinv", A, hermitian)
    counts = _counts(values, A.shape, atol, rcond if rtol is None else rtol)
    if counts.shape[:-1] != A.shape[:-2]:  # limits of a larger batch
        A = expand(A, (*counts.shape[:-1], *A.shape[-2:]))
    return pseudo_inverse(A, cast(counts, dtype=bool_), hermitian)


@composite()
def pinverse(input, rcond=1e-15):
    """Invert matrices as far as they can be: linalg_pinv with rtol=rcond."""
    return linalg_pinv(input, rtol=rcond)


class LeastSquares(NamedTuple):
    """What `linalg_lstsq` returns."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


@composite(method=False, names={"input": "A", "b": "B"})
def linalg_lstsq(A, B, rcond=None, *, driver=None):
    """Find the X of least norm that makes the squares of A @ X - B least.

    Returns (solution [..., n, k], residuals [..., k], rank [...], singular_values).  The residuals, sums of
    squares, are empty where m <= n.  The method is always the same, by singular values; `driver` says what is
    returned: gelsy (as None) no residuals and no singular values, gels no rank besides.
    Shapes: [..., m, n], [..., m, k].  Raises ShapeError, DTypeError.
    """
    if A.ndim < 2 or B.ndim < 2 or A.shape[-2] != B.shape[-2]:
        raise ShapeError(
            f"linalg_lstsq(A, B): takes [..., m, n] and [..., m, k], not {list(A.shape)}, {list(B.shape)}",
            "B.unsqueeze(-1) makes a matrix of a vector"
            if B.ndim == 1
            else "transpose the one that lies wrong",
        )
    driver = "gelsy" if driver is None else driver
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentValueError(f"linalg_lstsq: driver is gels, gelsy, gelsd or gelss, not {driver!r}")
    solution = matmul(linalg_pinv(A, rtol=rcond), B)
    rest = matmul(A, solution) - B
    values = linalg_svdvals(A)
    rank = sum(_counts(values, A.shape, None, rcond), dim=-1)
    empty = new_zeros(values, (0,))
    overdetermined = A.shape[-2] > A.shape[-1] and driver != "gelsy"
    return LeastSquares(
        solution, sum(real(conj(rest) * rest), dim=-2) if overdetermined else empty,
        new_zeros(rank, (0,)) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else empty,
    )  # fmt: skip


# ---- triangles


def bind_solve_triangle(A, B, *, upper):
    """Solve A @ X = B, where A has zeros below its diagonal, or above it unless `upper`.

    Zeros on the diagonal are divided by, as other numbers are.
    Shapes: [..., n, n], [..., n, k] -> [..., n, k].
    """
    return (A, B), {"upper": bool(upper)}


def solve_triangle_reference(A: np.ndarray, B: np.ndarray, *, upper: bool) -> np.ndarray:
    """LAPACK's solver permutes no row of an upper triangle: what is left of it is substitution."""
    if not upper:  # an upper one, seen from its other corner
        turned = solve_triangle_reference(A[..., ::-1, ::-1], B[..., ::-1, :], upper=True)
        return np.ascontiguousarray(turned[..., ::-1, :])
    if np.diagonal(A, 0, -2, -1).all():
        return np.linalg.solve(A, B)
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    out = np.array(np.broadcast_to(B, batch + B.shape[-2:]))
    with np.errstate(all="ignore"):
        for i in range(A.shape[-1] - 1, -1, -1):
            out[..., i, :] /= A[..., i, i, None]
            out[..., :i, :] -= A[..., :i, i, None] * out[..., i, None, :]
    return out


solve_triangle = define(
    "solve_triangle",
    complex="analytic",
    bind=bind_solve_triangle,
    reference=solve_triangle_reference,
    infer=lambda A, B, *, upper: infer_solve(A, B),
    grad=(
        lambda g, A, out, upper: -(solve_triangle(A.mT, g, upper=not upper) @ out.mT),
        lambda g, A, upper: solve_triangle(A.mT, g, upper=not upper),
    ),
    lower=LAPACK,
    samples=lambda: [
        sample((0, 0), (0, 2), upper=True),
        sample((1, 1), (1, 2), upper=False),
        sample((2, 1, 1), (1, 3), upper=True),
    ],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
)


@composite(method=False)
def linalg_solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """Solve A @ X = B (left=False: X @ A = B) for a triangular A, of which only that triangle is read.

    A zero on the diagonal makes infinities and NaN, and no error.  unitriangular: it counts as ones.
    Shapes: [..., n, n], [..., n, k] -> [..., n, k].
    """
    above = 1 if unitriangular else 0
    triangle = triu(A, above) if upper else tril(A, -above)
    if unitriangular:
        triangle = triangle + diag_embed(ones_like(diagonal(triangle, 0, -2, -1)))
    return (
        solve_triangle(triangle, B, upper=upper)
        if left
        else solve_triangle(triangle.mT, B.mT, upper=not upper).mT
    )


class TriangularSolution(NamedTuple):
    """What `triangular_solve` returns."""

    solution: Any
    cloned_coefficient: Any


@composite()
def triangular_solve(input, A, upper=True, transpose=False, unitriangular=False):
    """Solve A @ X = input for a triangular A, or A.mT @ X = input; returns X and a copy of A.

    linalg_solve_triangular under an older name.  Shapes: [..., n, k], [..., n, n] -> [..., n, k], that of A.
    """
    solution = linalg_solve_triangular(
        A.mT if transpose else A, input, upper=upper != transpose, unitriangular=unitriangular
    )
    return TriangularSolution(solution, clone(expand(A, (*solution.shape[:-2], *A.shape[-2:]))))


# ---- products


@composite(method=False)
def linalg_vecdot(x, y, *, dim=-1):
    """Multiply vectors along `dim`, the first conjugated.  Shapes: [..., n], [..., n] -> [...]."""
    return sum(conj(x) * y, dim=dim)


@composite(method=False)
def linalg_multi_dot(tensors):
    """Multiply matrices, in the order that costs least.  The first and the last may be vectors."""
    first, *_, last = tensors
    matrices = list(tensors)
    matrices[0] = first if first.ndim > 1 else reshape(first, (1, -1))
    matrices[-1] = last if last.ndim > 1 else reshape(last, (-1, 1))
    out = chain_matmul(*matrices)
    out = out if last.ndim > 1 else out[..., 0]
    return out if first.ndim > 1 else out[0]
