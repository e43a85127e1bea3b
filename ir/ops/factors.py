"""Matrices factored into triangles: LU with pivots, LDL, and the equations solved with such factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import int32, int64
from ..errors import ArgumentValueError, DTypeError, LinAlgError, ShapeError
from ..lazy import load
from ..op import Traits, composite, define
from ..sample import Operand, sample
from ..shapes import broadcast_shapes
from ..types import Type
from .cast import cast, dtype_of
from .compare import eq, where
from .complex import conj
from .create import new_ones, new_zeros, ones_like
from .decompose import check_matrix
from .equations import linalg_solve_triangular
from .extremum import argmax
from .join import cat
from .linalg import (
    bind_cholesky,
    check_square,
    grad_cholesky,
    solve_matrix,
    solved,
    spread,
)
from .matmul import matmul
from .rearrange import diag_embed, tril, triu
from .reduce import any as any_true
from .scan import cumsum
from .view import adjoint as turned
from .view import unsqueeze
from .windows import diagonal

LAPACK = lowering.extern("LAPACK is a library of the host")
MATRIX = {
    "0-d": "a matrix has two dimensions",
    "1": "a matrix has two dimensions; [1, 1] stands for one element",
    "17": "a matrix has two dimensions, and a large one with random elements is badly conditioned",
    "33": "a matrix has two dimensions, and a large one with random elements is badly conditioned",
    "broadcast": "a broadcast matrix is singular",
}


def each_matrix(function: Any, *batches: np.ndarray) -> list[np.ndarray]:
    """A routine of LAPACK on every matrix of a batch: its results, stacked.  Sizes of 0 are the caller's."""
    shape = batches[0].shape[:-2]
    rows = [function(*(b[at] for b in batches)) for at in np.ndindex(*shape)]
    return [np.stack(parts).reshape((*shape, *np.shape(parts[0]))) for parts in zip(*rows, strict=True)]


# ---- LU


def infer_lu(A: Type) -> tuple[Type, Type]:
    check_matrix("linalg_lu_factor(A)", A)
    *batch, m, n = A.shape
    return A, A.with_shape((*batch, min(m, n))).with_dtype(int32)


def reference_lu(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    least = min(A.shape[-2:])
    if not A.size:
        return A.copy(), np.zeros((*A.shape[:-2], least), np.int32)
    getrf = load("scipy.linalg", "scipy").get_lapack_funcs("getrf", (A,))
    lu, pivots = each_matrix(lambda a: getrf(a)[:2], A)
    return np.ascontiguousarray(lu.astype(A.dtype)), pivots.astype(np.int32) + np.int32(1)


def solve_upper(u: Any, b: Any) -> Any:
    return linalg_solve_triangular(u, b, upper=True)


def solve_unit_lower(low: Any, b: Any) -> Any:
    return linalg_solve_triangular(low, b, upper=False, unitriangular=True)


def vjp_lu(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """Of the factors' square part as of A = P L U; what stands below or beside it goes through a solve.

    L^-T (tril(L^T gL, -1) + triu(gU U^T)) U^-T is the gradient of a square P^T A.
    """
    (lu, pivots), (g, _) = saved, cotangents
    if g is None:
        return (None,)
    m, n = lu.shape[-2:]
    k = min(m, n)
    square, to_low, to_up = lu[..., :k, :k], tril(g[..., :k, :k], -1), triu(g[..., :k, :k])
    low = tril(square, -1) + identity_like(square)
    rest = None
    if m > n:
        below = lu[..., k:, :]
        rest = solve_upper_right(square, g[..., k:, :])
        to_up = to_up - triu(below.mT @ rest)
    elif n > m:
        beside = lu[..., :, k:]
        rest = unit_lower_transposed(square, g[..., :, k:])
        to_low = to_low - tril(rest @ beside.mT, -1)
    inner = tril(low.mT @ to_low, -1) + triu(to_up @ triu(square).mT)
    inner = solve_upper_right(square, unit_lower_transposed(square, inner))
    if rest is not None:
        inner = cat((inner, rest), -2 if m > n else -1)
    return (matmul(permutation_matrix(pivots, m, inner), inner),)


def solve_upper_right(square: Any, g: Any) -> Any:
    """g U^-T."""
    return linalg_solve_triangular(triu(square).mT, g, upper=False, left=False)


def unit_lower_transposed(square: Any, g: Any) -> Any:
    """L^-T g."""
    return linalg_solve_triangular(square.mT, g, upper=True, unitriangular=True)


def identity_like(square: Any) -> Any:
    return diag_embed(ones_like(diagonal(square, 0, -2, -1)))


linalg_lu_factor = define(
    "linalg_lu_factor",
    bind=lambda A, *, pivot=True: _bind_lu(A, pivot),
    operands=("A",),
    attrs=(),
    reference=reference_lu,
    infer=infer_lu,
    outputs=("LU", "pivots"),
    vjp=vjp_lu,
    complex="analytic",
    saves=("LU", "pivots"),
    lower=LAPACK,
    samples=lambda: [sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3)), sample((2, 3))],
    inapplicable=MATRIX,
    dtypes="float",
    method=False,
    doc="Factor matrices into P @ L @ U, L (its ones left out) and U in one matrix; int32 pivots count from "
    "1: row i was exchanged with row pivots[i].  Shapes: [..., m, n] -> the same, [..., min(m, n)].",
)


