"""Complex numbers: their parts, conjugates, sizes and angles, and how they are made of real ones.

A record says by its `complex` whether it takes them.  Gradients follow PyTorch's convention: that of a real L
to z = a + ib is dL/da + i dL/db, so that going against it descends.  The rules here are written for that;
those of analytic functions are not, and the runtime conjugates around them (runtime/plan.py).
"""

from __future__ import annotations

from math import nan, pi
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import DType, float32, float64
from ..elementwise import elementwise
from ..errors import DTypeError, ShapeError
from ..op import REGISTRY, Traits, composite, define
from ..sample import binary_samples, sample, unary_samples
from ..shapes import broadcast_shapes, common_device, float_dtype, result_dtype
from ..types import Shape, Type, type_of
from ..views import view_op
from .cast import dtype_of
from .compare import eq, isnan, lt, where
from .create import zeros_like

_KERNELS_ARE_REAL = lowering.extern("kernels are of real numbers")


def is_complex_valued(x: Any) -> bool:
    """Whether the elements of an operand of any kind are complex; scalar expressions never are."""
    found = getattr(x, "dtype", None)
    return found.kind == "c" if isinstance(found, np.dtype) else isinstance(found, DType) and found.is_complex


# ---- conjugates


conj_physical = elementwise(
    "conj_physical",
    lambda input: input,
    reference=np.conjugate,
    complex="stated",
    grad=lambda g: conj(g),
    doc="Conjugate complex numbers, into new memory; real ones are copied.  Shapes: [...] -> [...].",
)


@composite()
def conj(input):
    """Conjugate complex numbers; a real tensor is given back itself.

    Computed at once, where PyTorch notes it on a view: `is_conj()` is always False.
    """
    return conj_physical(input) if is_complex_valued(input) else input


@composite()
def resolve_conj(input):
    """Give the tensor itself: conjugates are computed at once."""
    return input


@composite()
def resolve_neg(input):
    """Give the tensor itself: negatives are computed at once."""
    return input


@composite()
def is_conj(input):
    """Whether a conjugate is still to be taken: never, as `conj` computes at once."""
    return False


@composite()
def is_neg(input):
    """Whether a negative is still to be taken: never, as `imag` of a conjugate is computed at once."""
    return False


# ---- parts


def _no_places(axes: tuple, shape: Shape, **attrs: Any) -> tuple:
    raise ShapeError("a part of a complex number stands at no place of its own in an array of them")


def _part(name: str, function: Any, grad: Any) -> Any:
    return view_op(
        name,
        shape=lambda shape: shape,
        places=_no_places,
        dtype=DType.to_real,
        reference=function,
        dtypes="complex",
        complex="stated",
        grad=grad,
        lower=_KERNELS_ARE_REAL,
        method=False,
        samples=unary_samples(),
        doc=f"View the {name} parts of complex numbers.  Shapes: [...] -> [...], of the parts' dtype.",
    )


_real = _part("real", lambda input: input.real, lambda g: g)
_imag = _part("imag", lambda input: input.imag, lambda g: g * 1j)


@composite(method=False, by_type=True)
def real(input):
    """View the real parts of complex numbers; a real tensor is given back itself."""
    return _real(input) if is_complex_valued(input) else input


@composite(method=False, by_type=True)
def imag(input):
    """View the imaginary parts of complex numbers.  Raises DTypeError for real ones."""
    if not is_complex_valued(input):
        raise DTypeError(
            f"imag: {dtype_of(input)} has no imaginary part", "zeros_like(x) is what it would be"
        )
    return _imag(input)


@composite()
def isreal(input):
    """Tell where the imaginary part is 0.  Shapes: [...] -> bool [...]."""
    return eq(_imag(input), 0) if is_complex_valued(input) else eq(zeros_like(input), 0)


def pairs(input: np.ndarray) -> np.ndarray:
    """The parts of complex numbers, along a further dimension: the same memory, whatever the strides."""
    part = input.real
    if input.flags.c_contiguous:
        return np.ndarray((*input.shape, 2), part.dtype, input)  # a fifth of the time of what follows
    return np.lib.stride_tricks.as_strided(part, (*part.shape, 2), (*part.strides, part.itemsize))


