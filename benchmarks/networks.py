"""The networks of the benchmarks, each written once for `lamina` and `torch` alike: `library` is either.

Weights are drawn by NumPy from one seed, so that all contenders compute the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Input = tuple[np.ndarray, ...]


def mlp(library: Any) -> Any:
    """784-256-256-10."""
    nn = library.nn
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )  # fmt: skip


def lenet(library: Any) -> Any:
    """LeNet-5 on 28 x 28, with ReLU and max pooling."""
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def resnet18(library: Any, classes: int = 1000) -> Any:
    """He et al., Deep residual learning for image recognition, 2015."""
    return _resnet(library, _basic(library), (2, 2, 2, 2), 1, classes)


def resnet50(library: Any, classes: int = 1000) -> Any:
    return _resnet(library, _bottleneck(library), (3, 4, 6, 3), 4, classes)


def _basic(library: Any) -> type:
    nn, relu = library.nn, library.relu

    class Basic(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.shortcut = _shortcut(nn, inputs, width, stride)

        def forward(self, x):
            out = relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            return relu(out + self.shortcut(x))

    return Basic


def _bottleneck(library: Any) -> type:
    nn, relu = library.nn, library.relu

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(4 * width)
            self.shortcut = _shortcut(nn, inputs, 4 * width, stride)

        def forward(self, x):
            out = relu(self.bn1(self.conv1(x)))
            out = relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            return relu(out + self.shortcut(x))

    return Bottleneck


def _shortcut(nn: Any, inputs: int, outputs: int, stride: int) -> Any:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


def _resnet(library: Any, block: type, depths: tuple[int, ...], expansion: int, classes: int) -> Any:
    nn = library.nn
    layers = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]  # fmt: skip
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for number in range(depth):
            layers.append(block(inputs, width, 2 if stage and not number else 1))
            inputs = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet_cifar(library: Any, classes: int = 10) -> Any:
    """ResNet-18 for images of 32 x 32: a stem of 3 x 3 that keeps the size, and no pooling."""
    nn, block = library.nn, _basic(library)
    layers, inputs = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [block(inputs, width, stride), block(width, width, 1)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def mobilenet_v2(library: Any, classes: int = 1000) -> Any:
    """Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, 2018."""
    nn = library.nn

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list:
        layer = nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        )
        return [layer, nn.BatchNorm2d(outputs), nn.ReLU6()]

    class Inverted(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int, expand: int):
            super().__init__()
            hidden = inputs * expand
            layers = conv(inputs, hidden, 1) if expand != 1 else []
            layers += conv(hidden, hidden, 3, stride, groups=hidden)
            layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
            self.layers, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

        def forward(self, x):
            return x + self.layers(x) if self.residual else self.layers(x)

    settings = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    layers, inputs = conv(3, 32, 3, 2), 32
    for expand, outputs, count, stride in settings:
        for number in range(count):
            layers.append(Inverted(inputs, outputs, 1 if number else stride, expand))
            inputs = outputs
    layers += conv(inputs, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


def ds_cnn(library: Any) -> Any:
    """Keywords in 49 x 10 features: four depthwise separable convolutions of 64 channels.

    Source: Zhang et al., Hello edge, 2017, as MLPerf Tiny has it; padded alike on both sides.
    """
    nn = library.nn

    def conv(
        inputs: int, kernel: tuple[int, int], stride: int, padding: tuple[int, int], groups: int
    ) -> list:
        layer = nn.Conv2d(inputs, 64, kernel, stride=stride, padding=padding, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(64), nn.ReLU()]

    layers = conv(1, (10, 4), 2, (5, 1), 1)
    for _ in range(4):
        layers += conv(64, (3, 3), 1, (1, 1), 64) + conv(64, (1, 1), 1, (0, 0), 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def alexnet(library: Any, classes: int = 1000) -> Any:
    """Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014."""
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2),
        nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, classes),
    )  # fmt: skip


def vgg11(library: Any, classes: int = 1000) -> Any:
    """Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, 2014."""
    nn = library.nn
    layers, inputs = [], 3
    for widths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for width in widths:
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, classes),
    )  # fmt: skip


def lstm(library: Any) -> Any:
    return _last_of(library, library.nn.LSTM)


def gru(library: Any) -> Any:
    return _last_of(library, library.nn.GRU)


def _last_of(library: Any, recurrence: Any) -> Any:
    """One layer of 128 over 32 steps of 64, and a linear layer on the last."""
    nn = library.nn

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = recurrence(64, 128, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.layer(x)[0][:, -1])

    return Last()


def gpt(library: Any, width: int = 256, heads: int = 8, depth: int = 4, length: int = 128) -> Any:
    """A pre-norm decoder of `depth` blocks over `length` tokens of a vocabulary of 256.

    Source: Radford et al., Language models are unsupervised multitask learners, 2019.
    """
    nn = library.nn
    attention = nn.functional.scaled_dot_product_attention

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.gelu = nn.GELU()

        def forward(self, x):
            b, t, _ = x.shape
            qkv = self.qkv(self.norm1(x))
            q, k, v = (
                qkv[..., i * width : (i + 1) * width].reshape(b, t, heads, width // heads).swapaxes(1, 2)
                for i in range(3)
            )
            y = attention(q, k, v, is_causal=True).swapaxes(1, 2).reshape(b, t, width)
            x = x + self.out(y)
            return x + self.down(self.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)
            self.register_buffer("at", library.arange(length))

        def forward(self, tokens):
            return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(self.at))))

    return GPT()


def digits(library: Any, width: int = 16) -> Any:
    """The demo's network, on 8 x 8."""
    nn = library.nn

    def block(inputs: int, outputs: int) -> list:
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, width), *block(width, 2 * width), nn.MaxPool2d(2),
        *block(2 * width, 4 * width), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * width, 10),
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A network, the shape of one input (int64 tokens below `tokens`, else normal floats), and its classes.

    training: the batch its training step is measured at, 0 if it is not, and the shape of one input there.
    """

    make: Any
    shape: tuple[int, ...]
    classes: int
    tokens: int = 0
    training: int = 32
    training_shape: tuple[int, ...] | None = None

    def inputs(self, batch: int, training: bool = False) -> np.ndarray:
        shape = (batch, *((training and self.training_shape) or self.shape))
        rng = np.random.default_rng(1)
        if self.tokens:
            return rng.integers(0, self.tokens, shape)
        return rng.standard_normal(shape).astype(np.float32)

    def labels(self, batch: int) -> np.ndarray:
        shape = (batch, *self.shape) if self.tokens else (batch,)
        return np.random.default_rng(2).integers(0, self.classes, shape)


CASES = {
    "digits": Case(digits, (1, 8, 8), 10),
    "mlp": Case(mlp, (784,), 10),
    "lenet": Case(lenet, (1, 28, 28), 10),
    "ds_cnn": Case(ds_cnn, (1, 49, 10), 12),
    "lstm": Case(lstm, (32, 64), 10),
    "gru": Case(gru, (32, 64), 10),
    "gpt": Case(gpt, (128,), 256, tokens=256, training=8),
    "mobilenet_v2": Case(mobilenet_v2, (3, 224, 224), 1000, training_shape=(3, 64, 64)),
    "resnet18": Case(resnet18, (3, 224, 224), 1000, training_shape=(3, 32, 32)),
    "resnet50": Case(resnet50, (3, 224, 224), 1000, training_shape=(3, 32, 32)),
    "alexnet": Case(alexnet, (3, 224, 224), 1000, training=0),
    "vgg11": Case(vgg11, (3, 224, 224), 1000, training=0),
}


def weigh(model: Any) -> None:
    """Draw all parameters and statistics anew, in an order that does not depend on the library."""
    rng = np.random.default_rng(0)
    swapped = {}  # of a library whose arrays can't be written
    arrays = model.state_dict() if hasattr(model, "state_dict") else model.arrays()
    for name, value in arrays.items():
        shape = tuple(value.shape)
        if name.endswith(("num_batches_tracked", "at")):
            continue
        if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
            drawn = rng.uniform(0.5, 1.5, shape)
        else:
            fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
            drawn = rng.standard_normal(shape) * (2 / max(fan, 1)) ** 0.5
        if hasattr(value, "copy_"):
            value.copy_(value.new_tensor(drawn.astype(np.float32)))
        else:
            swapped[name] = drawn.astype(np.float32)
    if swapped:
        model.swap(swapped)
