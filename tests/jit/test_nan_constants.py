"""Whatever the bits of a NaN that stands in a program as a number, kernels take it for one.

The sign bit of Python's NaN is that of what it came from: `-nan` has it.
"""

import struct

import pytest

import lamina
from lamina import jit

NEGATIVE = -float("nan")
WITH_PAYLOAD = struct.unpack("<d", struct.pack("<Q", 0x7FFC_0000_0000_0123))[0]
# y: a tensor, n: the number, t: the number as a tensor of its dtype.
WAYS = {
    "maximum": lambda y, n, t: lamina.maximum(y, t),
    "maximum of it": lambda y, n, t: lamina.maximum(t, y),
    "minimum": lambda y, n, t: lamina.minimum(y, t),
    "minimum of it": lambda y, n, t: lamina.minimum(t, y),
    "clamp below": lambda y, n, t: lamina.clamp(y, min=n),
    "clamp above": lambda y, n, t: lamina.clamp(y * 2, max=n),
    "fmax": lambda y, n, t: lamina.fmax(y, t),
    "fmin": lambda y, n, t: lamina.fmin(y, t),
    "less": lambda y, n, t: (y < n, y >= n, y != n, y == n),
    "where": lambda y, n, t: lamina.where(y > 1, t, y),
    "arithmetic": lambda y, n, t: (y + n, y * n, n - y, y / n),
    "isnan": lambda y, n, t: lamina.isnan(y * 0 + n),
    "relu": lambda y, n, t: lamina.relu(y * n),
    "largest": lambda y, n, t: (lamina.full_like(y, n) + y).amax(),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("size", [3, 16, 37])
@pytest.mark.parametrize("dtype", [lamina.float16, lamina.bfloat16, lamina.float32, lamina.float64], ids=str)
@pytest.mark.parametrize("number", [NEGATIVE, WITH_PAYLOAD], ids=["negative", "with a payload"])
@pytest.mark.parametrize("way", WAYS)
def test_nans_of_all_bits(way, number, dtype, size, monkeypatch):
    monkeypatch.setenv("LAMINA_CACHE_DIR", "")
    y = lamina.arange(-1.0, size - 1.0).to(dtype)

    def f(y):
        return WAYS[way](y, number, lamina.tensor(number, dtype=dtype))

    traced = jit.trace(f)
    wanted = str(f(y))
    assert [str(traced(y)) for _ in range(4)] == [wanted] * 4


def test_a_counter_that_became_nan():
    """As a random program had it: the number that is recorded is that of `-step`."""
    steps = []
    for decorate in (lambda f: f, jit.trace):
        step, told = 0, []

        @decorate
        def f(y):
            nonlocal step
            step += 1
            return lamina.maximum(y, lamina.tensor(-step))

        for i in range(8):
            if i == 2:
                step = float("nan")
            told.append(f(lamina.tensor([-1.0, 2.0, 1.0])).tolist())
        steps.append(repr(told))
    assert steps[0] == steps[1]
