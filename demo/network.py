"""The network: three convolutions, each normalised and rectified, and a linear layer."""

from __future__ import annotations

import lamina
from lamina import nn


class Network(nn.Module):
    """Tell the ten digits apart.  Shapes: f32[n, 1, 8, 8] -> f32[n, 10], the logits."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.features = nn.Sequential(
            *block(1, width),
            *block(width, 2 * width),
            nn.MaxPool2d(2),
            *block(2 * width, 4 * width),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(4 * width * 2 * 2, 10)

    def forward(self, images: lamina.Tensor) -> lamina.Tensor:
        return self.head(self.features(images).flatten(1))


def block(inputs: int, outputs: int) -> list[nn.Module]:
    # The normalisation shifts by channel, so the convolution needs no bias.
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def parameter_count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())
