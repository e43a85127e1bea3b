"""Shared rules of shape and dtype, beyond what the ops' own tests reach."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from lamina.ir.dims import conditions, symbol
from lamina.ir.errors import ShapeError
from lamina.ir.shapes import broadcast_shapes, filled_in, fitting

n, m = symbol("n"), symbol("m")


@pytest.mark.parametrize(
    ("cotangent", "operand", "how"),
    [
        ((3, 4), (3, 4), None),
        ((8, 3, 5), (3, 1), ((0, 2), (3, 1))),
        ((1, 5), (1, 1), ((1,), (1, 1))),
        ((2, 3), (), ((0, 1), ())),
        ((), (2, 3), ((), (2, 3))),
        ((1, 3), (2, 3), ((), (2, 3))),
        ((n, 3), (3,), ((0,), (3,))),
        ((n, 3), (1, 3), ((0,), (1, 3))),
        ((4, 3), (n, 3), None),  # where n is 4, on a condition that inference has set
    ],
)
def test_fitting_says_how_a_cotangent_goes_back(cotangent, operand, how):
    assert fitting(cotangent, operand) == how


@given(mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3))
def test_fitting_undoes_broadcasting(shapes):
    operand, _ = shapes.input_shapes
    how = fitting(shapes.result_shape, operand)
    g = np.ones(shapes.result_shape)
    if how is not None:
        dims, shape = how
        g = g.sum(axis=dims).reshape(shape)
    assert g.shape == operand
    assert g.sum() == np.prod(shapes.result_shape)


@given(mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_side=3))
def test_broadcast_shapes_is_numpys(shapes):
    assert broadcast_shapes("op", *shapes.input_shapes) == shapes.result_shape


def test_numbers_win_over_symbols_that_must_equal_them():
    with conditions() as found:
        assert broadcast_shapes("op", (n, 1), (4, m)) == (4, m)
    assert list(map(str, found)) == ["n == 4"]


def test_one_size_is_computed():
    assert filled_in("reshape", (2, 6), (3, -1)) == (3, 4)
    assert filled_in("reshape", (n, 6), (-1, 3)) == (2 * n, 3)
    for sizes in ((5, -1), (-1, -1), (0, -1), (3, 5), (-2, -6)):
        with pytest.raises(ShapeError):
            filled_in("reshape", (2, 6), sizes)
