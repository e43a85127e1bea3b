"""Convolutions and products with nothing along an axis: no pass chooses tiles for them."""

import itertools
import warnings

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.nn import functional as F


def agree(function, shapes):
    """Traced, with gradients, and without a warning that something was left to the interpreter."""
    tensors = [lamina.rand(shape).requires_grad_() for shape in shapes]
    wanted = function(*tensors)
    grads = lamina.autograd.grad(wanted.square().sum(), tensors)
    traced = jit.trace(function, budget=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            found = traced(*tensors)
            made = lamina.autograd.grad(found.square().sum(), tensors)
    for one, other in zip((wanted, *grads), (found, *made), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


CHANNELS = [pair for pair in itertools.product((0, 3), (0, 5)) if 0 in pair]


@pytest.mark.parametrize("inside, outside", CHANNELS)
@pytest.mark.parametrize("batch", [0, 1, 8, 32])
@pytest.mark.parametrize("taps, stride", [(3, 1), (3, 2), (1, 1), (4, 2)])
def test_convolutions_without_channels(batch, inside, outside, taps, stride):
    def function(x, w, b):
        return F.relu(F.conv2d(x, w, b, stride=stride, padding=1))

    agree(function, [(batch, inside, 9, 9), (outside, inside, taps, taps), (outside,)])


@pytest.mark.parametrize("inside, outside", CHANNELS)
@pytest.mark.parametrize("batch", [0, 8])
def test_transposed_convolutions_without_channels(batch, inside, outside):
    def function(x, w):
        return F.conv_transpose2d(x, w, stride=2, padding=1)

    agree(function, [(batch, inside, 5, 5), (inside, outside, 4, 4)])


@pytest.mark.parametrize("rows, depth, columns", [s for s in itertools.product((0, 40), repeat=3) if 0 in s])
def test_products_of_nothing(rows, depth, columns):
    agree(lambda x, w, b: F.gelu(F.linear(x, w, b)), [(rows, depth), (columns, depth), (columns,)])
    agree(lambda x, w: x @ w, [(3, rows, depth), (3, depth, columns)])
