"""A kernel's Triton source, and all that compiling and launching it takes: plain text and numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

ALIGNMENT = 16  # bytes: the widest access of one thread, and what Triton knows of an aligned pointer


def step_of(parameters: Sequence[str]) -> int:
    """The same of Triton's types of parameters: the numbers among them count elements."""
    bits = [int(kind.lstrip("*abcdefghijklmnopqrstuvwxyz")) for kind in parameters if kind[0] == "*"]
    return ALIGNMENT * 8 // max(8, min(bits, default=8))


@dataclass(frozen=True)
class Code:
    """Triton source of one kernel.

    name: of the function in `source`, made from all that decides the machine code; so codes of equal names
    are compiled once, though their grids may differ.  parameters: Triton's types of the function's arguments,
    pointers to the kernel's inputs, then its outputs.  aligned: for each of them whether it is always a
    multiple of ALIGNMENT, and for numbers of `step`; the others are accessed element by element.  num_warps:
    of a block.  num_stages: of the loads of a pipelined loop.  grid: the programs to launch.  numbers: of
    this kernel, behind the pointers: what other kernels of the same text have other ones of.
    """

    name: str
    source: str
    parameters: tuple[str, ...]
    aligned: tuple[bool, ...]
    num_warps: int
    num_stages: int
    grid: int
    numbers: tuple[int, ...] = ()

    @property
    def step(self) -> int:
        """Elements of the narrowest array that ALIGNMENT has."""
        return step_of(self.parameters)

    def json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Code:
        """Raises ValueError or TypeError for anything but a code."""
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("not the JSON of a code")
        lists = {name: fields.get(name) for name in ("parameters", "aligned", "numbers")}
        if not all(isinstance(found, list) for found in lists.values()):
            raise ValueError("not the JSON of a code")
        return cls(**fields | {name: tuple(found or ()) for name, found in lists.items()})
