"""The report: a table of both trainings that grows by epoch, and one of what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from platform import machine, python_version
from statistics import median
from typing import NamedTuple

import numpy as np

import lamina

from .fresh import Compiling, Start
from .graphs import Compiled
from .timing import Times
from .train import BATCH, Epoch

LABEL, CELL = 30, 13
WAYS = ("eager", "traced")
TITLE = f"{'':5}" + "".join(f"  {way:<27}" for way in WAYS).rstrip()
COLUMNS = f"{'epoch':5}" + f"  {'loss':>7} {'accuracy':>9} {'seconds':>9}" * 2
RULE = "-" * len(COLUMNS)


class Row(NamedTuple):
    """One epoch of one training: its number, from 1 on, what it came to, and the test accuracy after it."""

    number: int
    epoch: Epoch
    accuracy: float


class Measured(NamedTuple):
    """What the last table shows.

    differences: of the logits of all test digits from the eager ones, by way; largest: of the eager logits.
    torch: its version, or why it takes no part.
    """

    times: Times
    rounds: int
    step: Compiled
    inference: Compiled
    cold: Compiling
    cached: Compiling
    file: Path
    start: Start
    differences: dict[str, float]
    largest: float
    torch: str


def head(trained_on: int, tested_on: int, parameters: int) -> str:
    return "\n".join(
        [
            f"Lamina {lamina.__version__} on Python {python_version()}, NumPy {np.__version__}, {machine()}",
            f"{trained_on:,} handwritten digits to learn from, {tested_on} others to be tested on",
            f"a convolutional network of {parameters:,} parameters, trained twice in turn, on one thread:",
            "every op run by itself (eager), and each step as one compiled program (traced)",
            "",
            TITLE,
            COLUMNS,
            RULE,
        ]
    )


def row(found: Sequence[Row]) -> str:
    """An epoch of both ways."""
    cells = (f"  {r.epoch.loss:7.4f} {r.accuracy:9.2%} {r.epoch.seconds:9.3f}" for r in found)
    return f"{found[0].number:5}" + "".join(cells)


def summary(histories: dict[str, list[Row]], steps: int, digits: int) -> str:
    """How both trainings ended, and how quick they were.  steps: of an epoch.  digits: to be tested on."""
    lines: list[tuple[str, Sequence[str]]] = [
        ("", WAYS),
        ("test digits right in the end", [f"{h[-1].accuracy:.2%}" for h in histories.values()]),
        (f"  of {digits}", [f"{round(h[-1].accuracy * digits)}" for h in histories.values()]),
        ("steps a second", [f"{steps / warm(h):.1f}" for h in histories.values()]),
        ("recording and compiling", ["-", compile_time(histories["traced"])]),
    ]
    table = [f"{label:<{LABEL}}" + "".join(f"{c:>{CELL}}" for c in cells) for label, cells in lines]
    note = "steps a second: by the median epoch after the first, in which the two sizes of batch are recorded"
    return "\n".join([RULE, "", *table, note])


def warm(history: list[Row]) -> float:
    """Seconds of the median epoch, without the first, in which steps are recorded and compiled."""
    return median(r.epoch.seconds for r in history[1:] or history)


def compile_time(history: list[Row]) -> str:
    """What the first epoch took beyond the others."""
    if len(history) == 1:
        return "in its epoch"
    return seconds(max(0.0, history[0].epoch.seconds - warm(history)))


def table(found: Measured) -> str:
    """All that was measured."""
    ways = (*WAYS, "torch")

    def by_way(label: str, times: dict[str, float]) -> str:
        return line(label, [seconds(times[way]) if way in times else "-" for way in ways])

    def kernels(label: str, what: Compiled) -> str:
        return line(label, [f"{len(what.before.nodes)} ops", f"{len(what.kernels)} kernels"])

    lines = [
        f"one thread; seconds are the least of {found.rounds} epochs and of 30 rounds of inference, in turn",
        "",
        line("", ways),
        by_way("time per epoch", found.times.epoch),
        *(by_way(f"inference, batch {batch}", times) for batch, times in found.times.inference.items()),
        "",
        line("kernels", ["recorded", "fused"]),
        kernels("training step", found.step),
        kernels(f"inference, batch {BATCH}", found.inference),
        "",
        line("compile time", ["cold", "cached"]),
        line("training step", [seconds(found.cold.step), seconds(found.cached.step)]),
        line(f"inference, batch {BATCH}", [seconds(found.cold.inference), seconds(found.cached.inference)]),
        "",
        line("exported file", ["size", "cold start", "of it NumPy"]),
        line(
            f"inference, batch {BATCH}",
            [
                f"{found.file.stat().st_size / 1024:.0f} KiB",
                seconds(found.start.first),
                seconds(found.start.numpy),
            ],
        ),
        "",
        line("largest difference from eager", found.differences),
        line(f"logits, to {found.largest:.1f}", [f"{d:.1e}" for d in found.differences.values()]),
    ]
    notes = [
        "kernels: all that run in a call, with those that lay arrays out for others",
        "compile time: of the call that records and compiles, in a fresh process; cached: in a second one",
        "cold start: from the start of a process with NumPy alone to the first result",
        f"torch: {found.torch}",
    ]
    return "\n".join([*lines, "", *notes])


def line(label: str, cells: Iterable[str]) -> str:
    return f"{label:<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells)


def seconds(value: float) -> str:
    """With a unit in which it has some digits before the point."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1 or unit == "us":
            break
    number = value * scale
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
