"""Pooling by the greatest element of sliding windows, and what all pools share."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import int64
from ..errors import DTypeError, ShapeError
from ..op import Op, define
from ..sample import Operand, sample
from ..types import Type
from .compare import eq, where
from .extremes import maximum
from .places import flat, infer_spread_at, pick_at, spread_at, spread_at_reference, unflat
from .sliding import SAMPLE_SIZES, Window, padded, positive

# ---- arguments and shapes


def pool_window(op: str, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1) -> Window:
    """The window of a pool over `n` dimensions; without a stride, windows lie side by side.

    Raises ArgumentValueError, ShapeError where padding could fill a whole window.
    """
    kernel = positive(op, "kernel_size", kernel_size, n)
    absent = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    steps = kernel if absent else positive(op, "stride", stride, n)
    window = Window(kernel, steps, padded(op, padding, n), positive(op, "dilation", dilation, n))
    for r, _, (p, _), d in zip(*window, strict=True):
        if 2 * p > d * (r - 1) + 1:
            raise ShapeError(
                f"{op}: padding must be at most half of the window ({p} > {d * (r - 1) + 1} / 2)"
            )
    return window


def pool_places(op: str, sizes: tuple, window: Window, ceil_mode: bool) -> tuple:
    """The number of windows along each dimension.

    With `ceil_mode` a last one may reach beyond the end, if it starts within the input or before it.
    """
    if not ceil_mode:
        return window.places(op, sizes)
    wider = tuple((p, p + s - 1) for (p, _), s in zip(window.padding, window.stride, strict=True))
    places = window._replace(padding=wider).places(op, sizes)
    every = zip(places, sizes, window.stride, window.padding, strict=True)
    return tuple(o - 1 if (o - 1) * s >= n + p else o for o, n, s, (p, _) in every)


def pooled_type(op: str, input: Type, n: int, places: Any, first: int | None = None) -> Type:
    """The type of the result.

    first: the dimension from which on none may be empty; without it only the batch.  Raises ShapeError for
    an input of another rank, or where one is.
    """
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{op}(input): input needs {n + 1} dimensions, or {n + 2} with a batch, not {input.ndim}"
        )
    if 0 in input.shape[-n - 1 if first is None else first :]:
        raise ShapeError(
            f"{op}: Expected {n + 1}D or {n + 2}D (batch mode) input with non-zero size for non-batch "
            f"dimensions, not {[*input.shape]}"
        )
    return input.with_shape((*input.shape[:-n], *places(input.shape[-n:])))


def need_float(op: str, t: Type) -> None:
    if not t.dtype.is_floating_point:
        raise t.dtype.refused(op, "cast with .float()")


# ---- max


def with_places(n: int, returned: bool, windows: bool = False) -> dict[str, Any]:
    """What the records of max pools over `n` dimensions share: places are saved, and by some returned.

    windows: whether those are the places of one size, of the attributes.
    """

    def of_windows(g, indices, input_type, kernel, stride, padding, dilation):
        if {*dilation} == {1}:
            return max_pool_grad(g, indices, input_type.shape[-n:], kernel, stride, padding)
        return grad(g, indices, input_type)

    def grad(g, indices, input_type):
        return spread_at(g, indices, size=input_type.shape[-n:])

    outputs, hidden = (("out", "indices"), ()) if returned else (("out",), ("indices",))
    return {"outputs": outputs, "hidden": hidden, "grad": of_windows if windows else grad}


def max_windows(x: np.ndarray, window: Window, places: tuple) -> tuple[np.ndarray, np.ndarray]:
    """The greatest of each window, and the flat place of its first occurrence; NaN is the greatest of all."""
    sizes, n = x.shape[2:], len(places)
    floating = x.dtype.kind == "f"
    least = -inf if floating else np.iinfo(x.dtype).min
    nans = floating and x.size and np.isnan(np.maximum.reduce(x, axis=None))
    # One copy puts each element of the windows in a row of its own, so that all else runs over whole rows.
    taps = np.moveaxis(window.view(x, places, least), (0, 1), (n, n + 1))
    taps = taps.reshape(prod(window.kernel), prod(taps.shape[n:]))
    if prod(places) < len(taps):
        best = taps.argmax(0)
        out = np.take_along_axis(taps, best[None], 0)[0]
    else:
        out, best = _greatest(taps, nans)
    shape = x.shape[:2] + places
    best = best.reshape(shape)
    starts = [
        (np.arange(o) * s - p).reshape(-1, *(1,) * (n - 1 - axis))
        for axis, (o, s, (p, _)) in enumerate(zip(places, *window[1:3], strict=True))
    ]
    steps = np.indices(window.kernel).reshape(n, -1) * np.reshape(window.dilation, (n, 1))
    if not any(map(any, window.padding)):
        return out.reshape(shape), flat(steps, sizes).take(best) + flat(starts, sizes)
    # Where all of a window is -inf, padding was found first: go on to what lies inside.
    every = zip(steps, starts, window.dilation, strict=True)
    index = [np.maximum(step.take(best) + start, start % d) for step, start, d in every]
    return out.reshape(shape), flat(index, sizes)


def _greatest(taps: np.ndarray, nans: bool) -> tuple[np.ndarray, np.ndarray]:
    """The greatest of each column and its row, a whole row at a time."""
    out, best = taps[0].copy(), np.zeros(taps.shape[1], np.int32)
    for i in range(1, len(taps)):
        greater = taps[i] > out
        if nans:
            greater |= (taps[i] != taps[i]) & (out == out)
        np.maximum(out, taps[i], out=out)
        # without a branch: which is greater is hard to foretell
        np.maximum(best, greater * np.int32(i), out=best)
    return out, best


def make_max_pool(n: int, returned: bool) -> Op:
    op = f"max_pool{n}d" + "_with_indices" * returned

    def bind(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        window = pool_window(op, n, kernel_size, stride, padding, dilation)
        return (input,), window._asdict() | {"ceil_mode": bool(ceil_mode)}

    bind.__doc__ = f"""Take the greatest element of each window over the last {n} dimension{"s" * (n > 1)}.

    Shapes: [n, c, sizes...] -> [n, c, places...]{
        ", and the same of int64" * returned
    }; the batch may be missing.
    stride: that of the windows, by default their size.  ceil_mode: let a last window reach beyond the end.
    A NaN is greater than any number; among equals the first counts.{
        "  indices: places in the flattened sizes." * returned
    }
    Raises ShapeError, ArgumentValueError.
    """

    def infer(input: Type, *, ceil_mode, **attrs) -> tuple:
        window = Window(**attrs)
        out = pooled_type(op, input, n, lambda sizes: pool_places(op, sizes, window, ceil_mode))
        if input.dtype.category == "bool":
            raise DTypeError(f"{op}(input): bools have no order", "cast with .int()")
        return out, out.with_dtype(int64)

    def reference(input, *, kernel, stride, padding, dilation, ceil_mode):
        window = Window(kernel, stride, padding, dilation)
        x = input if input.ndim == n + 2 else input[None]
        out, indices = max_windows(x, window, pool_places(op, x.shape[2:], window, ceil_mode))
        return (out, indices) if input.ndim == n + 2 else (out[0], indices[0])

    def build(k, input, *, kernel, stride, padding, dilation, ceil_mode):
        window, sizes = Window(kernel, stride, padding, dilation), input.shape[-n:]
        axes = k.parallel(*input.shape[:-n], *pool_places(op, sizes, window, ceil_mode))
        taps = k.axes(*kernel)
        lead, places = axes[:-n], axes[-n:]
        value, best = k.argmax(input.at(*lead, *window.positions(places, taps), outside=-inf), over=taps)
        index = []
        for i, tap, s, (p, _), d in zip(places, unflat(best, kernel), stride, padding, dilation, strict=True):
            # where all of a window is -inf, padding is found first: go on to what lies inside
            inside = maximum(tap, (k.coordinate(i * -s + p) + (d - 1)) // d) if p else tap
            index.append((i * s - p) + inside * d)
        k.store(value, at=axes)
        k.store(flat(index, sizes), at=axes, output=1)

    return define(
        op,
        **with_places(n, returned, windows=True),
        bind=bind,
        infer=infer,
        reference=reference,
        lower=lowering.kernel(build),
        samples=max_samples(n),
        inapplicable=SAMPLE_SIZES,
        dtypes="number",
        method=False,
    )


def max_samples(n: int):
    x = (5, 4, 3)[:n]

    def samples():
        yield sample(Operand((2, 2, *x), distinct=True), kernel_size=2)
        yield sample(Operand((0, 2, *x)), kernel_size=2)
        yield sample(Operand((2, 3, *x), distinct=True), kernel_size=x)
        yield sample(Operand((2, *x), distinct=True), kernel_size=3, stride=1, padding=1, ceil_mode=True)
        if n < 3:
            yield sample(Operand((1, 2, *x), distinct=True), kernel_size=2, stride=3, dilation=2, padding=1)
            yield sample(Operand((2, 1, *x), distinct=True), kernel_size=3, stride=2, ceil_mode=True)

    return samples


max_pool1d, max_pool2d, max_pool3d = (make_max_pool(n, False) for n in (1, 2, 3))
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    make_max_pool(n, True) for n in (1, 2, 3)
)


def bind_max_pool_grad(g, indices, size, kernel_size, stride=None, padding=0):
    """Add up, at each element, what the windows have whose greatest it is: `max_pool{n}d` transposed.

    indices: the places of those in the flattened `size`, each in its window.  It is `spread_at` for these,
    and asks each element's windows: nothing is written where another one writes.
    Shapes: [..., places...], the same -> [..., *size].  Raises ShapeError, DTypeError.
    """
    window = pool_window("max_pool_grad", len(size), kernel_size, stride, padding)._asdict()
    del window["dilation"]
    return (g, indices), {"size": tuple(size)} | window


def build_max_pool_grad(k, g, indices, *, size, kernel, stride, padding):
    n = len(size)
    axes = k.parallel(*g.shape[:-n], *size)
    own = [k.coordinate(i) for i in axes[-n:]]
    # the last window that an element may lie in, and those before it
    before = k.axes(*(-(-r // s) for r, s in zip(kernel, stride, strict=True)))
    places = [
        (i + p) // s - (b if s == 1 else k.coordinate(b))
        for i, b, s, (p, _) in zip(axes[-n:], before, stride, padding, strict=True)
    ]
    index = indices.at(*axes[:-n], *places, outside=-1)
    part = where(eq(index, flat(own, size)), g.at(*axes[:-n], *places, outside=0), 0)
    k.store(k.sum(part, over=before), at=axes)


def max_pool_grad_reference(g, indices, *, size, **_):
    return spread_at_reference(g, indices, size=size, add=True)


def infer_max_pool_grad(g: Type, indices: Type, *, size, **_) -> Type:
    need_float("max_pool_grad", g)
    return infer_spread_at(g, indices, size=size, add=True)


max_pool_grad = define(
    "max_pool_grad",
    operands=("g", "indices"),
    attrs=("size", "kernel", "stride", "padding"),
    bind=bind_max_pool_grad,
    infer=infer_max_pool_grad,
    reference=max_pool_grad_reference,
    grad=(lambda g, indices, size: pick_at(g, indices, dims=len(size)), None),
    lower=lowering.kernel(build_max_pool_grad),
    samples=lambda: [
        # one window of everything, and place 1, which lies in all windows
        sample((2, 3, 1), Operand((2, 3, 1), 0, 5, "int"), size=(5,), kernel_size=5),
        sample((0, 2, 1), Operand((0, 2, 1), 0, 5, "int"), size=(5,), kernel_size=5),
        sample((1, 2, 3), Operand((1, 2, 3), 1, 2, "int"), size=(3,), kernel_size=3, stride=1, padding=1),
        sample((2, 1, 1), Operand((2, 1, 1), 0, 12, "int"), size=(3, 4), kernel_size=(3, 4)),
        sample((2, 2, 2), Operand((2, 2, 2), 4, 5, "int"), size=(3, 3), kernel_size=3, stride=2, padding=1),
    ],
    inapplicable=SAMPLE_SIZES | {"broadcast": "nothing is broadcast"},
    dtypes="float",
    method=False,
)
