"""Teach a small network 1797 handwritten digits, and write it as a C library: digits.so and digits.h.

    python examples/c_library/write_digits.py [--steps 400] [--out FOLDER] [--levels x86-64-v3 ...]

The programs beside this file read a picture from it: see README.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lamina
from lamina import nn


def network() -> nn.Module:
    """Pictures of 8 x 8, from 0 to 1, to ten scores."""
    lamina.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)
    )


def teach(model: nn.Module, steps: int) -> float:
    """Train, and give the share of digits it has not seen that it reads right."""
    from lamina.demo.digits import load

    train, test = load()
    optimizer = lamina.optim.Adam(model.parameters(), lr=3e-3)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(steps):
        picked = lamina.randint(0, len(train.labels), (64,))
        optimizer.zero_grad()
        loss_of(model(train.images[picked]), train.labels[picked]).backward()
        optimizer.step()
    model.eval()
    with lamina.no_grad():
        return float((model(test.images).argmax(1) == test.labels).float().mean())


def write(model: nn.Module, folder: Path, levels: list[str] | None = None) -> None:
    """Write digits.so and digits.h, for any number of pictures at once."""
    example = lamina.zeros(2, 1, 8, 8)
    lamina.jit.export(
        model.eval(), folder / "digits.so", example, levels=levels, dynamic={0: {0: ("batch", 1, 4096)}}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--levels", nargs="*", help="of the CPU; by default those of machines of this kind")
    options = parser.parse_args()
    model = network()
    print(f"{100 * teach(model, options.steps):.1f} % of digits it had not seen are read right")
    write(model, options.out, options.levels)


if __name__ == "__main__":
    main()
