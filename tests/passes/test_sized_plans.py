"""Plans of memory as formulas: at any sizes every read finds what was written for it, and slots lie apart."""

import pytest

import lamina
from lamina import jit, nn
from lamina.ir.dims import hints, limits
from lamina.ir.errors import GraphError
from lamina.jit import backend
from lamina.passes.programs.memory_plan import verify


def attend(x):
    q, k, v = x @ WEIGHTS[0], x @ WEIGHTS[1], x @ WEIGHTS[2]
    scores = (q @ k.transpose(-2, -1)).softmax(-1)
    return (scores @ v + x).relu().cumsum(1), scores.sum(-1)


WEIGHTS = [lamina.ones(16, 16) * 0.1 for _ in range(3)]
LAYER = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
SIZES = (2, 2), (2, 65), (3, 7), (9, 4), (40, 3), (17, 33), (64, 64)


def templates(function):
    """Those that a function has once its sizes have changed."""
    backend._templates.clear()
    traced = jit.trace(function, budget=None)
    with lamina.no_grad():
        for batch, time in (4, 6), (5, 7), (6, 9):
            traced(lamina.ones(batch, time, 16))
    return [*filter(None, backend._templates.values())]


@pytest.mark.parametrize("function", [attend, LAYER], ids=["attention", "encoder"])
def test_plans_hold_at_all_sizes(function):
    plans = 0
    for template in templates(function):
        plan = template.programs.sized.plan
        assert plan.offsets, "nothing in the arena depends on sizes"
        for batch, time in SIZES:
            sizes = dict(zip(template.names, (batch, time), strict=True))
            with limits(dict.fromkeys(sizes, (2, 1 << 40))), hints(sizes):
                verify(plan.at(sizes))
            plans += 1
    assert plans >= len(SIZES), "no program was made of symbols"


def test_slots_that_are_laid_over_one_another_are_found():
    (template,) = templates(attend)
    plan = template.programs.sized.plan
    low = {name: (0,) if name.startswith("offset") else ends for name, ends in plan.offsets.items()}
    with pytest.raises(GraphError, match="plan of"):
        verify(plan.replace(offsets=low).at(dict(zip(template.names, (3, 7), strict=True))))
