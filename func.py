"""Hand on the function transforms: gradients and Jacobians of functions, `vmap`, modules as functions."""

from .nn.stateless import functional_call, stack_module_state
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
    "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
