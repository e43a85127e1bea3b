"""Answer `torchvision.transforms.functional`: images changed, Pillow's or tensors of shape [..., c, h, w].

Source: the arguments and defaults are torchvision's; pictures of Pillow's are changed by Pillow.
"""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from ... import runtime
from ...ir import dtypes
from ...ir.errors import ArgumentError, ArgumentValueError
from ...nn import functional as F
from ...runtime import Tensor

torch: Any = runtime  # whose functions are made of records, and have no types

Image: TypeAlias = Any  # of Pillow's, or a tensor


class InterpolationMode(enum.Enum):
    """How a pixel between others is found."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's numbers for these.
_OF_PILLOW = {
    "nearest": 0,
    "nearest-exact": 0,
    "lanczos": 1,
    "bilinear": 2,
    "bicubic": 3,
    "box": 4,
    "hamming": 5,
}


def _mode(interpolation: Any) -> str:
    if isinstance(interpolation, int):
        return next(name for name, number in _OF_PILLOW.items() if number == interpolation)
    return interpolation.value if isinstance(interpolation, InterpolationMode) else str(interpolation)


def _is_pil(img: Any) -> bool:
    return not isinstance(img, (Tensor, np.ndarray)) and hasattr(img, "getbands")


def _checked(img: Any, call: str) -> Any:
    if not isinstance(img, Tensor) and not _is_pil(img):
        raise ArgumentError(f"{call}: img must be a Pillow image or a tensor, not {type(img).__name__}")
    return img


# ---- sizes -------------------------------------------------------------------------------------------------
def get_dimensions(img: Image) -> list[int]:
    """[channels, height, width] of an image."""
    if _is_pil(_checked(img, "get_dimensions")):
        return [len(img.getbands()), img.height, img.width]
    return [1 if img.ndim == 2 else img.shape[-3], *img.shape[-2:]]


def get_image_size(img: Image) -> list[int]:
    """[width, height] of an image."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Image) -> int:
    """The channels of an image."""
    return get_dimensions(img)[0]


# ---- kinds -------------------------------------------------------------------------------------------------
def pil_to_tensor(pic: Image) -> Tensor:
    """The pixels of Pillow's image as they are.  Shapes: [c, h, w]."""
    if not _is_pil(pic):
        raise ArgumentError(f"pil_to_tensor: pic should be PIL Image. Got {type(pic).__name__}")
    pixels = np.array(pic, copy=True)
    pixels = pixels.reshape(pic.height, pic.width, len(pic.getbands()))
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def to_tensor(pic: Any) -> Tensor:
    """An image of Pillow's, or an array [h, w, c], as a tensor [c, h, w]: bytes become floats of 0 ... 1."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ArgumentValueError(f"to_tensor: pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pixels = pic[:, :, None] if pic.ndim == 2 else pic
        found = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    elif _is_pil(pic):
        found = pil_to_tensor(pic)
        if pic.mode == "1":
            found = found.to(dtypes.uint8) * 255
    else:
        raise ArgumentError(f"to_tensor: pic should be PIL Image or ndarray. Got {type(pic).__name__}")
    return found.to(dtypes.default_dtype()) / 255 if found.dtype is dtypes.uint8 else found


def convert_image_dtype(image: Tensor, dtype: Any = dtypes.float32) -> Tensor:
    """An image in another dtype: floats are 0 ... 1, integers 0 ... the largest."""
    if image.dtype is dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        most = float(np.iinfo(dtype.numpy).max)
        return (image * (most + 1.0 - 1e-3)).to(dtype)
    most = float(np.iinfo(image.dtype.numpy).max)
    if dtype.is_floating_point:
        return image.to(dtype) / most
    wanted = float(np.iinfo(dtype.numpy).max)
    if most > wanted:
        return torch.div(image, int((most + 1) // (wanted + 1)), rounding_mode="floor").to(dtype)
    return image.to(dtype) * int((wanted + 1) // (most + 1))


def to_pil_image(pic: Any, mode: str | None = None) -> Image:
    """A tensor [c, h, w], or an array [h, w, c], as an image of Pillow's: floats are of 0 ... 1."""
    pillow = import_module("PIL.Image")
    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ArgumentValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pic = pic[None] if pic.ndim == 2 else pic
        if pic.is_floating_point() and mode != "F":
            pic = (pic * 255).to(dtypes.uint8)
        pixels = pic.detach().numpy().transpose(1, 2, 0)
    elif isinstance(pic, np.ndarray):
        pixels = pic[:, :, None] if pic.ndim == 2 else pic
    else:
        raise ArgumentError(f"pic should be Tensor or ndarray. Got {type(pic).__name__}.")
    if pixels.shape[2] > 4:
        raise ArgumentValueError(f"pic should not have > 4 channels. Got {pixels.shape[2]} channels.")
    found = pillow.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    return found if mode is None or found.mode == mode else found.convert(mode)


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(tensor - mean) / std, by channel.  Raises ArgumentError, ArgumentValueError."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        what = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ArgumentError(f"normalize: Input tensor should be a float tensor. Got {what}.")
    numbers = [torch.as_tensor(x, dtype=tensor.dtype) for x in (mean, std)]
    if bool((numbers[1] == 0).any()):
        raise ArgumentValueError(f"normalize: std evaluated to zero, leading to division by zero: {std}")
    middle, spread = (x.view(-1, 1, 1) if x.ndim == 1 else x for x in numbers)
    return tensor.sub_(middle).div_(spread) if inplace else (tensor - middle) / spread


