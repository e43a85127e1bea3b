"""Small parameters are updated as one: with equal results, and only where states are those handed out."""

import pytest

import lamina
from lamina import optim
from lamina.optim.flat import MOST, flat_for

RULES = {
    "SGD": lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params: optim.Adam(params, lr=0.1),
    "AdamW": lambda params: optim.AdamW(params, lr=0.1, amsgrad=True),
    "RMSprop": lambda params: optim.RMSprop(params, lr=0.1, momentum=0.5, centered=True),
    "Adagrad": lambda params: optim.Adagrad(params, lr=0.1, initial_accumulator_value=0.5),
}


def parameters() -> list[lamina.Parameter]:
    lamina.manual_seed(1)
    return [lamina.Parameter(lamina.randn(*size)) for size in ((3, 4), (4,), (), (0, 2), (2, 3))]


def descend(optimizer: optim.Optimizer, params: list, steps: int) -> list:
    for _ in range(steps):
        optimizer.zero_grad()
        sum((p * p * (i + 1)).sum() for i, p in enumerate(params)).backward()
        optimizer.step()
    return [p.tolist() for p in params]


@pytest.mark.parametrize("rule", RULES)
def test_updated_as_one_and_each_alone_agree(rule, monkeypatch):
    together = parameters()
    found = descend(RULES[rule](together), together, 5)
    monkeypatch.setattr(optim.optimizer, "flat_for", lambda params, names: None)
    apart = parameters()
    assert found == descend(RULES[rule](apart), apart, 5)


def test_states_put_in_by_hand_are_used():
    params = parameters()
    optimizer = RULES["SGD"](params)
    descend(optimizer, params, 1)
    optimizer.state[params[0]]["momentum_buffer"] = lamina.full((3, 4), 100.0)
    before = params[0].detach().clone()
    descend(optimizer, params, 1)
    # p - lr * (0.9 * 100 + g), of which the buffer's part is 9
    assert bool(((before - params[0].detach()) > 8.0).all())


def test_a_parameter_without_a_gradient_stays_as_it_is():
    params = parameters()
    optimizer = RULES["Adam"](params)
    descend(optimizer, params, 2)
    kept, moved = params[1].tolist(), params[0].tolist()
    optimizer.zero_grad()
    (params[0] * params[0]).sum().backward()
    optimizer.step()
    assert params[1].tolist() == kept and params[0].tolist() != moved


def test_states_stay_writable_views_of_their_own_shapes():
    params = parameters()
    optimizer = RULES["Adam"](params)
    descend(optimizer, params, 1)
    state = optimizer.state_dict()["state"]
    assert [tuple(state[i]["exp_avg"].shape) for i in range(len(params))] == [tuple(p.shape) for p in params]
    state[0]["exp_avg"].zero_()
    assert state[1]["exp_avg"].tolist() != [0.0] * 4


def test_large_or_few_or_mixed_parameters_are_not_gathered():
    few = parameters()[:2]
    large = [lamina.Parameter(lamina.zeros(MOST)) for _ in range(3)]
    mixed = [*parameters(), lamina.Parameter(lamina.zeros(3, dtype=lamina.float64))]
    for params in (few, large, mixed):
        assert flat_for(params, ("momentum_buffer",)) is None
    assert flat_for(parameters(), ()) is None


def test_parameters_that_change_their_dtype_are_no_longer_gathered():
    params = parameters()
    optimizer = RULES["SGD"](params)
    descend(optimizer, params, 1)
    (flat,) = optimizer._flats
    columns = [[optimizer.state[p]["momentum_buffer"] for p in params]]
    assert flat.holds(params, columns)
    params[0].data = params[0].data.double()
    assert not flat.holds(params, columns)
    params[0].data = lamina.zeros(1)
    assert not flat.holds(params, columns)
