"""Networks of the tests of quantisation: residual sums, norms, pools, joins, as people write them."""

from __future__ import annotations

import lamina
from lamina import nn
from lamina.nn import functional as F


class Block(nn.Module):
    """Two convolutions and what goes around them, as in ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = None
        if stride > 1 or inputs != outputs:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: lamina.Tensor) -> lamina.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.down is None else self.down(x)))


class Residual(nn.Module):
    """Shapes: f32[n, 3, h, w] -> f32[n, 10]."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width)
        self.block1, self.block2 = Block(width, width, 1), Block(width, 2 * width, 2)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: lamina.Tensor) -> lamina.Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.stem(x))), 2)
        x = self.block2(self.block1(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Mobile(nn.Module):
    """Depthwise convolutions, ReLU6, hardswish, a join.  Shapes: f32[n, 3, h, w] -> f32[n, 5]."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.deep, self.wide = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 16, 1)
        self.side = nn.Conv2d(8, 4, 1)
        self.last, self.head = nn.Conv2d(20, 12, 1), nn.Linear(12, 5)

    def forward(self, x: lamina.Tensor) -> lamina.Tensor:
        x = F.hardswish(self.stem(x))
        y = F.relu6(self.wide(F.relu6(self.deep(x))))
        z = F.hardswish(self.last(lamina.cat([y, self.side(x)], 1)))
        return self.head(z.mean((2, 3)))


class Tokens(nn.Module):
    """A step of a language model, with a branch that hangs on how many tokens there are."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 50, bias=False)

    def forward(self, tokens: lamina.Tensor) -> lamina.Tensor:
        x = self.table(tokens)
        for _ in range(2 if tokens.shape[1] > 4 else 1):
            x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.head(x)


def with_statistics(model: nn.Module, *shape: int) -> nn.Module:
    """The model in evaluation mode, its norms having seen some batches."""
    model.train()
    for _ in range(3):
        model(lamina.randn(8, *shape) + 0.2)
    return model.eval()


def decibels(wanted: lamina.Tensor, found: lamina.Tensor) -> float:
    """Signal to noise."""
    wanted, found = wanted.detach().double(), found.detach().double()
    return (10 * lamina.log10((wanted**2).sum() / ((wanted - found) ** 2).sum())).item()
