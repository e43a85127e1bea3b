"""The standard's extension `linalg`, and the products that it has in common with the main namespace."""

from typing import Any, NamedTuple

from ..ir.errors import ShapeError
from ..runtime import Tensor, ops
from .kinds import cast, summed_type, tensor_in, together
from .reductions import axes_of
from .reductions import sum as summed

_linalg = {
    name.removeprefix("linalg_"): found for name, found in ops.FUNCTIONS.items() if name.startswith("linalg_")
}


class Eigh(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


class Slogdet(NamedTuple):
    """What `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


class SVD(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# ---- also in the main namespace ----------------------------------------------------------------------------
def matmul(x1, x2, /):
    """Products of matrices, of stacks of them, and of vectors."""
    return ops.matmul(*together("matmul", (x1, x2), "numeric"))


def matrix_transpose(x, /):
    """The matrices with rows for columns."""
    return ops.transpose(tensor_in("matrix_transpose", x), -2, -1)


def tensordot(x1, x2, /, *, axes=2):
    """The sums of products over pairs of axes."""
    return ops.tensordot(*together("tensordot", (x1, x2), "numeric"), axes)


def vecdot(x1, x2, /, *, axis=-1):
    """The dot products along an axis, of the first one's conjugate with the second.  Raises ShapeError."""
    x1, x2 = together("vecdot", (x1, x2), "numeric")
    if not x1.ndim or not x2.ndim or x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(
            f"vecdot: vectors of one length along axis {axis} are needed, not {x1._meta}, {x2._meta}"
        )
    product = ops.mul(ops.conj_physical(x1) if x1.is_complex() else x1, x2)
    return summed(product, axis=axis, dtype=x1.dtype)


# ---- the extension's own -----------------------------------------------------------------------------------
def cholesky(x, /, *, upper=False):
    """The triangular factors of positive definite matrices, from one triangle of them."""
    return _linalg["cholesky"](tensor_in("cholesky", x, "floating"), upper=upper)


def cross(x1, x2, /, *, axis=-1):
    """The cross products of vectors of three elements along an axis."""
    x1, x2 = together("cross", (x1, x2), "numeric")
    if not x1.ndim or not x2.ndim or x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(
            f"cross: vectors of three elements along axis {axis} are needed, not {x1._meta}, {x2._meta}"
        )
    return _linalg["cross"](x1, x2, dim=axis)


def det(x, /):
    """The determinants."""
    return _linalg["det"](tensor_in("det", x, "floating"))


def diagonal(x, /, *, offset=0):
    """The diagonals of matrices, `offset` above the main one."""
    return ops.diagonal(tensor_in("diagonal", x), offset, -2, -1)


def eigh(x, /):
    """The eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices."""
    return Eigh(*_linalg["eigh"](tensor_in("eigh", x, "floating")))


def eigvalsh(x, /):
    """The eigenvalues, ascending, of symmetric or Hermitian matrices."""
    return _linalg["eigvalsh"](tensor_in("eigvalsh", x, "floating"))


def inv(x, /):
    """The inverses."""
    return _linalg["inv"](tensor_in("inv", x, "floating"))


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """The norms of matrices."""
    return _linalg["matrix_norm"](tensor_in("matrix_norm", x, "floating"), ord, keepdim=keepdims)


def matrix_power(x, n, /):
    """The matrices to the power of an int."""
    return _linalg["matrix_power"](tensor_in("matrix_power", x, "floating"), n)


def _tolerance(x: Tensor, rtol: Any) -> Any:
    """A bound for each matrix, relative to its largest singular value."""
    return cast(rtol, x.real.dtype if x.is_complex() else x.dtype) if isinstance(rtol, Tensor) else rtol


def matrix_rank(x, /, *, rtol=None):
    """How many singular values are larger than `rtol` times the largest."""
    x = tensor_in("matrix_rank", x, "floating")
    return _linalg["matrix_rank"](x, rtol=_tolerance(x, rtol))


def outer(x1, x2, /):
    """The products of all pairs of elements of two vectors."""
    x1, x2 = together("outer", (x1, x2), "numeric")
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer: takes vectors, not {x1._meta} and {x2._meta}")
    return ops.outer(x1, x2)


def pinv(x, /, *, rtol=None):
    """The pseudo-inverses, singular values up to `rtol` times the largest taken for 0."""
    x = tensor_in("pinv", x, "floating")
    return _linalg["pinv"](x, rtol=_tolerance(x, rtol))


def qr(x, /, *, mode="reduced"):
    """The orthonormal and the triangular factors."""
    return QR(*_linalg["qr"](tensor_in("qr", x, "floating"), mode))


def slogdet(x, /):
    """The signs and the logarithms of the absolute values of the determinants."""
    return Slogdet(*_linalg["slogdet"](tensor_in("slogdet", x, "floating")))


def solve(x1, x2, /):
    """The solutions of x1 @ x = x2; `x2` is a vector if it has one dimension, else matrices."""
    x1, x2 = together("solve", (x1, x2), "floating")
    if x2.ndim == 1:
        return _linalg["solve"](x1, x2.reshape(-1, 1))[..., 0]
    if x2.ndim == x1.ndim - 1:  # which would be taken for a stack of vectors
        x2 = x2.unsqueeze(0)
    return _linalg["solve"](x1, x2)


def svd(x, /, *, full_matrices=True):
    """The singular values, descending, and the vectors."""
    return SVD(*_linalg["svd"](tensor_in("svd", x, "floating"), full_matrices))


def svdvals(x, /):
    """The singular values, descending."""
    return _linalg["svdvals"](tensor_in("svdvals", x, "floating"))


def trace(x, /, *, offset=0, dtype=None):
    """The sums of diagonals."""
    made = summed_type(tensor_in("trace", x, "numeric"), dtype)
    return summed(diagonal(x, offset=offset), axis=-1, dtype=made)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """The norms of vectors, of all elements where no axis is given."""
    x = tensor_in("vector_norm", x, "floating")
    axes = axes_of(axis, x.ndim)
    if not axes:
        return _linalg["vector_norm"](x.unsqueeze(0), ord, (0,), False)
    return _linalg["vector_norm"](x, ord, axes, keepdims)


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd",
    "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