def _parts_of(dtype: DType) -> DType:
    if not dtype.is_complex:
        raise DTypeError(f"view_as_real: {dtype.name} has no parts")
    return dtype.to_real()


view_as_real = view_op(
    "view_as_real",
    shape=lambda shape: (*shape, 2),
    places=_no_places,
    dtype=_parts_of,
    reference=pairs,
    dtypes="complex",
    complex="stated",
    grad=lambda g: complex(g[..., 0], g[..., 1]),
    lower=_KERNELS_ARE_REAL,
    method=False,
    samples=unary_samples(),
    doc="View complex numbers as pairs of their parts.  Shapes: [...] -> [..., 2], of the parts' dtype.",
)


def _check_pairs(shape: Shape) -> Shape:
    if not shape:
        raise ShapeError("view_as_complex: Input tensor must have one or more dimensions")
    if shape[-1] != 2:
        raise ShapeError(
            "view_as_complex: Tensor must have a last dimension of size 2, which holds the parts; its shape "
            f"is {list(shape)}"
        )
    return shape[:-1]


def _paired_dtype(dtype: DType) -> DType:
    if dtype not in (float32, float64):
        raise DTypeError(f"view_as_complex: takes float32 and float64, not {dtype.name}")
    return dtype.to_complex()


def _paired(input: np.ndarray) -> np.ndarray:
    width = input.itemsize
    if input.size and input.strides[-1] != width:
        raise ShapeError(
            "view_as_complex: Tensor must have a last dimension with stride 1, so that the parts of a number "
            "lie side by side",
            "use x.contiguous()",
        )
    if input.size and any(s % (2 * width) for s in input.strides[:-1]):
        raise ShapeError(
            "view_as_complex: Tensor must have a stride divisible by 2 for all but last dimension, so that "
            "numbers lie whole numbers apart",
            "use x.contiguous()",
        )
    if not input.size:
        return np.empty(input.shape[:-1], np.result_type(input.dtype, np.complex64))
    return input.view(np.result_type(input.dtype, np.complex64))[..., 0]


view_as_complex = view_op(
    "view_as_complex",
    shape=_check_pairs,
    places=_no_places,
    dtype=_paired_dtype,
    reference=_paired,
    dtypes="complex",
    complex=None,
    grad=lambda g: view_as_real(g),
    lower=_KERNELS_ARE_REAL,
    method=False,
    samples=lambda: [sample((2,)), sample((0, 2)), sample((3, 17, 2))],
    doc="View pairs of real and imaginary parts as complex numbers.  Shapes: [..., 2] -> [...].  "
    "Raises ShapeError where the strides don't allow it, DTypeError.",
)

pairs_to_complex = define(
    "pairs_to_complex",
    infer=lambda input: input.with_shape(_check_pairs(input.shape)).with_dtype(_paired_dtype(input.dtype)),
    reference=lambda input: _paired(np.ascontiguousarray(input)),
    dtypes="complex",
    complex=None,
    grad=lambda g: view_as_real(g),
    lower=_KERNELS_ARE_REAL,
    traits=Traits(movement=True),
    method=False,
    samples=lambda: [sample((2,)), sample((0, 2)), sample((3, 17, 2))],
    doc="What view_as_complex gives, of pairs that lie anywhere: cotangents and copies lie as they like.",
)


def _check_reals(op: str, first: DType, second: DType) -> None:
    """Refuse what does not make complex numbers.  Raises DTypeError."""
    if first is second and first in (float32, float64):
        return
    if {first, second} == {float32, float64}:
        what = "object of scalar type {} but got scalar type {} for second argument"
    else:
        what = "both inputs to be Half, Float or Double tensors but got {} and {}"
    raise DTypeError(
        f"{op}: Expected {what.format(first.scalar_type, second.scalar_type)}",
        "both must be float32, or both float64",
        "convert them: x.float()",
    )


