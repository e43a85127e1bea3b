"""The options that all examples share."""

import argparse

import lamina


def steps(description: str, usual: int, quick: int) -> int:
    """The number of training steps that the command line asks for: `--steps N`, `--quick`, or `usual`."""
    # Products this small gain little from a second thread, and lose much when another program wants the core.
    lamina.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=usual, help=f"training steps ({usual})")
    parser.add_argument(
        "--quick", action="store_const", const=quick, dest="steps", help=f"{quick} steps: does it learn?"
    )
    found = parser.parse_args().steps
    if found < 2:
        parser.error(f"two steps or more are needed, not {found}")
    return found
