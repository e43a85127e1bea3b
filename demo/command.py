"""The command line: its options, what it needs, how it ends."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

REQUIRED = 0.97  # of the test digits; the seeds 0 to 9 reached 98.9 % to 100 % both ways, in the usual epochs
APART = (
    0.01  # how far eager and traced, which round otherwise, may end from each other; 0.003 for those seeds
)
NEEDED = {"sklearn": "scikit-learn", "tqdm": "tqdm", "matplotlib": "matplotlib"}  # module -> its name to pip


def main(argv: list[str] | None = None) -> int:
    """Train a network on handwritten digits eagerly and traced, report and draw.  Returns the exit status.

    0: done.  1: something is missing, can't be written or exported, too few test digits were right, or the
    two ways to train ended apart.  130: interrupted.
    """
    options = parsed(argv)
    missing = [name for module, name in NEEDED.items() if find_spec(module) is None]
    if not options.pictures:
        missing = [name for name in missing if name != "matplotlib"]
    if missing:
        return failed(f"the demo needs {' and '.join(missing)}: pip install 'lamina[demo]'")
    if options.out.exists() and not options.out.is_dir():
        return failed(f"{options.out} is a file; the demo needs a folder to write to: pass --out")
    try:
        from lamina.jit import ExportError

        from .graphs import NotCompiled
        from .show import show

        accuracies = show(options.epochs, options.seed, options.out, options.pictures)
    except KeyboardInterrupt:
        print("\nInterrupted. No file was left half-written.", file=sys.stderr)
        return 130
    except NotCompiled as error:
        return failed(f"the traced training ran eagerly:\n{error}")
    except ExportError as error:
        return failed(f"the network could not be exported: {error}")
    except OSError as error:
        return failed(f"could not write to {options.out}: {error.strerror or error}")
    for way, accuracy in accuracies.items():
        if accuracy < REQUIRED:
            return failed(
                f"trained {way}, the network got {accuracy:.1%} of the test digits right, and "
                f"{REQUIRED:.0%} are required"
            )
    eager, traced = accuracies["eager"], accuracies["traced"]
    if abs(eager - traced) > APART:
        return failed(
            f"eager and traced training ended at {eager:.2%} and {traced:.2%} of the test digits: more than "
            f"{APART * 100:.0f} point apart"
        )
    return 0


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lamina demo",
        description="Train a small convolutional network on real handwritten digits, eagerly and traced.",
    )
    parser.add_argument("--epochs", type=positive, default=20, help="times over the training digits (20)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order of the digits (0)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="the folder for files (demo-out)")
    parser.add_argument(
        "--no-pictures", dest="pictures", action="store_false", help="draw nothing: no PNGs and SVGs"
    )
    return parser.parse_args(argv)


def positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, not {text!r}")
    return int(text)


def failed(sentence: str) -> int:
    print(f"lamina demo: {sentence}", file=sys.stderr)
    return 1
