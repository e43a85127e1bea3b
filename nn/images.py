"""Resize images, and sample them at any places."""

from __future__ import annotations

from math import floor, prod
from typing import Any

from ..ir import dtypes
from ..ir.dims import Dim
from ..ir.errors import ArgumentValueError, DTypeError, ShapeError
from ..ir.graph import active
from ..ir.shapes import as_whole
from ..ir.table import FUNCTIONS, has_symbols, of_sizes
from ..runtime import Tensor, ops, tensor
from .resizing import TABLES, cubic_weights, taps

MODES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}  # and their numbers of spatial dimensions


FUNCTIONS.update(TABLES)


def _made(place: Any, name: str, *args: Any) -> Any:
    """A tensor of what a function makes of sizes, on a device; where they are symbols, what stands for it."""
    if has_symbols(args):
        return of_sizes(active(), name, args)
    function, *_ = FUNCTIONS[name]
    return tensor(function(*args), device=place)


def _resized(x: Tensor, dim: int, how: tuple) -> Tensor:
    """The weighted sum of what lies at the taps' indices along `dim`.  how: as of `taps`."""
    row = (-1, *(1,) * (x.ndim - 1 - dim))
    several = None if has_symbols(how) else taps(*how)

    def part(which: int) -> Tensor:
        if several is None:
            index, weight = (_made(x.device, table, which, *how) for table in ("tap", "weight"))
        else:
            index, weight = [tensor(part, device=x.device) for part in several[which]]
        return x.index_select(dim, index) * weight.to(x.dtype).reshape(row)

    found = part(0)
    for which in range(1, 4 if how[-1] else 2):
        found = found + part(which)
    return found


def _scaled(size: Any, scale: float) -> Any:
    """The size that is `scale` times as large, rounded down."""
    if isinstance(size, Dim):
        times, parts = (scale, 1) if isinstance(scale, int) else scale.as_integer_ratio()
        if isinstance(scale, Dim) or times < _EXACT and parts < _EXACT:  # products are exact, then
            return size * times // parts
    return floor(size * scale)


_EXACT = 1 << 20


def _output_sizes(sizes: tuple, size: Any, scale_factor: Any) -> tuple[tuple, tuple]:
    """The sizes of the output, and the scale factors that were given (None where none was)."""
    n = len(sizes)
    if (size is None) == (scale_factor is None):
        raise ArgumentValueError("interpolate: give either size or scale_factor")
    given = size if size is not None else scale_factor
    every = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    every = tuple(x if isinstance(x, float) or (found := as_whole(x)) is None else found for x in every)
    if len(every) != n:
        raise ArgumentValueError(
            f"interpolate: one value or {n} are wanted for {n} spatial dimensions: {given!r}"
        )
    if not all(isinstance(x, Dim) and x > 0 or isinstance(x, (int, float)) and 0 < x < 2**63 for x in every):
        raise ArgumentValueError(f"interpolate: sizes and scale factors must be positive, not {given!r:.60}")
    if size is not None:
        return every, (None,) * n
    return tuple(_scaled(a, s) for a, s in zip(sizes, every)), every


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dimensions of [N, C, ...] to `size` or by `scale_factor`.

    mode: "nearest", "nearest-exact", "area", "linear" (1-d), "bilinear", "bicubic" (2-d), "trilinear" (3-d).
    align_corners: the corner elements' centres stay where they are.
    antialias, of "bilinear" and "bicubic": where the output is smaller, all elements of the input count.
    Source: the filters of the Python Imaging Library's resize.
    uint8 is computed in float32, rounded and clipped.  Raises ShapeError, DTypeError, ArgumentValueError.
    """
    n = input.ndim - 2
    if n not in (1, 2, 3):
        raise ShapeError("interpolate takes an input of 3 to 5 dimensions", f"input: {input._meta}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentValueError(
            f"interpolate: the antialias option is restricted to bilinear and bicubic, not {mode!r}"
        )
    sizes = tuple(input.shape[2:])
    out, scales = _output_sizes(sizes, size, scale_factor)
    if recompute_scale_factor:
        scales = (None,) * n
    if mode in ("nearest", "nearest-exact", "area"):
        if align_corners is not None:
            raise ArgumentValueError(f"interpolate: align_corners says nothing for mode {mode!r}")
    elif MODES.get(mode) != n:
        known = ["nearest", "nearest-exact", "area"] + [m for m, dims in MODES.items() if dims == n]
        raise ArgumentValueError(
            f"interpolate: {mode!r} is no mode for {n} spatial dimensions", f"known: {', '.join(known)}"
        )
    if input.dtype.is_floating_point and input.dtype.compute is not input.dtype:
        # Along one dimension after the other it would be rounded at each, and sums of gradients, too.
        settings = size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        return interpolate(input.float(), *settings).to(input.dtype)
    if mode == "area":
        return (ops.adaptive_avg_pool1d, ops.adaptive_avg_pool2d, ops.adaptive_avg_pool3d)[n - 1](input, out)
    if mode in MODES and not (input.dtype.is_floating_point or input.dtype is dtypes.uint8):
        raise DTypeError(
            f"interpolate: mode {mode!r} is not implemented for {input.dtype}: it takes floats and uint8",
            "convert it: x.float()",
        )
    if mode in MODES and input.dtype is dtypes.uint8:
        x = interpolate(
            input.float(), size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
        return x.round().clamp(0, 255).to(dtypes.uint8)
    x = input
    for dim, a, b, scale in zip(range(2, n + 2), sizes, out, scales):
        if mode.startswith("nearest"):
            x = x.index_select(dim, _made(x.device, "nearest", a, b, scale, mode == "nearest-exact"))
        elif antialias:
            how = a, b, scale, bool(align_corners), mode == "bicubic"
            to = _made(x.device, "smoothing", *how).to(x.dtype)
            x = ops.matmul(to, x) if dim == 2 else ops.matmul(x, to.T)
        elif a != b or scale not in (None, 1):
            x = _resized(x, dim, (a, b, scale, bool(align_corners), mode == "bicubic"))
    return ops.apart(x, input)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of `interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of `interpolate` with mode "bilinear" and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The places, for `grid_sample`, at which an affine map takes the pixels of an output of `size`.

    Shapes: theta [N, 2, 3] and size (N, C, H, W) -> [N, H, W, 2], or [N, 3, 4] and (N, C, D, H, W) -> [N, D,
    H, W, 3].
    """
    size = tuple(size)
    n = len(size) - 2
    if n not in (2, 3) or tuple(theta.shape) != (size[0], n, n + 1):
        raise ShapeError(
            f"affine_grid: theta is [N, 2, 3] for a size (N, C, H, W), else [N, 3, 4]; size is {list(size)}",
            f"theta: {theta._meta}",
        )

    base = _made(theta.device, "grid", bool(align_corners), *size[2:])
    places = ops.matmul(base.to(theta.dtype), theta.transpose(1, 2))
    return places.reshape(size[0], *size[2:], n)


