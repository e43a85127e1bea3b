"""Images as columns of windows and back (im2col, col2im), and channels as pixels and back."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..errors import DTypeError, ShapeError
from ..op import Traits, composite, define
from ..sample import sample
from ..shapes import pair
from ..types import Type
from .compare import eq, where
from .places import flat
from .sliding import SAMPLE_SIZES, Window, padded, positive
from .view import permute, reshape

WINDOW = Window._fields


def bind_window(op: str, kernel_size, dilation, padding, stride) -> dict:
    return {
        "kernel": positive(op, "kernel_size", kernel_size, 2),
        "stride": positive(op, "stride", stride, 2),
        "padding": padded(op, padding, 2),
        "dilation": positive(op, "dilation", dilation, 2),
    }


# ---- im2col


def bind_im2col(input, kernel_size, dilation=1, padding=0, stride=1):
    """Lay every window of an image out as a column (nn.functional.unfold).

    Shapes: [n, c, h, w] -> [n, c * kernel, places]; the batch may be missing.  Raises ShapeError,
    ArgumentValueError.
    """
    return (input,), bind_window("im2col", kernel_size, dilation, padding, stride)


def infer_im2col(input: Type, **attrs: Any) -> Type:
    window = Window(**attrs)
    if input.ndim not in (3, 4):
        raise ShapeError(f"im2col(input): input is [n, c, h, w] or [c, h, w], not of {input.ndim} dimensions")
    places = window.places("im2col", input.shape[-2:])
    return input.with_shape((*input.shape[:-3], input.shape[-3] * prod(window.kernel), prod(places)))


def im2col_reference(input, **attrs):
    window = Window(**attrs)
    x = input if input.ndim == 4 else input[None]
    places = window.places("im2col", x.shape[2:])
    out = window.view(x, places).reshape(x.shape[0], x.shape[1] * prod(window.kernel), prod(places))
    out = out.copy() if np.may_share_memory(out, input) else out  # of windows that lie side by side
    return out if input.ndim == 4 else out[0]


def build_im2col(k, input, **attrs):
    window = Window(**attrs)
    places = window.places("im2col", input.shape[-2:])
    channels, kernel = input.shape[-3], window.kernel
    axes = k.parallel(*input.shape[:-3], channels, *kernel, *places)
    batch, (c, r, s, i, j) = axes[:-5], axes[-5:]
    x = input.at(*batch, c, *window.positions((i, j), (r, s)), outside=0)
    row, column = flat((c, r, s), (channels, *kernel)), flat((i, j), places)
    k.store(x, at=(*batch, row, column))


def grad_im2col(g, input_type, kernel, stride, padding, dilation):
    return col2im(g, input_type.shape[-2:], kernel, dilation, padding, stride)


im2col = define(
    "im2col",
    complex="analytic",
    operands=("input",),
    attrs=WINDOW,
    bind=bind_im2col,
    infer=infer_im2col,
    reference=im2col_reference,
    grad=grad_im2col,
    lower=lowering.kernel(build_im2col),
    samples=lambda: [
        sample((2, 3, 4, 5), kernel_size=2),
        sample((3, 4, 5), kernel_size=(2, 3), stride=2, padding=(0, 1)),
        sample((1, 2, 5, 4), kernel_size=2, dilation=2, padding=1),
        sample((0, 3, 4, 5), kernel_size=2),
        sample((2, 3, 4, 5), kernel_size=(4, 5)),
    ],
    traits=Traits(movement=True),
    inapplicable=SAMPLE_SIZES,
    method=False,
)


# ---- col2im


def bind_col2im(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Add columns up where their windows lie in an image (nn.functional.fold): im2col transposed.

    Shapes: [n, c * kernel, places] -> [n, c, *output_size]; the batch may be missing.  Raises ShapeError,
    ArgumentValueError.
    """
    size = pair("col2im", "output_size", output_size)
    return (input,), {"size": size} | bind_window("col2im", kernel_size, dilation, padding, stride)


