"""The libraries of Fourier transforms give what NumPy's does."""

from importlib.util import find_spec

import numpy as np
import pytest

from lamina.ir import transforms
from lamina.ir.lazy import MissingLibraryError

AXES = ((3,), (1,), (1, 2), (0, 2, 3), (2, 1))


@pytest.mark.parametrize("name", ["ducc0", "mkl_fft"])
def test_library_agrees_with_numpy(name):
    if not find_spec(name):
        pytest.skip(f"{name} is not installed")
    c2c, r2c, c2r = transforms.library(name)
    generator = np.random.default_rng(0)
    for real in (np.float32, np.float64):
        x = generator.standard_normal((3, 4, 6, 5)).astype(real)
        z = (x + 1j * x[::-1]).astype(np.result_type(real, np.complex64))
        near = 64 * np.finfo(real).eps  # beside sums of up to 90 numbers near 1, in another order

        def same(a, b, near=near):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert np.abs(a - b).max() <= near * max(1, np.abs(b).max())

        for axes in AXES:
            for scale in ("none", "ortho", "n"):
                for a in (z, z[:, ::-1], z.transpose(0, 2, 1, 3)):
                    for forward in (True, False):
                        same(c2c(a, axes, scale, forward), transforms.BY_NUMPY[0](a, axes, scale, forward))
                    same(r2c(a.real, axes, scale), transforms.BY_NUMPY[1](a.real, axes, scale))
                    for size in (2 * a.shape[axes[-1]] - 2, 2 * a.shape[axes[-1]] - 1):
                        same(c2r(a, axes, size, scale), transforms.BY_NUMPY[2](a, axes, size, scale))


def test_an_unknown_library_is_refused():
    with pytest.raises(MissingLibraryError, match="no library is called 'fftw'"):
        transforms.library("fftw")
    assert transforms.library("numpy") is transforms.BY_NUMPY
