"""`d[m] = x[m]`, `x[m].sum()`, `x[m].mean()`: compiled, whatever the mask's count; else as Python has it."""

import pytest

import lamina
from lamina import autograd, jit, nn


def given(seed, *shape):
    lamina.manual_seed(seed)
    return lamina.randn(*shape), lamina.randn(*shape)


def put(d, x):
    d, m = d.clone(), x > 0
    d[m] = x[m]
    return d


def put_in_argument(d, x):
    m = x > 0.3
    d[m] = x[m]
    return d.sum()


def put_rows(d, x):
    d, m = d * 2, x[:, 0] > 0
    d[m] = x[m]
    return d


def put_itself(d, x):
    m = x > 0
    m[m] = m[m]
    return m.float()


def put_overlapping(d, x):
    whole = lamina.cat([d, x])
    into, of, m = whole[1:9], whole[0:8], x > 0
    into[m] = of[m]
    return whole


class Holder:
    pass


holder = Holder()


def put_in_attribute(d, x):
    holder.d, holder.x, m = d.clone(), x, x > 0
    holder.d[m] = holder.x[m]
    return holder.d


def gradients_of_put(d, x):
    d, x = d.detach().requires_grad_(), x.detach().requires_grad_()
    out, m = d * 1, x > 0
    out[m] = (x * x)[m]
    first = autograd.grad((out * out).sum(), (d, x), create_graph=True)
    return lamina.cat([*first, autograd.grad(first[1].sum(), x)[0]])


def summed(d, x):
    return x[x > 0].sum() + d[x[:, 0] > 0].sum()


def mean(d, x):
    return x[x > d].mean() + d[x[:, 0] > 0].mean()


def mean_of_nothing(d, x):
    return x[x > 100].mean()


def sum_of_doubles(d, x):
    return x.double()[d > 0].sum()


def masked_loss(d, x):
    x = x.detach().requires_grad_()
    loss = (x.log() * x)[x > 0].mean()  # NaN where it is not selected
    return autograd.grad(loss, x)[0].nan_to_num(7.0)


def filled(d, x):
    d, m = d.clone(), x.isnan()
    x = x / 0
    d[m] = x[m]
    return d


def of_rows(d, x):
    classes = x.argmax(1) % 3
    found = [x[classes == c].mean(0) + d[classes == c].sum(dim=0) for c in range(3)]
    return lamina.stack(found)


SERVED = [
    of_rows,
    put, put_in_argument, put_rows, put_itself, put_overlapping, put_in_attribute,
    gradients_of_put, summed, mean, mean_of_nothing, sum_of_doubles, masked_loss, filled,
]  # fmt: skip


@pytest.mark.parametrize("function", SERVED, ids=lambda f: f.__name__)
def test_selections_that_are_used_at_once_are_compiled(function):
    traced = jit.trace(function)
    for seed in range(6):
        (d, x), (e, y) = given(seed, 8, 5), given(seed, 8, 5)
        wanted, found = function(d, x), traced(e, y)
        assert lamina.allclose(wanted, found, equal_nan=True) and wanted.dtype is found.dtype
        assert lamina.equal(d, e) and lamina.equal(x, y) and d._version == e._version
    assert traced.counts()["served"] >= 3, traced.explain()


def its_size(d, x):
    kept = x[x > 0]
    return kept.sum() / len(kept)


def other_mask(d, x):
    d, m, n = d.clone(), x > 0, -x < 0
    d[n] = x[m]
    return d


def other_shape(d, x):
    d, m = lamina.zeros(9, 5), x > 0
    d[:8][m] = x[m]
    return d


def by_numbers(d, x):
    d, m = d.clone(), (x > 0).long()[:, 0]
    d[m] = x[m]
    return d


def of_bytes(d, x):
    return x.long()[x > 0].sum()


