"""Matrices factored and inverted: LAPACK's routines, with gradients written as products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..errors import LinAlgError, ShapeError
from ..op import Traits, composite, define
from ..sample import Operand, sample
from ..shapes import broadcast_shapes, common_device
from ..types import Type, type_of
from .complex import conj, imag, is_complex_valued
from .create import ones_like
from .matmul import matmul, matrix_dtype
from .rearrange import diag_embed, tril
from .view import adjoint
from .windows import diagonal

LAPACK = lowering.extern("LAPACK is a library of the host")
SQUARE = {
    "0-d": "a matrix has two dimensions",
    "1": "a matrix has two dimensions; [1, 1] stands for one element",
    "17": "a matrix has two dimensions, and a large one with random elements is badly conditioned",
    "33": "a matrix has two dimensions, and a large one with random elements is badly conditioned",
    "broadcast": "a broadcast matrix is singular",
}


def check_square(op: str, input: Type, name: str = "input") -> None:
    """Raise ShapeError, DTypeError unless it is a square floating matrix, or a batch of them."""
    if input.ndim < 2 or not same(input.shape[-1], input.shape[-2]):
        raise ShapeError(f"{op}: {name} must be [..., n, n], not {list(input.shape)}")
    if not input.dtype.inexact:
        raise input.dtype.refused(op, "cast with .float()")


# PyTorch's words for what NumPy says of a matrix.
_SAID = {
    "Singular matrix": "The algorithm could not be completed because the input matrix is singular",
    "Matrix is not positive definite": "The factorization could not be completed because the input is not "
    "positive-definite",
}


def factored(op: str, routine: Callable, *operands: np.ndarray) -> Any:
    """Run a routine of LAPACK.  Raises LinAlgError where it says that the matrix doesn't allow it."""
    try:
        return routine(*operands)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{op}: {said_of(str(error))}") from None


def said_of(said: str) -> str:
    """What an error says where NumPy says that of a matrix."""
    return _SAID.get(said, said.lower())


def spread(g: Any) -> Any:
    """A number for each matrix, beside its elements."""
    return g[..., None, None]


# ---- inverse, determinant


def infer_inv(A: Type) -> Type:
    check_square("linalg_inv(A)", A, "A")
    return A


linalg_inv = define(
    "linalg_inv",
    complex="analytic",
    reference=lambda A: factored("linalg_inv", np.linalg.inv, A),
    infer=infer_inv,
    grad=lambda g, out: -(out.mT @ g @ out.mT),
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3))],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
    doc="Invert each matrix.  Shapes: [..., n, n] -> the same.  Raises ShapeError, LinAlgError if singular.",
)


def infer_det(A: Type) -> Type:
    check_square("linalg_det(A)", A, "A")
    return A.with_shape(A.shape[:-2])


linalg_det = define(
    "linalg_det",
    complex="analytic",
    reference=lambda A: np.asarray(np.linalg.det(A)),
    infer=infer_det,
    grad=lambda g, A, out: spread(g * out) * linalg_inv(A).mT,
    lower=LAPACK,
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3))],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
    doc="Compute each matrix's determinant.  Shapes: [..., n, n] -> [...].  The gradient needs an inverse.  "
    "Raises ShapeError.",
)


def infer_slogdet(A: Type) -> tuple[Type, Type]:
    check_square("linalg_slogdet(A)", A, "A")
    sign = A.with_shape(A.shape[:-2])
    return sign, sign.with_dtype(sign.dtype.to_real())


def vjp_slogdet(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """d log|det| + i d arg(det) is the trace of A^-1 dA; by the latter the sign turns, if it is complex."""
    (A, sign), (to_sign, g) = saved, cotangents
    if is_complex_valued(sign) and to_sign is not None:
        turned = imag(conj(sign) * to_sign) * 1j
        g = turned if g is None else g + turned
    return (None if g is None else spread(g) * adjoint(linalg_inv(A)),)


linalg_slogdet = define(
    "linalg_slogdet",
    complex="stated",
    reference=lambda A: tuple(np.asarray(x) for x in np.linalg.slogdet(A)),
    infer=infer_slogdet,
    outputs=("sign", "logabsdet"),
    vjp=vjp_slogdet,
    saves=("A", "sign"),
    lower=LAPACK,
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3))],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
    doc="Compute the sign and the logarithm of each determinant's absolute value (0 and -inf if singular).  "
    "Shapes: [..., n, n] -> [...], [...].  Raises ShapeError.",
)


# ---- equations


def bind_solve(A, B, regular=False):
    """Solve A @ X = B.

    regular: each A is known to be, so on a device nobody waits to see whether it is.
    Shapes: [..., n, n], [..., n, k] -> [..., n, k].  Raises ShapeError, LinAlgError if A is singular.
    """
    return (A, B), {"regular": bool(regular)}


