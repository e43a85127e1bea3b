"""Parts of tensors at places that are numbers which change: x[i], x[i : i + n]; and those that stay views."""

import pytest
from both_ways import both_ways

import lamina

X = lamina.arange(60.0).reshape(20, 3)
STATE = {"n": 0}


def counted(x, i):
    STATE["n"] += 1
    return x[STATE["n"]].sum() * 2


SERVED = {
    "a row": lambda x, i: x[i] * 2,
    "a row from the end": lambda x, i: x[-i].exp(),
    "an element": lambda x, i: x[i, i % 3] + x[i - 1][1],
    "a column": lambda x, i: x[:, i % 3].mean() + x[..., i % 2].max(),
    "a batch": lambda x, i: x[i : i + 4].sum(0),
    "a batch of a column": lambda x, i: x[i % 9 : i % 9 + 2, 1] * 3,
    "a row of a batch": lambda x, i: x[i : i + 3][1] @ x[i],
    "a computed place": lambda x, i: x[(7 * i + 2) % 20].sum(),
    "by a counter": counted,
    "a new row of a new tensor": lambda x, i: (x * 2)[i] + 1,
}


def escapes(x, i):
    return x[i]


def its_view_escapes(x, i):
    return x[i][1:]


def the_tensor_is_written(x, i):
    y = x[i]
    x.add_(1)
    return y * 1


def it_is_written(x, i):
    x[i].mul_(2)
    return x.sum()


def is_kept_as_a_gradient(x, i):
    w = lamina.zeros(3, requires_grad=True)
    w.grad = x[i]
    return w.grad


def has_a_history(x, i):
    x = x.detach().requires_grad_()
    x[i].sum().backward()
    return x.grad


GUARDED = (
    escapes,
    its_view_escapes,
    the_tensor_is_written,
    it_is_written,
    is_kept_as_a_gradient,
    has_a_history,
)


def made(wrap, function, step=1):
    x, traced = X.clone(), wrap(function)
    STATE["n"] = 0

    def call(i):
        found = traced(x, (i + 1) * step)
        before = float(found.sum())
        if function in (escapes, its_view_escapes):
            found.mul_(0.5)
        return before + float(x.sum())

    return call, traced


@pytest.mark.parametrize("name", SERVED)
def test_index_that_changes_is_an_input(name):
    traced = both_ways(made, function=SERVED[name])
    assert traced.counts()["served"] >= 9, traced.explain(detail=True)


@pytest.mark.parametrize("function", GUARDED)
def test_index_of_a_view_that_shows_is_guarded(function):
    traced = both_ways(made, function=function)
    assert not traced.counts()["served"]


def test_index_out_of_range_is_refused_as_eager_does():
    @lamina.jit.trace
    def row(x, i):
        return x[i] * 2

    for i in range(6):
        row(X, i)
    with pytest.raises(IndexError, match="20"):
        row(X, 20)
    assert row(X, 19).tolist() == (X[19] * 2).tolist()


def test_index_of_a_slice_beyond_the_end_is_as_short_as_eager_has_it():
    @lamina.jit.trace
    def batch(x, i):
        return x[i : i + 4] * 2

    for i in range(6):
        batch(X, i)
    assert batch(X, 18).shape == (2, 3)
    assert batch(X, 16).tolist() == (X[16:20] * 2).tolist()
    assert batch(X, -3).shape == X[-3:1].shape
