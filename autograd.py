"""Hand on what differentiates: `backward`, `grad`, custom functions, checks, modes, forward mode."""

from .runtime import (
    Function,
    backward,
    detect_anomaly,
    enable_grad,
    function,
    grad,
    gradcheck,
    gradgradcheck,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from .runtime import backward_graph as graph
from .runtime import derivatives as functional
from .runtime import forward as forward_ad
from .runtime import modes as grad_mode
from .runtime.backward_graph import SavedTensor
from .runtime.creation import Variable
from .runtime.modes import is_multithreading_enabled, set_detect_anomaly, set_multithreading_enabled

__all__ = [
    "Function",
    "SavedTensor",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
