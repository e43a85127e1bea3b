"""Copies: in another element type (cast, float, long …) or in the same (clone, contiguous)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes, lowering
from ..dtypes import DType, from_numpy_dtype
from ..errors import ArgumentError, ArgumentValueError, DTypeError
from ..op import Traits, composite, define
from ..sample import Sample, sample, unary_samples

COPY = Traits(elementwise=True, movement=True)


def bind_cast(input, dtype):
    """Convert the elements to `dtype`, always into new memory.

    Floats become integers by dropping the fraction (NaN, inf and what is out of range become no promised
    number), anything but 0 becomes True, a float of fewer bits is rounded to even, an integer of fewer
    bits wraps.  Of complex numbers real types keep the real part.
    """
    found = dtypes.as_dtype(dtype)
    if found is None:
        raise ArgumentError(
            f"cast: dtype must be a lamina dtype, not {dtype!r}", "lamina.float32, for example"
        )
    return (input,), {"dtype": found}


def _cast_samples() -> list[Sample]:
    kinds = (
        dtypes.float64,
        dtypes.float32,
        dtypes.float16,
        dtypes.bfloat16,
        dtypes.int64,
        dtypes.uint8,
        dtypes.bool_,
    )
    made = [sample(s.args[0], dtype=dtypes.float64) for s in unary_samples()()]
    # A difference quotient through a narrower type would see its roundings
    return made + [sample((5,), dtype=d, differentiable=False) for d in kinds]


def _cast(input: np.ndarray, *, dtype: DType) -> np.ndarray:
    if input.dtype.kind == "c" and dtype.category in ("int", "float"):
        input = input.real
    return dtypes.converted(input, dtype.numpy)


cast = define(
    "cast",
    complex="analytic",
    bind=bind_cast,
    infer=lambda input, *, dtype: input.with_dtype(dtype),
    reference=_cast,
    grad=lambda g: g,  # whoever applies the rule casts the cotangent to the operand's dtype
    lower=lowering.kernel(lambda k, input, *, dtype: _copy(k, input)),
    traits=COPY,
    method=False,
    samples=_cast_samples,
)


def _copy(k: Any, input: Any) -> None:
    """Store each element where it stood; a store converts to the output's dtype."""
    axes = k.parallel(*input.shape)
    k.store(input[axes], at=axes)


def bind_clone(input, *, memory_format=None):
    """Copy into new memory.

    The strides' order is kept, or made contiguous by `memory_format=contiguous_format` (and by channels_last:
    channels stay first).
    """
    order = {
        "preserve_format": "K",
        "contiguous_format": "C",
        "channels_last": "C",
        "channels_last_3d": "C",
    }.get(str(memory_format or "preserve_format").split(".")[-1])
    if order is None:
        raise ArgumentValueError(
            f"clone: no memory format {memory_format!r}", "known: preserve_format, contiguous_format"
        )
    return (input,), {"order": order}


def _cloned(input: np.ndarray, order: str) -> np.ndarray:
    if order == "K" and (like := dtypes.dense(input)) is not input:
        made = np.empty_like(like)
        made[...] = input
        return made
    return input.copy(order)


clone = define(
    "clone",
    complex="analytic",
    bind=bind_clone,
    infer=lambda input, *, order: input,
    reference=lambda input, *, order: _cloned(input, order),
    grad=lambda g: g,
    lower=lowering.kernel(lambda k, input, *, order: _copy(k, input)),
    traits=COPY,
    samples=unary_samples(),
)


@composite()
def contiguous(input, memory_format=None):
    """Give the tensor itself where its elements lie in row-major order, else such a copy.

    memory_format: taken for the sake of scripts.  There is the one layout, channels first.
    """
    return input if input.is_contiguous() else clone(input, memory_format="contiguous_format")


def dtype_of(value: Any) -> DType:
    """The element type of a tensor, a graph value or an array."""
    found = value.dtype
    dtype = found if isinstance(found, DType) else from_numpy_dtype(found)
    if dtype is None:
        raise DTypeError(f"Lamina has no element type {found}")
    return dtype


def rounded_once(rule: Callable, *operands: Any, **attrs: Any) -> Any:
    """`rule` of halves in float32, and rounded: halves are lost where terms cancel or squares overflow."""
    dtype = dtype_of(operands[0])
    if dtype.compute is dtype:
        return rule(*operands, **attrs)
    return cast(rule(*[cast(x, dtype=dtype.compute) for x in operands], **attrs), dtype=dtype)


def in_reals(input: Any, dtype: Any) -> Any:
    """An operand beside `dtype=`: of complex numbers, where that is a real type, the real parts as `cast` has
    them; a cast to be differentiated, as the op's own rule is then one of reals."""
    if not isinstance(dtype, DType) or dtype.is_complex or not dtype_of(input).is_complex:
        return input
    return cast(input, dtype=dtype)


def _conversion(name: str, dtype: DType) -> Callable:
    """Enter a method such as `x.float()`."""

    def convert(input: Any, memory_format: Any = None) -> Any:
        return input if dtype_of(input) is dtype else cast(input, dtype=dtype)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"Convert to {dtype.name}; a tensor that has this dtype is given back itself."
    return composite(public=False, by_type=True)(convert)


for _name, _dtype in (
    ("double", dtypes.float64),
    ("float", dtypes.float32),
    ("half", dtypes.float16),
    ("bfloat16", dtypes.bfloat16),
    ("long", dtypes.int64),
    ("int", dtypes.int32),
    ("short", dtypes.int16),
    ("char", dtypes.int8),
    ("byte", dtypes.uint8),
    ("bool", dtypes.bool_),
    ("cfloat", dtypes.complex64),
    ("cdouble", dtypes.complex128),
):
    _conversion(_name, _dtype)


@composite(public=False)
def type_as(input, other):
    """Convert to the dtype of `other`; a tensor that has this dtype is given back itself."""
    dtype = dtype_of(other)
    return input if dtype_of(input) is dtype else cast(input, dtype=dtype)
