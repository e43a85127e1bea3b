"""Floats that no integer is equal to, NaN among them, become in kernels what eager makes of them."""

import pytest

import lamina
from lamina import jit

VALUES = [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 3e9, -3e9, 300.0, -1.0, 1.7, -1.7, -0.0]
INTS = ["int8", "int16", "int32", "int64", "uint8"]


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", INTS)
def test_casts_are_eagers(name, source):
    """There and back: LLVM makes `trunc(x)` of that, where it may think that the value fits."""
    dtype = getattr(lamina, name)

    def there(x):
        return x.to(dtype) + 1

    def and_back(x):
        return (2.0 - x.to(dtype)).float().sum(0), x.to(dtype).to(x.dtype) * 2

    x = lamina.tensor(VALUES * 4, dtype=getattr(lamina, source)).reshape(-1, len(VALUES))
    for function in (there, and_back):
        traced = jit.trace(function)
        for _ in range(3):
            wanted, found = function(x), traced(x)
            for a, b in zip(*((y,) if lamina.is_tensor(y) else y for y in (wanted, found)), strict=True):
                assert lamina.allclose(a, b, rtol=1e-2, equal_nan=True), (a, b)
        assert traced.counts()["served"] == 2


@pytest.mark.parametrize("source", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
@pytest.mark.parametrize("name", INTS)
def test_short_floats_are_cast_as_others(name, source):
    """ml_dtypes makes 0 of what is out of range, since 0.7."""
    dtype = getattr(lamina, name)
    x = lamina.tensor([300.0, -1.7, -300.0, 400.0, 1.7]).to(getattr(lamina, source))
    copied, put = lamina.zeros(2, 5, dtype=dtype), lamina.zeros(2, 5, dtype=dtype)
    copied.copy_(x)
    put[1] = x
    for made in (
        x.to(dtype),
        copied[0],
        put[1],
        x.expand(2, 5).to(dtype)[1],
        lamina.as_tensor(x, dtype=dtype),
    ):
        assert made.tolist() == x.float().to(dtype).tolist()
