"""Lamina: eager deep learning in Python, with an optional tracing compiler.

The public face hands names on and defines nothing: ops stand in ir/ops, what runs them in runtime.
"""

from . import autograd, data, distributions, func, nn, optim, runtime
from .facade import (
    _C,
    amp,
    backends,
    compiler,
    cpu,
    cuda,
    fft,
    linalg,
    masked,
    nested,
    overrides,
    random,
    serialization,
    signal,
    sparse,
    special,
    testing,
    utils,
)
from .facade import future as __future__
from .facade.absent import export, mps, mtia, xpu
from .facade.amp import autocast, get_autocast_dtype, is_autocast_enabled
from .facade.compiler import _dynamo, compile
from .facade.late import __getattr__  # the compiler, and ops entered later
from .facade.names import *  # noqa: F403 - what PyTorch's module has besides ops
from .facade.private import _tensor_str, _utils, storage, version
from .facade.private import config as __config__
from .facade.root import *  # noqa: F403 - and what is made of ops and modules
from .facade.settings import *  # noqa: F403 - and what programs tell the process
from .facade.streams import Event, Stream
from .func import vmap
from .ir.dtypes import DType as dtype
from .ir.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .ir.dtypes import bool_ as _bool
from .ir.dtypes import default_dtype as get_default_dtype
from .ir.errors import (
    ArgumentError,
    ArgumentValueError,
    DeviceError,
    DimError,
    DTypeError,
    GradError,
    GraphError,
    InplaceError,
    KernelError,
    LaminaError,
    ShapeError,
    TransformError,
)
from .ir.types import Device as device
from .ir.version import __version__
from .runtime import *  # noqa: F403 - every op, by its record's name

# The dtypes' short names.  Last, as the ops' methods of these names came with the star.
float, double, half = float32, float64, float16
cfloat, cdouble = complex64, complex128
short, int, long, bool = int16, int32, int64, _bool
