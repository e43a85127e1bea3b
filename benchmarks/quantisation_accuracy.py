"""What quantisation changes of what trained networks say: top-1 before and after, and how often both agree.

    python benchmarks/quantisation_accuracy.py [--steps 600] [--write benchmarks/results/quantisation.md]

Two networks are trained here: the demo's convolutions on scikit-learn's digits, and a residual network on
images of 32x32x3 that are made up: each of ten classes is a smooth pattern, seen at some place, in some
contrast, below another class's and noise.  Calibration data are 256 images of the training set.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import lamina
from lamina import nn, quantization
from lamina.demo import digits
from lamina.demo.network import network
from lamina.nn import functional as F

CLASSES, SIZE = 10, 32
CHOICES: dict[str, dict] = {
    "int8, mse": {"scheme": "int8", "observer": "mse"},
    "int8, minmax": {"scheme": "int8", "observer": "minmax"},
    "int8, percentile": {"scheme": "int8", "observer": "percentile"},
    "int8, entropy": {"scheme": "int8", "observer": "entropy"},
    "int8-dynamic": {"scheme": "int8-dynamic"},
    "int8-weights": {"scheme": "int8-weights"},
    "int4-weights, groups of 32": {"scheme": "int4-weights", "group": 32},
    "bfloat16": {"scheme": "bfloat16"},
}


# ---- data
def made_up(count: int, seed: int) -> tuple[lamina.Tensor, lamina.Tensor]:
    """Images of ten patterns.  Shapes: f32 [count, 3, 32, 32], i64 [count]."""
    patterns = _smooth(np.random.default_rng(0), CLASSES, SIZE + 16)
    rng = np.random.default_rng(seed)
    labels, others = rng.integers(0, CLASSES, (2, count))
    x = np.empty((count, 3, SIZE, SIZE), np.float32)
    for at in range(count):
        (top, left), (down, right) = rng.integers(0, 16, (2, 2))
        own = patterns[labels[at], :, top : top + SIZE, left : left + SIZE]
        other = patterns[others[at], :, down : down + SIZE, right : right + SIZE]
        x[at] = rng.uniform(0.5, 1.5) * own + rng.uniform(0.0, 0.9) * other + rng.normal(size=own.shape)
    return lamina.tensor(x), lamina.tensor(labels.astype(np.int64))


def _smooth(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Noise of low frequencies."""
    spectrum = np.fft.rfft2(rng.normal(size=(count, 3, size, size)))
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]
    spectrum *= np.exp(-((rows**2 + columns**2) * size * 1.5))
    x = np.fft.irfft2(spectrum, (size, size))
    return (x / x.std((1, 2, 3), keepdims=True)).astype(np.float32)


# ---- networks
class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.down = None
        if stride > 1:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: lamina.Tensor) -> lamina.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + (x if self.down is None else self.down(x)))


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def trained(model: nn.Module, images: lamina.Tensor, labels: lamina.Tensor, steps: int) -> nn.Module:
    """The model after so many steps of 64 images, the rate falling to 0."""
    optimiser = lamina.optim.Adam(model.parameters(), lr=2e-3)

    @lamina.jit.trace
    def step(x: lamina.Tensor, y: lamina.Tensor) -> lamina.Tensor:
        loss = F.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    model.train()
    rng = np.random.default_rng(0)
    for at in range(steps):
        optimiser.param_groups[0]["lr"] = 2e-3 * (1 - at / steps)
        some = lamina.tensor(rng.integers(0, len(labels), 64))
        step(images[some], labels[some])
    return model.eval()


# ---- what is said of them
def answers(model: Callable, images: lamina.Tensor) -> np.ndarray:
    predict = lamina.jit.trace(model)
    whole = len(images) // 256 * 256
    with lamina.no_grad():
        parts = [predict(images[at : at + 256].clone()).argmax(1) for at in range(0, whole, 256)]
        parts += [model(images[whole:]).argmax(1)] if whole < len(images) else []
    return lamina.cat(parts).numpy()


def rows(
    name: str, model: nn.Module, train: lamina.Tensor, images: lamina.Tensor, labels: np.ndarray
) -> Iterator[str]:
    """A table of the schemes, and the layers of the first, worst first."""
    wanted = answers(model, images)
    yield f"## {name}"
    yield ""
    yield f"{len(labels):,} test images; float32 is right about {(wanted == labels).mean():.2%} of them."
    yield ""
    yield "| scheme | top-1 | agrees with float32 |"
    yield "|---|---|---|"
    data = [train[at : at + 64] for at in range(0, 256, 64)]
    for choice, how in CHOICES.items():
        found = answers(lamina.quantize(model, data, **how), images)
        yield f"| {choice} | {(found == labels).mean():.2%} | {(found == wanted).mean():.2%} |"
    made = lamina.quantize(model, data)
    yield ""
    yield "Layers of int8 (mse) against float32, worst first:"
    yield ""
    yield "```text"
    yield str(quantization.report(made, model, data[:2]))
    yield "```"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600, help="of training, for each network")
    parser.add_argument("--write", type=Path, help="the file that the tables go into")
    options = parser.parse_args()
    lamina.manual_seed(0)
    found = digits.load()
    model = trained(network(lamina), found.train.images, found.train.labels, options.steps)
    lines = ["# What quantisation changes of answers", "", f"    {' '.join(sys.argv)}", ""]
    lines += [*rows("Digits", model, found.train.images, found.test.images, found.test.labels.numpy())]
    images, labels = made_up(10_000, 1)
    tests, wanted = made_up(2_560, 2)
    model = trained(residual(), images, labels, options.steps)
    lines += rows("Images that are made up", model, images, tests, wanted.numpy())
    text = "\n".join(lines)
    print(text)
    if options.write is not None:
        options.write.write_text(text)


if __name__ == "__main__":
    main()
