"""A multi-layer perceptron tells two interleaved half moons apart, which no straight line can.

Shows: nn.Sequential, a hand-written training loop, SGD with momentum, binary cross-entropy.
"""

import math
from collections.abc import Callable

import numpy as np
from curves import Curve, save
from matplotlib.figure import Figure
from options import Options, options

import lamina as torch
from lamina import nn, optim


def moons(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on two half circles, with noise.  Shapes: f32[2n, 2], labels f32[2n, 1]."""
    angle = math.pi * torch.rand(2, n)
    upper = torch.stack([angle[0].cos(), angle[0].sin()], dim=1)
    lower = torch.stack([1 - angle[1].cos(), 0.5 - angle[1].sin()], dim=1)
    points = torch.cat([upper, lower]) + 0.12 * torch.randn(2 * n, 2)
    return points, torch.cat([torch.zeros(n, 1), torch.ones(n, 1)])


def train(model: nn.Module, points: torch.Tensor, labels: torch.Tensor, run: Options, note) -> Callable:
    """Train on batches of 128 points; `note` is told each loss.  Returns the training step."""
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @run.trace
    def step(points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.binary_cross_entropy_with_logits(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        chosen = torch.randint(len(points), (128,))
        note(step(points[chosen], labels[chosen]).item())
    return step


def tested(model: nn.Module, points: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Loss and accuracy."""
    with torch.no_grad():
        logits = model(points)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return loss.item(), ((logits > 0) == (labels > 0.5)).float().mean().item()


def drawn(model: nn.Module, points: torch.Tensor, labels: torch.Tensor) -> Figure:
    """The points, over how likely the model finds the second moon at each place."""
    across, up = np.meshgrid(np.linspace(-1.5, 2.5, 160), np.linspace(-1.1, 1.6, 110))
    places = torch.tensor(np.stack([across.ravel(), up.ravel()], axis=1), dtype=torch.float32)
    with torch.no_grad():
        likely = model(places).sigmoid().cpu().numpy().reshape(across.shape)
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    shades = axes.contourf(across, up, likely, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.6)
    figure.colorbar(shades, label="probability of the second moon")
    for moon, colour in enumerate(("#1f4e8c", "#a3212b")):
        chosen = points.cpu().numpy()[labels.cpu().numpy()[:, 0] == moon]
        axes.scatter(*chosen.T, s=7, color=colour, label=("first moon", "second moon")[moon])
    axes.set_title("mlp: two moons (test points) and where the perceptron divides them")
    axes.legend(loc="upper right")
    return figure


def main() -> None:
    run = options(__doc__, usual=2000, quick=300)
    torch.manual_seed(0)
    points, labels = moons(1000)
    test_points, test_labels = moons(500)

    line = nn.Linear(2, 1)
    train(line, points, labels, run, note=lambda loss: None)
    baseline, right = tested(line, test_points, test_labels)
    print(f"a straight line: loss {baseline:.4f}, {right:.1%} of the test points")

    curve = Curve("mlp", baseline, "a straight line, trained alike")
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    step = train(model, points, labels, run, note=lambda loss: curve.add(loss, run.steps))
    final, right = tested(model, test_points, test_labels)
    print(f"the perceptron: loss {final:.4f}, {right:.1%} of the test points")
    save(drawn(model, test_points, test_labels), "mlp-moons")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
