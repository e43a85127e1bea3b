"""The version that programs written for PyTorch find: of the PyTorch whose names these are."""

from __future__ import annotations

import re
from typing import Any

from ..ir.version import PYTORCH, __version__


def _numbers(version: Any) -> tuple[int, ...]:
    """(2, 9) of (2, 9), of "2.9" and of "2.9+local"."""
    if isinstance(version, str):
        return tuple([int(n) for n in re.findall(r"\d+", version.partition("+")[0])])
    return tuple(version)


class TorchVersion(str):
    """A version that compares with others by number: `torch.__version__ >= "2.9"` and `>= (2, 9)`."""

    def __lt__(self, other: Any) -> bool:
        return _numbers(self) < _numbers(other)

    def __le__(self, other: Any) -> bool:
        return _numbers(self) <= _numbers(other)

    def __gt__(self, other: Any) -> bool:
        return _numbers(self) > _numbers(other)

    def __ge__(self, other: Any) -> bool:
        return _numbers(self) >= _numbers(other)


VERSION = TorchVersion(f"{PYTORCH}+lamina.{__version__}")
