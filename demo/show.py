"""The whole show: load, train both ways, look at the graphs, measure, report, write."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

import lamina
from lamina import jit

from . import fresh, graphs, peer, report
from .digits import Digits, load
from .network import parameter_count
from .report import Measured, Row
from .timing import timed
from .train import BATCH, Training, eagerly, steps_per_epoch

ROUNDS = 5  # epochs that are timed


def show(epochs: int, seed: int, out: Path, pictures: bool) -> dict[str, float]:
    """Train eagerly and traced, print a report, write what came of it to `out`.

    Returns the test accuracies by way, 0 to 1.  Raises OSError where `out` can't be written, ExportError for
    a network that can't be exported, NotCompiled where "traced" would be a lie.
    """
    # Products this small gain little from a second thread, and lose much when another program wants the core.
    lamina.set_num_threads(1)
    digits = load()
    trainings = {
        "eager": Training(digits, epochs, seed, eagerly),
        "traced": Training(digits, epochs, seed, jit.trace),
    }
    count = len(digits.test.labels)
    parameters = parameter_count(trainings["eager"].network)
    print(report.head(len(digits.train.labels), count, parameters), flush=True)
    histories = learn(trainings, digits, epochs)
    traced = trainings["traced"]
    graphs.must_be_compiled(traced.step)
    print(report.summary(histories, steps_per_epoch(digits), count))
    print(f"traced {traced.step.explain().splitlines()[0]}", flush=True)

    out.mkdir(parents=True, exist_ok=True)
    step, inference = graphs.compiled(digits)
    written = graphs.write(step, inference, out, pictures)
    print(f"\nwhat inference of {BATCH} digits begins with, as recorded:")
    print(graphs.excerpt(inference.before, "%0 =", 3))
    print("and after the passes, which made one kernel of the three:")
    print(graphs.excerpt(inference.after, "fused", 4), flush=True)

    lamina.save(traced.network.state_dict(), out / "model.safetensors")
    print(f"\n{report.table(measured(traced, digits, step, inference, min(ROUNDS, epochs), seed, out))}")
    written += ["model.safetensors", "digits.lam"]
    if pictures:
        from . import pictures as draw

        images, labels = (x.numpy() for x in digits.test)
        likely = traced.logits(digits.test.images).softmax(1).numpy()
        draw.save(draw.curves(histories), out / "curve.png")
        draw.save(draw.sheet(images[:, 0], labels, likely), out / "digits.png")
        written += ["curve.png", "digits.png"]
    print(f"\nwritten to {out}/: {', '.join(written)}")
    return {way: history[-1].accuracy for way, history in histories.items()}


def learn(trainings: dict[str, Training], digits: Digits, epochs: int) -> dict[str, list[Row]]:
    """Train in each way, an epoch at a time in turn, and print a line after each."""
    histories: dict[str, list[Row]] = {way: [] for way in trainings}
    steps = epochs * steps_per_epoch(digits) * len(trainings)
    # Not on a terminal (disable=None) there is no bar, only the table.
    with tqdm(total=steps, unit="step", leave=False, disable=None, file=sys.stderr) as bar:

        def on_step(loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update()

        for number in range(1, epochs + 1):
            for way, training in trainings.items():
                bar.set_description(way, refresh=False)
                epoch = training.epoch(on_step)
                histories[way].append(Row(number, epoch, accuracy(training, digits)))
            bar.write(report.row([history[-1] for history in histories.values()]))
            sys.stdout.flush()  # into a log, too, epoch by epoch
    return histories


def accuracy(training: Training, digits: Digits) -> float:
    """The share of the test digits that the network is right about."""
    guesses = training.logits(digits.test.images).argmax(1)
    return (guesses == digits.test.labels).float().mean().item()


def measured(
    traced: Training,
    digits: Digits,
    step: graphs.Compiled,
    inference: graphs.Compiled,
    rounds: int,
    seed: int,
    out: Path,
) -> Measured:
    """All of the last table; the exported file, which is part of it, is written to `out`."""
    torch, about = peer.torch()
    ways = "eager, traced and torch" if torch else "eager and traced"
    say(f"timing epochs and inference: {ways}, in turn")
    times = timed(digits, rounds, seed, torch)
    say("compiling in fresh processes, with an empty cache and with a full one")
    cold, cached = fresh.compiling()
    say("exporting the traced network, and starting the file in a process with NumPy alone")
    images = batches(digits.test.images.numpy())
    eager = np.stack([traced.logits(lamina.tensor(x)).numpy() for x in images])
    runs = np.stack([traced.inference(lamina.tensor(x))().numpy() for x in images])
    traced.network.eval()
    file = out / "digits.lam"
    jit.export(traced.forward, file, lamina.tensor(images[0]))
    start = fresh.start(file, images)
    differences = {
        "traced": float(np.abs(runs - eager).max()),
        "exported": float(np.abs(start.logits - eager).max()),
    }
    largest = float(np.abs(eager).max())
    return Measured(times, rounds, step, inference, cold, cached, file, start, differences, largest, about)


def batches(images: np.ndarray) -> np.ndarray:
    """All images in batches of 64; the last may repeat some.  Shapes: [n, ...] -> [k, 64, ...]."""
    starts = [*range(0, len(images) - BATCH, BATCH), len(images) - BATCH]
    return np.stack([images[at : at + BATCH] for at in starts])


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)
