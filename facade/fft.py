"""Hand on the transforms that PyTorch keeps under `torch.fft`: each `fft_*` function by its short name."""

from ..ir.op import COMPOSITES
from ..runtime import ops, signal

PREFIX = "fft_"

_all = {name: ops.FUNCTIONS[name] for name in COMPOSITES if name.startswith(PREFIX)} | signal.FUNCTIONS
_names = {name.removeprefix(PREFIX): found for name, found in _all.items() if name.startswith(PREFIX)}
globals().update(_names)
__all__ = list(_names)
