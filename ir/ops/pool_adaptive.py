"""Pooling to a given size, by norms, and undone: what else there is beside sliding windows."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import int64
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..op import Op, composite, define
from ..sample import Operand, sample
from ..shapes import as_whole, is_one, pair
from ..types import Type
from .cast import dtype_of
from .compare import lt, where
from .join import cat
from .places import flat, spread_at, unflat
from .pool import pool_window, pooled_type, with_places
from .pool_mean import AVG_POOL
from .reduce import mean
from .sliding import SAMPLE_SIZES

MOST_PARTS = 1 << 16


def parts_of(size: int, count: int) -> list[tuple[int, int]]:
    """Begin and end of `count` parts of a dimension; where they don't divide it, neighbours overlap."""
    return [(i * size // count, ((i + 1) * size + count - 1) // count) for i in range(count)]


def output_sizes(op: str, output_size: Any, sizes: tuple) -> tuple:
    """The size asked for in each dimension; None keeps the input's.  Raises ArgumentValueError."""
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * len(sizes)
    if len(given) == 1:
        given = tuple(given) * len(sizes)
    whole = [None if n is None else as_whole(n) for n in given]
    if len(given) != len(sizes) or any(
        n is not None and (found is None or found < 0) for n, found in zip(given, whole, strict=True)
    ):
        raise ArgumentValueError(f"{op}: output_size must be {len(sizes)} sizes, not {output_size!r}")
    if any(isinstance(n, int) and n > MOST_PARTS for n in whole):  # each is an op of its own
        raise ArgumentValueError(f"{op}: output_size {list(given)} asks for more than {MOST_PARTS} parts")
    return tuple(n if wanted is None else wanted for wanted, n in zip(whole, sizes, strict=True))


# ---- mean


def adaptive_mean(n: int, input: Any, output_size: Any) -> Any:
    """The mean of each part of the last `n` dimensions.

    Dimensions that divide evenly are one pool with windows side by side.  Of the others, one after another,
    the parts' means are put side by side: a mean over a box is a mean of means.
    """
    op = f"adaptive_avg_pool{n}d"
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{op}(input): input needs {n + 1} dimensions, or {n + 2} with a batch, not {input.ndim}"
        )
    sizes = tuple(input.shape[-n:])
    out = output_sizes(op, output_size, sizes)
    if 0 in sizes:
        raise ShapeError(
            f"{op}: Expected input to have non-zero size for non-batch dimensions, not {[*input.shape]}"
        )
    kernel = tuple(size // o if o and size % o == 0 else 1 for size, o in zip(sizes, out, strict=True))
    if not dtype_of(input).is_floating_point:
        raise dtype_of(input).refused(op, "cast with .float()")
    if 0 in input.shape[-n - 1 :]:  # without channels, which windows refuse
        kernel = (1,) * n
    x = input if all(map(is_one, kernel)) else AVG_POOL[n](input, kernel)
    for d, (size, o, r) in enumerate(zip(sizes, out, kernel, strict=True), input.ndim - n):
        if o * r != size:
            before = (slice(None),) * d
            pieces = [mean(x[(*before, slice(a, b))], dim=d, keepdim=True) for a, b in parts_of(size, o)]
            x = cat(pieces, dim=d) if pieces else x[(*before, slice(0, 0))]
    return x


@composite(method=False, fresh=True)
def adaptive_avg_pool1d(input, output_size):
    """Take the means of `output_size` parts of the last dimension.  Shapes: [n, c, l] -> [n, c, size]."""
    return adaptive_mean(1, input, output_size)


@composite(method=False, fresh=True)
def adaptive_avg_pool2d(input, output_size):
    """Take the means of `output_size` parts of the last 2 dimensions; None keeps a dimension's size."""
    return adaptive_mean(2, input, output_size)


@composite(method=False, fresh=True)
def adaptive_avg_pool3d(input, output_size):
    """Take the means of `output_size` parts of the last 3 dimensions; None keeps a dimension's size."""
    return adaptive_mean(3, input, output_size)


# ---- max


def make_adaptive_max(n: int, returned: bool) -> Op:
    op = f"adaptive_max_pool{n}d" + "_with_indices" * returned

    def bind(input, output_size):
        return (input,), {"size": output_sizes(op, output_size, tuple(input.shape[-n:]))}

    bind.__doc__ = f"""Take the greatest of each of `output_size` parts of the last {n} dimension{
        "s" * (n > 1)
    }.

    Shapes: [n, c, sizes...] -> [n, c, *output_size]{
        ", and the same of int64" * returned
    }; the batch may be missing.
    A NaN is greater than any number; among equals the first counts.{
        "  indices: places in the flattened sizes." * returned
    }
    Raises ShapeError, ArgumentValueError.
    """

    def infer(input: Type, *, size) -> tuple[Type, ...]:
        out = pooled_type(op, input, n, lambda sizes: size, first=1)
        if input.dtype.category == "bool":
            raise DTypeError(f"{op}(input): bools have no order", "cast with .int()")
        return out, out.with_dtype(int64)

    def reference(input, *, size):
        sizes, lead = input.shape[-n:], input.shape[:-n]
        out, indices = np.empty(lead + size, input.dtype), np.empty(lead + size, np.int64)
        places = np.arange(prod(sizes)).reshape(sizes)
        bounds = [parts_of(a, b) for a, b in zip(sizes, size, strict=True)]
        for at in np.ndindex(size):
            box = tuple(slice(*bounds[d][i]) for d, i in enumerate(at))
            part = input[(..., *box)].reshape(*lead, places[box].size)
            best = part.argmax(axis=-1)
            out[(..., *at)] = np.take_along_axis(part, best[..., None], axis=-1)[..., 0]
            indices[(..., *at)] = places[box].reshape(-1)[best]
        return out, indices

    def build(k, input, *, size):
        sizes, lead = input.shape[-n:], input.ndim - n
        axes = k.parallel(*input.shape[:-n], *size)
        longest = [
            max(b - a for a, b in parts_of(s, o)) if o else 0 for s, o in zip(sizes, size, strict=True)
        ]
        taps = k.axes(*longest)
        begins, inside = [], None
        for i, r, s, o in zip(axes[lead:], taps, sizes, size, strict=True):
            begin, end = (i * s) // o, (i * s + (s + o - 1)) // o
            begins.append(begin)
            within = lt(r + begin, end)
            inside = within if inside is None else inside & within
        at = [r + begin for begin, r in zip(begins, taps, strict=True)]
        least = -inf if input.dtype.is_floating_point else np.iinfo(input.dtype.numpy).min
        x = where(inside, input.at(*axes[:lead], *at, outside=least), least)
        value, best = k.argmax(x, over=taps)
        index = [begin + tap for begin, tap in zip(begins, unflat(best, tuple(longest)), strict=True)]
        k.store(value, at=axes)
        k.store(flat(index, sizes), at=axes, output=1)

    x, y = (5, 4, 3)[:n], (2, 3, 2)[:n]
    return define(
        op,
        **with_places(n, returned),
        bind=bind,
        infer=infer,
        reference=reference,
        lower=lowering.kernel(build),
        samples=lambda: [
            sample(Operand((2, 2, *x), distinct=True), output_size=y),
            sample(Operand((2, *x), distinct=True), output_size=1),
            sample(Operand((0, 2, *x)), output_size=y),
            sample(Operand((1, 1, *x), distinct=True), output_size=(None,) * n),
        ],
        inapplicable=SAMPLE_SIZES,
        dtypes="number",
        method=False,
    )


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    make_adaptive_max(n, False) for n in (1, 2, 3)
)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    make_adaptive_max(n, True) for n in (1, 2, 3)
)


