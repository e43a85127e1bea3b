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


def it_is_written(x, i):
    x[i].mul_(2)
    return x.sum()


def rows_are_written(x, i):
    x[i : i + 2] = x[i] * 2
    x[:, i % 3] = 1.5
    x.narrow(0, i, 3).copy_(x[:3])
    x[i].add_(1)
    return x.sum()


SERVED |= {"it is written": it_is_written, "rows are written": rows_are_written}


def escapes(x, i):
    return x[i]


def its_view_escapes(x, i):
    return x[i][1:]


def the_tensor_is_written(x, i):
    y = x[i]
    x.add_(1)
    return y * 1


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


# ---- places that tensors tell ------------------------------------------------------------------------------
def a_row_is_counted(x, t):
    x[t] += 1
    return x * 1


def an_element_is_replaced(x, t):
    x[t, t % 3] = x[t, t % 3] * 2 + 1
    return x * 1


def a_gradient_is_told_the_place(x, t):
    w = x.detach().requires_grad_()
    (w.sin()[t] * w[t]).sum().backward()
    return w.grad


PICKED = {
    "a row": lambda x, t: x[t] * 2,
    "an element": lambda x, t: x[t, t % 3] + x[t % 2][1],
    "a column": lambda x, t: x[:, t % 3].mean() + x[None, ..., t % 2].max(),
    "a row of a new tensor": lambda x, t: (x * 2)[t],
    "a row is counted": a_row_is_counted,
    "an element is replaced": an_element_is_replaced,
    "a gradient": a_gradient_is_told_the_place,
}


def a_write_shows_in_the_row(x, t):
    row = x[t]
    x.add_(1)
    return row * 1


def a_write_shows_in_the_tensor(x, t):
    x[t].mul_(2)
    return x.sum()


def a_write_shows_through_both(x, t):
    row = x[t]
    row += 1
    return x * 1


def a_row_is_filled_with_a_history(x, t):
    w = x.detach().requires_grad_()
    y = w * 2
    y[t] += 1
    (y * y).sum().backward()
    return w.grad


def a_tensor_and_its_row(x, t):
    y = x * 2
    row = y[t]
    row.add_(0.5)
    return y


SHOWN = (
    lambda x, t: x[t],
    lambda x, t: x[t][1:],
    a_write_shows_in_the_row,
    a_write_shows_in_the_tensor,
    a_write_shows_through_both,
    a_row_is_filled_with_a_history,
    a_tensor_and_its_row,
)


def made_of_places(wrap, function):
    x, traced = X.clone(), wrap(function)

    def call(i):
        found = traced(x, lamina.tensor(i + 1))
        before = float(found.sum())
        if found.ndim and not found.requires_grad:
            found.mul_(0.5)
        return before + float((x * lamina.arange(60.0).reshape(20, 3)).sum())

    return call, traced


@pytest.mark.parametrize("name", PICKED)
def test_place_of_a_tensor_is_an_operand(name):
    traced = both_ways(made_of_places, function=PICKED[name])
    assert traced.counts()["served"] >= 9, traced.explain(detail=True)


@pytest.mark.parametrize("function", SHOWN)
def test_part_at_a_place_of_a_tensor_that_is_seen_to_be_a_view_is_refused(function):
    traced = both_ways(made_of_places, function=function)
    assert not traced.counts()["served"] and "x[t] is a view" in traced.explain()
