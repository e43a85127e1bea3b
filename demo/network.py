"""The network: three convolutions, each normalised and rectified, and a linear layer.

Written once for Lamina and PyTorch, whose names are the same: `library` is either.
"""

from __future__ import annotations

from typing import Any


def network(library: Any, width: int = 16) -> Any:
    """A module that tells the ten digits apart.  Shapes: f32[n, 1, 8, 8] -> f32[n, 10], the logits."""
    nn = library.nn

    def block(inputs: int, outputs: int) -> list:
        # The normalisation shifts by channel, so the convolution needs no bias.
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, width),
        *block(width, 2 * width),
        nn.MaxPool2d(2),
        *block(2 * width, 4 * width),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width * 2 * 2, 10),
    )


def parameter_count(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())
