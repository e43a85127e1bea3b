"""Products and convolutions of bytes are PyTorch's: its `_int_mm`, and its sums in float64, all exact."""

import numpy as np
import pytest
from byte_programs import i8, u8

import lamina
from lamina.runtime import ops

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")


@pytest.mark.parametrize(("m", "k", "n"), [(17, 8, 8), (33, 64, 40), (64, 1000, 24)])
def test_int_mm(m, k, n):
    a, b = i8(m, k), i8(k, n)
    wanted = torch._int_mm(torch.tensor(a), torch.tensor(b)).numpy()
    f = lamina.jit.trace(lamina._int_mm)
    for _ in range(2):
        found = f(lamina.tensor(a), lamina.tensor(b))
    assert found.dtype is lamina.int32
    np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_array_equal(lamina._int_mm(lamina.tensor(a), lamina.tensor(b)).numpy(), wanted)


@pytest.mark.parametrize(
    ("channels", "outs", "how"),
    [
        (16, 32, {"padding": 1}),
        (3, 32, {"padding": 1, "stride": 2}),
        (32, 32, {"padding": 1, "groups": 32}),
        (32, 16, {"dilation": 2, "groups": 2}),
    ],
)
def test_int_conv2d(channels, outs, how):
    x, w = u8(2, channels, 11, 9), i8(outs, channels // how.get("groups", 1), 3, 3)
    wide = (torch.tensor(a, dtype=torch.float64) for a in (x, w))
    wanted = torch.nn.functional.conv2d(*wide, **how).numpy()
    f = lamina.jit.trace(lambda x, w: ops.int_conv2d(x, w, **how))
    for _ in range(2):
        found = f(lamina.tensor(x), lamina.tensor(w))
    np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_array_equal(ops.int_conv2d(lamina.tensor(x), lamina.tensor(w), **how).numpy(), wanted)


def test_integers_have_no_gradient():
    """As PyTorch refuses them: a tensor of integers cannot require one."""
    with pytest.raises(RuntimeError):
        lamina.tensor(i8(2, 2)).requires_grad_()
    with pytest.raises(RuntimeError):
        torch.tensor(i8(2, 2)).requires_grad_()
    assert not ops.int_matmul(lamina.tensor(i8(2, 2)), lamina.tensor(i8(2, 2))).requires_grad


def test_what_int_mm_refuses():
    a, b = lamina.tensor(i8(4, 8)), lamina.tensor(i8(8, 4))
    for call in (
        lambda: lamina._int_mm(a.float(), b),
        lambda: lamina._int_mm(a[0], b),
        lambda: lamina._int_mm(a, a),
    ):
        with pytest.raises(lamina.LaminaError):
            call()
