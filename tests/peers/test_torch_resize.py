"""`interpolate` with antialias, and of bytes, against PyTorch."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402


def _both(array, dtype, *args, **settings):
    return [
        library.nn.functional.interpolate(
            library.tensor(array).to(getattr(library, dtype)), *args, **settings
        )
        for library in (lamina, torch)
    ]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_antialias(mode, align_corners):
    numbers = np.random.default_rng(1)
    settings = {"mode": mode, "align_corners": align_corners, "antialias": True}
    for sizes, out in itertools.product([(8, 7), (2, 5), (20, 3)], [(3, 3), (5, 11), (1, 1), (16, 2)]):
        ours, theirs = _both(numbers.standard_normal((2, 3, *sizes)), "float64", out, **settings)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-13)
    for scale, again in itertools.product((0.3, 1.7, (0.5, 2.2)), (None, True)):
        given = {"scale_factor": scale, "recompute_scale_factor": again, **settings}
        ours, theirs = _both(numbers.standard_normal((1, 2, 9, 8)), "float64", **given)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-13)


@pytest.mark.parametrize("antialias", [False, True])
def test_bytes_are_rounded(antialias):
    array = np.random.default_rng(2).integers(0, 256, (2, 3, 12, 10))
    ours, theirs = _both(array, "uint8", (7, 15), mode="bilinear", antialias=antialias)
    # PyTorch rounds after each dimension, to weights of 16 bits
    assert ours.dtype is lamina.uint8
    assert np.abs(ours.numpy().astype(int) - theirs.numpy().astype(int)).max() <= 1


def test_gradients_and_refusals():
    array = np.random.default_rng(3).standard_normal((1, 2, 6, 5))
    grads = []
    for library in (lamina, torch):
        x = library.tensor(array, requires_grad=True)
        library.nn.functional.interpolate(x, (3, 9), mode="bicubic", antialias=True).square().sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, atol=1e-12)
    for library in (lamina, torch):
        x = library.ones(1, 1, 4, 4)
        with pytest.raises(ValueError, match="option is restricted to bilinear"):
            library.nn.functional.interpolate(x, (2, 2), mode="nearest", antialias=True)
        with pytest.raises(
            NotImplementedError if library is torch else lamina.DTypeError, match="not implemented"
        ):
            library.nn.functional.interpolate(x.to(library.int16), (2, 2), mode="bilinear")


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_that_are_no_numbers(mode, padding_mode):
    places = [[[[np.nan, 0.0], [np.inf, 0.2], [0.1, -np.inf], [0.5, 0.25]]]]
    found = []
    for library in (lamina, torch):
        image = library.arange(6.0).reshape(1, 1, 2, 3)
        settings = {"mode": mode, "padding_mode": padding_mode, "align_corners": False}
        found.append(library.nn.functional.grid_sample(image, library.tensor(places), **settings).numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_what_is_repeated_lies_in_the_order_of_its_dims():
    def strides(T):
        row, turned = T.arange(3).view(1, -1), T.arange(6).view(2, 3).t()
        return [
            tuple(x.stride())
            for x in (
                row.repeat(4, 1),
                row.repeat(1, 1),
                turned.repeat(2, 2),
                turned.repeat(1, 1),
                row.repeat(2, 1, 1),
            )
        ]

    assert strides(lamina) == strides(torch)
    assert lamina.arange(3).view(1, -1).repeat(4, 1).view(-1).shape == (12,)
