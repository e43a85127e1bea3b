"""`out=`: what every function does with it, and what it refuses."""

import pytest

import lamina
from lamina.ir.errors import ArgumentError, DTypeError, GradError, InplaceError
from lamina.runtime import ops

X = lamina.tensor([[1.0, -2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    "call, shape",
    [
        (lambda out: lamina.add(X, X, out=out), (2, 2)),
        (lambda out: lamina.add(X, X, alpha=2, out=out), (2, 2)),
        (lambda out: lamina.exp(X, out=out), (2, 2)),
        (lambda out: lamina.sum(X, 1, out=out), (2,)),
        (lambda out: lamina.where(X > 0, X, 0.0, out=out), (2, 2)),
        (lambda out: lamina.lerp(X, X, 0.5, out=out), (2, 2)),
        (lambda out: lamina.cat((X, X), out=out), (4, 2)),
        (lambda out: lamina.arange(5, out=out), (5,)),
        (lambda out: lamina.outer(X[0], X[1], out=out), (2, 2)),
        (lambda out: lamina.linalg.inv(X, out=out), (2, 2)),
        (lambda out: lamina.randn(3, out=out), (3,)),
    ],
)
def test_what_was_given_is_written_and_returned(call, shape):
    right, empty = lamina.full(shape, 7.0), lamina.zeros(0)
    assert call(right) is right and call(empty) is empty
    assert empty.shape == right.shape == shape and not (right == 7).all()
    with pytest.warns(UserWarning, match=r"will be resized"):
        assert call(lamina.zeros(3, 3)).shape == shape


def test_several_results_go_to_several_tensors():
    values, indices = lamina.zeros(0), lamina.zeros(0, dtype=lamina.int64)
    found = lamina.max(X, 1, out=(values, indices))
    assert found.values is values and found.indices is indices
    assert values.tolist() == [1.0, 4.0] and indices.tolist() == [0, 1]
    with pytest.raises(ArgumentError, match="takes 2 tensors, not 1"):
        lamina.max(X, 1, out=(values,))
    with pytest.raises(ArgumentError, match="takes tensors, not str"):
        lamina.exp(X, out="x")


def test_a_result_is_cast_within_its_category():
    out = lamina.zeros(2, 2, dtype=lamina.float64)
    assert lamina.exp(X, out=out) is out and out.dtype is lamina.float64
    with pytest.raises(DTypeError, match="can't be cast to lamina.int64"):
        lamina.exp(X, out=lamina.zeros(2, 2, dtype=lamina.int64))


def test_gradients_are_refused():
    x = X.clone().requires_grad_()
    for call in (
        lambda: lamina.exp(x, out=lamina.zeros(2, 2)),
        lambda: lamina.exp(X, out=lamina.zeros(2, 2, requires_grad=True)),
        lambda: lamina.stack([X, x], out=lamina.zeros(0)),
    ):
        with pytest.raises(GradError, match="have no gradient"):
            call()
    with lamina.no_grad():
        assert not lamina.exp(x, out=lamina.zeros(2, 2)).requires_grad


def test_an_operand_may_be_written():
    x = X.clone()
    lamina.mul(x, x.t(), out=x)
    assert x.tolist() == [[1.0, -6.0], [-6.0, 16.0]]


def test_a_write_is_seen_by_what_saved():
    x = lamina.ones(2, requires_grad=True)
    held = lamina.ones(2)
    y = x * held
    lamina.add(held, 1, out=held)
    with pytest.raises(InplaceError):
        y.sum().backward()


def test_views_take_none():
    with pytest.raises(ArgumentError, match="a view is made"):
        lamina.transpose(X, 0, 1, out=lamina.zeros(2, 2))


def test_resize_keeps_elements_in_order():
    x = lamina.arange(6.0)
    assert x.resize_(2, 2) is x and x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert x.resize_as_(lamina.zeros(5)).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert x.resize_(8).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0]
    with pytest.raises(InplaceError):
        lamina.ones(2, requires_grad=True).resize_(3)


def test_a_trace_writes_it_each_time():
    @lamina.jit.trace
    def step(x, out):
        lamina.add(x, 1, out=out)
        ops.FUNCTIONS["cov"](x, out=out)
        return out * 2

    for k in range(4):
        x = X + k
        out = lamina.zeros(2, 2)
        assert lamina.allclose(step(x, out), lamina.cov(x) * 2) and lamina.allclose(out, lamina.cov(x))
    assert step.explain().startswith("step: served")
