"""Linear algebra on tensors of a device, by stand-ins for cuSOLVER and cuBLAS on the fake driver: results,
errors and gradients beside the CPU's, waits, and what goes to the host.

No real library was called: what the stand-ins take is what NVIDIA's documentation and header say.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import BLAS, SOLVER, Fake, case, library, missing, on_fake, run, run_case

import lamina
from lamina import linalg
from lamina.ir.errors import ArgumentValueError, DeviceError, LinAlgError
from lamina.ir.op import REGISTRY
from lamina.runtime.cuda import solver
from lamina.runtime.cuda.by_hand import FACTORING, MODULES
from lamina.runtime.cuda.factoring import SMALL
from lamina.runtime.cuda.machine import machine

pytest.importorskip(
    "scipy", reason="the stand-ins call SciPy, which is not installed: the extra scipy has it"
)

REAL, COMPLEX = (lamina.float32, lamina.float64), (lamina.complex64, lamina.complex128)
on_solver = on_fake(solver=1, capacity=256 << 20)


class Beside:
    """Calls on a device, beside the CPU's: what ran, and how often the host waited for the results."""

    def __init__(self, fake: Fake):
        from cuda_interpreting import interpret_launches

        self.ran, self.fake = interpret_launches(fake), fake
        warnings.simplefilter("error")  # that an op goes through the host is one

    def waits(self) -> int:
        """For a stream, or now and then for the device, to unload kernels."""
        return self.fake.calls("cuStreamSynchronize") + self.fake.calls("cuCtxSynchronize")

    def __call__(self, function: Callable, *given: Any, tolerance: float = 1.0) -> int:
        """Compare; return how often the host waited."""
        wanted = function(*given)
        there = [x.cuda() for x in given]
        lamina.cuda.synchronize()
        self.ran.clear()
        before = self.waits(), self.fake.calls("cuMemcpyDtoHAsync")
        found = function(*there)
        waits, copies = self.waits() - before[0], self.fake.calls("cuMemcpyDtoHAsync") - before[1]
        assert waits == copies, "the host waits to read what a routine says, and for nothing else"
        lamina.cuda.synchronize()
        for x, y in zip(*(z if isinstance(z, tuple) else (z,) for z in (found, wanted)), strict=True):
            near(x, y, tolerance)
        return waits


