"""What the fake of cuSOLVER and cuBLAS (fake_solver.c) computes when a stream has come to it: by SciPy.

It does the worst that the documentation allows: a workspace is filled with NaN, and so is what gesvd leaves
of its matrix, and the triangle beside a Cholesky factor.  Every array must lie within blocks that were in use
when the call was queued.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fake_cuda import Fake, Launch
from scipy.linalg import lapack, solve_triangular

DTYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
Blocks = Sequence[tuple[int, int]]


def is_routine(name: str) -> bool:
    return name[:1] in DTYPES and name[1:] in _ROUTINES


def run(launch: Launch, blocks: Blocks, fake: Fake) -> None:
    """Do what a call was queued for.  blocks: address and size of the memory that it may touch."""
    values = [value for (value,) in struct.iter_unpack("<q", launch.parameters)]
    _ROUTINES[launch.name[1:]](_Memory(np.dtype(DTYPES[launch.name[0]]), blocks, fake), *values)


class _Memory:
    """The device's memory as arrays: what lies outside of the blocks is refused, and what is used is told."""

    def __init__(self, dtype: np.dtype, blocks: Blocks, fake: Fake):
        self.dtype, self._blocks, self._fake = dtype, blocks, fake
        self.real = np.dtype(np.float32 if dtype.char in "fF" else np.float64)

    def matrix(self, address: int, m: int, n: int, stride: int, writes: bool = True) -> np.ndarray:
        """m x n elements by columns."""
        line = self.line(address, stride * (n - 1) + m if n else 0, self.dtype, writes)
        return np.lib.stride_tricks.as_strided(line, (m, n), (line.itemsize, stride * line.itemsize))

    def line(self, address: int, count: int, dtype: Any, writes: bool = True) -> np.ndarray:
        dtype = np.dtype(dtype)
        nbytes = count * dtype.itemsize
        end = address + nbytes
        if nbytes and not any(start <= address and end <= start + size for start, size in self._blocks):
            raise AssertionError(f"{count} x {dtype} at {address:#x} lie outside of what is allocated")
        found = np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)
        places = np.arange(address, end, min(dtype.itemsize, 8), dtype=np.uint64)
        self._fake.touched(places, min(dtype.itemsize, 8), writes)
        return found

    def spoil(self, address: int, count: int) -> None:
        if not count:  # of a batch: it works in memory of its own
            return
        self.line(address, count, self.dtype)[:] = np.nan

    def routine(self, name: str) -> Callable[..., Any]:
        (found,) = lapack.get_lapack_funcs((name,), dtype=self.dtype)
        return found

    def tell(self, address: int, info: int) -> None:
        assert info >= 0, f"argument {-info} of a routine is none"
        if address:
            self.line(address, 1, np.int32)[0] = info


def _potrf(at: _Memory, uplo: int, n: int, a: int, lda: int, work: int, room: int, info: int) -> None:
    matrix = at.matrix(a, n, n, lda)
    factor, said = at.routine("potrf")(matrix, lower=uplo == 0, clean=0)
    beside = np.triu_indices(n, 1) if uplo == 0 else np.tril_indices(n, -1)
    matrix[...] = factor
    matrix[beside] = np.nan
    at.spoil(work, room)
    at.tell(info, said)


def _getrf(
    at: _Memory, m: int, n: int, a: int, lda: int, work: int, room: int, pivots: int, info: int
) -> None:
    matrix = at.matrix(a, m, n, lda)
    matrix[...], found, said = at.routine("getrf")(matrix)
    at.line(pivots, min(m, n), np.int32)[:] = found + 1
    at.spoil(work, room)
    at.tell(info, said)


def _getrs(
    at: _Memory, how: int, n: int, k: int, a: int, lda: int, pivots: int, b: int, ldb: int, info: int
) -> None:
    right, swaps = at.matrix(b, n, k, ldb), at.line(pivots, n, np.int32, False)
    assert n == 0 or (swaps.min() >= 1 and swaps.max() <= n), swaps
    with np.errstate(all="ignore"):
        right[...], said = at.routine("getrs")(at.matrix(a, n, n, lda, False), swaps - 1, right, trans=how)
    at.tell(info, said)


def _geqrf(at: _Memory, m: int, n: int, a: int, lda: int, tau: int, work: int, room: int, info: int) -> None:
    matrix = at.matrix(a, m, n, lda)
    matrix[...], factors, _, said = at.routine("geqrf")(matrix)
    at.line(tau, min(m, n), at.dtype)[:] = factors
    at.spoil(work, room)
    at.tell(info, said)


