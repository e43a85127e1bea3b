"""What a step of a schedule is, and in which language code is written that it says how to write."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from enum import Enum
from typing import ClassVar

from ...ir.errors import KernelError
from ...ir.kernel.form import Kernel, Reduce


class Language(Enum):
    """What code is written in.  Its generator knows steps of its own."""

    LLVM = "LLVM text"
    TRITON = "Triton source"


# What a field of a step names, and the fields that are sizes.
KNOWN: dict[str, Callable[[Kernel], Collection[str]]] = {
    "axis": lambda kernel: kernel.extents,
    "axes": lambda kernel: kernel.extents,
    "local": lambda kernel: kernel.locals,
    "buffer": lambda kernel: kernel.buffers,
    "stage": lambda kernel: [stage.name for stage in kernel.stages if isinstance(stage, Reduce)],
}
SIZES = ("size", "vectors", "count")


class Step:
    """One decision.  A step is a frozen dataclass of names and numbers; its text is its name and its fields.

    rewrites: whether it makes another kernel of a kernel: then it is a step of every language.
    parallel: whether its axes are parallel, or else local to stages; None where they may be either.
    """

    name: ClassVar[str]
    rewrites: ClassVar[bool] = False
    language: ClassVar[Language] = Language.LLVM
    parallel: ClassVar[bool | None] = None

    def apply(self, kernel: Kernel) -> Kernel:
        """The kernel after the step.  Raises KernelError where it does not fit."""
        return kernel

    def check(self, kernel: Kernel) -> None:
        """Raise KernelError unless the kernel has what the step speaks of."""
        for f in fields(self):
            value, known = getattr(self, f.name), KNOWN.get(f.name)
            named = value if isinstance(value, tuple) else (value,)
            if known is not None and value is not None and not (named and {*named} <= {*known(kernel)}):
                raise KernelError(
                    f"{kernel.name}: {self} names no {f.name} of the kernel", f"kernel: {kernel}"
                )
            if f.name in SIZES and value < 1:
                raise KernelError(f"{kernel.name}: {self} is at least of size 1")
            over = {axis in kernel.parallel_names for axis in named if f.name in ("axis", "axes")}
            if self.parallel is not None and (not self.parallel) in over:
                kind = "parallel" if self.parallel else "local"
                raise KernelError(f"{kernel.name}: {self} is of {kind} axes", f"kernel: {kernel}")

    def __str__(self) -> str:
        parts = []
        for f in reversed(fields(self)):
            value = getattr(self, f.name)
            if parts or value != f.default:
                parts += reversed(value) if isinstance(value, tuple) else [value]
        return f"{self.name}({', '.join(map(str, reversed(parts)))})"
