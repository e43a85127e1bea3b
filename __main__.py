"""The command line: `python -m lamina COMMAND …`, one function for each, loaded when asked for."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from .ir.version import __version__

# By name: what it does, and the module and function that takes the rest of the line and returns the status.
COMMANDS = {
    "run": (
        "run a program, which gets Lamina where it imports torch, or an ONNX model",
        "facade.commands:run",
    ),
    "demo": ("train a network on handwritten digits", "demo.command:main"),
    "info": ("print versions and what this machine is", "facade.commands:info"),
    "names": ("tell whether names of PyTorch's are offered, and why not", "facade.commands:names"),
    "export": ("write what runs exported models where NumPy is alone", "jit.commands:export"),
    "show": ("write a page that shows a model, its kernels and their times", "viewer.show_command:main"),
    "plan": ("tell how a training step fits and runs on many devices", "planning.plan_command:main"),
    "launch": ("run a program as several processes, by MPI", "distributed.launching.launch:launch"),
    "serve": ("serve models over HTTP", "serving.serve_command:serve"),
    "chat": ("talk with a language model of a folder or a GGUF file", "language.chat:main"),
    "embed": ("print vectors of texts, by an encoder of a folder", "language.embed:main"),
    "tune": ("make an exported model quicker, by measuring", "jit.commands:tune"),
}


def main(argv: list[str] | None = None) -> int:
    """Do what the arguments say (those of the process, unless given).  Returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("lamina", description="Eager deep learning in Python.")
    parser.add_argument("--version", action="version", version=f"lamina {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (about, _) in COMMANDS.items():
        commands.add_parser(name, help=about, add_help=False)
    command = parser.parse_args(given[:1]).command
    module, _, function = COMMANDS[command][1].partition(":")
    return getattr(import_module(f"{__package__}.{module}"), function)(given[1:])


if __name__ == "__main__":
    sys.exit(main())
