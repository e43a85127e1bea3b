"""Products of operands that are not dense."""

import numpy as np
import pytest

import lamina
from lamina.ir.ops.matmul import linear_reference


class _WithoutDot(np.ndarray):
    def dot(self, *_):
        raise AssertionError("NumPy's dot of more than two dims that are not dense sums without BLAS")


@pytest.mark.parametrize("weight", [np.ones((5, 3)), np.ones(3)])
def test_linear_of_transposed_inputs_goes_by_blas(weight):
    """As of `x.flatten(2).transpose(1, 2)`, which vision transformers make of images: 2 ms for 0.06."""
    x = np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1).view(_WithoutDot)
    found = linear_reference(x, weight, None)
    np.testing.assert_array_equal(found, np.asarray(x) @ weight.T)


@pytest.mark.parametrize(
    "equation, left, right", [("ab,bc->ac", (2, 1), (1, 4)), ("abc,acd->abd", (2, 3, 1), (2, 1, 4))]
)
def test_einsum_over_one_element_is_a_product_that_promotes(equation, left, right):
    """As of a complex64 spectrum with one channel and complex128 weights; a real sum wants one dtype."""
    x, y = np.random.rand(*left).astype(np.float32), np.random.rand(*right)
    found = lamina.einsum(equation, lamina.tensor(x), lamina.tensor(y))
    assert found.dtype is lamina.float64
    np.testing.assert_array_equal(found.numpy(), np.einsum(equation, x, y))
    with pytest.raises(lamina.DTypeError, match="the dtypes of a and b must be equal"):
        lamina.einsum("ab,bc->ac", lamina.ones(2, 3), lamina.ones(3, 4, dtype=lamina.float64))
