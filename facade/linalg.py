"""Hand on the ops that PyTorch keeps under `torch.linalg`: each `linalg_*` record by its short name."""

from ..ir.errors import LinAlgError
from ..runtime import ops

PREFIX = "linalg_"
# Those that PyTorch offers in both places under one name.
SHARED = ("cross", "diagonal", "matmul", "matrix_power", "multi_dot", "vander", "vecdot")

_names = {name.removeprefix(PREFIX): name for name in ops.FUNCTIONS if name.startswith(PREFIX)}
_names = {name: name for name in SHARED if name in ops.FUNCTIONS} | _names
globals().update({name: ops.FUNCTIONS[op] for name, op in _names.items()})
__all__ = list(_names)
__all__ += ["LinAlgError"]
