"""Hand on the ops that PyTorch keeps under `torch.linalg`: each `linalg_*` record by its short name."""

from ..runtime import ops

PREFIX = "linalg_"
# Those that PyTorch offers in both places under one name.
SHARED = ("cross", "diagonal", "matmul", "matrix_power", "multi_dot", "vander", "vecdot")

_found = {name.removeprefix(PREFIX): function for name, function in ops.FUNCTIONS.items() if name.startswith(PREFIX)}
_found |= {name: ops.FUNCTIONS[name] for name in SHARED if name in ops.FUNCTIONS and name not in _found}
globals().update(_found)
__all__ = sorted(_found)