def along(d, x):
    one, m = 1, x[:, 0] > 0
    return x[m].sum(one).sum() + x[m].mean(-1).sum() + x[m].sum(1).mean() + x[m].sum(0, True)[0]


def of_lists(d, x):
    items, others = [1.0, 2.0], [3.0, 4.0]
    items[0] = others[1]
    return x * items[0]


def of_empty(d, x):
    d, x = d[:0].clone(), x[:0]
    m = x > 0
    d[m] = x[m]
    return d


@pytest.mark.parametrize(
    "function",
    [its_size, other_mask, other_shape, by_numbers, of_bytes, along, of_lists, of_empty],
    ids=lambda f: f.__name__,
)
def test_other_selections_stay_right(function):
    traced = jit.trace(function)
    for seed in range(6):
        d, x = given(seed, 8, 5)
        assert lamina.allclose(function(d, x), traced(d, x), equal_nan=True)


class Seen(Holder):
    """An object whose attribute is computed, by code that changes what was selected from."""

    @property
    def d(self):
        self.x.mul_(2)
        return self.into


def test_code_that_runs_in_between_sees_what_python_has_it_see():
    def function(d, x):
        seen = Seen()
        seen.into, seen.x, m = d.clone(), x.clone(), x > 0
        seen.d[m] = seen.x[m]
        return seen.into

    traced = jit.trace(function)
    for seed in range(5):
        d, x = given(seed, 8, 5)
        assert lamina.equal(function(d, x), traced(d, x))


def _seen_before(x):
    """A view of a tensor that asks for its gradient since."""
    view = x[:]
    x.requires_grad_()
    KEPT.append(x)
    return view


KEPT = []


@pytest.mark.parametrize(
    ("into", "source", "mask"),
    [
        (lamina.zeros(3), lamina.ones(4), lamina.ones(4, dtype=lamina.bool)),
        (lamina.zeros(4), lamina.ones(4), lamina.ones(3, dtype=lamina.bool)),
        (nn.Parameter(lamina.zeros(4)), lamina.ones(4), lamina.ones(4, dtype=lamina.bool)),
        (nn.Parameter(lamina.zeros(1, 4))[0], lamina.ones(4), lamina.ones(4, dtype=lamina.bool)),
        (lamina.zeros(1).expand(4), lamina.ones(4), lamina.ones(4, dtype=lamina.bool)),
        (lamina.zeros(4).half(), lamina.ones(4), lamina.ones(4, dtype=lamina.bool)),
        (_seen_before(lamina.zeros(4)), lamina.ones(4), lamina.ones(4, dtype=lamina.bool)),
        (lamina.zeros(5).as_strided((2, 4), (1, 1)), lamina.ones(2, 4), lamina.ones(2, 4, dtype=lamina.bool)),
    ],
    ids=[
        "shape",
        "mask",
        "leaf",
        "leaf's view",
        "expanded",
        "dtype",
        "view of what became a leaf",
        "windows",
    ],
)
def test_errors_are_those_of_the_plain_run(into, source, mask):
    def function():
        into[mask] = source[mask]

    traced, told = jit.trace(function), []
    for called in (function, traced, traced, traced):
        with pytest.raises(Exception) as caught:
            called()
        told.append((type(caught.value), str(caught.value).splitlines()[0]))
    assert len(set(told)) == 1, told


def test_items_that_the_user_made_are_asked(monkeypatch):
    asked, own = [], lamina.Tensor.__getitem__

    def item(self, key):
        asked.append(key)
        return own(self, key)

    traced = jit.trace(lambda x: x[x > 0].sum())
    x = lamina.tensor([1.0, -2.0])
    for _ in range(3):
        traced(x)
    monkeypatch.setattr(lamina.Tensor, "__getitem__", item)
    assert traced(x).item() == 1.0 and asked
    monkeypatch.undo()
    monkeypatch.setattr(lamina.Tensor, "sum", lambda self: lamina.tensor(7.0))
    assert traced(x).item() == 7.0