def near(found: Any, wanted: Any, tolerance: float = 1.0) -> None:
    assert found.is_cuda and (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (found, wanted)
    x, y = found.detach().cpu().numpy(), wanted.detach().numpy()
    # matrices of condition 10^2 at most, of some twenty rows: n roundings, times that
    eps = np.finfo(y.dtype).eps if y.dtype.kind in "fc" else 0
    scale = np.max(np.abs(y), initial=1.0, where=np.isfinite(y))
    np.testing.assert_allclose(x, y, rtol=0, atol=4000 * eps * scale * tolerance, equal_nan=True)


def matrix(dtype: Any, *shape: int) -> Any:
    """One of a condition that is small: elements of a normal distribution, and more on the diagonal."""
    x = lamina.randn(*shape, dtype=dtype)
    return x + 3 * lamina.eye(*shape[-2:], dtype=dtype)


def definite(dtype: Any, *shape: int) -> Any:
    x = lamina.randn(*shape, dtype=dtype)
    return x @ x.mH + lamina.eye(shape[-1], dtype=dtype)


def kinds(x: Any) -> Any:
    """The same values lying in other ways; of other types than float32 two, for the sake of time."""
    yield x.mT.contiguous().mT
    if x.dtype is not lamina.float32:
        return
    yield x
    wide = lamina.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    yield wide[..., ::2]


# ---- results
@on_solver
def test_equations_are_solved_on_the_device(fake: Fake):
    beside = Beside(fake)
    lamina.manual_seed(0)
    for dtype in (*REAL, *COMPLEX):
        leads = (((2, 3), (1, 3)), ((), ()), ((3,), (3,)), ((), (4,)), ((4,), ()))
        for lead, other in leads if dtype is lamina.float32 else leads[:1]:
            A, B = matrix(dtype, *lead, 5, 5), lamina.randn(*other, 5, 3, dtype=dtype)
            assert beside(linalg.solve, A, B) == 1
            if dtype in REAL:  # of complex numbers only the routines are the device's
                assert beside(lambda A, B: tuple(linalg.solve_ex(A, B)), A, B) == 0
        for A in kinds(matrix(dtype, 2, 7, 7)):
            assert beside(linalg.inv, A) == 1
            if dtype in REAL:
                assert beside(lambda A: tuple(linalg.inv_ex(A)), A) == 0
            assert beside(lambda A: tuple(linalg.lu_factor(A)), A) == 0
            assert beside(lambda A: linalg.solve(A, A[..., 0]), A) == 1
            assert beside(lambda A: linalg.solve(A, A.mT, left=False), A) == 1
            assert beside(linalg.det, A) == beside(lambda A: tuple(linalg.slogdet(A)), A) == 0
    A, B = matrix(lamina.float32, 3, 6, 6), lamina.randn(3, 6, 2)
    assert beside(lambda A: tuple(linalg.lu(A)), A) == 0
    assert beside(lambda A, B: linalg.lu_solve(*linalg.lu_factor(A), B), A, B) == 0
    assert beside(lambda A, B: linalg.lu_solve(*linalg.lu_factor(A), B, adjoint=True), A, B) == 0
    for m, n in ((4, 7), (7, 4), (1, 3), (3, 1)):
        assert beside(lambda A: tuple(linalg.lu(A)), lamina.randn(2, m, n, dtype=lamina.float64)) == 0
    assert beside(lambda A: A.logdet(), definite(lamina.float32, 4, 4)) == 0
    assert beside(lambda A: linalg.matrix_power(A, -2), A) == 1


@on_solver
def test_definite_matrices_are_factored_on_the_device(fake: Fake):
    beside = Beside(fake)
    lamina.manual_seed(1)
    for dtype in (*REAL, *COMPLEX):
        for A in (*kinds(definite(dtype, 6, 6)), definite(dtype, 2, 3, 4, 4), definite(dtype, 1, 1)):
            for upper in (False, True):
                assert beside(lambda A, u=upper: linalg.cholesky(A, upper=u), A) == 1
                assert beside(lambda A, u=upper: tuple(linalg.cholesky_ex(A, upper=u)), A) == 0
        L, B = linalg.cholesky(definite(dtype, 3, 5, 5)), lamina.randn(5, 2, dtype=dtype)
        for upper in (False, True):
            factor = L.mH.contiguous() if upper else L
            assert beside(lambda B, L, u=upper: lamina.cholesky_solve(B, L, u), B, factor) == 0
            assert beside(lambda L, u=upper: lamina.cholesky_inverse(L, u), factor) == 1
    for dtype in REAL:
        for upper in (False, True):
            for A in kinds(matrix(dtype, 2, 5, 5)):
                B = lamina.randn(5, 3, dtype=dtype)
                for left, unit in itertools.product((True, False), (True, False)):
                    how = {"upper": upper, "left": left, "unitriangular": unit}
                    solved = partial(linalg.solve_triangular, **how)
                    # a triangle of normal elements with ones on its diagonal may be of condition 10^4
                    assert beside(solved, A, B if left else B.mT, tolerance=100.0) == 0


@on_solver
def test_orthogonal_factors_are_found_on_the_device(fake: Fake):
    """Vectors have no signs: they are multiplied again, and what they measure is compared."""
    beside = Beside(fake)
    lamina.manual_seed(2)
    for dtype in (*REAL, *COMPLEX):
        shapes = ((2, 5, 4), (3, 7), (4, 4), (7, 3), (1, 1), (2, 1, 3))
        for shape in shapes if dtype is lamina.float32 else shapes[:2]:
            for A in kinds(lamina.randn(*shape, dtype=dtype)):
                there = A.cuda()
                assert beside(lambda A: abs_(linalg.svdvals(A)), A) == 1
                assert beside(lambda A: tuple(lamina.geqrf(A)), A) == 0
                assert beside(lambda A: linalg.qr(A, "r")[1], A) == 0
                for full in (False, True):
                    U, S, Vh = (x.cpu() for x in linalg.svd(there, full))
                    check_orthonormal(U), check_orthonormal(Vh.mH)
                    k = S.shape[-1]
                    close(U[..., :k] * S[..., None, :] @ Vh[..., :k, :], A)
                for mode in ("reduced", "complete"):
                    assert beside(lambda A, m=mode: tuple(linalg.qr(A, m)), A) == 0
        for A in kinds(definite(dtype, 2, 5, 5)):
            assert beside(linalg.eigvalsh, A) == 1
            for uplo in "LU":
                values, V = (x.cpu() for x in linalg.eigh(A.cuda(), uplo))
                check_orthonormal(V)
                close(V * values[..., None, :] @ V.mH, A)
    A = lamina.randn(2, 4, 3)
    assert beside(linalg.pinv, A) == beside(linalg.pinv, A.mT) == 2
    assert beside(lambda A: linalg.pinv(A, hermitian=True), definite(A.dtype, 3, 3)) == 2
    assert beside(lambda A: linalg.matrix_rank(A), A) == 1
    assert beside(lambda A: linalg.cond(A), A) == beside(lambda A: linalg.norm(A[0], "nuc"), A) == 1
    assert beside(lambda A: linalg.lstsq(A, A[..., :2])[0], A) == 3


@on_solver
def test_pseudo_inverses_of_complex_matrices_are_multiplied_by_parts(fake: Fake):
    beside = Beside(fake)
    lamina.manual_seed(3)
    inverse = REGISTRY["pseudo_inverse"]
    for dtype in COMPLEX:
        A = lamina.randn(2, 4, 3, dtype=dtype)
        counts = lamina.tensor([[True, True, False], [True, True, True]])
        assert beside(lambda A, c: inverse(A, c), A, counts) == 1
        assert beside(lambda A, c: inverse(A, c, True), definite(dtype, 2, 3, 3), counts) == 1


def abs_(x: Any) -> Any:
    return x.abs()


def close(found: Any, wanted: Any) -> None:
    eps = lamina.finfo(wanted.dtype).eps
    assert (found - wanted).abs().max() <= 400 * eps * (1 + wanted.abs().max()), (found, wanted)


def check_orthonormal(x: Any) -> None:
    close(x.mH @ x, lamina.eye(x.shape[-1], dtype=x.dtype).expand(*x.shape[:-2], -1, -1))


@on_solver
def test_matrices_without_elements_call_no_routine(fake: Fake):
    beside = Beside(fake)
    for dtype in (lamina.float32, lamina.complex64):
        for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
            A = lamina.zeros(*shape, dtype=dtype)
            for function in (
                linalg.inv, linalg.det, linalg.cholesky, lambda A: tuple(linalg.slogdet(A)),
                lambda A: tuple(linalg.lu_factor(A)), lambda A: tuple(linalg.eigh(A)),
                lambda A: linalg.solve(A, A), lambda A: tuple(linalg.cholesky_ex(A)),
                lambda A: tuple(linalg.qr(A)), lambda A: tuple(linalg.svd(A)),
            ):  # fmt: skip
                assert beside(function, A) == 0
                assert not any(name[1:] in (*solver.SOLVER, *solver.BLAS) for name in beside.ran)
        for shape in ((0, 3), (3, 0), (2, 3, 0)):
            A = lamina.zeros(*shape, dtype=dtype)
            for mode in ("reduced", "complete", "r"):
                assert beside(lambda A, m=mode: tuple(linalg.qr(A, m)), A) == 0
            assert beside(lambda A: tuple(linalg.svd(A)), A) == 0
        assert beside(linalg.solve, matrix(dtype, 3, 3), lamina.zeros(3, 0, dtype=dtype)) == 0


@on_solver
def test_a_batch_of_small_matrices_is_one_call(fake: Fake):
    beside = Beside(fake)
    lamina.manual_seed(7)
    A, L = matrix(lamina.float32, 2, 3, 4, 4), definite(lamina.float32, 2, 3, 4, 4)
    B = lamina.randn(2, 3, 4, 2)

    def routines(function, *given):
        beside(function, *given)
        return [name[1:] for name in beside.ran if name[1:] in (*solver.SOLVER, *solver.BLAS)]

    lu = ["getrfBatched", "getrsBatched"]
    assert routines(linalg.inv, A) == lu and routines(linalg.solve, A, B) == lu
    assert routines(linalg.solve, A[:, :1], B) == ["getrfBatched", *["getrs"] * 6]
    assert routines(linalg.solve, A[0, 0], B) == ["getrf", *["getrs"] * 6]
    assert routines(linalg.cholesky, L) == ["potrfBatched"]
    upper = partial(linalg.solve_triangular, upper=True)
    assert routines(upper, L, B) == routines(upper, L[0, 0], B) == ["trsmBatched"]
    assert routines(upper, L[0, 0], B[0, 0]) == ["trsm_v2"]
    large = lamina.eye(SMALL + 1).expand(2, -1, -1) * 3
    assert routines(linalg.cholesky, large) == ["potrf"] * 2
    assert routines(linalg.det, large) == ["getrf"] * 2


# ---- errors
def said(function: Callable, *given: Any) -> str:
    with pytest.raises((LinAlgError, ArgumentValueError)) as found:
        function(*given)
        lamina.cuda.synchronize()
    return str(found.value).splitlines()[0]


@on_solver
def test_errors_are_those_of_the_cpu(fake: Fake):
    Beside(fake)
    singular = lamina.tensor([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]]])
    indefinite = lamina.tensor([[4.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, 1.0]])
    for function, A in (
        (linalg.inv, singular), (lambda A: linalg.solve(A, A), singular), (linalg.cholesky, indefinite),
        (lambda A: linalg.cholesky(A, upper=True), indefinite),
        (lambda A: lamina.cholesky_inverse(A), lamina.tensor([[1.0, 0.0], [2.0, 0.0]])),
        (lambda A: linalg.cholesky_ex(A, check_errors=True), indefinite),
        (linalg.inv, lamina.zeros(2, 3)),
    ):  # fmt: skip
        for dtype in (lamina.float32, lamina.complex128):
            try:
                assert said(function, A.to(dtype).cuda()) == said(function, A.to(dtype))
            except lamina.ir.errors.ShapeError as error:
                assert "must be [..., n, n]" in str(error)
    assert linalg.det(singular.cuda()).tolist() == pytest.approx(linalg.det(singular).tolist())
    assert linalg.slogdet(singular.cuda())[1].tolist() == pytest.approx(linalg.slogdet(singular)[1].tolist())
    assert said(lambda A: linalg.inv_ex(A, check_errors=True), singular.cuda()) == (
        "linalg_inv_ex: a matrix is singular, or not positive-definite"
    )
    L, info = linalg.cholesky_ex(lamina.stack([indefinite, lamina.eye(3)]).cuda())
    assert info.tolist() == [2, 0] and L[0].isnan().all() and L[1].tolist() == lamina.eye(3).tolist()
    inverse, info = linalg.inv_ex(singular.cuda())
    assert info.tolist() == [0, 2] and inverse[1].isnan().all() and not inverse[0].isnan().any()


