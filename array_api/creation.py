"""The standard's functions that make tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import DType, bool_, default_dtype, int64
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, from_numpy, ops, tensor
from ..runtime import from_dlpack as shared
from .kinds import KINDS, NUMBERS, on_device, promoted, tensor_in


def _dtype_for(dtype: Any, otherwise: DType) -> DType:
    if dtype is not None and (not isinstance(dtype, DType) or dtype not in KINDS["all"]):
        raise ArgumentError(f"dtype: takes an element type of the array API standard, not {dtype!r}")
    return dtype or otherwise


def _of_value(value: Any) -> DType:
    """The element type of a Python number where no tensor says otherwise."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    return default_dtype() if isinstance(value, float) else default_dtype().to_complex()


def _number(name: str, value: Any) -> Any:
    if isinstance(value, NUMBERS):
        return value
    if isinstance(value, np.generic) or (isinstance(value, Tensor) and not value.ndim):
        return value.item()
    raise ArgumentError(f"{name}: takes a Python number, not {type(value).__name__}")


def _size(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """A tensor of `obj`: a tensor, a number, nested sequences of these, an array, an object with a buffer.

    copy: None shares the memory where it can, False shares it or raises ArgumentValueError, True never does.
    """
    on_device(device)
    wanted = None if dtype is None else _dtype_for(dtype, int64)
    if not isinstance(obj, (Tensor, np.ndarray, *NUMBERS, list, tuple)):
        obj = np.asarray(obj)
    if isinstance(obj, np.ndarray):
        shares = obj.dtype.isnative and (wanted is None or wanted.numpy == obj.dtype)
        if shares and not copy:
            return from_numpy(obj)
    elif isinstance(obj, Tensor):
        if wanted is None or obj.dtype is wanted:
            return obj.clone() if copy else obj
        if copy is not False:
            return obj.to(wanted)
    if copy is False:
        raise ArgumentValueError(
            f"asarray(copy=False): what is made of a {type(obj).__name__} has memory of its own",
            "copy=None makes a copy where one is needed",
        )
    if isinstance(obj, (list, tuple)) and wanted is None:
        parts = list(_tensors(obj))
        wanted = promoted("asarray", *(x.dtype for x in parts)) if parts else None
    return tensor(obj, dtype=wanted)


def _tensors(items: Any) -> Any:
    for x in items:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(x)


def from_dlpack(x, /, *, device=None, copy=None):
    """A tensor over the memory of another library's array, or a copy of it; see lamina.from_dlpack."""
    on_device(device)
    return shared(x, copy=copy)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """The numbers start, start + step, … below `stop`, none where the step leads away from it."""
    on_device(device)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number("arange", x) for x in (start, stop, step))
    whole = all(isinstance(x, int) for x in (start, stop, step))
    made = _dtype_for(dtype, int64 if whole else default_dtype())
    if step != 0 and (stop - start) * step <= 0:
        return ops.zeros(0, dtype=made)
    return ops.arange(start, stop, step, dtype=made)


def empty(shape, *, dtype=None, device=None):
    """A tensor whose values don't matter."""
    return ops.empty(_size(shape), dtype=_dtype_for(dtype, default_dtype()), device=on_device(device))


def zeros(shape, *, dtype=None, device=None):
    """A tensor of zeros."""
    return ops.zeros(_size(shape), dtype=_dtype_for(dtype, default_dtype()), device=on_device(device))


def ones(shape, *, dtype=None, device=None):
    """A tensor of ones."""
    return ops.ones(_size(shape), dtype=_dtype_for(dtype, default_dtype()), device=on_device(device))


def full(shape, fill_value, *, dtype=None, device=None):
    """A tensor filled with one number, whose kind decides the dtype unless it is given."""
    value = _number("full", fill_value)
    return ops.full(_size(shape), value, dtype=_dtype_for(dtype, _of_value(value)), device=on_device(device))


def empty_like(x, /, *, dtype=None, device=None):
    """A tensor of the size of `x`, whose values don't matter."""
    return empty(tensor_in("empty_like", x).shape, dtype=_dtype_for(dtype, x.dtype), device=device)


def zeros_like(x, /, *, dtype=None, device=None):
    """A tensor of zeros, of the size of `x`."""
    return zeros(tensor_in("zeros_like", x).shape, dtype=_dtype_for(dtype, x.dtype), device=device)


def ones_like(x, /, *, dtype=None, device=None):
    """A tensor of ones, of the size of `x`."""
    return ones(tensor_in("ones_like", x).shape, dtype=_dtype_for(dtype, x.dtype), device=device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """A tensor of the size of `x`, filled with one number."""
    made = _dtype_for(dtype, tensor_in("full_like", x).dtype)
    return full(x.shape, fill_value, dtype=made, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Ones on a diagonal, `k` above the main one, and zeros."""
    on_device(device)
    made, columns = _dtype_for(dtype, default_dtype()), n_rows if n_cols is None else n_cols
    distance = ops.arange(columns)[None, :] - ops.arange(n_rows)[:, None]
    return ops.eq(distance, k).to(made)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """`num` numbers from `start` to `stop` at equal distances; `endpoint`: whether `stop` is the last one."""
    on_device(device)
    start, stop = _number("linspace", start), _number("linspace", stop)
    odd = isinstance(start, complex) or isinstance(stop, complex)
    made = _dtype_for(dtype, default_dtype().to_complex() if odd else default_dtype())
    found = ops.linspace(start, stop, num if endpoint else num + 1, dtype=made)
    return found if endpoint else found[:num]


def meshgrid(*arrays, indexing="xy"):
    """The coordinates of a grid; "xy": the first one runs along the second dimension."""
    if arrays:
        promoted("meshgrid", *(tensor_in("meshgrid", x).dtype for x in arrays))
    return list(ops.meshgrid(*arrays, indexing=indexing)) if arrays else []


def tril(x, /, *, k=0):
    """The elements of matrices on and below a diagonal; the others become 0."""
    return ops.tril(tensor_in("tril", x), k)


def triu(x, /, *, k=0):
    """The elements of matrices on and above a diagonal; the others become 0."""
    return ops.triu(tensor_in("triu", x), k)