# ---- places ------------------------------------------------------------------------------------------------
def _output_size(img: Image, size: Any, max_size: int | None) -> tuple[int, int]:
    """(height, width) to resize to: one number is the shorter side's."""
    if isinstance(size, (list, tuple)) and len(size) == 2:
        return int(size[0]), int(size[1])
    wanted: Any = size if isinstance(size, numbers.Number) or size is None else size[0]
    width, height = get_image_size(img)
    short, long = min(width, height), max(width, height)
    if wanted is None:
        assert max_size is not None, "resize: max_size must be given where size is None"
        new_short, new_long = int(max_size * short / long), max_size
    else:
        new_short, new_long = int(wanted), int(wanted * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def _as_floats(img: Tensor) -> tuple[Tensor, Any]:
    """The tensor as a batch of floats, and what makes the result its kind again."""
    dtype, lead = img.dtype, img.shape[:-3]
    batch = img.reshape(-1, *img.shape[-3:]) if img.ndim >= 3 else img[None, None]
    floats = batch if dtype.is_floating_point else batch.to(dtypes.float32)

    def back(x: Tensor) -> Tensor:
        x = x.reshape(*lead, *x.shape[-3:]) if img.ndim >= 3 else x[0, 0]
        if dtype.is_floating_point:
            return x
        limits = np.iinfo(dtype.numpy)
        return x.round().clamp(limits.min, limits.max).to(dtype)

    return floats, back


def resize(
    img: Image,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Image:
    """The image in another size: (height, width), or a number for the shorter side.

    antialias: of a tensor that gets smaller; Pillow always does so.
    """
    height, width = _output_size(_checked(img, "resize"), size, max_size)
    mode = _mode(interpolation)
    if _is_pil(img):
        return img.resize((width, height), _OF_PILLOW[mode])
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ArgumentValueError(f"resize: tensors have no interpolation {mode!r}")
    if tuple(img.shape[-2:]) == (height, width):
        return img
    floats, back = _as_floats(img)
    smooth = mode in ("bilinear", "bicubic")
    options = {"align_corners": False, "antialias": bool(antialias)} if smooth else {}
    found = F.interpolate(floats, size=(height, width), mode=mode, **options)
    if mode == "bicubic" and img.dtype is dtypes.uint8:
        found = found.clamp(0, 255)
    return back(found)


def crop(img: Image, top: int, left: int, height: int, width: int) -> Image:
    """A part of the image; what lies outside of it is 0."""
    if _is_pil(_checked(img, "crop")):
        return img.crop((left, top, left + width, top + height))
    h, w = img.shape[-2:]
    inside = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    if left < 0 or top < 0 or left + width > w or top + height > h:
        lack = [
            max(min(left + width, 0) - left, 0),
            max(left + width - max(w, left), 0),
            max(min(top + height, 0) - top, 0),
            max(top + height - max(h, top), 0),
        ]
        return F.pad(inside, lack)
    return inside


def center_crop(img: Image, output_size: Any) -> Image:
    """The middle of the image, with 0 around it where the image is smaller."""
    size = [output_size] if isinstance(output_size, numbers.Number) else list(output_size)
    tall, wide = int(size[0]), int(size[-1])
    width, height = get_image_size(img)
    if wide > width or tall > height:
        across, down = max(wide - width, 0), max(tall - height, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        width, height = get_image_size(img)
        if (wide, tall) == (width, height):
            return img
    return crop(img, round((height - tall) / 2.0), round((width - wide) / 2.0), tall, wide)


def resized_crop(
    img: Image,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Image:
    """A part of the image, resized."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def _sides(padding: Any) -> tuple[int, int, int, int]:
    """left, top, right, bottom."""
    if isinstance(padding, numbers.Number):
        padding = [padding]
    given = [int(n) for n in padding]
    if len(given) not in (1, 2, 4):
        raise ArgumentValueError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(given)} element tuple"
        )
    return tuple(given * (4 // len(given)))  # type: ignore[return-value]


def pad(img: Image, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Image:
    """The image with more at its sides.

    padding: for all sides; (left and right, top and bottom); or (left, top, right, bottom).  padding_mode:
    constant, edge, reflect or symmetric.
    """
    left, top, right, bottom = _sides(padding)
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ArgumentValueError("Padding mode should be either constant, edge, reflect or symmetric")
    if _is_pil(_checked(img, "pad")):
        if padding_mode == "constant":
            ImageOps = import_module("PIL.ImageOps")
            if isinstance(fill, (list, tuple)) and len(fill) == 1:
                fill = fill[0]
            if len(img.getbands()) > 1 and isinstance(fill, numbers.Number):
                fill = (int(fill),) * len(img.getbands())
            return ImageOps.expand(
                img, (left, top, right, bottom), tuple(fill) if isinstance(fill, list) else fill
            )
        pixels = np.asarray(img)
        around = [(top, bottom), (left, right), *[(0, 0)] * (pixels.ndim - 2)]
        return to_pil_image(np.pad(pixels, around, padding_mode), None)
    floats, back = _as_floats(img)
    if padding_mode == "symmetric":
        rows = np.pad(np.arange(img.shape[-2]), (top, bottom), "symmetric")
        columns = np.pad(np.arange(img.shape[-1]), (left, right), "symmetric")
        return img[..., torch.from_numpy(rows)[:, None], torch.from_numpy(columns)]
    mode = {"edge": "replicate"}.get(padding_mode, padding_mode)
    if mode == "constant":
        value = fill[0] if isinstance(fill, (list, tuple)) else fill
        return back(F.pad(floats, [left, right, top, bottom], value=float(value or 0)))
    return back(F.pad(floats, [left, right, top, bottom], mode=mode))


def hflip(img: Image) -> Image:
    """The image, left and right changed."""
    return img.transpose(0) if _is_pil(_checked(img, "hflip")) else img.flip(-1)


def vflip(img: Image) -> Image:
    """The image, top and bottom changed."""
    return img.transpose(1) if _is_pil(_checked(img, "vflip")) else img.flip(-2)


horizontal_flip, vertical_flip = hflip, vflip


def five_crop(img: Image, size: Any) -> tuple:
    """The four corners and the middle."""
    size = [size, size] if isinstance(size, numbers.Number) else [size[0], size[-1]]
    tall, wide = (int(n) for n in size)
    width, height = get_image_size(img)
    if wide > width or tall > height:
        raise ArgumentValueError(f"Requested crop size {size} is bigger than input size {(height, width)}")
    corners = [(0, 0), (0, width - wide), (height - tall, 0), (height - tall, width - wide)]
    return (*(crop(img, top, left, tall, wide) for top, left in corners), center_crop(img, [tall, wide]))


def ten_crop(img: Image, size: Any, vertical_flip: bool = False) -> tuple:
    """`five_crop` of the image, and of it flipped."""
    return (*five_crop(img, size), *five_crop(vflip(img) if vertical_flip else hflip(img), size))


def _inverse_matrix(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> list[float]:
    """Where each pixel of the result comes from: x = a x' + b y' + c, y = d x' + e y' + f."""
    turned, across, down = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    cx, cy = center
    a = math.cos(turned - down) / math.cos(down)
    b = -math.cos(turned - down) * math.tan(across) / math.cos(down) - math.sin(turned)
    c = math.sin(turned - down) / math.cos(down)
    d = -math.sin(turned - down) * math.tan(across) / math.cos(down) + math.cos(turned)
    m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    m[2] = m[0] * (-cx - translate[0]) + m[1] * (-cy - translate[1]) + cx
    m[5] = m[3] * (-cx - translate[0]) + m[4] * (-cy - translate[1]) + cy
    return m


def _moved(img: Tensor, matrix: list[float], mode: str, fill: Any, size: tuple[int, int]) -> Tensor:
    """A tensor's pixels from where the matrix says, about the middle of the image."""
    floats, back = _as_floats(img)
    height, width = img.shape[-2:]
    tall, wide = size
    a, b, c, d, e, f = matrix
    x = np.arange(wide) + 0.5 - wide * 0.5
    y = (np.arange(tall) + 0.5 - tall * 0.5)[:, None]
    grid = np.stack([(a * x + b * y + c) / (0.5 * width), (d * x + e * y + f) / (0.5 * height)], -1)
    places = torch.from_numpy(grid.astype(floats.dtype.numpy)).expand(floats.shape[0], -1, -1, -1)
    value = fill[0] if isinstance(fill, (list, tuple)) else fill
    if not value:
        return back(F.grid_sample(floats, places, mode=mode, align_corners=False))
    inside = F.grid_sample(torch.ones_like(floats), places, mode=mode, align_corners=False)
    found = F.grid_sample(floats, places, mode=mode, align_corners=False)
    return back(found + (1 - inside) * float(value))


def affine(
    img: Image,
    angle: float,
    translate: Sequence[int],
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Image:
    """The image turned clockwise by `angle` degrees, moved, scaled and sheared about its middle."""
    shear = [shear, 0.0] if isinstance(shear, numbers.Number) else [*shear, 0.0][:2]
    width, height = get_image_size(_checked(img, "affine"))
    mode = _mode(interpolation)
    if _is_pil(img):
        middle = [width * 0.5, height * 0.5] if center is None else center
        matrix = _inverse_matrix(middle, angle, translate, scale, shear)
        return img.transform((width, height), 0, matrix, _OF_PILLOW[mode], fillcolor=_fill(img, fill))
    middle = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    matrix = _inverse_matrix(middle, angle, translate, scale, shear)
    return _moved(img, matrix, mode, fill, (height, width))


def _fill(img: Image, fill: Any) -> Any:
    """What Pillow takes for a colour."""
    bands = len(img.getbands())
    fill = 0 if fill is None else fill
    if isinstance(fill, (int, float)):
        return fill if bands == 1 else (fill,) * bands
    return tuple(fill) if len(fill) > 1 else (fill[0] if bands == 1 else (fill[0],) * bands)


def rotate(
    img: Image,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Image:
    """The image turned counter-clockwise by `angle` degrees.  expand: make room for all of it."""
    mode = _mode(interpolation)
    if _is_pil(_checked(img, "rotate")):
        return img.rotate(angle, _OF_PILLOW[mode], expand, center, fillcolor=_fill(img, fill))
    width, height = get_image_size(img)
    middle = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    matrix = _inverse_matrix(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    size = (height, width)
    if expand:
        turn = math.radians(angle)
        cosine, sine = abs(math.cos(turn)), abs(math.sin(turn))
        size = (
            math.ceil(width * sine + height * cosine - 1e-6),
            math.ceil(width * cosine + height * sine - 1e-6),
        )
    return _moved(img, matrix, mode, fill, size)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """The tensor with `v` in the rows i ... i + h and columns j ... j + w."""
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


# ---- colours -----------------------------------------------------------------------------------------------
def _blend(first: Tensor, second: Tensor, ratio: float) -> Tensor:
    most = 1.0 if first.is_floating_point() else float(np.iinfo(first.dtype.numpy).max)
    return (ratio * first.float() + (1.0 - ratio) * second.float()).clamp(0, most).to(first.dtype)


def rgb_to_grayscale(img: Image, num_output_channels: int = 1) -> Image:
    """The luminance of an image, in one channel or in three that are equal."""
    if num_output_channels not in (1, 3):
        raise ArgumentValueError("num_output_channels should be either 1 or 3")
    if _is_pil(_checked(img, "rgb_to_grayscale")):
        grey = img.convert("L")
        return grey if num_output_channels == 1 else grey.convert("RGB")
    if img.shape[-3] == 3:
        red, green, blue = img.float().unbind(-3)
        grey = (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)
    else:
        grey = img
    return (
        grey.expand(*img.shape[:-3], num_output_channels, *img.shape[-2:])
        if num_output_channels == 3
        else grey
    )


to_grayscale = rgb_to_grayscale


def grayscale_to_rgb(img: Image) -> Image:
    """One channel as three that are equal; three as they are."""
    if _is_pil(img):
        return img.convert("RGB")
    return img.expand(*img.shape[:-3], 3, *img.shape[-2:]) if img.shape[-3] == 1 else img


def _enhanced(img: Image, kind: str, factor: float) -> Image:
    ImageEnhance = import_module("PIL.ImageEnhance")
    return getattr(ImageEnhance, kind)(img).enhance(factor)


def _not_negative(name: str, factor: float) -> None:
    if factor < 0:
        raise ArgumentValueError(f"{name} ({factor}) is not non-negative.")


def adjust_brightness(img: Image, brightness_factor: float) -> Image:
    """0 is black, 1 the image, 2 twice as bright."""
    _not_negative("brightness_factor", brightness_factor)
    if _is_pil(img):
        return _enhanced(img, "Brightness", brightness_factor)
    return _blend(img, torch.zeros_like(img), brightness_factor)


def adjust_contrast(img: Image, contrast_factor: float) -> Image:
    """0 is grey, 1 the image."""
    _not_negative("contrast_factor", contrast_factor)
    if _is_pil(img):
        return _enhanced(img, "Contrast", contrast_factor)
    mean = rgb_to_grayscale(img).float().mean((-3, -2, -1), keepdim=True)
    return _blend(img, mean, contrast_factor)


def adjust_saturation(img: Image, saturation_factor: float) -> Image:
    """0 is black and white, 1 the image."""
    _not_negative("saturation_factor", saturation_factor)
    if _is_pil(img):
        return _enhanced(img, "Color", saturation_factor)
    return img if img.shape[-3] == 1 else _blend(img, rgb_to_grayscale(img), saturation_factor)


def _of_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    sixths = hue * 6.0
    part = sixths.floor()
    rest = sixths - part
    low, down, up = (
        (value * (1.0 - saturation * x)).clamp(0, 1) for x in (torch.ones_like(rest), rest, 1.0 - rest)
    )
    sector = part.long() % 6
    ways = (
        (value, up, low),
        (down, value, low),
        (low, value, up),
        (low, down, value),
        (up, low, value),
        (value, low, down),
    )
    found = torch.zeros(3, *hue.shape, dtype=hue.dtype)
    for number, way in enumerate(ways):
        found = torch.where(sector == number, torch.stack(way), found)
    return found.movedim(0, -3)


def adjust_hue(img: Image, hue_factor: float) -> Image:
    """The colours turned by a part of the circle, -0.5 ... 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ArgumentValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if _is_pil(img):
        if img.mode in ("L", "1", "I", "F"):
            return img
        hue, saturation, value = img.convert("HSV").split()
        turned = (np.asarray(hue).astype(np.int32) + int(hue_factor * 255)).astype(np.uint8)
        return _merged(turned, saturation, value, img.mode)
    if img.shape[-3] == 1:
        return img
    x = convert_image_dtype(img, dtypes.float32) if not img.is_floating_point() else img
    red, green, blue = x.unbind(-3)
    most, least = x.amax(-3), x.amin(-3)
    spread = most - least
    grey = spread == 0
    safe = torch.where(grey, 1.0, spread)
    r, g, b = ((most - c) / safe for c in (red, green, blue))
    hue = torch.where(most == red, b - g, torch.where(most == green, 2.0 + r - b, 4.0 + g - r))
    hue = torch.where(grey, 0.0, (hue / 6.0 + 1.0) % 1.0)
    saturation = spread / torch.where(most == 0, 1.0, most)
    found = _of_hsv((hue + hue_factor) % 1.0, saturation, most)
    return convert_image_dtype(found, img.dtype)


def _merged(hue: np.ndarray, saturation: Any, value: Any, mode: str) -> Image:
    pillow = import_module("PIL.Image")
    return pillow.merge("HSV", (pillow.fromarray(hue), saturation, value)).convert(mode)


def adjust_gamma(img: Image, gamma: float, gain: float = 1) -> Image:
    """gain * img ** gamma, of 0 ... 1."""
    _not_negative("gamma", gamma)
    if _is_pil(img):
        table = [int((255 + 1 - 1e-3) * gain * pow(n / 255.0, gamma)) for n in range(256)] * len(
            img.getbands()
        )
        return img.point(table)
    x = img if img.is_floating_point() else convert_image_dtype(img, dtypes.float32)
    return convert_image_dtype((gain * x**gamma).clamp(0, 1), img.dtype)


def adjust_sharpness(img: Image, sharpness_factor: float) -> Image:
    """0 is blurred, 1 the image, 2 sharper."""
    _not_negative("sharpness_factor", sharpness_factor)
    if _is_pil(img):
        return _enhanced(img, "Sharpness", sharpness_factor)
    if min(img.shape[-2:]) <= 2:
        return img
    floats, back = _as_floats(img)
    channels = floats.shape[1]
    kernel = torch.ones(channels, 1, 3, 3, dtype=floats.dtype)
    kernel[:, :, 1, 1] = 5.0
    blurred = floats.clone()
    blurred[..., 1:-1, 1:-1] = F.conv2d(floats, kernel / 13.0, groups=channels)
    return _blend(img, back(blurred), sharpness_factor)


def invert(img: Image) -> Image:
    """The colours the other way round."""
    if _is_pil(img):
        ImageOps = import_module("PIL.ImageOps")
        return ImageOps.invert(img)
    return (1.0 if img.is_floating_point() else int(np.iinfo(img.dtype.numpy).max)) - img


def posterize(img: Image, bits: int) -> Image:
    """The first bits of each byte."""
    if _is_pil(img):
        ImageOps = import_module("PIL.ImageOps")
        return ImageOps.posterize(img, bits)
    return img & (256 - 2 ** (8 - bits))


def solarize(img: Image, threshold: float) -> Image:
    """What is brighter than the threshold the other way round."""
    if _is_pil(img):
        ImageOps = import_module("PIL.ImageOps")
        return ImageOps.solarize(img, int(threshold))
    return torch.where(img >= threshold, invert(img), img)


def autocontrast(img: Image) -> Image:
    """The darkest pixel of each channel black, the brightest white."""
    if _is_pil(img):
        ImageOps = import_module("PIL.ImageOps")
        return ImageOps.autocontrast(img)
    most = 1.0 if img.is_floating_point() else 255.0
    x = img.float()
    low, high = x.amin((-2, -1), keepdim=True), x.amax((-2, -1), keepdim=True)
    flat = high == low
    scale = most / torch.where(flat, most, high - low)
    return ((x - torch.where(flat, 0.0, low)) * scale).clamp(0, most).to(img.dtype)


def equalize(img: Image) -> Image:
    """Each brightness about as often as the others.  Tensors of bytes go through Pillow."""
    ImageOps = import_module("PIL.ImageOps")
    if _is_pil(img):
        return ImageOps.equalize(img)
    if img.ndim != 3:
        return torch.stack([equalize(x) for x in img])
    return torch.stack([pil_to_tensor(ImageOps.equalize(to_pil_image(x)))[0] for x in img])


def gaussian_blur(img: Image, kernel_size: Any, sigma: Any = None) -> Image:
    """The image under a bell of odd sizes (across, down); sigma: from the sizes unless given."""
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else [kernel_size[0], kernel_size[-1]]
    if any([n <= 0 or n % 2 == 0 for n in sizes]):
        raise ArgumentValueError(f"kernel_size should have odd and positive integers. Got {sizes}")
    if sigma is None:
        sigma = [n * 0.15 + 0.35 for n in sizes]
    widths: Any = [sigma] * 2 if isinstance(sigma, numbers.Number) else [sigma[0], sigma[-1]]
    x = img if isinstance(img, Tensor) else pil_to_tensor(img)
    floats, back = _as_floats(x)
    bells = []
    for n, width in zip(sizes, widths, strict=True):
        bell = np.exp(-0.5 * ((np.arange(n) - (n - 1) / 2) / width) ** 2)
        bells.append(torch.from_numpy((bell / bell.sum()).astype(floats.dtype.numpy)))
    channels = floats.shape[1]
    kernel = (bells[1][:, None] * bells[0]).expand(channels, 1, sizes[1], sizes[0])
    around = [sizes[0] // 2] * 2 + [sizes[1] // 2] * 2
    found = back(F.conv2d(F.pad(floats, around, mode="reflect"), kernel, groups=channels))
    return found if isinstance(img, Tensor) else to_pil_image(found, img.mode)


# ---- torchvision.transforms.v2's names of these ------------------------------------------------------------
def to_image(inpt: Any) -> Tensor:
    """Pillow's image or an array [h, w, c] as a tensor [c, h, w], of the same dtype."""
    if isinstance(inpt, Tensor):
        return inpt
    if isinstance(inpt, np.ndarray):
        pixels = inpt[:, :, None] if inpt.ndim == 2 else inpt
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    return pil_to_tensor(inpt)


def to_dtype(inpt: Tensor, dtype: Any = dtypes.float32, scale: bool = False) -> Tensor:
    """The tensor in another dtype, and with `scale` in its range."""
    return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)


to_dtype_image = to_dtype
