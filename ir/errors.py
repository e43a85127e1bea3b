"""What goes wrong, in the house form: the rule, then operands, places and remedy on indented lines.

Each class is also the built-in that PyTorch raises in the same place, so `except RuntimeError` keeps working.
"""

from __future__ import annotations


class LaminaError(Exception):
    """The root of every error that Lamina raises on purpose.

    `rule` is the sentence that was broken; `details` are the lines below it (operands, places, the way out).
    """

    def __init__(self, rule: str, *details: str):
        self.rule, self.details = rule, details
        super().__init__("\n".join((rule, *(f"  {line}" for line in details))))


class ShapeError(LaminaError, RuntimeError):
    """Sizes that don't fit together."""


class DimError(LaminaError, IndexError):
    """A dimension or an index outside its range."""


class DTypeError(LaminaError, RuntimeError):
    """An element type that an op does not take."""


class DeviceError(LaminaError, RuntimeError):
    """Operands on different devices, a device that is not there, or one that failed."""


class OutOfMemoryError(DeviceError):
    """More of a device's memory than there is left."""


class ArgumentError(LaminaError, TypeError):
    """An argument of the wrong kind, or one missing, or one too many."""


class ArgumentValueError(LaminaError, ValueError):
    """An argument of the right kind and a wrong value."""


class InplaceError(LaminaError, RuntimeError):
    """A tensor changed in place where something still needs what it was."""


class GradError(LaminaError, RuntimeError):
    """A gradient that cannot be had."""


class StateError(LaminaError, RuntimeError):
    """A saved state that does not fit the module or the optimizer it is loaded into."""


class GraphError(LaminaError, ValueError):
    """A graph, or the text of one, that breaks a rule of the IR."""


class KernelError(LaminaError, ValueError):
    """A kernel, or the text of one, that breaks a rule of the kernel form."""
