"""The standard's extension `fft`: a table, as all transforms are spelled alike."""

from collections.abc import Callable

from ..ir.dtypes import default_dtype
from ..ir.errors import DTypeError
from ..runtime import ops, signal
from .kinds import KINDS, on_device, tensor_in

_functions = ops.FUNCTIONS | signal.FUNCTIONS


def _along_one(name: str, kind: str) -> Callable:
    run = _functions[f"fft_{name}"]

    def transform(x, /, *, n=None, axis=-1, norm="backward"):
        return run(tensor_in(name, x, kind), n, axis, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"The transform `{name}` along an axis.  Takes {kind} types."
    return transform


def _along_several(name: str, kind: str) -> Callable:
    run = _functions[f"fft_{name}"]

    def transform(x, /, *, s=None, axes=None, norm="backward"):
        sizes, dims = (None if v is None else tuple(v) for v in (s, axes))
        return run(tensor_in(name, x, kind), sizes, dims, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"The transform `{name}` along axes.  Takes {kind} types."
    return transform


fft, ifft = _along_one("fft", "floating"), _along_one("ifft", "floating")
fftn, ifftn = _along_several("fftn", "floating"), _along_several("ifftn", "floating")
rfft, irfft = _along_one("rfft", "real floating"), _along_one("irfft", "floating")
rfftn, irfftn = _along_several("rfftn", "real floating"), _along_several("irfftn", "floating")
hfft, ihfft = _along_one("hfft", "floating"), _along_one("ihfft", "real floating")


def _frequencies(name: str, n, d, dtype, device):
    on_device(device)
    if dtype is not None and dtype not in KINDS["real floating"]:
        raise DTypeError(f"{name}(dtype): a real floating type is needed, not {dtype}")
    return _functions[f"fft_{name}"](n, d, dtype=dtype or default_dtype())


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of the terms of `fft` of `n` samples at distances `d`."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of the terms of `rfft` of `n` samples at distances `d`."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def fftshift(x, /, *, axes=None):
    """The terms with frequency 0 in the middle."""
    return _functions["fft_fftshift"](tensor_in("fftshift", x, "floating"), axes)


def ifftshift(x, /, *, axes=None):
    """The terms with frequency 0 first again."""
    return _functions["fft_ifftshift"](tensor_in("ifftshift", x, "floating"), axes)


__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn",
    "rfft", "rfftfreq", "rfftn",
]  # fmt: skip