@on_solver
def test_pivots_that_name_no_row_are_refused_where_the_host_waits(fake: Fake):
    Beside(fake)
    data, pivots = linalg.lu_factor(lamina.randn(3, 3).cuda())
    for wrong in (0, 4, -1):
        P, _, _ = lamina.lu_unpack(data, lamina.full_like(pivots, wrong))
        with pytest.raises(ArgumentValueError, match=r"must lie in \[1, 3\]\n  asked for at .*factors.py"):
            P.cpu()
    assert lamina.lu_unpack(data, pivots)[0].sum().item() == 3
    program = lamina.jit.trace(lambda x, p: lamina.lu_unpack(x, p).P * 2, target="cuda")
    for _ in range(2):
        assert program(data.cpu(), pivots.cpu()).sum().item() == 6
    with pytest.raises(ArgumentValueError, match=r"must lie in \[1, 3\]"):
        program(data.cpu(), lamina.full_like(pivots.cpu(), 4))


# ---- gradients
@on_solver
def test_gradients_are_those_of_the_cpu(fake: Fake):
    Beside(fake)
    lamina.manual_seed(4)

    def positive(A):
        return A @ A.mT + lamina.eye(A.shape[-1], device=A.device)

    for function in (
        lambda A: linalg.inv(A).sum(), lambda A: linalg.solve(A, A[..., :2] * 2).pow(2).sum(),
        lambda A: linalg.det(A).sum(), lambda A: linalg.slogdet(A)[1].sum(),
        lambda A: linalg.lu_factor(A)[0].sum(), lambda A: linalg.svdvals(A).sum(),
        lambda A: linalg.cholesky(positive(A)).sum(), lambda A: linalg.cholesky_ex(positive(A))[0].sum(),
        lambda A: linalg.qr(A)[1].abs().sum(), lambda A: linalg.pinv(A).sum(),
        lambda A: linalg.eigvalsh(positive(A)).pow(2).sum(), lambda A: linalg.inv_ex(A)[0].sum(),
        lambda A: linalg.solve_triangular(A, A, upper=False).sum(),
        lambda A: linalg.eigh(positive(A))[1].abs().sum(),
        lambda A: lamina.cholesky_solve(A, linalg.cholesky(positive(A))).sum(),
        lambda A: linalg.svd(A)[0].abs().sum() + linalg.svd(A)[2].abs().sum(),
    ):  # fmt: skip
        x = matrix(lamina.float64, 2, 4, 4)
        there = x.cuda().requires_grad_()
        x.requires_grad_()
        function(x).backward()
        function(there).backward()
        near(there.grad, x.grad, 100.0)


