"""Mixed precision: inside `autocast` an op takes its floating operands in the dtype that suits it.

Which ops those are is PyTorch's list for the CPU: products in the low precision, losses and what sums or
inverts in float32; all others, and float64, stay as they are.  Casts are ops like any other, so
gradients come back in the dtypes of what was cast, and a trace records them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.dtypes import DType, float32, float64
from . import modes
from .tensor import Tensor

# Records and composites by name.  What a composite among them calls is left alone.
LOW = frozenset((
    "matmul", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "mm", "bmm", "addmm", "addbmm", "baddbmm", "prelu", "linalg_vecdot", "vecdot",
    "scaled_dot_product_attention",
))  # fmt: skip
# Composites of products that PyTorch leaves alone.
ALONE = frozenset(("addmv", "dot", "mv", "vdot"))
FULL = frozenset((
    "adaptive_avg_pool3d", "avg_pool3d", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cdist",
    "cholesky_inverse", "cholesky_solve", "cosine_embedding_loss", "cross_entropy", "ctc_loss", "grid_sample",
    "hinge_embedding_loss", "huber_loss", "inverse", "kl_div", "l1_loss", "linalg_cholesky", "linalg_inv",
    "margin_ranking_loss", "max_pool3d", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "nanquantile", "nll_loss", "pinverse", "poisson_nll_loss", "prod", "quantile", "smooth_l1_loss",
    "soft_margin_loss", "trace", "triplet_margin_loss",
))  # fmt: skip


class uncast(modes._Mode):
    """Leave operands as they are."""

    _changes = {"autocast": None}


def wanted(name: str) -> DType | None:
    """The dtype that an op takes its floating operands in on this thread, if it is cast."""
    low = modes.local.autocast
    return None if low is None else low if name in LOW else float32 if name in FULL else None


def cast_to(value: Any, dtype: DType) -> Any:
    """A floating tensor in `dtype`, but for float64; of a list or tuple each; anything else as it is."""
    if isinstance(value, Tensor):
        mine = value._meta.dtype
        stays = mine is dtype or mine is float64 or not mine.is_floating_point
        return value if stays else value.to(dtype)
    if type(value) in (list, tuple):
        return type(value)([cast_to(x, dtype) for x in value])
    return value


def recast(name: str, operands: Sequence[Any]) -> Sequence[Any]:
    """An op's operands as it takes them on this thread: the same sequence where nothing is cast."""
    dtype = wanted(name)
    if dtype is None:
        return operands
    found = tuple([cast_to(x, dtype) for x in operands])
    return operands if all(map(_same, found, operands)) else found


def _same(a: Any, b: Any) -> bool:
    return a is b


def autocasting(function: Callable, name: str) -> Callable:
    """A function of tensors that is no record, with its arguments cast where it is among those above."""
    if name not in LOW and name not in FULL and name not in ALONE:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not modes.CHANGED or modes.local.autocast is None:
            return function(*args, **kwargs)
        if (dtype := wanted(name)) is not None:
            args = cast_to(args, dtype)
            kwargs = {key: cast_to(value, dtype) for key, value in kwargs.items()}
        with uncast():
            return function(*args, **kwargs)

    return call


CASTING = autocasting(cast_to, next(iter(LOW))).__code__  # that of all of these
