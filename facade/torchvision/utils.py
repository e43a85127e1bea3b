"""Answer `torchvision.utils`: pictures side by side, and written to files."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from ... import runtime
from ...ir import dtypes
from ...ir.errors import ArgumentError
from ...runtime import Tensor, no_grad

torch: Any = runtime  # whose functions are made of records, and have no types

__all__ = ["make_grid", "save_image"]


@no_grad()
def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
    **_: Any,
) -> Tensor:
    """Images side by side in one.  Shapes: [b, c, h, w], or a list of [c, h, w] -> [3, height, width].

    normalize: bring what lies in `value_range`, or between the least and the most, into 0 ... 1.
    """
    if isinstance(tensor, (list, tuple)):
        tensor = torch.stack(list(tensor))
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"tensor or list of tensors expected, got a {type(tensor).__name__}")
    while tensor.ndim < 4:
        tensor = tensor.unsqueeze(0)
    if tensor.shape[1] == 1:
        tensor = tensor.expand(-1, 3, -1, -1)
    if normalize:

        def within(x: Tensor) -> Tensor:
            low, high = value_range or (float(x.min()), float(x.max()))
            return (x.clamp(low, high) - low) / max(high - low, 1e-5)

        tensor = torch.stack([within(x) for x in tensor]) if scale_each else within(tensor)
    count, channels, h, w = tensor.shape
    if count == 1:
        return tensor.squeeze(0)
    across = min(nrow, count)
    down = math.ceil(count / across)
    height, width = h + padding, w + padding
    grid = torch.full(
        (channels, height * down + padding, width * across + padding), pad_value, dtype=tensor.dtype
    )
    for number, image in enumerate(tensor):
        top, left = number // across * height + padding, number % across * width + padding
        grid[:, top : top + h, left : left + w] = image
    return grid


@no_grad()
def save_image(tensor: Any, fp: Any, format: str | None = None, **kwargs: Any) -> None:
    """Write images, side by side (see `make_grid`), to a file of pixels 0 ... 255."""
    Image = import_module("PIL.Image")
    grid = make_grid(tensor, **kwargs)
    pixels = grid.mul(255).add(0.5).clamp(0, 255).permute(1, 2, 0).to(dtypes.uint8).contiguous().numpy()
    Image.fromarray(pixels).save(fp, format=format)
