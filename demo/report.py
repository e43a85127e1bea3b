"""The report: a table that grows by epoch, and a summary below it."""

from __future__ import annotations

from platform import machine, python_version

import numpy as np

import lamina

from .train import Epoch

COLUMNS = f"{'epoch':>5}  {'loss':>8}  {'train accuracy':>14}  {'test accuracy':>13}  {'seconds':>7}"
RULE = "-" * len(COLUMNS)


def head(trained_on: int, tested_on: int, parameters: int) -> str:
    return "\n".join(
        [
            f"Lamina {lamina.__version__} on Python {python_version()}, NumPy {np.__version__}, {machine()}",
            f"{trained_on:,} handwritten digits to learn from, {tested_on} others to be tested on",
            f"a convolutional network of {parameters:,} parameters",
            "",
            COLUMNS,
            RULE,
        ]
    )


def row(epoch: Epoch) -> str:
    return (
        f"{epoch.number:5}  {epoch.loss:8.4f}  {epoch.train:14.2%}  {epoch.test:13.2%}  {epoch.seconds:7.2f}"
    )


def summary(
    epochs: list[Epoch], images: int, guesses: np.ndarray, labels: np.ndarray, parameters: int
) -> str:
    """Totals, and how many of each test digit were right.  images: the number in each epoch."""
    right = guesses == labels
    learning = sum(e.learning for e in epochs)
    lines = [
        ("final test accuracy", f"{right.mean():.2%} ({right.sum()} of {len(right)})"),
        ("parameters", f"{parameters:,}"),
        ("training speed", f"{images * len(epochs) / learning:,.0f} images a second"),
        ("total time", f"{sum(e.seconds for e in epochs):.1f} s"),
    ]
    digits = range(10)
    per_digit = [
        "digit     " + "".join(f"{d:>6}" for d in digits),
        "of these  " + "".join(f"{(labels == d).sum():>6}" for d in digits),
        "right     " + "".join(f"{right[labels == d].sum():>6}" for d in digits),
        "accuracy  " + "".join(f"{right[labels == d].mean():>6.0%}" for d in digits),
    ]
    return "\n".join([RULE, "", *(f"{name:<21}{value}" for name, value in lines), "", *per_digit])
