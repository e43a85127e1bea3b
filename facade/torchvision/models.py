"""Answer `torchvision.models`: networks without their weights, whose parameters have torchvision's names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ... import cat, nn
from ...ir.errors import ArgumentValueError
from ...runtime import Tensor
from .ops import Conv2dNormActivation

__all__ = [
    "AlexNet",
    "DenseNet",
    "MobileNetV2",
    "ResNet",
    "VGG",
    "alexnet",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "mobilenet_v2",
    "resnet101",
    "resnet152",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnext50_32x4d",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
    "wide_resnet50_2",
]


def __getattr__(name: str) -> Any:
    """`ResNet18_Weights` and its kin: names of weights, which a model refuses."""
    if name.endswith("_Weights"):
        return SimpleNamespace(DEFAULT=f"{name}.DEFAULT", IMAGENET1K_V1=f"{name}.IMAGENET1K_V1")
    raise AttributeError(f"the stand-in for torchvision.models has no {name}")


def _without(weights: Any, pretrained: Any) -> None:
    if weights is not None or pretrained:
        raise ArgumentValueError(
            f"weights={weights!r}: Lamina downloads nothing",
            "make the model without weights, and load_state_dict(torch.load(...)) of a file that you have",
        )


# ---- ResNet: He et al., 2015 -------------------------------------------------------------------------------
class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 beside what comes in."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable = nn.BatchNorm2d,
    ):
        super().__init__()
        if (groups, base_width, dilation) != (1, 64, 1):
            raise ArgumentValueError(
                f"BasicBlock({groups=}, {base_width=}, {dilation=}): they are 1, 64 and 1 here",
                "Bottleneck takes others",
            )
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1, self.relu = norm_layer(planes), nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), norm_layer(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        found = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(found + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A convolution of 3 x 3 between two of 1 x 1, beside what comes in."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable = nn.BatchNorm2d,
    ):
        super().__init__()
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = nn.Conv2d(inplanes, width, 1, bias=False), norm_layer(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, dilation, dilation, groups, bias=False)
        self.bn2 = norm_layer(width)
        self.conv3 = nn.Conv2d(width, planes * self.expansion, 1, bias=False)
        self.bn3, self.relu = norm_layer(planes * self.expansion), nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        found = self.relu(self.bn1(self.conv1(x)))
        found = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(found)))))
        return self.relu(found + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Four stages of residual blocks; input [b, 3, h, w]."""

    def __init__(
        self,
        block: Any,
        layers: list[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Any = None,
        norm_layer: Callable | None = None,
    ):
        super().__init__()
        if replace_stride_with_dilation and any(replace_stride_with_dilation):
            raise ArgumentValueError(
                "ResNet(replace_stride_with_dilation): the stand-in has no dilated stages"
            )
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.groups, self.base_width = 64, groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu, self.maxpool = self._norm_layer(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        for stage, (planes, count) in enumerate(zip((64, 128, 256, 512), layers, strict=True)):
            setattr(self, f"layer{stage + 1}", self._make_layer(block, planes, count, 2 if stage else 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(m, (BasicBlock, Bottleneck)):
                nn.init.zeros_((m.bn3 if isinstance(m, Bottleneck) else m.bn2).weight)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int) -> nn.Sequential:
        made = []
        for number in range(blocks):
            step, wide = stride if number == 0 else 1, planes * block.expansion
            downsample = None
            if step != 1 or self.inplanes != wide:
                downsample = nn.Sequential(
                    nn.Conv2d(self.inplanes, wide, 1, step, bias=False), self._norm_layer(wide)
                )
            options = {"groups": self.groups, "base_width": self.base_width, "norm_layer": self._norm_layer}
            made.append(block(self.inplanes, planes, step, downsample, **options))
            self.inplanes = wide
        return nn.Sequential(*made)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _resnet(name: str, block: Any, layers: list[int], **fixed: Any) -> Callable:
    def make(
        *, weights: Any = None, pretrained: bool = False, progress: bool = True, **kwargs: Any
    ) -> ResNet:
        _without(weights, pretrained)
        return ResNet(block, layers, **{**fixed, **kwargs})

    make.__name__, make.__doc__ = name, f"{name}, without weights."
    return make


resnet18, resnet34 = (
    _resnet("resnet18", BasicBlock, [2, 2, 2, 2]),
    _resnet("resnet34", BasicBlock, [3, 4, 6, 3]),
)
resnet50 = _resnet("resnet50", Bottleneck, [3, 4, 6, 3])
resnet101, resnet152 = (
    _resnet("resnet101", Bottleneck, [3, 4, 23, 3]),
    _resnet("resnet152", Bottleneck, [3, 8, 36, 3]),
)
resnext50_32x4d = _resnet("resnext50_32x4d", Bottleneck, [3, 4, 6, 3], groups=32, width_per_group=4)
wide_resnet50_2 = _resnet("wide_resnet50_2", Bottleneck, [3, 4, 6, 3], width_per_group=128)


# ---- VGG: Simonyan and Zisserman, 2014 ---------------------------------------------------------------------
class VGG(nn.Module):
    """Convolutions of 3 x 3 with pools between, and three linear layers; input [b, 3, h, w]."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ):
        super().__init__()
        self.features, self.avgpool = features, nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )
        for m in self.modules() if init_weights else ():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(m.bias)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


_STAGES = {
    "vgg11": (1, 1, 2, 2, 2),
    "vgg13": (2, 2, 2, 2, 2),
    "vgg16": (2, 2, 3, 3, 3),
    "vgg19": (2, 2, 4, 4, 4),
}


def make_layers(cfg: list[int | str], batch_norm: bool = False) -> nn.Sequential:
    """The layers of `VGG.features`: a number is a convolution with so many channels, "M" a pool."""
    layers: list[nn.Module] = []
    channels = 3
    for wide in cfg:
        if isinstance(wide, str):
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, wide, 3, padding=1))
        layers += [nn.BatchNorm2d(wide)] if batch_norm else []
        layers.append(nn.ReLU(inplace=True))
        channels = wide
    return nn.Sequential(*layers)


def _vgg(name: str, batch_norm: bool) -> Callable:
    def make(*, weights: Any = None, pretrained: bool = False, progress: bool = True, **kwargs: Any) -> VGG:
        _without(weights, pretrained)
        stages = zip((64, 128, 256, 512, 512), _STAGES[name], strict=True)
        cfg: list[int | str] = []
        for wide, count in stages:
            cfg += [*[wide] * count, "M"]
        return VGG(make_layers(cfg, batch_norm), **kwargs)

    make.__name__ = f"{name}_bn" if batch_norm else name
    make.__doc__ = f"{make.__name__}, without weights."
    return make


vgg11, vgg13, vgg16, vgg19 = (_vgg(name, False) for name in _STAGES)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_vgg(name, True) for name in _STAGES)


# ---- DenseNet: Huang et al., 2017 --------------------------------------------------------------------------
class _DenseLayer(nn.Module):
    """Convolutions of 1 x 1 and 3 x 3 of all that came before, for `growth_rate` channels more."""

    def __init__(self, channels: int, growth_rate: int, bn_size: int, drop_rate: float):
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, bn_size * growth_rate, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(bn_size * growth_rate), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = float(drop_rate)

    def forward(self, x: Tensor | list[Tensor]) -> Tensor:
        x = x if isinstance(x, Tensor) else cat(x, 1)
        x = self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))
        return nn.functional.dropout(x, self.drop_rate, self.training) if self.drop_rate > 0 else x


class _DenseBlock(nn.ModuleDict):
    """Layers that take what came in and what all layers before gave."""

    def __init__(self, layers: int, channels: int, bn_size: int, growth_rate: int, drop_rate: float):
        super().__init__()
        for i in range(layers):
            layer = _DenseLayer(channels + i * growth_rate, growth_rate, bn_size, drop_rate)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.values():
            found.append(layer(found))
        return cat(found, 1)


class _Transition(nn.Sequential):
    """Half the channels, and half the height and width."""

    def __init__(self, channels: int, wanted: int):
        super().__init__()
        self.norm, self.relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.conv, self.pool = nn.Conv2d(channels, wanted, 1, bias=False), nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """Blocks of layers that see all before them; input [b, 3, h, w]."""

    def __init__(
        self, growth_rate: int = 32, block_config: tuple[int, ...] = (6, 12, 24, 16),
        num_init_features: int = 64, bn_size: int = 4, drop_rate: float = 0, num_classes: int = 1000,
        memory_efficient: bool = False,
    ):  # fmt: skip
        super().__init__()
        channels = num_init_features
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, channels, 7, 2, 3, bias=False), norm0=nn.BatchNorm2d(channels),
                relu0=nn.ReLU(inplace=True), pool0=nn.MaxPool2d(3, 2, 1),
            )
        )  # fmt: skip
        for i, layers in enumerate(block_config, 1):
            block = _DenseBlock(layers, channels, bn_size, growth_rate, drop_rate)
            self.features.add_module(f"denseblock{i}", block)
            channels += layers * growth_rate
            if i < len(block_config):
                self.features.add_module(f"transition{i}", _Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
            elif isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.relu(self.features(x), inplace=True)
        return self.classifier(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def _densenet(name: str, growth: int, blocks: tuple[int, ...], first: int) -> Callable:
    def make(
        *, weights: Any = None, pretrained: bool = False, progress: bool = True, **kwargs: Any
    ) -> DenseNet:
        _without(weights, pretrained)
        return DenseNet(growth, blocks, first, **kwargs)

    make.__name__, make.__doc__ = name, f"{name}, without weights."
    return make


densenet121 = _densenet("densenet121", 32, (6, 12, 24, 16), 64)
densenet161 = _densenet("densenet161", 48, (6, 12, 36, 24), 96)
densenet169 = _densenet("densenet169", 32, (6, 12, 32, 32), 64)
densenet201 = _densenet("densenet201", 32, (6, 12, 48, 32), 64)


# ---- AlexNet: Krizhevsky, "One weird trick", 2014 ----------------------------------------------------------
class AlexNet(nn.Module):
    """Five convolutions and three linear layers; input [b, 3, h, w]."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(
    *, weights: Any = None, pretrained: bool = False, progress: bool = True, **kwargs: Any
) -> AlexNet:
    """AlexNet, without weights."""
    _without(weights, pretrained)
    return AlexNet(**kwargs)


# ---- MobileNetV2: Sandler et al., 2018 ---------------------------------------------------------------------
def _rounded(width: float, divisor: int) -> int:
    """The multiple of `divisor` nearest to it, no less than nine tenths."""
    found = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return found + divisor if found < 0.9 * width else found


class InvertedResidual(nn.Module):
    """Channels widened, a convolution of each, and narrowed again; beside what comes in, where that fits."""

    def __init__(
        self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer: Callable = nn.BatchNorm2d
    ):
        super().__init__()
        wide = round(inp * expand_ratio)
        self.use_res_connect = stride == 1 and inp == oup
        options = {"norm_layer": norm_layer, "activation_layer": nn.ReLU6}
        widening = [Conv2dNormActivation(inp, wide, 1, **options)] if expand_ratio != 1 else []
        self.conv = nn.Sequential(
            *widening,
            Conv2dNormActivation(wide, wide, stride=stride, groups=wide, **options),
            nn.Conv2d(wide, oup, 1, bias=False),
            norm_layer(oup),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals; input [b, 3, h, w]."""

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: Any = None,
        round_nearest: int = 8,
        norm_layer: Callable | None = None,
        dropout: float = 0.2,
    ):
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        setting = inverted_residual_setting or (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        channels = _rounded(32 * width_mult, round_nearest)
        self.last_channel = _rounded(1280 * max(1.0, width_mult), round_nearest)
        options = {"norm_layer": norm, "activation_layer": nn.ReLU6}
        layers: list[nn.Module] = [Conv2dNormActivation(3, channels, stride=2, **options)]
        for ratio, wide, count, stride in setting:
            out = _rounded(wide * width_mult, round_nearest)
            for number in range(count):
                layers.append(InvertedResidual(channels, out, 1 if number else stride, ratio, norm))
                channels = out
        layers.append(Conv2dNormActivation(channels, self.last_channel, 1, **options))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


def mobilenet_v2(
    *, weights: Any = None, pretrained: bool = False, progress: bool = True, **kwargs: Any
) -> MobileNetV2:
    """MobileNetV2, without weights."""
    _without(weights, pretrained)
    return MobileNetV2(**kwargs)
