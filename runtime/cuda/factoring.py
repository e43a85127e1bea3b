"""What is factored, inverted and solved on a GPU: by cuSOLVER and cuBLAS, where they are installed.

The libraries have matrices by columns and work in place, so each op works on copies, in whose memory the last
dimension goes down a column; a matrix that lies by rows is its transpose to them, which is used where it
saves a copy.  A batch of small matrices is one call where there is such a routine, else one for each matrix,
one behind the other.  What a routine has to say of a matrix
(singular, not definite, not converged) is looked at where the op raises for it, once for all of a batch: the
host waits there, and nowhere else here.

Complex numbers have no kernels: what is done around the routines is done to their parts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...ir.errors import ArgumentValueError, LinAlgError
from ...ir.op import Op
from ...ir.ops.linalg import said_of
from ...ir.types import Type
from ..on_device import OnDevice, as_view, plain, transposed
from ..places import here, spell
from . import solver
from .by_hand import result_of
from .eager import allocated, brought, cast, copied, dense, fetched, noted, uploaded, write
from .machine import Machine
from .solver import ADJOINT, ALL, LOWER, NORMAL, RIGHT, SOME, TRANSPOSED, UPPER, VECTORS, calls
from .strided import copy_between

MOST = (1 << 31) - 1  # elements of a matrix, whose places the libraries' ints count
SMALL = 256  # rows up to which a batch of matrices is one call: a guess, which no device has measured
_INT = np.dtype(np.int32)
Made = tuple[OnDevice, ...]


def kernel(
    op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any], at: Machine
) -> Callable[..., Any] | None:
    """What runs an op on a device's arrays; None without the libraries, and for what they don't take."""
    if solver.missing(at) is not None or not _are_taken(op.name, types, attrs):
        return None
    if any(t is not None and not t.size for t in types):
        return partial(_of_nothing, at, op, types, attrs)
    made = _OPS[op.name]
    return lambda *arrays: made(at, *[brought(at, x) for x in arrays], **attrs)


def advice(at: Machine) -> str:
    """What would have these ops done on the device, as the end of a sentence."""
    reason = solver.missing(at)
    if reason is None or at.device.driver.vendor.interface != "CUDA":
        return ""
    return f"; NVIDIA's cuSOLVER would do it there, and {reason}: pip install 'lamina[gpu-linalg]'"


def _are_taken(name: str, types: Sequence[Type | None], attrs: Mapping[str, Any]) -> bool:
    if name == "pivoted_order":
        (pivots,) = types
        return pivots is not None and pivots.shape[-1] <= attrs["size"] <= MOST // max(attrs["size"], 1)
    matrices = [t for t in types if t is not None and t.dtype.category != "bool"]
    kind = matrices[0].dtype
    whole = attrs.get("full_matrices") or attrs.get("mode") == "complete"
    return (
        all(t.dtype is kind for t in matrices)
        and kind.numpy.str[1:] in solver.LETTERS
        and all(prod(_square(t.shape) if whole else t.shape[-2:]) <= MOST for t in matrices)
    )


def _square(shape: Sequence[int]) -> tuple[int, int]:
    return (max(shape[-2:]),) * 2


def _of_nothing(
    at: Machine, op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any], *_: OnDevice
) -> Any:
    """The results where an operand has no elements: none, or what the host has without looking at any."""
    outs = op.infer(*types, **attrs)
    outs = outs if isinstance(outs, tuple) else (outs,)
    if any(t.size for t in outs):
        found = op.reference(*[t and np.zeros(t.shape, t.dtype.numpy) for t in types], **attrs)
        made = [uploaded(at, np.asarray(x)) for x in (found if isinstance(found, tuple) else (found,))]
    else:
        made = [allocated(at, t.shape, t.dtype.numpy) for t in outs]
    return tuple(made) if len(made) > 1 else made[0]


# ---- how matrices lie
def _turned(x: OnDevice) -> OnDevice:
    """The view with the last two dimensions exchanged."""
    return transposed(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _by_columns(x: OnDevice) -> OnDevice:
    """A copy of matrices [..., m, n] as the libraries have them: [..., n, m], row by row.

    The same makes [..., m, n] of theirs.
    """
    return copied(_turned(x))


def _viewed(x: OnDevice, of: np.ndarray) -> OnDevice:
    found = as_view(x, of)
    assert found is not None
    return found


def _spread(x: OnDevice, lead: tuple[int, ...]) -> OnDevice:
    """The view with those dimensions in front of the matrix."""
    return _viewed(x, np.broadcast_to(plain(x), (*lead, *x.shape[-2:])))


def _place(x: OnDevice, number: int, size: int) -> int:
    """The address of one of a batch's parts, of so many elements."""
    return x.address + number * size * x.itemsize


