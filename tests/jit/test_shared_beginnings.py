"""Recordings that begin alike share their beginning only if they took the same for granted there."""

import dataclasses

import pytest

import lamina
from lamina import jit, nn, optim
from lamina.jit.observe.parts import Part


def asked(x, y):
    """`y` this way or that, as the argument says."""
    return y + 1 if (x.sum() > 0).item() else y - 1


def history():
    p = lamina.ones(3, requires_grad=True)

    def f(x):
        p.requires_grad_((x.sum() > 0).item())
        return x * 2

    return f, lambda on: p.requires_grad_(on), lambda: p.requires_grad


def type_of_data():
    p = lamina.arange(4.0)

    def f(x):
        like = p.dtype
        return asked(x, x).to(like)

    def change(on):
        p.data = lamina.arange(4.0).to(lamina.float32 if on else lamina.float64)

    return f, change, lambda: None


def layout_of_data():
    p = lamina.arange(9.0).reshape(3, 3)

    def f(x):
        return asked(x, (x * p).view(9) if p.is_contiguous() else p.t().view(9) * 2)

    def change(on):
        p.data = lamina.arange(9.0).reshape(3, 3) if on else lamina.arange(9.0).reshape(3, 3).t()

    return f, change, lambda: None


def number_of_a_module():
    norm = nn.LayerNorm(3)

    def f(x):
        with lamina.no_grad():
            return asked(x, norm(x))

    def change(on):
        norm.eps = 1e-5 if on else 1.0

    return f, change, lambda: None


def way_of_a_module():
    drop = nn.Dropout(1.0)

    def f(x):
        return asked(x, drop(x))

    return f, lambda on: drop.train(on), lambda: None


def state_of_an_optimizer():
    p = nn.Parameter(lamina.ones(3))
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)

    def f(x):
        p.grad = x * 1
        optimizer.step()
        return asked(x, p.detach() * 1)

    def change(on):
        optimizer.param_groups[0]["momentum"] = 0.9 if on else 0.0
        if on:
            optimizer.state.clear()

    return f, change, lambda: p.tolist()


KINDS = [
    history, type_of_data, layout_of_data, number_of_a_module, way_of_a_module, state_of_an_optimizer,
]  # fmt: skip
# Both ways of the state with both answers; the first recordings have one of each.
ORDERS = [
    [(1, 1)] * 4 + [(0, -1)] * 4 + [(1, -1), (0, 1), (1, -1), (0, 1), (1, 1), (0, -1), (1, -1)],
    [(1, -1)] * 4 + [(0, 1)] * 4 + [(1, 1), (0, -1), (1, 1), (0, -1), (1, -1), (0, 1), (1, 1)],
]


@pytest.mark.parametrize("order", range(2))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_state_goes_with_its_own_answers(kind, order):
    told = []
    for trace in (lambda f: f, jit.trace):
        f, change, left = kind()
        f, found = trace(f), []
        for on, sign in ORDERS[order]:
            change(bool(on))
            found.append((f(lamina.arange(1.0, 4.0) * sign).tolist(), left()))
        told.append(found)
    for number, (wanted, found) in enumerate(zip(*told, strict=True)):
        assert lamina.allclose(*(lamina.tensor(each[0]) for each in (wanted, found))), number
        assert wanted[1] == found[1] or lamina.allclose(*map(lamina.tensor, (wanted[1], found[1]))), number


def test_all_that_a_stretch_takes_for_granted_is_compared():
    """Whoever adds a field to the guards says whether two runs that differ in it may share a beginning."""
    compared = {"lines", "later", "names", "modules", "optimizers", "held"}
    # from the lines, or words for a reader
    follows = {"reasons", "late", "weak", "slots", "pins", "places", "tensors"}
    assert {field.name for field in dataclasses.fields(Part)} == compared | follows