@on_solver
def test_ways_back_do_not_wait(fake: Fake):
    beside = Beside(fake)
    A, B = (matrix(lamina.float32, 2, 3, 3).cuda().requires_grad_() for _ in range(2))
    found = linalg.solve(A, B).sum() + linalg.inv(B).sum()
    found = found + linalg.cholesky(A @ A.mT + lamina.eye(3).cuda()).sum() + linalg.eigvalsh(A).sum()
    before = beside.waits()
    found.backward()
    assert beside.waits() == before


# ---- where it runs
@on_solver
def test_traced_programs_factor_what_they_hold_on_the_device(fake: Fake):
    beside = Beside(fake)

    def function(x, y):
        A = x @ x.mT + lamina.diag_embed(lamina.ones_like(x[0]))
        L = linalg.cholesky(A * 2)
        return L + 1, linalg.solve(A, y) * 2, linalg.slogdet(A)[1], linalg.eigvalsh(A[1:, 1:]).sum()

    traced, program = lamina.jit.trace(function), lamina.jit.trace(function, target="cuda")
    lamina.manual_seed(8)
    for _ in range(3):
        x, y = lamina.randn(4, 4), lamina.randn(4, 2)
        wanted = function(x, y)
        for found in (traced(x.cuda(), y.cuda()), program(x, y)):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-4, atol=1e-4)
    assert traced.counts()["served"] == program.counts()["served"] == 2
    assert any(name == "Spotrf" for name in beside.ran)


