"""The whole show: load, train, report, write."""

from __future__ import annotations

import sys
from pathlib import Path

from tqdm import tqdm

import lamina

from . import digits, report
from .network import Network, parameter_count
from .train import probabilities, steps_per_epoch, train


def show(epochs: int, seed: int, out: Path, pictures: bool) -> float:
    """Train for `epochs`, print a report, write what came of it to `out`.  Returns the test accuracy, 0 to 1.

    Raises OSError where `out` can't be written.
    """
    # Products this small gain little from a second thread, and lose much when another program wants the core.
    lamina.set_num_threads(1)
    lamina.manual_seed(seed)
    data = digits.load()
    network = Network()
    parameters = parameter_count(network)
    print(report.head(len(data.train.labels), len(data.test.labels), parameters), flush=True)

    history = []
    steps = epochs * steps_per_epoch(data)
    # Not on a terminal (disable=None) there is no bar, only the table.
    with tqdm(total=steps, unit="batch", leave=False, disable=None, file=sys.stderr) as bar:

        def on_step(loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update()

        for epoch in train(network, data, epochs, on_step):
            history.append(epoch)
            bar.write(report.row(epoch))
            sys.stdout.flush()  # into a log, too, epoch by epoch

    likely = probabilities(network, data.test.images).numpy()
    guesses, labels = likely.argmax(1), data.test.labels.numpy()
    print(report.summary(history, len(data.train.labels), guesses, labels, parameters))

    out.mkdir(parents=True, exist_ok=True)
    written = ["model.safetensors"]
    lamina.save(network.state_dict(), out / written[0])
    if pictures:
        from . import pictures as draw

        draw.save(draw.curve(history), out / "curve.png")
        draw.save(draw.sheet(data.test.images.numpy()[:, 0], labels, likely), out / "digits.png")
        written += ["curve.png", "digits.png"]
    print(f"\nwritten to {out}/: {', '.join(written)}")
    return float((guesses == labels).mean())
