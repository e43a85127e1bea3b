"""lamina.array_api: what is strict about it, and where it differs from Lamina's own functions.

The standard's own suite is run by tests/peers/array_api_suite.py.
"""

import subprocess
import sys

import numpy as np
import pytest

import lamina
from lamina import array_api as xp
from lamina.ir.errors import LaminaError


def test_a_tensor_knows_its_namespace():
    x = xp.asarray([1.0, 2.0])
    assert type(x) is lamina.Tensor and x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp and x.to_device("cpu") is x
    with pytest.raises(ValueError, match="2024.12"):
        x.__array_namespace__(api_version="2021.12")
    with pytest.raises(LaminaError, match="device"):
        x.to_device("cuda")


def test_it_is_loaded_when_it_is_asked_for():
    code = "import lamina, sys; assert 'lamina.array_api' not in sys.modules; lamina.array_api.add"
    subprocess.run([sys.executable, "-c", code], check=True)


PROMOTED = (
    ("uint8", "int8", "int16"), ("uint16", "int16", "int32"), ("uint32", "int8", "int64"),
    ("uint16", "uint64", "uint64"), ("float32", "float64", "float64"), ("float64", "complex64", "complex128"),
)  # fmt: skip


@pytest.mark.parametrize(("a", "b", "wanted"), PROMOTED)
def test_promotion_counts_0d_operands(a, b, wanted):
    x, y = xp.ones(2, dtype=getattr(xp, a)), xp.ones((), dtype=getattr(xp, b))
    assert xp.add(x, y).dtype is xp.add(y, x).dtype is xp.result_type(x, y) is getattr(xp, wanted)
    assert xp.can_cast(x, getattr(xp, wanted))


X = xp.asarray([1.0, 2.0])
REFUSED = {
    "int with float": lambda: xp.add(X, xp.asarray([1, 2])),
    "uint64 with int64": lambda: xp.add(xp.ones(2, dtype=xp.uint64), xp.ones(2, dtype=xp.int64)),
    "bool added": lambda: xp.add(xp.asarray([True]), xp.asarray([True])),
    "two numbers": lambda: xp.add(1, 2),
    "a float beside ints": lambda: xp.add(xp.asarray([1]), 2.5),
    "a bool beside ints": lambda: xp.add(xp.asarray([1]), True),
    "halves": lambda: xp.exp(lamina.ones(2, dtype=lamina.float16)),
    "an int's sine": lambda: xp.sin(xp.asarray([1])),
    "complex to real": lambda: xp.astype(xp.asarray([1j]), xp.float32),
    "a list": lambda: xp.sum([1.0]),
    "nothing": lambda: xp.sum(None),
    "another dtype": lambda: xp.zeros(2, dtype=lamina.float8_e5m2),
    "a kind": lambda: xp.isdtype(xp.int8, "number"),
    "squeezed": lambda: xp.squeeze(X, 0),
    "0-d nonzero": lambda: xp.nonzero(xp.asarray(1)),
    "shared memory": lambda: xp.asarray([1.0], copy=False),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_the_standard_leaves_undefined_is_refused(call):
    with pytest.raises(LaminaError):
        call()


def test_special_cases():
    inf, nan = float("inf"), float("nan")
    found = xp.floor_divide(xp.asarray([inf, -inf, 1.0, 7.0]), xp.asarray([2.0, 2.0, -inf, -2.0]))
    assert repr(found.tolist()) == "[inf, -inf, -0.0, -4.0]"
    assert repr(xp.remainder(xp.asarray([-0.0, 0.0]), xp.asarray([2.0, -2.0])).tolist()) == "[0.0, -0.0]"
    assert np.isnan(xp.sign(xp.asarray(nan)).item())
    assert repr(xp.expm1(xp.asarray([0j, complex(-inf, inf)])).tolist()).startswith("[0j, (-1")
    tiny = xp.expm1(xp.asarray([1e-9 + 1e-9j], dtype=xp.complex128)).item()
    assert abs(tiny - (1e-9 + 1e-9j + 1e-18j)) < 1e-24  # x + x^2 / 2, of which exp(x) - 1 keeps 7 digits


def test_sums_are_wide_and_keep_their_sign():
    for dtype, wanted in ((xp.uint8, xp.uint64), (xp.int8, xp.int64), (xp.float32, xp.float32)):
        x = xp.asarray([200 if dtype is not xp.int8 else 100] * 3, dtype=dtype)
        for reduced in (xp.sum(x), xp.cumulative_sum(x)[-1], xp.linalg.trace(xp.stack([x, x, x]))):
            assert reduced.dtype is wanted and reduced.item() == 3 * x[0].item()
    assert xp.prod(xp.ones((2, 3)), axis=(0, 1)).shape == () and xp.sum(xp.ones((2, 3)), axis=()).shape == (
        2,
        3,
    )


def test_unique_tells_every_nan():
    found = xp.unique_all(xp.asarray([2.0, float("nan"), 2.0, float("nan")]))
    assert found.counts.tolist() == [2, 1, 1] and found.indices.tolist() == [0, 1, 3]
    assert found.inverse_indices.tolist() == [0, 1, 0, 2]


def test_gradients_flow():
    x = xp.asarray([0.5, 2.0]).requires_grad_()
    xp.sum(xp.clip(xp.multiply(x, x), 1.0, None)).backward()
    assert x.grad.tolist() == [0.0, 4.0]


def test_it_traces():
    step = lamina.jit.trace(lambda x, y: xp.sum(xp.add(xp.exp(x), y), axis=0))
    x, y = xp.ones((3, 2)), xp.ones((2,))
    for _ in range(4):
        assert np.allclose(step(x, y).numpy(), 3 * (np.e + 1))


def test_take_counts_negative_indices_from_the_end():
    x = xp.asarray([[1, 2], [3, 4], [5, 6]])
    assert xp.take(x, xp.asarray([-1, 0, -3]), axis=0).tolist() == [[5, 6], [1, 2], [1, 2]]
    assert xp.take(xp.asarray([7, 8]), xp.asarray([-2, -1])).tolist() == [7, 8]
    with pytest.raises(IndexError):
        xp.take(x, xp.asarray([-4]), axis=0)


def test_products_keep_dtypes_and_do_not_broadcast_what_they_add_up():
    one, two = xp.ones((2, 1), dtype=xp.uint8), xp.ones((3, 1), dtype=xp.uint8)
    assert xp.tensordot(one, two.mT, axes=1).dtype == xp.uint8
    assert xp.tensordot(xp.ones((1, 3), dtype=xp.int8), xp.ones((1, 3), dtype=xp.int8)).dtype == xp.int8
    assert xp.tensordot(xp.ones((1, 0), dtype=xp.uint8), xp.ones((1, 0), dtype=xp.uint8)).dtype == xp.uint8
    with pytest.raises(ValueError, match="vecdot: vectors of one length along axis -1"):
        xp.vecdot(xp.ones(3), xp.ones(1))
    assert xp.vecdot(xp.ones((2, 3)), xp.ones(3)).tolist() == [3.0, 3.0]
