"""Hand on the ops that PyTorch keeps under `torch.special`: `special_*`, and some others."""

from ..runtime import ops

PREFIX = "special_"
SAME = (
    "digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "log1p", "log_softmax", "logit", "logsumexp",
    "polygamma", "round", "sinc", "softmax", "xlogy",
)  # fmt: skip
RENAMED = {
    "expit": "sigmoid", "gammainc": "igamma", "gammaincc": "igammac", "gammaln": "lgamma",
    "multigammaln": "mvlgamma", "psi": "digamma",
}  # fmt: skip

_names = {name.removeprefix(PREFIX): name for name in ops.FUNCTIONS if name.startswith(PREFIX)}
_names = {name: name for name in SAME} | RENAMED | _names
_found = {name: ops.FUNCTIONS[op] for name, op in _names.items()}
globals().update(_found)
__all__ = list(_found)
