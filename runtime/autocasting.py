"""Mixed precision: inside `autocast` an op takes its floating operands in the dtype that suits it.

Which ops those are is PyTorch's list, one for the CPU and one for GPUs: products in the low precision, losses
and what sums or inverts in float32, on GPUs also what has exponentials and norms; all others, and float64,
stay as they are.  The CPU and GPUs have states of their own: an op goes by where its operands are.  Casts are
ops like any other, so gradients come back in the dtypes of what was cast, and a trace records them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from sys import _getframe
from typing import Any

from ..ir.dtypes import DType, float32, float64
from ..ir.errors import GradError
from ..ir.types import placed
from . import modes
from .places import PACKAGE
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


# The same of GPUs.
LOW_THERE = LOW | {"addmv", "addr", "chain_matmul", "linalg_multi_dot", "mv"}
FULL_THERE = frozenset((
    "acos", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "group_norm",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "layer_norm", "linalg_matrix_norm",
    "linalg_vector_norm", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "margin_ranking_loss",
    "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "norm", "normalize", "pdist",
    "poisson_nll_loss", "pow", "prod", "reciprocal", "renorm", "rms_norm", "rsqrt", "sinh", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "sum", "tan", "triplet_margin_loss",
))  # fmt: skip
UNSAFE_THERE = frozenset(("binary_cross_entropy",))
LISTS = (LOW, FULL), (LOW_THERE, FULL_THERE)
_RULES = f"{PACKAGE}ir{os.sep}"  # where composites and gradients are, which call ops by themselves
_RUNNING = f"{PACKAGE}runtime{os.sep}"


class uncast(modes._Mode):
    """Leave operands as they are."""

    _changes = {"autocast": None}


def slot(device_type: str) -> int:
    """Where a device type stands in `modes.local.autocast` and `autocast_dtype`: the CPU's first."""
    return int(placed(device_type).type == "cuda")


def changed(state: str, device_type: str, value: DType | None) -> dict[str, Any]:
    """This thread's `autocast` or `autocast_dtype` with another value for a device type, for `modes`."""
    made = [*(getattr(modes.local, state) or (None, None))]
    made[slot(device_type)] = value
    return {state: None if made == [None, None] else tuple(made)}


def _on_gpu(values: Iterable[Any]) -> bool:
    """Whether a tensor among these, or in lists of theirs, is on a GPU."""
    return any(
        [x.is_cuda if isinstance(x, Tensor) else type(x) in (list, tuple) and _on_gpu(x) for x in values]
    )


def wanted(name: str, there: bool) -> DType | None:
    """The dtype that an op takes its floating operands in on this thread, if it is cast.

    there: whether they are on a GPU.  Raises GradError for what is not to be computed so.
    """
    pair = modes.local.autocast
    low = None if pair is None else pair[there]
    if low is None:
        return None
    lows, fulls = LISTS[there]
    if name in lows:
        return low
    if name in fulls:
        return float32 if name in FULL or not _is_of_a_rule() else None
    if there and name in UNSAFE_THERE:
        raise GradError(
            f"{name}: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast",
            "binary_cross_entropy_with_logits takes the logits, and is safe",
        )
    return None


def _is_of_a_rule() -> bool:
    """Whether an op is a part of another, which computes in the dtype that it has."""
    frame = _getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_RUNNING):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_RULES)


def cast_to(value: Any, dtype: DType, there: bool | None = None) -> Any:
    """A floating tensor in `dtype`, but for float64; of a list or tuple each; anything else as it is.

    there: only those that are on a GPU, or only those that are not.
    """
    if isinstance(value, Tensor):
        mine = value._meta.dtype
        stays = mine is dtype or mine is float64 or not mine.is_floating_point
        return value if stays or there not in (None, value.is_cuda) else value.to(dtype)
    if type(value) in (list, tuple):
        return type(value)([cast_to(x, dtype, there) for x in value])
    return value


def recast(name: str, operands: Sequence[Any]) -> Sequence[Any]:
    """An op's operands as it takes them on this thread: the same sequence where nothing is cast."""
    there = _on_gpu(operands)
    dtype = wanted(name, there)
    if dtype is None:
        return operands
    found = tuple([cast_to(x, dtype, there) for x in operands])
    return operands if all(map(_same, found, operands)) else found


def _same(a: Any, b: Any) -> bool:
    return a is b


def autocasting(function: Callable, name: str) -> Callable:
    """A function of tensors that is no record, with its arguments cast where it is among those above."""
    if not any(name in each for each in (LOW_THERE, FULL, FULL_THERE, ALONE, UNSAFE_THERE)):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not modes.CHANGED or modes.local.autocast is None:
            return function(*args, **kwargs)
        there = _on_gpu((*args, *kwargs.values()))
        if (dtype := wanted(name, there)) is not None:
            args = cast_to(args, dtype, there)
            kwargs = {key: cast_to(value, dtype, there) for key, value in kwargs.items()}
        elif name not in FULL and name not in ALONE:  # the other kind of device's
            return function(*args, **kwargs)
        with uncast():
            return function(*args, **kwargs)

    return call


CASTING = autocasting(cast_to, next(iter(LOW))).__code__  # that of all of these
