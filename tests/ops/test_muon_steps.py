"""How often Muon's rule repeats is bounded: a graph's text could ask for 2**63 times."""

import numpy as np
import pytest

import lamina
from lamina.ir.op import REGISTRY


@pytest.mark.parametrize("steps", [100, 2**63, -1])
def test_steps_beyond_reason_are_refused(steps):
    p, g, buffer = (np.ones((2, 3), np.float32) for _ in range(3))
    with pytest.raises(lamina.ArgumentValueError, match="muon_update: ns_steps must be fewer than 100"):
        REGISTRY["muon_update"]([p], [g], [buffer], lr=0.1, ns_steps=steps)
