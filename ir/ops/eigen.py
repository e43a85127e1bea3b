"""Eigenvalues of matrices that need not be symmetric: complex numbers, of real matrices too."""

from __future__ import annotations

import numpy as np

from ..op import Traits, composite, define
from ..sample import sample
from ..types import Type
from .complex import conj, real
from .create import ones_like
from .linalg import LAPACK, SQUARE, check_square, factored, solve_matrix
from .norm import sum_of
from .rearrange import diag_embed
from .view import adjoint
from .windows import diagonal


def _infer_eig(A: Type) -> tuple[Type, Type]:
    check_square("linalg_eig(A)", A, "A")
    vectors = A.with_dtype(A.dtype.to_complex())
    return vectors.with_shape(A.shape[:-1]), vectors


def _eig(A: np.ndarray) -> tuple:
    if not np.isfinite(A).all():
        raise np.linalg.LinAlgError("the matrix holds NaN or infinities")
    return tuple(np.linalg.eig(A))


def _vjp_eig(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """V^-H (diag(gL) + (V^H gV - V^H V diag(Re(V^H gV))) / conj(L_j - L_i)) V^H.

    The vectors have length 1, so along themselves they don't move.  Source: Boeddeker et al., On the
    computation of complex-valued gradients, 2017, section 4.7.
    """
    (values, vectors), (to_values, to_vectors) = saved, cotangents
    inner = None if to_values is None else diag_embed(to_values)
    if to_vectors is not None:
        unit = diag_embed(ones_like(values))
        turned = adjoint(vectors) @ to_vectors
        along = real(diagonal(turned, 0, -2, -1))[..., None, :]
        gaps = conj(values[..., None, :] - values[..., :, None]) + unit
        inner = sum_of(inner, (turned - adjoint(vectors) @ vectors * along) * (1.0 - unit) / gaps)
    if inner is None:
        return (None,)
    return (solve_matrix(adjoint(vectors), inner @ adjoint(vectors)),)


linalg_eig = define(
    "linalg_eig",
    operands=("A",),
    attrs=(),
    reference=lambda A: factored("linalg_eig", _eig, A),
    infer=_infer_eig,
    outputs=("eigenvalues", "eigenvectors"),
    vjp=_vjp_eig,
    saves=("eigenvalues", "eigenvectors"),
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3))],
    inapplicable=SQUARE,
    dtypes="complex",
    complex="stated",
    method=False,
    doc="Find eigenvalues, in no order, and eigenvectors of length 1, as columns: A @ V = V @ diag(L).  "
    "Both are complex.  Vectors are known up to a factor of length 1, on which nothing may depend that is "
    "differentiated.  Shapes: [..., n, n] -> [..., n], [..., n, n].  Raises ShapeError, DTypeError, "
    "ArgumentValueError.",
)


@composite(method=False)
def linalg_eigvals(A):
    """Find eigenvalues, complex and in no order.  Shapes: [..., n, n] -> [..., n].  See linalg_eig."""
    return linalg_eig(A)[0]
