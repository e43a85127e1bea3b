"""Operators that slide weights over the spatial dimensions of [batch, channels, …]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ....nn import functional as F
from ....runtime import Tensor, ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from .registry import Value, as_tensor, ints, operator

Pairs = tuple[tuple[int, int], ...]

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
add, where = ops.FUNCTIONS["add"], ops.FUNCTIONS["where"]

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


# ---- windows
@dataclass(frozen=True)
class Windows:
    """Windows that slide over spatial dimensions.  pads: what is added before and after each of these."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pairs

    @property
    def reach(self) -> tuple[int, ...]:
        """How many places a window spans."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def places(self, node: Node, sizes: Sequence[int], up: bool = False) -> tuple[int, ...]:
        """How many windows there are.  up: a last one may reach beyond the end, if it starts before that."""
        found = []
        every = zip(sizes, self.pads, self.reach, self.strides, strict=True)
        for size, (before, after), reach, stride in every:
            room = size + before + after - reach
            count = (room + stride - 1 if up else room) // stride + 1
            found.append(count - 1 if up and (count - 1) * stride >= size + before else count)
        if min(found, default=1) < 1:
            raise OnnxError(
                f"{node.op}: windows of {[*self.reach]} don't fit in {[*sizes]} with pads of {[*self.pads]}",
                str(node),
            )
        return tuple(found)


def spatial(node: Node, x: Value) -> tuple[int, ...]:
    """The sizes of an input's one to three spatial dimensions.  Raises OnnxError where it has others."""
    if not 3 <= len(x.shape) <= 5:
        raise OnnxError(
            f"{node.op}: it takes inputs of 3 to 5 dimensions, 1 to 3 of them spatial, not {[*x.shape]}",
            str(node),
        )
    return tuple(x.shape[2:])


def each(node: Node, name: str, count: int, default: int = 1, least: int = 1) -> tuple[int, ...]:
    """An attribute of a number for each dimension.  Raises OnnxError for another count, or too small ones."""
    found = tuple(node.attr(name) or (default,) * count)
    if len(found) != count or min(found, default=least) < least:
        raise OnnxError(
            f"{node.op}: {name} are {count} numbers of {least} or more, not {[*found]}", str(node)
        )
    return found


def auto_pad(node: Node) -> str:
    found = node.attr("auto_pad", "NOTSET")
    if found not in AUTO_PADS:
        raise OnnxError(f"{node.op}: auto_pad is one of {', '.join(AUTO_PADS)}, not {found!r}", str(node))
    return found


def kernel_shape(node: Node, weight: Value, count: int) -> tuple[int, ...]:
    """The spatial sizes of a weight.  Raises OnnxError unless they are as many, and what the node says."""
    kernel = tuple(weight.shape[2:])
    said = tuple(node.attr("kernel_shape") or kernel)
    if len(kernel) != count or said != kernel:
        raise OnnxError(
            f"{node.op}: a weight of {[*weight.shape]} has no {count} dimensions of kernel_shape {[*said]}",
            str(node),
        )
    return kernel


def explicit(node: Node, count: int) -> Pairs:
    pads = each(node, "pads", 2 * count, 0, 0)
    return tuple(zip(pads[:count], pads[count:], strict=True))


