"""Factored matrices against PyTorch's: what does not depend on the signs of vectors, which are free."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

# Products of three matrices of up to 4 rows and divisions by gaps of at least 1/50: 3 * 4 roundings, 50
# times.
TOLERANCE = 600 * float(np.finfo(np.float64).eps)


def pair(x):
    return lamina.tensor(x).requires_grad_(), torch.tensor(x).requires_grad_()


def assert_near(ours, theirs):
    ours, theirs = (np.asarray(x.detach().numpy()) for x in (ours, theirs))
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, np.abs(theirs).max(initial=0)))


def symmetric(n):
    q, _ = np.linalg.qr(np.random.uniform(-1, 1, (n, n)))
    return q @ np.diag(np.arange(1.0, n + 1)) @ q.T


def lopsided(m, n):
    u, _ = np.linalg.qr(np.random.uniform(-1, 1, (m, min(m, n))))
    v, _ = np.linalg.qr(np.random.uniform(-1, 1, (n, min(m, n))))
    return u @ np.diag(np.arange(1.0, min(m, n) + 1)) @ v.T


def test_eigh():
    a, b = pair(symmetric(4))
    weights = np.random.uniform(0.5, 1.5, (4, 4))
    losses = []
    for x, lib in ((a, lamina), (b, torch)):
        values, vectors = lib.linalg.eigh((x + x.T) / 2)
        assert_near(vectors @ lib.diag(values) @ vectors.T, torch.tensor(symmetric_of(x)))
        losses.append((vectors**2 * lib.tensor(weights)).sum() + (values**3).sum())
        losses[-1].backward()
    assert_near(*losses)
    assert_near(a.grad, b.grad)
    assert_near(lamina.linalg.eigvalsh(a), torch.linalg.eigvalsh(b))


def symmetric_of(x):
    data = x.detach().numpy()
    return (data + data.T) / 2


@pytest.mark.parametrize("m, n", [(3, 3), (4, 2), (2, 4)])
def test_svd(m, n):
    a, b = pair(lopsided(m, n))
    k = min(m, n)
    left, right = np.random.uniform(0.5, 1.5, (m, k)), np.random.uniform(0.5, 1.5, (k, n))
    losses = []
    for x, lib in ((a, lamina), (b, torch)):
        u, s, vh = lib.linalg.svd(x, full_matrices=False)
        assert_near((u * s) @ vh, x)
        products = (u @ vh).sum() + (u**2 * lib.tensor(left)).sum() + (vh**2 * lib.tensor(right)).sum()
        losses.append(products + (s**3).sum())
        losses[-1].backward()
    assert_near(*losses)
    assert_near(a.grad, b.grad)
    for some in (True, False):
        ours, theirs = lamina.svd(a, some), torch.svd(b, some)
        assert ours.U.shape == tuple(theirs.U.shape) and ours.V.shape == tuple(theirs.V.shape)
        assert_near(ours.S, theirs.S)


@pytest.mark.parametrize("m, n", [(3, 3), (4, 2), (2, 4)])
def test_qr(m, n):
    a, b = pair(lopsided(m, n) + np.eye(m, n))
    k = min(m, n)
    left, right = np.random.uniform(0.5, 1.5, (m, k)), np.random.uniform(0.5, 1.5, (k, n))
    losses = []
    for x, lib in ((a, lamina), (b, torch)):
        q, r = lib.linalg.qr(x)
        assert_near(q @ r, x)
        losses.append((q**2 * lib.tensor(left)).sum() + (r**2 * lib.tensor(right)).sum())
        losses[-1].backward()
    assert_near(*losses)
    assert_near(a.grad, b.grad)
    for mode in ("complete", "r"):
        ours, theirs = lamina.linalg.qr(a.detach(), mode), torch.linalg.qr(b.detach(), mode)
        assert ours.Q.shape == tuple(theirs.Q.shape) and ours.R.shape == tuple(theirs.R.shape)
        assert_near(abs(ours.R), abs(theirs.R))
    assert_near(lamina.qr(a, some=False)[1] ** 2, torch.linalg.qr(b, "complete")[1] ** 2)


def test_what_has_no_gradient_says_so():
    for made in (lambda x: lamina.linalg.qr(x, "r")[1], lambda x: lamina.linalg.qr(x, "complete")[0]):
        with pytest.raises(lamina.GradError, match=r"mode='reduced'"):
            made(lamina.tensor(lopsided(4, 2)).requires_grad_()).sum().backward()


@pytest.mark.parametrize("m, n", [(5, 3), (3, 3)])
def test_lstsq(m, n):
    (a, b), (c, d) = pair(lopsided(m, n)), pair(np.random.uniform(-1, 1, (m, 2)))
    ours, theirs = lamina.linalg.lstsq(a, c, driver="gelsd"), torch.linalg.lstsq(b, d, driver="gelsd")
    for name in ("solution", "residuals", "singular_values"):
        assert_near(getattr(ours, name), getattr(theirs, name))
    assert ours.rank.item() == n
    ours.solution.sum().backward()
    theirs.solution.sum().backward()
    assert_near(a.grad, b.grad)
    assert_near(c.grad, d.grad)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_and_what_it_solves(upper):
    (a, b), (c, d) = pair(symmetric(3)), pair(np.random.uniform(-1, 1, (3, 2)))
    ours, theirs = lamina.cholesky(a, upper), torch.linalg.cholesky(b, upper=upper)
    assert_near(ours, theirs)
    ours, theirs = lamina.cholesky_solve(c, ours, upper), torch.cholesky_solve(d, theirs, upper)
    assert_near(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    assert_near(a.grad, b.grad)
    assert_near(c.grad, d.grad)


def test_mode_and_quantiles_with_nan():
    x = np.random.randint(0, 4, (5, 7))
    for dim in (0, 1):
        ours, theirs = lamina.mode(lamina.tensor(x), dim), torch.mode(torch.tensor(x), dim)
        assert ours.values.tolist() == theirs.values.tolist()
        picked = lamina.take_along_dim(lamina.tensor(x), ours.indices.unsqueeze(dim), dim).squeeze(dim)
        assert picked.tolist() == ours.values.tolist()
    y = np.random.uniform(-1, 1, (4, 5))
    y[0, 1] = y[2] = np.nan
    for name in ("quantile", "nanquantile"):
        ours = getattr(lamina, name)(lamina.tensor(y), 0.4, 1)
        assert_near(ours, getattr(torch, name)(torch.tensor(y), 0.4, 1))
