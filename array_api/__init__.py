"""The Python array API standard 2024.12, strictly: main namespace, `linalg` and `fft`, on Lamina's tensors.

Its functions take and return ordinary tensors, with gradients where Lamina has them; what the standard leaves
undefined is refused (see kinds.py).  `Tensor.__array_namespace__()` is this module.  It is loaded when it is
first asked for.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.array_api")

from math import e, inf, nan, pi

from ..ir.dtypes import bool_ as bool
from ..ir.dtypes import (
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..ir.version import __version__
from . import fft, linalg
from .creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .elementwise import FUNCTIONS as _ELEMENTWISE
from .inspection import __array_namespace_info__, astype, can_cast, finfo, iinfo, isdtype, result_type
from .linalg import matmul, matrix_transpose, tensordot, vecdot
from .reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from .shapes import (
    argsort,
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    nonzero,
    permute_dims,
    repeat,
    reshape,
    roll,
    searchsorted,
    sort,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    unstack,
    where,
)

__array_api_version__ = "2024.12"
newaxis = None
globals().update(_ELEMENTWISE)

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "__version__", "all", "any", "arange", "argmax",
    "argmin", "argsort", "asarray", "astype", "bool", "broadcast_arrays", "broadcast_to", "can_cast",
    "complex128", "complex64", "concat", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "e",
    "empty", "empty_like", "expand_dims", "eye", "fft", "finfo", "flip", "float32", "float64", "from_dlpack",
    "full", "full_like", "iinfo", "inf", "int16", "int32", "int64", "int8", "isdtype", "linalg", "linspace",
    "matmul", "matrix_transpose", "max", "mean", "meshgrid", "min", "moveaxis", "nan", "newaxis", "nonzero",
    "ones", "ones_like", "permute_dims", "pi", "prod", "repeat", "reshape", "result_type", "roll",
    "searchsorted", "sort", "squeeze", "stack", "std", "sum", "take", "take_along_axis", "tensordot", "tile",
    "tril", "triu", "uint16", "uint32", "uint64", "uint8", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
]  # fmt: skip
__all__ += list(_ELEMENTWISE)
