"""Hashes of tensors."""

from __future__ import annotations

import numpy as np

from .. import lowering
from ..dtypes import uint64
from ..errors import ArgumentValueError
from ..op import define
from ..sample import Operand, Sample, sample
from ..shapes import dims_of, reduced_shape
from ..types import Type


def bind_hash_tensor(input, dim=(), *, keepdim=False, mode=0):
    """Combine the bits of all elements along `dim` (all of them without) by xor, as uint64.

    Floats are hashed as float64, integers and bools as int64.  mode: 0, the only one there is.  Raises
    ArgumentValueError, DimError.
    """
    if mode != 0:
        raise ArgumentValueError(f"hash_tensor: mode must be 0, which is xor, not {mode!r}")
    return (input,), {"dim": dims_of("hash_tensor", dim, input.ndim), "keepdim": bool(keepdim)}


def _infer(input: Type, *, dim: tuple[int, ...], keepdim: bool) -> Type:
    return input.with_shape(reduced_shape(input.shape, dim, keepdim)).with_dtype(uint64)


def _hash(input: np.ndarray, *, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
    wide = input.astype(np.float64 if input.dtype.kind == "f" else np.int64)
    return np.bitwise_xor.reduce(wide.view(np.uint64), axis=dim, keepdims=keepdim)


hash_tensor = define(
    "hash_tensor",
    bind=bind_hash_tensor,
    infer=_infer,
    reference=_hash,
    lower=lowering.extern("no kernel folds the bits of numbers"),
    samples=lambda: [
        *(sample(s) for s in ((), (1,), (17,), (33,))),
        sample((0, 3), 1),  # PyTorch folds no empty dimension
        sample((2, 0, 3), 2),
        Sample((Operand((2, 3, 4)), (0, 2)), {"keepdim": True}),
    ],
)
