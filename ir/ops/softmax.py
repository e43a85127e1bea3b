"""softmax and log_softmax; both find their gradient in what they returned."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import DType
from ..errors import DTypeError
from ..op import Traits, composite, define
from ..sample import sample
from ..shapes import dim_of
from ..types import Type
from .cast import in_reals, rounded_once
from .kept_arrays import MOST, ones, row_numbers
from .math import exp, log
from .reduce import sum
from .scan import lines


def _bind(name: str, doc: str) -> Any:
    def bind(input, dim=None, _stacklevel=3, dtype=None):
        if isinstance(_stacklevel, DType):  # softmax(x, 1, lamina.float64), as the tensor's method has it
            dtype = _stacklevel
        if dtype is not None:
            input = in_reals(input, dtype)
        if dim is None:  # the older rule: the channels of an image, the classes of a batch
            dim = 0 if input.ndim in (0, 1, 3) else 1
        return (input,), {"dim": dim_of(name, dim, input.ndim), "dtype": dtype}

    bind.__doc__ = doc
    return bind


def _infer(name: str) -> Any:
    def infer(input: Type, *, dim: int, dtype: DType | None) -> Type:
        if not (dtype or input.dtype).is_floating_point:
            raise DTypeError(f"{name}: {dtype or input.dtype} can't hold it", "give dtype=lamina.float32")
        return input.with_dtype(dtype or input.dtype)

    return infer


def _from_top(input: Any, dim: int) -> tuple[Any, int | None]:
    """The distance of each element from the greatest along `dim`, and the axis in NumPy's terms."""
    axis = dim if input.ndim else None
    return input - np.maximum.reduce(input, axis=axis, keepdims=True, initial=-inf), axis


def _softmax(input: Any, *, dim: int, dtype: DType | None) -> Any:
    distance, axis = _from_top(input, dim)
    out = np.exp(distance)
    out /= np.add.reduce(out, axis=axis, keepdims=True)
    return out


def _log_softmax(input: Any, *, dim: int, dtype: DType | None) -> Any:
    distance, axis = _from_top(input, dim)
    return distance - np.log(np.add.reduce(np.exp(distance), axis=axis, keepdims=True))


def _quick(make: Callable) -> Callable:
    """The same for rows of small matrices: sums as products with ones, at a third of a reduction's cost."""

    def quick(types: tuple, attrs: dict) -> Callable | None:
        (input,) = types
        if input.ndim != 2 or attrs["dim"] != 1 or not input.small:
            return None
        rows, columns = input.shape
        if not 0 < rows * columns <= MOST:
            return None
        # a gathered column costs half of a broadcast one
        return make(row_numbers(rows, columns), ones(columns, input.dtype.numpy))

    return quick


def _quick_softmax(row: np.ndarray, across: np.ndarray) -> Callable:
    def softmax(input: np.ndarray) -> np.ndarray:
        flat = input.ravel()
        if flat.dot(flat) < 6400.0:  # none is beyond 80: exponentials are normal numbers as they are
            out = np.exp(input)
        else:
            out = _quickly_from_top(input, row)
            np.exp(out, out)
        out /= out.dot(across).take(row)
        return out if out.flags.c_contiguous else np.ascontiguousarray(out)

    return softmax


def _quick_log_softmax(row: np.ndarray, across: np.ndarray) -> Callable:
    def log_softmax(input: np.ndarray) -> np.ndarray:
        out = _quickly_from_top(input, row)
        out -= np.log(np.exp(out).dot(across)).take(row)
        return out

    return log_softmax


def _quickly_from_top(input: np.ndarray, row: np.ndarray) -> np.ndarray:
    return np.subtract(input, np.maximum.reduce(input, 1).take(row), np.empty(input.shape, input.dtype))


def _build_softmax(k: Any, input: Any, *, dim: int, dtype: DType | None) -> None:
    if not input.shape:
        return k.store(exp(input[()] - input[()]), at=k.parallel())  # 1, and NaN for inf and NaN
    at, along = lines(k, input.shape, dim)
    high = k.max(input[at], over=(along,))
    e = k.local(exp(input[at] - high), over=(along,))
    share = 1.0 / k.sum(e[along], over=(along,))  # for each element a division takes as long as exp
    k.store(e[along] * share, at=at, over=(along,))


def _build_log_softmax(k: Any, input: Any, *, dim: int, dtype: DType | None) -> None:
    if not input.shape:
        return k.store(input[()] - input[()], at=k.parallel())  # 0, and NaN for inf and NaN
    at, along = lines(k, input.shape, dim)
    high = k.max(input[at], over=(along,))
    total = k.sum(exp(input[at] - high), over=(along,))
    k.store((input[at] - high) - log(total), at=at, over=(along,))


def _samples() -> list:
    shapes = [
        ((), 0),
        ((0,), 0),
        ((1,), 0),
        ((17,), 0),
        ((33,), -1),
        ((3, 17), 1),
        ((17, 3), 0),
        ((2, 3, 4), 1),
    ]
    return [sample(shape, dim=dim) for shape, dim in shapes] + [sample((2, 0), dim=1)]


def _softmax_grad(g: Any, out: Any, *, dim: int) -> Any:
    return out * (g - sum(g * out, dim, True))


def _log_softmax_grad(g: Any, out: Any, *, dim: int) -> Any:
    return g - exp(out) * sum(g, dim, True)


softmax = define(
    "softmax",
    bind=_bind(
        "softmax",
        """Compute exp(x) / sum(exp(x)) along `dim`.

        Shapes: the same.  `dtype` is what the elements are converted to beforehand.  Raises DimError, and
        DTypeError for integers and complex numbers without a `dtype`.
        """,
    ),
    infer=_infer("softmax"),
    casts=lambda input, *, dim, dtype: (dtype,),
    reference=_softmax,
    quick=_quick(_quick_softmax),
    grad=lambda g, out, dim: rounded_once(_softmax_grad, g, out, dim=dim),
    lower=lowering.kernel(_build_softmax),
    traits=Traits(in_order=True),
    samples=_samples,
    dtypes="float",
)

log_softmax = define(
    "log_softmax",
    bind=_bind(
        "log_softmax",
        """Compute x - log(sum(exp(x))) along `dim`, the logarithm of softmax without its rounding to 0.

        Shapes: the same.  `dtype` is what the elements are converted to beforehand.  Raises DimError, and
        DTypeError for integers and complex numbers without a `dtype`.
        """,
    ),
    infer=_infer("log_softmax"),
    casts=lambda input, *, dim, dtype: (dtype,),
    reference=_log_softmax,
    quick=_quick(_quick_log_softmax),
    grad=lambda g, out, dim: rounded_once(_log_softmax_grad, g, out, dim=dim),
    lower=lowering.kernel(_build_log_softmax),
    traits=Traits(in_order=True),
    samples=_samples,
    dtypes="float",
)


@composite(method=False)
def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """Compute softmax(-x) along `dim`."""
    return softmax(-input, dim, dtype=dtype)
