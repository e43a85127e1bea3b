"""Discrete Fourier transforms of arrays, by the quickest library that is installed.

NumPy's is always there.  The extra `fft` brings ducc0, whose transforms over several dimensions take a
fourth of NumPy's time and small ones half; MKL's, by the package mkl_fft, take less still where they are
installed (benchmarks/results/fft.md).  Each keeps the precision of what it is given.  $LAMINA_FFT names one:
"numpy", "ducc0" or "mkl_fft"; an empty one leaves the choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from .lazy import MissingLibraryError, load

VARIABLE = "LAMINA_FFT"
Axes = tuple[int, ...]
Run = Callable[..., np.ndarray]  # (array, axes, ...): complex to complex, real to half, half to real

# The scale of a transform, as each library says it: of (forwards, backwards) NumPy's, and ducc0's number.
_NUMPY = {"none": ("backward", "forward"), "ortho": ("ortho", "ortho"), "n": ("forward", "backward")}
_DUCC = {"none": 0, "ortho": 1, "n": 2}
LONG = (
    512  # points, from which on ducc0's transforms of one dimension to real numbers take twice NumPy's time
)


def c2c(x: np.ndarray, axes: Axes, scale: str, forward: bool) -> np.ndarray:
    """Complex numbers over `axes`.  scale: "none", "ortho" (1/sqrt(n)) or "n" (1/n)."""
    return _library(x)[0](x, axes, scale, forward)


def r2c(x: np.ndarray, axes: Axes, scale: str) -> np.ndarray:
    """Real numbers forwards, to the first half of the last of `axes`."""
    return _library(x)[1](x, axes, scale)


def c2r(x: np.ndarray, axes: Axes, size: int, scale: str) -> np.ndarray:
    """Half of a Hermitian signal backwards, to `size` real numbers along the last of `axes`."""
    return _library(x)[2](x, axes, size, scale)


def _library(x: np.ndarray) -> tuple[Run, Run, Run]:
    if not x.size or x.dtype.char not in "fdFD":
        return BY_NUMPY
    return _chosen()


@cache
def _chosen() -> tuple[Run, Run, Run]:
    load("numpy.fft")  # which NumPy loads when it is asked for; the others fall back upon it
    return library(os.environ.get(VARIABLE, ""))


def library(name: str) -> tuple[Run, Run, Run]:
    """The functions of the named library, or of the first that is there.  Raises MissingLibraryError."""
    if name and name not in _LIBRARIES:
        raise MissingLibraryError(f"${VARIABLE}: no library is called {name!r}", "mkl_fft, ducc0 or numpy")
    for known, make in _LIBRARIES.items():
        if name in ("", known):
            try:
                return make()
            except ImportError:
                if name:
                    raise MissingLibraryError(
                        f"${VARIABLE} asks for {name}, which is not installed", f"pip install {name}"
                    ) from None
    raise AssertionError("NumPy is there")


# ---- NumPy's: one dimension after the other, as np.fft.fftn does, too, after 50 us
def _numpy_c2c(x: np.ndarray, axes: Axes, scale: str, forward: bool) -> np.ndarray:
    function, norm = np.fft.fft if forward else np.fft.ifft, _NUMPY[scale][not forward]
    for axis in reversed(axes):
        x = function(x, axis=axis, norm=norm)
    return x


def _numpy_r2c(x: np.ndarray, axes: Axes, scale: str) -> np.ndarray:
    half = np.fft.rfft(x, axis=axes[-1], norm=_NUMPY[scale][0])
    return _numpy_c2c(half, axes[:-1], scale, True)


def _numpy_c2r(x: np.ndarray, axes: Axes, size: int, scale: str) -> np.ndarray:
    x = _numpy_c2c(x, axes[:-1], scale, False)
    return np.fft.irfft(x, size, axes[-1], _NUMPY[scale][1])


BY_NUMPY: tuple[Run, Run, Run] = (_numpy_c2c, _numpy_r2c, _numpy_c2r)


def _by_ducc() -> tuple[Run, Run, Run]:
    fft = load("ducc0").fft

    def c2c(x: np.ndarray, axes: Axes, scale: str, forward: bool) -> np.ndarray:
        return fft.c2c(x, axes, forward, _DUCC[scale]) if axes else x

    def r2c(x: np.ndarray, axes: Axes, scale: str) -> np.ndarray:
        return fft.r2c(x, axes, True, _DUCC[scale])

    def c2r(x: np.ndarray, axes: Axes, size: int, scale: str) -> np.ndarray:
        half = size // 2 + 1
        if len(axes) == 1 and size >= LONG:
            return _numpy_c2r(x, axes, size, scale)
        if x.shape[axes[-1]] != half:  # NumPy cuts, or goes on with zeros, by itself
            return _numpy_c2r(x, axes, size, scale)
        return fft.c2r(x, axes, size, False, _DUCC[scale])

    return c2c, r2c, c2r


def _by_mkl() -> tuple[Run, Run, Run]:
    """By the default scales alone: mkl_fft 2.3.2 takes the other ones wrongly over some of the dimensions."""
    fft: Any = load("mkl_fft")

    def scaled(x: np.ndarray, scale: str, count: float, forward: bool) -> np.ndarray:
        """By what the scale asks beside none forwards, and 1/n backwards."""
        power = {"none": 0.0, "ortho": -0.5, "n": -1.0}[scale] + (not forward)
        return np.multiply(x, x.real.dtype.type(count**power), out=x) if power else x

    def points(shape: tuple, axes: Axes) -> int:
        return prod([shape[axis] for axis in axes])

    def c2c(x: np.ndarray, axes: Axes, scale: str, forward: bool) -> np.ndarray:
        if not axes:
            return x
        if len(axes) == 1:
            found = (fft.fft if forward else fft.ifft)(x, axis=axes[0])
        else:
            found = (fft.fftn if forward else fft.ifftn)(x, axes=axes)
        return scaled(found, scale, points(x.shape, axes), forward)

    def r2c(x: np.ndarray, axes: Axes, scale: str) -> np.ndarray:
        found = fft.rfft(x, axis=axes[0]) if len(axes) == 1 else fft.rfftn(x, axes=axes)
        return scaled(found, scale, points(x.shape, axes), True)

    def c2r(x: np.ndarray, axes: Axes, size: int, scale: str) -> np.ndarray:
        if len(axes) == 1:
            found = fft.irfft(x, n=size, axis=axes[0])
        else:
            found = fft.irfftn(x, s=(*(x.shape[axis] for axis in axes[:-1]), size), axes=axes)
        return scaled(found, scale, points(found.shape, axes), False)

    return c2c, r2c, c2r


_LIBRARIES: dict[str, Callable[[], tuple[Run, Run, Run]]] = {
    "mkl_fft": _by_mkl, "ducc0": _by_ducc, "numpy": lambda: BY_NUMPY,
}  # fmt: skip
