"""Run things now: tensors, gradients, memory, random numbers, and the functions that the op records give."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.runtime")

import numpy as _numpy

# Ops follow IEEE: a division by zero is an inf and no warning.  Once, here: `errstate` costs 800 ns a use.
_numpy.seterr(all="ignore")

from . import ops  # noqa: E402
from .autograd import backward, grad  # noqa: E402
from .creation import (  # noqa: E402
    as_tensor,
    asarray,
    from_numpy,
    frombuffer,
    is_tensor,
    scalar_tensor,
    tensor,
)
from .function import Function  # noqa: E402
from .gradcheck import gradcheck, gradgradcheck  # noqa: E402
from .modes import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .tensor import Parameter, Size, Tensor  # noqa: E402
from . import methods  # noqa: E402,F401,I001 - hangs the methods on Tensor
