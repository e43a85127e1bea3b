"""Answer `torchvision.io`: pictures in files and in bytes, by Pillow.  Films are not read."""

from __future__ import annotations

import enum
import io
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ...ir.errors import ArgumentValueError
from ...runtime import Tensor
from .functional import pil_to_tensor, to_pil_image

__all__ = ["ImageReadMode", "decode_image", "read_image", "read_video", "write_jpeg", "write_png"]


class ImageReadMode(enum.Enum):
    """Which channels a picture is to have."""

    UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)


_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED, **_: Any) -> Tensor:
    """The picture in a file, or in the bytes of a tensor.  Shapes: uint8[c, h, w]."""
    Image = import_module("PIL.Image")
    raw = input.numpy().tobytes() if isinstance(input, Tensor) else Path(input).read_bytes()
    name = mode.name if isinstance(mode, ImageReadMode) else str(mode).upper()
    with Image.open(io.BytesIO(raw)) as image:
        return pil_to_tensor(image.convert(_MODES[name]) if name in _MODES else image)


read_image = decode_image


def write_png(input: Tensor, filename: Any, compression_level: int = 6) -> None:
    """Write pixels [c, h, w] to a file."""
    to_pil_image(input).save(filename, "png", compress_level=compression_level)


def write_jpeg(input: Tensor, filename: Any, quality: int = 75) -> None:
    """Write pixels [c, h, w] to a file."""
    to_pil_image(input).save(filename, "jpeg", quality=quality)


def read_video(filename: Any, *_: Any, **__: Any) -> NoReturn:
    """Refused: films are not read."""
    raise ArgumentValueError(
        "io.read_video: the stand-in for torchvision reads no films", "decode them with PyAV"
    )
