"""Run things now: tensors, gradients, memory, random numbers, and the functions that the op records give."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.runtime")

import warnings as _warnings

import numpy as _numpy

from . import (
    instead,
    interchange,
    memory,
    memory_view,
    methods,
    modes,
    nested_rules,
    nested_tensor,
    ops,
    out,
    per_element,
    printing,
    random,
    refusal,
    signal,
    sparse_functions,
    subclassing,
    ufuncs,
)
from .autograd import backward, grad
from .checkpoints.saving import load, save
from .creation import as_tensor, asarray, from_file, from_numpy, frombuffer, is_tensor, scalar_tensor, tensor
from .function import Function
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .interchange import from_dlpack
from .modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .printing import set_printoptions
from .random import Generator, default_generator, fork_rng
from .sparse_functions import hspmm, smm, sspaddmm
from .sparse_tensor import sparse_compressed_tensor, sparse_coo_tensor, sparse_csc_tensor, sparse_csr_tensor
from .tensor import Parameter, Size, Tensor
from .threads import get_num_threads, set_num_threads

# Ops follow IEEE: a division by zero is an inf and no warning.  Once, here: `errstate` costs 800 ns a use.
# It holds for this thread; NumPy's setting in others can't be reached, so what it says of our own lines there
# is not shown.
_numpy.seterr(all="ignore")
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"lamina\.")
# A complex number is no number of ours, and NumPy would only warn that it drops half of it.
_warnings.filterwarnings("error", category=_numpy.exceptions.ComplexWarning, module=r"lamina\.")

memory.keep_freed_blocks()

refusal.refusing_names(globals(), "lamina.runtime")
refusal.refusing_names(vars(nested_tensor), "lamina.runtime.nested_tensor")
globals().update(ops.FUNCTIONS | random.FUNCTIONS | signal.FUNCTIONS)
refusal.refusing_methods(
    (Generator, fork_rng), "manual_seed", "set_state", "set_offset", "reserve", "__enter__"
)

__all__ = [
    "Generator", "Parameter", "Size", "Tensor", "as_tensor", "asarray", "default_generator", "enable_grad",
    "fork_rng", "from_dlpack", "from_file", "from_numpy", "frombuffer", "get_num_threads", "inference_mode",
    "is_grad_enabled", "is_inference_mode_enabled", "is_tensor", "load", "no_grad", "save", "scalar_tensor",
    "hspmm", "set_grad_enabled", "set_num_threads", "set_printoptions", "smm",
    "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "sspaddmm",
    "tensor",
]  # fmt: skip
__all__ += list(filter(ops.is_offered, ops.FUNCTIONS | random.FUNCTIONS | signal.FUNCTIONS))