@on_fake(solver=1, devices=2, capacity=64 << 20, seed=3)
def test_each_stream_of_each_device_has_its_own_handles(fake: Fake):
    Beside(fake)
    lamina.manual_seed(9)
    A, B = (matrix(lamina.float64, 2, 4, 4) for _ in range(2))
    side, other = lamina.cuda.Stream(), lamina.cuda.Stream()
    there = A.cuda()
    for stream in (side, other):
        stream.wait_stream(lamina.cuda.current_stream())
    with lamina.cuda.stream(side):
        one = linalg.inv(there)
    with lamina.cuda.stream(other):
        two = linalg.solve(there, there)
    lamina.cuda.synchronize()
    near(one, linalg.inv(A)), near(two, linalg.solve(A, A))
    far = linalg.inv(B.to("cuda:1"))
    assert far.get_device() == 1
    near(far, linalg.inv(B))
    assert len(solver._calls) == 3


@on_solver
def test_memory_that_routines_work_in_is_the_allocators_and_goes_back(fake: Fake):
    Beside(fake)
    A = definite(lamina.float32, 40, 40).cuda()
    linalg.cholesky(A), linalg.svd(A), linalg.inv(A)  # what is kept: numbers
    lamina.cuda.synchronize()
    held, peak = lamina.cuda.memory_allocated(), fake.calls("cuMemAlloc")
    for _ in range(3):
        linalg.cholesky(A), linalg.svd(A), linalg.inv(A)
    assert lamina.cuda.memory_allocated() == held and fake.calls("cuMemAlloc") == peak


