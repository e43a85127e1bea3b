"""Training steps on images of the sizes that papers have: Lamina's traced step against PyTorch.

    python benchmarks/training.py [--threads 1 2] [--only unet dcgan] [--seconds 20] [--compiled] [--write]

A step is forward, loss, backward and Adam on one batch, in float32.  Contenders take turns in one process
for each number of threads: PyTorch as it is and in channels-last, and with --compiled through torch.compile,
which takes minutes.  Losses of the second step are compared first.  ahead: the best peer's least time over
Lamina's.  TF/s: of Lamina's step, by the multiplications and additions of three direct forward passes, which
is what Winograd's algorithm does with fewer.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networks
import numpy as np
from contest import RESULTS, hold_to, on_each, race, where
from networks import weigh

COLUMNS = ("lamina", "torch", "channels last", "compiled")


def unet(library: Any, width: int = 32) -> Any:
    """Three levels of two convolutions each.  Source: Ronneberger et al., U-Net, 2015."""
    nn, cat = library.nn, library.cat

    def twice(inputs: int, outputs: int) -> Any:
        conv = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(
            *conv, nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three = (
                twice(3, width),
                twice(width, 2 * width),
                twice(2 * width, 4 * width),
            )
            self.pool = nn.MaxPool2d(2)
            self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
            self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
            self.back2, self.back1 = twice(4 * width, 2 * width), twice(2 * width, width)
            self.last = nn.Conv2d(width, 3, 1)

        def forward(self, x):
            one = self.one(x)
            two = self.two(self.pool(one))
            three = self.three(self.pool(two))
            two = self.back2(cat([self.up2(three), two], 1))
            return self.last(self.back1(cat([self.up1(two), one], 1)))

    return UNet()


def generator(library: Any, width: int = 64) -> Any:
    """DCGAN's, from 100 numbers to 64 x 64.  Source: Radford et al., 2015."""
    nn = library.nn
    layers, inputs = [], 100
    for outputs, stride, padding in ((8, 1, 0), (4, 2, 1), (2, 2, 1), (1, 2, 1)):
        layers += [nn.ConvTranspose2d(inputs, width * outputs, 4, stride, padding, bias=False)]
        layers += [nn.BatchNorm2d(width * outputs), nn.ReLU()]
        inputs = width * outputs
    return nn.Sequential(*layers, nn.ConvTranspose2d(inputs, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(library: Any, width: int = 64) -> Any:
    """DCGAN's, of 64 x 64."""
    nn = library.nn
    layers, inputs = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)], width
    for _ in range(3):
        layers += [nn.Conv2d(inputs, 2 * inputs, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(2 * inputs), nn.LeakyReLU(0.2)]
        inputs *= 2
    return nn.Sequential(*layers, nn.Conv2d(inputs, 1, 4, 1, 0, bias=False), nn.Flatten())


def autoencoder(library: Any, width: int = 32) -> Any:
    """A convolutional autoencoder of 64 x 64, as in variational ones, without the noise."""
    nn = library.nn
    down, up, inputs = [], [], 3
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        down += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.ReLU()]
        up = [nn.ConvTranspose2d(outputs, inputs, 4, 2, 1), *([nn.ReLU()] if up else []), *up]
        inputs = outputs
    size = 8 * width * 16
    middle = [nn.Flatten(), nn.Linear(size, 128), nn.Linear(128, size), nn.Unflatten(1, (8 * width, 4, 4))]
    return nn.Sequential(*down, *middle, *up[:-1])


@dataclass(frozen=True)
class Case:
    """A network, the shape of its batch; classes that it tells apart, 0 where it is to make an image."""

    make: Callable
    shape: tuple[int, ...]
    classes: int = 0