def _reflected(at: Tensor, low: float, high: float) -> Tensor:
    """Mirror places at both ends until they lie inside."""
    if low == high:
        return at * 0.0
    span = high - low
    away = ops.remainder((at - low).abs(), 2 * span)
    return ops.where(away > span, 2 * span - away, away) + low


def _unscaled(at: Tensor, size: int, align: bool) -> Tensor:
    """Coordinates from -1 to 1 as places in the input."""
    return (at + 1) * ((size - 1) / 2) if align else ((at + 1) * size - 1) * 0.5


def _inside(x: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """Places moved inside as `padding_mode` says."""
    if padding_mode == "reflection":
        x = _reflected(x, 0.0, size - 1.0) if align else _reflected(x, -0.5, size - 0.5)
    if padding_mode == "zeros":
        return x
    x = x.clamp(0, size - 1)
    return ops.where(x == x, x, 0.0)  # NaN is at the first element, as in PyTorch


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Read an image at places between -1 and 1, x before y, as seen from its centre.

    Shapes: [N, C, H, W], [N, h, w, 2] -> [N, C, h, w]; with a depth [N, C, D, H, W], [N, d, h, w, 3].
    mode: "bilinear", "nearest", or for images "bicubic".
    padding_mode, for places outside: "zeros", "border" or "reflection".
    Raises ShapeError, ArgumentValueError.
    """
    n = input.ndim - 2
    known = ("bilinear", "nearest", "bicubic") if n == 2 else ("bilinear", "nearest")
    if mode not in known or padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentValueError(
            f"grid_sample: mode is one of {known}, padding_mode 'zeros', 'border' or 'reflection', "
            f"not {mode!r} and {padding_mode!r}"
        )
    if n not in (2, 3) or grid.ndim != n + 2 or grid.shape[-1] != n or grid.shape[0] != input.shape[0]:
        raise ShapeError(
            "grid_sample takes [N, C, H, W] and [N, h, w, 2], or [N, C, D, H, W] and [N, d, h, w, 3]",
            f"input: {input._meta}",
            f"grid: {grid._meta}",
        )
    batch, channels, sizes = input.shape[0], input.shape[1], tuple(input.shape[2:])
    count = grid.numel() // (batch * n) if batch else 0
    flat = input.reshape(batch, channels, prod(sizes))
    corners: list[tuple[Any, Any]] = [(None, None)]  # (place in the flattened image, weight)
    for d, size in enumerate(sizes):
        align = bool(align_corners)
        at = _unscaled(grid[..., n - 1 - d].reshape(batch, 1, count), size, align)
        at = at if mode == "bicubic" else _inside(at, size, padding_mode, align)
        base = (at.round() if mode == "nearest" else at.floor()).detach()
        if mode == "bicubic":  # each of its places is moved inside for itself
            weights = enumerate(cubic_weights(at - base))
            taps = [(_inside(base + (k - 1.0), size, padding_mode, align), w) for k, w in weights]
        elif mode == "nearest":
            taps = [(base, None)]
        else:
            taps = [(base, 1.0 - (at - base)), (base + 1.0, at - base)]
        found = []
        for index, weight in taps:
            within = (index >= 0) & (index <= size - 1)  # nothing is: NaN
            inside = within.to(input.dtype)
            weight = inside if weight is None else weight * inside
            place = ops.where(within, index, 0.0).long()
            for before, so_far in corners:
                found.append((
                    place if before is None else before * size + place,
                    weight if so_far is None else so_far * weight,
                ))  # fmt: skip
        corners = found
    total = None
    for place, weight in corners:
        part = flat.gather(2, place.expand(batch, channels, count)) * weight
        total = part if total is None else total + part
    return total.reshape(batch, channels, *grid.shape[1:-1])