def _parts(x: OnDevice) -> list[OnDevice]:
    """An array, or of complex numbers the real parts and the imaginary ones, as views."""
    if x.dtype.kind != "c":
        return [x]
    whole = plain(x)
    return [_viewed(x, whole.real), _viewed(x, whole.imag)]


def _of_parts(at: Machine, dtype: np.dtype, parts: Sequence[OnDevice]) -> OnDevice:
    """The array with those parts."""
    if dtype.kind != "c":
        return parts[0]
    made = allocated(at, parts[0].shape, dtype)
    for source, target in zip(parts, _parts(made), strict=True):
        copy_between(source, target)
    return made


def _by_parts(at: Machine, x: OnDevice, function: Callable[[OnDevice], OnDevice]) -> OnDevice:
    return _of_parts(at, x.dtype, [function(part) for part in _parts(x)])


def _triangle(at: Machine, x: OnDevice, upper: bool) -> OnDevice:
    """A copy with zeros in the other triangle."""
    name = "triu" if upper else "tril"
    return _by_parts(at, x, lambda part: result_of(name, part))


def _identity(at: Machine, lead: tuple[int, ...], n: int, dtype: np.dtype) -> OnDevice:
    made = allocated(at, (*lead, n, n), dtype)
    at.use()
    at.stream.fill(made.address, 0, made.nbytes)
    real = _parts(made)[0]
    write(_viewed(real, np.diagonal(plain(real), 0, -2, -1)), brought(at, np.ones((), real.dtype)))
    return made


def _batch(x: OnDevice) -> range:
    return range(prod(x.shape[:-2]))


def _is_one_call(x: OnDevice) -> bool:
    """Whether there are several matrices, and so small that a routine for batches is taken."""
    return len(_batch(x)) > 1 and x.shape[-2] == x.shape[-1] <= SMALL


def _addresses(at: Machine, x: OnDevice, of: Sequence[int]) -> OnDevice:
    """The addresses of a batch's matrices, by their numbers, on the device."""
    size = prod(x.shape[-2:])
    return uploaded(at, np.array([_place(x, i, size) for i in of], np.int64))


def _spread_over(a: OnDevice, lead: tuple[int, ...]) -> list[int]:
    """For each matrix of a batch of that shape, which of a batch that spreads over it belongs to it."""
    return np.broadcast_to(np.arange(len(_batch(a))).reshape(a.shape[:-2]), lead).ravel().tolist()


def _work(at: Machine, name: str, dtype: np.dtype, *values: int) -> tuple[int, OnDevice]:
    """Memory that a routine works in: how many elements, and they."""
    room = calls(at).size(name, dtype, *values)
    return room, allocated(at, (room,), dtype)


def _refuse(info: OnDevice, op: str, said: str) -> None:
    """Raise LinAlgError where a routine has found something to say: the host waits for it."""
    if fetched(info).any():
        raise LinAlgError(f"{op}: {said_of(said)}")


# ---- LU
def _lu(at: Machine, a: OnDevice) -> Made:
    """Factor matrices that lie by columns in place: pivots, and what is said of each."""
    n, m = a.shape[-2:]
    least, lead = min(m, n), a.shape[:-2]
    pivots, info = allocated(at, (*lead, least), _INT), allocated(at, lead, _INT)
    queue = calls(at).queue
    if _is_one_call(a):
        each = _addresses(at, a, _batch(a))
        queue("getrfBatched", a.dtype, n, each.address, n, pivots.address, info.address, len(_batch(a)))
        return pivots, info
    _, work = _work(at, "getrf", a.dtype, m, n, a.address, m)
    for i in _batch(a):
        queue(
            "getrf", a.dtype, m, n, _place(a, i, m * n), m, work.address, _place(pivots, i, least),
            _place(info, i, 1),
        )  # fmt: skip
    return pivots, info


