"""Max pooling with `return_indices`, which decides how many results there are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from math import prod
from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentError, ArgumentValueError, ShapeError
from ..ir.shapes import pair
from ..runtime import Tensor, ops
from ..runtime import random as draws

_AXES = {1: "L", 2: "H and W", 3: "D, H and W"}


def _named(pool: Callable, name: str, doc: str) -> Callable:
    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = doc
    return pool


def _max_pool(n: int) -> Callable:
    """`max_pool` over the last `n` dimensions."""
    name = f"max_pool{n}d"
    plain, indexed = ops.FUNCTIONS[name], ops.FUNCTIONS[f"{name}_with_indices"]

    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        run = indexed if return_indices else plain
        return run(input, kernel_size, stride, padding, dilation, ceil_mode)

    doc = f"The greatest of each window over {_AXES[n]}, and with `return_indices` its flattened place."
    return _named(pool, name, doc)


def _adaptive_max_pool(n: int) -> Callable:
    """`adaptive_max_pool` over the last `n` dimensions."""
    name = f"adaptive_max_pool{n}d"
    plain, indexed = ops.FUNCTIONS[name], ops.FUNCTIONS[f"{name}_with_indices"]

    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return (indexed if return_indices else plain)(input, output_size)

    doc = f"The greatest of each of `output_size` parts of {_AXES[n]}, and with `return_indices` its place."
    return _named(pool, name, doc)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_pool, (1, 2, 3))


def _indexed(pool: Callable) -> Callable:
    """A pool that also tells the place of each result, whatever `return_indices` says."""

    @functools.wraps(pool)
    def run(*args: Any, **kwargs: Any) -> Any:
        named = signature.bind(*args, **kwargs).arguments
        return pool(**{**named, "return_indices": True})

    signature = inspect.signature(pool)
    doc = f"As `{pool.__name__}` with `return_indices`: the results and their places."
    return _named(run, f"{pool.__name__}_with_indices", doc)


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(
    _indexed, (max_pool1d, max_pool2d, max_pool3d)
)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = map(
    _indexed, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d)
)


# ---- fractional pooling ------------------------------------------------------------------------------------
def _starts(drawn: Tensor, size: int, count: int, window: int) -> Tensor:
    """Where the windows of each plane begin: [planes, count], from a number in [0, 1) for each plane."""
    if not count:
        return ops.empty(*drawn.shape, 0, dtype=int64, device=drawn.device)
    last = ops.full((*drawn.shape, 1), size - window, dtype=int64, device=drawn.device)
    if count == 1:
        return last
    step = (size - window) / (count - 1)
    before = ops.arange(count - 1, dtype=drawn.dtype, device=drawn.device)
    moved = ((before + drawn.unsqueeze(-1)) * step).long() - (drawn.unsqueeze(-1) * step).long()
    return ops.cat([moved, last], -1)


def _fractional_max_pool(n: int) -> Callable:
    """`fractional_max_pool` over the last `n` dimensions."""
    name = f"fractional_max_pool{n}d"
    # PyTorch's numbers stand for the last dimension first in two dimensions, and not in three.
    order = (1, 0) if n == 2 else (0, 1, 2)

    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        if (output_size is None) == (output_ratio is None):
            raise ArgumentValueError(f"{name}: one of output_size and output_ratio must be given")
        if input.ndim not in (n + 1, n + 2):
            raise ShapeError(
                f"{name} takes an input of {n + 1} or {n + 2} dimensions, not {input.ndim}",
                f"input: {input._meta}",
            )
        for what, given in (("kernel_size", kernel_size), ("output_size", output_size)):
            if isinstance(given, (tuple, list)) and len(given) != n:  # here, one is none for all
                raise ArgumentError(f"{name}: {what} must either be a single int or {n} ints, not {given!r}")
        window, sizes = pair(name, "kernel_size", kernel_size, n), input.shape[-n:]
        if output_size is not None:
            counts = pair(name, "output_size", output_size, n)
        else:
            ratios = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
            counts = tuple(int(size * ratio) for size, ratio in zip(sizes, ratios))
        for axis, size, count, k in zip(("time", "height", "width")[-n:], sizes, counts, window):
            if count < 0 or k < 1 or count + k - 1 > size:
                raise ArgumentValueError(
                    f"{name}: {count} windows of {k} are too large relative to input {axis}, {size} elements",
                    f"input: {input._meta}",
                )
        x = input.unsqueeze(0) if input.ndim == n + 1 else input
        if 0 in x.shape[1:]:
            raise ShapeError(
                f"{name}: Expected input to have elements in each image", f"input: {input._meta}"
            )
        batch, channels = x.shape[:2]
        drawn = _random_samples
        if drawn is None:
            drawn = draws.rand(batch, channels, n, dtype=x.dtype, device=x.device)
        elif drawn.ndim != 3 or drawn.shape[0] < batch or tuple(drawn.shape[1:]) != (channels, n):
            raise ShapeError(
                f"{name}: Expect _random_samples to have shape {[batch, channels, n]}, not {[*drawn.shape]}"
            )
        places: Any = 0  # [batch, channels, every output, every element of its window]
        drawn = drawn[:batch]
        for d in range(n):
            at = _starts(drawn[..., order[d]], sizes[d], counts[d], window[d]).unsqueeze(-1)
            at = at + ops.arange(window[d], device=at.device)
            shape = [1] * (2 * n)
            shape[d], shape[n + d] = counts[d], window[d]
            places = places * sizes[d] + at.reshape(batch, channels, *shape)
        places = places.reshape(batch, channels, prod(counts), prod(window))
        flat = x.reshape(batch, channels, prod(sizes))
        flat_places = places.reshape(batch, channels, prod(counts) * prod(window))
        seen = flat.gather(2, flat_places).reshape(places.shape)
        best = ops.argmax(seen.detach(), -1, keepdim=True)
        indices = places.gather(-1, best).reshape(batch, channels, *counts)
        out = seen.gather(-1, best).reshape(batch, channels, *counts)
        if input.ndim == n + 1:
            out, indices = out.squeeze(0), indices.squeeze(0)
        return (out, indices) if return_indices else out

    doc = (
        f"The greatest of each of `output_size` windows over {_AXES[n]} (or `output_ratio` times as many as "
        "elements), whose places are drawn for each plane.  Source: Graham 2014, section 2."
    )
    return _named(pool, name, doc)


fractional_max_pool2d, fractional_max_pool3d = map(_fractional_max_pool, (2, 3))
fractional_max_pool2d_with_indices = _indexed(fractional_max_pool2d)
fractional_max_pool3d_with_indices = _indexed(fractional_max_pool3d)
