"""Answer `torchvision.transforms`: images changed in a row, and at random, before a network sees them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import runtime
from ...ir import dtypes
from ...ir.errors import ArgumentError, ArgumentValueError
from ...nn import Module
from ...runtime import Tensor
from ...runtime.random import randint, randperm
from . import functional
from . import functional as F
from .functional import InterpolationMode

torch: Any = runtime  # whose functions are made of records, and have no types

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "TenCrop",
    "ToPILImage",
    "ToTensor",
    "TrivialAugmentWide",
    "functional",
]


def _uniform(low: float, high: float) -> float:
    """A number drawn by Lamina's generator, as `manual_seed` has it."""
    return float(torch.empty(1).uniform_(low, high))


def _drawn(low: int, high: int) -> int:
    """One of low ... high - 1."""
    return int(randint(low, high, (1,)))


def _size(size: Any, message: str = "Please provide only two dimensions (h, w) for size.") -> tuple[int, int]:
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) in (1, 2):
        return size[0], size[-1]
    raise ArgumentValueError(message)


class _Transform(Module):
    """A transform that shows what it was made with."""

    def __init__(self, **shown: Any):
        super().__init__()
        self._shown = tuple(shown)
        for name, value in shown.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self._shown)})"


# ---- several -----------------------------------------------------------------------------------------------
class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Callable]):
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *(f"    {t}" for t in self.transforms), ")"])


class RandomApply(_Transform):
    """All of them, or none with the probability 1 - p."""

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5):
        super().__init__(p=p)
        self.transforms = transforms

    def forward(self, img: Any) -> Any:
        if self.p < _uniform(0, 1):
            return img
        for transform in self.transforms:
            img = transform(img)
        return img


class RandomChoice(_Transform):
    """One of them."""

    def __init__(self, transforms: Sequence[Callable], p: Sequence[float] | None = None):
        super().__init__(p=p)
        self.transforms = transforms

    def forward(self, img: Any) -> Any:
        weights = torch.as_tensor(self.p or [1.0] * len(self.transforms))
        return self.transforms[int(weights.multinomial(1))](img)


class RandomOrder(_Transform):
    """All of them in some order."""

    def __init__(self, transforms: Sequence[Callable]):
        super().__init__()
        self.transforms = transforms

    def forward(self, img: Any) -> Any:
        for place in randperm(len(self.transforms)).tolist():
            img = self.transforms[place](img)
        return img


class Lambda:
    """A function of the user's."""

    def __init__(self, lambd: Callable):
        if not callable(lambd):
            raise ArgumentError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