def _lu_solved(at: Machine, how: int, a: OnDevice, pivots: OnDevice, b: OnDevice) -> None:
    """Solve equations by the factors of their matrices, in place of b; both lie by columns.

    The batch of a spreads over that of b.
    """
    k, n = b.shape[-2:]
    queue = calls(at).queue
    if _is_one_call(a) and a.shape[:-2] == b.shape[:-2]:
        left, right = (_addresses(at, x, _batch(x)) for x in (a, b))
        refused = ctypes.c_int()  # which argument was none: the status says that one was
        queue(
            "getrsBatched", b.dtype, how, n, k, left.address, n, pivots.address, right.address, n,
            ctypes.byref(refused), len(_batch(a)),
        )  # fmt: skip
        return
    info = allocated(at, (), _INT)
    for i, j in enumerate(_spread_over(a, b.shape[:-2])):
        queue(
            "getrs", b.dtype, how, n, k, _place(a, j, n * n), n, _place(pivots, j, n), _place(b, i, n * k), n,
            info.address,
        )  # fmt: skip


def _lu_factor(at: Machine, A: OnDevice) -> Made:
    a = _by_columns(A)
    pivots, _ = _lu(at, a)
    return _by_columns(a), pivots


def _inv(at: Machine, A: OnDevice) -> OnDevice:
    a = _by_columns(A)
    pivots, info = _lu(at, a)
    _refuse(info, "linalg_inv", "Singular matrix")
    made = _identity(at, A.shape[:-2], A.shape[-1], A.dtype)
    _lu_solved(at, TRANSPOSED, a, pivots, made)  # the transpose of the inverse by columns: itself by rows
    return made


def _solve(at: Machine, A: OnDevice, B: OnDevice, *, regular: bool) -> OnDevice:
    a = _by_columns(A)
    pivots, info = _lu(at, a)
    if not regular:
        _refuse(info, "linalg_solve", "Singular matrix")
    b = _by_columns(_spread(B, np.broadcast_shapes(A.shape[:-2], B.shape[:-2])))
    _lu_solved(at, NORMAL, a, pivots, b)
    return _by_columns(b)


def _slogdet(at: Machine, A: OnDevice) -> Made:
    """Of each determinant the sign, and the logarithm of what it measures."""
    diagonal, odd = _diagonal_of_lu(at, A)
    if A.dtype.kind != "c":
        (x,) = diagonal
        signs = result_of("where", result_of("eq", x, 0.0), 0.0, brought(at, np.ones((), x.dtype)))
        signs = result_of("where", result_of("lt", x, 0.0), -1.0, signs)
        return result_of("mul", result_of("prod", signs, -1), odd), _sum_of_logs(result_of("abs", x))
    sizes = _magnitude(*diagonal)
    over = result_of("where", result_of("eq", sizes, 0.0), 1.0, sizes)
    turns = [result_of("div", x, over) for x in diagonal]
    sign = [result_of("mul", x, odd) for x in _product(turns)]
    return _of_parts(at, A.dtype, sign), _sum_of_logs(sizes)


def _det(at: Machine, A: OnDevice) -> OnDevice:
    """As NumPy has it, whose products do not overflow on the way."""
    sign, logarithm = _slogdet(at, A)
    size = result_of("exp", logarithm)
    return _by_parts(at, sign, lambda part: result_of("mul", part, size))


def _diagonal_of_lu(at: Machine, A: OnDevice) -> tuple[list[OnDevice], OnDevice]:
    """The parts of U's diagonal, and -1 for an odd number of exchanges of rows, else 1."""
    a = _by_columns(A)
    pivots, _ = _lu(at, a)
    parts = [copied(_viewed(x, np.diagonal(plain(x), 0, -2, -1))) for x in _parts(a)]
    n = A.shape[-1]
    stays = result_of("eq", pivots, uploaded(at, np.arange(1, n + 1, dtype=_INT)))
    signs = result_of("where", stays, brought(at, np.ones((), parts[0].dtype)), -1.0)
    return parts, result_of("prod", signs, -1)


def _sum_of_logs(sizes: OnDevice) -> OnDevice:
    return result_of("sum", result_of("log", sizes), -1)


def _magnitude(real: OnDevice, imaginary: OnDevice) -> OnDevice:
    return result_of("hypot", real, imaginary)


