"""Small networks of known convolutional architectures, each after its paper, in this project's words.

Each takes images [n, 3, h, w] and gives scores [n, classes]; U-Net gives them for each pixel.  `width` is the
number of channels of the first stage, and the others follow from it.
"""

from collections.abc import Callable

import lamina
from lamina import nn

CLASSES = 7
Layer = Callable[[], nn.Module]


def conv_norm(
    inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1, after: Layer | None = nn.ReLU
) -> nn.Sequential:
    """A convolution that keeps the size but for its stride, a batch norm, and an activation if any."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([after()] if after else []))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """What a residual is added to: the input itself, or a projection to its shape."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return conv_norm(inputs, outputs, 1, stride, after=None)


def classifier(channels: int) -> nn.Sequential:
    """The mean over the image, and scores."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate computed from the means of all."""

    def __init__(self, channels: int, squeezed: int, activation: Layer = nn.ReLU, gate: Layer = nn.Sigmoid):
        super().__init__()
        self.gates = nn.Sequential(
            nn.Conv2d(channels, squeezed, 1), activation(), nn.Conv2d(squeezed, channels, 1), gate()
        )

    def forward(self, x):
        return x * self.gates(x.mean((2, 3), keepdim=True))


# ---- Ma et al., ShuffleNet V2, 2018 ------------------------------------------------------------------------
class Shuffled(nn.Module):
    """Two halves of the channels, one or both convolved, then interleaved."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        half, entering = outputs // 2, inputs if stride > 1 else inputs // 2
        self.stride = stride
        self.convolved = nn.Sequential(
            conv_norm(entering, half),
            conv_norm(half, half, 3, stride, groups=half, after=None),
            conv_norm(half, half),
        )
        if stride > 1:
            self.reduced = nn.Sequential(
                conv_norm(inputs, inputs, 3, stride, groups=inputs, after=None), conv_norm(inputs, half)
            )

    def forward(self, x):
        if self.stride > 1:
            kept, entering = self.reduced(x), x
        else:
            kept, entering = x.chunk(2, dim=1)
        x = lamina.cat((kept, self.convolved(entering)), dim=1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet(width: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(3, width, 3),
        Shuffled(width, width, 1), Shuffled(width, 2 * width, 2), Shuffled(2 * width, 2 * width, 1),
        conv_norm(2 * width, 2 * width + 8), classifier(2 * width + 8),
    )  # fmt: skip


# ---- Xie et al., ResNeXt, 2017; Radosavovic et al., RegNet, 2020 -------------------------------------------
class GroupedBottleneck(nn.Module):
    """1x1, grouped 3x3, perhaps a squeeze, 1x1, and the residual."""

    def __init__(self, inputs: int, outputs: int, stride: int, inner: int, groups: int, squeezed: int = 0):
        super().__init__()
        squeeze = [SqueezeExcite(inner, squeezed)] if squeezed else []
        self.layers = nn.Sequential(
            conv_norm(inputs, inner), conv_norm(inner, inner, 3, stride, groups), *squeeze,
            conv_norm(inner, outputs, after=None),
        )  # fmt: skip
        self.shortcut, self.relu = shortcut(inputs, outputs, stride), nn.ReLU()

    def forward(self, x):
        return self.relu(self.layers(x) + self.shortcut(x))


def resnext(width: int, groups: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(3, width, 3), nn.MaxPool2d(3, 2, 1),
        GroupedBottleneck(width, 2 * width, 1, width, groups),
        GroupedBottleneck(2 * width, 2 * width, 1, width, groups),
        GroupedBottleneck(2 * width, 4 * width, 2, 2 * width, groups),
        classifier(4 * width),
    )  # fmt: skip


def regnet(width: int, group: int) -> nn.Module:
    """Groups of one width, whatever the stage, and a squeeze to a quarter of what enters."""
    layers, inputs = [conv_norm(3, width, 3, 2)], width
    for outputs, stride in ((width, 1), (2 * width, 2), (2 * width, 1)):
        squeezed = max(1, inputs // 4)
        layers.append(GroupedBottleneck(inputs, outputs, stride, outputs, outputs // group, squeezed))
        inputs = outputs
    return nn.Sequential(*layers, classifier(inputs))


# ---- Hu et al., Squeeze-and-excitation networks, 2018 ------------------------------------------------------
class SqueezedResidual(nn.Module):
    """Two 3x3 convolutions, a squeeze, and the residual."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.layers = nn.Sequential(
            conv_norm(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3, after=None),
            SqueezeExcite(outputs, max(1, outputs // 8)),
        )  # fmt: skip
        self.shortcut, self.relu = shortcut(inputs, outputs, stride), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.layers(x) + self.shortcut(x))


