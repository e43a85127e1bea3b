"""The options that all examples share."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import lamina


class Options(NamedTuple):
    """What the command line asks for: training steps, whether compiled, on which device, on several ranks."""

    steps: int
    traced: bool
    device: str = "cpu"
    ddp: bool = False

    def trace(self, step: Callable) -> Callable:
        """Decorate a training step: compiled with `--traced`, as it is without."""
        return lamina.jit.trace(step) if self.traced else step


def options(description: str, usual: int, quick: int, on_ranks: bool = False) -> Options:
    """What the command line says: `--steps N`, `--quick`, or `usual` steps; `--traced`; `--device`.

    Tensors and modules that an example makes from now on lie on that device.
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
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: where tensors and networks are made")
    if on_ranks:
        about = "share each batch with the other ranks: mpiexec -n 4 python ... --ddp"
        parser.add_argument("--ddp", action="store_true", help=about)
    found = parser.parse_args()
    if found.steps < 2:
        parser.error(f"two steps or more are needed, not {found.steps}")
    lamina.set_default_device(found.device)
    return Options(found.steps, found.traced, found.device, on_ranks and found.ddp)
