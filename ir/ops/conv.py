"""Convolutions in one, two and three dimensions, and the two products that are their gradients.

Input x, weight w and result y are tied by three bilinear forms, each of which gives one from the other two:

    conv{n}d(x, w)          y[n, k, i] is the sum over c and r of x[n, c, i * stride + r * dilation - padding]
                            times w[k, c, r]
    conv_input_grad(y, w)   the same products with y in place of x, summed into x: a transposed convolution
    conv_weight_grad(y, x)  the same, summed into w

So each one's gradients are the other two, to any order.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import at_least, same
from ..errors import ArgumentValueError, ShapeError
from ..op import Op, composite, define
from ..sample import sample
from ..shapes import as_whole, common_device, pair
from ..types import Type, type_of
from .compare import eq, where
from .join import constant_pad
from .matmul import matrix_dtype
from .reduce import sum
from .sliding import SAMPLE_SIZES, Window, padded, positive
from .view import reshape

# ---- arguments


def conv_attrs(op: str, n: int, weight: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> dict:
    """The canonical attributes of a convolution over `n` dimensions."""
    stride, dilation = positive(op, "stride", stride, n), positive(op, "dilation", dilation, n)
    parts = as_whole(groups)
    if not isinstance(parts, int) or parts < 1:
        raise ArgumentValueError(f"{op}: groups must be 1 or more, not {groups!r}")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ArgumentValueError(f"{op}: padding must be ints, 'same' or 'valid', not {padding!r}")
        total = tuple(d * (r - 1) for d, r in zip(dilation, weight.shape[2:], strict=True))
        if padding == "valid":
            total = (0,) * n
        elif any(s != 1 for s in stride):
            raise ArgumentValueError(f"{op}: padding='same' needs a stride of 1, not {stride}")
        padding = tuple((t // 2, t - t // 2) for t in total)
    return {
        "stride": stride, "padding": padded(op, padding, n), "dilation": dilation, "groups": parts,
    }  # fmt: skip


# ---- NumPy


# Two layouts of the same products.  As it stands, each image has a product of its own, whose result already
# lies as [n, k, *places]; but windows are copied in runs of one row.  With the batch innermost, rows are as
# long as the batch times the width, and there is one product.  For 3x3 kernels on one Zen 4 core,
# [32, 32, 4, 4] took 0.42 and [32, 16, 8, 8] 0.76 of the time, input gradients 0.34, 0.59.  On larger
# images, and with few channels, it is slower.


def interleaves(window: Window, places: tuple, batch: int, channels: int, outs: int) -> bool:
    """Whether rows are short, and copying the windows outweighs turning input and result around."""
    return (
        batch >= 4
        and window.stride[-1] == 1
        and places[-1] <= 16
        and channels * prod(window.kernel) >= 2 * (channels + outs)
    )


def interleaved(x: np.ndarray) -> np.ndarray:
    """The batch as one wide image: [n, c, ..., w] -> [1, c, ..., w * n]."""
    turned = np.ascontiguousarray(np.moveaxis(x, 0, -1))
    return turned.reshape(1, *turned.shape[:-2], turned.shape[-2] * turned.shape[-1])


def separated(x: np.ndarray, batch: int) -> np.ndarray:
    """The images of a wide one: `interleaved` undone."""
    turned = x.reshape(*x.shape[1:-1], x.shape[-1] // batch, batch)
    return np.ascontiguousarray(np.moveaxis(turned, -1, 0))


def widened(window: Window, batch: int) -> Window:
    """The window that does in the wide image what `window` does in each."""
    *padding, (before, after) = window.padding
    return window._replace(
        padding=(*padding, (before * batch, after * batch)),
        dilation=(*window.dilation[:-1], window.dilation[-1] * batch),
    )


def columns(x: np.ndarray, window: Window, places: tuple, groups: int) -> np.ndarray:
    """The windows of x as matrices, one for each image and group: [n, groups, c / groups * kernel, p]."""
    batch, channels = x.shape[:2]
    shape = (batch, groups, channels // groups * prod(window.kernel), prod(places))
    return window.view(x, places).reshape(shape)


def conv_reference(input, weight, bias, *, stride, padding, dilation, groups):
    window = Window(weight.shape[2:], stride, padding, dilation)
    x = input if input.ndim == weight.ndim else input[None]
    batch, outs, places = x.shape[0], weight.shape[0], window.places("conv", x.shape[2:])
    w = weight.reshape(groups, outs // groups, prod(weight.shape[1:]))
    if interleaves(window, places, batch, x.shape[1], outs):
        x, wide = interleaved(x), (*places[:-1], places[-1] * batch)
        y = np.matmul(w, columns(x, widened(window, batch), wide, groups))
        y = separated(y.reshape(1, outs, *wide), batch)
    else:
        y = np.matmul(w, columns(x, window, places, groups)).reshape(batch, outs, *places)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * len(places))
    return y if input.ndim == weight.ndim else y[0]


def conv_input_grad_reference(g, weight, *, size, stride, padding, dilation, groups):
    window = Window(weight.shape[2:], stride, padding, dilation)
    y = g if g.ndim == weight.ndim else g[None]
    batch, outs, channels = y.shape[0], weight.shape[0], groups * weight.shape[1]
    w = weight.reshape(groups, outs // groups, prod(weight.shape[1:])).mT

    def spread(y: np.ndarray, window: Window, size: tuple) -> np.ndarray:
        taps = np.matmul(w, y.reshape(y.shape[0], groups, outs // groups, prod(y.shape[2:])))
        return window.overlap(taps.reshape(y.shape[0], channels, *window.kernel, *y.shape[2:]), size)

    if interleaves(window, y.shape[2:], batch, channels, outs):
        wide = spread(interleaved(y), widened(window, batch), (*size[:-1], size[-1] * batch))
        x = separated(wide, batch)
    else:
        x = spread(y, window, size)
    return x if g.ndim == weight.ndim else x[0]


def conv_weight_grad_reference(g, input, *, size, stride, padding, dilation, groups):
    window = Window(size, stride, padding, dilation)
    y, x = (g, input) if input.ndim == len(size) + 2 else (g[None], input[None])
    batch, outs, channels = y.shape[0], y.shape[1], x.shape[1]
    if interleaves(window, y.shape[2:], batch, channels, outs):
        y, x, window = interleaved(y), interleaved(x), widened(window, batch)
    cols = columns(x, window, y.shape[2:], groups)
    rows = y.reshape(y.shape[0], groups, outs // groups, prod(y.shape[2:]))
    shape = (outs, channels // groups, *size)
    if len(rows) * prod(shape) <= 1 << 18:  # small enough to keep one weight gradient for each image
        return np.add.reduce(np.matmul(rows, cols.mT), axis=0, dtype=rows.dtype).reshape(shape)
    w = np.matmul(rows[0], cols[0].mT)
    for row, column in zip(rows[1:], cols[1:], strict=True):
        w += np.matmul(row, column.mT)
    return w.reshape(shape)


# ---- kernel form
#
# Groups are an axis of their own, absent if there is one, so that no index divides.


def channel(group: Any, inner: Any, groups: int, channels: int) -> Any:
    """The index among all channels of one within a group."""
    return inner if groups == 1 else group * (channels // groups) + inner


def grid(k: Any, batch: tuple, groups: int, channels: int, sizes: tuple) -> tuple:
    """Parallel axes over [*batch, channels, *sizes]: indices of batch, group, channel within it, the rest."""
    grouped = (groups,) if groups > 1 else ()
    axes = k.parallel(*batch, *grouped, channels // groups, *sizes)
    inner, *places = axes[len(batch) + len(grouped) :]
    return axes[: len(batch)], axes[len(batch)] if grouped else 0, inner, tuple(places)


def build_conv(k, input, weight, bias, *, stride, padding, dilation, groups, outside=0):
    window = Window(weight.shape[2:], stride, padding, dilation)
    n, outs, channels = len(stride), weight.shape[0], weight.shape[1]
    places = window.places("conv", input.shape[-n:])
    batch, group, inner, places = grid(k, input.shape[: -n - 1], groups, outs, places)
    c, *taps = k.axes(channels, *window.kernel)
    at = window.positions(places, taps)
    x = input.at(*batch, channel(group, c, groups, channels * groups), *at, outside=outside)
    out = channel(group, inner, groups, outs)
    y = k.sum(x * weight[out, c, *taps], over=(c, *taps))
    k.store(y if bias is None else y + bias[out], at=(*batch, out, *places))


def build_conv_input_grad(k, g, weight, *, size, stride, padding, dilation, groups):
    n, outs, channels = len(stride), weight.shape[0], weight.shape[1] * groups
    batch, group, inner, places = grid(k, g.shape[: -n - 1], groups, channels, size)
    c, *taps = k.axes(outs // groups, *weight.shape[2:])
    at, whole = [], []
    for i, r, s, (p, _), d in zip(places, taps, stride, padding, dilation, strict=True):
        reached = i + p - r * d  # stride times the place of the window whose tap r lies here, if there is one
        at.append(reached // s)
        if s > 1:
            whole.append(eq(reached % s, 0))
    out = channel(group, c, groups, outs)
    y = g.at(*batch, out, *at, outside=0)
    for condition in whole:
        y = where(condition, y, 0)
    total = k.sum(y * weight[out, inner, *taps], over=(c, *taps))
    k.store(total, at=(*batch, channel(group, inner, groups, channels), *places))


def build_conv_weight_grad(k, g, input, *, size, stride, padding, dilation, groups):
    window, n = Window(size, stride, padding, dilation), len(size)
    outs, channels = g.shape[-n - 1], input.shape[-n - 1]
    _, group, row, (column, *taps) = grid(k, (), groups, outs, (channels // groups, *size))
    over = k.axes(*g.shape[: -n - 1], *g.shape[-n:])
    batch, places = over[:-n], over[-n:]
    out = channel(group, row, groups, outs)
    at = window.positions(places, taps)
    x = input.at(*batch, channel(group, column, groups, channels), *at, outside=0)
    k.store(k.sum(g[*batch, out, *places] * x, over=over), at=(out, column, *taps))


# ---- records


def check_channels(op: str, input: Type, weight: Type, n: int, groups: int) -> None:
    """Raise ShapeError unless input and weight have the right ranks, and channels that fit."""
    if weight.ndim != n + 2 or input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{op}: Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {op}, but got input of "
            f"size: {[*input.shape]}, and a weight of {n + 2} dimensions, which has {weight.ndim}"
        )
    channels = input.shape[-n - 1]
    if not same(channels, weight.shape[1] * groups):
        raise ShapeError(
            f"{op}(input, weight): the channels of input must be weight.shape[1] * groups "
            f"({channels} != {weight.shape[1]} * {groups})"
        )
    if weight.shape[0] % groups:
        raise ShapeError(
            f"{op}(input, weight): groups must divide the output channels ({weight.shape[0]} % {groups} != 0)"
        )


def infer_conv(op: str, n: int):
    def infer(input: Type, weight: Type, bias: Type | None, *, stride, padding, dilation, groups) -> Type:
        dtype = matrix_dtype(f"{op}(input, weight, bias)", input=input, weight=weight, bias=bias)
        check_channels(op, input, weight, n, groups)
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ShapeError(
                f"{op}(input, weight, bias): bias must be [{weight.shape[0]}], not {list(bias.shape)}"
            )
        places = Window(weight.shape[2:], stride, padding, dilation).places(op, input.shape[-n:])
        shape = (*input.shape[: -n - 1], weight.shape[0], *places)
        return type_of(dtype, shape, common_device(op, input, weight, bias))

    return infer


def vjp_conv(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (g,), (input, weight) = cotangents, saved
    n = weight.ndim - 2
    to_input = to_weight = to_bias = None
    if needs[0]:
        to_input = conv_input_grad(g, weight, size=tuple(input.shape[-n:]), **attrs)
    if needs[1]:
        to_weight = conv_weight_grad(g, input, size=tuple(weight.shape[2:]), **attrs)
    if needs[2]:
        to_bias = sum(g, dim=tuple(d for d in range(g.ndim) if d != g.ndim - n - 1))
    return to_input, to_weight, to_bias


def conv_samples(n: int):
    x, w = (5, 4, 3)[:n], (3, 2, 2)[:n]

    def samples():
        yield sample((2, 3, *x), (4, 3, *w), (4,))
        yield sample((2, 3, *x), (4, 3, *w), stride=2, padding=1)
        yield sample((0, 2, *x), (3, 2, *w), (3,))
        if n < 3:
            yield sample((2, *x), (3, 2, *w), (3,), padding=1)
            yield sample((1, 4, *x), (6, 2, *w), (6,), padding=(2, 1)[:n], dilation=(1, 2)[:n], groups=2)
            yield sample((2, 3, *x), (3, 1, *w), padding="same", groups=3)
            yield sample((1, 2, *x), (2, 2, *(1,) * n), padding="valid")
        if n == 1:
            yield sample((1, 1, 17), (2, 1, 3), stride=3, dilation=2)
            yield sample((1, 2, 33), (1, 2, 4), (1,), stride=4, padding=2)

    return samples


def _windows(image: Type, weight: Type) -> int:
    """Elements of the windows at each place, which the reference lays side by side, at a stride of 1; and the
    multiplications that each is for, 32 in the time of an element."""
    channels = image.shape[-(weight.ndim - 1)]
    outs = weight.shape[0] * weight.shape[1] // max(1, channels)  # of an element's group
    return int(prod(image.shape) * prod(weight.shape[2:]) * (32 + outs) // 32)


def make_conv(n: int) -> Op:
    op = f"conv{n}d"
    spatial = "".join(f", {d}" for d in "dhw"[-n:])

    def bind(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return (input, weight, bias), conv_attrs(op, n, weight, stride, padding, dilation, groups)

    bind.__doc__ = f"""Slide kernels over {n} dimension{"s" * (n > 1)} (cross-correlation).

    Shapes: [n, c{spatial}], [k, c / groups{spatial}], [k] -> [n, k{spatial}]; the batch may be missing.
    A size becomes (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1.
    stride, padding, dilation: an int, or one for each dimension.  padding is added on both sides; "valid" is
    none, "same" keeps the sizes, at a stride of 1.  Raises ShapeError, DTypeError, ArgumentValueError.
    """
    return define(
        op,
        bind=bind,
        infer=infer_conv(op, n),
        reference=conv_reference,
        optional=("bias",),
        complex="analytic",
        vjp=vjp_conv,
        saves=("input", "weight"),
        inner=lambda types: _windows(types[0], types[1]),
        lower=lowering.kernel(build_conv),
        samples=conv_samples(n),
        inapplicable=SAMPLE_SIZES,
        dtypes="number",
        method=False,
    )


conv1d, conv2d, conv3d = make_conv(1), make_conv(2), make_conv(3)
CONV = {1: conv1d, 2: conv2d, 3: conv3d}


def bind_conv_input_grad(g, weight, *, size, stride, padding, dilation, groups):
    """Spread each place of `g` over the window it was computed from: the gradient of a convolution's input.

    size: the spatial sizes of that input.  Shapes: [n, k, places...], [k, c / groups, kernel...] ->
    [n, c, *size].  Raises ShapeError, DTypeError.
    """
    return (g, weight), {"size": tuple(size)} | conv_attrs(
        "conv_input_grad", len(size), weight, stride, padding, dilation, groups
    )


def bind_conv_weight_grad(g, input, *, size, stride, padding, dilation, groups):
    """Multiply each place of `g` by the window it was computed from: the gradient of a convolution's weight.

    size: that of the kernel.  Shapes: [n, k, places...], [n, c, sizes...] -> [k, c / groups, *size].
    Raises ShapeError, DTypeError.
    """
    return (g, input), {"size": tuple(size)} | conv_attrs(
        "conv_weight_grad", len(size), None, stride, padding, dilation, groups
    )


def check_places(op: str, g: Type, sizes: tuple, window: Window) -> None:
    """Raise ShapeError unless `g` has one element for each place of the kernel."""
    wanted, found = window.places(op, sizes), g.shape[-len(sizes) :]
    if not all(same(a, b) for a, b in zip(wanted, found, strict=True)):
        raise ShapeError(f"{op}: the kernel has {list(wanted)} places, and g has {list(found)}")


def infer_conv_input_grad(g: Type, weight: Type, *, size, stride, padding, dilation, groups) -> Type:
    op = "conv_input_grad"
    dtype, n = matrix_dtype(f"{op}(g, weight)", g=g, weight=weight), len(size)
    if weight.ndim != n + 2 or g.ndim not in (n + 1, n + 2) or not same(g.shape[-n - 1], weight.shape[0]):
        raise ShapeError(f"{op}(g, weight): {g} and {weight} are not a convolution's over {n} dimensions")
    check_places(op, g, size, Window(weight.shape[2:], stride, padding, dilation))
    shape = (*g.shape[: -n - 1], weight.shape[1] * groups, *size)
    return type_of(dtype, shape, common_device(op, g, weight))


def infer_conv_weight_grad(g: Type, input: Type, *, size, stride, padding, dilation, groups) -> Type:
    op = "conv_weight_grad"
    dtype, n = matrix_dtype(f"{op}(g, input)", g=g, input=input), len(size)
    if g.ndim != input.ndim or g.ndim not in (n + 1, n + 2):
        raise ShapeError(f"{op}(g, input): {g} and {input} are not a convolution's over {n} dimensions")
    check_places(op, g, input.shape[-n:], Window(size, stride, padding, dilation))
    shape = (g.shape[-n - 1], input.shape[-n - 1] // groups, *size)
    return type_of(dtype, shape, common_device(op, g, input))


def vjp_conv_input_grad(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (h,), (g, weight) = cotangents, saved
    rest = {name: value for name, value in attrs.items() if name != "size"}
    to_g = CONV[weight.ndim - 2](h, weight, **rest) if needs[0] else None
    to_weight = conv_weight_grad(g, h, size=tuple(weight.shape[2:]), **rest) if needs[1] else None
    return to_g, to_weight


def vjp_conv_weight_grad(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (h,), (g, input) = cotangents, saved
    rest = {name: value for name, value in attrs.items() if name != "size"}
    n = h.ndim - 2
    to_g = CONV[n](input, h, **rest) if needs[0] else None
    to_input = conv_input_grad(g, h, size=tuple(input.shape[-n:]), **rest) if needs[1] else None
    return to_g, to_input


def grad_sample(g: tuple, other: tuple, size: tuple, stride=1, padding=0, dilation=1, groups=1):
    return sample(
        g, other, size=size, stride=stride, padding=padding, dilation=dilation, groups=groups
    )  # fmt: skip


conv_input_grad = define(
    "conv_input_grad",
    complex="analytic",
    bind=bind_conv_input_grad,
    infer=infer_conv_input_grad,
    reference=conv_input_grad_reference,
    vjp=vjp_conv_input_grad,
    saves=("g", "weight"),
    inner=lambda types: _windows(types[0], types[1]),
    lower=lowering.kernel(build_conv_input_grad),
    samples=lambda: [
        grad_sample((2, 2, 5), (2, 3, 3), (7,)),
        grad_sample((2, 2, 2, 3), (2, 3, 2, 2), (5, 4), stride=2, padding=(0, 1)),
        grad_sample((4, 2, 4), (4, 1, 2, 2), (6, 4), stride=(3, 1), dilation=2, padding=1, groups=2),
        grad_sample((1, 2, 2, 2, 2), (2, 1, 2, 1, 2), (3, 2, 3)),
        grad_sample((0, 2, 5), (2, 3, 3), (7,)),
    ],
    inapplicable=SAMPLE_SIZES,
    dtypes="number",
    method=False,
)

conv_weight_grad = define(
    "conv_weight_grad",
    complex="analytic",
    bind=bind_conv_weight_grad,
    infer=infer_conv_weight_grad,
    reference=conv_weight_grad_reference,
    vjp=vjp_conv_weight_grad,
    saves=("g", "input"),
    lower=lowering.kernel(build_conv_weight_grad),
    samples=lambda: [
        grad_sample((2, 2, 5), (2, 3, 7), (3,)),
        grad_sample((2, 2, 2, 3), (2, 3, 5, 4), (2, 2), stride=2, padding=(0, 1)),
        grad_sample((4, 2, 4), (2, 6, 4), (2, 2), stride=(3, 1), dilation=2, padding=1, groups=2),
        grad_sample((1, 2, 2, 2, 2), (1, 1, 3, 2, 3), (2, 1, 2)),
        grad_sample((0, 2, 5), (0, 3, 7), (3,)),
    ],
    inapplicable=SAMPLE_SIZES,
    dtypes="number",
    method=False,
)


# ---- transposed


def _beyond(input: Any, weight: Any, window: Window, extra: tuple, attrs: dict) -> Any:
    """Output that reaches further than a window's stride: that without padding, cut off and filled up."""
    every = zip(input.shape[-len(extra) :], *window, strict=True)
    size = tuple((i - 1) * s + d * (r - 1) + 1 for i, r, s, _, d in every)
    none = ((0, 0),) * len(extra)
    full = conv_input_grad(input, weight, size=size, **{**attrs, "padding": none})
    pads = tuple((-p, e - p) for (p, _), e in zip(attrs["padding"], extra, strict=True))
    return constant_pad(full, ((0, 0),) * (input.ndim - len(extra)) + pads, 0)


def transposed(op, n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    """A convolution's input gradient with sizes of its own, and a bias."""
    attrs = conv_attrs(op, n, None, stride, padding, dilation, groups)
    extra = pair(op, "output_padding", output_padding, n)
    reach = list(map(max, attrs["stride"], attrs["dilation"]))
    if any(not 0 <= e < s for e, s in zip(extra, reach, strict=True)):
        raise ArgumentValueError(
            f"{op}: output_padding lies below stride or dilation, and not below 0 ({extra} and {reach})"
        )
    ranks = weight.ndim == n + 2 and input.ndim in (n + 1, n + 2)
    if not ranks or not same(input.shape[-n - 1], weight.shape[0]):
        raise ShapeError(
            f"{op}(input, weight): the channels of input must equal weight.shape[0] "
            f"(the shapes are {list(input.shape)} and {list(weight.shape)})"
        )
    if weight.shape[0] % groups:
        raise ShapeError(f"{op}: groups must divide the input channels ({weight.shape[0]} % {groups} != 0)")
    window = Window(weight.shape[2:], attrs["stride"], attrs["padding"], attrs["dilation"])
    every = zip(input.shape[-n:], *window, extra, strict=True)
    size = tuple((i - 1) * s - 2 * p + d * (r - 1) + e + 1 for i, r, s, (p, _), d, e in every)
    if not all(at_least(length, 1) for length in size):
        raise ShapeError(
            f"{op}: padding leaves nothing of the output: its sizes would be {list(size)}",
            "each is (input - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1",
        )
    if any(e >= s for e, s in zip(extra, attrs["stride"], strict=True)):
        out = _beyond(input, weight, window, extra, attrs)
    else:
        out = conv_input_grad(input, weight, size=size, **attrs)
    return out if bias is None else out + reshape(bias, (-1, *(1,) * n))


@composite(method=False)
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Spread each element over a window: the transpose of conv1d, whose sizes it undoes.

    Shapes: [n, c, l], [c, k / groups, r], [k] -> [n, k, (l - 1) * stride - 2 * padding + dilation * (r - 1) +
    output_padding + 1]; the batch may be missing.  Raises ShapeError, DTypeError, ArgumentValueError.
    """
    return transposed(
        "conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@composite(method=False)
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Spread each element over a window: the transpose of conv2d.  Shapes as in conv_transpose1d."""
    return transposed(
        "conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@composite(method=False)
def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Spread each element over a window: the transpose of conv3d.  Shapes as in conv_transpose1d."""
    return transposed(
        "conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
