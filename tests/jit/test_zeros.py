"""Of two zeros, and of NaN: what eager chooses, compiled code chooses."""

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.nn import functional as F

NAN, INF = float("nan"), float("inf")
VALUES = [0.5, 0.0, -0.0, -1.0, NAN, INF, -INF, 0.0, -0.0, 3.0, 7.0, -0.0, 0.0]
CHOOSING = {
    "relu": F.relu, "relu6": F.relu6, "hardtanh": F.hardtanh, "leaky_relu": F.leaky_relu,
    "clamp from 0": lambda x: x.clamp(0, 1), "clamp to 0": lambda x: x.clamp(-1, 0),
    "clamp from -0": lambda x: x.clamp(min=-0.0), "clamp to -0": lambda x: x.clamp(max=-0.0),
    "clamp by tensors": lambda x: x.clamp(x.flip(0) * 0.0, -x.flip(0) * 0.0),
    "maximum": lambda x: lamina.maximum(x, -x), "minimum": lambda x: lamina.minimum(x, -x),
    "maximum with 0": lambda x: lamina.maximum(x, lamina.zeros((), dtype=x.dtype)),
    "maximum of -0": lambda x: lamina.maximum(-lamina.zeros((), dtype=x.dtype), x),
    "fmax": lambda x: lamina.fmax(x, -x), "fmin": lambda x: lamina.fmin(x.flip(0), x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [lamina.float32, lamina.float64, lamina.float16], ids=str)
@pytest.mark.parametrize("name", CHOOSING)
def test_zeros_and_nan(name, dtype):
    traced = jit.trace(CHOOSING[name])
    x = lamina.tensor(VALUES, dtype=dtype)
    eager = CHOOSING[name](x).numpy()
    for _ in range(3):
        found = traced(x).numpy()
        assert np.array_equal(found, eager, equal_nan=True)
        known = ~np.isnan(eager)
        assert np.array_equal(np.signbit(found[known]), np.signbit(eager[known])), (found, eager)
    assert "served" in traced.explain().splitlines()[0]


def test_signs_are_pytorchs():
    x = lamina.tensor([0.0, -0.0] * 9)
    for kept in (F.relu(x), F.relu6(x), x.clamp(0, 1), x.clamp(max=0.0), F.hardtanh(x, 0.0, 1.0)):
        assert np.array_equal(np.signbit(kept.numpy()), np.signbit(x.numpy()))
