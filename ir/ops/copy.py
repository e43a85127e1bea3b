"""Writing values over a tensor, as pure ops: what copy_ and fill_ mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dims import Dim, same
from ..dtypes import converter
from ..errors import ArgumentError, ShapeError
from ..op import Traits, define
from ..sample import sample, unary_samples
from ..shapes import broadcast_shapes
from ..types import Type
from .create import fits, zeros_like

_WRITES = Traits(inplace=True, elementwise=True, storage=True)


def _copied_type(input: Type, src: Type) -> Type:
    shape = broadcast_shapes("copy_", input.shape, src.shape)
    if len(shape) != input.ndim or not all(same(a, b) for a, b in zip(shape, input.shape, strict=True)):
        raise ShapeError(f"copy_: {list(src.shape)} can't be broadcast to {list(input.shape)}")
    return input


def _fitting(src: np.ndarray, input: np.ndarray) -> np.ndarray:
    """What of `src` is written into `input`: of complex numbers into real ones their real parts."""
    if src.dtype is input.dtype:
        return src
    if src.dtype.kind == "c" and input.dtype.kind not in "cb":
        src = src.real
    convert = converter(input.dtype, src.dtype)
    return src if convert is None else convert(src)


def _write_copy(input: np.ndarray, src: np.ndarray) -> None:
    if src.dtype is input.dtype:
        input[...] = src
    else:
        np.copyto(input, _fitting(src, input), casting="unsafe")


def _bind_copy(input: Any, src: Any, non_blocking: bool = False) -> tuple:
    """The values of `src`, broadcast to the shape and cast to the dtype of `input`.

    Shapes: [...], any that broadcasts to it -> [...].  Raises ShapeError.
    """
    return (input, src), {}


copy = define(
    "copy",
    complex="analytic",
    bind=_bind_copy,
    operands=("input", "src"),
    attrs=(),
    reference=lambda input, src: np.array(np.broadcast_to(_fitting(src, input), input.shape), input.dtype),
    infer=_copied_type,
    casts=lambda input, src: (input.dtype, src.dtype if src.dtype.is_complex else input.dtype),
    grad=(lambda g: zeros_like(g), lambda g: g),  # zeros, so that what is written over keeps its history
    write=_write_copy,
    lower=lowering.pointwise(lambda input, src: src),
    traits=_WRITES,
    method=False,
    samples=lambda: [
        sample((), ()), sample((0,), (0,)), sample((1,), ()), sample((17,), (17,)), sample((33,), (1,)),
        sample((3, 17), (17,)), sample((2, 3, 4), (3, 1)),
    ],
)  # fmt: skip


def _bind_fill(input: Any, value: Any) -> tuple:
    """Every element replaced by the number `value`.  Shapes: [...] -> [...].  Raises ArgumentError."""
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (bool, int, float, complex, Dim)):
        raise ArgumentError(f"fill_(value): value must be a number, not {type(value).__name__}")
    return (input,), {"value": value}


def _infer_fill(input: Type, *, value: Any) -> Type:
    fits("fill_", value, input.dtype)
    return input


def _write_fill(input: np.ndarray, *, value: Any) -> None:
    if type(value) in (float, int) and input.dtype.kind == "f":
        input.fill(value)
    else:
        input[...] = _fitting(np.asarray(value), input)


def _build_fill(k: Any, input: Any, *, value: bool | int | float) -> None:
    k.store(k.cast(value, input.dtype), at=k.parallel(*input.shape))


fill = define(
    "fill",
    complex="analytic",
    bind=_bind_fill,
    reference=lambda input, *, value: np.full_like(input, _fitting(np.asarray(value), input)),
    infer=_infer_fill,
    write=_write_fill,
    grad=lambda g: zeros_like(g),
    lower=lowering.kernel(_build_fill),
    traits=_WRITES,
    samples=lambda: [s.__class__(s.args, {"value": 1}) for s in unary_samples()()],
)