def _bind_lu(A: Any, pivot: bool) -> tuple:
    if not pivot:
        raise ArgumentValueError("linalg_lu_factor: without pivots it is not offered on the CPU")
    return (A,), {}


def infer_order(pivots: Type, *, size: int) -> Type:
    if pivots.dtype.category != "int" or not pivots.ndim:
        raise DTypeError(f"lu_unpack: pivots must be int32 [..., k], not {pivots}")
    return pivots.with_shape((*pivots.shape[:-1], size)).with_dtype(int64)


def reference_order(pivots: np.ndarray, *, size: int) -> np.ndarray:
    out = np.broadcast_to(np.arange(size), (*pivots.shape[:-1], size)).copy()
    if not pivots.size:
        return out
    if not (1 <= pivots.min() and pivots.max() <= size):
        raise ArgumentValueError(f"lu_unpack: pivots must lie in [1, {size}]")
    for line, swaps in zip(out.reshape(-1, size), pivots.reshape(-1, pivots.shape[-1])):
        for i, p in enumerate(swaps):
            line[i], line[p - 1] = line[p - 1], line[i]
    return out


pivoted_order = define(
    "pivoted_order",
    bind=lambda pivots, size: ((pivots,), {"size": int(size)}),
    reference=reference_order,
    infer=infer_order,
    lower=lowering.extern("exchanges one after the other"),
    traits=Traits(refuses=True),
    samples=lambda: [
        sample(Operand((2,), 1, 3, category="int"), size=2),
        sample(Operand((2, 3), 1, 4, category="int"), size=3),
    ],
    inapplicable=dict.fromkeys(
        ("0-d", "empty", "1", "17", "33"), "takes pivots of a matrix with so many rows"
    ),
    dtypes="int",
    method=False,
    doc="Give the order of A's rows in P.mT @ A, from the pivots of an LU factorisation of `size` rows.",
)


def permutation_matrix(pivots: Any, size: int, like: Any) -> Any:
    """P of A = P @ L @ U: [..., size, size], in the dtype of `like`."""
    order = pivoted_order(pivots, size=size)
    line = cumsum(new_ones(order, (size,)), 0) - 1
    return cast(eq(unsqueeze(order, -1), line), dtype=dtype_of(like)).mT


class LU(NamedTuple):
    """What `linalg_lu` and `lu_unpack` return: A = P @ L @ U."""

    P: Any
    L: Any
    U: Any


