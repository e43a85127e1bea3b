"""Hand on what PyTorch keeps under `torch.sparse`, and its old constructors by type."""

from typing import Any

from ..ir import dtypes
from ..ir.dtypes import DType
from ..runtime.layouts import sparse_coo
from ..runtime.sparse_functions import (
    addmm,
    check_sparse_tensor_invariants,
    log_softmax,
    mm,
    sampled_addmm,
    softmax,
    spdiags,
    sum,
)
from ..runtime.sparse_tensor import old_coo
from .names import Typed


class _TypedSparse(Typed):
    layout = sparse_coo
    is_sparse = True

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        return old_coo(cls.dtype, args, device)


def _typed(name: str, dtype: DType) -> _TypedSparse:
    doc = f"A sparse tensor: {name}(indices, values, size), or an empty one of {dtype.name}: {name}(2, 3)."
    return _TypedSparse(name, (), {"dtype": dtype, "__doc__": doc})


FloatTensor, DoubleTensor = _typed("FloatTensor", dtypes.float32), _typed("DoubleTensor", dtypes.float64)
HalfTensor, BFloat16Tensor = _typed("HalfTensor", dtypes.float16), _typed("BFloat16Tensor", dtypes.bfloat16)
LongTensor, IntTensor = _typed("LongTensor", dtypes.int64), _typed("IntTensor", dtypes.int32)
ShortTensor, CharTensor = _typed("ShortTensor", dtypes.int16), _typed("CharTensor", dtypes.int8)
ByteTensor = _typed("ByteTensor", dtypes.uint8)

__all__ = [
    "BFloat16Tensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
    "LongTensor", "ShortTensor", "addmm", "check_sparse_tensor_invariants", "log_softmax", "mm",
    "sampled_addmm", "softmax", "spdiags", "sum",
]  # fmt: skip
