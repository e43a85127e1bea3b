"""The command line: `python -m lamina run script.py`, or `run model.onnx`, `demo`, `info`, `names`,
`export --loader file`, `tune model.lam`.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from .demo import main as demo
from .facade import info, offered, script
from .ir.version import __version__
from .jit.artifact import write_loader
from .jit.export import tune_file
from .jit.tuning import line, summary


def main(argv: list[str] | None = None) -> int:
    """Do what the arguments say (those of the process, unless given).  Returns the exit status."""
    parser = argparse.ArgumentParser("lamina", description="Eager deep learning in Python.")
    parser.add_argument("--version", action="version", version=f"lamina {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    about = "run a program, which gets Lamina where it imports torch, or an ONNX model"
    running = commands.add_parser("run", help=about)
    what = "the file to run, model.onnx too; - for standard input, -m module, -c text"
    running.add_argument("script", help=what)
    running.add_argument("args", nargs=argparse.REMAINDER, help="what the program finds in sys.argv; --help")
    commands.add_parser("demo", help="train a network on handwritten digits", add_help=False)
    commands.add_parser("info", help="print versions and what this machine is")
    naming = commands.add_parser("names", help="tell whether names of PyTorch's are offered, and why not")
    naming.add_argument(
        "names", nargs="*", help="torch.stft, torch.nn, ...; all of PyTorch's modules unless given"
    )
    naming.add_argument("--page", action="store_true", help="the whole list, as Markdown")
    exporting = commands.add_parser("export", help="write what runs exported models where NumPy is alone")
    about = "where lamina_model.py, a module that needs NumPy alone, is written to"
    exporting.add_argument("--loader", metavar="path", required=True, help=about)
    tuning = commands.add_parser("tune", help="make an exported model quicker, by measuring")
    tuning.add_argument("model", help="a file that jit.export wrote")
    tuning.add_argument("--seconds", type=float, default=60.0, help="how long to search (60)")
    tuning.add_argument("--out", help="the file to write; the model's own unless given")
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["demo"]:
        return demo(given[1:])  # which has options of its own
    if given[:1] == ["run"] and given[1:2] in (["-m"], ["-c"], ["-"]):  # as Python takes them
        return script.run(given[1], given[2:])
    options = parser.parse_args(given)
    if options.command == "run" and options.script.endswith(".onnx"):
        run = import_module(
            f"{__package__}.exchange.onnx.run_file"
        ).run_file  # 90 ms that others need not wait
        return run(options.script, options.args)
    if options.command == "run":
        return script.run(options.script, options.args)
    if options.command == "names":
        asked = options.names or list(offered.pytorch_names())
        print(offered.page().rstrip() if options.page else "\n".join(map(offered.told, asked)))
        return 0
    if options.command == "export":
        print(write_loader(options.loader))
        return 0
    if options.command == "tune":
        found = tune_file(
            options.model, options.seconds, options.out, lambda one: print(line(one), flush=True)
        )
        print(summary(found))
        return 0
    print(info.spelled())
    return 0


if __name__ == "__main__":
    sys.exit(main())
