"""Fake quantisation beside PyTorch's: values and gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")

import lamina  # noqa: E402


def both(call, x, *rest):
    """What a call gives, and the gradient of its input, in Lamina and PyTorch."""
    found = []
    for library in (lamina, torch):
        a = library.tensor(x, requires_grad=True)
        y = call(library)(a, *(library.tensor(r) if isinstance(r, np.ndarray) else r for r in rest))
        (y * library.tensor(np.linspace(1, 2, x.size, dtype=x.dtype).reshape(x.shape))).sum().backward()
        found.append((y.detach().numpy(), a.grad.numpy()))
    return found


SPECIAL = np.array([0.05, 0.15, -0.05, 12.75, 12.85, 13.0, -0.049, 1e9, -1e9, 0.0], np.float32)


@pytest.mark.parametrize(
    "scale, zero, low, high", [(0.1, 0, 0, 255), (0.03, 128, 0, 255), (0.5, -3, -128, 127)]
)
def test_per_tensor(scale, zero, low, high):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=2000).astype(np.float32) * 5, SPECIAL])
    for given in ((scale, zero), (np.float32([scale]), np.int32([zero]))):
        (y, dx), (wanted, gradient) = both(
            lambda lib: lib.fake_quantize_per_tensor_affine, x, *given, low, high
        )
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(dx, gradient)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(axis):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 5, 6)).astype(np.float32) * 4
    count = x.shape[axis]
    scale = rng.uniform(0.01, 0.1, count).astype(np.float32)
    zero = rng.integers(-5, 5, count).astype(np.int32)
    (y, dx), (wanted, gradient) = both(
        lambda lib: lib.fake_quantize_per_channel_affine, x, scale, zero, axis, -128, 127
    )
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(dx, gradient)


def test_what_is_refused():
    x = np.ones(3, np.float32)
    for arguments in ((0.1, 0, 5, 2), (0.1, 300, 0, 255)):
        for library, error in ((lamina, lamina.ArgumentError), (torch, RuntimeError)):
            with pytest.raises(error, match="quant_min|zero_point"):
                library.fake_quantize_per_tensor_affine(library.tensor(x), *arguments)