# ---- the libraries
@on_fake()
def test_without_the_libraries_the_host_does_it_and_says_what_to_install(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    A = matrix(lamina.float32, 3, 3)
    with pytest.warns(UserWarning, match=r"cuSOLVER.*not installed: pip install 'lamina\[gpu-linalg\]'"):
        found = linalg.inv(A.cuda())
    near(found, linalg.inv(A))
    with pytest.warns(UserWarning, match=r"copied to and from$"):
        linalg.matrix_exp(A.cuda())


@case
def older(fake: Fake) -> None:
    libraries, reason = solver.found(12)
    assert libraries is None and reason == "it is not installed"
    assert solver.found(13)[0] is not None


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_driver_gets_no_library_of_a_newer_cuda():
    run_case(older, solver=1)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_libraries_of_wheels_are_found_where_they_lie(tmp_path):
    """And what can't be loaded is told."""
    lib = tmp_path / "nvidia" / "cu13" / "lib"
    lib.mkdir(parents=True)
    for name in (SOLVER, BLAS):
        (lib / name).write_bytes((library(name) / name).read_bytes())
    program = "from lamina.runtime.cuda import solver; print(*solver.found(13))"
    done = run(["-c", program], PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{_path()}")
    assert "Libraries" in done.stdout, done.stderr
    (lib / SOLVER).write_bytes(b"no library" * 99)
    done = run(["-c", program], PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{_path()}")
    assert re.match(r"None what is installed can't be used: .*invalid ELF header", done.stdout), done.stdout


def _path() -> str:
    return ":".join(filter(None, sys.path))


@on_solver
def test_what_the_libraries_refuse_is_told(fake: Fake):
    Beside(fake)
    at = machine()
    x = lamina.randn(4, 4).cuda()
    at.use()
    calls, f32 = solver.calls(at), np.dtype(np.float32)
    room = calls.size("potrf", f32, 1, 4, x._data.address, 4)
    info, work = lamina.zeros(1, dtype=lamina.int32).cuda(), lamina.zeros(room).cuda()
    there = x._data.address, work._data.address, info._data.address
    for values in (
        (1, 4, there[0], 3, there[1], room, there[2]),  # the leading dimension
        (1, 4, there[0], 4, there[1], room - 1, there[2]),  # the workspace
        (1, 4, 0, 4, there[1], room, there[2]),  # no matrix
        (1, 4, np.zeros(16, np.float32).ctypes.data, 4, there[1], room, there[2]),  # the host's
        (1, -1, there[0], 4, there[1], room, there[2]), (2, 4, there[0], 4, there[1], room, there[2]),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=r"cuda:0 could not run cusolverDnSpotrf: INVALID_VALUE"):
            calls.queue("potrf", f32, *values)
    with pytest.raises(DeviceError, match="cusolverDnSgesvd_bufferSize: INVALID_VALUE"):
        calls.size("gesvd", f32, 3, 4)
    one = (ctypes.c_float * 2)(1.0, 0.0)
    with pytest.raises(DeviceError, match="cublasStrsm_v2: INVALID_VALUE\n  of cuBLAS"):
        calls.queue("trsm_v2", f32, 1, 0, 0, 0, 4, 4, ctypes.byref(one), there[0], 3, there[0], 4)


def test_functions_are_those_of_the_header():
    """Where a wheel with NVIDIA's header is installed: it is never needed."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else [*map(Path, spec.submodule_search_locations or ())]
    found = [p for root in roots for p in root.glob("*/include/cusolverDn.h")]
    if not found:
        pytest.skip("NVIDIA's header is not installed: the wheels of cuSOLVER have it")
    text = found[0].read_text()
    kinds = (("signed char", "b"), ("int *", "n"), ("*", "a"), ("int", "i"), ("_t ", "i"))
    for name, given in solver.SOLVER.items():
        for letter in solver.LETTERS:
            symbol = solver.symbol(name, np.dtype(letter))
            told = re.search(rf"cusolverStatus_t CUSOLVERAPI {symbol}\((.*?)\);", text, re.S)
            assert told, symbol
            handle, *rest = (" ".join(part.split()) for part in told[1].split(","))
            assert handle == "cusolverDnHandle_t handle"
            letters = [next(kind for mark, kind in kinds if mark in part) for part in rest]
            if not name.endswith("Size"):  # pointers to ints are of the device there
                letters = ["a" if kind == "n" else kind for kind in letters]
            assert "".join(letters) == given, symbol


@case
def records(fake: Fake) -> None:
    import device_records
    from cuda_interpreting import interpret_launches

    ran = interpret_launches(fake)
    warnings.filterwarnings("error", ".*is computed on the host")
    names = [name for name, module in MODULES.items() if module == FACTORING]
    assert sum(device_records.check(REGISTRY[name]) for name in names) > 60
    assert {name[1:] for name in ran if name[1:] in solver.SOLVER or name[1:] in solver.BLAS} == {
        name for name in (*solver.SOLVER, *solver.BLAS) if not name.endswith("Size")
    }


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.sampled(3)
@pytest.mark.timeout(600)
def test_records_of_linear_algebra_on_a_device():
    run_case(records, solver=1, capacity=256 << 20)
