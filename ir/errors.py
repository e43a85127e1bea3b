"""What goes wrong, in the house form: the rule, then operands, places and remedy on indented lines.

Each class is also the built-in that PyTorch raises in the same place, so `except` clauses keep working.
Where PyTorch's own kernels refuse, that is a RuntimeError, whatever the reason; its Python code raises what
Python would.  One reason is one class here, so each is both.
"""

from __future__ import annotations

import sys
from types import FrameType

LONGEST = 4000  # characters of one line of an error: whatever it is about, it can be read


class LaminaError(RuntimeError):
    """The root of every error that Lamina raises on purpose.

    `rule` is the sentence that was broken; `details` are the lines below it (operands, places, the way out).
    """

    def __init__(self, rule: str, *details: str):
        self.rule, self.details = rule, details
        super().__init__("\n".join((_cut(rule), *(f"  {_cut(line)}" for line in details))))


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


class ShapeError(LaminaError, ValueError):
    """Sizes that don't fit together."""


class DimError(LaminaError, IndexError):
    """A dimension or an index outside its range."""


class DTypeError(LaminaError, TypeError, NotImplementedError):
    """An element type that an op does not take."""


class IndexDTypeError(DTypeError, IndexError):
    """An element type that x[index] takes no places from."""


class DeviceError(LaminaError):
    """Operands on different devices, a device that is not there, or one that failed."""


class OutOfMemoryError(DeviceError, MemoryError):
    """More memory than a device has left, or the host."""


class ArgumentError(LaminaError, TypeError):
    """An argument of the wrong kind, or one missing, or one too many."""


class ArgumentValueError(LaminaError, ValueError, TypeError):
    """An argument of a wrong value; of a wrong kind too, where one rule asks for both ("a positive int")."""


class LinAlgError(ArgumentValueError):
    """A matrix that a routine of linear algebra can't finish with: singular, or not positive-definite."""


class InplaceError(LaminaError):
    """A tensor changed in place where something still needs what it was."""


class GradError(LaminaError):
    """A gradient that cannot be had."""


class MissingError(LaminaError, NotImplementedError):
    """What a class does not offer: a distribution no cumulative function, a pair no divergence."""


class TransformError(LaminaError):
    """What a function transform can't do: a value asked for inside of vmap, a tensor that outlived it."""


class StateError(LaminaError):
    """A saved state that does not fit the module or the optimizer it is loaded into."""


class GraphError(LaminaError, ValueError):
    """A graph, or the text of one, that breaks a rule of the IR."""


class KernelError(LaminaError, ValueError):
    """A kernel, or the text of one, that breaks a rule of the kernel form."""


class Unsayable(KernelError):
    """What one kernel can't say, or a form of kernel does not fit: a refusal by design, to be caught.

    Any other KernelError is a kernel that somebody made wrongly, and escapes.
    """


class DistributedError(LaminaError):
    """What went wrong between processes: ranks that don't agree, one that is gone, one that does not come."""


def frames_of_ours() -> int:
    """How many frames of the package stand between the user's line and here, the caller's among them."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        frame, count = frame.f_back, count + 1
    return count