def _product(parts: list[OnDevice]) -> list[OnDevice]:
    """Complex numbers [..., n] multiplied by pairs, until one is left of each row: [...]."""
    while (n := parts[0].shape[-1]) > 1:
        half = n // 2
        a, b = (_stretch(x, 0, half) for x in parts)
        c, d = (_stretch(x, half, 2 * half) for x in parts)
        made = [
            result_of("sub", result_of("mul", a, c), result_of("mul", b, d)),
            result_of("add", result_of("mul", a, d), result_of("mul", b, c)),
        ]
        if n % 2:
            rest = [_stretch(x, n - 1, n) for x in parts]
            made = [result_of("cat", [x, y], -1) for x, y in zip(made, rest, strict=True)]
        parts = made
    return [result_of("squeeze", x, -1) for x in parts]


def _stretch(x: OnDevice, low: int, high: int) -> OnDevice:
    return _viewed(x, plain(x)[..., low:high])


def _pivoted_order(at: Machine, pivots: OnDevice, *, size: int) -> OnDevice:
    """The places 0 to size - 1 exchanged as rows of a right side are, whose matrix is 1.

    Pivots that name no row are found on the device: the error comes where the host waits next.
    """
    lead, k = pivots.shape[:-1], pivots.shape[-1]
    wrong = result_of("bitwise_or", result_of("lt", pivots, 1), result_of("gt", pivots, size))
    place = here()

    def error() -> Exception:
        rule = f"lu_unpack: pivots must lie in [1, {size}]"
        return ArgumentValueError(rule, f"asked for at {spell(place)}")

    noted(at, result_of("any", wrong).memory, error)
    line = np.arange(1, size + 1)
    all_of_them = allocated(at, (*lead, 1, size), _INT)
    write(all_of_them, uploaded(at, line.astype(_INT)))
    kept = cast(result_of("clamp", pivots, 1, size), _INT)
    write(_viewed(all_of_them, plain(all_of_them)[..., 0, :k]), kept)
    places = allocated(at, (*lead, 1, size), np.dtype(np.float64))
    write(places, uploaded(at, line - 1.0))
    one = _identity(at, (), size, places.dtype)
    info = allocated(at, (), _INT)
    for i in _batch(places):
        calls(at).queue(
            "getrs", places.dtype, NORMAL, size, 1, one.address, size, _place(all_of_them, i, size),
            _place(places, i, size), size, info.address,
        )  # fmt: skip
    return result_of("squeeze", cast(places, np.dtype(np.int64)), -2)


# ---- Cholesky
def _cholesky_in_place(at: Machine, x: OnDevice, upper: bool) -> OnDevice:
    """Factor matrices that lie by rows; what is said of each.

    A lower triangle by rows is an upper one by columns, of the conjugate matrix: so is its factor.
    """
    n, info = x.shape[-1], allocated(at, x.shape[:-2], _INT)
    fill = LOWER if upper else UPPER
    if _is_one_call(x):
        each = _addresses(at, x, _batch(x))
        calls(at).queue("potrfBatched", x.dtype, fill, n, each.address, n, info.address, len(_batch(x)))
        return info
    room, work = _work(at, "potrf", x.dtype, fill, n, x.address, n)
    for i in _batch(x):
        calls(at).queue(
            "potrf", x.dtype, fill, n, _place(x, i, n * n), n, work.address, room, _place(info, i, 1)
        )
    return info


def _mean(at: Machine, x: OnDevice) -> OnDevice:
    """Half of each matrix and its adjoint, as one that nobody else has."""
    signs = ("add", "sub")
    parts = [
        result_of("mul", result_of(name, part, _turned(part)), 0.5)
        for name, part in zip(signs, _parts(x), strict=False)
    ]
    return _of_parts(at, x.dtype, parts)


def _cholesky(at: Machine, input: OnDevice, *, upper: bool) -> OnDevice:
    x = _mean(at, input)
    _refuse(_cholesky_in_place(at, x, upper), "linalg_cholesky", "Matrix is not positive definite")
    return _triangle(at, x, upper)


def _cholesky_parts(at: Machine, input: OnDevice, *, upper: bool) -> Made:
    x = copied(input)
    info = _cholesky_in_place(at, x, upper)
    fine = result_of("eq", _viewed(info, plain(info)[..., None, None]), 0)
    made = _triangle(at, x, upper)
    return _by_parts(at, made, lambda part: result_of("where", fine, part, float("nan"))), info


def _cholesky_solve(at: Machine, input: OnDevice, input2: OnDevice, *, upper: bool) -> OnDevice:
    made = copied(_spread(input, np.broadcast_shapes(input.shape[:-2], input2.shape[:-2])))
    factor = dense(input2)
    for how in (ADJOINT, NORMAL) if upper else (NORMAL, ADJOINT):
        _triangle_solved(at, factor, made, upper, how)
    return made


