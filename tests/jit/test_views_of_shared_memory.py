"""Views that leave a run are of the very tensor that they were taken of, though others share its memory."""

import pytest

import lamina
from lamina import jit, nn


def of_the_second():
    x = lamina.arange(4.0)
    w = x.detach()
    return lambda x: (x.sum(), w[1:]), x, lambda r: r[1]._base is w


def of_both():
    x = lamina.arange(4.0)
    w = x.detach()
    return lambda x: (w[1:], x[1:], x.view(2, 2)), x, lambda r: [v._base is b for v, b in zip(r, (w, x, x))]


def of_what_was_detached():
    x = nn.Parameter(lamina.arange(4.0))
    return lambda x: (x.detach()[1:], x.data[:2]), x, lambda r: [v._base is x for v in r]


def of_a_view():
    z = lamina.arange(6.0)
    return lambda x: x[1:3], z[1:5], lambda r: r._base is z


def of_a_gradient():
    p = nn.Parameter(lamina.ones(3))
    p.grad = lamina.arange(3.0)
    return lambda x: p.grad[1:], p, lambda r: r._base is p.grad


KINDS = [of_the_second, of_both, of_what_was_detached, of_a_view, of_a_gradient]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_view_has_its_own_base(kind):
    function, x, look = kind()
    wanted, traced = look(function(x)), jit.trace(function)
    for _ in range(4):
        assert look(traced(x)) == wanted
    assert traced.counts()["served"] == 3, traced.explain()


def test_a_history_that_begins_later_is_seen_through_the_view():
    """Of the tensor that a compiled call took the view of."""
    told = []
    for trace in (lambda f: f, jit.trace):
        x = lamina.arange(4.0)
        w = x.detach()
        made = trace(lambda x, w=w: (x + 1, w[1:]))
        for _ in range(3):
            view = made(x)[1]
        w.requires_grad_()
        with pytest.raises(RuntimeError) as caught:
            view.mul_(2)
        told.append(str(caught.value))
    assert told[0] == told[1]
