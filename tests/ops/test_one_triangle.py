"""Functions that read one triangle of a matrix, and whose gradients are those of a symmetric one or a factor.

Their elements can't be moved one by one, as the generated tests do; here they hang together.
"""

import numpy as np
import pytest

import lamina

RNG = np.random.default_rng(0)


def matrix(n):
    """Of eigenvalues 1 to n, so that gaps are wide."""
    q, _ = np.linalg.qr(RNG.uniform(-1, 1, (n, n)))
    return lamina.tensor(q @ np.diag(np.arange(1.0, n + 1)) @ q.T).requires_grad_()


@pytest.mark.parametrize("call", [
    lambda x: lamina.linalg.eigh((x + x.mT) / 2)[0],
    lambda x: lamina.linalg.eigh((x + x.mT) / 2, "U")[1].square(),
    lambda x: lamina.cholesky_inverse(x.tril()),
    lambda x: lamina.cholesky_inverse(x.triu(), upper=True),
    lambda x: lamina.cholesky_solve(x[:, :2] + 1, x.tril()),
    lambda x: lamina.cholesky_solve(x[:, :2] + 1, x.triu(), True),
    lambda x: lamina.linalg.pinv((x + x.mT) / 2, hermitian=True),
    lambda x: lamina.linalg.cholesky_ex((x + x.mT) / 2)[0],
    lambda x: lamina.linalg.cholesky_ex((x + x.mT) / 2, upper=True)[0],
    lambda x: lamina.linalg.pinv((x[:, :2] @ x[:, :2].mT), rtol=1e-6, hermitian=True),
])  # fmt: skip
def test_gradients_where_the_other_triangle_follows(call):
    x = matrix(3)
    assert lamina.autograd.gradcheck(call, (x,)) and lamina.autograd.gradgradcheck(call, (x,))


@pytest.mark.parametrize("uplo, kept", [("L", np.tril), ("U", np.triu)])
def test_eigh_reads_one_triangle(uplo, kept):
    half = kept(RNG.uniform(-1, 1, (4, 4)))
    whole = half + half.T - np.diag(np.diag(half))
    odd = half + 7 * (1 - kept(np.ones((4, 4))))
    assert np.allclose(lamina.linalg.eigvalsh(lamina.tensor(odd), uplo).numpy(), np.linalg.eigvalsh(whole))


@pytest.mark.parametrize("upper, kept", [(False, np.tril), (True, np.triu)])
def test_cholesky_ex_reads_one_triangle_and_tells_of_it(upper, kept):
    half = kept(RNG.uniform(-1, 1, (4, 3, 3)) + 1j * RNG.uniform(-1, 1, (4, 3, 3)))
    half[:, range(3), range(3)] = 5
    half[1, 1, 1] = half[2, 0, 0] = half[3, 2, 2] = -1
    whole = half + half.swapaxes(-1, -2).conj() - 5 * np.eye(3)
    odd = lamina.tensor(half + 7 * (1 - kept(np.ones((3, 3)))))
    found, info = lamina.linalg.cholesky_ex(odd, upper=upper)
    assert info.tolist() == [0, 2, 1, 3] and found[1:].isnan().all()
    low = found[0].mH if upper else found[0]
    np.testing.assert_allclose((low @ low.mH).numpy(), whole[0], atol=1e-13)


def test_functions_of_hermitian_matrices_read_the_lower_triangle():
    half = np.tril(RNG.uniform(-1, 1, (2, 4, 4)) + 1j * RNG.uniform(-1, 1, (2, 4, 4)))
    half[1, 3] = half[1, :, 3] = 0  # of rank 3
    for given in (half, half.real):
        whole = np.tril(given, -1) + np.tril(given, -1).swapaxes(-1, -2).conj()
        whole = whole + np.einsum("bii->bi", given).real[..., None] * np.eye(4)
        odd = lamina.tensor(given + 7 * np.triu(np.ones((4, 4)), 1))
        found = lamina.linalg.pinv(odd, hermitian=True).numpy()
        # Singular values down to 0.1 or so: a hundred roundings of numbers below 10.
        np.testing.assert_allclose(found, np.linalg.pinv(whole, hermitian=True), atol=1e-12)
        assert lamina.linalg.matrix_rank(odd, hermitian=True).tolist() == [4, 3]
    with pytest.raises(lamina.ShapeError, match="hermitian=True"):
        lamina.linalg.pinv(lamina.ones(2, 3), hermitian=True)


def test_an_empty_index_has_any_rank():
    x, none = lamina.arange(3.0).requires_grad_(), lamina.zeros(0, 4, dtype=lamina.int64)
    assert lamina.gather(x, 0, none).shape == (0, 4)
    assert x.scatter(0, none, 5.0).tolist() == x.scatter_add(0, none, lamina.ones(2, 2)).tolist() == [0, 1, 2]
    lamina.gather(x, 0, none).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_a_value_that_fills_has_a_gradient():
    value = lamina.tensor(2.0).requires_grad_()
    lamina.ones(3, 2).index_fill(0, lamina.tensor([0, -1]), value).sum().backward()
    assert value.grad.item() == 4
