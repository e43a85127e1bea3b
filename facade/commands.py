"""The commands about programs written for PyTorch, and about what is here: `run`, `names`, `info`."""

from __future__ import annotations

import argparse
from importlib import import_module

from . import info as facts
from . import offered, script


def run(argv: list[str]) -> int:
    """Run a program as Python would, with Lamina as its torch; or an ONNX model, once."""
    if argv[:1] in (["-m"], ["-c"], ["-"]):  # as Python takes them
        return script.run(argv[0], argv[1:])
    about = "run a program, which gets Lamina where it imports torch, or an ONNX model"
    parser = argparse.ArgumentParser("lamina run", description=about)
    what = "the file to run, model.onnx too; - for standard input, -m module, -c text"
    parser.add_argument("script", help=what)
    parser.add_argument("args", nargs=argparse.REMAINDER, help="what the program finds in sys.argv; --help")
    options = parser.parse_args(argv)
    if options.script.endswith(".onnx"):
        onnx = import_module("..exchange.onnx.run_file", __package__)  # 90 ms that others need not wait
        return onnx.run_file(options.script, options.args)
    return script.run(options.script, options.args)


def names(argv: list[str]) -> int:
    """Print whether names of PyTorch's are offered, and why not."""
    parser = argparse.ArgumentParser("lamina names", description=names.__doc__)
    about = "torch.stft, torch.nn, ...; all of PyTorch's modules unless given"
    parser.add_argument("names", nargs="*", help=about)
    parser.add_argument("--page", action="store_true", help="the whole list, as Markdown")
    options = parser.parse_args(argv)
    asked = options.names or list(offered.pytorch_names())
    print(offered.page().rstrip() if options.page else "\n".join(map(offered.told, asked)))
    return 0


def info(argv: list[str]) -> int:
    """Print versions and what this machine is."""
    argparse.ArgumentParser("lamina info", description=info.__doc__).parse_args(argv)
    print(facts.spelled())
    return 0
