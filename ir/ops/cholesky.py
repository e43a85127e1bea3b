"""What is solved with a Cholesky factor.

Their gradients are those of a factor taken as it stands, both triangles of it, as PyTorch has them: in
the triangle that is read they are the derivative, and who hands in a triangle never sees the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DTypeError, LinAlgError, ShapeError
from ..op import define
from ..sample import Operand, Sample
from ..shapes import broadcast_shapes, common_device
from ..types import Type, type_of
from .decompose import check_matrix
from .equations import linalg_solve_triangular
from .factors import identity_like
from .linalg import LAPACK, SQUARE, check_square
from .view import adjoint


def _through(factor: Any, change: Any, upper: bool) -> Any:
    """The cotangent of a factor from -`change`, that of A, with both its triangles."""
    change = change + adjoint(change)
    return -(factor @ change if upper else change @ factor)


def _solved(input: Any, factor: Any, upper: bool) -> Any:
    lower = adjoint(factor) if upper else factor
    half = linalg_solve_triangular(lower, input, upper=False)
    return linalg_solve_triangular(adjoint(lower), half, upper=True)


def _factor(*shape: int) -> Operand:
    return Operand(shape, low=0.5, high=2.0)


_APART: dict[str, Any] = {  # elements of a factor can't be moved one by one: see above
    "complex": "stated", "lower": LAPACK, "inapplicable": SQUARE, "dtypes": "float",
}  # fmt: skip


def bind_cholesky_inverse(L, upper=False):
    """Invert A, given its Cholesky factor.  Shapes: [..., n, n] -> the same.

    Raises ShapeError, DTypeError, LinAlgError if the factor is singular.
    """
    return (L,), {"upper": bool(upper)}


def _infer_inverse(L: Type, *, upper: bool) -> Type:
    check_square("cholesky_inverse(L)", L, "L")
    return L


def _inverse_reference(L: np.ndarray, *, upper: bool) -> np.ndarray:
    if not np.diagonal(L, 0, -2, -1).all():
        raise LinAlgError("cholesky_inverse(L): L is singular: a zero stands on its diagonal")
    return _solved(identity_like(L), L, upper)


cholesky_inverse = define(
    "cholesky_inverse",
    bind=bind_cholesky_inverse,
    infer=_infer_inverse,
    reference=_inverse_reference,
    grad=lambda g, L, out, upper: _through(L, out @ g @ out, upper),
    samples=lambda: [
        Sample((_factor(*shape),), {"upper": upper}, differentiable=shape == (1, 1))
        for shape, upper in (((0, 0), False), ((1, 1), False), ((2, 2), True), ((2, 3, 3), False))
    ],
    **_APART,
)


def bind_cholesky_solve(input, input2, upper=False):
    """Solve A @ X = input, given A's Cholesky factor.  Shapes: [..., n, k], [..., n, n] -> [..., n, k].

    Raises ShapeError, DTypeError.
    """
    return (input, input2), {"upper": bool(upper)}


def _infer_solve(input: Type, input2: Type, *, upper: bool) -> Type:
    call = "cholesky_solve(input, input2)"
    check_square(call, input2, "input2")
    check_matrix(call, input)
    if input.dtype is not input2.dtype:
        raise DTypeError(f"{call}: the dtypes must be equal ({input.dtype.name} and {input2.dtype.name})")
    if input.shape[-2] != input2.shape[-1]:
        raise ShapeError(
            f"{call}: input2 {list(input2.shape)} needs {input2.shape[-1]} rows of input, "
            f"not {input.shape[-2]}"
        )
    batch = broadcast_shapes(call, input.shape[:-2], input2.shape[:-2])
    return type_of(input.dtype, (*batch, *input.shape[-2:]), common_device(call, input, input2))


cholesky_solve = define(
    "cholesky_solve",
    bind=bind_cholesky_solve,
    infer=_infer_solve,
    reference=lambda input, input2, *, upper: _solved(input, input2, upper),
    grad=(
        lambda g, input2, upper: cholesky_solve(g, input2, upper),
        lambda g, input2, out, upper: _through(
            input2, cholesky_solve(g, input2, upper) @ adjoint(out), upper
        ),
    ),
    samples=lambda: [
        Sample((Operand(left), _factor(*right)), {"upper": upper}, differentiable=right == (1, 1))
        for left, right, upper in (
            ((0, 2), (0, 0), False), ((1, 2), (1, 1), False), ((2, 3), (2, 2), True),
            ((3, 2), (2, 3, 3), False),
        )
    ],
    **_APART,
)  # fmt: skip
