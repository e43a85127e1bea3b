"""`python -m lamina show model.lam`: a page about a model in a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..ir.errors import LaminaError
from ..jit import ModelError, load
from .show_model import show


def main(argv: Sequence[str]) -> int:
    """Write a page that shows a model: its ops, the kernels they become, and what those take."""
    parser = argparse.ArgumentParser("lamina show", description=main.__doc__)
    parser.add_argument("model", help="a file that jit.export wrote, or an ONNX model")
    parser.add_argument("-o", "--out", metavar="FILE", help="the page; model.html unless given")
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="a size that can change"
    )
    parser.add_argument("--no-time", action="store_true", help="run nothing of the model")
    about = "time the file's own code, too, which can do whatever its author wanted"
    parser.add_argument("--trust", action="store_true", help=about)
    parser.add_argument("--title", help="of the page; the file's name unless given")
    options = parser.parse_args(argv)
    path = Path(options.model)
    out = Path(options.out) if options.out else Path(path.name).with_suffix(".html")
    sizes = {}
    for each in options.size:
        name, _, number = each.partition("=")
        if not number.isdecimal():
            parser.error(f"--size: NAME=N, not {each!r}")
        sizes[name] = int(number)
    try:
        model = load(path) if options.trust and path.suffix != ".onnx" else path
        show(model, out, sizes=sizes, time=not options.no_time, title=options.title)
    except (LaminaError, ModelError, OSError) as error:
        text = str(error)
        print(text if str(path) in text else f"{path}: {text}", file=sys.stderr)
        return 1
    print(out)
    return 0
