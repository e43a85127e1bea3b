"""Run a script written for PyTorch: `import torch` and its kin give it Lamina's modules.

The finder is installed by `run` alone, so that no other program ever sees it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, TracebackType
from typing import NoReturn

from ..ir.errors import ArgumentError, LaminaError

ROOT = __package__.rpartition(".")[0]  # lamina
PLAYED = "torch"
# Lamina's own rooms, which PyTorch does not have.
ROOMS = ("data", "demo", "facade", "ir", "passes", "runtime", "__main__")
# Modules that have the name of a function in theirs, which an import would put the module over.
SHADOWED = ("autograd.gradcheck",)
# Packages that reach into PyTorch's own machinery.
BUILT_ON_TORCH = (
    "torchvision", "torchaudio", "torchtext", "torchdata", "torchmetrics", "torch_geometric", "lightning",
    "pytorch_lightning", "functorch",
)  # fmt: skip
REMEDIES = {
    "torch.distributed": "run in one process",
    "torch.multiprocessing": "use Python's multiprocessing; tensors can be pickled",
    "torch.onnx": "save the parameters with torch.save, or as a .safetensors file",
}


class LackingError(LaminaError, ModuleNotFoundError):
    """A module of PyTorch's world that Lamina has nothing for."""


class _Refusal(Loader):
    """Fails when the module is made, not when it is looked for: a program may ask whether it is there."""

    def create_module(self, spec: ModuleSpec) -> NoReturn:
        name = spec.name
        top = name.partition(".")[0]
        if top != PLAYED:
            raise LackingError(
                f"{name} can't be imported: {top} is built on PyTorch itself, and Lamina is no part of that",
                "this script runs under `python -m lamina run`",
                f"run it with PyTorch, or guard the part that needs {top}",
            )
        module = next((m for m in REMEDIES if name == m or name.startswith(m + ".")), name)
        details = [REMEDIES[module]] if module in REMEDIES else []
        raise LackingError(f"Lamina has no {name}", "this script runs under `python -m lamina run`", *details)

    def exec_module(self, module: ModuleType) -> None:
        """Never reached, as no module is made."""


class _Alias(Loader):
    """Gives a module of Lamina under another name; the module itself does not change."""

    def __init__(self, target: str):
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.target)
        self._own = module.__spec__  # the import system is about to overwrite it
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own


class Finder(MetaPathFinder):
    """Answers for `torch`, `torch.nn` and so on with `lamina`, `lamina.nn` and so on."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top in BUILT_ON_TORCH:
            return ModuleSpec(fullname, _Refusal())
        if top != PLAYED:
            return None
        if rest.partition(".")[0] in ROOMS or not _is_there(name := f"{ROOT}.{rest}" if rest else ROOT):
            return ModuleSpec(fullname, _Refusal())
        return ModuleSpec(fullname, _Alias(name), is_package=True)


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # its parent is not there, or no package
        return False


def _answer() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    for name in SHADOWED:
        sys.modules.setdefault(f"{PLAYED}.{name}", sys.modules[f"{ROOT}.{name}"])


def install_as_torch() -> None:
    """Have `import torch` give Lamina from here on, in this process: for notebooks, and for libraries.

    Libraries that look whether torch is loaded, as einops does, find it so.  Raises ArgumentError where
    PyTorch itself is loaded already.
    """
    there = sys.modules.get(PLAYED)
    if there is not None and there is not import_module(ROOT):
        raise ArgumentError(
            "install_as_torch(): PyTorch itself is loaded already", "call it before anything imports torch"
        )
    _answer()
    import_module(PLAYED)


def run(script: str, args: Sequence[str] = ()) -> int:
    """Run a script as `python script.py args…` does, but for `torch`.  Returns the exit status.

    Exceptions and SystemExit pass through; tracebacks begin at the script.  A file that can't be read is
    status 2.
    """
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"lamina run: can't open file {script!r}: {error.strerror}", file=sys.stderr)
        return 2
    _answer()
    path = os.path.abspath(script)  # as Python spells it in __file__ and in tracebacks
    main = ModuleType("__main__")
    vars(main).update(__file__=path, __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = (
        main  # and stays: what runs at exit, and pickle, look for the script's names there
    )
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    _hide_runner(main)
    exec(compile(source, path, "exec", dont_inherit=True), vars(main))
    return 0


def _hide_runner(main: ModuleType) -> None:
    """Print tracebacks from the script's first line on, as if Python itself had started it."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_globals is not vars(main):
            trace = trace.tb_next
        before(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook
