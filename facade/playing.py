"""Answer for `torch`: `import torch` and its kin give a program Lamina's modules, and libraries a version.

The finder is installed by `lamina run` and `install_as_torch` alone, so that no other program ever sees it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from ..ir.dtypes import known_as
from ..ir.errors import ArgumentError, LaminaError
from ..runtime.tensor import Parameter, Tensor
from . import late
from .torch_version import VERSION

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

ROOT = __package__.rpartition(".")[0]  # lamina
PLAYED = "torch"
# Lamina's own rooms, which PyTorch does not have.
ROOMS = ("data", "demo", "facade", "ir", "passes", "runtime", "__main__")
# Packages that come with PyTorch or are compiled against it, and what they are here.
ELSEWHERE = {
    "functorch": "facade.functorch",
    "functorch.experimental": "facade.functorch",
    "torchvision": "facade.torchvision",
    "torchvision.transforms.functional": "facade.torchvision.functional",
    "torchvision.transforms.v2": "facade.torchvision.transforms",
    "torchvision.transforms.v2.functional": "facade.torchvision.functional",
    "torchvision.ops.boxes": "facade.torchvision.ops",
    "torchvision.ops.focal_loss": "facade.torchvision.ops",
    "torchvision.ops.misc": "facade.torchvision.ops",
    "torchvision.ops.stochastic_depth": "facade.torchvision.ops",
    "torchvision.models.resnet": "facade.torchvision.models",
    "torchvision.models.densenet": "facade.torchvision.models",
    "torchvision.models.vgg": "facade.torchvision.models",
}
COMPILED = ("torchaudio", "torchtext")  # of which there is nothing here
REMEDIES = {
    "torch.distributed": "run in one process",
    "torch.multiprocessing": "use Python's multiprocessing; tensors can be pickled",
    "torch.onnx": "torch.onnx.export writes a model, lamina.onnx.load reads one",
}


class LackingError(LaminaError, ModuleNotFoundError):
    """A module of PyTorch's world that Lamina has nothing for."""


class _Refusal(Loader):
    """Fails when the module is made, not when it is looked for: a program may ask whether it is there."""

    def create_module(self, spec: ModuleSpec) -> NoReturn:
        name = spec.name
        top = name.partition(".")[0]
        if top in ELSEWHERE:
            raise LackingError(f"the stand-in for {top} has no {name}")
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


class _Root(Loader):
    """Gives Lamina's names under `torch`: a module of its own, as its version is PyTorch's."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        root = import_module(ROOT)
        made = ModuleType(PLAYED, root.__doc__)
        kept = ("__name__", "__spec__", "__loader__", "__package__", "__path__")
        vars(made).update({name: value for name, value in vars(root).items() if name not in kept})
        vars(made).update(
            __version__=VERSION,
            torch=made,
            __getattr__=late.__getattr__,
            __dir__=lambda: sorted({*dir(root), *vars(made)}),
        )
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Enter what is loaded among the loaded modules under PyTorch's names, where programs look for them.

        They exchange functions of `sys.modules["torch.nn.init"]`, say.  So none is imported a second time,
        which would put modules that have the name of a function in theirs, `autograd.gradcheck`, over it.
        """
        for name, loaded in list(sys.modules.items()):
            root, _, rest = name.partition(".")
            if root == ROOT and rest and rest.partition(".")[0] not in ROOMS:
                sys.modules.setdefault(f"{PLAYED}.{rest}", loaded)


class Finder(MetaPathFinder):
    """Answers for `torch`, `torch.nn` and so on with `lamina`, `lamina.nn` and so on."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top in ELSEWHERE:
            below = ELSEWHERE.get(fullname, f"{ELSEWHERE[top]}{fullname[len(top) :]}")
            if not _is_there(name := f"{ROOT}.{below}"):
                return ModuleSpec(fullname, _Refusal())
            return ModuleSpec(fullname, late.Alias(import_module(name)), is_package=True)
        if fullname in COMPILED and PathFinder.find_spec(fullname) is not None:
            return ModuleSpec(fullname, _Refusal())
        if top != PLAYED:
            return None
        if not rest:
            return ModuleSpec(fullname, _Root(), origin=import_module(ROOT).__file__, is_package=True)
        if rest.partition(".")[0] in ROOMS or not _is_there(name := f"{ROOT}.{rest}"):
            return ModuleSpec(fullname, _Refusal())
        return ModuleSpec(fullname, late.Alias(import_module(name)), is_package=True)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """What `importlib.metadata` finds: of a package called torch, its name and version."""
        metadata: Any = import_module("importlib.metadata")  # loaded by who asks

        class Played(metadata.Distribution):
            def read_text(self, filename: str) -> str | None:
                text = {
                    "METADATA": f"Metadata-Version: 2.1\nName: {PLAYED}\nVersion: {VERSION}\n",
                    "top_level.txt": f"{PLAYED}\n",
                }
                return text.get(filename)

            def locate_file(self, path: Any) -> Any:
                raise FileNotFoundError(f"{PLAYED} is played by Lamina: there is no file {path}")

        if context is None or context.name in (None, PLAYED):
            yield Played()


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # its parent is not there, or no package
        return False


def answer() -> None:
    """Answer for `torch` from here on, in this process and in those that it spawns."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        _tell_workers()
        known_as(PLAYED, {Tensor: PLAYED, Parameter: f"{PLAYED}.nn.parameter"})


def _tell_workers() -> None:
    """Have processes that multiprocessing spawns answer for `torch` before they import its main."""
    spawn: Any = import_module("multiprocessing.spawn")

    before = spawn.get_preparation_data
    if getattr(before, "answers", False):
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"lamina": _Answering(), **before(name)}  # first: it is unpickled before anything is run

    get_preparation_data.answers = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


class _Answering:
    """Answers for `torch` where it is unpickled."""

    def __reduce__(self) -> tuple:
        return answer, ()


def install_as_torch() -> None:
    """Have `import torch` give Lamina from here on, in this process: for notebooks, and for libraries.

    Libraries that look whether torch is loaded, as einops does, find it so; those that ask for its version
    are told PyTorch's.  Raises ArgumentError where PyTorch itself is loaded already.
    """
    there = sys.modules.get(PLAYED)
    if there is not None and not isinstance(getattr(there, "__loader__", None), _Root):
        raise ArgumentError(
            "install_as_torch(): PyTorch itself is loaded already", "call it before anything imports torch"
        )
    answer()
    import_module(PLAYED)