def senet(width: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(3, width, 3),
        SqueezedResidual(width, width, 1), SqueezedResidual(width, 2 * width, 2),
        SqueezedResidual(2 * width, 2 * width, 1), classifier(2 * width),
    )  # fmt: skip


# ---- Huang et al., DenseNet, 2017 --------------------------------------------------------------------------
class Dense(nn.Module):
    """Appends `growth` channels, computed from all that are there, to its input."""

    def __init__(self, inputs: int, growth: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 2 * growth, 1, bias=False),
            nn.BatchNorm2d(2 * growth), nn.ReLU(), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x):
        return lamina.cat([x, self.layers(x)], 1)


def densenet(width: int, growth: int) -> nn.Module:
    layers, channels = [nn.Conv2d(3, width, 3, padding=1, bias=False)], width
    for block in range(2):
        if block:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False)]
            layers, channels = [*layers, nn.AvgPool2d(2)], channels // 2
        for _ in range(3):
            layers.append(Dense(channels, growth))
            channels += growth
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), classifier(channels))


# ---- Zoph et al., NASNet, 2018; Liu et al., PNASNet, 2018 --------------------------------------------------
def separable(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    """Twice: relu, depthwise, pointwise, norm; the first takes the stride."""

    def once(entering: int, stride: int) -> list[nn.Module]:
        depthwise = nn.Conv2d(entering, entering, size, stride, size // 2, groups=entering, bias=False)
        return [nn.ReLU(), depthwise, *conv_norm(entering, outputs, after=None)]

    return nn.Sequential(*once(inputs, stride), *once(outputs, 1))


class Halved(nn.Module):
    """Half the size by two 1x1 convolutions of stride 2, the second of the image moved by one pixel."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.relu, self.norm = nn.ReLU(), nn.BatchNorm2d(outputs)
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, 2, bias=False)
        self.move = nn.ZeroPad2d((0, 1, 0, 1))

    def forward(self, x):
        x = self.relu(x)
        return self.norm(lamina.cat([self.even(x), self.odd(self.move(x)[:, :, 1:, 1:])], 1))


class Cell(nn.Module):
    """Sums of pairs of operations on the last two states, side by side."""

    def __init__(self, before: int, inputs: int, channels: int, stride: int, shrink: bool):
        super().__init__()
        self.first = Halved(before, channels) if shrink else nn.Sequential(
            nn.ReLU(), conv_norm(before, channels, after=None)
        )  # fmt: skip
        self.second = nn.Sequential(nn.ReLU(), conv_norm(inputs, channels, after=None))
        self.five, self.seven = (separable(channels, channels, size, stride) for size in (5, 7))
        self.three, self.again = (separable(channels, channels, 3, s) for s in (stride, 1))
        self.most = nn.MaxPool2d(3, stride, 1)
        self.mean = nn.AvgPool2d(3, stride, 1, count_include_pad=False)

    def forward(self, before, x):
        first, second = self.first(before), self.second(x)
        a = self.five(first) + self.most(first)
        b = self.seven(second) + self.most(second)
        c = self.three(second) + self.mean(first)
        return lamina.cat([a, b, c, self.again(c) + a], 1)


class PNASNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.stem = conv_norm(3, width, 3, after=None)
        self.plain = Cell(width, width, width // 2, 1, False)
        self.reducing = Cell(width, 4 * (width // 2), width, 2, False)
        self.last = Cell(4 * (width // 2), 4 * width, width, 1, True)
        self.relu, self.head = nn.ReLU(), classifier(4 * width)

    def forward(self, x):
        before = self.stem(x)
        states = before, self.plain(before, before)
        for cell in (self.reducing, self.last):
            states = states[1], cell(*states)
        return self.head(self.relu(states[1]))


# ---- Tan and Le, EfficientNet, 2019; Howard et al., MobileNetV3, 2019 --------------------------------------
class DropPath(nn.Module):
    """Leave out whole samples of a residual at random in training."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        kept = lamina.rand(x.shape[0], *[1] * (x.ndim - 1)) >= self.p
        return x * kept.to(x.dtype) / (1 - self.p)


class Inverted(nn.Module):
    """1x1 to `inner` channels, depthwise, a squeeze, 1x1 back, and the residual where it fits."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int, inner: int, activation: Layer,
        squeeze: SqueezeExcite | None = None, p: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.layers = nn.Sequential(
            *([conv_norm(inputs, inner, after=activation)] if inner != inputs else []),
            conv_norm(inner, inner, size, stride, inner, activation),
            *([squeeze] if squeeze else []),
            conv_norm(inner, outputs, after=None),
        )
        self.residual, self.drop = stride == 1 and inputs == outputs, DropPath(p)

    def forward(self, x):
        return x + self.drop(self.layers(x)) if self.residual else self.layers(x)


def efficientnet(width: int) -> nn.Module:
    layers, inputs = [conv_norm(3, width, 3, after=nn.SiLU)], width
    middle = width + width // 2
    plan = ((1, width, 3, 1), (6, middle, 3, 2), (6, middle, 5, 1), (4, 2 * width, 5, 2))
    for number, (expand, outputs, size, stride) in enumerate(plan):
        inner = expand * inputs
        squeeze = SqueezeExcite(inner, max(1, inputs // 4), nn.SiLU)
        layers.append(Inverted(inputs, outputs, size, stride, inner, nn.SiLU, squeeze, 0.1 * number))
        inputs = outputs
    return nn.Sequential(
        *layers, conv_norm(inputs, 4 * width, after=nn.SiLU),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * width, CLASSES),
    )  # fmt: skip


def mobilenet_v3(width: int) -> nn.Module:
    def squeezed(channels: int) -> SqueezeExcite:
        return SqueezeExcite(channels, max(8, channels // 4), gate=nn.Hardsigmoid)

    swish, wide = nn.Hardswish, 2 * width + width // 2
    return nn.Sequential(
        conv_norm(3, width, 3, 2, after=swish),
        Inverted(width, width, 3, 1, width, nn.ReLU),
        Inverted(width, width + 8, 3, 2, 4 * width, nn.ReLU),
        Inverted(width + 8, width + 8, 5, 1, wide, nn.ReLU, squeezed(wide)),
        Inverted(width + 8, 2 * width, 5, 1, wide, swish, squeezed(wide)),
        conv_norm(2 * width, 6 * width, after=swish),
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(6 * width, 64, 1), swish(), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


# ---- Ronneberger et al., U-Net, 2015 -----------------------------------------------------------------------
class UNet(nn.Module):
    """Down by pools and up by transposed convolutions, each way up beside what was there on the way down."""

    def __init__(self, width: int):
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(self.twice(i, o) for i, o in zip((3, *widths), widths))
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(self.twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, CLASSES, 1)

    @staticmethod
    def twice(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3))

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(lamina.cat((kept.pop(), up(x)), 1))
        return self.head(x)
