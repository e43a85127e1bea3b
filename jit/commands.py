"""The commands about exported models: `export --loader file`, `tune model.lam`."""

from __future__ import annotations

import argparse

from .artifact import write_loader
from .export import tune_file
from .tuning import Tuned, line, summary


def export(argv: list[str]) -> int:
    """Write what runs exported models where NumPy is alone."""
    parser = argparse.ArgumentParser("lamina export", description=export.__doc__)
    about = "where lamina_model.py, a module that needs NumPy alone, is written to"
    parser.add_argument("--loader", metavar="path", required=True, help=about)
    print(write_loader(parser.parse_args(argv).loader))
    return 0


def tune(argv: list[str]) -> int:
    """Make an exported model quicker, by measuring."""
    parser = argparse.ArgumentParser("lamina tune", description=tune.__doc__)
    parser.add_argument("model", help="a file that jit.export wrote")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search (60)")
    parser.add_argument("--out", help="the file to write; the model's own unless given")
    options = parser.parse_args(argv)

    def told(one: Tuned) -> None:
        print(line(one), flush=True)

    print(summary(tune_file(options.model, options.seconds, options.out, told)))
    return 0
