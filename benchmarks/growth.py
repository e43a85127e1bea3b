"""How inference grows with a batch, the length of a sequence, and channels of convolutions, beside the peers.

    python benchmarks/growth.py [--threads 1 2] [--only batch sequence channels] [--seconds 2] [--write]

Each point is a row as models.py has them: contenders in turn, their outputs compared first, the least time.
--write puts the tables and their picture into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contest import RESULTS, hold_to, race, where
from models import COLORS, COLUMNS, LABEL, answered, inference
from networks import CASES, Case, gpt


def convolutions(library: Any, channels: int) -> Any:
    """Three convolutions of 3 x 3 on 28 x 28."""
    nn, layers = library.nn, []
    for _ in range(3):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten())


def batches() -> Iterator[tuple[int, Case, int]]:
    yield from ((batch, CASES["resnet18"], batch) for batch in (1, 2, 4, 8, 16))


def sequences() -> Iterator[tuple[int, Case, int]]:
    for length in (16, 64, 256, 1024):
        yield length, replace(CASES["gpt"], make=partial(gpt, length=length), shape=(length,)), 1


def channels() -> Iterator[tuple[int, Case, int]]:
    for count in (8, 16, 32, 64, 128, 256, 512):
        yield count, Case(partial(convolutions, channels=count), (count, 28, 28), 0), 1


GROWTHS = {  # what grows, of what: size, case and batch of each point
    "batch": ("ResNet-18 on 224 x 224", batches),
    "sequence": ("GPT of 4 blocks of 256", sequences),
    "channels": ("three convolutions, 3 x 3 on 28 x 28", channels),
}
Found = dict[str, dict[int, dict[str, float]]]  # by what grows, size and contender: seconds


def measure(threads: int, only: list[str], seconds: float) -> Found:
    """In a process of its own: all points on this number of threads."""
    import torch

    import lamina

    hold_to(threads)
    torch.set_num_threads(threads)
    lamina.set_num_threads(threads)
    found: Found = {}
    for name in only:
        for size, case, batch in GROWTHS[name][1]():
            times = race(inference(case, batch, threads), seconds, pause=0.02 if threads > 1 else 0.0)
            found.setdefault(name, {})[size] = {who: time.least for who, time in times.items()}
            print(line(name, size, found[name][size]), flush=True)
    return found


def title() -> str:
    return f"{'least ms':<{LABEL}}" + "".join(f"{name:>15}" for name in COLUMNS) + f"{'ahead':>8}"


def line(name: str, size: int, times: dict[str, float]) -> str:
    cells = "".join(f"{times[who] * 1e3:>15.3f}" if who in times else f"{'-':>15}" for who in COLUMNS)
    ahead = min(time for who, time in times.items() if who != "lamina") / times["lamina"]
    return f"{f'{name} {size}':<{LABEL}}{cells}{ahead:>8.2f}"


def draw(tables: dict[int, Found], path: Path) -> None:
    """Times over sizes, a line for each contender; a row of panels for each number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(next(iter(tables.values())))
    figure, panels = pyplot.subplots(
        len(tables), len(names), figsize=(5 * len(names), 4 * len(tables)), squeeze=False
    )
    for row, (threads, found) in zip(panels, tables.items(), strict=True):
        for axes, name in zip(row, names, strict=True):
            sizes = list(found[name])
            for who, color in zip(COLUMNS, COLORS, strict=True):
                times = [found[name][size].get(who) for size in sizes]
                if None not in times:
                    width = 2.5 if who == "lamina" else 1.2
                    axes.plot(sizes, [t * 1e3 for t in times], "o-", label=who, color=color, lw=width, ms=3)
            axes.set(xscale="log", yscale="log", xlabel=name, xticks=sizes, xticklabels=sizes)
            axes.set_ylabel("least ms")
            axes.minorticks_off()
            axes.set_title(f"{GROWTHS[name][0]}; {threads} thread{'s' * (threads > 1)}", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=list(GROWTHS), choices=list(GROWTHS))
    parser.add_argument("--seconds", type=float, default=2.0, help="for the rounds of one point (2)")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/growth.*")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # the child process answers here
    arguments = parser.parse_args()
    if arguments.into:
        (threads,) = arguments.threads
        arguments.into.write_text(json.dumps(measure(threads, arguments.only, arguments.seconds)))
        return
    tables: dict[int, Found] = {}
    lines: list[str] = []
    for threads in arguments.threads:
        head = ["", where(threads), title()]
        print("\n".join(head), flush=True)
        found = answered(__file__, threads, ["--only", *arguments.only, "--seconds", str(arguments.seconds)])
        tables[threads] = {name: {int(size): t for size, t in v.items()} for name, v in found.items()}
        lines += head
        for name, rows in tables[threads].items():
            lines += [line(name, size, times) for size, times in rows.items()]
    if arguments.write:
        (RESULTS / "growth.txt").write_text("\n".join(lines).lstrip() + "\n")
        draw(tables, RESULTS / "growth.png")


if __name__ == "__main__":
    main()
