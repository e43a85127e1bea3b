"""Functions written with ops take an array as operators do: as a tensor."""

import numpy as np
import pytest

import lamina


@pytest.mark.parametrize("name", ["exp", "diff", "trapezoid", "matrix_exp", "mvlgamma", "nanmean"])
def test_an_array_is_taken_as_a_tensor(name):
    x = np.full((3, 3), 2.5)
    more = (2,) if name == "mvlgamma" else ()
    found = getattr(lamina, name)(x, *more)
    assert type(found) is lamina.Tensor
    assert found.equal(getattr(lamina, name)(lamina.tensor(x), *more))


def test_differences_of_any_order_end():
    assert lamina.diff(lamina.ones(3), 2**62).shape == (0,)
