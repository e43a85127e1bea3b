"""Names of the generated Python: whatever a kernel calls its buffers and axes, no two things share one.

Each kind of thing has an ending of its own, and no name of Python, Triton or the generated module has one of
them: buffers end in _ptr, axes in _at, tiles in _tile, numbers in _size, and what is computed is v1, v2, ...
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

ENTRY = "kernel"  # the entry's name where the kernel's own can't be one
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "triton", "tl", "libdevice", "pid"}
# What the entry may not look like: the other names of the module and of the function.
_KINDS = re.compile(r"v\d+|.*_(ptr|at|tile|start|size|helper)|__.*")


def entry(name: str) -> str:
    """The name of the generated function: the kernel's, unless it means something else in the module."""
    if not _PLAIN.fullmatch(name):
        return ENTRY
    return f"{name}_{ENTRY}" if name in _TAKEN or _KINDS.fullmatch(name) else name


def endings(names: Iterable[str], ending: str) -> dict[str, str]:
    """An identifier for each name: the name and the ending, or a number where that is none.

    Python takes letters that look different to be one name (NFKC), so only ASCII stands as it is.
    """
    found = {}
    taken = set(names := tuple(names))
    for number, name in enumerate(names):
        plain = name
        if not _PLAIN.fullmatch(name):
            plain = f"n{number}"
            while plain in taken:
                plain += "_"
            taken.add(plain)
        found[name] = f"{plain}_{ending}"
    return found
