"""Whole derivatives, and forms in place of functions written with ops, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

A, B = np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([2.0, -1.0])


def of_one(lib, x):
    return lib.sin(x).prod() + (x @ x.T).sum()


def of_two(lib, x, y):
    return (x @ y) ** 3, (x.exp() * y).sum()


def number(lib, x, y):
    return ((x @ y) ** 3).sum() + (x**2).sum() * y.prod()


def assert_same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        # a few dozen roundings at most, of numbers below 1000
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-13, atol=1e-12)
        return
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert_same(x, y)


@pytest.mark.parametrize(
    "name, function, count, v",
    [
        ("jacobian", of_one, 1, None),
        ("jacobian", of_two, 2, None),
        ("hessian", of_one, 1, None),
        ("hessian", number, 2, None),
        ("vjp", of_one, 1, None),
        ("vjp", of_two, 2, (B, np.array(2.0))),
        ("jvp", of_two, 2, (A, B)),
        ("vhp", number, 2, (A, B)),
        ("hvp", number, 2, (A, B)),
    ],
)
def test_derivatives(name, function, count, v):
    found = []
    for lib in (lamina, torch):
        inputs = tuple(lib.tensor(x) for x in (A, B)[:count])
        vectors = () if v is None else (tuple(lib.tensor(x) for x in v),)
        given = inputs if count > 1 else inputs[0]
        derive = getattr(lib.autograd.functional, name)
        found.append(derive(lambda *x, lib=lib: function(lib, *x), given, *vectors))
    assert_same(*found)


@pytest.mark.parametrize(
    "name, args",
    [
        ("addmm", (A, A)), ("addmv", (A, B)), ("addr", (B, B)), ("baddbmm", (A[None], A[None])),
        ("addbmm", (A[None], A[None])), ("clamp_min", (0.7,)), ("clamp_max", (B,)), ("nan_to_num", ()),
        ("masked_scatter", (A > 0, A)),
    ],
)  # fmt: skip
def test_forms_in_place(name, args):
    start = {"addmv": B, "baddbmm": A[None]}.get(name, A)
    found = []
    for lib in (lamina, torch):
        x = lib.tensor(start).requires_grad_()
        others = [lib.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
        wanted = [o.requires_grad_() for o in others if lib.is_tensor(o) and o.dtype is lib.float64]
        y = x * 2
        assert getattr(y, name + "_")(*others) is y
        (y**2).sum().backward()
        found.append((y.detach(), x.grad, *(o.grad for o in wanted)))
    assert_same(*found)
