"""NumPy's functions on tensors, and arrays as the left operands of operators."""

import numpy as np
import pytest

import lamina

ARRAY = np.array([[0.5, 1.0, 2.0], [3.0, 0.25, 4.0]], np.float32)
BINARY = [
    np.add, np.subtract, np.multiply, np.true_divide, np.floor_divide, np.remainder, np.power, np.less,
    np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.maximum, np.hypot,
]  # fmt: skip


@pytest.mark.parametrize("name", ["sqrt", "exp", "log", "abs", "sin", "tanh", "floor", "isnan", "negative"])
def test_a_function_of_one_tensor(name):
    x = lamina.tensor(ARRAY)
    found = getattr(np, name)(x)
    assert isinstance(found, lamina.Tensor)
    assert lamina.equal(found, getattr(lamina, name)(x))


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_a_function_of_an_array_and_a_tensor_in_either_order(ufunc):
    x, other = lamina.tensor(ARRAY), ARRAY[::-1].copy()
    for found, wanted in ((ufunc(other, x), ufunc(other, ARRAY)), (ufunc(x, other), ufunc(ARRAY, other))):
        assert isinstance(found, lamina.Tensor) and found.numpy().dtype == wanted.dtype
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)  # 8 roundings of float32


def test_an_array_on_the_left_of_an_operator():
    x = lamina.tensor(ARRAY, requires_grad=True)
    found = ARRAY * x + ARRAY @ x.T.sum(1, keepdim=True) - np.float64(2) * x
    assert isinstance(found, lamina.Tensor) and found.dtype is lamina.float32
    found.sum().backward()
    # A @ (sums of columns of x), a column, is added to each of the 3 columns of A * x
    assert np.allclose(x.grad.numpy(), ARRAY + 3 * ARRAY.sum(0) - 2)


def test_functions_of_numpy_differentiate():
    x = lamina.tensor([1.0, 4.0], requires_grad=True)
    np.sqrt(x).sum().backward()
    assert x.grad.tolist() == [0.5, 0.25]


def test_reductions_of_numpy_refuse_what_no_op_does():
    with pytest.raises(lamina.ArgumentError, match=r"np.add.reduce\(…\) does not take tensors"):
        np.add.reduce(lamina.ones(3))
