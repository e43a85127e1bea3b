"""What programs import to do what torchrun does: `run.main(["--nproc-per-node", "2", "train.py"])`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .launcher import ChildFailedError, ProcessFailure, launched
from .launching import launch as command


def main(args: Sequence[str] | None = None) -> None:
    """Run a program as several processes, and exit with its status.  args: the command's, unless given."""
    sys.exit(command.run(parse_args(args)))


def get_args_parser() -> argparse.ArgumentParser:
    """The options of `python -m lamina launch`, which has torchrun's."""
    return command.parser()


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """What these arguments say, or the command's."""
    return command.parser().parse_args(list(sys.argv[1:] if args is None else args))


def run(args: argparse.Namespace) -> None:
    """Run what `parse_args` gave.  Raises ChildFailedError where a rank fails."""
    if status := launched(args):
        raise ChildFailedError(args.training_script, {0: ProcessFailure(0, 0, status)})


if __name__ == "__main__":
    main()