def infer_col2im(input: Type, *, size, **attrs: Any) -> Type:
    window = Window(**attrs)
    places, taps = prod(window.places("col2im", size)), prod(window.kernel)
    if input.ndim not in (2, 3) or input.shape[-2] % taps or not same(input.shape[-1], places):
        raise ShapeError(
            f"col2im(input): input must be [n, c * {taps}, {places}] or [c * {taps}, {places}], "
            f"not {list(input.shape)}"
        )
    if input.dtype.category == "bool":
        raise DTypeError("col2im(input): bools don't add up", "cast with .int()")
    return input.with_shape((*input.shape[:-2], input.shape[-2] // taps, *size))


def col2im_reference(input, *, size, **attrs):
    window = Window(**attrs)
    x = input if input.ndim == 3 else input[None]
    places = window.places("col2im", size)
    channels = x.shape[1] // prod(window.kernel)
    out = window.overlap(x.reshape(x.shape[0], channels, *window.kernel, *places), size)
    return out if input.ndim == 3 else out[0]


def build_col2im(k, input, *, size, **attrs):
    window = Window(**attrs)
    places, kernel = window.places("col2im", size), window.kernel
    channels = input.shape[-2] // prod(kernel)
    axes = k.parallel(*input.shape[:-2], channels, *size)
    batch, (c, h, w) = axes[:-3], axes[-3:]
    taps = k.axes(*kernel)
    at, inside = [], None
    for i, r, o, s, (p, _), d in zip((h, w), taps, places, *window[1:], strict=True):
        reached = i + p - r * d  # stride times the place of the window whose tap r lies here, if there is one
        place = k.coordinate(reached) // s
        within = (place >= 0) & (place < o) & eq(k.coordinate(reached) % s, 0)
        at.append(place)
        inside = within if inside is None else inside & within
    row = flat((c, *taps), (channels, *kernel))
    x = where(inside, input.at(*batch, row, flat(at, places), outside=0), 0)
    k.store(k.sum(x, over=taps), at=axes)


def grad_col2im(g, kernel, stride, padding, dilation):
    return im2col(g, kernel, dilation, padding, stride)


col2im = define(
    "col2im",
    complex="analytic",
    operands=("input",),
    attrs=("size", *WINDOW),
    bind=bind_col2im,
    infer=infer_col2im,
    reference=col2im_reference,
    grad=grad_col2im,
    lower=lowering.kernel(build_col2im),
    samples=lambda: [
        sample((2, 12, 12), output_size=(4, 5), kernel_size=2),
        sample((6, 6), output_size=(4, 5), kernel_size=(2, 3), stride=2, padding=(0, 1)),
        sample((1, 8, 20), output_size=(5, 4), kernel_size=2, dilation=2, padding=1),
        sample((0, 12, 12), output_size=(4, 5), kernel_size=2),
    ],
    inapplicable=SAMPLE_SIZES,
    dtypes="number",
    method=False,
)


# ---- channels and pixels


@composite(method=False, fresh=True)
def pixel_shuffle(input, upscale_factor):
    """Spread channels over blocks of pixels.  Shapes: [..., c * r * r, h, w] -> [..., c, h * r, w * r].

    Raises ShapeError.  Source: Shi et al., Real-time single image super-resolution, 2016.
    """
    r = upscale_factor
    lead, (channels, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    if channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {r} ** 2 must divide the channels ({channels} % {r * r} != 0)")
    n = len(lead)
    x = reshape(input, (*lead, channels // (r * r), r, r, h, w))
    x = permute(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(x, (*lead, channels // (r * r), h * r, w * r))


@composite(method=False, fresh=True)
def pixel_unshuffle(input, downscale_factor):
    """Gather blocks of pixels in channels: pixel_shuffle undone.

    Shapes: [..., c, h * r, w * r] -> [..., c * r * r, h, w].  Raises ShapeError.
    """
    r = downscale_factor
    lead, (channels, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    if h % r or w % r:
        raise ShapeError(f"pixel_unshuffle: {r} must divide both sizes, {h} and {w}")
    n = len(lead)
    x = reshape(input, (*lead, channels, h // r, r, w // r, r))
    x = permute(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(x, (*lead, channels * r * r, h // r, w // r))


@composite(method=False, fresh=True)
def channel_shuffle(input, groups):
    """Interleave groups of channels.  Shapes: [n, c, ...] -> the same.  Raises ShapeError."""
    batch, channels, *rest = input.shape
    if channels % groups:
        raise ShapeError(f"channel_shuffle: groups must divide the channels ({channels} % {groups} != 0)")
    x = reshape(input, (batch, groups, channels // groups, *rest))
    return reshape(permute(x, (0, 2, 1, *range(3, len(rest) + 3))), (batch, channels, *rest))