def _orgqr(
    at: _Memory, m: int, n: int, k: int, a: int, lda: int, tau: int, work: int, room: int, info: int
) -> None:
    matrix, factors = at.matrix(a, m, n, lda), at.line(tau, k, at.dtype, False)
    matrix[:, k:] = 0  # not read, and SciPy looks at all of it
    name = "ungqr" if at.dtype.kind == "c" else "orgqr"
    matrix[...], _, said = at.routine(name)(matrix, factors)
    at.spoil(work, room)
    at.tell(info, said)


def _syevd(at: _Memory, uplo: int, n: int, a: int, lda: int, w: int, work: int, room: int, info: int) -> None:
    matrix = at.matrix(a, n, n, lda)
    name = "heevd" if at.dtype.kind == "c" else "syevd"
    at.line(w, n, at.real)[:], matrix[...], said = at.routine(name)(matrix, lower=uplo == 0)
    at.spoil(work, room)
    at.tell(info, said)


def _gesvd(
    at: _Memory, job: int, m: int, n: int, a: int, lda: int, s: int, u: int, ldu: int, vt: int, ldvt: int,
    work: int, room: int, rest: int, info: int,
) -> None:  # fmt: skip
    matrix = at.matrix(a, m, n, lda)
    whole = job == ord("A")
    left, values, right, said = at.routine("gesvd")(matrix, full_matrices=whole)
    at.matrix(u, m, m if whole else n, ldu)[...] = left
    at.matrix(vt, n, n, ldvt)[...] = right
    at.line(s, n, at.real)[:] = values
    at.line(rest, max(n - 1, 0), at.real)[:] = np.nan
    matrix[...] = np.nan
    at.spoil(work, room)
    at.tell(info, said)


def _trsm(
    at: _Memory, side: int, uplo: int, how: int, unit: int, m: int, n: int, a: int, lda: int, b: int, ldb: int
) -> None:
    right = at.matrix(b, m, n, ldb)
    ours = n if side else m
    matrix = at.matrix(a, ours, ours, lda, False)
    matrix = np.triu(matrix) if uplo else np.tril(matrix)
    with np.errstate(all="ignore"):
        right[...] = _substituted(matrix, right, side, uplo, how, bool(unit))


def _substituted(a: np.ndarray, b: np.ndarray, side: int, uplo: int, how: int, unit: bool) -> np.ndarray:
    a = (a, a.T, a.T.conj())[how]
    lower = (uplo == 0) == (how == 0)
    if side:
        return _substituted_left(a.T, b.T, not lower, unit).T
    return _substituted_left(a, b, lower, unit)


def _substituted_left(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    if unit or np.diagonal(a).all():
        return solve_triangular(a, b, lower=lower, unit_diagonal=unit, check_finite=False)
    out = np.array(b)
    for i in range(len(a)) if lower else reversed(range(len(a))):
        out[i] /= a[i, i]
        rest = slice(i + 1, None) if lower else slice(0, i)
        out[rest] -= a[rest, i, None] * out[i]
    return out


def _potrf_batched(at: _Memory, uplo: int, n: int, each: int, lda: int, info: int, count: int) -> None:
    for i, a in enumerate(at.line(each, count, np.int64, False).tolist()):
        _potrf(at, uplo, n, a, lda, 0, 0, info + 4 * i)


def _getrf_batched(at: _Memory, n: int, each: int, lda: int, pivots: int, info: int, count: int) -> None:
    for i, a in enumerate(at.line(each, count, np.int64, False).tolist()):
        _getrf(at, n, n, a, lda, 0, 0, pivots + 4 * n * i, info + 4 * i)


def _getrs_batched(
    at: _Memory, how: int, n: int, k: int, each: int, lda: int, pivots: int, right: int, ldb: int, count: int
) -> None:
    pairs = zip(*(at.line(x, count, np.int64, False).tolist() for x in (each, right)), strict=True)
    for i, (a, b) in enumerate(pairs):
        _getrs(at, how, n, k, a, lda, pivots + 4 * n * i, b, ldb, 0)


def _trsm_batched(
    at: _Memory, side: int, uplo: int, how: int, unit: int, m: int, n: int, each: int, lda: int, right: int,
    ldb: int, count: int,
) -> None:  # fmt: skip
    for a, b in zip(*(at.line(x, count, np.int64, False).tolist() for x in (each, right)), strict=True):
        _trsm(at, side, uplo, how, unit, m, n, a, lda, b, ldb)


_ROUTINES: dict[str, Callable[..., None]] = {
    "potrf": _potrf, "getrf": _getrf, "getrs": _getrs, "geqrf": _geqrf, "orgqr": _orgqr, "syevd": _syevd,
    "gesvd": _gesvd, "trsm_v2": _trsm, "potrfBatched": _potrf_batched, "getrfBatched": _getrf_batched,
    "getrsBatched": _getrs_batched, "trsmBatched": _trsm_batched,
}  # fmt: skip
