"""What an update writes has the shapes that its rule says: a graph's text could say others."""

import numpy as np
import pytest

import lamina
from lamina.ir.op import REGISTRY


@pytest.mark.parametrize("steps", [100, 2**63, -1])
def test_steps_beyond_reason_are_refused(steps):
    p, g, buffer = (np.ones((2, 3), np.float32) for _ in range(3))
    with pytest.raises(lamina.ArgumentValueError, match="muon_update: ns_steps must be fewer than 100"):
        REGISTRY["muon_update"]([p], [g], [buffer], lr=0.1, ns_steps=steps)


@pytest.mark.parametrize(
    "name, wrong", [("muon_update", (0,)), ("adafactor_update", (0,)), ("adafactor_update", (1,))]
)
def test_states_of_other_shapes_are_refused(name, wrong):
    factored = name == "adafactor_update"
    shapes = [(2, 1), (1, 3)] if factored else [(2, 3)]
    given = {"step": 2, "lr": 0.25, "eps1": 1e-3, "factored": True} if factored else {"lr": 0.1}
    states = [[lamina.ones(*shape)] for shape in shapes]
    matrix = [lamina.ones(2, 3)]
    REGISTRY[name](matrix, matrix, *states, **given)
    states[wrong[0]] = [lamina.tensor(1.0)]
    with pytest.raises(lamina.ShapeError, match=name):
        REGISTRY[name](matrix, matrix, *states, **given)


def test_a_bool_in_an_index_is_the_number():
    x = lamina.arange(24.0).view(2, 3, 4)
    assert REGISTRY["basic_index"](x, True).equal(x[1])
    assert REGISTRY["basic_index"](x, -1).equal(x[1])
