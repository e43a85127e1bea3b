"""Operators that pad, resize, sample and rearrange images, or find boxes in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from math import floor, prod

import numpy as np

from ....nn import functional as F
from ....runtime import Tensor, ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from .conv_nodes import widened
from .registry import Value, as_host, as_tensor, axis_of, ints, is_host, number, operator

MOST = 1 << 36  # elements of a result

# ---- what elements are taken


def _bound(node: Node, sizes: Sequence[int]) -> None:
    if any([size < 0 for size in sizes]) or prod(sizes) > MOST:
        raise OnnxError(f"{node.op}: the result would have the shape {[*sizes]}", str(node))


def _taken(x: Value, axis: int, places: np.ndarray) -> Value:
    """What lies at these places of a dimension."""
    if is_host(x):
        rest = [size for dim, size in enumerate(x.shape) if dim != axis]
        afford((places.size, *rest), x.dtype.itemsize, "an array of constants")
        return np.take(x, places, axis)
    return ops.FUNCTIONS["index_select"](x, axis, as_tensor(places.astype(np.int64)))


def _axes(node: Node, named: Sequence[int] | None, rank: int) -> list[int]:
    """Dimensions from the front: those named, or all.  Raises OnnxError unless they are all different."""
    axes = [*range(rank)] if named is None else [axis_of(axis, rank, node) for axis in named]
    if len(set(axes)) != len(axes):
        raise OnnxError(f"{node.op}: the axes {axes} are not all different", str(node))
    return axes


# ---- pad
PAD_MODES = ("constant", "reflect", "edge", "wrap")


def _filled(x: Value, pairs: Sequence[tuple[int, int]], value: Value) -> Value:
    """An array or a tensor with a value around it; negative numbers cut off."""
    if not is_host(x):
        given = number(value, 0)
        return widened(x, tuple(pairs), given)
    sizes = [size + before + after for size, (before, after) in zip(x.shape, pairs, strict=True)]
    afford(sizes, x.dtype.itemsize, "an array of constants")
    made = np.full(
        sizes, ("" if x.dtype == object else 0) if value is None else as_host(value).reshape(-1)[0], x.dtype
    )
    every = [(size, before, after) for size, (before, after) in zip(x.shape, pairs, strict=True)]
    inside = tuple(
        slice(max(before, 0), n - max(after, 0)) for n, (_, before, after) in zip(sizes, every, strict=True)
    )
    kept = tuple(slice(max(-before, 0), size - max(-after, 0)) for size, before, after in every)
    made[inside] = x[kept]
    return made


@operator("Pad", raw=True)
def pad(node: Node, x: Value, pads: Value = None, value: Value = None, axes: Value = None) -> Value:
    mode, rank = node.attr("mode", "constant"), len(x.shape)
    if node.opset < 11:
        pads, value = np.array(node.attr("pads", ()), np.int64), np.array(node.attr("value", 0.0))
    widths, named = ints(pads) or [], _axes(node, ints(axes), rank)
    if mode not in PAD_MODES or len(widths) != 2 * len(named):
        raise OnnxError(f"Pad: {mode!r}, with the pads {widths} for the axes {named}", str(node))
    pairs = [(0, 0)] * rank
    for at, axis in enumerate(named):
        pairs[axis] = widths[at], widths[at + len(named)]
    _bound(node, [size + before + after for size, (before, after) in zip(x.shape, pairs, strict=True)])
    if any(
        size < -min(before, 0) - min(after, 0) for size, (before, after) in zip(x.shape, pairs, strict=True)
    ):
        raise OnnxError(f"Pad: {widths} cut off more than there is of {[*x.shape]}", str(node))
    x = x if is_host(x) and is_host(value) else as_tensor(x)
    if mode == "constant":
        return _filled(x, pairs, value)
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            size = x.shape[axis]
            afford((max(before, 0) + max(after, 0),), 32, node.op)
            kept = np.arange(max(-before, 0), size - max(-after, 0))
            if not kept.size and max(before, after) > 0:
                raise OnnxError(f"Pad: {mode!r} has nothing to repeat along the axis {axis}", str(node))
            x = _taken(x, axis, np.pad(kept, (max(before, 0), max(after, 0)), mode))
    return x


@operator("CenterCropPad", raw=True)
def center_crop_pad(node: Node, x: Value, to: Value) -> Value:
    sizes, axes = ints(to) or [], _axes(node, node.attr("axes"), len(x.shape))
    if len(sizes) != len(axes) or min(sizes, default=0) < 0:
        raise OnnxError(f"CenterCropPad: the sizes {sizes} are not those of the axes {axes}", str(node))
    pairs = [(0, 0)] * len(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        more = size - x.shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        pairs[axis] = before, more - before
    _bound(node, [size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)])
    return _filled(x, pairs, None)


# ---- blocks of pixels and channels
def _rearranged(x: Value, parts: tuple[int, ...], order: tuple[int, ...], to: tuple[int, ...]) -> Value:
    x = x.reshape(parts)
    return (np.transpose(x, order) if is_host(x) else ops.FUNCTIONS["permute"](x, order)).reshape(to)


def _blocks(node: Node, x: Value) -> tuple[int, str]:
    """The size of a node's blocks, and their order.  Raises OnnxError where its input isn't made of such."""
    size, mode = node.attr("blocksize", 0), node.attr("mode", "DCR")
    if len(x.shape) != 4 or size < 1 or mode not in ("DCR", "CRD"):
        raise OnnxError(f"{node.op}: {[*x.shape]} in blocks of {size}, by {mode!r}", str(node))
    divided = x.shape[1:2] if node.op == "DepthToSpace" else x.shape[2:]
    by = size * size if node.op == "DepthToSpace" else size
    if any(each % by for each in divided):
        raise OnnxError(f"{node.op}: {[*x.shape]} can't be divided in blocks of {size}", str(node))
    return size, mode


@operator("DepthToSpace", raw=True)
def depth_to_space(node: Node, x: Value) -> Value:
    (size, mode), (n, c, h, w) = _blocks(node, x), x.shape
    c //= size * size
    parts = (n, size, size, c, h, w) if mode == "DCR" else (n, c, size, size, h, w)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return _rearranged(x, parts, order, (n, c, h * size, w * size))


@operator("SpaceToDepth", raw=True)
def space_to_depth(node: Node, x: Value) -> Value:
    (size, mode), (n, c, h, w) = _blocks(node, x), x.shape
    h, w = h // size, w // size
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return _rearranged(x, (n, c, h, size, w, size), order, (n, c * size * size, h, w))


# ---- resize
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
# Where the places `at` of a result lie in a dimension that becomes `scale` times as long, or in its part
# from `low` to `high`.
COORDINATES: dict[str, Callable[..., np.ndarray]] = {
    "half_pixel": lambda at, size, scale, *_: (at + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda at, size, scale, *_: (
        size / 2 * (1 - len(at) / (scale * size)) + (at + 0.5) / scale - 0.5
    ),
    "pytorch_half_pixel": lambda at, size, scale, *_: (at + 0.5) / scale - 0.5 if len(at) > 1 else at * 0,
    "tf_half_pixel_for_nn": lambda at, size, scale, *_: (at + 0.5) / scale,
    "align_corners": lambda at, size, scale, *_: (
        at * (size - 1) / (scale * size - 1) if scale * size != 1 else at * 0
    ),
    "asymmetric": lambda at, size, scale, *_: at / scale,
    "tf_crop_and_resize": lambda at, size, scale, low, high: (
        low * (size - 1) + at * (high - low) * (size - 1) / (len(at) - 1)
        if len(at) > 1
        else at * 0 + 0.5 * (low + high) * (size - 1)
    ),
}


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel.  Source: Keys 1981, eq. 4."""
    d = np.abs(distance)
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _taps(node: Node, at: np.ndarray, size: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """For each place the elements that count, and with what weights: two arrays [elements, places]."""
    mode, squeeze = node.attr("mode", "nearest"), min(scale, 1.0) if node.attr("antialias", 0) else 1.0
    reach = 2 if mode == "cubic" else 1
    first = floor(-reach / squeeze) + 1
    base = np.floor(at)
    offsets = np.arange(first, 2 - first)[:, None]
    away = (offsets - (at - base)) * squeeze
    a = node.attr("cubic_coeff_a", -0.75)
    weights = _cubic(away, a) if mode == "cubic" else np.maximum(1 - np.abs(away), 0.0)
    places = (base + offsets).astype(np.int64)
    if node.attr("exclude_outside", 0):
        weights = np.where((places >= 0) & (places < size), weights, 0.0)
    total = weights.sum(0)
    return np.clip(places, 0, size - 1), weights / np.where(total == 0, 1.0, total)


def _resized(node: Node, x: Value, axis: int, out: int, length: float, part: tuple[float, float]) -> Value:
    """An input whose dimension becomes `out` elements."""
    size, way = x.shape[axis], _coordinates(node)
    if out == size and length == size and (part == (0.0, 1.0) or way != "tf_crop_and_resize"):
        return x
    if not out:
        return _taken(x, axis, np.zeros(0, np.int64))
    if not size:
        raise OnnxError(f"{node.op}: the axis {axis} has no elements, and is to have {out}", str(node))
    afford((out,), 64, node.op)
    places = np.arange(out)
    at, near = (
        COORDINATES[way](places.astype(dtype), size, length / size, *part)
        for dtype in (np.float64, np.float32)
    )
    # The nearest are chosen in float32, as others do it, for the same choice at ties.
    if node.attr("mode", "nearest") == "nearest":
        found = _taken(x, axis, np.clip(_rounding(node)(near), 0, size - 1).astype(np.int64))
    else:
        taps, weights = _taps(node, at, size, length / size)
        row = (len(taps), out, *(1,) * (len(x.shape) - 1 - axis))
        taken = _taken(x, axis, taps.reshape(-1)).reshape((*x.shape[:axis], *row[:2], *x.shape[axis + 1 :]))
        found = ops.FUNCTIONS["sum"](taken * as_tensor(weights.reshape(row)).to(x.dtype), (axis,))
    outside = (near < 0) | (near > size - 1)
    if way != "tf_crop_and_resize" or not outside.any():
        return found
    mask = outside.reshape(-1, *(1,) * (len(x.shape) - 1 - axis))
    value = node.attr("extrapolation_value", 0.0)
    if is_host(found):
        return np.where(mask, np.array(value).astype(found.dtype), found)
    return ops.FUNCTIONS["where"](as_tensor(mask), as_tensor(np.array(value)).to(found.dtype), found)


def _coordinates(node: Node) -> str:
    old = node.opset < 11 or node.op == "Upsample"
    return "asymmetric" if old else node.attr("coordinate_transformation_mode", "half_pixel")


def _rounding(node: Node) -> Callable[[np.ndarray], np.ndarray]:
    old = node.opset < 11 or node.op == "Upsample"
    return ROUNDINGS["floor" if old else node.attr("nearest_mode", "round_prefer_floor")]


def _floats(value: Value) -> list[float]:
    return [] if value is None else [float(each) for each in as_host(value).reshape(-1)]


def _targets(
    node: Node, shape: Sequence[int], axes: list[int], parts: list, scales: Value, sizes: Value
) -> list[tuple[int, float]]:
    """For each axis how many elements it gets, and its length before that is rounded."""
    own = [shape[axis] for axis in axes]
    wanted, factors = ints(sizes), _floats(scales)
    given = factors if wanted is None else wanted
    if len(given) != len(axes) or wanted is not None and factors or min(given, default=0) < 0:
        raise OnnxError(f"{node.op}: scales {factors}, sizes {wanted} for the axes {axes}", str(node))
    if wanted is None:
        if not all(0 < each < 1 << 40 for each in factors):
            raise OnnxError(f"{node.op}: the scales {factors} are not all positive numbers", str(node))
        # In float32, as others count: 0.7 of 10 are 7.
        lengths = [
            float(np.float32(n) * np.float32(each) * np.float32(high - low))
            for n, each, (low, high) in zip(own, factors, parts, strict=True)
        ]
        exact = [n * each for n, each in zip(own, factors, strict=True)]
        return [(max(floor(length), 0), size) for length, size in zip(lengths, exact, strict=True)]
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not axes:
        return [(size, float(size)) for size in wanted]
    if policy not in ("not_larger", "not_smaller") or 0 in own:
        raise OnnxError(f"{node.op}: keep_aspect_ratio_policy {policy!r} of {own}", str(node))
    ratios = [size / n for size, n in zip(wanted, own, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(floor(ratio * n + 0.5), ratio * n) for n in own]


def _checked(node: Node, x: Value) -> None:
    for name, known, default in (
        ("mode", ("nearest", "linear", "cubic"), "nearest"),
        ("coordinate_transformation_mode", COORDINATES, "half_pixel"),
        ("nearest_mode", ROUNDINGS, "round_prefer_floor"),
    ):
        if node.attr(name, default) not in known:
            raise OnnxError(
                f"{node.op}: {name} is one of {', '.join(known)}, not {node.attr(name)!r}", str(node)
            )
    if is_host(x) and node.attr("mode", "nearest") != "nearest":
        raise OnnxError(f"{node.op}: of {x.dtype} there is no mean", str(node))


def _rounded(x: Tensor, like: Tensor) -> Tensor:
    """Floats as elements of another dtype, whose range they are cut to."""
    if like.dtype.is_floating_point or like.dtype is x.dtype:
        return x.to(like.dtype)
    if like.dtype.name == "bool":
        return x.round() != 0
    info = np.iinfo(like.dtype.numpy)
    return x.round().clamp(int(info.min), int(info.max)).to(like.dtype)


@operator("Resize", "Upsample", raw=True)
def resize(node: Node, x: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Value:
    if node.op == "Upsample" or node.opset < 11:  # which take scales alone
        roi, scales = None, roi if node.opset >= 9 else np.array(node.attr("scales", ()), np.float32)
    if sizes is not None and scales is not None and not prod(scales.shape):
        scales = None
    x = as_tensor(x)
    _checked(node, x)
    axes = _axes(node, node.attr("axes"), len(x.shape))
    corners = [0.0] * len(axes) + [1.0] * len(axes)
    if _coordinates(node) == "tf_crop_and_resize":
        corners = _floats(roi)
        if len(corners) != 2 * len(axes) or not np.isfinite(corners).all():
            raise OnnxError(f"{node.op}: the region {corners} is not one of the axes {axes}", str(node))
    parts = [*zip(corners[: len(axes)], corners[len(axes) :], strict=True)]
    targets = _targets(node, x.shape, axes, parts, scales, sizes)
    whole = [*x.shape]
    for axis, (out, _) in zip(axes, targets, strict=True):
        whole[axis] = out
    _bound(node, whole)
    computes = not is_host(x) and node.attr("mode", "nearest") != "nearest"
    found = x
    if computes:
        found = x.to(x.dtype.compute) if x.dtype.is_floating_point or x.dtype.is_complex else x.double()
    for axis, (out, length), part in zip(axes, targets, parts, strict=True):
        found = _resized(node, found, axis, out, length, part)
    return _rounded(found, x) if computes else found


# ---- sample
GRID_MODES = {"linear": "bilinear", "cubic": "bicubic"}  # those whose names are not PyTorch's


@operator("GridSample")
def grid_sample(node: Node, x: Value, grid: Value) -> Value:
    mode = node.attr("mode", "linear")
    wide = x.double() if "float64" in (x.dtype.name, grid.dtype.name) else x.float()
    grid, line = grid.to(wide.dtype), len(x.shape) == 3 and len(grid.shape) == 3
    if line:  # an image of one row, read in its middle
        wide = wide.reshape((*x.shape[:2], 1, x.shape[2]))
        grid = ops.FUNCTIONS["stack"]([grid[..., 0], ops.FUNCTIONS["zeros_like"](grid[..., 0])], -1)
        grid = grid.reshape((grid.shape[0], 1, *grid.shape[1:]))
    how = GRID_MODES.get(mode, mode), node.attr("padding_mode", "zeros"), bool(node.attr("align_corners", 0))
    found = F.grid_sample(wide, grid, *how)
    if line:
        found = found.reshape((*found.shape[:2], found.shape[3]))
    return found.to(x.dtype)


@operator("AffineGrid", raw=True)
def affine_grid(node: Node, theta: Value, size: Value) -> Value:
    sizes = ints(size) or []
    _bound(node, sizes)
    afford((sum(sizes),), 64, node.op)
    return F.affine_grid(as_tensor(theta), sizes, bool(node.attr("align_corners", 0)))


# ---- boxes
def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """The least and the greatest coordinates of boxes: [2, boxes, 2]."""
    if centred:
        half = boxes[:, 2:] / 2
        return np.stack([boxes[:, :2] - half, boxes[:, :2] + half])
    return np.stack([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])])


def _overlaps(corners: np.ndarray, areas: np.ndarray, box: int, others: np.ndarray) -> np.ndarray:
    """How much of what a box and each of others cover is common to both; 0 of those without area."""
    low = np.maximum(corners[0, box], corners[0, others])
    high = np.minimum(corners[1, box], corners[1, others])
    common = np.where((high > low).all(-1), (high - low).prod(-1), 0)
    covered = areas[box] + areas[others] - common
    real = (areas[box] > 0) & (areas[others] > 0) & (covered > 0)
    return np.divide(common, covered, out=np.zeros_like(common), where=real)


def _kept(corners: np.ndarray, order: np.ndarray, most: int, overlap: float) -> list[int]:
    """The first boxes in an order, without those that overlap with one before them."""
    kept: list[int] = []
    areas = (corners[1] - corners[0]).prod(-1)
    while order.size and len(kept) < most:
        box, order = int(order[0]), order[1:]
        kept.append(box)
        order = order[~(_overlaps(corners, areas, box, order) > overlap)]
    return kept


@operator("NonMaxSuppression", raw=True)
def non_max_suppression(
    node: Node, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None
) -> Value:
    boxes, scores = as_host(boxes), as_host(scores)
    fits = boxes.ndim == 3 and boxes.shape[2] == 4 and scores.ndim == 3
    if not fits or (scores.shape[0], scores.shape[2]) != boxes.shape[:2]:
        raise OnnxError(
            f"NonMaxSuppression: boxes of {[*boxes.shape]} and scores of {[*scores.shape]} don't fit",
            str(node),
        )
    count, share, bound = _one(most, 0), _one(overlap, 0.0), _one(least, None)
    found = []
    for image in range(len(boxes)):
        corners = _corners(boxes[image], bool(node.attr("center_point_box", 0)))
        for label, given in enumerate(scores[image]):
            order = np.argsort(-given, kind="stable")
            order = order if bound is None else order[given[order] > bound]
            found += [(image, label, box) for box in _kept(corners, order, count, share)]
    return np.array(found, np.int64).reshape(-1, 3)


def _one(value: Value, default: float | None) -> float | None:
    """The number that an operand holds, if there is one."""
    return default if value is None or not prod(value.shape) else number(value)


# ---- decode
FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")


@operator("ImageDecoder", raw=True)
def image_decoder(node: Node, data: Value) -> Value:
    order = node.attr("pixel_format", "RGB")
    if order not in ("RGB", "BGR", "Grayscale"):
        raise OnnxError(f"ImageDecoder: pixel_format is RGB, BGR or Grayscale, not {order!r}", str(node))
    try:
        from PIL import Image  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise OnnxError("ImageDecoder needs the package Pillow: pip install pillow", str(node)) from None
    try:
        with Image.open(BytesIO(as_host(data).tobytes()), formats=FORMATS) as image:
            pixels = np.array(image.convert("L" if order == "Grayscale" else "RGB"))
    except Exception:  # whatever is wrong with the data: the operator then has no image, and no error
        return np.zeros((0, 0, 0), np.uint8)
    if order == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1].copy() if order == "BGR" else pixels