# ---- kinds -------------------------------------------------------------------------------------------------
class ToTensor:
    """`to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """`pil_to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToPILImage:
    """`to_pil_image`."""

    def __init__(self, mode: str | None = None):
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"ToPILImage({f'mode={self.mode}' if self.mode else ''})"


class ConvertImageDtype(_Transform):
    """`convert_image_dtype`."""

    def __init__(self, dtype: Any):
        super().__init__(dtype=dtype)

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(_Transform):
    """`normalize`."""

    def __init__(self, mean: Any, std: Any, inplace: bool = False):
        super().__init__(mean=mean, std=std)
        self.inplace = inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)


# ---- places ------------------------------------------------------------------------------------------------
class Resize(_Transform):
    """`resize`."""

    def __init__(
        self,
        size: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ):
        super().__init__(size=size, interpolation=interpolation, max_size=max_size, antialias=antialias)

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(_Transform):
    """`center_crop`."""

    def __init__(self, size: Any):
        super().__init__(size=_size(size))

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(_Transform):
    """`pad`."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant"):
        super().__init__(padding=padding, fill=fill, padding_mode=padding_mode)
        F._sides(padding)

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(_Transform):
    """A part of this size, of the image with `padding` around it."""

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ):
        super().__init__(size=_size(size), padding=padding)
        self.pad_if_needed, self.fill, self.padding_mode = pad_if_needed, fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """top, left, height and width of a part."""
        _, h, w = F.get_dimensions(img)
        tall, wide = output_size
        if h < tall or w < wide:
            raise ArgumentValueError(
                f"Required crop size {(tall, wide)} is larger than input image size {(h, w)}"
            )
        if (w, h) == (wide, tall):
            return 0, 0, h, w
        return _drawn(0, h - tall + 1), _drawn(0, w - wide + 1), tall, wide

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(_Transform):
    """A part of random size and shape, resized to `size`."""

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ):
        super().__init__(size=_size(size), scale=scale, ratio=ratio, interpolation=interpolation)
        self.antialias = antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        """top, left, height and width of a part."""
        _, height, width = F.get_dimensions(img)
        for _ in range(10):
            area = height * width * _uniform(scale[0], scale[1])
            aspect = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return _drawn(0, height - h + 1), _drawn(0, width - w + 1), h, w
        shape = width / height
        w = width if shape < min(ratio) else round(height * max(ratio)) if shape > max(ratio) else width
        h = round(width / min(ratio)) if shape < min(ratio) else height
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, antialias=self.antialias)


class FiveCrop(_Transform):
    """`five_crop`."""

    def __init__(self, size: Any):
        super().__init__(size=_size(size))

    def forward(self, img: Any) -> Any:
        return F.five_crop(img, self.size)


class TenCrop(_Transform):
    """`ten_crop`."""

    def __init__(self, size: Any, vertical_flip: bool = False):
        super().__init__(size=_size(size), vertical_flip=vertical_flip)

    def forward(self, img: Any) -> Any:
        return F.ten_crop(img, self.size, self.vertical_flip)


class RandomRotation(_Transform):
    """Turned by a number of degrees in -degrees ... degrees, or between the two given."""

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ):
        super().__init__(degrees=_range("degrees", degrees), interpolation=interpolation, expand=expand)
        self.center, self.fill = center, fill

    def forward(self, img: Any) -> Any:
        return F.rotate(img, _uniform(*self.degrees), self.interpolation, self.expand, self.center, self.fill)


def _range(name: str, given: Any) -> tuple[float, float]:
    if isinstance(given, numbers.Number):
        if given < 0:  # type: ignore[operator]
            raise ArgumentValueError(f"If {name} is a single number, it must be positive.")
        return -given, given  # type: ignore[operator,return-value]
    return given[0], given[1]


class RandomAffine(_Transform):
    """`affine` by random numbers.  translate: the most, as parts of the image; scale, shear: from ... to."""

    def __init__(
        self,
        degrees: Any,
        translate: Any = None,
        scale: Any = None,
        shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Any = None,
    ):
        super().__init__(degrees=_range("degrees", degrees), translate=translate, scale=scale, shear=shear)
        self.shear = _range("shear", shear) if isinstance(shear, numbers.Number) else shear
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def forward(self, img: Any) -> Any:
        width, height = F.get_image_size(img)
        angle = _uniform(*self.degrees)
        across = down = 0
        if self.translate is not None:
            across = round(_uniform(-1, 1) * self.translate[0] * width)
            down = round(_uniform(-1, 1) * self.translate[1] * height)
        scale = 1.0 if self.scale is None else _uniform(*self.scale)
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = _uniform(self.shear[0], self.shear[1])
            if len(self.shear) == 4:
                shear[1] = _uniform(*self.shear[2:])
        return F.affine(img, angle, (across, down), scale, shear, self.interpolation, self.fill, self.center)


# ---- with a probability ------------------------------------------------------------------------------------
class _Perhaps(_Transform):
    """A change that is made with the probability p."""

    change: Callable[[Any], Any]

    def __init__(self, p: float = 0.5, **shown: Any):
        super().__init__(**shown, p=p)

    def forward(self, img: Any) -> Any:
        return self.change(img) if _uniform(0, 1) < self.p else img


class RandomHorizontalFlip(_Perhaps):
    """`hflip`, perhaps."""

    change = staticmethod(F.hflip)


class RandomVerticalFlip(_Perhaps):
    """`vflip`, perhaps."""

    change = staticmethod(F.vflip)


class RandomInvert(_Perhaps):
    """`invert`, perhaps."""

    change = staticmethod(F.invert)


class RandomAutocontrast(_Perhaps):
    """`autocontrast`, perhaps."""

    change = staticmethod(F.autocontrast)


class RandomEqualize(_Perhaps):
    """`equalize`, perhaps."""

    change = staticmethod(F.equalize)


class RandomGrayscale(_Perhaps):
    """`rgb_to_grayscale`, perhaps, with as many channels as before."""

    def __init__(self, p: float = 0.1):
        super().__init__(p)

    def change(self, img: Any) -> Any:
        """The change."""
        return F.rgb_to_grayscale(img, F.get_image_num_channels(img))


class RandomPosterize(_Perhaps):
    """`posterize`, perhaps."""

    def __init__(self, bits: int, p: float = 0.5):
        super().__init__(p, bits=bits)
        self.change = partial(F.posterize, bits=bits)


class RandomSolarize(_Perhaps):
    """`solarize`, perhaps."""

    def __init__(self, threshold: float, p: float = 0.5):
        super().__init__(p, threshold=threshold)
        self.change = partial(F.solarize, threshold=threshold)


class RandomAdjustSharpness(_Perhaps):
    """`adjust_sharpness`, perhaps."""

    def __init__(self, sharpness_factor: float, p: float = 0.5):
        super().__init__(p, sharpness_factor=sharpness_factor)
        self.change = partial(F.adjust_sharpness, sharpness_factor=sharpness_factor)


class RandomErasing(_Perhaps):
    """A rectangle of a tensor erased, perhaps: to `value`, a number for each channel, or "random" ones."""

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ):
        super().__init__(p, scale=scale, ratio=ratio, value=value, inplace=inplace)

    def change(self, img: Tensor) -> Tensor:
        """The change."""
        channels, height, width = img.shape[-3:]
        for _ in range(10):
            area = height * width * _uniform(self.scale[0], self.scale[1])
            aspect = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                if self.value == "random":
                    value = torch.empty(channels, h, w).normal_()
                else:
                    value = torch.as_tensor(self.value, dtype=dtypes.float32)
                    value = value[:, None, None] if value.ndim else value
                return F.erase(
                    img, _drawn(0, height - h + 1), _drawn(0, width - w + 1), h, w, value, self.inplace
                )
        return img


# ---- colours -----------------------------------------------------------------------------------------------
class Grayscale(_Transform):
    """`rgb_to_grayscale`."""

    def __init__(self, num_output_channels: int = 1):
        super().__init__(num_output_channels=num_output_channels)

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class ColorJitter(_Transform):
    """Brightness, contrast, saturation and hue changed at random, in some order."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0):
        super().__init__(
            brightness=self._about("brightness", brightness),
            contrast=self._about("contrast", contrast),
            saturation=self._about("saturation", saturation),
            hue=self._about("hue", hue, 0, (-0.5, 0.5), False),
        )

    @staticmethod
    def _about(
        name: str, value: Any, center: float = 1, bound: tuple = (0, math.inf), clip: bool = True
    ) -> tuple | None:
        if isinstance(value, numbers.Number):
            if value < 0:  # type: ignore[operator]
                raise ArgumentValueError(f"If {name} is a single number, it must be non negative.")
            low, high = center - value, center + value  # type: ignore[operator]
            low = max(low, 0.0) if clip else low
        else:
            low, high = value
        if not bound[0] <= low <= high <= bound[1]:
            raise ArgumentValueError(f"{name} values should be between {bound}, but got {[low, high]}.")
        return None if low == high == center else (float(low), float(high))

    def forward(self, img: Any) -> Any:
        kinds = ("brightness", "contrast", "saturation", "hue")
        for place in randperm(4).tolist():
            given = getattr(self, kinds[place])
            if given is not None:
                img = getattr(F, f"adjust_{kinds[place]}")(img, _uniform(*given))
        return img


class GaussianBlur(_Transform):
    """`gaussian_blur` by a random sigma."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)):
        super().__init__(kernel_size=_size(kernel_size), sigma=sigma)
        self.sigma = (sigma, sigma) if isinstance(sigma, numbers.Number) else sigma

    def forward(self, img: Any) -> Any:
        return F.gaussian_blur(img, self.kernel_size, _uniform(self.sigma[0], self.sigma[1]))


# ---- policies ----------------------------------------------------------------------------------------------
# By name: the strongest, and whether it goes both ways.  Magnitudes of 31 steps, as the paper has them.
_CHANGES: dict[str, tuple[float, bool]] = {
    "Identity": (0.0, False),
    "ShearX": (0.3, True),
    "ShearY": (0.3, True),
    "TranslateX": (150.0 / 331.0, True),
    "TranslateY": (150.0 / 331.0, True),
    "Rotate": (30.0, True),
    "Brightness": (0.9, True),
    "Color": (0.9, True),
    "Contrast": (0.9, True),
    "Sharpness": (0.9, True),
    "Posterize": (4.0, False),
    "Solarize": (1.0, False),
    "AutoContrast": (0.0, False),
    "Equalize": (0.0, False),
}


def _changed(img: Any, name: str, strength: float, mode: Any, fill: Any) -> Any:
    """One change of a policy's.  strength: of 0 ... 1, or negative."""
    most = _CHANGES[name][0] * strength
    width, height = F.get_image_size(img)
    if name in ("ShearX", "ShearY"):
        degrees = math.degrees(math.atan(most))
        shear = [degrees, 0.0] if name == "ShearX" else [0.0, degrees]
        return F.affine(img, 0.0, [0, 0], 1.0, shear, mode, fill, center=[0, 0])
    if name in ("TranslateX", "TranslateY"):
        moved = [int(most * width), 0] if name == "TranslateX" else [0, int(most * height)]
        return F.affine(img, 0.0, moved, 1.0, [0.0, 0.0], mode, fill)
    if name == "Rotate":
        return F.rotate(img, most, mode, fill=fill)
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        change = {"Color": "saturation"}.get(name, name.lower())
        return getattr(F, f"adjust_{change}")(img, 1.0 + most)
    if name == "Posterize":
        return F.posterize(img, 8 - round(most))
    if name == "Solarize":
        return F.solarize(
            img, (1.0 if getattr(img, "is_floating_point", lambda: False)() else 255.0) * (1 - most)
        )
    return {"AutoContrast": F.autocontrast, "Equalize": F.equalize}.get(name, lambda x: x)(img)


class RandAugment(_Transform):
    """Some changes of one strength.  Source: Cubuk et al., "RandAugment", 2020."""

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ):
        super().__init__(num_ops=num_ops, magnitude=magnitude, num_magnitude_bins=num_magnitude_bins)
        self.interpolation, self.fill = interpolation, fill

    def _strength(self) -> float:
        return self.magnitude / (self.num_magnitude_bins - 1)

    def forward(self, img: Any) -> Any:
        names = list(_CHANGES)
        for _ in range(self.num_ops):
            name = names[_drawn(0, len(names))]
            strength = self._strength()
            if _CHANGES[name][1] and _drawn(0, 2):
                strength = -strength
            img = _changed(img, name, strength, self.interpolation, self.fill)
        return img


class TrivialAugmentWide(RandAugment):
    """One change of random strength.  Source: Müller and Hutter, "TrivialAugment", 2021."""

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None
    ):
        super().__init__(1, 0, num_magnitude_bins, interpolation, fill)

    def _strength(self) -> float:
        return _drawn(0, self.num_magnitude_bins) / (self.num_magnitude_bins - 1)
