"""Weights packed two in a byte, and errors of what multiplies bytes."""

import numpy as np
import pytest

import lamina
from lamina.runtime import ops


@pytest.mark.parametrize("group", [2, 6, 32, 96])
def test_what_was_packed_is_unpacked(group):
    q = lamina.tensor(np.random.default_rng(0).integers(-8, 8, (5, 96)).astype(np.int8))
    packed = ops.pack_int4(q, group)
    assert packed.dtype is lamina.uint8 and packed.shape == (5, 48)
    np.testing.assert_array_equal(ops.unpack_int4(packed, group).numpy(), q.numpy())


def test_the_first_half_of_a_group_is_in_the_low_bits():
    q = lamina.tensor(np.array([[-8, 1, 7, 0]], np.int8))
    assert ops.pack_int4(q, 4).tolist() == [[0 + 15 * 16, 9 + 8 * 16]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda q: ops.pack_int4(q, 5), "groups are even and divide"),
        (lambda q: ops.unpack_int4(q, 64), "groups are even and divide"),
        (lambda q: ops.unpack_int4(q.float(), 4), "must be uint8"),
        (lambda q: ops.int_matmul(q.int(), q), "a must be int8 or uint8, not int32"),
        (lambda q: ops.int_matmul(q, q.byte()), "b must be int8, not uint8"),
        (lambda q: ops.int_matmul(q, q), "int_matmul(a, b.T) would give"),
        (lambda q: ops.int_matmul(q[0], q), "both need 2 dimensions"),
        (
            lambda q: ops.int_conv1d(q[None], q[:, :2, None], padding_value=200),
            "a number that int8 holds",
        ),
        (lambda q: ops.int_conv1d(q[None], q[:, :2, None], padding_value=1.5), "as an integer"),
        (lambda q: ops.pack_int4(q.float(), 4), "input must be int8, not float32"),
    ],
)
def test_errors_name_the_rule_and_the_way_out(call, said):
    with pytest.raises(lamina.LaminaError) as found:
        call(lamina.tensor(np.zeros((2, 8), np.int8)))
    assert said in str(found.value)
