"""What LAPACK is told to exchange is looked at first: it does not look, and writes where it is told to."""

import numpy as np
import pytest

import lamina

pytest.importorskip("scipy", reason="LDL factors are SciPy's: pip install lamina[scipy]")


@pytest.mark.parametrize(
    "pivots",
    [[1, 2, 4], [1, 0, 3], [-1, 2, 3], [1, 2, -3], [-9, -9, 3], [2**31 - 1, 2, 3], [-(2**31), -1, 3]],
)
def test_pivots_that_name_no_rows_are_refused(pivots):
    A = lamina.eye(3)
    with pytest.raises(
        lamina.ArgumentValueError, match="linalg_ldl_solve: the pivots .* are not those of 3 rows"
    ):
        lamina.linalg.ldl_solve(A, lamina.tensor(pivots, dtype=lamina.int32), A)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", [lamina.float32, lamina.complex64, lamina.complex128], ids=str)
def test_complex_matrices_are_symmetric_or_hermitian(dtype, hermitian):
    generator = np.random.default_rng(0)
    A = generator.normal(size=(20, 4, 4)) + 1j * generator.normal(size=(20, 4, 4))
    A[::2] *= 1 - np.eye(4)  # without a diagonal, blocks of 2 are needed
    A = A + (A.conj() if hermitian else A).swapaxes(-1, -2)
    A, b = (lamina.tensor(x if dtype.is_complex else x.real, dtype=dtype) for x in (A, A[:, :, :2] + 1))
    found = lamina.linalg.ldl_factor_ex(A.tril(), hermitian=hermitian, check_errors=True)
    assert (found.pivots < 0).any() and (found.pivots > 0).any() and not found.info.any()
    x = lamina.linalg.ldl_solve(found.LD, found.pivots, b, hermitian=hermitian)
    # Conditions of up to 1000, of a few roundings each.
    np.testing.assert_allclose((A @ x).numpy(), b.numpy(), atol=4e3 * np.finfo(x.numpy().dtype).eps)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_pivots_that_were_found_are_taken(n):
    for seed in range(20):
        A = np.random.default_rng(seed).normal(size=(3, n, n)) * (seed % 3 > 0) + np.eye(n)[::-1]
        A = lamina.from_numpy(A + A.transpose(0, 2, 1))
        b = lamina.randn(3, n, 2, dtype=lamina.float64)
        found = lamina.linalg.ldl_solve(*lamina.linalg.ldl_factor(A), b)
        np.testing.assert_allclose((A @ found).numpy(), b.numpy(), atol=1e-7 * float(found.abs().max()))