def _cholesky_inverse(at: Machine, L: OnDevice, *, upper: bool) -> OnDevice:
    zeros = [result_of("eq", _viewed(x, np.diagonal(plain(x), 0, -2, -1)), 0.0) for x in _parts(L)]
    zero = zeros[0] if len(zeros) == 1 else result_of("bitwise_and", *zeros)
    if fetched(result_of("any", zero)):
        raise LinAlgError("cholesky_inverse(L): L is singular: a zero stands on its diagonal")
    return _cholesky_solve(at, _identity(at, L.shape[:-2], L.shape[-1], L.dtype), L, upper=upper)


# ---- triangles
def _triangle_solved(at: Machine, a: OnDevice, b: OnDevice, upper: bool, how: int = NORMAL) -> None:
    """Solve A @ X = B, or A.mH @ X = B for ADJOINT, in place of B; both lie by rows.

    By columns these are X.mT @ A.mT = B.mT, with what is A.mT there, and X.mT @ A.conj() = B.mT.
    The batch of a spreads over that of b.
    """
    n, k = b.shape[-2:]
    one: Any = (ctypes.c_double * 2)(1.0, 0.0)
    if b.dtype.itemsize // len(_parts(b)) == 4:
        one = (ctypes.c_float * 2)(1.0, 0.0)
    given = RIGHT, LOWER if upper else UPPER, how, 0, k, n, ctypes.byref(one)
    of, queue = _spread_over(a, b.shape[:-2]), calls(at).queue
    if len(of) > 1 and n <= SMALL:
        left, right = _addresses(at, a, of), _addresses(at, b, _batch(b))
        queue("trsmBatched", b.dtype, *given, left.address, n, right.address, k, len(of))
        return
    for i, j in enumerate(of):
        queue("trsm_v2", b.dtype, *given, _place(a, j, n * n), n, _place(b, i, n * k), k)


def _solve_triangle(at: Machine, A: OnDevice, B: OnDevice, *, upper: bool) -> OnDevice:
    made = copied(_spread(B, np.broadcast_shapes(A.shape[:-2], B.shape[:-2])))
    _triangle_solved(at, dense(A), made, upper)
    return made


# ---- QR
def _reflected(at: Machine, A: OnDevice) -> Made:
    """What geqrf leaves, by columns, and the factors of the reflections."""
    m, n = A.shape[-2:]
    a, least = _by_columns(A), min(m, n)
    tau, info = allocated(at, (*A.shape[:-2], least), A.dtype), allocated(at, (), _INT)
    room, work = _work(at, "geqrf", a.dtype, m, n, a.address, m)
    for i in _batch(a):
        calls(at).queue(
            "geqrf", a.dtype, m, n, _place(a, i, m * n), m, _place(tau, i, least), work.address, room,
            info.address,
        )  # fmt: skip
    return a, tau


def _geqrf(at: Machine, input: OnDevice) -> Made:
    a, tau = _reflected(at, input)
    return _by_columns(a), tau


def _qr(at: Machine, A: OnDevice, *, mode: str) -> Made:
    (m, n), lead = A.shape[-2:], A.shape[:-2]
    a, tau = _reflected(at, A)
    least = min(m, n)
    count = m if mode == "complete" else least
    packed = _turned(a)
    r = _triangle(at, copied(_viewed(packed, plain(packed)[..., :count, :])), True)
    if mode == "r":
        return allocated(at, (0,), A.dtype), r
    q = a
    if count != n:
        q = allocated(at, (*lead, count, m), A.dtype)
        copy_between(*(_viewed(x, plain(x)[..., :least, :]) for x in (a, q)))
    info = allocated(at, (), _INT)
    room, work = _work(at, "orgqr", q.dtype, m, count, least, q.address, m, tau.address)
    for i in _batch(q):
        calls(at).queue(
            "orgqr", q.dtype, m, count, least, _place(q, i, m * count), m, _place(tau, i, least),
            work.address, room, info.address,
        )  # fmt: skip
    return _by_columns(q), r


