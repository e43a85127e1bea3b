"""What all examples do in the end: say what was learnt, check it, draw the curve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUT = Path(__file__).parent / "out"
LINE, FAINT, BASELINE = "#1f5fbf", "#b8c9e6", "#d0312d"


class Curve:
    """The losses of one training run, and the loss to beat.

    baseline: a loss that something simpler reaches on the same data; `meaning` says what.
    measure: what the numbers are, if not losses; `rises` says that more is better.
    """

    def __init__(self, name: str, baseline: float, meaning: str, measure: str = "loss", rises: bool = False):
        self.name, self.baseline, self.meaning = name, baseline, meaning
        self.measure, self.rises = measure, rises
        self.losses: list[float] = []
        self.start = perf_counter()

    def add(self, loss: float, steps: int) -> None:
        """Note the loss of one step; every tenth of `steps` it is printed."""
        self.losses.append(loss)
        done = len(self.losses)
        if done == 1 or done % max(1, steps // 10) == 0:
            seconds = perf_counter() - self.start
            print(f"step {done:5} of {steps}   {self.measure} {loss:8.4f}   {seconds:6.1f} s", flush=True)

    def smooth(self) -> np.ndarray:
        """The losses averaged over a twentieth of the run."""
        width = max(1, len(self.losses) // 20)
        return np.convolve(self.losses, np.full(width, 1 / width), mode="valid")

    def finish(self, final: float, step: Callable) -> None:
        """Print first, last and baseline, draw the curve, and exit with 1 if the baseline was not beaten.

        final: the loss in the end, on the data that the baseline was measured on.
        step: the training step, which says how it was run if it was traced.
        """
        if find_spec("matplotlib") is None:  # an example without a picture still says what was learnt
            print("not drawn: matplotlib is not installed (pip install 'lamina[examples]')")
        else:
            save(self.draw(final), self.name)
        if hasattr(step, "explain"):
            print(step.explain().splitlines()[0])
        measured = f"first {self.measure} {self.losses[0]:.4f}, last {final:.4f}"
        print(f"{self.name}: {measured}, baseline {self.baseline:.4f} ({self.meaning})")
        better = final > self.baseline if self.rises else final < self.baseline  # a NaN never is
        if not better:
            sys.exit(f"{self.name}: the {self.measure} in the end should be better than its baseline")

    def draw(self, final: float) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.5, 4.4), layout="constrained")
        axes = figure.subplots()
        smooth = self.smooth()
        first = 1 + (len(self.losses) - len(smooth)) // 2  # each mean stands in the middle of its window
        axes.plot(range(1, len(self.losses) + 1), self.losses, color=FAINT, linewidth=1, label="each step")
        axes.plot(range(first, first + len(smooth)), smooth, color=LINE, linewidth=2, label="moving mean")
        axes.axhline(
            self.baseline, color=BASELINE, linestyle="--", linewidth=1.2, label=f"baseline: {self.meaning}"
        )
        axes.set_title(
            f"{self.name}: {self.measure} {self.losses[0]:.3f} at first, {final:.3f} tested in the end"
        )
        axes.set_xlabel("step")
        axes.set_ylabel(self.measure)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return figure


def save(figure: Figure, name: str) -> None:
    """Write examples/out/<name>.png."""
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=120)
    print(f"drawn: {OUT / name}.png")


def sheet(images: np.ndarray, columns: int, title: str) -> Figure:
    """Draw images side by side.  Shapes: [n, h, w], from 0 to 1."""
    from matplotlib.figure import Figure

    rows = -(-len(images) // columns)
    figure = Figure(figsize=(columns * 0.7, rows * 0.7 + 0.5), layout="constrained")
    figure.suptitle(title)
    for axes, image in zip(figure.subplots(rows, columns, squeeze=False).flat, images, strict=False):
        axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axes.set_axis_off()
    return figure