CASES = {
    "resnet18": Case(networks.resnet18, (32, 3, 224, 224), 1000),
    "mobilenet_v2": Case(networks.mobilenet_v2, (32, 3, 224, 224), 1000),
    "resnet50": Case(networks.resnet50, (16, 3, 224, 224), 1000),
    "unet": Case(unet, (8, 3, 128, 128)),
    "generator": Case(generator, (64, 100, 1, 1)),
    "discriminator": Case(discriminator, (64, 3, 64, 64), 1),
    "autoencoder": Case(autoencoder, (64, 3, 64, 64)),
}


def step_of(case: Case, library: Any, how: str) -> Callable[[], Any]:
    """A step in a library's names, untraced."""
    model = case.make(library)
    with library.no_grad():
        weigh(model)
    model.train()
    functional = library.nn.functional
    optimizer = library.optim.Adam(model.parameters(), lr=1e-4)
    rng = np.random.default_rng(1)
    x = library.tensor(rng.standard_normal(case.shape).astype(np.float32))
    if how == "channels last":
        model, x = (t.to(memory_format=library.channels_last) for t in (model, x))
    with library.no_grad():
        shape = tuple(case.make(library)(x[:2]).shape[1:])
    if case.classes > 1:
        labels = library.tensor(rng.integers(0, case.classes, case.shape[:1]))
    else:
        labels = library.tensor(rng.random((case.shape[0], *shape)).astype(np.float32))
    loss_of = functional.cross_entropy if case.classes > 1 else functional.mse_loss
    run = library.compile(model) if how == "compiled" else model

    def step():
        optimizer.zero_grad()
        loss = loss_of(run(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def contenders(case: Case, compiled: bool) -> dict[str, Callable[[], Any]]:
    import torch

    import lamina

    found = {"lamina": lamina.jit.trace(step_of(case, lamina, "lamina"))}
    for how in COLUMNS[1:] if compiled else COLUMNS[1:3]:
        found[how] = step_of(case, torch, how)
    losses = {name: [float(call().detach()) for _ in range(2)][-1] for name, call in found.items()}
    for name, loss in losses.items():
        if not abs(loss - losses["torch"]) < 2e-2 * abs(losses["torch"]):
            raise SystemExit(f"{name} trains something else: its loss is {loss}, torch's {losses['torch']}")
    return found


def multiplications(case: Case) -> float:
    """Of one forward pass, and as many additions."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        case.make(torch)(torch.zeros(case.shape))
    return counter.get_total_flops()


def measure(threads: int, only: list[str], seconds: float, compiled: bool) -> None:
    import torch

    import lamina

    hold_to(threads)
    torch.set_num_threads(threads)
    lamina.set_num_threads(threads)
    title = f"{'ms: least (median)':<16}" + "".join(f"{name:>24}" for name in COLUMNS)
    print(f"\n{where(threads)}\n\n{title}{'ahead':>8}{'medians':>9}{'TF/s':>7}", flush=True)
    for name in only:
        case = CASES[name]
        times = race(contenders(case, compiled), seconds, pause=0.02)
        cells = ""
        for column in COLUMNS:
            t = times.get(column)
            cells += f"{f'{t.least * 1e3:.1f} ({t.median * 1e3:.1f})' if t else '-':>24}"
        rivals = [t for column, t in times.items() if column != "lamina"]
        ahead = min(t.least for t in rivals) / times["lamina"].least
        medians = min(t.median for t in rivals) / times["lamina"].median
        rate = 3 * multiplications(case) / times["lamina"].least / 1e12
        print(f"{name:<16}{cells}{ahead:>8.2f}{medians:>9.2f}{rate:>7.3f}", flush=True)
        gc.collect()


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seconds", type=float, default=20.0, help="for the rounds of one row (20)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile, too")
    parser.add_argument("--write", action="store_true", help="also into benchmarks/results/training.txt")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.threads[0], options.only, options.seconds, options.compiled)
        return
    rest = ["--only", *options.only, "--seconds", str(options.seconds)]
    rest += ["--compiled"] if options.compiled else []
    on_each(__file__, options.threads, rest, RESULTS / "training.txt" if options.write else None)


if __name__ == "__main__":
    main()