@composite(method=False)
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """Take the factors of `linalg_lu_factor` apart: (P, L, U); what is not asked for is empty."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    empty = new_zeros(LU_data, (0,))
    p = permutation_matrix(LU_pivots, m, LU_data) if unpack_pivots else empty
    if not unpack_data:
        return LU(p, empty, empty)
    left = LU_data[..., :, :k]
    ones = identity_like(left[..., :k, :])
    if m > k:
        ones = cat((ones, left[..., k:, :] * 0.0), -2)
    return LU(p, tril(left, -1) + ones, triu(LU_data[..., :k, :]))


@composite(method=False)
def linalg_lu(A, *, pivot=True):
    """Factor matrices into P @ L @ U.  Shapes: [..., m, n] -> [..., m, m], [..., m, k], [..., k, n]."""
    data, pivots = linalg_lu_factor(A, pivot=pivot)
    return lu_unpack(data, pivots)


class LUFactor(NamedTuple):
    """What `linalg_lu_factor_ex` returns."""

    LU: Any
    pivots: Any
    info: Any


def _first_zero(lu: Any) -> Any:
    """int32: 0, or the place of the first zero on U's diagonal, counted from 1, that makes it singular."""
    zero = eq(diagonal(lu, 0, -2, -1), 0.0)
    if not zero.shape[-1]:
        return cast(any_true(zero, -1), dtype=int32)
    first = argmax(cast(zero, dtype=int32), -1)
    return cast(where(any_true(zero, -1), first + 1, 0), dtype=int32)


def _checked(op: str, info: Any, check_errors: bool) -> Any:
    if check_errors and bool((info != 0).any()):
        raise LinAlgError(f"{op}: a matrix is singular, or not positive-definite", f"info: {info.tolist()}")
    return info


@composite(method=False)
def linalg_lu_factor_ex(A, *, pivot=True, check_errors=False):
    """Factor as linalg_lu_factor, and tell which place of U's diagonal is zero (int32, from 1; 0: none)."""
    data, pivots = linalg_lu_factor(A, pivot=pivot)
    return LUFactor(data, pivots, _checked("linalg_lu_factor_ex", _first_zero(data), check_errors))


@composite()
def lu(A, pivot=True, get_infos=False):
    """Factor matrices into P @ L @ U, as linalg_lu_factor returns them; get_infos: info besides."""
    data, pivots = linalg_lu_factor(A, pivot=pivot)
    return (data, pivots, _first_zero(data)) if get_infos else (data, pivots)


@composite(method=False)
def linalg_lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """Solve A @ X = B (left=False: X @ A = B; adjoint: A.mH in place of A) by the factors of A.

    Shapes: [..., n, n], [..., n], [..., n, k] -> [..., n, k].
    """
    if LU.ndim < 2 or LU.shape[-1] != LU.shape[-2]:
        raise ShapeError(f"linalg_lu_solve: LU must be [..., n, n], not {list(LU.shape)}")
    if not left:
        return turned(linalg_lu_solve(LU, pivots, turned(B), adjoint=not adjoint))
    p = permutation_matrix(pivots, LU.shape[-1], LU)
    if adjoint:
        inner = linalg_solve_triangular(turned(triu(LU)), B, upper=False)
        return matmul(p, linalg_solve_triangular(turned(LU), inner, upper=True, unitriangular=True))
    return solve_upper(triu(LU), solve_unit_lower(LU, matmul(p.mT, B)))


@composite()
def lu_solve(b, LU_data, LU_pivots):
    """Solve A @ X = b by the factors of A: linalg_lu_solve."""
    return linalg_lu_solve(LU_data, LU_pivots, b)


# ---- what tells of failure instead of raising


class Cholesky(NamedTuple):
    """What `linalg_cholesky_ex` returns."""

    L: Any
    info: Any


class Inverse(NamedTuple):
    """What `linalg_inv_ex` returns."""

    inverse: Any
    info: Any


class Solution(NamedTuple):
    """What `linalg_solve_ex` returns."""

    result: Any
    info: Any


