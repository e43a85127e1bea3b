"""Functions and switches of PyTorch's module that are made of others, for the scripts that ask for them."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from math import floor
from typing import Any

from ..ir import dtypes
from ..ir.errors import ArgumentValueError, LaminaError, OutOfMemoryError, ShapeError
from ..ir.pretended_gpus import count
from ..ir.types import Device
from ..nn.functional import alpha_dropout, conv_tbc, feature_alpha_dropout, grid_sample, rrelu
from ..nn.utils.reparametrize import norm_but
from ..runtime import Tensor, modes, ops, overriding
from ..runtime.modes import set_detect_anomaly as set_anomaly_enabled
from ..runtime.refusal import refusing_names
from .absent import kind
from .amp import (
    GradScaler,
    get_autocast_cpu_dtype,
    get_autocast_gpu_dtype,
    is_autocast_cpu_enabled,
    set_autocast_cpu_dtype,
    set_autocast_cpu_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
    set_autocast_gpu_dtype,
)
from .flow import cond
from .lowrank import lobpcg, pca_lowrank, svd_lowrank

has_lapack, has_mkl, has_openmp, has_spectral = True, False, False, True


# ---- questions ---------------------------------------------------------------------------------------------
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.is_same_size(other)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


def is_anomaly_enabled() -> bool:
    """Whether backward looks for NaN, as `detect_anomaly` has it."""
    return bool(modes.local.anomaly)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether that look is taken at all: see detect_anomaly's `check_nan`."""
    return modes.local.anomaly in (False, True)


def range(start: float = 0, end: float | None = None, step: float = 1, **kwargs: Any) -> Tensor:
    """Make numbers from start to end, which is one of them where a step leads to it; `arange` leaves it out.

    range(end) starts at 0, and numbers are of the default dtype.  Warns that `arange` is meant.
    Raises ArgumentValueError.
    """
    warnings.warn(
        "range is deprecated, as it includes its end, unlike Python's: use arange, whose range is "
        "[start, end)",
        UserWarning,
        stacklevel=3,
    )
    low, high = (0, start) if end is None else (start, end)
    if step == 0 or (high - low) / step < 0:
        raise ArgumentValueError(f"range: a step of {step} does not lead from {low} to {high}")
    count = floor((high - low) / step) + 1
    kwargs["dtype"] = kwargs.get("dtype") or (
        kwargs["out"].dtype if "out" in kwargs else dtypes.default_dtype()
    )
    return ops.arange(low, low + (count - 0.5) * step, step, **kwargs)


def _assert(condition: Any, message: Any = "") -> None:
    """`assert` as a function.  Raises AssertionError."""
    if overriding.OPEN and overriding.answered(_assert, (condition, message), {}) is not overriding.UNSERVED:
        return
    assert condition, message


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raise ArgumentValueError, with what `message` returns, where a condition does not hold."""
    if not cond:
        raise ArgumentValueError("Expected cond to be True" if message is None else str(message()))


def _check_with(error_type: type, cond: Any, message: Callable[[], Any] | None = None) -> None:
    """`_check` with an error of one's own."""
    if not cond:
        raise error_type("Expected cond to be True" if message is None else str(message()))


def _check_tensor_all(cond: Tensor, message: Callable[[], Any] | None = None) -> None:
    """`_check` of all elements of a tensor of bools."""
    _check(bool(cond.all()), message)


def _check_tensor_all_with(error_type: type, cond: Tensor, message: Callable[[], Any] | None = None) -> None:
    """`_check_with` of all elements of a tensor of bools."""
    _check_with(error_type, bool(cond.all()), message)


# ---- sizes that PyTorch's compilers leave open: here they are numbers --------------------------------------
_NUMBERS = "sizes are ints: `jit.trace` has symbolic ones of its own"
SymInt, SymFloat, SymBool = (kind(name, "", _NUMBERS) for name in ("SymInt", "SymFloat", "SymBool"))


def sym_int(a: Any) -> int:
    """The whole number of a, towards 0."""
    return int(a)


def sym_float(a: Any) -> float:
    """a as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """Whether a is false."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger one, a float if one of them is."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller one, a float if one of them is."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_sum(args: Sequence[Any]) -> Any:
    """The sum of numbers."""
    return sum(args)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t where b is true, else f."""
    return t if b else f


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient towards softmax's input, of its output and the gradient towards that."""
    part = grad_output * output
    return (part - output * part.sum(dim, keepdim=True)).to(input_dtype)


