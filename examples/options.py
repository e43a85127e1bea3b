"""The options that all examples share."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import lamina


class Options(NamedTuple):
    """How many training steps the command line asks for, and whether they are compiled, on several ranks."""

    steps: int
    traced: bool
    ddp: bool = False

    def trace(self, step: Callable) -> Callable:
        """Decorate a training step: compiled with `--traced`, as it is without."""
        return lamina.jit.trace(step) if self.traced else step


def options(description: str, usual: int, quick: int, on_ranks: bool = False) -> Options:
    """What the command line says: `--steps N`, `--quick`, or `usual` steps; `--traced`.

    on_ranks: whether there is `--ddp`.
    """
    # Products this small gain little from a second thread, and lose much when another program wants the core.
    lamina.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=usual, help=f"training steps ({usual})")
    parser.add_argument(
        "--quick", action="store_const", const=quick, dest="steps", help=f"{quick} steps: does it learn?"
    )
    parser.add_argument("--traced", action="store_true", help="compile the training step")
    if on_ranks:
        about = "share each batch with the other ranks: mpiexec -n 4 python ... --ddp"
        parser.add_argument("--ddp", action="store_true", help=about)
    found = parser.parse_args()
    if found.steps < 2:
        parser.error(f"two steps or more are needed, not {found.steps}")
    return Options(found.steps, found.traced, on_ranks and found.ddp)
