"""where on arrays large enough to be chosen by bit masks: the same bits as np.where, whatever they mean."""

import numpy as np
import pytest

import lamina
from lamina.ir.op import REGISTRY

CONDITION = np.arange(90 * 60).reshape(90, 60) % 7 < 3
ODD = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, np.finfo(np.float32).tiny / 2]


def spread(dtype, shape=CONDITION.shape, shift=0):
    """An array that repeats odd values (for ints whole ones) and is no constant along either dimension."""
    values = np.array(ODD if np.dtype(dtype).kind == "f" else range(7)).astype(dtype)
    return np.resize(np.roll(values, shift), shape)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
@pytest.mark.parametrize(
    "case", ["both", "zero other", "zero input", "-0.0 other", "row", "strided", "number"]
)
def test_where_keeps_every_bit(dtype, case):
    condition, a, b = CONDITION, spread(dtype), spread(dtype, shift=2)
    zero = np.zeros((), dtype)
    if case == "zero other":
        b = zero
    elif case == "zero input":
        a = zero
    elif case == "-0.0 other":
        b = -zero if zero.dtype.kind == "f" else zero
    elif case == "number":
        b = True if dtype == "bool" else 3
    elif case == "row":
        b = b[:1]
    elif case == "strided":
        condition, a = np.tile(condition, 2)[:, ::2], spread(dtype, (60, 90)).T
    got = REGISTRY["where"].reference(condition, a, b)
    want = np.where(condition, a, b)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == want.tobytes()


def test_relu_gradient_is_zero_where_the_cotangent_is_infinite():
    """A product with the mask would give nan there."""
    x = lamina.full((80, 80), -1.0, requires_grad=True)
    x.relu().backward(lamina.full((80, 80), float("inf")))
    assert (x.grad == 0).all()
