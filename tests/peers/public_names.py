"""The public names of PyTorch, as the installed one has them, for facade/pytorch_names.txt.

python tests/peers/public_names.py --write
"""

from __future__ import annotations

import importlib
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "facade" / "pytorch_names.txt"
SPACES = (
    "", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize",
    "nn.utils.parametrizations", "nn.utils.prune", "linalg", "special", "fft", "signal.windows", "optim",
    "optim.lr_scheduler", "optim.swa_utils", "distributions", "distributions.transforms",
    "distributions.constraints", "func", "autograd", "autograd.functional", "autograd.forward_ad",
    "autograd.graph", "overrides",
    "utils.data", "utils.checkpoint", "random", "sparse", "nested", "masked", "amp",
)  # fmt: skip


def names() -> dict[str, list[str]]:
    """What each of PyTorch's public modules, and its tensor, offers."""
    return {space: sorted(filter(None, _names(space))) for space in SPACES}


def _names(space: str) -> set[str]:
    path = f"torch.{space}".rstrip(".")
    if space == "Tensor":
        return {n for n in dir(importlib.import_module("torch").Tensor) if not n.startswith("_")}
    module = importlib.import_module(path)
    listed = getattr(module, "__all__", None) or dir(module)
    return {n for n in listed if not n.startswith("_") and _is_public(path, n, getattr(module, n, None))}


# Of the classes that `torch` itself holds most are TorchScript's, and no one's to use.
_CLASSES = (
    "Generator", "Size", "Stream", "Event", "OutOfMemoryError", "AcceleratorError", "dtype", "device",
    "layout", "memory_format", "finfo", "iinfo", "inference_mode", "no_grad", "enable_grad",
    "set_grad_enabled", "autocast", "SymInt", "SymFloat", "SymBool",
)  # fmt: skip


def _is_public(path: str, name: str, value: Any) -> bool:
    """Whether it is PyTorch's own, and no class of its C++ side or type for annotations."""
    if value is None or isinstance(value, types.ModuleType) or type(value).__module__ == "typing":
        return False
    if name.isupper() or name.startswith("BroadcastingList") or name == "Tensor" and path != "torch":
        return False
    if path == "torch" and isinstance(value, type):
        return name in _CLASSES or name.endswith(("Tensor", "Storage"))
    return str(getattr(value, "__module__", None) or "torch").startswith("torch")


def text() -> str:
    """The file: a name and what it offers a line, in lines that can be read."""
    torch = importlib.import_module("torch")
    lines = [f"# Public names of PyTorch {torch.__version__.partition('+')[0]}: tests/peers/public_names.py"]
    for space, found in names().items():
        lines += ["", f"{f'torch.{space}'.rstrip('.')}:"]
        lines += textwrap.wrap(" ".join(found), 108, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(text())
    else:
        print(text(), end="")