# ---- norms


def norm_pool(n: int, input, norm_type, kernel_size, stride, ceil_mode) -> Any:
    """The norm of each window, (sum of x ** p) ** (1 / p); NaN where that sum is negative."""
    count = prod(pair(f"lp_pool{n}d", "kernel_size", kernel_size, n))
    means = AVG_POOL[n](input**norm_type, kernel_size, stride, 0, ceil_mode)
    return (means * count) ** (1.0 / norm_type)


@composite(method=False)
def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Take the p-norm of each window: (sum of x ** p) ** (1 / p).  Shapes as in avg_pool1d."""
    return norm_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@composite(method=False)
def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Take the p-norm of each window: (sum of x ** p) ** (1 / p).  Shapes as in avg_pool2d."""
    return norm_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@composite(method=False)
def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Take the p-norm of each window: (sum of x ** p) ** (1 / p).  Shapes as in avg_pool3d."""
    return norm_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# ---- max undone


def unpool(n: int, input, indices, kernel_size, stride, padding, output_size) -> Any:
    """Write each element at the place its index names, in zeros."""
    op = f"max_unpool{n}d"
    window = pool_window(op, n, kernel_size, stride, padding)
    every = zip(input.shape[-n:], window.kernel, window.stride, window.padding, strict=True)
    size = tuple((i - 1) * s - 2 * p + r for i, r, s, (p, _) in every)
    if output_size is not None:
        asked = tuple(output_size)[-n:]
        for a, b, s in zip(asked, size, window.stride, strict=True):
            if not b - s < a < b + s:
                raise ArgumentValueError(
                    f"{op}: output_size must be less than a stride from {size}, not {asked}"
                )
        size = asked
    return spread_at(input, indices, size=size, add=False)


@composite(method=False)
def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Put maxima back where max_pool1d found them, zeros elsewhere.  indices: places along the output."""
    return unpool(1, input, indices, kernel_size, stride, padding, output_size)


@composite(method=False)
def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Put maxima back where max_pool2d found them, zeros elsewhere.  indices: flat places in the output."""
    return unpool(2, input, indices, kernel_size, stride, padding, output_size)


@composite(method=False)
def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Put maxima back where max_pool3d found them, zeros elsewhere.  indices: flat places in the output."""
    return unpool(3, input, indices, kernel_size, stride, padding, output_size)
