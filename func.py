"""Hand on the function transforms: gradients and Jacobians of functions, `vmap`, modules as functions."""

from .nn.stateless import functional_call, replace_all_batch_norm_modules_, stack_module_state
from .runtime.func import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