def _reference_parts(input: np.ndarray, *, upper: bool) -> tuple[np.ndarray, np.ndarray]:
    lower, info = input.mT.conj() if upper else input, np.zeros(input.shape[:-2], np.int32)
    try:
        low = np.linalg.cholesky(lower)
    except np.linalg.LinAlgError:
        low = np.full_like(lower, np.nan)
        for at in np.ndindex(*info.shape):
            info[at] = _indefinite_minor(lower[at])
            if not info[at]:
                low[at] = np.linalg.cholesky(lower[at])
    return np.ascontiguousarray(low.mT.conj() if upper else low), info


def _indefinite_minor(a: np.ndarray) -> int:
    """The order of the first leading minor that is not positive-definite, 0 where all are."""
    least, most = 0, len(a) + 1  # so many rows are, and so many are not, or there are not so many
    while most - least > 1:
        k = (least + most) // 2
        try:
            np.linalg.cholesky(a[:k, :k])
            least = k
        except np.linalg.LinAlgError:
            most = k
    return most if most <= len(a) else 0


def _infer_parts(input: Type, *, upper: bool) -> tuple[Type, Type]:
    check_square("linalg_cholesky_ex(input)", input)
    return input, input.with_shape(input.shape[:-2]).with_dtype(int32)


def _vjp_parts(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """linalg_cholesky's, and 0 where a matrix failed."""
    (factor, info), (g, _) = saved, cotangents
    if g is None:
        return (None,)
    fine = spread(eq(info, 0))
    found = grad_cholesky(where(fine, g, 0.0), _harmless(factor, info), attrs["upper"])
    return (where(fine, found, 0.0),)


cholesky_parts = define(
    "cholesky_parts",
    bind=bind_cholesky,
    reference=_reference_parts,
    infer=_infer_parts,
    outputs=("L", "info"),
    vjp=_vjp_parts,
    complex="stated",
    saves=("L", "info"),
    lower=LAPACK,
    samples=lambda: [
        sample((0, 0)),
        sample(Operand((1, 1), 0.5, 2.0)),
        sample(Operand((2, 1, 1), 0.5, 2.0), upper=True),
        sample((2, 3, 3), differentiable=False),
    ],
    inapplicable=MATRIX,
    dtypes="float",
    method=False,
    doc="Factor as linalg_cholesky, and give the order of the first leading minor that is not "
    "positive-definite (int32, 0: none): of such a matrix the factor is NaN.  One triangle is read alone.",
)


def _harmless(A: Any, info: Any) -> Any:
    """The matrices, with identities where one failed."""
    return where(spread(eq(info, 0)), A, identity_like(A))


@composite(method=False)
def linalg_cholesky_ex(input, *, upper=False, check_errors=False):
    """Factor as linalg_cholesky, and tell which leading minor is not positive-definite (int32, 0: none).

    Where one is not, the factor is NaN.
    """
    factor, info = cholesky_parts(input, upper=upper)
    return Cholesky(factor, _checked("linalg_cholesky_ex", info, check_errors))


@composite(method=False)
def linalg_inv_ex(A, *, check_errors=False):
    """Invert as linalg_inv, or tell by int32 which place of U's diagonal is zero (0: none), and give NaN."""
    info = _checked("linalg_inv_ex", _first_zero(linalg_lu_factor(A)[0]), check_errors)
    inverse = solve_matrix(_harmless(A, info), identity_like(A), True)
    return Inverse(where(spread(eq(info, 0)), inverse, float("nan")), info)


@composite(method=False)
def linalg_solve_ex(A, B, *, left=True, check_errors=False):
    """Solve as linalg_solve, or tell by int32 which place of U's diagonal is zero (0: none), and give NaN."""
    info = _checked("linalg_solve_ex", _first_zero(linalg_lu_factor(A)[0]), check_errors)
    found = solved(_harmless(A, info), B, left, True)
    vector = found.ndim < A.ndim
    wanted = unsqueeze(info, -1) if vector else spread(info)
    return Solution(where(eq(wanted, 0), found, float("nan")), info)


# ---- LDL


class LDL(NamedTuple):
    """What `linalg_ldl_factor` returns."""

    LD: Any
    pivots: Any


class LDLInfo(NamedTuple):
    """What `linalg_ldl_factor_ex` returns."""

    LD: Any
    pivots: Any
    info: Any


def bind_ldl(A, hermitian=False):
    """Factor symmetric matrices into L @ D @ L.mT, Hermitian ones into L @ D @ L.mH, packed as LAPACK does.

    Shapes: [..., n, n] -> the same, int32 pivots [..., n], int32 info [...].  Raises ShapeError, DTypeError.
    """
    return (A,), {"hermitian": bool(hermitian)}


def _ldl_routine(name: str, arrays: tuple[np.ndarray, ...], hermitian: bool) -> Any:
    """LAPACK's routine of symmetric matrices, or of Hermitian ones where those are others."""
    kind = "he" if hermitian and arrays[0].dtype.kind == "c" else "sy"
    return load("scipy.linalg", "scipy").get_lapack_funcs(kind + name, arrays)


def infer_ldl(A: Type, *, hermitian: bool) -> tuple[Type, Type, Type]:
    check_square("linalg_ldl_factor(A)", A, "A")
    line = A.with_shape(A.shape[:-1]).with_dtype(int32)
    return A, line, line.with_shape(A.shape[:-2])


def reference_ldl(A: np.ndarray, *, hermitian: bool) -> tuple[np.ndarray, ...]:
    if not A.size:
        batch = A.shape[:-2]
        return A.copy(), np.zeros(A.shape[:-1], np.int32), np.zeros(batch, np.int32)
    routine = _ldl_routine("trf", (A,), hermitian)

    def factor(a: np.ndarray) -> tuple:
        data, pivots, info = routine(a, lower=1)
        return np.tril(data), pivots, np.int32(info)

    data, pivots, info = each_matrix(factor, A)
    return data.astype(A.dtype), pivots.astype(np.int32), np.reshape(info, A.shape[:-2]).astype(np.int32)


ldl_parts = define(
    "ldl_parts",
    complex="analytic",
    bind=bind_ldl,
    reference=reference_ldl,
    infer=infer_ldl,
    outputs=("LD", "pivots", "info"),
    lower=LAPACK,
    samples=lambda: [
        sample((0, 0)), sample((1, 1)), sample((2, 2)), sample((2, 3, 3)), sample((3, 3), hermitian=True),
    ],
    inapplicable=MATRIX,
    dtypes="float",
    method=False,
)  # fmt: skip


@composite(method=False)
def linalg_ldl_factor(A, *, hermitian=False):
    """Factor symmetric matrices into L @ D @ L.mT, D of blocks of 1 or 2, packed as LAPACK's sytrf does.

    hermitian: of complex ones, into L @ D @ L.mH, as hetrf does.  Only the lower halves are read.
    Shapes: [..., n, n] -> the same, int32 [..., n].  No gradient.
    """
    return LDL(*ldl_parts(A, hermitian)[:2])


@composite(method=False)
def linalg_ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    """Factor as linalg_ldl_factor, and tell which place of D is exactly zero (int32, from 1; 0: none)."""
    data, pivots, info = ldl_parts(A, hermitian)
    return LDLInfo(data, pivots, _checked("linalg_ldl_factor_ex", info, check_errors))


def bind_ldl_solve(LD, pivots, B, hermitian=False):
    """Solve A @ X = B by the factors that linalg_ldl_factor gives of A.

    Shapes: [..., n, n], [..., n], [..., n, k] -> [..., n, k].  The gradient goes to B alone.
    Raises ShapeError, DTypeError, ArgumentValueError for pivots that are none.
    """
    return (LD, pivots, B), {"hermitian": bool(hermitian)}


def infer_ldl_solve(LD: Type, pivots: Type, B: Type, *, hermitian: bool) -> Type:
    check_square("linalg_ldl_solve(LD)", LD, "LD")
    n = LD.shape[-1]
    fits = B.ndim > 1 and pivots.ndim and same(B.shape[-2], n) and same(pivots.shape[-1], n)
    if not fits or B.dtype is not LD.dtype or pivots.dtype.category != "int":
        raise ShapeError(
            "linalg_ldl_solve: takes LD [..., n, n], int32 pivots [..., n] and B [..., n, k] of LD's dtype",
            f"LD: {LD}", f"pivots: {pivots}", f"B: {B}",
        )  # fmt: skip
    batch = broadcast_shapes("linalg_ldl_solve", LD.shape[:-2], pivots.shape[:-1], B.shape[:-2])
    return B.with_shape((*batch, *B.shape[-2:]))


def _check_ldl_pivots(pivots: np.ndarray, n: int) -> None:
    """Raise ArgumentValueError unless LAPACK finds the rows that pivots name: it does not look, and writes.

    One from 1 to n stands for a block of 1; a block of 2 has two negative ones, from -n to -1.
    """
    for line in pivots.reshape(-1, n).tolist() if n else ():
        at = 0
        while at < n:
            pair = line[at] < 0
            block = line[at : at + 1 + pair]
            if len(block) != 1 + pair or not all(1 <= (-p if pair else p) <= n for p in block):
                raise ArgumentValueError(
                    f"linalg_ldl_solve: the pivots {line} are not those of {n} rows, counted from 1, "
                    "those of a block of two negative",
                    "pass what linalg_ldl_factor returned",
                )
            at += len(block)


def reference_ldl_solve(LD: np.ndarray, pivots: np.ndarray, B: np.ndarray, *, hermitian: bool) -> np.ndarray:
    _check_ldl_pivots(pivots, LD.shape[-1])
    batch = np.broadcast_shapes(LD.shape[:-2], pivots.shape[:-1], B.shape[:-2])
    if not (LD.size and B.size):
        return np.zeros((*batch, *B.shape[-2:]), B.dtype)
    routine = _ldl_routine("trs", (LD, B), hermitian)
    given = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (LD, pivots[..., None, :], B))
    (out,) = each_matrix(lambda a, p, b: (routine(a, p[0], b, lower=1)[0],), *given)
    return np.ascontiguousarray(out)


