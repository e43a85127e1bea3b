"""Pooling by the mean of sliding windows, and its transpose, which is its gradient."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import is_at_least
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..op import Op, define
from ..sample import sample
from ..types import Type
from .arithmetic import div, trunc_divide
from .compare import where
from .extremes import maximum, minimum
from .pool import need_float, pool_places, pool_window, pooled_type
from .sliding import SAMPLE_SIZES, Window

ATTRS = ("kernel", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


def bind_mean(
    op: str,
    n: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> dict:
    """The canonical attributes of a mean over windows of `n` dimensions."""
    window = pool_window(op, n, kernel_size, stride, padding)
    if divisor_override == 0:
        raise ArgumentValueError(f"{op}: divisor_override must not be 0")
    values = (*window[:3], bool(ceil_mode), bool(count_include_pad), divisor_override)
    return dict(zip(ATTRS, values, strict=True))


def windows_of(n: int, kernel: tuple, stride: tuple, padding: tuple, **_: Any) -> Window:
    return Window(kernel, stride, padding, (1,) * n)


def within(window: Window, sizes: tuple) -> Window:
    """The window without what reaches beyond any input of these sizes, as of one that ceil_mode lets in."""
    every = zip(window.kernel, sizes, window.padding, strict=True)
    kernel = tuple(max(1, min(r, n + p)) if isinstance(n, int) else r for r, n, (p, _) in every)
    return window._replace(kernel=kernel)


def divisors(sizes: tuple, places: tuple, window: Window, include_pad: bool, override: int | None) -> list:
    """What the sums of windows are divided by: factors that are numbers, or arrays along one dimension."""
    if override is not None:
        return [override]
    factors: list[Any] = []
    for d, (n, o, r, s, (p, _)) in enumerate(zip(sizes, places, *window[:3], strict=True)):
        start = np.arange(o) * s - p
        low, high = (-p, n + p) if include_pad else (0, n)
        inside = np.minimum(start + r, high) - np.maximum(start, low)
        factors.append(r if np.all(inside == r) else inside.reshape(-1, *(1,) * (len(sizes) - 1 - d)))
    return factors


def divisor_at(
    places: Any, counts: tuple, sizes: tuple, window: Window, include_pad: bool, override: int | None
) -> Any:
    """The same at one of so many places, in the kernel form: a number or an integer expression."""
    if override is not None:
        return override
    total: Any = 1
    for i, o, n, r, s, (p, _) in zip(places, counts, sizes, *window[:3], strict=True):
        start = i * s - p
        low, high = (-p, n + p) if include_pad else (0, n)
        inside = is_at_least(-p, low) and is_at_least(high, (o - 1) * s - p + r)
        total = (r if inside else minimum(start + r, high) - maximum(start, low)) * total
    return total


def need_number(op: str, t: Type) -> None:
    if t.dtype.category == "bool":
        raise DTypeError(f"{op}(input): bools have no mean", "cast with .float()")


def divided(total: np.ndarray, factor: Any) -> np.ndarray:
    """Sums by a factor; those of integers rounded towards 0."""
    factor = np.asarray(factor, total.dtype)
    return total / factor if total.dtype.kind == "f" else trunc_divide.reference(total, factor)


def make_avg_pool(n: int) -> Op:
    op = f"avg_pool{n}d"

    def bind(
        input,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        rest = (stride, padding, ceil_mode, count_include_pad, divisor_override)
        return (input,), bind_mean(op, n, kernel_size, *rest)

    bind.__doc__ = f"""Take the mean of each window over the last {n} dimension{"s" * (n > 1)}.

    Shapes: [n, c, sizes...] -> [n, c, places...]; the batch may be missing.
    stride: that of the windows, by default their size.  ceil_mode: let a last window reach beyond the end.
    count_include_pad: whether padding counts as elements.  divisor_override: divide by this instead.
    Raises ShapeError, DTypeError, ArgumentValueError.
    """

    def infer(input: Type, *, ceil_mode, **attrs) -> Type:
        need_number(op, input)
        window = windows_of(n, **attrs)
        return pooled_type(op, input, n, lambda sizes: pool_places(op, sizes, window, ceil_mode))

    def reference(input, *, ceil_mode, count_include_pad, divisor_override, **attrs):
        window = windows_of(n, **attrs)
        x = input if input.ndim == n + 2 else input[None]
        places = pool_places(op, x.shape[2:], window, ceil_mode)
        inner = within(window, x.shape[2:])
        taps = inner.view(x, places)
        if prod(places) < prod(inner.kernel):
            out = np.add.reduce(taps, axis=tuple(range(2, 2 + n)), dtype=x.dtype)
        else:  # whole rows of windows at a time
            out = np.zeros(x.shape[:2] + places, x.dtype)
            for tap in product(*map(range, inner.kernel)):
                out += taps[(slice(None), slice(None), *tap)]
        for factor in divisors(x.shape[2:], places, window, count_include_pad, divisor_override):
            out = divided(out, factor)
        return out if input.ndim == n + 2 else out[0]

    def grad(g, input_type, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
        rest = (kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return avg_pool_grad(g, input_type.shape[-n:], *rest)

    def build(k, input, *, ceil_mode, count_include_pad, divisor_override, **attrs):
        window, sizes = windows_of(n, **attrs), input.shape[-n:]
        counts = pool_places(op, sizes, window, ceil_mode)
        axes = k.parallel(*input.shape[:-n], *counts)
        taps, places = k.axes(*within(window, sizes).kernel), axes[-n:]
        total = k.sum(input.at(*axes[:-n], *window.positions(places, taps), outside=0), over=taps)
        divisor = divisor_at(places, counts, sizes, window, count_include_pad, divisor_override)
        part = div if input.dtype.is_floating_point else trunc_divide
        k.store(part(total, k.cast(divisor, input.dtype)), at=axes)

    x = (5, 4, 3)[:n]
    # windows beyond the whole input, which PyTorch takes of lines and images
    ways: tuple[dict, ...] = ({}, {"stride": 3, "padding": 2}) if n < 3 else ()
    beyond = [sample((1, 2, *x), kernel_size=9, ceil_mode=True, **way) for way in ways]
    return define(
        op,
        operands=("input",),
        attrs=ATTRS,
        bind=bind,
        infer=infer,
        reference=reference,
        grad=grad,
        lower=lowering.kernel(build),
        samples=lambda: [
            sample((2, 2, *x), kernel_size=2),
            sample((0, 2, *x), kernel_size=2),
            sample((2, 3, *x), kernel_size=x),
            sample((2, *x), kernel_size=3, stride=2, padding=1, ceil_mode=True),
            sample((1, 1, *x), kernel_size=3, stride=2, padding=1, count_include_pad=False),
            sample((1, 1, *x), kernel_size=2, stride=1, divisor_override=3),
            *beyond,
        ],
        inapplicable=SAMPLE_SIZES,
        dtypes="number",
        method=False,
    )


avg_pool1d, avg_pool2d, avg_pool3d = (make_avg_pool(n) for n in (1, 2, 3))
AVG_POOL = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}


def bind_avg_pool_grad(
    g,
    size,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    """Give each element of a window its part of the mean's cotangent: `avg_pool{n}d` transposed.

    size: that of the pool's input.  Shapes: [..., places...] -> [..., *size].  Raises ShapeError, DTypeError.
    """
    rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return (g,), {"size": tuple(size)} | bind_mean("avg_pool_grad", len(size), *rest)


def infer_avg_pool_grad(g: Type, *, size, ceil_mode, **attrs) -> Type:
    n = len(size)
    places = pool_places("avg_pool_grad", size, windows_of(n, **attrs), ceil_mode)
    if g.shape[-n:] != places:
        raise ShapeError(f"avg_pool_grad: there are {list(places)} windows, and g has {list(g.shape[-n:])}")
    need_float("avg_pool_grad", g)
    return g.with_shape((*g.shape[:-n], *size))


def avg_pool_grad_reference(g, *, size, ceil_mode, count_include_pad, divisor_override, **attrs):
    n = len(size)
    window = windows_of(n, **attrs)
    part = g if g.ndim == n + 2 else g[None]
    lead, places = part.shape[:2], part.shape[2:]
    for factor in divisors(size, places, window, count_include_pad, divisor_override):
        part = part / np.asarray(factor, g.dtype)
    part = part.reshape(*lead, *(1,) * n, *places)
    inner = within(window, size)
    x = inner.overlap(np.broadcast_to(part, (*lead, *inner.kernel, *places)), size)
    return x if g.ndim == n + 2 else x[0]


def build_avg_pool_grad(k, g, *, size, ceil_mode, count_include_pad, divisor_override, **attrs):
    n = len(size)
    window = windows_of(n, **attrs)
    axes = k.parallel(*g.shape[:-n], *size)
    # the last window that an element may lie in, and those before it
    inner = within(window, size)
    before = k.axes(*(-(-r // s) for r, s in zip(inner.kernel, inner.stride, strict=True)))
    places, reached = [], []
    for i, b, r, s, (p, _) in zip(axes[-n:], before, *inner[:3], strict=True):
        places.append((i + p) // s - (b if s == 1 else k.coordinate(b)))
        if r % s:
            reached.append((i + p) % s + k.coordinate(b * s) < r)
    divisor = divisor_at(places, g.shape[-n:], size, window, count_include_pad, divisor_override)
    part = g.at(*axes[:-n], *places, outside=0)
    part = part / k.cast(divisor if isinstance(divisor, int) else maximum(divisor, 1), g.dtype)
    for condition in reached:
        part = where(condition, part, 0)
    k.store(k.sum(part, over=before), at=axes)


def grad_avg_pool_grad(g, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    rest = (kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return AVG_POOL[len(kernel)](g, *rest)


avg_pool_grad = define(
    "avg_pool_grad",
    operands=("g",),
    attrs=("size", *ATTRS),
    bind=bind_avg_pool_grad,
    infer=infer_avg_pool_grad,
    reference=avg_pool_grad_reference,
    grad=grad_avg_pool_grad,
    lower=lowering.kernel(build_avg_pool_grad),
    samples=lambda: [
        sample((2, 2, 2), size=(5,), kernel_size=2),
        sample((0, 2, 2), size=(5,), kernel_size=2),
        sample((2, 3, 3), size=(5, 4), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        sample((1, 1, 3, 2), size=(5, 4), kernel_size=3, stride=2, padding=1, count_include_pad=False),
        sample((1, 2, 2, 2, 2), size=(3, 3, 3), kernel_size=2, stride=1, divisor_override=3),
    ],
    inapplicable=SAMPLE_SIZES,
    dtypes="float",
    method=False,
)
