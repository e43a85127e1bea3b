"""Short-time Fourier transforms: those of windows that slide over a signal, and the way back."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..op import composite
from ..shapes import as_whole
from ..views import step
from ..warned import warn
from .cast import cast, dtype_of
from .complex import is_complex_valued, view_as_real
from .create import new_ones
from .extremum import amin
from .fft import fft_c2c, fft_c2r, fft_r2c
from .join import constant_pad, pad
from .unview import unview
from .view import expand, narrow, reshape, transpose
from .windows import unfold

_LEAST = 1e-11  # what the windows over a place must add up to, to be divided by


def _window(op: str, x: Any, window: Any, n_fft: int, win_length: int) -> Any:
    """The window, in the middle of `n_fft` places; ones where there is none.  Raises ShapeError."""
    if window is None:
        window = new_ones(x, (win_length,))
        if is_complex_valued(window):
            window = cast(window, dtype=dtype_of(window).to_real())
    if window.ndim != 1 or window.shape[0] != win_length:
        raise ShapeError(f"{op}: window must be [{win_length}], not {list(window.shape)}")
    left = (n_fft - win_length) // 2
    return constant_pad(window, ((left, n_fft - win_length - left),)) if win_length < n_fft else window


def _lengths(op: str, n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int, int]:
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    lengths = []
    for name, n in (("n_fft", n_fft), ("hop_length", hop_length), ("win_length", win_length)):
        length = None if isinstance(n, bool) else as_whole(n)
        if not isinstance(length, int):
            raise ArgumentError(f"{op}: {name} must be an int, not {type(n).__name__}")
        lengths.append(length)
    n_fft, hop_length, win_length = lengths
    if n_fft <= 0 or hop_length <= 0 or not 0 < win_length <= n_fft:
        raise ArgumentValueError(
            f"{op}: takes n_fft > 0, hop_length > 0 and 0 < win_length <= n_fft, "
            f"not {n_fft}, {hop_length} and {win_length}"
        )
    return n_fft, hop_length, win_length


@composite()
def stft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect",
    normalized=False, onesided=None, return_complex=None, align_to_window=None,
):  # fmt: skip
    """Transform the stretches of `n_fft` elements that start `hop_length` (n_fft // 4) apart.

    window: what they are multiplied by, [win_length], in their middle.  center: the signal is first continued
    by n_fft // 2 at both ends, by `pad_mode`.  normalized: divided by sqrt(n_fft).  onesided: half of the
    frequencies alone, by default where signal and window are real.  return_complex: must be given for real
    ones; False gives pairs.  Shapes: [n] or [b, n] -> complex [b, frequencies, stretches].
    Raises ShapeError, ArgumentError, ArgumentValueError.
    """
    if input.ndim not in (1, 2):
        raise ShapeError(f"stft(input): takes a signal [n] or several [b, n], not {list(input.shape)}")
    dtype = dtype_of(input)
    if not dtype.inexact:
        raise DTypeError(
            f"stft: a floating or complex signal is needed, not {dtype.name}", "convert: x.float()"
        )
    n_fft, hop_length, win_length = _lengths("stft", n_fft, hop_length, win_length)
    complex_in = dtype.is_complex or (window is not None and is_complex_valued(window))
    if return_complex is None:
        if not complex_in:
            raise ArgumentError("stft: say return_complex=True, or False for pairs of real numbers")
        return_complex = True
    if align_to_window is not None and center:
        raise ArgumentValueError("stft: align_to_window has a meaning only with center=False")
    x = input if input.ndim == 2 else reshape(input, (1, -1))
    if center:
        x = pad(x[:, None, :], (n_fft // 2, n_fft // 2), mode=pad_mode)[:, 0, :]
    elif align_to_window:
        left = (n_fft - win_length) // 2
        x = constant_pad(x, ((0, 0), (left, left)))
    if x.shape[-1] < n_fft:
        raise ShapeError(f"stft: a signal of {x.shape[-1]} elements is shorter than n_fft={n_fft}")
    onesided = not complex_in if onesided is None else onesided
    if onesided and complex_in:
        raise ArgumentValueError("stft: of complex signals there is no half", "give onesided=False")
    stretches = unfold(x, -1, n_fft, hop_length)
    if window is not None or win_length < n_fft:
        stretches = stretches * _window("stft", x, window, n_fft, win_length)
    scale = "ortho" if normalized else "none"
    found = fft_r2c(stretches, (2,), scale) if onesided else fft_c2c(stretches, (2,), scale)
    found = transpose(found, 1, 2)
    found = found if input.ndim == 2 else found[0]
    return found if return_complex else view_as_real(found)


@composite()
def istft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False,
    onesided=None, length=None, return_complex=False,
):  # fmt: skip
    """Find the signal whose `stft` (with the same arguments) comes closest to `input`, by least squares.

    length: of the signal, cut or continued by zeros.  return_complex: the signal is complex, too.
    Shapes: complex [b, frequencies, stretches] -> [b, n], without b likewise.  Raises ShapeError,
    ArgumentValueError where nothing is known of a place: no window reaches it.  Source: Griffin and Lim,
    Signal estimation from modified short-time Fourier transform, 1984.
    """
    if not is_complex_valued(input):
        raise DTypeError(
            f"istft: input must be complex, not {dtype_of(input).name}", "view_as_complex of pairs"
        )
    if input.ndim not in (2, 3):
        raise ShapeError(f"istft(input): takes [frequencies, stretches], or several, not {list(input.shape)}")
    n_fft, hop_length, win_length = _lengths("istft", n_fft, hop_length, win_length)
    x = input if input.ndim == 3 else input[None]
    frequencies, count = x.shape[1:]
    onesided = frequencies != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if onesided else n_fft
    if frequencies != wanted or not count:
        raise ShapeError(
            f"istft: takes {wanted} frequencies of one stretch or more, not {frequencies} of {count}"
        )
    if return_complex and onesided:
        raise ArgumentValueError("istft: a complex signal needs all frequencies", "give onesided=False")
    if not return_complex and window is not None and is_complex_valued(window):
        raise ArgumentValueError("istft: a complex window makes a complex signal", "give return_complex=True")
    whole = _window("istft", x, window, n_fft, win_length)
    x, scale = transpose(x, 1, 2), "ortho" if normalized else "n"
    if return_complex:
        stretches = fft_c2c(x, (2,), scale, False)
    else:
        half = x if onesided else narrow(x, -1, 0, n_fft // 2 + 1)
        stretches = fft_c2r(half, (2,), n_fft, scale)
    size = n_fft + hop_length * (count - 1)
    chain = (step("unfold", dimension=1, size=n_fft, step=hop_length),)
    added = unview(stretches * whole, (x.shape[0], size), chain)
    squares = expand(whole * whole, (1, count, n_fft))
    weight = unview(squares, (1, size), chain)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else size - start if center else size
    end = min(end, size)
    added, weight = added[:, start:end], weight[:, start:end]
    if not is_complex_valued(weight) and weight.shape[1] and not bool(amin(abs(weight)) > _LEAST):
        raise ArgumentValueError("istft: the windows leave out a place of the signal", "overlap them more")
    out = added / weight
    if length is not None and length > out.shape[1]:
        warn(
            "The length of signal is shorter than the length parameter. istft continues it by zeros: "
            "see whether center and hop_length are those of the stft",
            stacklevel=3,
        )
        out = constant_pad(out, ((0, 0), (0, length - out.shape[1])))
    return out if input.ndim == 3 else out[0]