def infer_solve(A: Type, B: Type, *, regular: bool = False) -> Type:
    dtype = matrix_dtype("linalg_solve(A, B)", A=A, B=B)
    check_square("linalg_solve(A, B)", A, "A")
    if B.ndim < 2 or not same(B.shape[-2], A.shape[-1]):
        raise ShapeError(f"linalg_solve(A, B): B must be [..., {A.shape[-1]}, k], not {list(B.shape)}")
    batch = broadcast_shapes("linalg_solve(A, B)", A.shape[:-2], B.shape[:-2])
    return type_of(dtype, (*batch, *B.shape[-2:]), common_device("linalg_solve", A, B))


solve_matrix = define(
    "solve_matrix",
    complex="analytic",
    bind=bind_solve,
    reference=lambda A, B, *, regular: factored("linalg_solve", np.linalg.solve, A, B),
    infer=infer_solve,
    grad=(  # who asks for it has solved with A before
        lambda g, A, out, regular: -(solve_matrix(A.mT, g, True) @ out.mT),
        lambda g, A, regular: solve_matrix(A.mT, g, True),
    ),
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [
        sample((0, 0), (0, 2)),
        sample((1, 1), (1, 2)),
        sample((2, 2), (2, 3)),
        sample((2, 3, 3), (3, 2)),
    ],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
)


@composite(method=False)
def linalg_solve(A, B, *, left=True):
    """Solve A @ X = B, or with left=False X @ A = B.

    Shapes: [..., n, n], [..., n, k] -> [..., n, k]; a B of one dimension less is a vector for each matrix.
    Raises ShapeError, DTypeError, LinAlgError if A is singular.
    """
    return solved(A, B, left)


def solved(A: Any, B: Any, left: bool, regular: bool = False) -> Any:
    """What linalg_solve returns.  regular: as solve_matrix has it."""
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    if vector:
        return solve_matrix(A, B[..., None], regular)[..., 0]
    return solve_matrix(A, B, regular) if left else solve_matrix(A.mT, B.mT, regular).mT


# ---- Cholesky


def bind_cholesky(input, *, upper=False):
    """Factor each symmetric (Hermitian) positive-definite matrix into L @ L.mH, L lower triangular.

    upper: into U.mH @ U instead.  Of the two halves of the matrix the mean counts.
    Shapes: [..., n, n] -> the same.  Raises ShapeError, LinAlgError if not positive-definite.
    """
    return (input,), {"upper": bool(upper)}


def infer_cholesky(input: Type, *, upper: bool) -> Type:
    check_square("linalg_cholesky(input)", input)
    return input


def cholesky_reference(input, *, upper):
    low = factored("linalg_cholesky", np.linalg.cholesky, (input + input.mT.conj()) * 0.5)
    return np.ascontiguousarray(low.mT.conj()) if upper else low


def grad_cholesky(g, out, upper):
    """Source: Murray, Differentiation of the Cholesky decomposition, 2016, eq. 10."""
    low, g = (adjoint(out), adjoint(g)) if upper else (out, g)
    middle = adjoint(low) @ g
    middle = tril(middle) - diag_embed(diagonal(middle, 0, -2, -1)) * 0.5
    half = solve_matrix(adjoint(low), adjoint(solve_matrix(adjoint(low), adjoint(middle), True)), True)
    return (half + adjoint(half)) * 0.5


linalg_cholesky = define(
    "linalg_cholesky",
    complex="stated",
    bind=bind_cholesky,
    reference=cholesky_reference,
    infer=infer_cholesky,
    grad=grad_cholesky,
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [
        sample((0, 0)),
        sample(Operand((1, 1), 0.5, 2.0)),
        sample(Operand((2, 1, 1), 0.5, 2.0), upper=True),
    ],
    inapplicable=SQUARE,
    dtypes="float",
    method=False,
)


# ---- powers


@composite(aliases=("linalg_matrix_power",), fresh=True)
def matrix_power(input, n):
    """Multiply each square matrix by itself `n` times; a negative n inverts it first.

    Shapes: [..., k, k] -> the same.  Raises ShapeError.
    """
    if input.ndim < 2 or not same(input.shape[-1], input.shape[-2]):
        raise ShapeError(f"matrix_power(input): input must be [..., n, n], not {list(input.shape)}")
    if n == 0:
        return diag_embed(ones_like(diagonal(input, 0, -2, -1)))
    base = linalg_inv(input) if n < 0 else input
    power, left = None, abs(n)
    while left:
        if left & 1:
            power = base if power is None else matmul(power, base)
        left >>= 1
        if left:
            base = matmul(base, base)
    return power