def get_device_module(device: Any = None) -> Any:
    """The room of a kind of device; unless given, the accelerator's, or `torch.cpu` without one."""
    place = Device(device or ("cuda" if count() else "cpu"))
    return import_module(f"{__package__}.{place.type}")


class AcceleratorError(LaminaError, RuntimeError):
    """PyTorch's name of what a device fails with: never raised, as that is a DeviceError here."""


# ---- tensors -----------------------------------------------------------------------------------------------
def empty_strided(size: Sequence[int], stride: Sequence[int], **kwargs: Any) -> Tensor:
    """Make a tensor of these sizes and strides, in elements.  Raises ShapeError."""
    if len(size) != len(stride):
        raise ShapeError(
            f"empty_strided(size, stride): dimensionality of sizes ({len(size)}) must match dimensionality "
            f"of strides ({len(stride)})"
        )
    reach = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    grad = kwargs.pop("requires_grad", False)
    made = ops.as_strided(ops.empty(reach, **kwargs), tuple(size), tuple(stride)).detach()
    return made.requires_grad_() if grad else made


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **kwargs: Any) -> Tensor:
    """Make a tensor whose dimensions lie in memory in this order, outermost first.  Raises ShapeError."""
    if sorted(physical_layout) != list(builtins.range(len(size))):
        raise ShapeError(
            f"empty_permuted(size, physical_layout): {list(physical_layout)} is no order of the {len(size)} "
            "dimensions"
        )
    strides, step = [0] * len(size), 1
    for dim in reversed(physical_layout):
        strides[dim], step = step, step * max(1, size[dim])
    return empty_strided(size, strides, **kwargs)


_SAMPLED = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _sampler(name: str, ranks: tuple[int, ...]) -> Callable:
    def sampler(
        input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Tensor:
        if input.ndim not in ranks:
            raise ShapeError(f"{name}(input, grid, …): input has {input.ndim} dimensions, not one of {ranks}")
        chosen = []
        for given, names in zip((interpolation_mode, padding_mode), _SAMPLED, strict=True):
            if given not in builtins.range(len(names)):
                raise ArgumentValueError(f"{name}: modes are numbers, those of {names}, not {given!r}")
            chosen.append(names[given])
        mode, padding = chosen
        return grid_sample(input, grid, mode, padding, align_corners)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = (
        "As nn.functional.grid_sample, with modes by number: bilinear, nearest, bicubic; zeros, border, "
        "reflection."
    )
    return sampler


grid_sampler = _sampler("grid_sampler", (4, 5))
grid_sampler_2d, grid_sampler_3d = _sampler("grid_sampler_2d", (4,)), _sampler("grid_sampler_3d", (5,))


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Compute the powers of a vector's numbers, a row for each: from N - 1 down to 0, or from 0 up."""
    if x.ndim != 1:
        raise ShapeError(f"vander: x must be a one-dimensional tensor. It is {x._meta}")
    if N is not None and N < 0:
        raise ArgumentValueError(f"vander: N must be non-negative. It is {N}")
    rising = x.unsqueeze(1) ** ops.arange(len(x) if N is None else N)
    return rising if increasing else rising.flip(1)


def typename(obj: Any) -> str:
    """The name of an object's class with its module; of a tensor its type, "torch.FloatTensor"."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in (None, "builtins") else f"{module}.{named.__qualname__}"


def conj_physical_(input: Tensor) -> Tensor:
    """Replace complex numbers by their conjugates."""
    return input.conj_physical_()


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of order `pow` over all dimensions but one, which stay with size 1; dim -1: over all."""
    return norm_but(v, dim, pow)


__all__ = [
    "AcceleratorError", "GradScaler", "OutOfMemoryError", "SymBool", "SymFloat", "SymInt", "_assert",
    "_check", "_check_tensor_all", "_check_tensor_all_with", "_check_with",
    "_softmax_backward_data", "alpha_dropout",
    "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "is_autocast_cpu_enabled",
    "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_gpu_dtype", "sym_float", "sym_int",
    "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum",
    "cond", "conj_physical_", "conv_tbc", "empty_permuted",
    "empty_strided", "feature_alpha_dropout", "get_device_module",
    "grid_sampler",
    "grid_sampler_2d", "grid_sampler_3d", "has_lapack", "has_mkl", "has_openmp",
    "has_spectral", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
    "is_same_size", "is_signed", "lobpcg", "norm_except_dim", "pca_lowrank",
    "range", "rrelu", "set_anomaly_enabled", "set_autocast_dtype",
    "set_autocast_enabled",
    "svd_lowrank", "typename", "vander",
]  # fmt: skip

refusing_names(globals(), "lamina.facade.root")