def grad_ldl_solve(g: Any, LD: Any, pivots: Any, hermitian: bool) -> Any:
    """A^-H g: A^-1 g of a Hermitian A, and of a symmetric one the conjugate of A^-1 conj(g)."""
    if hermitian:
        return ldl_solved(LD, pivots, g, True)
    return conj(ldl_solved(LD, pivots, conj(g)))


ldl_solved = define(
    "ldl_solved",
    complex="stated",
    bind=bind_ldl_solve,
    reference=reference_ldl_solve,
    infer=infer_ldl_solve,
    grad=(None, None, grad_ldl_solve),
    lower=LAPACK,
    traits=Traits(refuses=True),
    samples=lambda: [
        sample((0, 0), Operand((0,), 1, 2, category="int"), (0, 2)),
        sample(Operand((2, 2), 1.0, 2.0), Operand((2,), 1, 2, category="int"), (2, 3)),
        sample(Operand((2, 1, 1), 1.0, 2.0), Operand((2, 1), 1, 2, category="int"), (1, 3)),
        sample(Operand((1, 1), 1.0, 2.0), Operand((1,), 1, 2, category="int"), (1, 2), hermitian=True),
    ],
    inapplicable=MATRIX,
    dtypes="float",
    method=False,
)


@composite(method=False)
def linalg_ldl_solve(LD, pivots, B, *, hermitian=False):
    """Solve A @ X = B by the factors that linalg_ldl_factor gives of A.

    hermitian: as linalg_ldl_factor was told.  Shapes: [..., n, n], [..., n], [..., n, k] -> [..., n, k].
    The gradient goes to B alone.
    """
    return ldl_solved(LD, pivots, B, hermitian)
