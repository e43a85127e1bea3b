"""Lamina: eager deep learning in Python, with an optional tracing compiler.

This is the public face.  It hands names on and defines nothing.
"""

from . import runtime
from .ir.version import __version__
from .runtime import Parameter, Size, Tensor, as_tensor, from_numpy, tensor