def windows(node: Node, sizes: Sequence[int], kernel: tuple[int, ...]) -> Windows:
    """What a node says of its windows."""
    count, auto = len(sizes), auto_pad(node)
    found = Windows(
        kernel,
        each(node, "strides", count),
        each(node, "dilations", count),
        explicit(node, count) if auto == "NOTSET" else ((0, 0),) * count,
    )
    if not auto.startswith("SAME"):
        return found
    every = zip(sizes, found.strides, found.reach, strict=True)
    totals = [max((-(-size // stride) - 1) * stride + reach - size, 0) for size, stride, reach in every]
    return Windows(kernel, found.strides, found.dilations, _halves(totals, auto == "SAME_UPPER"))


def _halves(totals: Sequence[int], upper: bool) -> Pairs:
    """Split what is added in two; what is odd goes to the end, or else to the beginning."""
    pairs = [(total // 2, total - total // 2) for total in totals]
    return tuple(pairs if upper else [pair[::-1] for pair in pairs])


def widened(x: Tensor, pads: Pairs, value: float = 0) -> Tensor:
    """An input with this much of a value before and after its last dimensions; a negative number cuts off."""
    if not any(map(any, pads)):
        return x
    return F.pad(x, [number for pair in reversed(pads) for number in pair], value=value)


WIDE = 4096  # padding, and places of a window, of which nobody asks what they take


def afford_padded(node: Node, x: Value, pads: Pairs) -> None:
    """Raise OutOfMemoryError where an input with its padding is more than a call may take.

    Sizes are looked at where padding is wide alone: a tracer takes them for numbers then.
    """
    if any(before + after > WIDE for before, after in pads):
        sizes = [int(size) + before + after for size, (before, after) in zip(x.shape[2:], pads, strict=True)]
        afford([int(x.shape[0]), int(x.shape[1]), *sizes], 4, node.op)


# ---- convolutions
@operator("Conv")
def conv(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    sizes = spatial(node, x)
    over = windows(node, sizes, kernel_shape(node, weight, len(sizes)))
    afford_padded(node, x, over.pads)
    group = node.attr("group", 1)
    return CONV[len(sizes)](x, weight, bias, over.strides, over.pads, over.dilations, group)


def _transposed(node: Node, sizes: tuple[int, ...], over: Windows) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of a transposed convolution, and how much of it is cut off before them."""
    count, auto = len(sizes), auto_pad(node)
    extra = each(node, "output_padding", count, 0, 0)
    every = zip(sizes, over.strides, over.reach, extra, strict=True)
    full = [(size - 1) * stride + reach + more for size, stride, reach, more in every]
    asked = node.attr("output_shape") and each(node, "output_shape", count, 1, 1)
    if not asked and not auto.startswith("SAME"):
        pads = explicit(node, count) if auto == "NOTSET" else ((0, 0),) * count
        if any(sum(pair) > WIDE for pair in pads):
            afford([int(size) for size in full], 4, node.op)
        out = tuple(f - sum(pair) for f, pair in zip(full, pads, strict=True))
        return out, tuple(before for before, _ in pads)
    out = asked or tuple(size * stride for size, stride in zip(sizes, over.strides, strict=True))
    # What is asked for beyond all that is there follows it.
    if asked:
        afford([max(int(f), o) for f, o in zip(full, out, strict=True)], 4, node.op)
    cut = [max(f - o, 0) for f, o in zip(full, out, strict=True)]
    return out, tuple(pair[0] for pair in _halves(cut, auto == "SAME_UPPER"))


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    sizes, group = spatial(node, x), node.attr("group", 1)
    count = len(sizes)
    kernel, channels = kernel_shape(node, weight, count), weight.shape[0]
    if group < 1 or channels % group or x.shape[1] != channels:
        raise OnnxError(
            f"ConvTranspose: {x.shape[1]} channels in {group} groups, with a weight of {[*weight.shape]}",
            str(node),
        )
    strides, dilations = each(node, "strides", count), each(node, "dilations", count)
    over = Windows(kernel, strides, dilations, ((0, 0),) * count)
    out, before = _transposed(node, sizes, over)
    if min(out) < 1:
        raise OnnxError(f"ConvTranspose: the pads leave nothing: its sizes would be {[*out]}", str(node))
    every = zip(sizes, strides, over.reach, out, before, strict=True)
    after = [(size - 1) * stride + reach - o - less for size, stride, reach, o, less in every]
    extra = [less - more for less, more in zip(before, after, strict=True)]
    run = CONV_TRANSPOSE[count]
    if all(0 <= more < most for more, most in zip(extra, map(max, strides, dilations), strict=True)):
        return run(x, weight, bias, strides, before, extra, group, dilations)
    whole = run(x, weight, None, strides, 0, 0, group, dilations)
    found = widened(whole, tuple((-less, -more) for less, more in zip(before, after, strict=True)))
    return found if bias is None else found + bias.to(found.dtype).reshape((-1, *(1,) * count))


@operator("CausalConvWithState")
def causal_conv(
    node: Node, x: Value, weight: Value, bias: Value = None, past: Value = None
) -> tuple[Value, ...]:
    activation = node.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise OnnxError(
            f"CausalConvWithState: activation is none, silu or swish, not {activation!r}", str(node)
        )
    if len(x.shape) != 3 or len(weight.shape) != 3 or 0 in weight.shape:
        raise OnnxError(
            f"CausalConvWithState: it takes [batch, channels, length] and [channels, 1, kernel], "
            f"not {[*x.shape]} and {[*weight.shape]}",
            str(node),
        )
    kept = weight.shape[2] - 1
    if past is not None and tuple(past.shape) != (*x.shape[:2], kept):
        raise OnnxError(
            f"CausalConvWithState: the state is {[*x.shape[:2], kept]}, not {[*past.shape]}", str(node)
        )
    seen = widened(x, ((kept, 0),)) if past is None else ops.FUNCTIONS["cat"]([past, x], 2)
    out = F.conv1d(seen, weight, bias, groups=x.shape[1])
    return out if activation == "none" else F.silu(out), seen[:, :, seen.shape[2] - kept :]


# ---- deformed windows
def _sample_places(over: Windows, places: tuple[int, ...]) -> np.ndarray:
    """Where each element of each window lies: [elements, dimensions, *places]."""
    count = len(places)
    afford((count, *over.kernel, *places), 8, "windows")
    taps = np.indices(over.kernel).reshape(count, -1).T * over.dilations
    begin = np.asarray([pair[0] for pair in over.pads]).reshape(count, *(1,) * count)
    starts = np.indices(places) * np.reshape(over.strides, (count, *(1,) * count)) - begin
    return taps.reshape(*taps.shape, *(1,) * count) + starts


def _sampled(x: Tensor, at: Tensor) -> Tensor:
    """What an input has at places [batch, dimensions, points]: linear between elements, zeros around them."""
    corners: list[tuple[Any, Any]] = [(0, 1.0)]  # places in the flattened input, and what share they have
    for axis, size in enumerate(x.shape[2:]):
        place = at[:, axis : axis + 1]
        low = place.detach().floor()
        found = []
        for near, share in ((low, 1 - (place - low)), (low + 1, place - low)):
            within = (near >= 0) & (near <= size - 1)  # nothing is: NaN
            index, share = where(within, near, 0.0).long(), where(within, share, 0.0)
            found += [(before * size + index, so_far * share) for before, so_far in corners]
        corners = found
    flat, shape = x.reshape((*x.shape[:2], prod(x.shape[2:]))), (*x.shape[:2], at.shape[2])
    return reduce(add, [flat.gather(2, index.expand(shape)) * share for index, share in corners])


def _deformed(
    node: Node, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None
) -> tuple[Windows, tuple[int, ...]]:
    """A node's windows, and how many of them there are.  Raises OnnxError where shapes don't fit."""
    over = windows(node, spatial(node, x), kernel_shape(node, weight, len(x.shape) - 2))
    places, channels = over.places(node, x.shape[2:]), x.shape[1]
    group, shared = node.attr("group", 1), node.attr("offset_group", 1)
    divides = min(group, shared) > 0 and not channels % shared and not weight.shape[0] % group
    if not divides or channels != weight.shape[1] * group:
        raise OnnxError(
            f"DeformConv: {channels} channels in {group} groups, {shared} of offsets, with a weight of "
            f"{[*weight.shape]}",
            str(node),
        )
    for given, width in ((offset, len(places)), (mask, 1)):
        wanted = (x.shape[0], shared * prod(over.kernel) * width, *places)
        if given is not None and tuple(given.shape) != wanted:
            raise OnnxError(
                f"DeformConv: offsets or mask of {[*given.shape]} in place of {[*wanted]}", str(node)
            )
    return over, places


@operator("DeformConv")
def deform_conv(
    node: Node, x: Value, weight: Value, offset: Value, bias: Value = None, mask: Value = None
) -> Value:
    over, places = _deformed(node, x, weight, offset, mask)
    group, shared = node.attr("group", 1), node.attr("offset_group", 1)
    (batch, channels, *sizes), outs, wide = x.shape, weight.shape[0], x.dtype.compute
    taps, count, points = prod(over.kernel), len(sizes), prod(places)
    at = offset.to(wide).reshape((batch * shared, taps, count, *places))
    at = at + as_tensor(_sample_places(over, places)).to(wide)
    at = at.reshape((batch * shared, taps, count, points)).transpose(1, 2)
    parts = x.to(wide).reshape((batch * shared, channels // shared, *sizes))
    seen = _sampled(parts, at.reshape((batch * shared, count, taps * points)))
    if mask is not None:
        seen = seen * mask.to(wide).reshape((batch * shared, 1, taps * points))
    columns = seen.reshape((batch, group, channels // group * taps, points))
    found = weight.to(wide).reshape((group, outs // group, channels // group * taps)) @ columns
    found = found.reshape((batch, outs, *places))
    return (found if bias is None else found + bias.to(wide).reshape((-1, *(1,) * count))).to(x.dtype)


# ---- windows as columns
@operator("Col2Im", raw=True)
def col2im(node: Node, x: Value, image: Value, block: Value) -> Value:
    x, sizes, kernel = as_tensor(x), tuple(ints(image) or ()), tuple(ints(block) or ())
    count = len(sizes)
    fits = len(x.shape) == 3 and count == len(kernel) and min((*sizes, *kernel), default=0) > 0
    if not fits or x.shape[1] % prod(kernel):
        raise OnnxError(
            f"Col2Im: columns of {[*x.shape]} are not those of blocks of {[*kernel]} in {[*sizes]}", str(node)
        )
    strides, dilations = each(node, "strides", count), each(node, "dilations", count)
    over = Windows(kernel, strides, dilations, explicit(node, count))
    places = over.places(node, sizes)
    if x.shape[2] != prod(places):
        raise OnnxError(
            f"Col2Im: there are {prod(places)} blocks, and not {x.shape[2]}", f"image: {[*sizes]}", str(node)
        )
    if count == 2:
        return F.fold(x, sizes, kernel, over.dilations, over.pads, over.strides)
    batch, channels = x.shape[0], x.shape[1] // prod(kernel)
    whole = tuple(size + before + after for size, (before, after) in zip(sizes, over.pads, strict=True))
    at = _sample_places(Windows(kernel, over.strides, over.dilations, ((0, 0),) * count), places)
    flat = np.ravel_multi_index(tuple(np.moveaxis(at, 1, 0)), whole)
    columns = x.reshape((batch, channels, flat.size, *(1,) * (count - 1)))
    at = as_tensor(flat.reshape((1, 1, *columns.shape[2:]))).expand(columns.shape)
    found = ops.FUNCTIONS["spread_at"](columns, at, size=whole)
    return widened(found, tuple((-before, -after) for before, after in over.pads))