def _joined_type(real: Type, imag: Type) -> Type:
    _check_reals("complex(real, imag)", real.dtype, imag.dtype)
    shape = broadcast_shapes("complex", real.shape, imag.shape)
    return type_of(real.dtype.to_complex(), shape, common_device("complex", real, imag))


def _joined(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    out = np.empty_like(np.logical_or(real, imag), np.result_type(real.dtype, np.complex64))
    out.real, out.imag = real, imag  # a sum with 1j * imag would lose infinities and the signs of zeros
    return out


complex = define(
    "complex",
    operands=("real", "imag"),
    attrs=(),
    infer=_joined_type,
    reference=_joined,
    dtypes="complex",
    grad=(lambda g: real(g), lambda g: imag(g)),
    lower=_KERNELS_ARE_REAL,
    traits=Traits(elementwise=True),
    method=False,
    samples=binary_samples(),
    doc="Make complex numbers of their parts, which broadcast.  Raises DTypeError unless both are float32, "
    "or both float64.",
)


# ---- size and direction


def magnitude(*types: Type, **_: Any) -> tuple[DType, DType]:
    """Computed as it is, returned as a real number."""
    dtype = result_dtype(*types)
    return dtype, dtype.to_real()


def _along(g: Any, direction: Any) -> Any:
    """The part of g along a direction of length 1 (or 0), as a real number: Re(conj(direction) g)."""
    return real(conj(direction) * g)


def _sgn(input: np.ndarray) -> np.ndarray:
    if input.dtype.kind == "b":
        return input.copy("K")
    if input.dtype.kind == "c":
        size = np.abs(input)
        return np.where(size == 0, 0, input / np.where(size == 0, 1, size))
    return np.where(input != input, 0, np.sign(input)) if input.dtype.kind == "f" else np.sign(input)


def _grad_sgn(g: Any, input: Any, out: Any) -> Any:
    """What of g stands at right angles to z, over |z|."""
    if not is_complex_valued(out):
        return zeros_like(g)
    size = abs(input)
    zero = eq(size, 0)
    return where(zero, 0, (g - out * _along(g, out)) / where(zero, 1, size))


sgn = elementwise(
    "sgn",
    "sign",
    reference=_sgn,
    complex="stated",
    samples=unary_samples(away_from=(0.0,)),
    grad=_grad_sgn,
    doc="Give z / |z|, and 0 for 0: the sign of real numbers (0 for NaN).",
)


def _angle_result(t: Type) -> tuple[DType, DType]:
    dtype = float_dtype(t)
    return dtype, dtype.to_real()


def _angle(input: np.ndarray) -> np.ndarray:
    if input.dtype.kind == "c":
        return np.arctan2(input.imag, input.real)
    return np.where(input != input, input, np.where(input < 0, input.dtype.type(pi), input.dtype.type(0)))


def _grad_angle(g: Any, input: Any) -> Any:
    if not is_complex_valued(input):
        return zeros_like(g)
    size = abs(input)
    zero = eq(size, 0)
    size = where(zero, 1, size)
    return where(zero, 0, g * (input / size) * 1j / size)


angle = elementwise(
    "angle",
    lambda input: where(isnan(input), nan, where(lt(input, 0), pi, 0.0)),
    reference=_angle,
    result=_angle_result,
    complex="stated",
    inplace=False,
    samples=unary_samples(away_from=(0.0,)),
    grad=_grad_angle,
    doc="Give the angle in radians: 0 or pi of real numbers.  The gradient at 0 is 0.",
)


@composite(method=False)
def polar(abs, angle):
    """Make complex numbers of their absolute values and angles, both float32 or both float64.

    Shapes: [...], [...] broadcast -> [...].  Raises DTypeError.
    """
    _check_reals("polar(abs, angle)", dtype_of(abs), dtype_of(angle))
    return complex(abs * REGISTRY["cos"](angle), abs * REGISTRY["sin"](angle))
