"""Jacobians, Hessians and their products with vectors, against formulas."""

import pytest

import lamina
from lamina.autograd import functional as A
from lamina.ir.errors import ArgumentError, GradError, ShapeError

W = lamina.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_jacobian_is_indexed_by_output_then_input():
    a, b = lamina.tensor([1.0, 2.0, 3.0]), lamina.tensor([2.0, 1.0])
    assert A.jacobian(lambda x: W @ x, a).tolist() == W.tolist()
    (to_a, to_b), (_, sum_to_b) = A.jacobian(lambda x, y: (W @ x * y, y.sum()), (a, b))
    assert to_a.tolist() == (W * b[:, None]).tolist() and to_b.tolist() == lamina.diag(W @ a).tolist()
    assert sum_to_b.tolist() == [1, 1]
    assert A.jacobian(lambda x: x.reshape(1, 3) ** 2, a).shape == (1, 3, 3)
    assert A.jacobian(lambda x: x[:0], a).shape == (0, 3)


def test_hessian_of_a_function_of_two():
    a, b = lamina.tensor([1.0, 2.0]), lamina.tensor(3.0)
    (aa, ab), (ba, bb) = A.hessian(lambda x, y: (x**3).sum() * y, (a, b))
    assert aa.tolist() == [[18, 0], [0, 36]] and ab.tolist() == ba.tolist() == [3, 12] and bb.item() == 0


def test_products_with_vectors():
    x, v = lamina.tensor([1.0, 2.0, 3.0]), lamina.tensor([1.0, 0.0, -1.0])
    out, found = A.vjp(lambda x: W @ x, x, lamina.tensor([1.0, 1.0]))
    assert (out.tolist(), found.tolist()) == ([14, 32], [5, 7, 9]) and not out.requires_grad
    assert A.jvp(lambda x: W @ x, x, v)[1].tolist() == [-2, -2]
    assert A.jvp(lambda x: x**2, x, v)[1].tolist() == [2, 0, -6]
    for product in (A.vhp, A.hvp):
        assert product(lambda x: (x**3).sum(), x, v)[1].tolist() == [6, 0, -18]


def test_under_create_graph_it_goes_on():
    x = lamina.tensor([1.0, 2.0], requires_grad=True)
    A.jacobian(lambda x: x**3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [6, 12]
    assert not A.jacobian(lambda x: x**3, x).requires_grad


def test_what_does_not_depend_is_zero_or_refused():
    x = lamina.ones(2)
    assert A.jacobian(lambda x: lamina.ones(3), x).tolist() == [[0, 0]] * 3
    with pytest.raises(GradError, match="Output 0 of the user-provided function does not require"):
        A.jacobian(lambda x: lamina.ones(3), x, strict=True)
    with pytest.raises(GradError, match="should contain a single element"):
        A.hessian(lambda x: x * 2, x)
    with pytest.raises(GradError, match="v can only be None if the user-provided function returns"):
        A.vjp(lambda x: x * 2, x)
    with pytest.raises(ShapeError, match=r"v has invalid size: should be torch.Size\(\[2\]\), not \[3\]"):
        A.jvp(lambda x: x * 2, x, lamina.ones(3))
    with pytest.raises(
        ArgumentError, match=r"outputs of the user-provided function given to jacobian must be .*\n.*float"
    ):
        A.jacobian(lambda x: 1.0, x)
