"""The pictures: the training curves, and a sheet of test digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lamina.ir.own_files import replacing

from .report import Row

# Eager lies below, wide and pale: where both are the same it is seen on both sides of the other.
LINES = {
    "eager": {"color": "#f0b27a", "linewidth": 5.0},
    "traced": {"color": "#1f5fbf", "linewidth": 1.6, "marker": "o", "markersize": 3.5},
}
RIGHT, WRONG = "#3a3a3a", "#d0312d"
ROWS, COLUMNS = 6, 12


def curves(histories: dict[str, list[Row]]) -> Figure:
    """Draw loss and test accuracy over the epochs, of both ways to train."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    figure.suptitle("A convolutional network learns handwritten digits, eagerly and traced", fontsize=14)
    losses, accuracies = figure.subplots(1, 2)
    for way, history in histories.items():
        at = [r.number for r in history]
        losses.plot(at, [r.epoch.loss for r in history], label=way, **LINES[way])
        label = f"{way}: {history[-1].accuracy:.1%} in the end"
        accuracies.plot(at, [r.accuracy for r in history], label=label, **LINES[way])
    losses.set_yscale("log")
    losses.set_title("Training loss (mean cross-entropy)", fontsize=11)
    accuracies.yaxis.set_major_formatter(PercentFormatter(1))
    accuracies.set_title("Test digits right", fontsize=11)
    for axes, corner in ((losses, "upper right"), (accuracies, "lower right")):
        axes.legend(loc=corner, frameon=False)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def sheet(images: np.ndarray, labels: np.ndarray, likely: np.ndarray) -> Figure:
    """Draw the mistakes, then the digits the network was least sure of.

    Shapes: images f32[n, 8, 8], labels i64[n], likely f32[n, 10].
    """
    guesses = likely.argmax(1)
    wrong = guesses != labels
    order = np.lexsort((likely.max(1), ~wrong))[: ROWS * COLUMNS]
    figure = Figure(figsize=(COLUMNS * 0.95, ROWS * 1.22 + 1.1), layout="constrained")
    mistakes = f"{wrong.sum()} of {len(labels)} test digits were mistaken" + " (red)" * bool(wrong.any())
    figure.suptitle(
        f"{mistakes}; then those the network was least sure of\n"
        "above each: what it was taken for; below: how sure of that the network was",
        fontsize=13,
    )
    for axes, i in zip(figure.subplots(ROWS, COLUMNS).flat, order, strict=False):
        picture(axes, images[i], labels[i], guesses[i], likely[i].max())
    return figure


def picture(axes: Axes, image: np.ndarray, label: int, guess: int, sure: float) -> None:
    """Draw one digit, with what the network took it for and how sure it was of that."""
    axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])
    wrong = guess != label
    axes.set_title(
        f"{guess}, is {label}" if wrong else f"{guess}",
        fontsize=11,
        pad=3,
        color=WRONG if wrong else RIGHT,
        weight="bold" if wrong else "normal",
    )
    axes.set_xlabel(f"{sure:.1%}", fontsize=8, labelpad=2, color=RIGHT)
    for side in axes.spines.values():
        side.set(color=WRONG if wrong else "#c8c8c8", linewidth=2.2 if wrong else 0.8)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, which is there whole or not at all."""
    with replacing(str(path)) as file:
        figure.savefig(file, format="png", dpi=120)