# ---- eigenvalues, singular values
def _eigen(at: Machine, A: OnDevice, lower: bool) -> Made:
    """Eigenvalues, eigenvectors by columns, and what is said of each matrix."""
    a, n = _by_columns(A), A.shape[-1]
    values, info = allocated(at, A.shape[:-1], _parts(a)[0].dtype), allocated(at, A.shape[:-2], _INT)
    given = VECTORS, LOWER if lower else UPPER, n
    room, work = _work(at, "syevd", a.dtype, *given, a.address, n, values.address)
    for i in _batch(a):
        calls(at).queue(
            "syevd", a.dtype, *given, _place(a, i, n * n), n, _place(values, i, n), work.address, room,
            _place(info, i, 1),
        )  # fmt: skip
    return values, a, info


def _eigh(at: Machine, A: OnDevice, *, UPLO: str, op: str = "linalg_eigh") -> Made:
    values, vectors, info = _eigen(at, A, UPLO == "L")
    _refuse(info, op, "Eigenvalues did not converge")
    return values, _by_columns(vectors)


def _svd(at: Machine, A: OnDevice, *, full_matrices: bool, op: str = "linalg_svd") -> Made:
    """By gesvd, which takes no matrix with fewer rows than columns: of such a one by rows it gets the
    transpose, whose left vectors by columns are the right ones by rows.
    """
    (m, n), lead = A.shape[-2:], A.shape[:-2]
    wide = m < n
    a, m, n = (copied(A), n, m) if wide else (_by_columns(A), m, n)
    count = m if full_matrices else n
    left, right = allocated(at, (*lead, count, m), A.dtype), allocated(at, (*lead, n, n), A.dtype)
    real = _parts(a)[0].dtype
    values, info = allocated(at, (*lead, n), real), allocated(at, lead, _INT)
    room, work = _work(at, "gesvd", a.dtype, m, n)
    rest = allocated(at, (5 * n,), real)
    job = ALL if full_matrices else SOME
    for i in _batch(a):
        calls(at).queue(
            "gesvd", a.dtype, job, job, m, n, _place(a, i, m * n), m, _place(values, i, n),
            _place(left, i, m * count), m, _place(right, i, n * n), n, work.address, room, rest.address,
            _place(info, i, 1),
        )  # fmt: skip
    _refuse(info, op, "SVD did not converge")
    return (right, values, left) if wide else (_by_columns(left), values, _by_columns(right))


def _pseudo_inverse(at: Machine, A: OnDevice, counts: OnDevice, *, hermitian: bool) -> OnDevice:
    """(Vh.mH * inverse) @ U.mH, where inverse is 1 / S as far as it counts."""
    if hermitian:
        values, vectors, info = _eigen(at, A, True)
        _refuse(info, "linalg_pinv", "Eigenvalues did not converge")
        back = vectors  # by columns these are the rows of the transpose: U.mT, and Vh but for signs
        right = [_turned(x) for x in _parts(back)]
    else:
        u, values, vh = _svd(at, A, full_matrices=False, op="linalg_pinv")
        back = _turned(u)
        right = [_turned(x) for x in _parts(vh)]
        if len(right) == 2:
            right[1] = result_of("neg", right[1])
    left = _parts(back)
    if len(left) == 2:
        left[1] = result_of("neg", left[1])
    each = result_of("where", counts, result_of("where", counts, values, 1.0), 1.0)
    inverse = result_of("where", counts, result_of("reciprocal", each), 0.0)
    scale = _viewed(inverse, plain(inverse)[..., None, :])
    right = [result_of("mul", x, scale) for x in right]
    if len(left) == 1:
        return result_of("matmul", right[0], left[0])
    (a, b), (c, d) = right, left

    def products(name: str, x: OnDevice, y: OnDevice, z: OnDevice, w: OnDevice) -> OnDevice:
        return result_of(name, result_of("matmul", x, y), result_of("matmul", z, w))

    return _of_parts(at, A.dtype, [products("sub", a, c, b, d), products("add", a, d, b, c)])


_OPS: dict[str, Callable[..., Any]] = {
    "linalg_cholesky": _cholesky,
    "cholesky_parts": _cholesky_parts,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "solve_matrix": _solve,
    "solve_triangle": _solve_triangle,
    "linalg_inv": _inv,
    "linalg_det": _det,
    "linalg_slogdet": _slogdet,
    "linalg_lu_factor": _lu_factor,
    "pivoted_order": _pivoted_order,
    "linalg_qr": _qr,
    "geqrf": _geqrf,
    "linalg_eigh": _eigh,
    "linalg_svd": _svd,
    "pseudo_inverse": _pseudo_inverse,
}
