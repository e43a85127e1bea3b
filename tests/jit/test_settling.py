"""Whatever came before, a call that has come three times is served: no path hides another for ever."""

from __future__ import annotations

import random

import numpy as np
import pytest

import lamina
from lamina import jit


def drawn_function(rng):
    """A function of a few stages, each of which asks a tensor, a size, a number or a list, or uses it."""
    stages = [rng.randrange(9) for _ in range(rng.randrange(2, 6))]

    def f(x, config):
        y = x
        for stage in stages:
            if stage == 0:
                y = y * config["factor"]
            elif stage == 1:
                y = y + 1 if y.sum() > 0 else y - 1
            elif stage == 2:
                y = y * 2 if config["factor"] > 1.5 else y + 3
            elif stage == 3:
                y = y + config["count"]
            elif stage == 4:
                for _ in range(config["count"]):
                    y = y + 0.5
            elif stage == 5:
                y = y + 1 if y.max().item() > config["factor"] else y.neg()
            elif stage == 6:
                y = y + len(config["names"])
            elif stage == 7:
                y = y - 2 if x.shape[0] > 3 else y * 0.5
            else:
                y = lamina.cat([y, y[: int(y.abs().max()) % 3]])
        return y

    return f


def drawn_call(rng):
    config = {
        "factor": rng.choice([1.0, 2.0, 3.0]),
        "count": rng.choice([0, 1, 2]),
        "names": [0] * rng.choice([0, 1, 2]),
    }
    return lamina.full((rng.choice([1, 2, 3, 5]),), rng.choice([1.0, -1.0, 4.0])), config


@pytest.mark.parametrize("seed", range(60))
def test_calls_that_come_again_are_served(seed):
    rng = random.Random(seed)
    g = drawn_function(rng)
    f, calls = jit.trace(g, max_recordings=1000), [drawn_call(rng) for _ in range(8)]
    for call in [*(rng.choice(calls) for _ in range(30)), *calls, *calls]:
        assert np.array_equal(f(*call).numpy(), g(*call).numpy())
    before = f.counts()
    for call in calls:
        assert np.array_equal(f(*call).numpy(), g(*call).numpy())
    assert f.counts() == before | {"served": before["served"] + len(calls)}, f.explain(detail=True)


def test_what_fits_an_older_path_too_far_is_served_by_its_own():
    @jit.trace
    def f(x, config):
        y = x * config["factor"]
        return y * 2 if y.sum() > 0 else y - 1

    positive, negative = lamina.ones(3), lamina.full((3,), -1.0)
    for factor in (1.0, 2.0, 3.0, 4.0):  # that becomes an input; the first path knows 1.0 alone
        f(positive, {"factor": factor})
    before = f.counts()
    for _ in range(5):
        assert f(negative, {"factor": 1.0}).tolist() == [-2.0] * 3
    assert f.counts() == before | {"served": before["served"] + 4, "recorded": before["recorded"] + 1}
