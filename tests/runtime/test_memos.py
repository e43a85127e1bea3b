"""What an op remembers of a call must not answer another: 1, 1.0 and True are equal, 0.0 and -0.0 too."""

import numpy as np
import pytest

import lamina


@pytest.mark.parametrize("order", [(1.0, 1, True), (True, 1.0, 1), (1, True, 1.0)])
@pytest.mark.parametrize("named", [False, True])
def test_equal_numbers_of_other_types_are_other_arguments(order, named):
    wanted = {float: lamina.float32, int: lamina.int64, bool: lamina.bool}
    for value in order:
        made = lamina.full((2,), fill_value=value) if named else lamina.full((2,), value)
        assert made.dtype is wanted[type(value)]


@pytest.mark.parametrize("first, second", [(6.0, 6), (6, 6.0)])
def test_a_range_takes_its_own_end(first, second):
    wanted = {float: lamina.float32, int: lamina.int64}
    assert [lamina.arange(n).dtype for n in (first, second)] == [wanted[type(first)], wanted[type(second)]]


def test_zeros_keep_their_sign():
    x, at = lamina.ones(1), lamina.tensor([0])
    for zero in (0.0, -0.0, 0.0):
        for made in (lamina.full((1,), zero), lamina.index_fill(x, 0, at, zero)):
            assert np.signbit(made.numpy()[0]) == np.signbit(zero)


def test_a_padding_of_minus_zero_is_not_one_of_zero():
    x = lamina.ones(1)
    lamina.nn.functional.pad(x, (1, 0), value=0.0)
    assert np.signbit(lamina.nn.functional.pad(x, (1, 0), value=-0.0).numpy()[0])


def test_one_tensor_given_twice_does_not_answer_for_two():
    x, w, b = lamina.randn(5, 11), lamina.randn(11), lamina.randn(11)  # sizes that no other test makes known
    lamina.layer_norm(x, (11,), w, w)
    found = lamina.layer_norm(x, (11,), w, b)
    plain = (x - x.mean(1, True)) / (x.var(1, False, True) + 1e-5).sqrt()
    np.testing.assert_allclose(found.numpy(), (plain * w + b).numpy(), rtol=1e-4, atol=1e-5)


def test_limits_of_zero_keep_their_sign():
    x = lamina.tensor([-1.0])
    for zero in (0.0, -0.0, 0, -0.0, 0.0):
        wanted = np.signbit(np.float32(zero))
        assert np.signbit(x.clamp(min=zero).numpy()[0]) == wanted
        assert np.signbit(x.clamp(zero, 1.0).numpy()[0]) == wanted
        assert np.signbit(lamina.where(x > 0, x, zero).numpy()[0]) == wanted


def test_numbers_of_other_types_are_other_operands():
    x, mask = lamina.tensor([1, 2]), lamina.tensor([True, False])
    wanted = {float: lamina.float32, int: lamina.int64, bool: lamina.int64}
    for value in (2, 2.0, True, 1, 1.0, 2):
        assert lamina.where(mask, x, value).dtype is wanted[type(value)]
