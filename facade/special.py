"""Hand on the ops that PyTorch keeps under `torch.special`, some by another name."""

from ..runtime import ops

SAME = (
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expm1", "gammainc", "gammaincc", "i0",
    "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "ndtr", "ndtri",
    "polygamma", "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
)  # fmt: skip
RENAMED = {"expit": "sigmoid", "gammaln": "lgamma", "multigammaln": "mvlgamma", "psi": "digamma"}

_names = {name: name for name in SAME} | RENAMED
_found = {name: ops.FUNCTIONS[op] for name, op in _names.items() if op in ops.FUNCTIONS}
globals().update(_found)
__all__ = list(_found)
